/* ranks.c -- see ranks.h. */
#include "ranks.h"

bool is_on(RankSet on, int rank) { return !on.at || on.at >> rank & 1; }

bool is_on_all(RankSet on, RankSet these) { return !on.at || (these.at && !(these.at & ~on.at)); }

bool is_one_rank(RankSet on) { return on.at && !(on.at & (on.at - 1)); }

RankSet common_ranks(RankSet a, RankSet b)
{
    if (!a.at || !b.at)
        return a.at ? a : b;
    RankSet both = { a.axis == b.axis ? a.at & b.at : 0, a.axis };
    return both.at ? both : (RankSet){ .axis = -1 };
}

/* All ranks: none has to be named. */
RankSet unless_all(const Module *m, RankSet on)
{
    return !on.at || ranks_of_axis(m, on.axis) & ~on.at ? on : (RankSet){ 0 };
}

uint64_t ranks_of_axis(const Module *m, int axis)
{
    const int64_t count = m->axis_size[axis];
    return count < MAX_SET_RANKS ? ALL_RANKS >> (MAX_SET_RANKS - count) : ALL_RANKS;
}

int count_kinds(const Module *m) { return m->kind_axis < 0 ? 1 : (int)m->axis_size[m->kind_axis]; }

bool is_send(const Op *op) { return info(op)->traits & MOVES && info(op)->traits & SENDS; }

/* A sum of terms on different ranks: each rank adds what it holds, and the sum of these is pending. */

Axes pending_with_ranks(const Type *type) { return type->partial | (is_one_rank(type->on) ? 1u << type->on.axis : 0); }

bool adds_ranks(const Op *op)
{
    if (!is_addition(op))
        return false;
    const Type *a = &arg(op, 0)->type, *b = &arg(op, 1)->type;
    const Axes axis = a->on.at ? 1u << a->on.axis : b->on.at ? 1u << b->on.axis : 0;
    return !same_ranks(a->on, b->on) && pending_with_ranks(a) & pending_with_ranks(b) & axis;
}

Axes pending_of(const Op *op, const Type *type) { return adds_ranks(op) ? pending_with_ranks(type) : type->partial; }
