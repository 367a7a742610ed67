/* interp_collective.c -- the reference interpreter's collectives.
 *
 * One function implements all of them: each rank's new shard is fetched, element by element, from the rank of its group
 * (the ranks that differ from it only on the collective's axes) that holds the element, and where a pending sum or
 * maximum is reduced, from all ranks of the group that hold a term.  A reduction sums the shards of its group, whether
 * pending or not, like that of the trainer.  An element that no rank of the group holds is reported.
 */
#include "interp_shards.h"
#include "ranks.h"

/* For each element of a rank's new shard along one dim: the distance to the rank that held it, and its index there. */
typedef struct {
    int *distance;
    int64_t *place; /* -1: nowhere, since a whole dim has no padding */
} Fetch;

static Axes axes_between(const Interp *in, int a, int b)
{
    Axes axes = 0;
    for (int axis = 0; axis < in->m->naxes; axis++)
        if (coordinate(in, a, axis) != coordinate(in, b, axis))
            axes |= 1u << axis;
    return axes;
}

static bool find_source(Interp *in, const Dim *from, const Dim *to, int rank, Axes group, int64_t count, Fetch *source)
{
    const int64_t *position = positions_of(in, to, rank);
    const int own = rank_of_block(in, from, block_of(in, from, rank));
    *source = (Fetch){ NEW_ARRAY(&in->arena, int, count + 1), NEW_ARRAY(&in->arena, int64_t, count + 1) };
    for (int64_t i = 0; i < count; i++) {
        if (position[i] >= from->size && from->split.count == 0) {
            source->place[i] = -1;
            continue;
        }
        int holder = rank_of_block(in, from, block_with(in, from, position[i], &source->place[i]));
        source->distance[i] = holder - own;
        if (axes_between(in, holder, own) & ~group)
            return cannot_run(in, "rank %d needs element %lld of '%s', which no rank of its group holds", rank,
                              (long long)position[i], to->name);
    }
    return true;
}

/* One element: the reduction of the terms that the ranks at these distances hold. */
static double fetch(const Interp *in, const Sharded *x, int rank, const int64_t place[], const int *terms, int nterms)
{
    double y = 0;
    for (int t = 0; t < nterms; t++) {
        const Shard *shard = &x->shard[rank + terms[t]];
        int64_t at = 0;
        for (int i = 0; i < x->type->rank; i++)
            at += place[i] * shard->stride[i];
        y = t ? number_reduce(in->numbers, pending(x->type), x->type->dtype, y, shard->data[at]) : shard->data[at];
    }
    return y;
}

static bool fill_shard(Interp *in, const Sharded *x, const Sharded *y, int rank, Axes group, Axes reduced)
{
    Fetch source[MAX_RANK];
    Shard *shard = &y->shard[rank];
    const RankSet on = ranks_of(in, x->type);
    int nterms, *terms = ranks_along(in, reduced, on, &nterms), first = rank;
    for (int i = 0; i < y->type->rank; i++)
        if (!find_source(in, &x->type->dim[i], &y->type->dim[i], rank, group, shard->size[i], &source[i]))
            return false;
    for (int axis = 0; axis < in->m->naxes; axis++)
        if (reduced & 1u << axis || (on.at && axis == on.axis && !rank_holds(in, x->type, rank)))
            first -= (coordinate(in, rank, axis) - first_rank(on, axis)) * in->axis_step[axis];

    int64_t at[MAX_RANK] = { 0 }, place[MAX_RANK];
    for (int64_t n = 0; n < shard->count; n++) {
        int from = first;
        bool is_there = true;
        for (int i = 0; i < y->type->rank; i++) {
            from += source[i].distance[at[i]];
            place[i] = source[i].place[at[i]];
            is_there &= place[i] >= 0;
        }
        shard->data[n] = is_there ? fetch(in, x, from, place, terms, nterms) : unwritten_number(in, y->type->dtype);
        for (int i = y->type->rank - 1; i >= 0 && ++at[i] == shard->size[i]; i--)
            at[i] = 0;
    }
    return true;
}

bool run_collective(Interp *in, const Op *op, const Sharded *x, Sharded *y)
{
    bool moves = info(op)->traits & MOVES, reduces = op->kind == OP_all_reduce || op->kind == OP_reduce_scatter;
    Axes group = op->kind == OP_local_slice ? 0 : moves ? ~0u : op->attrs.axis; /* the communicating axes */
    Axes reduced = x->type->partial & ~y->type->partial, begun = y->type->partial & ~x->type->partial;
    /* Of a sum that is pending from now on, one stage has the only term; the others hold zeros. */
    const RankSet on = x->type->on.at ? x->type->on : y->type->on;
    const RankSet term = is_one_rank(on) || x->type->on.at ? on : (RankSet){ on.at & -on.at, on.axis };
    if (reduced & ~group || begun & ~(is_one_rank(term) ? 1u << term.axis : 0))
        return cannot_run(in, "its group cannot produce the pending sums of its result's type");
    for (int i = 0; i < y->type->rank; i++)
        if (x->type->dim[i].name != y->type->dim[i].name)
            return cannot_run(in, "its result and its operand have different dims");
    const bool is_sum_of_ranks = x->type->on.at && y->type->partial & 1u << x->type->on.axis;
    for (int rank = 0; rank < in->ranks; rank++) {
        if (!rank_holds(in, y->type, rank) || (begun && !is_on(term, coordinate(in, rank, term.axis))))
            continue;
        if (is_sum_of_ranks && !rank_holds(in, x->type, rank)) /* it has no term */
            continue;
        if (!moves && !rank_holds(in, x->type, rank))
            return cannot_run(in, "rank %d does not hold its operand", rank);
        if (!fill_shard(in, x, y, rank, group, reduces ? group : reduced))
            return false;
    }
    return true;
}
