/* dims.c -- declarations outside of blocks: constants, dims, names; and stated types.
 *
 * For verification, sizes are shrunk here: dims declared by a number, and numbers from which dims are computed, become
 * small powers of two, in the order of the original sizes, so that divisibility is kept; other dims are computed from
 * these.
 */
#include "experts.h"
#include "lowering.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MOST_ELEMENTS = 0x7fffffff }; /* along one dim: indices are i32 */

/* --- Overrides ----------------------------------------------------------------------------- */

static const Override *find_define(const Lower *l, const char *name)
{
    for (int i = l->options->ndefines - 1; i >= 0; i--)
        if (strcmp(l->options->defines[i].name, name) == 0)
            return &l->options->defines[i];
    return NULL;
}

/* The number of a const or dim: from -D, if given; else from its expression. */
static bool number_of(Lower *l, const Ast *ast, const Ast *expr, Constant *number)
{
    const Override *define = find_define(l, ast->name);
    if (!define)
        return constant_of(l, expr, number);
    return constant_of_text(l, arena_text(l->arena, "-D %s", define->name), define->value, number);
}

static const char *origin_of(Lower *l, const Ast *ast)
{
    return find_define(l, ast->name) ? "command line" : where_text(l, ast->name_loc);
}

static const char *define_text(Lower *l, const Override *define)
{
    return arena_text(l->arena, "-D %s=%s", define->name, define->value);
}

static void check_defines(Lower *l)
{
    for (int i = 0; i < l->options->ndefines; i++) {
        const Override *define = &l->options->defines[i];
        const Symbol *symbol = find_symbol_here(&l->globals, define->name);
        NearMiss near = { .name = define->name };
        for (const Symbol *s = l->globals.newest; s; s = s->next)
            if (s->kind == S_CONST || s->kind == S_DIM)
                offer(&near, s->name);
        if (symbol && symbol == l->batch)
            fail_command(l, define_text(l, define), "--set train.microbatch=N", "the size of '%s' is the micro-batch",
                         define->name);
        else if (symbol && symbol->is_slots)
            fail_command(l, define_text(l, define), NULL, "the size of '%s' is computed by dispatch", define->name);
        else if (!symbol || (symbol->kind != S_CONST && symbol->kind != S_DIM))
            fail_command(l, define_text(l, define), did_you_mean(l->arena, &near), "no const or dim is named '%s'",
                         define->name);
    }
}

/* --- Shrinking ----------------------------------------------------------------------------- */

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

static bool is_whole(const WholeDims *whole, const char *dim)
{
    for (int i = 0; whole && i < whole->count; i++)
        if (strcmp(whole->at[i], dim) == 0)
            return true;
    return false;
}

bool keep_whole(WholeDims *whole, Arena *arena, const char *dim)
{
    if (is_whole(whole, dim) || whole->count == MAX_WHOLE)
        return false;
    whole->at[whole->count++] = arena_text(arena, "%s", dim);
    return true;
}

void note_element(Lower *l, const Dim *dim)
{
    if (l->options->shrink)
        keep_whole(l->options->whole, l->diags->arena, dim->name);
}

static void shrink_dim(Lower *l, const Ast *ast, const Shrinking *to)
{
    Symbol *dim = find_symbol_here(&l->globals, ast->name);
    if (!dim || !ast->child || dim->ast != ast || is_whole(l->options->whole, ast->name))
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
static void shrink_sizes(Lower *l)
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

/* --- Declarations -------------------------------------------------------------------------- */

static bool taken(Lower *l, const char *name, Loc loc)
{
    const Symbol *other = find_symbol_here(&l->globals, name);
    if (other)
        complain(l, (Where){ .at = loc }, "'%s' is already %s, declared at %s", name, symbol_noun(other->kind),
                 position_text(l, other->loc));
    return other != NULL;
}

static void declare_const(Lower *l, const Ast *ast)
{
    Constant number = { 0 };
    bool good = number_of(l, ast, ast->child, &number);
    if (taken(l, ast->name, ast->name_loc))
        return;
    Symbol *symbol = declare(l, &l->globals, S_CONST, ast->name, ast->name_loc);
    symbol->number = number;
    symbol->wrong = !good;
    symbol->ast = ast;
    if (good)
        add_setting(l, arena_text(l->arena, "const.%s", ast->name), constant_text(l->arena, number), "",
                    origin_of(l, ast));
}

/* Is it an integer number of elements?  Errors are reported at the number. */
static bool is_size(Lower *l, const Ast *ast, const Override *define, Constant number, const char *what)
{
    static const char message[] = "%s must be a whole number from 1 to %d, not %s";
    const char *text = constant_text(l->arena, number);
    bool good = !number.real && number.integer >= 1 && number.integer <= MOST_ELEMENTS;
    if (!good && define)
        fail_command(l, define_text(l, define), NULL, message, what, MOST_ELEMENTS, text);
    else if (!good)
        complain(l, (Where){ .at = ast->loc }, message, what, MOST_ELEMENTS, text);
    return good;
}

static void declare_batch(Lower *l, const Ast *ast)
{
    if (l->batch)
        complain(l, (Where){ .at = ast->name_loc, .help = arena_text(l->arena, "dim %s = ...", ast->name) },
                 "neither '%s' nor '%s', declared at %s, has a size: only the micro-batch may have none", ast->name,
                 l->batch->name, position_text(l, l->batch->loc));
    if (ast->type)
        complain(l, (Where){ .at = ast->type->loc }, "'%s' is the micro-batch, which cannot be padded", ast->name);
    if (!taken(l, ast->name, ast->name_loc)) {
        Symbol *symbol = declare(l, &l->globals, S_DIM, ast->name, ast->name_loc);
        l->batch = l->batch ? l->batch : symbol;
        symbol->wrong = symbol != l->batch;
        symbol->ast = ast;
    }
}

static void declare_slots(Lower *l, const Ast *ast)
{
    if (ast->type)
        complain(l, (Where){ .at = ast->type->loc }, "the size of '%s' is computed by dispatch, it cannot be padded",
                 ast->name);
    if (taken(l, ast->name, ast->name_loc))
        return;
    Symbol *symbol = declare(l, &l->globals, S_DIM, ast->name, ast->name_loc);
    symbol->number = integer_constant(0);
    symbol->is_slots = true;
    symbol->ast = ast;
}

void declare_dim(Lower *l, const Ast *ast)
{
    Constant size = { 0 }, multiple = integer_constant(1);
    if (!ast->child && holds_slots(l, ast->name)) {
        declare_slots(l, ast);
        return;
    }
    if (!ast->child) {
        declare_batch(l, ast);
        return;
    }
    bool good = number_of(l, ast, ast->child, &size) && is_size(l, ast->child, find_define(l, ast->name), size,
                                                                arena_text(l->arena, "the size of '%s'", ast->name));
    if (ast->type)
        good &=
            constant_of(l, ast->type, &multiple) && is_size(l, ast->type, NULL, multiple, "the argument of 'padded'");
    if (taken(l, ast->name, ast->name_loc))
        return;
    Symbol *symbol = declare(l, &l->globals, S_DIM, ast->name, ast->name_loc);
    symbol->ast = ast;
    symbol->wrong = !good;
    symbol->number = good ? size : integer_constant(1);
    symbol->padded = good ? (size.integer + multiple.integer - 1) / multiple.integer * multiple.integer : 1;
    try_sizes(l, symbol);
    if (good)
        add_setting(l, arena_text(l->arena, "dim.%s", ast->name), constant_text(l->arena, size), "elements",
                    origin_of(l, ast));
}

static void declare_block(Lower *l, const Ast *ast, SymbolKind kind)
{
    if (kind == S_BLOCK && is_function(ast->name))
        complain(l, (Where){ .at = ast->name_loc }, "'%s' is a built-in function", ast->name);
    if (!taken(l, ast->name, ast->name_loc))
        declare(l, &l->globals, kind, ast->name, ast->name_loc)->ast = ast;
}

static void declare_model(Lower *l, const Ast *ast)
{
    if (l->model)
        complain(l, (Where){ .at = ast->name_loc }, "a second model: '%s' is declared at %s", l->model->name,
                 position_text(l, l->model->name_loc));
    else
        declare_block(l, ast, S_MODEL);
    l->model = l->model ? l->model : ast;
}

void declare_all(Lower *l)
{
    for (const Ast *ast = l->file; ast; ast = ast->next) {
        if (ast->kind == A_CONST)
            declare_const(l, ast);
        else if (ast->kind == A_DIM)
            declare_dim(l, ast);
        else if (ast->kind == A_BLOCK)
            declare_block(l, ast, S_BLOCK);
        else if (ast->kind == A_MODEL)
            declare_model(l, ast);
    }
    declare_made_dims(l);
    check_defines(l);
    if (!l->model)
        complain(l, (Where){ .at = { l->source->length, l->source->length } }, "the file has no model");
    if (l->options->shrink && l->diags->errors == 0)
        shrink_sizes(l);
}

/* --- Dims and types by name ---------------------------------------------------------------- */

bool find_dim_named(Lower *l, const char *name, Loc loc, Dim *dim)
{
    Symbol *symbol = find_symbol(l->scope, name);
    if (symbol)
        symbol->used = true;
    symbol = meant_by(symbol);
    if (!symbol || symbol->kind != S_DIM) {
        NearMiss near = { .name = name };
        for (const Symbol *s = l->globals.newest; s; s = s->next)
            if (s->kind == S_DIM)
                offer(&near, s->name);
        if (symbol)
            complain(l, (Where){ .at = loc }, "'%s' is %s, not a dim", name, symbol_noun(symbol->kind));
        else
            complain(l, (Where){ .at = loc, .help = did_you_mean(l->arena, &near) }, "no dim is named '%s'", name);
        return false;
    }
    *dim = (Dim){ .name = intern_text(l->m, symbol->name), .size = symbol->number.integer, .padded = symbol->padded };
    if (symbol == l->batch || symbol->is_others)
        dim->size = dim->padded = l->batch_size;
    dim->split.count = l->variant == AS_CHECK && (symbol == l->batch || symbol->by_sequence); /* over its only axis */
    if (symbol->is_slots && dim->size == 0) {
        complain(l, (Where){ .at = loc, .help = "first dispatch(x, chosen, experts, slots)" },
                 "the size of '%s' is computed by dispatch", name);
        return false;
    }
    return !symbol->wrong;
}

static bool stated_dtype(Lower *l, const Ast *type, DType *dtype)
{
    *dtype = type->name ? dtype_named(type->name) : F32;
    if (*dtype == N_DTYPES) {
        NearMiss near = { .name = type->name };
        for (int i = 0; i < N_DTYPES; i++)
            offer(&near, dtype_name[i]);
        complain(l, (Where){ .at = type->name_loc, .help = did_you_mean(l->arena, &near) }, "no type is named '%s'",
                 type->name);
    } else if (is_half(*dtype)) {
        complain(l, (Where){ .at = type->name_loc, .help = "leave the type out" },
                 "'%s': train.precision determines how floating-point tensors are stored", type->name);
    }
    return *dtype != N_DTYPES && !is_half(*dtype);
}

bool type_of_ast(Lower *l, const Ast *ast, Type *type)
{
    *type = (Type){ 0 };
    bool good = stated_dtype(l, ast, &type->dtype);
    for (const Ast *name = ast->child; name; name = name->next) {
        Dim dim;
        if (strcmp(name->name, "...") == 0) {
            good = false; /* wrong position: reported by the parser */
            continue;
        }
        if (!find_dim_named(l, name->name, name->loc, &dim)) {
            good = false;
            continue;
        }
        if (find_dim(type, dim.name) >= 0) {
            complain(l, (Where){ .at = name->loc, .help = "declare a second dim of that size" },
                     "'%s' occurs twice: the dims of a tensor must be distinct", dim.name);
            good = false;
        } else if (type->rank == MAX_RANK) {
            complain(l, (Where){ .at = name->loc }, "a tensor has at most %d dims", MAX_RANK);
            return false;
        } else {
            type->dim[type->rank++] = dim;
        }
    }
    return good;
}
