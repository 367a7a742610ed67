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
        walk_rest(&w, x, rank, op->attrs.dim, NULL);
        walk_tensor(&w, x, rank);
        walk_tensor(&w, y, rank);
        for (bool more = walk_begin(&w); more; more = walk_next(&w))
            choose(in->numbers, element(&w, 0, 0), from->stride[at], x->type->dim[at].size, element(&w, 1, 0),
                   shard->stride[to], op->attrs.dims.dim[0].size);
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
        Walk w = WALK(rank, y, NULL, x, y); /* the last dims of y are those of {over}, in order */
        for (int i = 0; i < y->type->rank; i++)
            if (!has_name(&op->attrs.over, y->type->dim[i].name) && y->shard[rank].size[i])
                queue /= y->shard[rank].size[i];
        for (bool more = walk_begin(&w); more; more = walk_next(&w))
            for (int64_t i = 0; i < w.row; i++) {
                if (number++ % queue == 0)
                    memset(count, 0, (size_t)experts * sizeof *count);
                const double expert = *element(&w, 0, i);
                if (!(expert >= 0 && expert < (double)experts))
                    return cannot_run(in, "expert %g on rank %d, of %lld", expert, rank, (long long)experts);
                *element(&w, 1, i) = (double)count[(int64_t)expert]++;
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

/* Adds rows to slots (dispatch), copies them back (combine), or adds those of each token (collect), times their weights
 * if there are any. */
static void route(Interp *in, OpKind kind, const Routes *r, int rank, const Sharded *weight)
{
    const Sharded rest = without(in, &r->by_slot, r->experts, r->slots);
    Walk w = WALK(rank, r->chosen, &r->by_token, &r->by_token, r->chosen, r->place, &rest, weight ? weight : r->place);
    for (bool more = walk_begin(&w); more; more = walk_next(&w))
        for (int64_t i = 0; i < w.row; i++) {
            const int64_t row = row_at(in, r, rank, *element(&w, 1, i), *element(&w, 2, i));
            if (row < 0)
                continue;
            double *token = element(&w, 0, i), *slot = element(&w, 3, i) + row;
            if (kind == OP_dispatch)
                *slot = number_reduce(in->numbers, OP_sum, rest.type->dtype, *slot, *token);
            else if (kind == OP_combine)
                *token = *slot;
            else
                *token = weight ? number_product(in->numbers, F32, *token, *slot, *element(&w, 4, i))
                                : number_reduce(in->numbers, OP_sum, F32, *token, *slot);
        }
}

bool run_routed(Interp *in, const Op *op, const Sharded args[], Sharded *y)
{
    const Dims *made = &op->attrs.dims;
    const bool to_slots = op->kind == OP_dispatch;
    const Routes r = { &args[1],
                       &args[2],
                       to_slots ? args[0] : *y,
                       to_slots ? *y : args[0],
                       to_slots ? made->dim[0].name : op->attrs.dim,
                       to_slots ? made->dim[1].name : op->attrs.key };
    for (int rank = 0; rank < in->ranks; rank++)
        if (rank_runs(in, rank))
            route(in, op->kind, &r, rank, op->args.count == 4 ? &args[3] : NULL);
    return true;
}
