/* interp.c -- the reference interpreter: functions, ops and calls, on all ranks at once. */
#include "flight.h"
#include "interp_shards.h"
#include "needed.h"
#include "split_loop.h"

/* The slots of a function's values: parameters first, then the results of its ops in order.  `arg` lists the slots of
 * all operands of all ops. */
typedef struct {
    int values, *arg, *result;
} Slots;

/* `slot`: value -> its number, from 1. */
static void add_slots(Map *slot, const Values *values)
{
    for (int i = 0; i < values->count; i++)
        map_put(slot, values->at[i], (void *)(intptr_t)(slot->count + 1));
}

/* False if a value is used that is not defined. */
static bool look_up(Interp *in, const Map *slot, const Values *values, int *at)
{
    for (int i = 0; i < values->count; i++) {
        at[i] = (int)(intptr_t)map_get(slot, values->at[i]) - 1;
        if (at[i] < 0)
            return cannot_run(in, "%%%s is used before its definition", values->at[i]->name);
    }
    return true;
}

static Slots *find_slots(Interp *in, const Func *f)
{
    Map slot = { .arena = &in->arena };
    Slots *slots = NEW(&in->arena, Slots);
    int nargs = 0;
    for (const Op *op = f->first; op; op = op->next)
        nargs += op->args.count;
    int *arg_at = slots->arg = NEW_ARRAY(&in->arena, int, nargs + 1);
    slots->result = NEW_ARRAY(&in->arena, int, f->results.count + 1);
    add_slots(&slot, &f->params);
    for (const Op *op = f->first; op; op = op->next) {
        in->op = op;
        if (!look_up(in, &slot, &op->args, arg_at))
            return NULL;
        arg_at += op->args.count;
        add_slots(&slot, &op->results);
    }
    in->op = NULL;
    slots->values = slot.count;
    return look_up(in, &slot, &f->results, slots->result) ? slots : NULL;
}

static const Slots *slots_of(Interp *in, const Func *f)
{
    in->slots.arena = &in->arena;
    if (!map_get(&in->slots, f))
        map_put(&in->slots, f, find_slots(in, f));
    return map_get(&in->slots, f);
}

const Func *callee_of(Interp *in, const Op *op)
{
    const Func *callee = called_by(in->m, op);
    if (!callee)
        cannot_run(in, "it calls no function of the module");
    else if (callee->params.count != op->args.count || callee->results.count != op->results.count)
        callee = (cannot_run(in, "operands or results do not fit @%s", callee->name), NULL);
    return callee;
}

/* Values inside a kernel have no storage. */
static bool run_kernel(Interp *in, const Func *kernel, const Sharded args[], Sharded results[])
{
    Memory *memory = in->memory;
    in->memory = NULL;
    bool good = run_func(in, kernel, args, results);
    in->memory = memory;
    return good;
}

static bool run_call(Interp *in, const Op *op, const Sharded args[], Sharded results[])
{
    const Func *callee = callee_of(in, op);
    Iterations iterations;
    if (!callee || !in->memory)
        return callee && run_func(in, callee, args, results);
    if (callee->role == KERNEL)
        return run_kernel(in, callee, args, results);
    if (!begin_iterations(in, op, callee, &iterations))
        return false;
    begin_iteration(in, &iterations, 0);
    bool good = run_func(in, callee, args, results);
    end_iteration(in, &iterations);
    return good;
}

typedef bool RunOp(Interp *in, const Op *op, const Sharded args[], Sharded results[]);

static RunOp *const by_kind[N_OPS] = { [OP_dropout] = run_dropout,
                                       [OP_pad] = run_pad,
                                       [OP_concat] = run_concat,
                                       [OP_gather] = run_gather,
                                       [OP_scatter_add] = run_scatter_add,
                                       [OP_attend] = run_attend,
                                       [OP_attend_grad] = run_attend_grad,
                                       [OP_attend_bias_grad] = run_attend_bias_grad,
                                       [OP_rope] = run_rope,
                                       [OP_cumsum] = run_cumulative,
                                       [OP_cummax] = run_cumulative,
                                       [OP_top_k] = run_top_k,
                                       [OP_place] = run_place,
                                       [OP_dispatch] = run_routed,
                                       [OP_combine] = run_routed,
                                       [OP_collect] = run_routed,
                                       [OP_call] = run_call,
                                       [OP_loop] = run_loop };

static RunOp *const by_family[] = {
    [LEAF] = run_leaf, [POINTWISE] = run_pointwise,   [PRODUCT] = run_dot, [REDUCTION] = run_reduction,
    [VIEW] = run_view, [COLLECTIVE] = run_collective, [CONTROL] = NULL
};

bool run_op(Interp *in, const Op *op, const Sharded args[], Sharded results[])
{
    RunOp *run = by_kind[op->kind] ? by_kind[op->kind] : by_family[info(op)->family];
    bool good = true;
    if (info(op)->traits & MOVES) { /* each operand fills the shards of its ranks */
        for (int i = 0; i < op->args.count && good; i++)
            good = run_collective(in, op, &args[i], results);
        return good;
    }
    return run ? run(in, op, args, results) : cannot_run(in, "the interpreter does not support it");
}

/* A rank's own slice, or what it gathers of it. */
static bool differs_by_rank(const Op *op)
{
    const Op *of = op && op->attrs.started ? arg(op, 0)->def : op;
    return of && of->attrs.own;
}

/* Is every element a value of the dtype, and are replicated shards equal? */
static bool check_value(Interp *in, const Sharded *held, Name name)
{
    DType dtype = held->type->dtype;
    for (int rank = 0; rank < in->ranks && !is_float(dtype); rank++)
        for (int64_t i = 0; rank_runs(in, rank) && i < held->shard[rank].count; i++)
            if (!number_fits(dtype, held->shard[rank].data[i]))
                return cannot_run(in, "%g, element %lld of rank %d's shard of %%%s, is not a valid %s",
                                  held->shard[rank].data[i], (long long)i, rank, name, dtype_name[dtype]);
    return in->ranks == 1 || differs_by_rank(in->op) || copies_agree(in, held, name);
}

/* What one rank has of a value in an action is not shown. */
static void show(Interp *in, const Op *op, int result, const Sharded *held)
{
    if (!in->options->observer || in->action)
        return;
    Tensor whole = whole_tensor(in, held);
    Observation seen = { .func = in->func, .op = op, .result = result, .iteration = in->iteration, .value = whole };
    in->options->observer->see(in->options->observer->context, &seen);
    free_tensors(&whole, 1);
}

/* The operand of a sum of terms on several ranks, which is zero on the others. */
static Sharded with_zeros(Interp *in, const Sharded *x)
{
    Sharded padded = { .type = x->type, .shard = NEW_ARRAY(&in->arena, Shard, in->ranks), .tangent = x->tangent };
    for (int rank = 0; rank < in->ranks; rank++) {
        padded.shard[rank] = x->shard[rank];
        if (!rank_holds(in, x->type, rank))
            padded.shard[rank].data = NEW_ARRAY(&in->arena, double, x->shard[rank].count + 1);
    }
    return padded;
}

/* On ranks that do not hold it a value is no number, so that a use of it there is found.  Not in memory that it shares
 * with an operand, as what is renamed does: there the operand may be a number, for a rank that runs later. */
static void spoil(Interp *in, Sharded *held)
{
    if (!is_float(held->type->dtype) || !ranks_of(in, held->type).at)
        return;
    const Sharded own = new_sharded(in, held->type);
    for (int rank = 0; rank < in->ranks; rank++)
        if (rank_holds(in, held->type, rank))
            own.shard[rank] = held->shard[rank];
        else
            for (int64_t i = 0; i < own.shard[rank].count; i++)
                own.shard[rank].data[i] = NAN;
    held->shard = own.shard;
}

/* The floats that an op computes: constants are exact, and what is renamed shares its operand's memory. */
static void shake_results(Interp *in, const Op *op, const Sharded args[], const Sharded results[])
{
    for (int i = 0; i < op->results.count && op->args.count && info(op)->family != CONTROL; i++) {
        const bool is_shared = args[0].shard && results[i].shard && args[0].shard[0].data == results[i].shard[0].data;
        if (results[i].shard && is_float(op->results.at[i]->type.dtype) && !is_shared)
            perturb(in, &in->options->shaking, &results[i]);
    }
}

/* Runs one op; stores its results in value[first...]. */
static bool step(Interp *in, const Op *op, const int *arg_at, Sharded value[], int first)
{
    Sharded *args = NEW_ARRAY(&in->arena, Sharded, op->args.count + 1);
    for (int i = 0; i < op->args.count; i++)
        args[i] = value[arg_at[i]];
    for (int i = 0; i < 2 && is_addition(op); i++)
        if (!same_ranks(args[i].type->on, op->results.at[0]->type.on))
            args[i] = with_zeros(in, &args[i]);
    in->op = op;
    if (in->action && in->memory && !runs_in_action(in, op)) {
        leave_results(in, op, &value[first]);
        return true;
    }
    if (op->attrs.started && in->ending == in->func && handed_on(in->func, op) >= 0) {
        value[first] = (Sharded){ 0 };
        return true;
    }
    for (int i = 0; i < op->results.count; i++) {
        value[first + i] = new_sharded(in, &op->results.at[i]->type);
        if (!value[first + i].shard)
            return false;
    }
    const RankSet around = in->running;
    const Func *callee = info(op)->family == CONTROL ? find_func(in->m, op->attrs.callee) : NULL;
    if (callee && !in->action && !is_split_loop(op) && ranks_calling(in->m, op).at)
        in->running = ranks_calling(in->m, op);
    if ((in->memory && !read_operands(in, op, args)) || !run_op(in, op, args, &value[first]))
        return false;
    in->running = around;
    in->op = op; /* a call has run others */
    if (in->options->shaking.by != 0)
        shake_results(in, op, args, &value[first]);
    if (in->options->tangents && info(op)->family != CONTROL && !run_tangent(in, op, args, &value[first]))
        return false;
    if (in->memory && !write_results(in, op, &value[first]))
        return false;
    for (int i = 0; i < op->results.count; i++) {
        if (!value[first + i].shard)
            continue;
        value[first + i].type = &op->results.at[i]->type; /* a callee does not know its ranks */
        spoil(in, &value[first + i]);
        if (!check_value(in, &value[first + i], op->results.at[i]->name))
            return false;
        show(in, op, i, &value[first + i]);
    }
    return true;
}

bool run_func(Interp *in, const Func *f, const Sharded args[], Sharded results[])
{
    enum { DEEPEST = 64 };
    const Slots *slots = in->depth < DEEPEST ? slots_of(in, f) : NULL;
    if (!slots)
        return in->depth < DEEPEST ? false : cannot_run(in, "calls are recursive");
    const Func *caller = in->func;
    Sharded *value = NEW_ARRAY(&in->arena, Sharded, slots->values + 1);
    for (int i = 0; i < f->params.count; i++)
        value[i] = (Sharded){ .type = &f->params.at[i]->type, .shard = args[i].shard, .tangent = args[i].tangent };
    in->func = f;
    in->depth++;
    const int *arg_at = slots->arg;
    int first = f->params.count;
    for (const Op *op = f->first; op; op = op->next) {
        if (!step(in, op, arg_at, value, first))
            return false;
        arg_at += op->args.count;
        first += op->results.count;
    }
    for (int i = 0; i < f->results.count; i++)
        results[i] = value[slots->result[i]];
    in->depth--;
    in->func = caller;
    return true;
}

static bool take_args(Interp *in, const Func *f, const Tensor args[], Sharded held[])
{
    for (int i = 0; i < f->params.count; i++) {
        const Value *param = f->params.at[i];
        bool fits = args[i].type.rank == param->type.rank;
        for (int d = 0; fits && d < param->type.rank; d++)
            fits = args[i].type.dim[d].size == param->type.dim[d].size;
        if (!fits)
            return cannot_run(in, "the tensor given for %%%s has different dims", param->name);
        held[i] = shard_tensor(in, &args[i], &param->type, hash_of_text(param->name));
        if (!held[i].shard || !check_value(in, &held[i], param->name))
            return false;
    }
    return true;
}

/* Sets the tangents of the parameters. */
static bool take_tangents(Interp *in, const Func *f, const Tangents *tangents, Sharded held[])
{
    for (int i = 0; i < f->params.count; i++) {
        const Type *type = &f->params.at[i]->type;
        if (!tangents->args[i].data)
            continue;
        for (int d = 0; d < type->rank; d++)
            if (type->dim[d].split.count)
                return cannot_run(in, "%%%s is split: derivatives need a program without layout",
                                  f->params.at[i]->name);
        held[i].tangent = shard_tensor(in, &tangents->args[i], type, 0).shard;
    }
    return true;
}

static void return_tangents(Interp *in, const Sharded out[], int count, Tensor results[])
{
    for (int i = 0; i < count; i++) {
        Sharded tangent = { .type = out[i].type, .shard = out[i].tangent };
        results[i] = tangent.shard ? whole_tensor(in, &tangent) : (Tensor){ .type = *out[i].type };
    }
}

static bool run_on_all_ranks(Interp *in, const Func *f, const Tensor args[], Tensor results[])
{
    Sharded *held = NEW_ARRAY(&in->arena, Sharded, f->params.count + 1),
            *out = NEW_ARRAY(&in->arena, Sharded, f->results.count + 1);
    const Tangents *tangents = in->options->tangents;
    if (!take_args(in, f, args, held) || (in->options->placed && !begin_memory(in, f, held)) ||
        (tangents && !take_tangents(in, f, tangents, held)))
        return false;
    if (!run_func(in, f, held, out) || (in->memory && !end_memory(in, f, held, out)))
        return false;
    for (int i = 0; i < f->results.count; i++)
        results[i] = whole_tensor(in, &out[i]);
    if (tangents)
        return_tangents(in, out, f->results.count, tangents->results);
    return true;
}

bool interpret_with(Module *m, const Func *f, const Tensor args[], Tensor results[], const RunOptions *options)
{
    Interp in = { .m = m, .ranks = 1, .options = options, .iteration = "", .func = f };
    in.numbers = options->exact ? &residues : options->rounds ? &rounding_reals : &reals;
    for (int axis = m->naxes - 1; axis >= 0; axis--) { /* the last axis varies fastest */
        in.axis_step[axis] = in.ranks;
        in.ranks *= options->tangents ? 1 : (int)m->axis_size[axis]; /* before sharding all ranks do the same */
    }
    bool good = run_on_all_ranks(&in, f, args, results);
    arena_free(&in.arena);
    return good;
}

bool interpret(Module *m, const Func *f, const Tensor args[], Tensor results[])
{
    return interpret_with(m, f, args, results, &(RunOptions){ 0 });
}
