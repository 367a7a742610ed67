/* solve.c -- the built-in function solve: a system of equations whose matrix is a lower triangle with ones on its
 * diagonal.
 *
 * The inverse grows by blocks of twice the rows: with t the inverses of the blocks of the diagonal so far, and m what
 * is below them in blocks twice as large, the next ones are t - t m t.  That is what substitution computes, in as many
 * steps as n has bits, each of two products; and sharding, gradients and both targets are those of products.
 */
#include "functions.h"

typedef struct {
    Lower *l;
    Dim row, column; /* of the matrix, and of t */
    Name third;      /* between two of them */
} System;

/* The number of the block of so many elements that each element of the dim is in. */
static Value *block_of(const System *s, Dim dim, int64_t size)
{
    return two(s->l, OP_div, emit_iota(s->l, dim), emit_number(s->l, (double)size, I32));
}

/* The matrix where it is beside blocks of `size` rows, and in those of twice as many. */
static Value *below_blocks(const System *s, Value *matrix, int64_t size)
{
    Lower *l = s->l;
    Value *in_one = two(l, OP_eq, block_of(s, s->row, 2 * size), block_of(s, s->column, 2 * size));
    Value *is_below = two(l, OP_gt, block_of(s, s->row, size), block_of(s, s->column, size));
    return EMIT(l, OP_where, NO_ATTRS, two(l, OP_mul, in_one, is_below), matrix, emit_number(l, 0, F32));
}

static Value *product(const System *s, Value *a, Value *b)
{
    a = EMIT(s->l, OP_rename, ((Attrs){ .dim = s->column.name, .to = s->third }), a);
    b = EMIT(s->l, OP_rename, ((Attrs){ .dim = s->row.name, .to = s->third }), b);
    return EMIT(s->l, OP_dot, ((Attrs){ .over = { 1, { s->third } } }), a, b);
}

static Value *inverse(const System *s, Value *matrix)
{
    Lower *l = s->l;
    Value *is_diagonal = two(l, OP_eq, emit_iota(l, s->row), emit_iota(l, s->column));
    Value *t = two(l, OP_sub, emit_cast(l, is_diagonal, F32), below_blocks(s, matrix, 1));
    for (int64_t size = 2; size < s->row.size; size *= 2)
        t = two(l, OP_sub, t, product(s, t, product(s, below_blocks(s, matrix, size), t)));
    return t;
}

/* The dim that follows the arrow: a second one of a, which b has not. */
static bool find_column(Lower *l, const Arguments *a, const Dim *row, Dim *column)
{
    const Ast *arrow = a->renaming;
    Name name;
    if (!need_dim(l, a->x[0], a->ast[0], arrow->name, arrow->name_loc, &name))
        return false;
    *column = a->x[0]->type.dim[find_dim(&a->x[0]->type, name)];
    const Where at = { .at = arrow->name_loc, .also = { arrow->child->loc } };
    if (find_dim(&a->x[1]->type, name) >= 0)
        complain(l, (Where){ .at = arrow->name_loc, .also = { a->ast[1]->loc } }, "the right side %s has the dim '%s'",
                 dims_text(l, &a->x[1]->type), name);
    else if (row->size != column->size || row->padded != column->padded)
        complain(l, at, "a triangle is square, but '%s' has %lld elements and '%s' has %lld", row->name,
                 (long long)row->size, name, (long long)column->size);
    else
        return true;
    return false;
}

CALL(solve)
{
    const Ast *from = a->renaming->child;
    Name name;
    System s = { .l = l };
    for (int i = 0; i < 2; i++)
        if (!need_dim(l, a->x[i], a->ast[i], from->name, from->loc, &name))
            return wrong;
    if (has_no_positions(l, name, from->loc))
        return wrong;
    s.row = a->x[0]->type.dim[find_dim(&a->x[0]->type, name)];
    if (!find_column(l, a, &s.row, &s.column))
        return wrong;
    s.third = intern_format(l->m, "%s.1", s.column.name);
    Value *t = inverse(&s, emit_f32(l, a->x[0]));
    Value *b = EMIT(l, OP_rename, ((Attrs){ .dim = name, .to = s.column.name }), emit_f32(l, a->x[1]));
    return tensor_operand(EMIT(l, OP_dot, ((Attrs){ .over = { 1, { s.column.name } } }), t, b));
}
