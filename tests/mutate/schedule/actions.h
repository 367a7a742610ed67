/* actions.h -- for what is linked into a trainer of a pipeline and wraps its rt_pipeline: actions that call act(). */
#ifndef MPC_TEST_ACTIONS_H
#define MPC_TEST_ACTIONS_H

#include "rt.h"

#include <stddef.h>

enum { CHUNKS = 2 }; /* at most */

/* Who includes this says what is done instead of an action; own_action[kind][chunk] is what the trainer does. */
static void act(Rt *rt, char *arena, int64_t micro, int kind, int chunk);
static void (*const *own_action[RT_ACTIONS])(Rt *rt, char *arena, int64_t micro);

#define ACTION(name, kind, chunk)                                                                                      \
    static void name(Rt *rt, char *arena, int64_t micro) { act(rt, arena, micro, kind, chunk); }
ACTION(forward_0, RT_FORWARD, 0)
ACTION(forward_1, RT_FORWARD, 1)
ACTION(backward_0, RT_BACKWARD, 0)
ACTION(backward_1, RT_BACKWARD, 1)
ACTION(weights_0, RT_WEIGHTS, 0)
ACTION(weights_1, RT_WEIGHTS, 1)

static void wrap_actions(RtPipeline *p)
{
    static void (*const wrapped[RT_ACTIONS][CHUNKS])(
        Rt *, char *, int64_t) = { { forward_0, forward_1 }, { backward_0, backward_1 }, { weights_0, weights_1 } };
    static void (*used[RT_ACTIONS][CHUNKS])(Rt *, char *, int64_t);
    for (int kind = 0; kind < RT_ACTIONS; kind++) {
        own_action[kind] = p->action[kind];
        for (int chunk = 0; chunk < p->chunks; chunk++)
            used[kind][chunk] = p->action[kind][chunk] ? wrapped[kind][chunk] : NULL;
        p->action[kind] = used[kind];
    }
}

#endif
