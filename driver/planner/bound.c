/* bound.c -- the least time and memory that a layout can have, from the program of one rank.
 *
 * The model is compiled for one rank and micro-batches of one sequence, once for each policy of recomputation.  On more
 * ranks each of its products, attentions and kernels has its size divided by the axes that can split it, at most, and
 * multiplied by the sequences of a micro-batch; it takes at least as long as the machine says for that size.  What has
 * no batch, and all messages, count as nothing.  A stage of a pipeline has at least the mean of all.  The state of
 * training is divided likewise, and what zero splits by its axes. */
#include "planner.h"
#include "report.h"

#include "filled.h"
#include "manager/pass.h"

#include <math.h>
#include <string.h>

/* Work of a micro-batch of one sequence. */
typedef struct {
    CostItem item; /* of one rank */
    double times;
    unsigned split;               /* the axes that can split it, as bits */
    bool is_forward, is_backward; /* of the copies of a repeat that stages share */
} Piece;

/* Bytes of the state. */
typedef struct {
    double bytes;
    unsigned split;
    int zero;       /* from that stage on it is split */
    bool is_summed; /* over micro-batches: of one it need not be all there */
} Held;

enum { POLICIES = RECOMPUTE_AUTO };

/* What a micro-batch of one sequence keeps from the forward pass for the backward one. */
typedef struct {
    double bytes;
    unsigned split;
} Saving;

typedef struct ModelCost {
    int nsaved[POLICIES], saved_room[POLICIES];
    Saving *saved[POLICIES];
    int count[POLICIES], room[POLICIES];
    Piece *piece[POLICIES];
    int nheld, held_room;
    Held *held;
} ModelCost;

/* --- Which axes can split an op ------------------------------------------------------------------------- */

typedef struct {
    const Planner *p;
    Module *m;
    Map split; /* Name of a dim -> the axes that split it + 1 */
} Splits;

static unsigned axis_bit(const Planner *p, const char *name)
{
    for (int i = 0; i < p->naxes; i++)
        if (strcmp(p->axis[i].name, name) == 0)
            return p->axis[i].is_data || p->axis[i].is_pipeline ? 0 : 1u << i;
    return 0;
}

static bool names_dim(const Ast *item, const char *dim)
{
    return item->kind == A_PAIR ? names_dim(item->child, dim) || names_dim(item->child->next, dim)
                                : strcmp(item->name, dim) == 0;
}

static unsigned split_of_name(const Planner *p, const char *dim)
{
    unsigned split = 0;
    for (const Ast *ast = p->parallel->body; ast; ast = ast->next) {
        bool is_named = ast->kind == A_SHARD && ast->init && strcmp(ast->init->name, dim) == 0;
        for (const Ast *item = ast->kind == A_SHARD ? ast->child : NULL; item; item = item->next)
            is_named |= names_dim(item, dim);
        split |= is_named ? axis_bit(p, ast->name) : 0;
    }
    return split;
}

static unsigned split_of(const Splits *s, Name dim)
{
    const intptr_t known = (intptr_t)map_get(&s->split, dim);
    return known ? (unsigned)(known - 1) : split_of_name(s->p, dim);
}

static void note_split(Splits *s, Name dim, unsigned split)
{
    map_put(&s->split, dim, (void *)(intptr_t)(split_of(s, dim) + split - (split_of(s, dim) & split) + 1));
}

/* Dims that the compiler makes are split like those that they are made of. */
static void find_splits(Splits *s)
{
    for (const LikeDim *like = s->m->like_dims; like; like = like->next)
        note_split(s, like->name, split_of(s, like->like));
    for (const Func *f = s->m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            if (info(op)->traits & FOLDS) {
                Name one, outermost;
                folded_dims(op, &one, &outermost);
                note_split(s, one, split_of(s, outermost));
                note_split(s, outermost, split_of(s, one));
            }
}

static unsigned split_of_type(const Splits *s, const Type *type)
{
    unsigned split = 0;
    for (int i = 0; i < type->rank; i++)
        split |= filled_by(s->m, type->dim[i].name) ? ~0u : split_of(s, type->dim[i].name);
    return split;
}

static unsigned split_of_op(const Splits *s, const Op *op)
{
    unsigned split = 0;
    for (int i = 0; i < op->args.count + op->results.count; i++)
        split |= split_of_type(s, &arg_or_result(op, i)->type);
    return split;
}

/* Is there more of it, the more sequences a micro-batch has? */
static bool grows(const Splits *s, const Type *type)
{
    for (int i = 0; i < type->rank; i++)
        if (type->dim[i].name == s->m->batch || filled_by(s->m, type->dim[i].name))
            return true;
    return false;
}

static bool has_batch(const Splits *s, const Op *op)
{
    for (int i = 0; i < op->args.count + op->results.count; i++)
        if (grows(s, &arg_or_result(op, i)->type))
            return true;
    return false;
}

/* Bytes of which there are more, the more sequences a micro-batch has: all but those of weights and their gradients. */
static double growing_bytes(const Splits *s, const CostItem *item)
{
    double bytes = item->bytes;
    for (int i = 0; i < item->op->args.count + item->op->results.count; i++) {
        const Type *type = &arg_or_result(item->op, i)->type;
        bytes -= grows(s, type) ? 0 : (double)local_bytes(s->m, type);
    }
    return fmax(0, bytes);
}

/* --- The program of one rank ------------------------------------------------------------------------------ */

static void add_saving(const Planner *p, int policy, Saving saving)
{
    ModelCost *cost = p->cost;
    for (int i = 0; i < cost->nsaved[policy]; i++)
        if (cost->saved[policy][i].split == saving.split) {
            cost->saved[policy][i].bytes += saving.bytes;
            return;
        }
    if (cost->nsaved[policy] == cost->saved_room[policy]) {
        Saving *grown = NEW_ARRAY(p->arena, Saving, cost->saved_room[policy] = cost->saved_room[policy] * 2 + 8);
        for (int i = 0; i < cost->nsaved[policy]; i++)
            grown[i] = cost->saved[policy][i];
        cost->saved[policy] = grown;
    }
    cost->saved[policy][cost->nsaved[policy]++] = saving;
}

/* The results of a forward loop that its copies do not hand on. */
static void add_savings(const Planner *p, const Splits *s, int policy, const Op *loop, double turns)
{
    for (int i = loop->attrs.carried; !loop->attrs.reverse && i < loop->results.count; i++) {
        const Type *type = &loop->results.at[i]->type;
        if (find_dim(type, s->m->batch) >= 0)
            add_saving(p, policy, (Saving){ (double)local_bytes(s->m, type) * turns, split_of_type(s, type) });
    }
}

/* 0: it is no loop over copies that stages share; 1: forward; 2: backward. */
static int shared_loop(const Planner *p, const Op *op)
{
    const StageWeights *weights = stage_weights(p, RECOMPUTE_NONE);
    for (int i = 0; i < weights->repeats; i++)
        if (strcmp(op->attrs.dims.dim[0].name, weights->dim[i]) == 0)
            return op->attrs.reverse ? 2 : 1;
    return 0;
}

/* `times`: in a step of two micro-batches; `shared`: see shared_loop(). */
static void add_pieces(const Planner *p, Splits *s, int policy, const CostList *list, double times, int shared)
{
    ModelCost *cost = p->cost;
    for (int i = 0; i < list->count; i++) {
        const CostItem *item = &list->item[i];
        if (item->kind == ITEM_REPEAT && times == 1)
            add_savings(p, s, policy, item->op, 1);
        if (item->kind == ITEM_REPEAT)
            add_pieces(p, s, policy, item->body, times * item->turns, shared ? shared : shared_loop(p, item->op));
        if (item->kind >= ITEM_MESSAGE || item->phase == UPDATED || !has_batch(s, item->op))
            continue;
        if (cost->count[policy] == cost->room[policy]) {
            Piece *grown = NEW_ARRAY(p->arena, Piece, cost->room[policy] = cost->room[policy] * 2 + 64);
            for (int k = 0; k < cost->count[policy]; k++)
                grown[k] = cost->piece[policy][k];
            cost->piece[policy] = grown;
        }
        cost->piece[policy][cost->count[policy]] =
            (Piece){ *item, times, split_of_op(s, item->op), shared == 1, shared == 2 };
        cost->piece[policy][cost->count[policy]].item.bytes = growing_bytes(s, item);
        cost->piece[policy][cost->count[policy]++].item.op = NULL; /* of a module that goes */
    }
}

static void hold(const Planner *p, Held held)
{
    ModelCost *cost = p->cost;
    for (int i = 0; i < cost->nheld; i++) {
        Held *like = &cost->held[i];
        if (like->split == held.split && like->zero == held.zero && like->is_summed == held.is_summed) {
            like->bytes += held.bytes;
            return;
        }
    }
    if (cost->nheld == cost->held_room) {
        Held *grown = NEW_ARRAY(p->arena, Held, cost->held_room = cost->held_room * 2 + 16);
        for (int i = 0; i < cost->nheld; i++)
            grown[i] = cost->held[i];
        cost->held = grown;
    }
    cost->held[cost->nheld++] = held;
}

static void add_state(const Planner *p, const Splits *s, const Classes *classes)
{
    const Module *m = s->m;
    const Func *step = func_with_role(m, STEP);
    for (int i = 0; i < step->params.count; i++) {
        const Value *value = step->params.at[i];
        const TensorClass kind = class_of(classes, value);
        if (kind == MASTER_WEIGHTS || kind == OPTIMIZER_STATE || kind == WEIGHTS)
            hold(p, (Held){ (double)local_bytes(m, &value->type), split_of_type(s, &value->type),
                            kind == WEIGHTS ? 3 : 1, false });
    }
    for (const Param *param = m->params; param; param = param->next) {
        const double f32 = (double)local_bytes(m, &param->type);
        const unsigned split = split_of_type(s, &param->type);
        if (m->train.precision > PRECISION_FP32 && param->type.dtype == F32 && !param->state && param->type.rank > 1)
            hold(p, (Held){ f32 / 2, split, 3, false });
        if (!param->frozen && !param->state)
            hold(p, (Held){ f32, split, 2, true });
    }
}

static bool read_program(Planner *p, Recompute policy, bool is_first)
{
    Run run = { 0 };
    const char *why;
    PlanLayout one = { .microbatch = 1, .recompute = policy, .zero = -1, .chunks = 1 };
    for (int i = 0; i < p->naxes; i++)
        one.size[i] = 1;
    Module *m = compile_layout(p, &one, 2, &(PassOptions){ .unchecked = true }, &run, &why);
    if (!m) {
        run_failed(p->run, "the model cannot be compiled on one rank, with micro-batches of one sequence: %s", why);
        arena_free(&run.arena);
        return false;
    }
    Splits s = { .p = p, .m = m, .split.arena = &run.arena };
    find_splits(&s);
    const Classes classes = classify_tensors(m);
    const StepCost cost = step_cost(m, &classes, &run.arena);
    add_pieces(p, &s, (int)policy, &cost.before[0], 0.5, 0);
    if (is_first)
        add_state(p, &s, &classes);
    free_module(m);
    arena_free(&run.arena);
    return true;
}

bool read_model_cost(Planner *p)
{
    static const Recompute policies[] = { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };
    p->cost = NEW(p->arena, ModelCost);
    for (int i = 0; i < 3; i++)
        if (!read_program(p, policies[i], i == 0))
            return false;
    return true;
}

/* --- Bounds ------------------------------------------------------------------------------------------------- */

static double ranks_along(const Planner *p, const PlanLayout *layout, unsigned axes)
{
    double ranks = 1;
    for (int i = 0; i < p->naxes; i++)
        ranks *= axes >> i & 1 && !p->axis[i].is_data && !p->axis[i].is_pipeline ? (double)layout->size[i] : 1;
    return ranks;
}

static double seconds_of_part(const Machine *machine, const CostItem *item, double part)
{
    if (item->kind == ITEM_PRODUCT)
        return product_least_seconds(machine, item->precision, item->flops * part);
    if (item->kind == ITEM_ATTENTION)
        return attention_seconds(machine, item->precision, item->flops * part, item->queries, item->keys,
                                 item->features, item->backward);
    return fused_seconds(machine, item->bytes * part, item->flops * part, 1);
}

/* Copies of each stage, at least, of ranks with so many stages each. */
static double least_copies(const Planner *p, const PlanLayout *layout, int chunks)
{
    return fmax(1, floor((double)p->copies / (double)pipeline_ranks(p, layout) / chunks));
}

/* Ranks wait for the first micro-batch, and in schedules that do not divide backward actions for what comes back of the
 * last one.  The mean of all ranks: the step lasts as long as a rank that waits and works as much as the mean. */
double wait_in_schedule(const Planner *p, const PlanLayout *layout, double forward, double backward)
{
    const bool divides = layout->schedule == ZB_H1 || layout->schedule == ZB_V;
    const double ranks = (double)pipeline_ranks(p, layout);
    return (ranks - 1) / 2 * least_copies(p, layout, layout->chunks) / (double)p->copies *
           (forward + (divides ? 0 : backward));
}

typedef struct {
    const Planner *p;
    double forward, backward, least;
} LeastWait;

static void note_wait(void *context, const PlanLayout *layout)
{
    LeastWait *w = context;
    w->least = fmin(w->least, wait_in_schedule(w->p, layout, w->forward, w->backward));
}

double least_wait(const Planner *p, const PlanLayout *layout, double forward, double backward)
{
    LeastWait w = { p, forward, backward, INFINITY };
    if (pipeline_ranks(p, layout) == 1)
        return 0;
    visit_schedules(p, *layout, note_wait, &w);
    return w.least;
}

double least_seconds(const Planner *p, const PlanLayout *layout)
{
    const int policy = (int)layout->recompute;
    double seconds = 0, forward = 0, backward = 0;
    for (int i = 0; i < p->cost->count[policy]; i++) {
        const Piece *piece = &p->cost->piece[policy][i];
        const double part = (double)layout->microbatch / ranks_along(p, layout, piece->split);
        const double own = piece->times * seconds_of_part(p->machine, &piece->item, part);
        seconds += own;
        forward += piece->is_forward ? own : 0, backward += piece->is_backward ? own : 0;
    }
    return seconds * (double)micro_batches(p, layout) / (double)pipeline_ranks(p, layout) +
           least_wait(p, layout, forward, backward);
}

/* Its products at the best rate that there is, which the machine file does not exceed. */
double least_seconds_of_ranks(const Planner *p, int64_t ranks)
{
    double seconds = 0;
    for (int i = 0; i < p->cost->count[RECOMPUTE_NONE]; i++) {
        const Piece *piece = &p->cost->piece[RECOMPUTE_NONE][i];
        if (piece->item.kind == ITEM_PRODUCT)
            seconds += piece->times * piece->item.flops / machine_flops(p->machine, piece->item.precision);
    }
    return seconds * (double)p->sequences / (double)ranks;
}

double least_memory(const Planner *p, const PlanLayout *layout)
{
    const ModelCost *cost = p->cost;
    const int policy = (int)layout->recompute;
    double zero_ranks = 1, bytes = 0;
    for (int i = 0; i < p->naxes; i++)
        zero_ranks *= p->axis[i].is_zero ? (double)layout->size[i] : 1;
    for (int i = 0; i < cost->nheld; i++) {
        const Held *held = &cost->held[i];
        const double by_zero = layout->zero >= held->zero ? zero_ranks : 1;
        if (!held->is_summed || micro_batches(p, layout) > 1)
            bytes += held->bytes / ranks_along(p, layout, held->split) / by_zero;
    }
    for (int i = 0; i < cost->nsaved[policy]; i++)
        bytes += cost->saved[policy][i].bytes * (double)layout->microbatch /
                 ranks_along(p, layout, cost->saved[policy][i].split);
    return bytes / (double)pipeline_ranks(p, layout);
}
