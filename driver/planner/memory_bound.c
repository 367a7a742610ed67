/* memory_bound.c -- the least memory that a layout needs, from the program of one rank: see bound.c.
 *
 * The state of training is divided by the axes that split it, and what zero splits by its axes; with what micro-batches
 * save for their backward pass, as many as the rank that has most keeps at once. */
#include "memory_bound.h"

#include <math.h>
#include <string.h>

/* How many micro-batches. */
typedef enum { ANY_NUMBER, SEVERAL, ONE } Micros;

/* Bytes of the state. */
typedef struct {
    double bytes;
    unsigned split;
    int zero;      /* from that stage on it is split */
    bool is_early; /* but over axes that split sequences already from stage 1 on: see batch_axes() */
    Micros micros; /* of a step that has it */
    int repeat;    /* of the copies that stages share: the number of the repeat + 1; else 0 */
    bool is_away;  /* no memory of the device has it */
    int ends;      /* see ends_with() */
} Held;

/* What a micro-batch of one sequence keeps from the forward pass for the backward one. */
typedef struct {
    double bytes;
    unsigned split;
    int repeat; /* see Held */
} Saving;

typedef struct MemoryCost {
    int nsaved[POLICIES], saved_room[POLICIES];
    Saving *saved[POLICIES];
    int nheld, held_room;
    Held *held;
} MemoryCost;

void start_memory_bounds(Planner *p) { p->memory_cost = NEW(p->arena, MemoryCost); }

/* --- What micro-batches save ----------------------------------------------------------------------------------- */

static void add_saving(const Planner *p, int policy, Saving saving)
{
    MemoryCost *cost = p->memory_cost;
    for (int i = 0; i < cost->nsaved[policy]; i++)
        if (cost->saved[policy][i].split == saving.split && cost->saved[policy][i].repeat == saving.repeat) {
            cost->saved[policy][i].bytes += saving.bytes;
            return;
        }
    GROW(p->arena, cost->saved[policy], cost->nsaved[policy], cost->saved_room[policy]);
    cost->saved[policy][cost->nsaved[policy]++] = saving;
}

void note_savings(const Splits *s, Recompute policy, const Op *loop)
{
    const Planner *p = s->p;
    for (int i = loop->attrs.carried; !loop->attrs.reverse && i < loop->results.count; i++) {
        const Type *type = &loop->results.at[i]->type;
        if (find_dim(type, s->m->batch) >= 0)
            add_saving(p, (int)policy,
                       (Saving){ (double)local_bytes(s->m, type), split_of_type(s, type), shared_loop(p, loop) });
    }
}

/* --- The state -------------------------------------------------------------------------------------------------- */

static void hold(const Planner *p, Held held)
{
    MemoryCost *cost = p->memory_cost;
    for (int i = 0; i < cost->nheld; i++) {
        Held *like = &cost->held[i];
        if (like->split == held.split && like->zero == held.zero && like->is_early == held.is_early &&
            like->micros == held.micros && like->repeat == held.repeat && like->is_away == held.is_away &&
            like->ends == held.ends) {
            like->bytes += held.bytes;
            return;
        }
    }
    GROW(p->arena, cost->held, cost->nheld, cost->held_room);
    cost->held[cost->nheld++] = held;
}

/* Of which repeat there is one for each copy that stages share, by its number + 1; 0: of none. */
static int repeat_of(const Planner *p, const Type *type)
{
    const RepeatLoads *weights = loads_of(p, RECOMPUTE_NONE);
    for (int i = 0; i < weights->repeats; i++)
        for (int k = 0; k < type->rank; k++)
            if (strcmp(type->dim[k].name, weights->dim[i]) == 0)
                return i + 1;
    return 0;
}

static bool is_matrix(const Param *param) { return param->type.rank - repeats_around(param) > 1; }

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
                          .is_of_experts = is_of_experts(s, &param->type) };
    for (int i = repeats_around(param); i < param->type.rank; i++) {
        const Dim *dim = &param->type.dim[i];
        tensor.dim[tensor.ndims] = dim->padded;
        tensor.dim_split[tensor.ndims++] = axes_splitting(s, dim->name);
    }
    note_zero_tensor(p, &tensor);
}

static bool counts_along(const Type *type, Name dim)
{
    for (int i = 0; i < type->rank; i++)
        if (type->dim[i].name == dim)
            return true;
    return false;
}

static bool is_of_params(const Module *m, Name dim)
{
    for (const Param *param = m->params; param; param = param->next)
        if (counts_along(&param->type, dim))
            return true;
    return false;
}

/* The dim that counts the copies of the last repeat, whose backward loop is the first one; NULL: there is none. */
static Name last_repeat(const Module *m, const CostList *list)
{
    Name last = NULL;
    for (int i = 0; i < list->count; i++) {
        const CostItem *item = &list->item[i];
        if (item->kind != ITEM_REPEAT || item->op->attrs.reverse)
            continue;
        const Name dim = item->op->attrs.dims.dim[0].name, within = last_repeat(m, item->body);
        last = is_of_params(m, dim) ? dim : within ? within : last;
    }
    return last;
}

/* Gradients are summed over several micro-batches.  Of one, those of the last repeat are there with all that is saved:
 * results of its loop have memory from the first copy on. */
static void hold_gradients(const Planner *p, const Splits *s, const Param *param, double kept, double sent, Name last)
{
    Held sums = { .bytes = kept,
                  .split = split_of_type(s, &param->type),
                  .zero = 2,
                  .is_early = is_of_experts(s, &param->type),
                  .micros = SEVERAL,
                  .repeat = repeat_of(p, &param->type),
                  .ends = ends_with(p, param->name) };
    hold(p, sums);
    sums.bytes = fmin(kept, sent), sums.zero = 1, sums.micros = ONE;
    if (last && counts_along(&param->type, last) && !p->offload)
        hold(p, sums);
}

static void read_param(Planner *p, const Splits *s, const Param *param, Name last)
{
    const Module *m = s->m;
    const double f32 = (double)local_bytes(m, &param->type);
    const unsigned split = split_of_type(s, &param->type);
    const int repeat = repeat_of(p, &param->type);
    const bool is_narrow = m->train.precision > PRECISION_FP32 && param->type.dtype == F32 && !param->state;
    if (is_narrow && param->type.rank > 1)
        hold(p, (Held){ .bytes = f32 / 2,
                        .split = split,
                        .zero = 3,
                        .repeat = repeat,
                        .is_away = is_away(p, WEIGHTS),
                        .ends = ends_with(p, param->name) });
    if (param->frozen || param->state)
        return;
    const double kept = m->train.grad_storage ? f32 / 2 : f32, sent = sends_narrow(p) ? f32 / 2 : kept;
    hold_gradients(p, s, param, kept, sent, last);
    if (is_matrix(param) && param->type.dtype == F32)
        add_zero_tensor(p, s, param, is_narrow ? f32 / 2 : f32, sent);
}

void note_state(Planner *p, const Splits *s, const Classes *classes, const CostList *items)
{
    const Module *m = s->m;
    const Name last = last_repeat(m, items);
    const Func *step = func_with_role(m, STEP);
    for (int i = 0; i < step->params.count; i++) {
        const Value *value = step->params.at[i];
        const TensorClass kind = class_of(classes, value);
        if (kind == MASTER_WEIGHTS || kind == OPTIMIZER_STATE || kind == WEIGHTS)
            hold(p, (Held){ .bytes = (double)local_bytes(m, &value->type),
                            .split = split_of_type(s, &value->type),
                            .zero = kind == WEIGHTS ? 3 : 1,
                            .repeat = repeat_of(p, &value->type),
                            .is_away = is_away(p, kind),
                            .ends = value->port.of ? ends_with(p, value->port.of) : 0 });
    }
    for (const Param *param = m->params; param; param = param->next)
        read_param(p, s, param, last);
}

/* --- Bounds ---------------------------------------------------------------------------------------------------- */

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

void state_away(const Planner *p, const PlanLayout *layout, double bytes[MAX_REPEATS + 1])
{
    for (int i = 0; i < p->memory_cost->nheld; i++) {
        const Held *h = &p->memory_cost->held[i];
        if (h->is_away && h->zero == 1)
            bytes[h->repeat ? h->repeat - 1 : MAX_REPEATS] += h->bytes / ranks_holding(p, layout, h);
    }
}

/* Stages have loops for chunks of copies, one after the other. */
static bool is_there(const Planner *p, const PlanLayout *layout, const Held *held)
{
    const bool is_one = micro_batches(p, layout) == 1;
    return held->micros == ANY_NUMBER || (held->micros == SEVERAL ? !is_one : is_one && !has_schedule(p, layout));
}

/* Of all stages, or on which it is; whole: where that is not known. */
static void add_state(const Planner *p, const PlanLayout *layout, const Held *held, CopyBytes *bytes, double *whole)
{
    const double own = held->bytes / ranks_holding(p, layout, held);
    const int ends = held->repeat || !has_schedule(p, layout) ? 0 : held->ends;
    double *const at_ends[] = { whole, &bytes->first, &bytes->last, &bytes->ends };
    *(held->repeat ? &bytes->held[held->repeat - 1] : at_ends[ends]) += own;
}

CopyBytes least_bytes(const Planner *p, const PlanLayout *layout)
{
    const MemoryCost *cost = p->memory_cost;
    const int policy = (int)layout->recompute;
    const RepeatLoads *w = loads_of(p, layout->recompute);
    double whole = 0; /* of what no copies have, of all stages */
    CopyBytes bytes = { 0 };
    for (int i = 0; i < cost->nheld; i++) {
        const Held *h = &cost->held[i];
        if (!h->is_away && is_there(p, layout, h))
            add_state(p, layout, h, &bytes, &whole);
    }
    for (int i = 0; i < cost->nsaved[policy] && !(p->away.away & AWAY_ACTIVATIONS); i++) {
        const Saving *saving = &cost->saved[policy][i];
        *(saving->repeat ? &bytes.kept[FOR_BACKWARD][saving->repeat - 1] : &whole) +=
            saving->bytes * (double)(layout->microbatch * lanes_of(layout)) / ranks_sharing(p, layout, saving->split);
    }
    for (int i = 0; i < w->repeats; i++) {
        bytes.held[i] /= (double)w->copies[i];
        bytes.kept[FOR_BACKWARD][i] /= (double)w->copies[i];
    }
    bytes.others = p->beside + whole / (double)copy_ranks(p, layout);
    return bytes;
}

double least_memory(Planner *p, const PlanLayout *layout, bool is_any, const CopyBytes *divided)
{
    CopyBytes bytes = least_bytes(p, layout);
    if (divided)
        memcpy(bytes.kept, divided->kept, sizeof bytes.kept);
    return is_any ? least_of_copies(p, layout, &bytes) : most_of_copies(p, layout, &bytes);
}
