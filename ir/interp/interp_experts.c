/* interp_experts.c -- the reference interpreter's top_k, place, dispatch, combine and collect. */
#include "interp_shards.h"

#include <string.h>

/* Is element `a` of a row ahead of `b`?  NaN first, then the larger one, then the first. */
static bool is_ahead(const Numbers *n, const double *x, int64_t stride, int64_t a, int64_t b)
{
    const double xa = x[a * stride], xb = x[b * stride];
    if (isnan(xa) || isnan(xb))
        return isnan(xa) && (!isnan(xb) || a < b);
    return n->is_less(xb, xa) || (!n->is_less(xa, xb) && a < b);
}

/* The rank of an element is the number of elements ahead of it. */
static void choose(const Numbers *n, const double *x, int64_t step, int64_t count, double *chosen, int64_t to_step,
                   int64_t k)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t ahead = 0;
        for (int64_t j = 0; j < count; j++)
            ahead += j != i && is_ahead(n, x, step, j, i);
        if (ahead < k)
            chosen[ahead * to_step] = (double)i;
    }
}

bool run_top_k(Interp *in, const Op *op, const Sharded *x, Sharded *y)
{
    const int at = find_dim(x->type, op->attrs.dim), to = find_dim(y->type, op->attrs.dims.dim[0].name);
    if (x->type->dim[at].split.count)
        return cannot_run(in, "'%s' is split", op->attrs.dim);
    for (int rank = 0; rank < in->ranks; rank++) {
        const Shard *from = &x->shard[rank], *shard = &y->shard[rank];
        Walk w = { 0 };
        walk_rest(&w, x->type, from, op->attrs.dim, NULL);
        walk_tensor(&w, x->type, from);
        walk_tensor(&w, y->type, shard);
        for (bool more = walk_begin(&w); more; more = walk_next(&w))
            choose(in->numbers, from->data + w.offset[0], from->stride[at], x->type->dim[at].size,
                   shard->data + w.offset[1], shard->stride[to], op->attrs.dims.dim[0].size);
    }
    return true;
}

/* Walks the queue in order: first the dims that are not in it, then those of {over}. */
bool run_place(Interp *in, const Op *op, const Sharded *x, Sharded *y)
{
    const int64_t experts = op->attrs.dims.dim[0].size;
    int64_t *count = NEW_ARRAY(&in->arena, int64_t, experts + 1);
    for (int i = 0; i < x->type->rank; i++)
        if (x->type->dim[i].split.count && has_name(&op->attrs.over, x->type->dim[i].name))
            return cannot_run(in, "'%s' is split", x->type->dim[i].name);
    for (int rank = 0; rank < in->ranks; rank++) {
        if (!rank_runs(in, rank))
            continue;
        int64_t queue = y->shard[rank].count, number = 0;
        Walk w = { 0 };
        walk_dims(&w, y->type, &y->shard[rank]); /* whose last dims are those of {over}, in order */
        walk_tensor(&w, x->type, &x->shard[rank]);
        walk_tensor(&w, y->type, &y->shard[rank]);
        for (int i = 0; i < y->type->rank; i++)
            if (!has_name(&op->attrs.over, y->type->dim[i].name) && y->shard[rank].size[i])
                queue /= y->shard[rank].size[i];
        for (bool more = walk_begin(&w); more; more = walk_next(&w))
            for (int64_t i = 0; i < w.row; i++) {
                if (number++ % queue == 0)
                    memset(count, 0, (size_t)experts * sizeof *count);
                const double expert = x->shard[rank].data[w.offset[0] + i * w.step[0]];
                if (!(expert >= 0 && expert < (double)experts))
                    return cannot_run(in, "expert %g on rank %d, of %lld", expert, rank, (long long)experts);
                y->shard[rank].data[w.offset[1] + i * w.step[1]] = (double)count[(int64_t)expert]++;
            }
    }
    return true;
}

/* The operands of dispatch and combine: rows by token and choice, and by expert and slot. */
typedef struct {
    const Sharded *chosen, *place;
    Sharded by_token, by_slot;
    Name experts, slots;
} Routes;

/* The same shards, without the names of two dims. */
static Sharded without(Interp *in, const Sharded *x, Name a, Name b)
{
    Type *type = NEW(&in->arena, Type);
    *type = *x->type;
    for (int i = 0; i < type->rank; i++)
        if (type->dim[i].name == a || type->dim[i].name == b)
            type->dim[i].name = NULL;
    return (Sharded){ .type = type, .shard = x->shard };
}

/* The offset of the row (expert, slot) in a rank's shard; -1: another rank has it, or it is dropped. */
static int64_t row_at(const Interp *in, const Routes *r, int rank, double expert, double slot)
{
    const Type *type = r->by_slot.type;
    const int at[] = { find_dim(type, r->experts), find_dim(type, r->slots) };
    const double position[] = { expert, slot };
    int64_t offset = 0;
    for (int i = 0; i < 2; i++) {
        const Dim *dim = &type->dim[at[i]];
        int64_t place;
        if (!(position[i] >= 0 && position[i] < (double)dim->size) ||
            block_with(in, dim, (int64_t)position[i], &place) != block_of(in, dim, rank))
            return -1;
        offset += place * r->by_slot.shard[rank].stride[at[i]];
    }
    return offset;
}

static void route(Interp *in, const Routes *r, int rank, bool to_slots)
{
    const Sharded rest = without(in, &r->by_slot, r->experts, r->slots);
    const Sharded *const walked[] = { &r->by_token, r->chosen, r->place, &rest };
    Walk w = { 0 };
    walk_dims(&w, r->chosen->type, &r->chosen->shard[rank]);
    walk_dims(&w, r->by_token.type, &r->by_token.shard[rank]);
    for (int i = 0; i < 4; i++)
        walk_tensor(&w, walked[i]->type, &walked[i]->shard[rank]);
    for (bool more = walk_begin(&w); more; more = walk_next(&w))
        for (int64_t i = 0; i < w.row; i++) {
            int64_t row = row_at(in, r, rank, r->chosen->shard[rank].data[w.offset[1] + i * w.step[1]],
                                 r->place->shard[rank].data[w.offset[2] + i * w.step[2]]);
            if (row < 0)
                continue;
            double *token = &r->by_token.shard[rank].data[w.offset[0] + i * w.step[0]];
            double *slot = &rest.shard[rank].data[w.offset[3] + i * w.step[3] + row];
            if (to_slots)
                *slot = number_reduce(in->numbers, OP_sum, rest.type->dtype, *slot, *token);
            else
                *token = *slot;
        }
}

bool run_dispatch(Interp *in, const Op *op, const Sharded args[], Sharded *y)
{
    const Dims *made = &op->attrs.dims;
    const Routes r = { &args[1], &args[2], args[0], *y, made->dim[0].name, made->dim[1].name };
    for (int rank = 0; rank < in->ranks; rank++)
        if (rank_runs(in, rank))
            route(in, &r, rank, true);
    return true;
}

bool run_combine(Interp *in, const Op *op, const Sharded args[], Sharded *y)
{
    const Routes r = { &args[1], &args[2], *y, args[0], op->attrs.dim, op->attrs.key };
    for (int rank = 0; rank < in->ranks; rank++)
        if (rank_runs(in, rank))
            route(in, &r, rank, false);
    return true;
}

/* Adds the rows of each token, times their weights if there are any. */
static void collect(Interp *in, const Routes *r, int rank, const Sharded *weight)
{
    const Sharded rest = without(in, &r->by_slot, r->experts, r->slots), *by = weight ? weight : r->place;
    const Sharded *const walked[] = { &r->by_token, r->chosen, r->place, &rest, by };
    double *data[5];
    Walk w = { 0 };
    walk_dims(&w, r->chosen->type, &r->chosen->shard[rank]);
    walk_dims(&w, r->by_token.type, &r->by_token.shard[rank]);
    for (int i = 0; i < 5; i++) {
        walk_tensor(&w, walked[i]->type, &walked[i]->shard[rank]);
        data[i] = walked[i]->shard[rank].data;
    }
    for (bool more = walk_begin(&w); more; more = walk_next(&w))
        for (int64_t i = 0; i < w.row; i++) {
            double *at[5];
            for (int k = 0; k < 5; k++)
                at[k] = &data[k][w.offset[k] + i * w.step[k]];
            const int64_t row = row_at(in, r, rank, *at[1], *at[2]);
            if (row >= 0)
                *at[0] = weight ? number_product(in->numbers, F32, *at[0], at[3][row], *at[4])
                                : number_reduce(in->numbers, OP_sum, F32, *at[0], at[3][row]);
        }
}

bool run_collect(Interp *in, const Op *op, const Sharded args[], Sharded *y)
{
    const Routes r = { &args[1], &args[2], *y, args[0], op->attrs.dim, op->attrs.key };
    for (int rank = 0; rank < in->ranks; rank++)
        if (rank_runs(in, rank))
            collect(in, &r, rank, op->args.count == 4 ? &args[3] : NULL);
    return true;
}
