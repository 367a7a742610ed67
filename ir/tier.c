/* tier.c -- see tier.h. */
#include "tier.h"

#include "uses.h"

/* The end of the last of the values that is in another tier, or `end`. */
static int64_t end_of(const Module *m, const Values *values, int64_t end)
{
    for (int i = 0; i < values->count; i++) {
        const Value *value = values->at[i];
        if (value->storage && value->storage->base == IN_TIER && value->storage->at + span_bytes(m, value) > end)
            end = value->storage->at + span_bytes(m, value);
    }
    return end;
}

int64_t far_bytes(const Module *m)
{
    int64_t end = 0, arena = 0;
    for (const Func *f = far_tier(m) ? m->funcs : NULL; f; f = f->next) {
        if (f->role == KERNEL)
            continue;
        end = end_of(m, &f->params, end);
        for (const Op *op = f->first; op; op = op->next)
            end = end_of(m, &op->results, end);
        arena = f->role == PLAIN ? arena : f->frame;
    }
    return end ? far_aligned(end - far_begin(arena)) : 0;
}

Tier far_tier(const Module *m)
{
    const Train *t = &m->train;
    return t->offload_optimizer ? t->offload_optimizer : t->offload_params ? t->offload_params : t->offload_activations;
}

int64_t bytes_of_tiers(const Module *m)
{
    int64_t bytes = 0;
    for (const Func *f = m->funcs; f; f = f->next)
        if (is_program(f))
            bytes = f->frame > bytes ? f->frame : bytes;
    return far_bytes(m) ? far_begin(bytes) + far_bytes(m) : bytes;
}

Op *fetch_of(const Func *f, const Value *operand)
{
    Op *move = operand->def;
    return move && info(move)->traits & CARRIES && !move->attrs.tier && uses_in(f, operand) == 1 ? move : NULL;
}

Op *move_away_of(const Func *f, const Value *made)
{
    Op *op = made->def->next;
    while (op && index_of(&op->args, made) < 0)
        op = op->next;
    return op && info(op)->traits & CARRIES && uses_in(f, made) == 1 ? op : NULL;
}
