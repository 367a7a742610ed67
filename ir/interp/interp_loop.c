/* interp_loop.c -- the reference interpreter's loops: slices, carried values, ranks with iterations of their own.
 *
 * A split loop passes them one after the other: what is carried goes from rank to rank.  In an action of a schedule
 * (interp_schedule.c) a rank runs its own copies alone. */
#include "flight.h"
#include "interp_shards.h"
#include "micro.h"
#include "split_loop.h"

static Shard *parts_at(Interp *in, const Shard *from, int rank_of_type, int64_t at)
{
    Shard *to = from ? NEW_ARRAY(&in->arena, Shard, in->ranks) : NULL;
    for (int rank = 0; from && rank < in->ranks; rank++) {
        for (int i = 0; i + 1 < rank_of_type; i++) {
            to[rank].size[i] = from[rank].size[i + 1];
            to[rank].stride[i] = from[rank].stride[i + 1];
        }
        to[rank].count = from[rank].size[0] ? from[rank].count / from[rank].size[0] : 0;
        to[rank].data = from[rank].data + at * from[rank].stride[0];
    }
    return to;
}

/* Element `at` along the first dim; shares the memory. */
Sharded element_of(Interp *in, const Sharded *x, int64_t at)
{
    Type *type = NEW(&in->arena, Type);
    *type = without_dim(*x->type, x->type->dim[0].name);
    return (Sharded){ type, parts_at(in, x->shard, x->type->rank, at), parts_at(in, x->tangent, x->type->rank, at) };
}

/* Is it sliced by a loop?  Then the dim is the first one and is whole on every rank. */
bool is_sliced(const Type *type, const Dim *dim) { return type->rank && type->dim[0].name == dim->name; }

static bool run_iteration(Interp *in, const Op *op, const Func *callee, int64_t at, int64_t slices,
                          const Sharded args[], const Sharded carried[], Sharded out[])
{
    const Dim *dim = &op->attrs.dims.dim[0];
    Sharded *given = NEW_ARRAY(&in->arena, Sharded, op->args.count + 1);
    for (int i = 0; i < op->args.count; i++) {
        int64_t slice = is_prefetched(op, i) ? at + (op->attrs.reverse ? -1 : 1) : at;
        bool is_there = slice >= 0 && slice < slices;
        given[i] = i < op->attrs.carried          ? carried[i]
                   : !is_there                    ? (Sharded){ 0 }
                   : is_sliced(args[i].type, dim) ? element_of(in, &args[i], slice)
                                                  : args[i];
    }
    const char *around = in->iteration;
    const Func *ending = in->ending;
    in->ending = at == (op->attrs.reverse ? 0 : slices - 1) ? callee : NULL;
    in->iteration = arena_text(&in->arena, "%s%s[%lld].", around, callee->name, (long long)at);
    bool good = run_func(in, callee, given, out);
    in->iteration = around;
    in->ending = ending;
    return good;
}

static void stack_shards(const Interp *in, const Shard *x, int64_t at, Shard *y)
{
    for (int rank = 0; rank < in->ranks; rank++)
        for (int64_t i = 0; i < x[rank].count && rank_runs(in, rank); i++)
            y[rank].data[at * y[rank].stride[0] + i] = x[rank].data[i];
}

/* Copies the result of an iteration to its index along the first dim of a stacked result. */
static void stack(Interp *in, const Sharded *x, int64_t at, Sharded *y)
{
    stack_shards(in, x->shard, at, y->shard);
    if (x->tangent && !y->tangent)
        y->tangent = new_sharded(in, y->type).shard;
    if (x->tangent)
        stack_shards(in, x->tangent, at, y->tangent);
}

/* A run of a loop. */
typedef struct {
    const Op *op;
    const Func *callee;
    const Sharded *args;
    Sharded *now, *out, *results; /* carried values; results of one iteration; of the loop */
    Iterations memory;
} Turns;

static bool run_turn(Interp *in, Turns *t, int64_t at, int64_t slices)
{
    t->memory.iterations = slices;
    if (in->memory)
        begin_iteration(in, &t->memory, at);
    if (!run_iteration(in, t->op, t->callee, at, slices, t->args, t->now, t->out))
        return false;
    if (in->memory)
        end_iteration(in, &t->memory);
    for (int i = 0; i < t->op->results.count; i++)
        if (i < t->op->attrs.carried)
            t->now[i] = t->out[i];
        else
            stack(in, &t->out[i], at, &t->results[i]);
    return true;
}

/* In an action of a schedule: runs the copies of the present rank. */
static bool run_own_copies(Interp *in, Turns *t)
{
    const Dim *dim = &t->op->attrs.dims.dim[0];
    const int64_t slices = part_size(in->m, dim, first_rank(in->running, dim->split.axis[0]));
    for (int64_t i = 0; i < slices; i++)
        if (!run_turn(in, t, t->op->attrs.reverse ? slices - 1 - i : i, slices))
            return false;
    t->memory.iterations = slices;
    for (int i = 0; !slices && i < t->op->attrs.carried; i++) /* it only passes by */
        if (!receive_operand(in, &t->memory, i, &t->now[i]))
            return false;
    note_leaving(in, t->op, t->now);
    return true;
}

/* To the rank that runs now, and into its memory; collectives in flight begin on each rank. */
static bool go_on(Interp *in, Turns *t, int rank)
{
    const int carried = (int)t->op->attrs.carried;
    const int sent = (int)count_passed_on(t->op);
    bool good = true;
    for (int i = sent; i < carried; i++)
        t->now[i] = t->args[i];
    enter_rank(in, &t->op->attrs.dims.dim[0], rank, t->now, sent);
    for (int i = 0; in->memory && good && i < carried; i++)
        good = receive_operand(in, &t->memory, i, &t->now[i]);
    return good;
}

/* The ranks at the end of the loop may have no copies. */
static bool leave_loop(Interp *in, Turns *t)
{
    if (!is_split_loop(t->op))
        return true;
    const RankSet last = end_rank(in->m, t->op, true);
    t->memory.iterations = 0;
    return same_ranks(in->running, last) || go_on(in, t, __builtin_ctzll(last.at));
}

static bool run_turns(Interp *in, Turns *t)
{
    const Op *op = t->op;
    const Dim *dim = &op->attrs.dims.dim[0];
    if (is_split_loop(op))
        enter_rank(in, dim, __builtin_ctzll(end_rank(in->m, op, false).at), t->now, 0);
    for (int64_t iteration = 0; iteration < dim->size; iteration++) {
        int64_t at = op->attrs.reverse ? dim->size - 1 - iteration : iteration, slices = dim->size, rank = 0;
        bool arrives = false;
        if (is_split_loop(op)) {
            rank = block_with(in, dim, at, &at);
            slices = part_size(in->m, dim, rank);
            arrives = rank != first_rank(in->running, dim->split.axis[0]);
        }
        t->memory.iterations = slices;
        if (arrives && !go_on(in, t, (int)rank))
            return false;
        if (!run_turn(in, t, at, slices))
            return false;
    }
    return leave_loop(in, t);
}

bool run_loop(Interp *in, const Op *op, const Sharded args[], Sharded results[])
{
    const int carried = (int)op->attrs.carried, n = op->results.count;
    Turns t = { .op = op, .callee = callee_of(in, op), .args = args, .results = results };
    if (t.callee && in->memory && is_scheduled(op))
        return run_schedule(in, op, t.callee, args, results);
    if (!t.callee || (in->memory && !begin_iterations(in, op, t.callee, &t.memory)))
        return false;
    t.now = NEW_ARRAY(&in->arena, Sharded, n + carried + 1);
    t.out = NEW_ARRAY(&in->arena, Sharded, n + 1);
    for (int i = 0; i < carried; i++)
        t.now[i] = args[i];
    for (int i = carried; i < n && op->attrs.dims.dim[0].split.parts; i++)
        fill_unwritten(in, &results[i]);
    if (!(in->action && is_split_loop(op) ? run_own_copies : run_turns)(in, &t))
        return false;
    for (int i = 0; i < carried; i++)
        results[i].shard = t.now[i].shard, results[i].tangent = t.now[i].tangent;
    return true;
}
