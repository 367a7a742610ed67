/* tier.c -- see tier.h. */
#include "tier.h"

/* Behind its last byte; 0: it is on the device. */
static int64_t end_of(const Module *m, const Value *value)
{
    const bool is_far = value->type.tier && value->storage && value->storage->base == IN_FRAME;
    return is_far ? value->storage->at + span_bytes(m, value) : 0;
}

int64_t far_bytes(const Module *m)
{
    static const FuncRole programs[] = { STEP, EVAL, PREDICT };
    int64_t end = 0, arena = 0;
    for (int i = 0; i < 3; i++) {
        const Func *f = func_with_role(m, programs[i]);
        for (int k = 0; f && k < f->params.count; k++)
            end = end_of(m, f->params.at[k]) > end ? end_of(m, f->params.at[k]) : end;
        for (const Op *op = f ? f->first : NULL; op; op = op->next)
            for (int k = 0; k < op->results.count; k++)
                end = end_of(m, op->results.at[k]) > end ? end_of(m, op->results.at[k]) : end;
        arena = f ? f->frame : arena;
    }
    return end ? far_aligned(end - far_begin(arena)) : 0;
}

Tier far_tier(const Module *m)
{
    return m->train.offload_optimizer ? m->train.offload_optimizer : m->train.offload_params;
}
