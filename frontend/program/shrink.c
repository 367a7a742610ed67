/* shrink.c -- smaller sizes for verification: dims declared by a number, and numbers from which dims are computed,
 * become small powers of two, in the order of the original sizes, so that divisibility is kept; other dims are computed
 * from these.
 */
#include "lower/expr.h"
#include "program.h"

#include <math.h>
#include <string.h>

static bool mentions(const Ast *expr, const char *name)
{
    if (expr->kind == A_NAME && strcmp(expr->name, name) == 0)
        return true;
    for (const Ast *child = expr->child; child; child = child->next)
        if (mentions(child, name))
            return true;
    return false;
}

/* Is the size of any dim computed from it? */
static bool makes_sizes(const Lower *l, const char *name)
{
    for (const Ast *ast = l->file; ast; ast = ast->next)
        if ((ast->kind == A_DIM || ast->kind == A_CONST) && ast->child && mentions(ast->child, name) &&
            (ast->kind == A_DIM || makes_sizes(l, ast->name)))
            return true;
    return false;
}

/* Does the expression depend on a shrunk size? */
static bool is_computed(const Lower *l, const Ast *expr)
{
    const Symbol *symbol = expr->kind == A_NAME ? find_symbol_here(&l->globals, expr->name) : NULL;
    if (symbol && (symbol->kind == S_DIM || (symbol->kind == S_CONST && !symbol->number.real)))
        return true;
    for (const Ast *child = expr->child; child; child = child->next)
        if (is_computed(l, child))
            return true;
    return false;
}

static double largest_size(Lower *l)
{
    double largest = 2;
    for (const Symbol *s = l->globals.newest; s; s = s->next)
        if (s->kind == S_DIM && s->number.value > largest)
            largest = s->number.value;
    return largest;
}

typedef struct {
    double largest; /* of all sizes */
    int64_t target; /* it becomes about this */
    int64_t kept;   /* sizes up to this stay as they are, if no other is computed from them */
} Shrinking;

/* 2^k for a k in proportion to the logarithm: monotone, so small sizes divide larger ones. */
static int64_t shrunk_size(int64_t size, const Shrinking *to)
{
    double share = floor(log2((double)size)) / fmax(1, floor(log2(to->largest)));
    double exponent = round(share * log2((double)to->target));
    int64_t small = (int64_t)exp2(size > 1 ? fmax(1, exponent) : 0);
    return small < size && size > to->target / 16 ? small : size;
}

/* A shrunk number, or one computed from such; false if it is not a size. */
static bool shrunk_number(Lower *l, const Ast *ast, const Shrinking *to, Constant *number)
{
    if (is_computed(l, ast->child))
        return constant_of(l, ast->child, number) && !number->real && number->integer > 0;
    if (number->integer > to->kept || makes_sizes(l, ast->name))
        *number = integer_constant(shrunk_size(number->integer, to));
    return true;
}

/* Numbers that sizes are computed from shrink with them: dims of side * side and of 1 + side * side keep this
 * relation. */
static void shrink_const(Lower *l, const Ast *ast, const Shrinking *to)
{
    Symbol *symbol = find_symbol_here(&l->globals, ast->name);
    Constant number = symbol->number;
    if (!number.real && number.integer > 1 && makes_sizes(l, ast->name) && shrunk_number(l, ast, to, &number))
        symbol->number = number;
}

static void shrink_dim(Lower *l, const Ast *ast, const Shrinking *to)
{
    Symbol *dim = find_symbol_here(&l->globals, ast->name);
    if (!dim || !ast->child || dim->ast != ast || is_whole_dim(l->options->whole, ast->name))
        return;
    bool had_padding = dim->padded != dim->number.integer;
    Constant number = dim->number;
    if (shrunk_number(l, ast, to, &number))
        dim->number = number;
    else
        complain(l, (Where){ .at = ast->child->loc }, "'%s' cannot be shrunk", ast->name);
    if (had_padding && dim->number.integer > 3)
        dim->number = integer_constant(dim->number.integer - 1); /* so that there is some padding */
    dim->padded = dim->number.integer + had_padding;
}

/* If no dim is much larger than the target, all sizes are kept.  Small ones always are, as numbers in the file may be
 * related to them (windows, strides); but not the numbers of elements that top_k chooses from a dim that shrinks. */
void shrink_sizes(Lower *l)
{
    Shrinking to = { .largest = largest_size(l), .target = l->options->shrink, .kept = 7 };
    if (to.largest <= 4 * (double)to.target)
        return;
    for (const Ast *ast = l->file; ast; ast = ast->next)
        if (ast->kind == A_CONST)
            shrink_const(l, ast, &to);
        else if (ast->kind == A_DIM)
            shrink_dim(l, ast, &to);
    to.kept = 0;
    for (const Ast *ast = l->choices; ast; ast = ast->next)
        shrink_dim(l, ast, &to);
}
