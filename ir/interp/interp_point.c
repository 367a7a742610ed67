/* interp_point.c -- the reference interpreter's pointwise ops, leaves, reductions and products. */
#include "blocks.h"
#include "interp_shards.h"

/* Dims of operands are matched with the result by name; each rank must hold the same elements of a shared dim. */
static bool operands_meet(Interp *in, const Sharded args[], int nargs, const Type *y)
{
    for (int a = 0; a < nargs; a++)
        for (int i = 0; i < args[a].type->rank; i++) {
            const Dim *dim = &args[a].type->dim[i];
            int at = find_dim(y, dim->name);
            if (at >= 0 && !same_place(dim, &y->dim[at]))
                return cannot_run(in, "operand %d and the result split '%s' differently", a + 1, dim->name);
        }
    return true;
}

static Row row_of(const Walk *w, int tensor) { return (Row){ element(w, tensor, 0), w->step[tensor] }; }

bool run_pointwise(Interp *in, const Op *op, const Sharded args[], Sharded *y)
{
    int n = op->args.count;
    DType from = args[0].type->dtype;
    double zero = 0;
    if (!operands_meet(in, args, n, y->type))
        return false;
    for (int rank = 0; rank < in->ranks; rank++) {
        Walk w = WALK(rank, y, NULL, y);
        for (int a = 0; a < n; a++)
            walk_tensor(&w, &args[a], rank);
        for (bool more = walk_begin(&w); more; more = walk_next(&w)) {
            Row x[3] = { { &zero, 0 }, { &zero, 0 }, { &zero, 0 } };
            for (int a = 0; a < n; a++)
                x[a] = row_of(&w, a + 1);
            number_map_row(in->numbers, op->kind, y->type->dtype, from, row_of(&w, 0), x, w.row);
        }
    }
    return true;
}

/* The contribution of each position along each dim to the index of dropout: row-major over the whole tensor with the
 * batch dim outermost, its positions counted from `origin`. */
static void index_terms(Interp *in, const Type *type, int rank, const Shard *shard, int64_t origin, int64_t *term[])
{
    int64_t weight[MAX_RANK], others = 1;
    int batch = in->m->batch ? find_dim(type, in->m->batch) : -1;
    for (int i = type->rank - 1; i >= 0; i--) {
        weight[i] = others;
        others *= i == batch ? 1 : type->dim[i].size;
    }
    if (batch >= 0)
        weight[batch] = others;
    for (int i = 0; i < type->rank; i++) {
        term[i] = positions_of(in, &type->dim[i], rank);
        for (int64_t n = 0; n < shard->size[i]; n++)
            term[i][n] = (term[i][n] + (i == batch ? origin : 0)) * weight[i];
    }
}

bool run_dropout(Interp *in, const Op *op, const Sharded args[], Sharded *y)
{
    const double kept = in->numbers->map(OP_div, in->numbers->of(1), in->numbers->of(1 - op->attrs.rate));
    for (int rank = 0; rank < in->ranks; rank++) {
        const Shard *x = &args[0].shard[rank];
        uint32_t key = (uint32_t)(int32_t)args[1].shard[rank].data[0];
        int64_t *term[MAX_RANK], at[MAX_RANK] = { 0 };
        index_terms(in, y->type, rank, x, (int64_t)args[2].shard[rank].data[0], term);
        for (int64_t n = 0; n < x->count; n++) {
            uint64_t index = 0;
            for (int i = 0; i < y->type->rank; i++)
                index += (uint64_t)term[i][at[i]];
            bool drop = is_dropped(key, (uint32_t)op->attrs.instance, index, op->attrs.rate);
            y->shard[rank].data[n] = drop ? 0 : in->numbers->map(OP_mul, x->data[n], kept);
            for (int i = y->type->rank - 1; i >= 0 && ++at[i] == x->size[i]; i--)
                at[i] = 0;
        }
    }
    return true;
}

bool run_leaf(Interp *in, const Op *op, const Sharded args[], Sharded *y)
{
    (void)args; /* as other ops */
    const double value = is_float(y->type->dtype) ? in->numbers->of(op->attrs.value) : op->attrs.value;
    for (int rank = 0; rank < in->ranks; rank++) {
        Shard *shard = &y->shard[rank];
        int64_t *position = op->kind == OP_iota ? positions_of(in, &y->type->dim[0], rank) : NULL;
        for (int64_t i = 0; i < shard->count; i++)
            shard->data[i] = position ? (double)position[i] : value;
    }
    return true;
}

static void forget_numbers(Shard *shard)
{
    for (int64_t i = 0; i < shard->count; i++)
        shard->data[i] = NAN;
}

bool run_dot(Interp *in, const Op *op, const Sharded args[], Sharded *y)
{
    DType dtype = y->type->dtype;
    if (!operands_meet(in, args, 2, y->type))
        return false;
    for (int i = 0; i < op->attrs.over.count; i++) {
        Name over = op->attrs.over.name[i];
        int at = find_dim(args[0].type, over), bt = find_dim(args[1].type, over);
        if (at < 0 || bt < 0 || !same_place(&args[0].type->dim[at], &args[1].type->dim[bt]))
            return cannot_run(in, "the operands split '%s' differently", over);
    }
    for (int rank = 0; rank < in->ranks; rank++) {
        Walk w = WALK(rank, y, &args[0], &args[0], &args[1], y);
        for (bool more = walk_begin(&w); more; more = walk_next(&w))
            number_product_row(in->numbers, dtype, row_of(&w, 2), row_of(&w, 0), row_of(&w, 1), w.row);
        for (int i = 0; i < 2; i++) /* it may be computed from either: they must be the same */
            if (rounded_from(op, i) &&
                !is_rounded_in_blocks(in, op, args[i].type, &args[i].shard[rank], &args[i + 2].shard[rank]))
                forget_numbers(&y->shard[rank]);
    }
    return true;
}

bool run_reduction(Interp *in, const Op *op, const Sharded *x, Sharded *y)
{
    DType dtype = y->type->dtype;
    if (!operands_meet(in, x, 1, y->type))
        return false;
    for (int rank = 0; rank < in->ranks; rank++) {
        Shard *to = &y->shard[rank];
        for (int64_t i = 0; i < to->count; i++)
            to->data[i] = number_start(op->kind, dtype);
        Walk w = WALK(rank, x, NULL, x, y);
        for (bool more = walk_begin(&w); more; more = walk_next(&w))
            for (int64_t i = 0; i < w.row; i++) {
                double *sum = element(&w, 1, i);
                *sum = number_reduce(in->numbers, op->kind, dtype, *sum, *element(&w, 0, i));
            }
    }
    return true;
}
