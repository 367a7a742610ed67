/* arena.c -- the addresses of a rank's tensors: their places in the plan, less what ranks of its kind leave out. */
#include "far/far.h"
#include "rt.h"
#include "state.h"

int64_t rt_at(const Rt *rt, const RtKinds *kinds, int64_t offset)
{
    if (rt_is_far(rt, offset)) /* behind the plan's arena, on all kinds */
        return offset;
    int64_t left_out = 0;
    for (const RtGap *gap = kinds->gap[rt_coordinate(rt, kinds->axis)]; gap->bytes && gap->at < offset; gap++)
        left_out += offset - gap->at < gap->bytes ? offset - gap->at : gap->bytes;
    return offset - left_out;
}

int64_t rt_place_in(const Rt *rt, const RtFunction *f, int64_t offset)
{
    return f->kinds ? rt_at(rt, f->kinds, offset) : offset;
}

int64_t rt_own_place(const Rt *rt, int64_t offset) { return rt_place_in(rt, &rt->program->step, offset); }

enum { FUNCTIONS = 6 };

static const RtFunction *function_of(const RtProgram *program, int i)
{
    const RtFunction *const all[FUNCTIONS] = { &program->step,    &program->eval,   &program->predict,
                                               &program->outputs, &program->finish, &program->begin };
    return all[i];
}

int64_t rt_arena_bytes(const Rt *rt)
{
    int64_t most = 0;
    for (int i = 0; i < FUNCTIONS; i++) {
        const RtFunction *f = function_of(rt->program, i);
        const int64_t bytes = f->run ? rt_place_in(rt, f, rt->program->arena_bytes) : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

bool rt_places_differ_along(const Rt *rt, int axis)
{
    bool differ = false;
    for (int i = 0; i < FUNCTIONS; i++) {
        const RtKinds *kinds = function_of(rt->program, i)->kinds;
        differ |= kinds && kinds->axis == axis;
    }
    return differ;
}

int64_t rt_state_bytes(const Rt *rt) { return rt_own_place(rt, rt->program->state_bytes); }
