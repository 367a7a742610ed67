/* interp_library.c -- the reference interpreter's views, pad and concat, gather and scatter_add, rope. */
#include "interp_shards.h"

#include <math.h>
#include <string.h>

/* Copies between a tensor and a range of a larger one: element (p, ...) of `small` is element (first + p, ...) of
 * `large` along `dim`; if small lacks `dim`, element `first`.  All other dims are equal.  `dim` must be whole in
 * both. */
static bool copy_stretch(Interp *in, const Sharded *small, const Sharded *large, Name dim, int64_t first, bool to_large)
{
    int at = find_dim(large->type, dim), small_at = find_dim(small->type, dim);
    const bool is_split = at >= 0 && large->type->dim[at].split.count && !in->op->attrs.own;
    if (at < 0 || is_split || (small_at >= 0 && small->type->dim[small_at].split.count))
        return cannot_run(in, "'%s' is split", dim);
    for (int rank = 0; rank < in->ranks; rank++) {
        Walk w = WALK(rank, small, NULL, small, large);
        w.offset[1] = first * large->shard[rank].stride[at];
        for (bool more = walk_begin(&w); more; more = walk_next(&w))
            for (int64_t i = 0; i < w.row; i++) {
                double *s = element(&w, 0, i), *l = element(&w, 1, i);
                *(to_large ? l : s) = *(to_large ? s : l);
            }
    }
    return true;
}

/* Between tensors of the same dims. */
static void copy_elements(const Sharded *from, const Sharded *to, int rank)
{
    Walk w = WALK(rank, to, NULL, from, to);
    for (bool more = walk_begin(&w); more; more = walk_next(&w))
        for (int64_t i = 0; i < w.row; i++)
            *element(&w, 1, i) = *element(&w, 0, i);
}

/* The same shards, with one dim renamed in the type. */
static Sharded renamed(Interp *in, const Sharded *x, Name from, Name to)
{
    Type *type = NEW(&in->arena, Type);
    *type = *x->type;
    int at = from ? find_dim(type, from) : -1;
    if (at >= 0)
        type->dim[at].name = to;
    return (Sharded){ .type = type, .shard = x->shard };
}

/* The shards of `x`, with the one dim of an op that folds as the several of `like`. */
static Sharded unfolded(Interp *in, const Sharded *x, const Type *like)
{
    Sharded view = { .type = like, .shard = NEW_ARRAY(&in->arena, Shard, in->ranks) };
    for (int rank = 0; rank < in->ranks; rank++) {
        const Shard *from = &x->shard[rank];
        Shard *to = &view.shard[rank];
        const Name one = in->op->attrs.dim ? in->op->attrs.dim : in->op->attrs.dims.dim[0].name;
        int64_t step = from->stride[find_dim(x->type, one)], left = from->size[find_dim(x->type, one)];
        *to = (Shard){ .count = from->count, .data = from->data };
        for (int i = like->rank - 1; i >= 0; i--) {
            const int at = find_dim(x->type, like->dim[i].name);
            const int64_t inner = local_size(in->m, &like->dim[i]); /* without padding */
            const bool is_outermost = at < 0 && (i == 0 || find_dim(x->type, like->dim[i - 1].name) >= 0);
            to->size[i] = at >= 0 ? from->size[at] : is_outermost ? left : inner;
            to->stride[i] = at >= 0 ? from->stride[at] : step;
            step *= at >= 0 ? 1 : inner;
            left /= at >= 0 ? 1 : inner;
        }
    }
    return view;
}

/* Room for a tensor with its padding along the dim, which is zeros. */
static Sharded with_padding(Interp *in, const Sharded *x, Name dim)
{
    Type *type = NEW(&in->arena, Type);
    *type = *x->type;
    Dim *padded = &type->dim[find_dim(type, dim)];
    padded->size = padded->padded;
    Sharded wide = { .type = type, .shard = NEW_ARRAY(&in->arena, Shard, in->ranks) };
    for (int rank = 0; rank < in->ranks; rank++) {
        Shard *shard = &wide.shard[rank];
        shard->count = 1;
        for (int i = type->rank - 1; i >= 0; i--) {
            shard->size[i] = &type->dim[i] == padded ? padded->size : x->shard[rank].size[i];
            shard->stride[i] = shard->count;
            shard->count *= shard->size[i];
        }
        shard->data = NEW_ARRAY(&in->arena, double, shard->count + 1);
    }
    return wide;
}

static bool fold(Interp *in, const Op *op, const Sharded *x, Sharded *y)
{
    const Type *several = op->attrs.dim ? y->type : x->type;
    const Sharded from = op->attrs.dim ? unfolded(in, x, several) : *x,
                  to = op->attrs.dim ? *y : unfolded(in, y, several);
    for (int rank = 0; rank < in->ranks; rank++)
        copy_elements(&from, &to, rank);
    return true;
}

/* Several dims may be one with its padding. */
static bool run_fold(Interp *in, const Op *op, const Sharded *x, Sharded *y)
{
    const Name name = op->attrs.dim ? op->attrs.dim : op->attrs.dims.dim[0].name;
    const Sharded *one = op->attrs.dim ? x : y;
    const Dim *dim = &one->type->dim[find_dim(one->type, name)];
    if (dim->padded == dim->size || dim->split.count)
        return fold(in, op, x, y);
    Sharded wide = with_padding(in, one, name);
    return op->attrs.dim ? copy_stretch(in, x, &wide, name, 0, true) && fold(in, op, &wide, y)
                         : fold(in, op, x, &wide) && copy_stretch(in, y, &wide, name, 0, false);
}

bool run_view(Interp *in, const Op *op, const Sharded *x, Sharded *y)
{
    if (op->kind == OP_rename || op->kind == OP_wait) {
        y->shard = x->shard;
        return true;
    }
    if (info(op)->traits & FOLDS)
        return run_fold(in, op, x, y);
    Name dim = op->kind == OP_part ? op->attrs.dims.dim[0].name : op->attrs.dim;
    Sharded large = renamed(in, x, op->attrs.dim, dim);
    return copy_stretch(in, y, &large, dim, op->attrs.index, false);
}

bool run_pad(Interp *in, const Op *op, const Sharded *x, Sharded *y)
{
    Name dim = op->attrs.dims.dim[0].name;
    Sharded small = renamed(in, x, op->attrs.dim, dim);
    return copy_stretch(in, &small, y, dim, op->attrs.index, true);
}

bool run_concat(Interp *in, const Op *op, const Sharded args[], Sharded *y)
{
    Name dim = op->attrs.dims.dim[0].name;
    bool good = true;
    for (int64_t i = 0, first = 0; i < op->args.count && good; i++) {
        good = copy_stretch(in, &args[i], y, dim, first, true);
        first += args[i].type->dim[find_dim(args[i].type, dim)].size;
    }
    return good;
}

/* The index in a rank's shard of an element of a dim, or -1 if another rank holds it. */
static int64_t own_place(const Interp *in, const Dim *dim, int rank, int64_t position)
{
    int64_t place;
    return block_with(in, dim, position, &place) == block_of(in, dim, rank) ? place : -1;
}

static bool check_index(Interp *in, double index, const Dim *dim, int rank)
{
    if (index >= 0 && index < (double)dim->size)
        return true;
    const Name name = intern(in->m, dim->name, (int)strcspn(dim->name, ".")); /* the file's: the "seq" of "seq.from" */
    if (in->options->outside)
        *in->options->outside = name;
    return cannot_run(in, "index %g on rank %d, but '%s' has %lld elements", index, rank, name, (long long)dim->size);
}

/* Do ranks have the same elements of the dims that both have, but for the row? */
static bool agree(Interp *in, const Type *x, const Type *index, Name row)
{
    for (int i = 0; i < index->rank; i++) {
        const int j = find_dim(x, index->dim[i].name);
        if (j >= 0 && index->dim[i].name != row && !same_place(&x->dim[j], &index->dim[i]))
            return cannot_run(in, "the operands split '%s' differently", index->dim[i].name);
    }
    return true;
}

/* Between rows and the elements of a table that an index gives: it is their position along `dim` of the table. */
static bool run_indexed(Interp *in, const Sharded *table, const Dim *dim, const Sharded *index, const Sharded *rows,
                        bool adds)
{
    const Sharded rest = renamed(in, table, dim->name, NULL);
    const int at = find_dim(table->type, dim->name);
    for (int rank = 0; rank < in->ranks; rank++) {
        if (!rank_runs(in, rank))
            continue;
        Walk w = WALK(rank, rows, NULL, &rest, index, rows);
        for (bool more = walk_begin(&w); more; more = walk_next(&w))
            for (int64_t i = 0; i < w.row; i++) {
                const double t = *element(&w, 1, i);
                if (!check_index(in, t, dim, rank))
                    return false;
                const int64_t place = own_place(in, dim, rank, (int64_t)t);
                if (place < 0)
                    continue;
                double *of_table = element(&w, 0, i) + place * table->shard[rank].stride[at], *row = element(&w, 2, i);
                if (adds)
                    *of_table = number_reduce(in->numbers, OP_sum, table->type->dtype, *of_table, *row);
                else
                    *row = *of_table;
            }
    }
    return true;
}

bool run_gather(Interp *in, const Op *op, const Sharded args[], Sharded *y)
{
    const Dim *dim = &args[0].type->dim[find_dim(args[0].type, op->attrs.dim)];
    return agree(in, args[0].type, args[1].type, dim->name) && run_indexed(in, &args[0], dim, &args[1], y, false);
}

bool run_scatter_add(Interp *in, const Op *op, const Sharded args[], Sharded *y)
{
    const Dim *dim = &y->type->dim[find_dim(y->type, op->attrs.dims.dim[0].name)];
    for (int rank = 0; rank < in->ranks && sum_before(op); rank++)
        if (rank_runs(in, rank))
            copy_elements(&args[2], y, rank);
    return agree(in, args[0].type, args[1].type, NULL) && run_indexed(in, y, dim, &args[1], &args[0], true);
}

/* Rotates the pair (x[a], x[b]) of each of h / 2 pairs at position p by the angle p / stretch base^(-2 pair / h). */
static void rotate(const Numbers *n, const Attrs *attrs, int64_t p, int64_t features, const double *x, double *y,
                   int64_t stride)
{
    const int64_t half = features / 2;
    const double stretch = attrs->stretch ? attrs->stretch : 1;
    for (int64_t pair = 0; pair < half; pair++) {
        double angle = (double)p / stretch * pow(attrs->base, -2.0 * (double)pair / (double)features);
        double c = n->of(cos(angle)), s = n->of(attrs->inverse ? -sin(angle) : sin(angle));
        int64_t a = (attrs->interleaved ? 2 * pair : pair) * stride;
        int64_t b = (attrs->interleaved ? 2 * pair + 1 : pair + half) * stride;
        y[a] = n->map(OP_sub, n->map(OP_mul, x[a], c), n->map(OP_mul, x[b], s));
        y[b] = n->multiply_add(n->map(OP_mul, x[b], c), x[a], s);
    }
}

bool run_rope(Interp *in, const Op *op, const Sharded args[], Sharded *y)
{
    const Attrs *attrs = &op->attrs;
    const Sharded *x = &args[0], *given = op->args.count > 1 ? &args[1] : NULL;
    int seq = find_dim(x->type, attrs->seq), feature = find_dim(x->type, attrs->feature);
    if (x->type->dim[feature].split.count)
        return cannot_run(in, "'%s' is split", attrs->feature);
    for (int rank = 0; rank < in->ranks; rank++) {
        const Shard *shard = &x->shard[rank];
        const int64_t *position = positions_of(in, &x->type->dim[seq], rank);
        const int given_seq = given ? find_dim(given->type, attrs->seq) : -1;
        const int64_t given_step = given_seq < 0 ? 0 : given->shard[rank].stride[given_seq];
        Walk w = { 0 };
        walk_rest(&w, x, rank, attrs->seq, attrs->feature);
        walk_tensor(&w, x, rank);
        if (given)
            walk_tensor(&w, given, rank);
        for (bool more = walk_begin(&w); more; more = walk_next(&w))
            for (int64_t i = 0; i < shard->size[seq]; i++) {
                int64_t at = w.offset[0] + i * shard->stride[seq];
                int64_t p = given ? (int64_t)given->shard[rank].data[w.offset[1] + i * given_step] : position[i];
                rotate(in->numbers, attrs, p, shard->size[feature], shard->data + at, y->shard[rank].data + at,
                       shard->stride[feature]);
            }
    }
    return true;
}

/* Adds up, or takes the largest, along one dim. */
bool run_cumulative(Interp *in, const Op *op, const Sharded *x, Sharded *y)
{
    const Attrs *attrs = &op->attrs;
    const int along = find_dim(x->type, attrs->dim);
    const OpKind by = op->kind == OP_cumsum ? OP_sum : OP_max;
    if (x->type->dim[along].split.count)
        return cannot_run(in, "'%s' is split", attrs->dim);
    for (int rank = 0; rank < in->ranks; rank++) {
        const Shard *from = &x->shard[rank], *to = &y->shard[rank];
        const int64_t count = from->size[along];
        Walk w = { 0 };
        walk_rest(&w, x, rank, attrs->dim, NULL);
        walk_tensor(&w, x, rank);
        walk_tensor(&w, y, rank);
        for (bool more = walk_begin(&w); more; more = walk_next(&w)) {
            double so_far = by == OP_sum ? 0 : INT32_MIN;
            for (int64_t i = 0; i < count; i++) {
                const int64_t at = attrs->reverse ? count - 1 - i : i;
                double *result = &to->data[w.offset[1] + at * to->stride[along]];
                const double before = so_far;
                so_far = number_reduce(in->numbers, by, y->type->dtype, so_far,
                                       from->data[w.offset[0] + at * from->stride[along]]);
                *result = attrs->exclusive ? before : so_far;
            }
        }
    }
    return true;
}
