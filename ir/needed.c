/* needed.c -- see needed.h. */
#include "needed.h"

#include "split_loop.h"

uint64_t ranks_needing(const Map *needed, const Value *value)
{
    const uint64_t *ranks = map_get(needed, value);
    return ranks ? *ranks : 0;
}

bool need_on(Map *needed, const Value *value, uint64_t ranks)
{
    uint64_t *held = map_get(needed, value);
    if (!held)
        map_put(needed, value, held = NEW(needed->arena, uint64_t));
    const uint64_t before = *held;
    *held |= ranks;
    return *held != before;
}

static bool need(Map *needed, const Value *value, uint64_t ranks)
{
    return need_on(needed, value, value->type.on.at ? ranks & value->type.on.at : ranks);
}

/* The ranks that need the i-th operand of a call or loop. */
static uint64_t needed_by_callee(const Module *m, const Map *needed, const Op *op, int i)
{
    const Func *callee = find_func(m, op->attrs.callee);
    if (!is_split_loop(op))
        return ranks_needing(needed, callee->params.at[i]);
    const bool is_split = find_dim(&arg(op, i)->type, op->attrs.dims.dim[0].name) >= 0; /* all ranks have a part */
    return i >= op->attrs.carried       ? is_split ? ALL_RANKS : ranks_passed(m, op).at
           : arg(op, i)->type.in_flight ? ALL_RANKS
                                        : end_rank(m, op, false).at;
}

/* What an op needs of its i-th operand, if the ranks need its results. */
static uint64_t needed_by_op(const Module *m, const Map *needed, const Op *op, int i)
{
    uint64_t ranks = 0;
    if (function_called_by(m, op))
        return needed_by_callee(m, needed, op, i);
    const unsigned traits = info(op)->traits;
    const bool stays = traits & WISHES && same_ranks(arg(op, 0)->type.on, result(op)->type.on);
    const bool is_part = traits & MOVES && info(op)->family == VIEW; /* some ranks keep their values */
    if (traits & (MOVES | SENDS | WAITS) && !stays && !is_part)      /* all ranks of a group call it */
        return ALL_RANKS;
    for (int j = 0; j < op->results.count; j++)
        ranks |= ranks_needing(needed, op->results.at[j]);
    return ranks;
}

static bool need_in_callee(const Module *m, Map *needed, const Op *op)
{
    Func *callee = find_func(m, op->attrs.callee);
    bool changed = false;
    for (int i = 0; i < op->results.count; i++) {
        const bool passes_on = is_split_loop(op) && i < op->attrs.carried;
        const uint64_t ranks = passes_on ? ALL_RANKS : ranks_needing(needed, op->results.at[i]);
        changed |= need(needed, callee->results.at[i], ranks);
    }
    for (int i = 0; i < op->attrs.carried && !is_split_loop(op); i++) /* the next iteration reads it */
        changed |= need(needed, callee->results.at[i], ranks_needing(needed, callee->params.at[i]));
    return changed;
}

static bool need_in_func(const Module *m, Map *needed, const Func *f, bool with_state)
{
    bool changed = false;
    for (int i = 0; i < f->results.count && f->role != PLAIN; i++)
        if (with_state || state_replaced(f, i) < 0)
            changed |= need(needed, f->results.at[i], ALL_RANKS);
    for (const Op *op = f->last; op; op = op->prev) {
        const Func *callee = function_called_by(m, op);
        if (callee && need_in_callee(m, needed, op)) {
            need_in_func(m, needed, callee, with_state); /* before what it needs of its operands is asked */
            changed = true;
        }
        for (int i = 0; i < op->args.count; i++)
            changed |= need(needed, arg(op, i), needed_by_op(m, needed, op, i));
    }
    return changed;
}

Map ranks_needed(Module *m, bool with_state)
{
    Map needed = { .arena = &m->arena };
    for (bool changed = true; changed;) {
        changed = false;
        for (const Func *f = m->funcs; f; f = f->next)
            changed |= f->role != KERNEL && need_in_func(m, &needed, f, with_state);
    }
    return needed;
}

void note_ranks(Module *m)
{
    if (m->needed || m->kind_axis < 0)
        return;
    Map *needed = NEW(&m->arena, Map);
    *needed = ranks_needed(m, true);
    m->needed = needed;
}

/* --- Ranks that run and write --------------------------------------------------------------------- */

RankSet ranks_calling(const Module *m, const Op *op)
{
    const RankSet on = op->results.count ? result(op)->type.on : (RankSet){ 0 };
    return on.at && !says_where(m, find_func(m, op->attrs.callee)) ? on : (RankSet){ 0 };
}

uint64_t ranks_written(const Module *m, const Value *value)
{
    const Op *op = value->def;
    const Func *callee = op ? function_called_by(m, op) : NULL;
    if (callee && !is_split_loop(op)) {
        const uint64_t calling = ranks_calling(m, op).at;
        return ranks_written(m, callee->results.at[index_of(&op->results, value)]) & (calling ? calling : ALL_RANKS);
    }
    return value->type.on.at && !callee ? value->type.on.at : ALL_RANKS;
}

uint64_t ranks_running(const Module *m, const Op *op)
{
    const unsigned traits = info(op)->traits;
    RankSet on = { 0, m->kind_axis };
    if (!m->needed)
        return ALL_RANKS;
    if (is_split_loop(op))
        return unless_all(m, ranks_passed(m, op)).at ? ranks_passed(m, op).at : ALL_RANKS;
    if (function_called_by(m, op))
        return ranks_calling(m, op).at ? ranks_calling(m, op).at : ALL_RANKS;
    for (int i = 0; i < op->results.count; i++) {
        const Value *value = op->results.at[i];
        const uint64_t whole = value->type.on.at ? value->type.on.at : ALL_RANKS;
        on.at |= traits & (SENDS | WAITS) ? whole : ranks_needing(m->needed, value);
    }
    if (traits & MOVES && traits & SENDS)
        on.at |= arg(op, 0)->type.on.at;
    return on.at && !unless_all(m, on).at ? ALL_RANKS : on.at;
}
