/* place_far.c -- places what is in another tier of memory than the device's: behind the arena, each tensor on pages of
 * its own.
 *
 * The arena's size is known last, so addresses first count from the beginning of the other tiers.
 */
#include "map.h"
#include "memory.h"
#include "tier.h"

int64_t place_far(Module *m, Value *value, int64_t at) { return far_aligned(place_value(m, value, at)); }

int64_t place_far_results(Module *m, const Func *f, int64_t far)
{
    for (const Op *op = f->first; op; op = op->next)
        for (int i = 0; i < op->results.count; i++)
            if (op->results.at[i]->type.tier && !op->results.at[i]->storage && info(op)->family != VIEW)
                far = place_far(m, op->results.at[i], far);
    return far;
}

/* Other tiers begin behind the arena. */
static void move_behind(Map *moved, const Value *value, int64_t begin)
{
    if (!value->type.tier || map_get(moved, value->storage))
        return;
    value->storage->at += begin;
    map_put(moved, value->storage, value->storage);
}

void move_far_behind(Module *m, const Func *const programs[3], int64_t begin)
{
    Map moved = { .arena = &m->arena };
    for (int i = 0; i < 3; i++) {
        for (int k = 0; programs[i] && k < programs[i]->params.count; k++)
            move_behind(&moved, programs[i]->params.at[k], begin);
        for (const Op *op = programs[i] ? programs[i]->first : NULL; op; op = op->next)
            for (int k = 0; k < op->results.count; k++)
                move_behind(&moved, op->results.at[k], begin);
    }
}
