/* interp_shards.c -- the elements that each rank holds; splits tensors into shards and joins shards.
 *
 * A dim split over axes [a][b] has |a| |b| blocks, numbered with the last axis fastest.  Zig-zag cuts it into chunks,
 * as many times |a| as each rank of the first axis gets, and deals them forth and back; the other axes split what each
 * got.
 */
#include "interp_shards.h"
#include "ranks.h"

#include <math.h>
#include <stdarg.h>

bool cannot_run(Interp *in, const char *format, ...)
{
    va_list args;
    char reason[512];
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    Where where = { .at = in->op ? in->op->loc : (Loc){ 0 } };
    if (in->op)
        error_at(in->m->diags, where, "interpreter: @%s: %s%s%s at %s%s: %s", in->func->name, info(in->op)->name,
                 in->op->results.count ? " %" : "", in->op->results.count ? result(in->op)->name : "", in->iteration,
                 in->op->path ? in->op->path : "", reason);
    else
        error_at(in->m->diags, where, "interpreter: @%s: %s", in->func->name, reason);
    return false;
}

int coordinate(const Interp *in, int rank, int axis)
{
    return rank / in->axis_step[axis] % (int)in->m->axis_size[axis];
}

/* its blocks have equal sizes */
static bool is_splittable(const Interp *in, const Dim *dim)
{
    return dim->split.count == 0 || splits_evenly(in->m, dim);
}

bool same_place(const Dim *a, const Dim *b)
{
    return a->size == b->size && split_equal(a->split, b->split) &&
           (a->split.count == 0 || (a->padded == b->padded && a->zigzag == b->zigzag));
}

int64_t block_of(const Interp *in, const Dim *dim, int rank)
{
    int64_t block = 0, count = 1;
    for (int i = 0; i < dim->split.count; i++) {
        block = block * in->m->axis_size[dim->split.axis[i]] + coordinate(in, rank, dim->split.axis[i]);
        count *= in->m->axis_size[dim->split.axis[i]];
    }
    return (block + dim->split.turn) % count;
}

int rank_of_block(const Interp *in, const Dim *dim, int64_t block)
{
    int rank = 0;
    if (dim->split.turn) { /* over one axis */
        const int64_t count = in->m->axis_size[dim->split.axis[0]];
        block = (block - dim->split.turn + count) % count;
    }
    for (int i = dim->split.count - 1; i >= 0; i--) {
        int axis = dim->split.axis[i];
        rank += (int)(block % in->m->axis_size[axis]) * in->axis_step[axis];
        block /= in->m->axis_size[axis];
    }
    return rank;
}

/* A rank's elements along a dim: ranges of the whole. */
typedef struct {
    int count;
    int64_t begin[MAX_ZIGZAG], end[MAX_ZIGZAG];
} Stretch;

static void add_range(Stretch *s, int64_t begin, int64_t end)
{
    s->begin[s->count] = begin;
    s->end[s->count++] = end;
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static bool is_dealt(const Dim *dim) { return dim->zigzag || dim->split.dealt; }

/* Of a split dim: the length of a block; for zig-zag and straight dealing, of the chunks that the `outer` ranks of the
 * first axis get. */
typedef struct {
    int64_t block, chunk, outer, inner; /* inner: blocks on one rank of the first axis */
} Cut;

static Cut cut_of(const Interp *in, const Dim *dim)
{
    int64_t n = split_count(in->m, dim->split), outer = in->m->axis_size[dim->split.axis[0]];
    return (Cut){ dim->padded / n, is_dealt(dim) ? dim->padded / dealt_blocks(in->m, dim) : 0, outer, n / outer };
}

/* Adds what of the chunks of the first axis's rank is in its block of that number. */
static void add_pieces(Stretch *s, const Dim *dim, Cut cut, int64_t number)
{
    const int64_t holder = number / cut.inner, begin = number % cut.inner * cut.block, end = begin + cut.block;
    for (int i = 0; i < dim->zigzag + dim->split.dealt; i++) {
        const int64_t place = i % 2 && dim->zigzag ? cut.outer - 1 - holder : holder; /* back, or forth */
        const int64_t first = (i * cut.outer + place) * cut.chunk, own = i * cut.chunk;
        const int64_t from = larger(begin, own), to = smaller(end, own + cut.chunk);
        if (from < to)
            add_range(s, first + from - own, first + to - own);
    }
}

/* Not as a result: it is large, and most of it unused. */
static void find_stretch(const Interp *in, const Dim *dim, int rank, Stretch *s)
{
    s->count = 0;
    if (dim->split.count == 0) {
        add_range(s, 0, dim->size);
        return;
    }
    const int64_t number = block_of(in, dim, rank);
    const Cut cut = cut_of(in, dim);
    if (is_dealt(dim)) {
        add_pieces(s, dim, cut, number);
    } else if (dim->split.parts) { /* all have memory for the largest part; its rest has positions behind the dim */
        const int64_t first = part_first(in->m, dim, number), count = part_size(in->m, dim, number);
        const int64_t most = local_size(in->m, dim), left = dim->padded + number * most;
        add_range(s, first, first + count);
        add_range(s, left, left + most - count);
    } else {
        add_range(s, number * cut.block, (number + 1) * cut.block);
    }
    for (int i = 0; i < s->count && !in->options->placed; i++) {
        s->begin[i] = smaller(s->begin[i], dim->size);
        s->end[i] = smaller(s->end[i], dim->size);
    }
}

static int64_t size_of_shard(const Interp *in, const Dim *dim, int rank)
{
    if (dim->split.count == 0)
        return dim->size;
    Stretch s;
    find_stretch(in, dim, rank, &s);
    int64_t size = 0;
    for (int i = 0; i < s.count; i++)
        size += s.end[i] - s.begin[i];
    return size;
}

int64_t *positions_of(Interp *in, const Dim *dim, int rank)
{
    Stretch s;
    find_stretch(in, dim, rank, &s);
    int64_t *position = NEW_ARRAY(&in->arena, int64_t, size_of_shard(in, dim, rank) + 1), n = 0;
    for (int i = 0; i < s.count; i++)
        for (int64_t p = s.begin[i]; p < s.end[i]; p++)
            position[n++] = p;
    return position;
}

int64_t block_with(const Interp *in, const Dim *dim, int64_t position, int64_t *place)
{
    if (dim->split.count == 0)
        return *place = position, 0;
    Cut cut = cut_of(in, dim);
    int64_t first = 0; /* first block of the holder */
    if (is_dealt(dim)) {
        const int64_t chunk = position / cut.chunk, turn = chunk / cut.outer, column = chunk % cut.outer;
        first = (turn % 2 && dim->zigzag ? cut.outer - 1 - column : column) * cut.inner;
        position = turn * cut.chunk + position % cut.chunk; /* among the holder's */
    }
    if (dim->split.parts && position >= dim->padded) {
        const int64_t most = local_size(in->m, dim), behind = position - dim->padded;
        return *place = part_size(in->m, dim, behind / most) + behind % most, behind / most;
    }
    if (dim->split.parts) {
        while (position - part_first(in->m, dim, first) < 0 ||
               position - part_first(in->m, dim, first) >= part_size(in->m, dim, first))
            first++;
        return *place = position - part_first(in->m, dim, first), first;
    }
    *place = position % cut.block;
    return first + position / cut.block;
}

int first_rank(RankSet on, int axis)
{
    int rank = 0;
    while (on.at && on.axis == axis && !is_on(on, rank))
        rank++;
    return rank;
}

/* In an action of a schedule only the rank of the action, also if others have the value. */
RankSet ranks_of(const Interp *in, const Type *type) { return type->on.at && !in->action ? type->on : in->running; }

bool rank_runs(const Interp *in, int rank)
{
    return !in->running.at || is_on(in->running, coordinate(in, rank, in->running.axis));
}

bool rank_holds(const Interp *in, const Type *type, int rank)
{
    const RankSet on = ranks_of(in, type), said = type->on;
    return (!on.at || is_on(on, coordinate(in, rank, on.axis))) &&
           (!said.at || is_on(said, coordinate(in, rank, said.axis)));
}

int *ranks_along(Interp *in, Axes axes, RankSet on, int *count)
{
    int *distance = NEW_ARRAY(&in->arena, int, in->ranks);
    *count = 1;
    for (int axis = 0; axis < in->m->naxes; axis++) {
        if (!(axes & 1u << axis))
            continue;
        const int sofar = *count, first = first_rank(on, axis);
        for (int c = first + 1; c < in->m->axis_size[axis]; c++)
            for (int i = 0; i < sofar && (on.axis != axis || is_on(on, c)); i++)
                distance[(*count)++] = distance[i] + (c - first) * in->axis_step[axis];
    }
    return distance;
}

static Shard new_shard(Interp *in, const Type *type, int rank)
{
    Shard shard = { .count = 1 };
    for (int i = type->rank - 1; i >= 0; i--) {
        shard.size[i] = size_of_shard(in, &type->dim[i], rank);
        shard.stride[i] = shard.count;
        shard.count *= shard.size[i];
    }
    shard.data = NEW_ARRAY(&in->arena, double, shard.count + 1);
    return shard;
}

Sharded new_sharded(Interp *in, const Type *type)
{
    Sharded held = { .type = type, .shard = NEW_ARRAY(&in->arena, Shard, in->ranks) };
    for (int i = 0; i < type->rank; i++)
        if (!is_splittable(in, &type->dim[i])) {
            cannot_run(in, "'%s' does not divide into its blocks", type->dim[i].name);
            return (Sharded){ 0 };
        }
    for (int rank = 0; rank < in->ranks; rank++)
        held.shard[rank] = new_shard(in, type, rank);
    return held;
}

/* The padding of state: finite, as the step leaves it. */
static double padding_number(const Interp *in, DType dtype)
{
    return is_float(dtype) ? in->numbers->scattered(0.8) : 1; /* a valid index of every dim */
}

/* Loops over a whole dim leave its padding as the memory was; a split dim cut out of it shows that. */
double unwritten_number(const Interp *in, DType dtype)
{
    if (!is_float(dtype))
        return dtype == BOOL ? 1 : INT32_MIN;
    return in->options->exact ? in->numbers->scattered(0.8) : NAN; /* residues are all numbers */
}

/* Calls `copy` for every element of a rank's shard and its index in the whole tensor; -1: padding. */
static void each_element(Interp *in, const Type *type, int rank, Shard *shard,
                         void (*copy)(void *context, double *element, int64_t index), void *context)
{
    int64_t *position[MAX_RANK], at[MAX_RANK] = { 0 };
    for (int i = 0; i < type->rank; i++)
        position[i] = positions_of(in, &type->dim[i], rank);
    for (int64_t n = 0; n < shard->count; n++) {
        int64_t index = 0;
        bool inside = true;
        for (int i = 0; i < type->rank; i++) {
            index = index * type->dim[i].size + position[i][at[i]];
            inside &= position[i][at[i]] < type->dim[i].size;
        }
        copy(context, &shard->data[n], inside ? index : -1);
        for (int i = type->rank - 1; i >= 0 && ++at[i] == shard->size[i]; i--)
            at[i] = 0;
    }
}

/* One rank's term of a partial tensor: noise that the last rank of a group cancels, so that only the sum (or the
 * maximum) is correct. */
typedef struct {
    const Numbers *numbers;
    double padding;
    const Tensor *whole;
    const Type *type;
    uint64_t seed;
    int term, terms;
} Dealing;

static double noise(const Dealing *d, int term, int64_t index)
{
    double u = hashed_number(d->seed + (uint64_t)term, (uint64_t)index);
    return d->type->dtype == I32 ? round(16 * u - 8) : d->numbers->scattered(u);
}

/* A term not larger than the maximum. */
static double smaller_term(const Dealing *d, double x, double noise)
{
    return number_reduce(d->numbers, OP_min, d->type->dtype, x, noise);
}

static void deal_element(void *context, double *element, int64_t index)
{
    const Dealing *d = context;
    if (index < 0) {
        *element = d->padding;
        return;
    }
    double x = d->whole->data[index];
    if (d->terms == 1) {
        *element = x;
    } else if (d->type->by == BY_MAX) {
        int holder = (int)(hashed_number(d->seed, (uint64_t)index) * d->terms);
        *element = d->term == holder ? x : smaller_term(d, x, noise(d, d->term, index));
    } else if (d->term + 1 < d->terms) {
        *element = noise(d, d->term, index);
    } else {
        for (int term = 0; term + 1 < d->terms; term++)
            x = number_map(d->numbers, OP_sub, d->type->dtype, d->type->dtype, x, noise(d, term, index), 0);
        *element = x;
    }
}

/* How many ranks of an axis hold a value, and how many of them stand before one. */
static int holders_before(const Interp *in, RankSet on, int axis, int coordinate)
{
    int count = 0;
    for (int c = 0; c < coordinate; c++)
        count += axis != on.axis || is_on(on, c);
    return count;
}

/* A rank's number among those that hold the terms of a partial tensor. */
static int term_of(const Interp *in, const Type *type, int rank)
{
    const RankSet on = ranks_of(in, type);
    int term = 0;
    for (int axis = 0; axis < in->m->naxes; axis++)
        if (type->partial & 1u << axis)
            term = term * holders_before(in, on, axis, (int)in->m->axis_size[axis]) +
                   holders_before(in, on, axis, coordinate(in, rank, axis));
    return term;
}

Sharded shard_tensor(Interp *in, const Tensor *tensor, const Type *type, uint64_t seed)
{
    Sharded held = new_sharded(in, type);
    Dealing d = {
        .numbers = in->numbers, .padding = padding_number(in, type->dtype), .whole = tensor, .type = type, .seed = seed
    };
    ranks_along(in, type->partial, ranks_of(in, type), &d.terms);
    for (int rank = 0; held.shard && rank < in->ranks; rank++) {
        d.term = term_of(in, type, rank);
        each_element(in, type, rank, &held.shard[rank], deal_element, &d);
    }
    return held;
}

static Axes splitting_axes(const Type *type)
{
    Axes axes = 0;
    for (int i = 0; i < type->rank; i++)
        for (int j = 0; j < type->dim[i].split.count; j++)
            axes |= 1u << type->dim[i].split.axis[j];
    return axes;
}

/* Does a rank stand at the origin of all axes but these?  Along that of `on`, at its first one. */
static bool stands_for_others(const Interp *in, int rank, RankSet on, Axes axes)
{
    for (int axis = 0; axis < in->m->naxes; axis++)
        if (!(axes & 1u << axis) && coordinate(in, rank, axis) != first_rank(on, axis))
            return false;
    return true;
}

/* The terms of all ranks at these distances; sets scale to their magnitude. */
static double *combine(Interp *in, const Sharded *held, int rank, const int *distance, int terms, double *scale)
{
    const Shard *first = &held->shard[rank];
    OpKind by = pending(held->type);
    if (terms == 1)
        return first->data;
    double *sum = NEW_ARRAY(&in->arena, double, first->count + 1);
    for (int64_t i = 0; i < first->count; i++) {
        sum[i] = first->data[i];
        scale[i] = fabs(sum[i]);
        for (int t = 1; t < terms; t++) {
            double term = held->shard[rank + distance[t]].data[i];
            sum[i] = number_reduce(in->numbers, by, held->type->dtype, sum[i], term);
            scale[i] += fabs(term);
        }
    }
    return sum;
}

static void place_element(void *context, double *element, int64_t index)
{
    if (index >= 0)
        ((double *)context)[index] = *element;
}

Tensor whole_tensor(Interp *in, const Sharded *held)
{
    int terms, *distance = ranks_along(in, held->type->partial, ranks_of(in, held->type), &terms);
    Axes splits = splitting_axes(held->type);
    Tensor whole = new_tensor(held->type);
    for (int rank = 0; rank < in->ranks; rank++) {
        if (!stands_for_others(in, rank, ranks_of(in, held->type), splits))
            continue;
        Shard shard = held->shard[rank];
        shard.data = combine(in, held, rank, distance, terms, NEW_ARRAY(&in->arena, double, shard.count + 1));
        each_element(in, held->type, rank, &shard, place_element, whole.data);
    }
    return whole;
}

static bool equal_copies(double a, double b, double scale, double tolerance)
{
    return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= tolerance * scale;
}

bool copies_agree(Interp *in, const Sharded *held, Name name)
{
    int terms, *distance = ranks_along(in, held->type->partial, ranks_of(in, held->type), &terms);
    Axes splits = splitting_axes(held->type), pending_axes = held->type->partial;
    double **sum = NEW_ARRAY(&in->arena, double *, in->ranks);
    for (int rank = 0; rank < in->ranks; rank++) {
        if (!rank_holds(in, held->type, rank) || !stands_for_others(in, rank, ranks_of(in, held->type), ~pending_axes))
            continue; /* it holds nothing, or a term other than the first */
        int64_t count = held->shard[rank].count;
        double *scale = NEW_ARRAY(&in->arena, double, terms > 1 ? count + 1 : 1);
        sum[rank] = combine(in, held, rank, distance, terms, scale);
        int like = rank; /* the first rank that holds the same elements */
        for (int axis = 0; axis < in->m->naxes; axis++)
            if (!(splits & 1u << axis))
                like -= (coordinate(in, rank, axis) - first_rank(ranks_of(in, held->type), axis)) * in->axis_step[axis];
        for (int64_t i = 0; i < count && like != rank; i++)
            if (!equal_copies(sum[rank][i], sum[like][i], terms > 1 ? scale[i] : fabs(sum[like][i]),
                              in->numbers->tolerance))
                return cannot_run(
                    in, "the copies of %%%s differ: element %lld of its shard is %.17g on rank %d, %.17g on rank %d",
                    name, (long long)i, sum[like][i], like, sum[rank][i], rank);
    }
    return true;
}

/* --- Simulated rounding --------------------------------------------------------------------------------- */

double perturbation(const Shaking *shaking, uint64_t value, uint64_t number)
{
    return 1 + shaking->by * (2 * hashed_number(shaking->seed + value * 1000003, number) - 1);
}

void perturb(Interp *in, const Shaking *shaking, const Sharded *held)
{
    in->shaken++;
    for (int rank = 0; rank < in->ranks && shaking->by != 0; rank++)
        for (int64_t i = 0; i < held->shard[rank].count; i++)
            held->shard[rank].data[i] *= perturbation(shaking, in->shaken, (uint64_t)i);
}

/* --- Ranks --------------------------------------------------------------------------------------------- */

void enter_rank(Interp *in, const Dim *dim, int at, Sharded carried[], int count)
{
    const int axis = dim->split.axis[0], before = first_rank(in->running, axis);
    in->running = (RankSet){ UINT64_C(1) << at, axis };
    for (int i = 0; i < count && at != before; i++) {
        const Shard *from = carried[i].shard;
        carried[i].shard = NEW_ARRAY(&in->arena, Shard, in->ranks);
        for (int rank = 0; rank < in->ranks; rank++)
            carried[i].shard[rank] = from[rank + (before - coordinate(in, rank, axis)) * in->axis_step[axis]];
    }
}

void fill_unwritten(const Interp *in, Sharded *held)
{
    for (int rank = 0; rank < in->ranks; rank++)
        for (int64_t i = 0; i < held->shard[rank].count; i++)
            held->shard[rank].data[i] = unwritten_number(in, held->type->dtype);
}
