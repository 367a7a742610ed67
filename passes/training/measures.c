/* measures.c -- figures about experts for the log, one for each copy of a dispatch, from counts over the whole batch:
 *
 *   %load    : f32[h.copy, experts.load]    choices of each expert    =>    the most over the mean: [h.copy]
 *   %dropped : f32[h.copy]                  choices that found no slot  =>    their share: [h.copy]
 */
#include "autodiff.h"

static Value *reduced(Builder *b, OpKind kind, Value *x, Name over)
{
    return BUILD(b, kind, ((Attrs){ .over = { 1, { over } } }), x);
}

static Value *ratio(Builder *b, Value *a, Value *by) { return BUILD(b, OP_div, NO_ATTRS, a, by); }

/* For all copies on each rank: summed with zeros of the others, since stages of different sizes gather nothing. */
static Value *of_all_copies(Builder *b, Value *x)
{
    Module *m = b->module;
    if (x->type.rank == 0)
        return x;
    Dim own = x->type.dim[0], all = { .size = own.size, .padded = own.padded };
    all.name = intern_format(m, "%s.all", own.name);
    Value *here = build_op(b, OP_iota, (Attrs){ .dims = { 1, { own } } }, 0, NULL);
    Value *there = build_op(b, OP_iota, (Attrs){ .dims = { 1, { all } } }, 0, NULL);
    Value *same = BUILD(b, OP_cast, (Attrs){ .dtype = intern_text(m, "f32") }, BUILD(b, OP_eq, NO_ATTRS, here, there));
    return reduced(b, OP_sum, BUILD(b, OP_mul, NO_ATTRS, same, x), own.name);
}

static Value *count_for(Builder *b, const Func *of, const Op *counts, Port port, Value *loss_scale)
{
    const int at = result_at(of, port);
    if (at < 0)
        return NULL;
    Value *count = counts->results.at[at];
    return loss_scale ? ratio(b, count, loss_scale) : count;
}

void add_measures(Builder *b, const Func *of, const Op *counts, Value *loss_scale)
{
    Module *m = b->module;
    for (int i = 0; i < of->results.count; i++) {
        const Port port = result_port(of, i), beyond = { .kind = PORT_DROPPED, .of = port.of };
        if (port.kind != PORT_LOAD)
            continue;
        b->path = port.of;
        Value *load = count_for(b, of, counts, port, loss_scale);
        Value *dropped = count_for(b, of, counts, beyond, loss_scale);
        const Dim *experts = &load->type.dim[load->type.rank - 1];
        Value *all = reduced(b, OP_sum, load, experts->name);
        Value *mean = ratio(b, all, build_number(b, (double)experts->size));
        Value *most = ratio(b, reduced(b, OP_max, load, experts->name), mean);
        add_result(m, b->func, of_all_copies(b, most), port);
        if (dropped)
            add_result(m, b->func, of_all_copies(b, ratio(b, dropped, all)), beyond);
    }
}
