/* random.c -- random(d, ...): numbers from 0 to 1 that are hashes of the key of dropout and of positions, one dim after
 * the other, so that no layout and no size of micro-batches changes them.  Evaluation and sampling have no key, and do
 * not know the place of a sequence in all data: both are 0 there.
 */
#include "functions.h"

#include <assert.h>

enum { RANDOM = 1 << 20 }; /* in the hash of a key: above the copies of a repeat */

static_assert((int)RANDOM > (int)MAX_COPIES, "a copy and a call of random have one number");

static Value *integer(Lower *l, double number) { return emit_number(l, number, I32); }

/* The last 24 bits of an integer, which are exact in f32, as a fraction. */
static Value *fraction(Lower *l, Value *bits)
{
    const double most = 1 << 24;
    Value *rest = two(l, OP_sub, bits, two(l, OP_mul, two(l, OP_div, bits, integer(l, most)), integer(l, most)));
    Value *is_negative = two(l, OP_lt, rest, integer(l, 0));
    rest = EMIT(l, OP_where, NO_ATTRS, is_negative, two(l, OP_add, rest, integer(l, most)), rest);
    return two(l, OP_mul, emit_cast(l, rest, F32), emit_number(l, 1 / most, F32));
}

/* Of sequences, those in the whole batch. */
static Value *places_along(Lower *l, Dim dim, bool trains)
{
    if (dim.name != l->m->batch)
        return emit_iota(l, dim);
    if (!trains)
        return EMIT(l, OP_broadcast, ((Attrs){ .dims = { 1, { dim } } }), integer(l, 0));
    return two(l, OP_add, emit_iota(l, dim), dropout_origin(l));
}

CALL(random)
{
    const bool trains = !evaluates(l);
    Value *key = trains ? dropout_key(l, l->frame) : integer(l, 0);
    Value *bits = two(l, OP_fold_key, key, integer(l, RANDOM + l->now.dropout_count++));
    for (int i = 0; i < a->dims.count; i++) {
        Dim dim;
        find_dim_named(l, a->dims.name[i], a->dim_ast[i]->loc, &dim);
        if (dim.name != l->m->batch && has_no_positions(l, dim.name, a->dim_ast[i]->loc))
            return wrong;
        bits = two(l, OP_fold_key, bits, places_along(l, dim, trains));
    }
    return tensor_operand(fraction(l, bits));
}
