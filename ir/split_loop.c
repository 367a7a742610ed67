/* split_loop.c -- see split_loop.h. */
#include "split_loop.h"

bool is_split_loop(const Op *op)
{
    return info(op)->family == CONTROL && op->attrs.dims.count && op->attrs.dims.dim[0].split.count > 0;
}

bool has_split_loop(const Func *f)
{
    for (const Op *op = f->first; op; op = op->next)
        if (is_split_loop(op))
            return true;
    return false;
}

/* Of a loop whose function is not there yet, nothing is known.  The verifier refuses deeper calls, and recursive ones.
 */
static bool leads_to_split_loop(const Module *m, const Func *f, int depth)
{
    enum { DEEPEST = 32 };
    bool leads = has_split_loop(f);
    for (const Op *op = f->first; op && !leads && depth < DEEPEST; op = op->next) {
        const Func *callee = function_called_by(m, op);
        leads = callee && leads_to_split_loop(m, callee, depth + 1);
    }
    return leads;
}

bool says_where(const Module *m, const Func *f)
{
    for (int i = 0; i < f->params.count; i++)
        if (f->params.at[i]->type.on.at)
            return true;
    for (int i = 0; i < f->results.count; i++)
        if (f->results.at[i]->type.on.at)
            return true;
    return m->kind_axis >= 0 && leads_to_split_loop(m, f, 0);
}

void note_split_loop(Module *m, const Op *op)
{
    if (m->kind_axis < 0 && is_split_loop(op))
        m->kind_axis = op->attrs.dims.dim[0].split.axis[0];
}

int64_t rank_iterations(const Module *m, const Op *op)
{
    const Dim *dim = &op->attrs.dims.dim[0];
    return !op->attrs.dims.count ? 1 : is_split_loop(op) ? local_size(m, dim) : dim->size;
}

double iterations_on(const Module *m, const Op *op, int rank)
{
    return (double)(is_split_loop(op) ? part_size(m, &op->attrs.dims.dim[0], rank) : rank_iterations(m, op));
}

int64_t count_passed_on(const Op *loop)
{
    int64_t count = loop->attrs.carried;
    while (count > 0 && arg(loop, (int)count - 1)->type.in_flight)
        count--;
    return count;
}

bool runs_to_last_rank(const Op *loop) { return !loop->attrs.reverse == !loop->attrs.dims.dim[0].split.reversed; }

RankSet ranks_passed(const Module *m, const Op *loop)
{
    const Dim *dim = &loop->attrs.dims.dim[0];
    const int axis = dim->split.axis[0];
    const uint64_t said = ranks_with_part(m, dim);
    return (RankSet){ said ? said : ranks_of_axis(m, axis), axis };
}

RankSet end_rank(const Module *m, const Op *loop, bool last)
{
    const RankSet passed = ranks_passed(m, loop);
    const int at = last == runs_to_last_rank(loop) ? 63 - __builtin_clzll(passed.at) : __builtin_ctzll(passed.at);
    return (RankSet){ UINT64_C(1) << at, passed.axis };
}

double share_passing_on(const Module *m, const Op *loop)
{
    const int ranks = __builtin_popcountll(ranks_passed(m, loop).at);
    return (ranks - 1) / (double)ranks;
}

bool crosses_ranks(const Module *m, const Op *loop, int from, int to)
{
    const RankSet passed = ranks_passed(m, loop);
    return is_on(passed, from) && is_on(passed, to) && to - from == (runs_to_last_rank(loop) ? 1 : -1);
}
