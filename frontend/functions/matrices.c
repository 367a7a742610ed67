/* matrices.c -- parameters as matrices, for optimizers: the dims `in` and `out`, and orthogonal().
 *
 * `in` are the dims that products contract, or that a gather takes its rows from, `out` the others: of wq : [embed,
 * heads, head] they are embed, and heads with head.  Of a table whose dims are all contracted, as of tied embeddings,
 * and of a table of positions `in` is the first dim.  Dims that count copies of a repeat, that both operands of a
 * product keep (experts), or that an index has too, are in neither: such a parameter is several matrices.  Of what is
 * no matrix, a gain or a bias, `in` is empty.  A product of a matrix with itself has dims of it twice, under the second
 * name in', and what multiplies such products under the third one, in''.
 */
#include "functions.h"

#include <string.h>

bool counts_matrices(const Lower *l, Name dim)
{
    const Matrix *matrix = l->matrix;
    return matrix && find_dim(matrix->type, dim) >= 0 && !has_name(&matrix->in, dim) && !has_name(&matrix->out, dim);
}

/* --- Second names ----------------------------------------------------------------------------- */

Names primed_dims(Lower *l, const Names *dims, int times)
{
    Names others = { 0 };
    for (int i = 0; i < dims->count; i++)
        add_name(&others, intern_format(l->m, "%s.%d", dims->name[i], times));
    return others;
}

/* The dim of the matrix with that name, or primed_dims(). */
static Name own_dim(Lower *l, const Matrix *matrix, Name name)
{
    const Names *const sides[] = { &matrix->in, &matrix->out };
    for (int side = 0; side < 2; side++)
        for (int times = 1; times <= TWINS; times++) {
            const Names others = primed_dims(l, sides[side], times);
            for (int i = 0; i < others.count; i++)
                if (others.name[i] == name)
                    return sides[side]->name[i];
        }
    return name;
}

Dim dim_of_matrix(Lower *l, const Matrix *matrix, Name name)
{
    const Name own = own_dim(l, matrix, name);
    Dim dim = matrix->type->dim[find_dim(matrix->type, own)];
    if (own != name)
        add_made_dim(l->m, name, MADE_TWIN, own);
    dim.name = name;
    return dim;
}

const Names *dims_named(const Lower *l, const char *name)
{
    const Symbol *symbol = l->matrix ? find_symbol(l->scope, name) : NULL;
    return symbol && symbol->kind == S_DIMS ? &symbol->dims : NULL;
}

/* The place of a row: of (a, b) it is a * size of b + b. */
Value *place_in_matrix(Lower *l, const Names *dims)
{
    Value *place = emit_number(l, 0, I32);
    for (int i = 0; i < dims->count; i++) {
        const Dim dim = dim_of_matrix(l, l->matrix, dims->name[i]);
        Value *own = emit_iota(l, dim);
        if (i > 0)
            place = EMIT(l, OP_mul, NO_ATTRS, place, emit_number(l, (double)dim.size, I32));
        place = i > 0 ? EMIT(l, OP_add, NO_ATTRS, place, own) : own;
    }
    return place;
}

Operand rename_group(Lower *l, const Arguments *a, const Names *from, const Names *to)
{
    const Ast *arrow = a->renaming;
    Value *x = a->x[0];
    const size_t length = strcspn(arrow->name, "'");
    const Where at = { .at = arrow->name_loc, .also = { arrow->child->loc } };
    if (strncmp(arrow->child->name, arrow->name, length) != 0 || strcspn(arrow->child->name, "'") != length)
        return complain(l, at, "'%s' has other dims than '%s'", arrow->name, arrow->child->name), wrong;
    for (int i = 0; i < from->count; i++)
        if (find_dim(&x->type, from->name[i]) < 0 || find_dim(&x->type, to->name[i]) >= 0) {
            const bool lacks = find_dim(&x->type, from->name[i]) < 0;
            return complain(l, (Where){ .at = lacks ? arrow->child->loc : arrow->name_loc, .also = { a->ast[0]->loc } },
                            lacks ? "%s has no dim of '%s'" : "%s already has the dims of '%s'",
                            type_words(l, &x->type), lacks ? arrow->child->name : arrow->name),
                   wrong;
        }
    for (int i = 0; x && i < from->count; i++)
        x = EMIT(l, OP_rename, ((Attrs){ .dim = from->name[i], .to = to->name[i] }), x);
    return tensor_operand(x);
}

/* --- Newton and Schulz ------------------------------------------------------------------------ */

static int64_t size_of(const Value *x, const Names *dims)
{
    int64_t size = 1;
    for (int i = 0; i < dims->count; i++)
        size *= x->type.dim[find_dim(&x->type, dims->name[i])].size;
    return size;
}

/* x with each of the dims under another name. */
static Value *renamed(Lower *l, Value *x, const Names *dims, const char *from, const char *to)
{
    for (int i = 0; x && i < dims->count; i++)
        x = EMIT(l, OP_rename,
                 ((Attrs){ .dim = intern_format(l->m, "%s%s", dims->name[i], from),
                           .to = intern_format(l->m, "%s%s", dims->name[i], to) }),
                 x);
    return x;
}

static Value *scaled(Lower *l, Value *x, double by) { return EMIT(l, OP_mul, NO_ATTRS, x, emit_number(l, by, F32)); }

static Value *product(Lower *l, Value *a, Value *b, Names over)
{
    return EMIT(l, OP_dot, (Attrs){ .over = over }, a, b);
}

/* a x + (b A + c A A) x, with A = x x' over the longer side: the singular values of x approach 1. */
static Value *iterate(Lower *l, Value *x, const Names *rows, Names columns)
{
    static const double a = 3.4445, b = -4.7750, c = 2.0315;
    const Names others = primed_dims(l, rows, 1);
    Value *other = renamed(l, x, rows, "", ".1");
    Value *gram = product(l, x, other, columns); /* [rows, rows.1] */
    Value *right = renamed(l, renamed(l, gram, rows, ".1", ".2"), rows, "", ".1");
    Value *square = renamed(l, product(l, gram, right, others), rows, ".2", ".1");
    Value *by = EMIT(l, OP_add, NO_ATTRS, scaled(l, gram, b), scaled(l, square, c));
    return EMIT(l, OP_add, NO_ATTRS, scaled(l, x, a), product(l, by, other, others));
}

/* Do the products of iterate() have few enough dims?  They have those of the rows three times, or twice and columns. */
static bool fits(int rank, const Names *rows, const Names *columns)
{
    const int kept = rank - rows->count - columns->count;
    return kept + 2 * rows->count + (rows->count > columns->count ? rows : columns)->count <= MAX_RANK;
}

static bool has_square(const Matrix *matrix, int rank)
{
    return fits(rank, &matrix->in, &matrix->out) || fits(rank, &matrix->out, &matrix->in);
}

/* The shorter side is squared, if it can be. */
static Value *orthogonal(Lower *l, Value *x, const Matrix *matrix, int64_t steps)
{
    const double least = 1e-7;
    const bool is_tall = size_of(x, &matrix->in) > size_of(x, &matrix->out);
    const Names *rows = is_tall ? &matrix->out : &matrix->in, *columns = is_tall ? &matrix->in : &matrix->out;
    if (!fits(x->type.rank, rows, columns)) {
        const Names *longer = columns;
        columns = rows;
        rows = longer;
    }
    Names both = *rows;
    for (int i = 0; i < columns->count; i++)
        add_name(&both, columns->name[i]);
    Value *norm = EMIT(l, OP_sqrt, NO_ATTRS, sum_over(l, EMIT(l, OP_square, NO_ATTRS, x), both));
    x = EMIT(l, OP_div, NO_ATTRS, x, EMIT(l, OP_maximum, NO_ATTRS, norm, emit_number(l, least, F32)));
    for (int64_t i = 0; x && i < steps; i++)
        x = iterate(l, x, rows, *columns);
    return x;
}

static bool has_all(const Type *type, const Names *dims)
{
    int i = 0;
    while (i < dims->count && find_dim(type, dims->name[i]) >= 0)
        i++;
    return i == dims->count;
}

CALL(orthogonal)
{
    int64_t steps = 5;
    if (!l->matrix)
        return complain(l, (Where){ .at = a->call->loc }, "orthogonal(...) belongs in an optimizer"), wrong;
    if (a->keyword[0] && !integer_of(l, a->keyword[0]->child, "'steps'", 1, 100, &steps))
        return (Operand){ .kind = WRONG };
    if (!has_all(&a->x[0]->type, &l->matrix->in) || !has_all(&a->x[0]->type, &l->matrix->out))
        return complain(l, (Where){ .at = a->call->loc }, "orthogonal(...) takes a tensor like the parameter, not %s",
                        type_words(l, &a->x[0]->type)),
               wrong;
    l->matrix->refused = !l->matrix->in.count || !has_square(l->matrix, a->x[0]->type.rank);
    if (l->matrix->refused) /* reported where the optimizer is chosen */
        return (Operand){ .kind = WRONG };
    return tensor_operand(orthogonal(l, a->x[0], l->matrix, steps));
}
