/* bound.c -- the least time and memory that a layout can have, from the program of one rank.
 *
 * The model is compiled for one rank and micro-batches of one sequence, once for each policy of recomputation.  On more
 * ranks each of its products, attentions and kernels has its size divided by the axes that can split it, at most, and
 * multiplied by the sequences of a micro-batch; it takes at least as long as the machine says for that size.  What has
 * no batch, and all messages, count as nothing.  A stage of a pipeline has at least the mean of all.  The state of
 * training is divided likewise, and what zero splits by its axes. */
#include "planner.h"
#include "report.h"

#include "codegen/host/host.h"
#include "filled.h"
#include "manager/pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Work of a micro-batch of one sequence. */
typedef struct {
    CostItem item; /* of one rank */
    double times;
    unsigned split; /* the axes that can split it, as bits */
    int loop;       /* see shared_loop() */
    bool is_self;   /* attention: its keys are of the queries' sequence */
} Piece;

/* Bytes of the state. */
typedef struct {
    double bytes;
    unsigned split;
    int zero;       /* from that stage on it is split */
    bool is_early;  /* but over axes that split sequences already from stage 1 on: see batch_axes() */
    bool is_summed; /* over micro-batches: of one it need not be all there */
    int in_stages;  /* of the copies that stages share: the number of the repeat + 1; else 0 */
    bool is_away;   /* no memory of the device has it */
} Held;

enum { POLICIES = RECOMPUTE_AUTO };

/* What a micro-batch of one sequence keeps from the forward pass for the backward one. */
typedef struct {
    double bytes;
    unsigned split;
    int in_stages; /* see Held */
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
    Map split;     /* Name of a dim -> the axes that split it + 1 */
    Names experts; /* the dims that count them */
} Splits;

static unsigned axis_bit(const Planner *p, const char *name)
{
    for (int i = 0; i < p->naxes; i++)
        if (strcmp(p->axis[i].name, name) == 0)
            return p->axis[i].is_pipeline ? 0 : 1u << i;
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

/* To which tokens are dispatched: each to some of them. */
static void note_experts(Splits *s)
{
    for (const Func *f = s->m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            for (int i = 0; i < op->attrs.dims.count && info(op)->traits & FILLS; i++)
                if (!filled_by(s->m, op->attrs.dims.dim[i].name))
                    add_name(&s->experts, op->attrs.dims.dim[i].name);
}

/* Dims that the compiler makes are split like those that they are made of. */
static void find_splits(Splits *s)
{
    note_experts(s);
    for (const MadeDim *dim = s->m->made_dims; dim; dim = dim->next)
        if (dim->making == MADE_LIKE)
            note_split(s, dim->name, split_of(s, dim->of));
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
        if (cost->saved[policy][i].split == saving.split && cost->saved[policy][i].in_stages == saving.in_stages) {
            cost->saved[policy][i].bytes += saving.bytes;
            return;
        }
    GROW(p->arena, cost->saved[policy], cost->nsaved[policy], cost->saved_room[policy]);
    cost->saved[policy][cost->nsaved[policy]++] = saving;
}

int shared_loop(const Planner *p, const Op *op)
{
    const StageWeights *weights = stage_weights(p, RECOMPUTE_NONE);
    for (int i = 0; i < weights->repeats; i++)
        if (strcmp(op->attrs.dims.dim[0].name, weights->dim[i]) == 0)
            return op->attrs.reverse ? -i - 1 : i + 1;
    return 0;
}

/* The results of a forward loop that its copies do not hand on. */
static void add_savings(const Planner *p, const Splits *s, int policy, const Op *loop)
{
    for (int i = loop->attrs.carried; !loop->attrs.reverse && i < loop->results.count; i++) {
        const Type *type = &loop->results.at[i]->type;
        if (find_dim(type, s->m->batch) >= 0)
            add_saving(p, policy,
                       (Saving){ (double)local_bytes(s->m, type), split_of_type(s, type), shared_loop(p, loop) });
    }
}

static bool attends_self(const Module *m, const Op *op)
{
    return op->attrs.seq && ruled_as(m, op->attrs.key) == op->attrs.seq;
}

/* `times`: in a step of two micro-batches; `loop`: see shared_loop(). */
static void add_pieces(const Planner *p, Splits *s, int policy, const CostList *list, double times, int loop)
{
    ModelCost *cost = p->cost;
    for (int i = 0; i < list->count; i++) {
        const CostItem *item = &list->item[i];
        if (item->kind == ITEM_REPEAT && times == 1)
            add_savings(p, s, policy, item->op);
        if (item->kind == ITEM_REPEAT)
            add_pieces(p, s, policy, item->body, times * item->turns, loop ? loop : shared_loop(p, item->op));
        if (item->kind >= ITEM_MESSAGE || item->phase == UPDATED || !has_batch(s, item->op))
            continue;
        GROW(p->arena, cost->piece[policy], cost->count[policy], cost->room[policy]);
        cost->piece[policy][cost->count[policy]] =
            (Piece){ *item, times, split_of_op(s, item->op), loop, attends_self(s->m, item->op) };
        cost->piece[policy][cost->count[policy]].item.bytes = growing_bytes(s, item);
        cost->piece[policy][cost->count[policy]++].item.op = NULL; /* of a module that goes */
    }
}

static void hold(const Planner *p, Held held)
{
    ModelCost *cost = p->cost;
    for (int i = 0; i < cost->nheld; i++) {
        Held *like = &cost->held[i];
        if (like->split == held.split && like->zero == held.zero && like->is_early == held.is_early &&
            like->is_summed == held.is_summed && like->in_stages == held.in_stages && like->is_away == held.is_away) {
            like->bytes += held.bytes;
            return;
        }
    }
    GROW(p->arena, cost->held, cost->nheld, cost->held_room);
    cost->held[cost->nheld++] = held;
}

/* Of which repeat there is one for each copy that stages share, by its number + 1; 0: of none. */
static int in_stages_of(const Planner *p, const Type *type)
{
    const StageWeights *weights = stage_weights(p, RECOMPUTE_NONE);
    for (int i = 0; i < weights->repeats; i++)
        for (int k = 0; k < type->rank; k++)
            if (strcmp(type->dim[k].name, weights->dim[i]) == 0)
                return i + 1;
    return 0;
}

static bool is_matrix(const Param *param) { return param->type.rank - repeats_around(param) > 1; }

static bool is_of_experts(const Splits *s, const Type *type)
{
    for (int i = 0; i < type->rank; i++)
        if (has_name(&s->experts, type->dim[i].name))
            return true;
    return false;
}

/* Does the layout narrow gradients to be sent? */
static bool sends_narrow(const Planner *p)
{
    const Ast *zero = statement(p, A_ZERO);
    for (const Ast *option = zero ? zero->child : NULL; option; option = option->next)
        if (option->name && strcmp(option->name, "grad_dtype") == 0)
            return true;
    return false;
}

/* As zero sends them. */
static void add_zero_tensor(Planner *p, const Splits *s, const Param *param, double weight, double gradient)
{
    ZeroTensor tensor = { .weight = weight,
                          .gradient = gradient,
                          .split = split_of_type(s, &param->type),
                          .is_repeated = strchr(param->path, '*') != NULL,
                          .is_of_experts = is_of_experts(s, &param->type),
                          .in_stages = in_stages_of(p, &param->type) };
    for (int i = repeats_around(param); i < param->type.rank; i++) {
        const Dim *dim = &param->type.dim[i];
        tensor.dim[tensor.ndims] = dim->padded;
        tensor.dim_split[tensor.ndims++] = split_of(s, dim->name);
    }
    note_zero_tensor(p, &tensor);
}

static void read_param(Planner *p, const Splits *s, const Param *param)
{
    const Module *m = s->m;
    const double f32 = (double)local_bytes(m, &param->type);
    const unsigned split = split_of_type(s, &param->type);
    const int in_stages = in_stages_of(p, &param->type);
    const bool is_narrow = m->train.precision > PRECISION_FP32 && param->type.dtype == F32 && !param->state;
    if (is_narrow && param->type.rank > 1)
        hold(p,
             (Held){
                 .bytes = f32 / 2, .split = split, .zero = 3, .in_stages = in_stages, .is_away = is_away(p, WEIGHTS) });
    if (param->frozen || param->state)
        return;
    const bool is_early = is_of_experts(s, &param->type);
    const double kept = m->train.grad_storage ? f32 / 2 : f32, sent = sends_narrow(p) ? f32 / 2 : kept;
    hold(p, (Held){ kept, split, 2, is_early, true, in_stages, false });
    if (is_matrix(param) && param->type.dtype == F32)
        add_zero_tensor(p, s, param, is_narrow ? f32 / 2 : f32, sent);
}

static void add_state(Planner *p, const Splits *s, const Classes *classes)
{
    const Module *m = s->m;
    const Func *step = func_with_role(m, STEP);
    for (int i = 0; i < step->params.count; i++) {
        const Value *value = step->params.at[i];
        const TensorClass kind = class_of(classes, value);
        if (kind == MASTER_WEIGHTS || kind == OPTIMIZER_STATE || kind == WEIGHTS)
            hold(p, (Held){ .bytes = (double)local_bytes(m, &value->type),
                            .split = split_of_type(s, &value->type),
                            .zero = kind == WEIGHTS ? 3 : 1,
                            .in_stages = in_stages_of(p, &value->type),
                            .is_away = is_away(p, kind) });
    }
    for (const Param *param = m->params; param; param = param->next)
        read_param(p, s, param);
}

static bool read_program(Planner *p, Recompute policy, bool is_first)
{
    Run run = { .trains_alone = true };
    const char *why;
    PlanLayout one = { .microbatch = 1, .recompute = policy, .zero = -1, .chunks = 1 };
    for (int i = 0; i < p->naxes; i++)
        one.size[i] = 1;
    const PassOptions passes = { .unchecked = true, .stop_after = "overlap" };
    Module *m = compile_layout(p, &one, 2, &passes, &run, &why);
    if (!m) {
        run_failed(p->run, "the model cannot be compiled on one rank, with micro-batches of one sequence: %s", why);
        arena_free(&run.arena);
        return false;
    }
    Splits s = { .p = p, .m = m, .split.arena = &run.arena };
    find_splits(&s);
    p->has_experts = s.experts.count > 0;
    p->packs = m->target->is_gpu;
    p->beside = (double)product_space(m);
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

/* That split one sequence: data-parallel ranks have others. */
static double ranks_along(const Planner *p, const PlanLayout *layout, unsigned axes)
{
    double ranks = 1;
    for (int i = 0; i < p->naxes; i++)
        ranks *= axes >> i & 1 && !p->axis[i].is_data && !p->axis[i].is_pipeline ? (double)layout->size[i] : 1;
    return ranks;
}

/* That have a part of a tensor which all sequences share, with zero from a stage on. */
static double ranks_holding(const Planner *p, const PlanLayout *layout, const Held *held)
{
    double ranks = 1;
    for (int i = 0; i < p->naxes; i++) {
        const int from = held->is_early && !p->axis[i].is_batch ? 1 : held->zero;
        if (held->split >> i & 1 || (layout->zero >= from && p->axis[i].is_zero))
            ranks *= (double)layout->size[i];
    }
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

void add_shared(const Planner *p, MicroTime *time, int loop, double seconds)
{
    const int repeat = abs(loop) - 1;
    if (loop)
        time->copy[loop > 0 ? FORWARD_ACTION : BACKWARD_ACTION][repeat] +=
            seconds / (double)stage_weights(p, RECOMPUTE_NONE)->copies[repeat];
}

MicroTime least_micro(const Planner *p, const PlanLayout *layout)
{
    const int policy = (int)layout->recompute;
    MicroTime time = { 0 };
    for (int i = 0; i < p->cost->count[policy]; i++) {
        const Piece *piece = &p->cost->piece[policy][i];
        const double part = (double)layout->microbatch / ranks_along(p, layout, piece->split);
        const double own = piece->times * seconds_of_part(p->machine, &piece->item, part);
        time.whole += own;
        add_shared(p, &time, piece->loop, own);
    }
    return time;
}

double products_again(const Planner *p, const PlanLayout *layout)
{
    double seconds = 0;
    for (int policy = 0; policy < POLICIES; policy++)
        for (int i = 0; i < p->cost->count[policy]; i++) {
            const Piece *piece = &p->cost->piece[policy][i];
            const double sign = (policy == (int)layout->recompute) - (policy == RECOMPUTE_NONE);
            const double part = (double)layout->microbatch / ranks_along(p, layout, piece->split);
            if (sign != 0 && piece->item.kind <= ITEM_ATTENTION)
                seconds += sign * piece->times * seconds_of_part(p->machine, &piece->item, part);
        }
    return fmax(0, seconds);
}

/* Attention to blocks of keys is slower than to all of them at once. */
double lost_in_ring(const Planner *p, const PlanLayout *layout)
{
    const int policy = (int)layout->recompute;
    int64_t ranks = 1;
    double seconds = 0;
    for (int i = 0; i < p->naxes; i++)
        ranks *= p->axis[i].attends ? layout->size[i] : 1;
    for (int i = 0; i < p->cost->count[policy]; i++) {
        const Piece *piece = &p->cost->piece[policy][i];
        if (!piece->is_self)
            continue;
        CostItem all = piece->item;
        all.queries /= ranks;
        CostItem block = all;
        block.keys /= ranks;
        const double part = (double)layout->microbatch / ranks_along(p, layout, piece->split);
        seconds += piece->times * (seconds_of_part(p->machine, &block, part) - seconds_of_part(p->machine, &all, part));
    }
    return seconds;
}

void state_away(const Planner *p, const PlanLayout *layout, double bytes[MAX_REPEATS + 1])
{
    for (int i = 0; i < p->cost->nheld; i++) {
        const Held *h = &p->cost->held[i];
        if (h->is_away && h->zero == 1)
            bytes[h->in_stages ? h->in_stages - 1 : MAX_REPEATS] += h->bytes / ranks_holding(p, layout, h);
    }
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

double least_memory(Planner *p, const PlanLayout *layout, bool is_any, const CopyBytes *divided)
{
    const ModelCost *cost = p->cost;
    const int policy = (int)layout->recompute;
    const double stages = (double)pipeline_ranks(p, layout);
    const StageWeights *w = stage_weights(p, layout->recompute);
    double whole = 0; /* of what no copies have, of all stages */
    CopyBytes bytes = { 0 };
    for (int i = 0; i < cost->nheld; i++) {
        const Held *h = &cost->held[i];
        if (!h->is_away && (!h->is_summed || micro_batches(p, layout) > 1))
            *(h->in_stages ? &bytes.held[h->in_stages - 1] : &whole) += h->bytes / ranks_holding(p, layout, h);
    }
    for (int i = 0; i < cost->nsaved[policy] && !(p->away.away & AWAY_ACTIVATIONS); i++) {
        const Saving *saving = &cost->saved[policy][i];
        *(saving->in_stages ? &bytes.kept[FOR_BACKWARD][saving->in_stages - 1] : &whole) +=
            saving->bytes * (double)(layout->microbatch * lanes_of(layout)) / ranks_along(p, layout, saving->split);
    }
    for (int i = 0; i < w->repeats; i++) {
        bytes.held[i] /= (double)w->copies[i];
        bytes.kept[FOR_BACKWARD][i] /= (double)w->copies[i];
    }
    if (divided)
        memcpy(bytes.kept, divided->kept, sizeof bytes.kept);
    packed_by_zero(p, layout, bytes.packed);
    return p->beside + whole / stages +
           (is_any ? least_of_copies(p, layout, &bytes) : most_of_copies(p, layout, &bytes));
}
