/* indices.c -- bounds checks of indices.  Indices computed from positions and numbers alone are evaluated by the
 * interpreter; indices that depend on the data are checked by the trainer. */
#include "emit.h"
#include "interp/interp.h"

#include <stdlib.h>

enum { MOST_ELEMENTS = 1 << 20, MOST_OPS = 1000 }; /* beyond these limits of compile time, the trainer checks */

/* --- Indices known at compile time ------------------------------------------------------------- */

typedef struct {
    Arena arena;
    Map ops; /* that the index depends on */
    int count;
    double elements;
} Closure;

/* Does the value depend only on numbers and positions? */
static bool collect(Closure *c, const Value *value)
{
    const Op *op = value->def;
    if (!op || info(op)->family == CONTROL)
        return false;
    if (map_get(&c->ops, op))
        return true;
    map_put(&c->ops, op, (void *)op);
    for (int i = 0; i < op->results.count; i++)
        c->elements += (double)element_count(&op->results.at[i]->type);
    if (++c->count > MOST_OPS || c->elements > MOST_ELEMENTS)
        return false;
    for (int i = 0; i < op->args.count; i++)
        if (!collect(c, arg(op, i)))
            return false;
    return true;
}

/* A function without parameters, of these ops of `f`. */
static Func *function_of(Lower *l, Closure *c, const Func *f, Value *value)
{
    Func *alone = NEW(&c->arena, Func);
    alone->name = intern_text(l->m, "index");
    for (const Op *op = f->last; op; op = op->prev)
        if (map_get(&c->ops, op)) {
            Op *copy = NEW(&c->arena, Op);
            *copy = *op;
            insert_op(alone, copy, alone->first);
        }
    push_value(&c->arena, &alone->results, value);
    return alone;
}

/* The elements, freed by the caller; no data on failure: the trainer then reports the error. */
static Tensor evaluate(Lower *l, Closure *c, const Func *f, Value *value)
{
    Module *m = l->m;
    Diags silent = { .arena = &c->arena, .source = l->diags->source, .out = open_discarding() };
    Diags *of_types = m->diags;
    const int naxes = m->naxes;
    Tensor result = { .data = NULL };
    m->diags = &silent;
    m->naxes = 0; /* before sharding */
    if (!interpret(m, function_of(l, c, f, value), NULL, &result))
        result.data = NULL;
    m->naxes = naxes;
    m->diags = of_types;
    return result;
}

/* Are all elements of the result elements of the first operand? */
static bool hands_on(const Op *op)
{
    return info(op)->family == VIEW || op->kind == OP_gather || op->kind == OP_reorder;
}

Input *input_viewed_by(Lower *l, Value *value)
{
    Body *frame = l->frame;
    value = outside_bodies(&frame, value, true);
    while (value->def && hands_on(value->def))
        value = outside_bodies(&frame, arg(value->def, 0), true);
    return frame->outer || index_of(&frame->inputs, value) < 0 ? NULL : find_input(l->m, value->name);
}

/* --- Is it below the size? --------------------------------------------------------------------- */

static bool is_within(Lower *l, double index, const Dim *dim, const Constant *ignored, Loc at)
{
    if ((index >= 0 && index < (double)dim->size) || (ignored && index == ignored->value))
        return true;
    note_element(l, dim);
    return complain(l, (Where){ .at = at, .help = ignored ? NULL : "maximum(i, 0) and minimum(i, d - 1) stay inside" },
                    "index %.15g is out of range: the elements are 0 to %lld", index, (long long)(dim->size - 1));
}

/* A number that is ignored in one use of an input, but not in another, is out of range in that. */
static void note_bound(Input *input, int64_t size, const Constant *ignored)
{
    const bool is_first = input->vocab == 0;
    const int64_t number = ignored ? (int64_t)ignored->value : 0;
    input->may_ignore = ignored && (is_first || (input->may_ignore && input->ignored == number));
    input->ignored = number;
    if (is_first || size < input->vocab)
        input->vocab = size;
}

/* Notes that data must be below the size of each dim that they index. */
static bool note_data(Lower *l, Value *index, const Dim *dim, const Constant *ignored, Loc at)
{
    const Op *op = index->def;
    Input *input = input_viewed_by(l, index);
    if (input)
        note_bound(input, dim->size, ignored);
    if (op && op->kind == OP_where)
        return note_data(l, arg(op, 1), dim, ignored, at) && note_data(l, arg(op, 2), dim, ignored, at);
    return !op || op->kind != OP_constant || is_within(l, op->attrs.value, dim, ignored, at);
}

bool index_fits(Lower *l, Value *index, const Dim *dim, const Constant *ignored, Loc at)
{
    Body *frame = l->frame;
    Value *value = outside_bodies(&frame, index, true);
    Closure c = { .ops = { .arena = NULL } };
    c.ops.arena = &c.arena;
    if (!collect(&c, value)) {
        arena_free(&c.arena);
        return note_data(l, index, dim, ignored, at);
    }
    bool good = true;
    Tensor known = l->role == MODEL ? evaluate(l, &c, frame->func, value) : (Tensor){ .data = NULL };
    for (int64_t i = 0; known.data && good && i < element_count(&known.type); i++)
        good = is_within(l, known.data[i], dim, ignored, at);
    free(known.data);
    arena_free(&c.arena);
    return good;
}
