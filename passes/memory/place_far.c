/* place_far.c -- places tensors that are in another tier of memory: behind the arena, each on pages of its own.
 *
 * The arena's size is known last, so addresses first count from the beginning of the other tiers.
 */
#include "map.h"
#include "memory.h"
#include "tier.h"

int64_t place_far(Module *m, Value *value, int64_t at)
{
    const int64_t end = far_aligned(place_value(m, value, at));
    value->storage->base = IN_TIER;
    return end;
}

int64_t place_far_results(Module *m, const Func *f, int64_t far)
{
    for (const Op *op = f->first; op; op = op->next)
        for (int i = 0; i < op->results.count; i++)
            if (op->results.at[i]->type.tier && !op->results.at[i]->storage && info(op)->family != VIEW)
                far = place_far(m, op->results.at[i], far);
    return far;
}

/* Other tiers begin behind the arena. */
static void move_behind(Map *moved, const Values *values, int64_t begin)
{
    for (int i = 0; i < values->count; i++) {
        Storage *storage = values->at[i]->storage;
        if (!storage || storage->base != IN_TIER || map_get(moved, storage))
            continue;
        storage->at += begin;
        map_put(moved, storage, storage);
    }
}

void move_far_behind(Module *m, int64_t begin)
{
    Map moved = { .arena = &m->arena };
    for (const Func *f = m->funcs; f; f = f->next) {
        move_behind(&moved, &f->params, begin);
        for (const Op *op = f->role == KERNEL ? NULL : f->first; op; op = op->next)
            move_behind(&moved, &op->results, begin);
    }
}
