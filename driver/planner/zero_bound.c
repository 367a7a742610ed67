/* zero_bound.c -- the least time that the messages of zero take, by arithmetic: what zero splits has to be gathered and
 * reduced, with or without computation beside it. */
#include "planner.h"

#include <math.h>
#include <string.h>

static bool is_alike(const ZeroTensor *a, const ZeroTensor *b)
{
    return a->split == b->split && a->is_repeated == b->is_repeated && a->is_of_experts == b->is_of_experts &&
           a->ndims == b->ndims && memcmp(a->dim, b->dim, sizeof a->dim) == 0 &&
           memcmp(a->dim_split, b->dim_split, sizeof a->dim_split) == 0;
}

void note_zero_tensor(Planner *p, const ZeroTensor *tensor)
{
    for (int i = 0; i < p->ntensors; i++)
        if (is_alike(&p->tensor[i], tensor)) {
            p->tensor[i].weight += tensor->weight, p->tensor[i].gradient += tensor->gradient;
            return;
        }
    if (p->ntensors == p->tensor_room) {
        ZeroTensor *grown = NEW_ARRAY(p->arena, ZeroTensor, p->tensor_room = p->tensor_room * 2 + 16);
        for (int i = 0; i < p->ntensors; i++)
            grown[i] = p->tensor[i];
        p->tensor = grown;
    }
    p->tensor[p->ntensors++] = *tensor;
}

/* --- Ranks ----------------------------------------------------------------------------------------------------- */

static unsigned zero_axes(const Planner *p, const ZeroTensor *tensor)
{
    unsigned axes = 0;
    for (int i = 0; i < p->naxes; i++)
        axes |= p->axis[i].is_zero && !(tensor->split >> i & 1) ? 1u << i : 0;
    return axes;
}

/* Has it a dim that all ranks can have a part of?  Else zero may leave it whole. */
static bool is_splittable(const Planner *p, const PlanLayout *layout, const ZeroTensor *tensor)
{
    const int64_t ranks = ranks_on_axes(p, layout, zero_axes(p, tensor));
    for (int i = 0; i < tensor->ndims; i++)
        if (tensor->dim[i] % (ranks * ranks_on_axes(p, layout, tensor->dim_split[i])) == 0)
            return true;
    return false;
}

/* --- Messages -------------------------------------------------------------------------------------------------- */

/* Of a step, at least: all messages, and those of each place. */
typedef struct {
    double all;
    PlaceTime at;
} ZeroTime;

static void add_message(const Planner *p, const PlanLayout *layout, OpKind kind, double bytes, unsigned axes,
                        ZeroTime *traffic)
{
    const Group group = group_along(p->machine, layout->size, p->naxes, axes);
    const double seconds = message_seconds(p->machine, (int)kind, bytes, group);
    traffic->all += seconds;
    traffic->at.seconds[group.on_one_machine < group.ranks ? OUTSIDE : INSIDE] += seconds;
}

/* Along all axes at once, or along one of them first: what comes next is a part. */
static void add_along(const Planner *p, const PlanLayout *layout, OpKind kind, double bytes, unsigned axes,
                      double times, ZeroTime *traffic)
{
    ZeroTime least = { 0 };
    add_message(p, layout, kind, bytes, axes, &least);
    for (int i = 0; i < p->naxes; i++)
        if (axes >> i & 1 && layout->size[i] > 1 && axes != 1u << i) {
            ZeroTime both = { 0 };
            add_message(p, layout, kind, bytes, 1u << i, &both);
            add_message(p, layout, kind, bytes / (double)layout->size[i], axes & ~(1u << i), &both);
            least.all = fmin(least.all, both.all);
            for (int place = 0; place < N_PLACES; place++)
                least.at.seconds[place] = fmin(least.at.seconds[place], both.at.seconds[place]);
        }
    traffic->all += times * least.all;
    for (int place = 0; place < N_PLACES; place++)
        traffic->at.seconds[place] += times * least.at.seconds[place];
}

/* Of all tensors that are sent along the same axes, in a step; those of repeats in each micro-batch. */
typedef struct {
    unsigned axes;
    double weights, gradients, repeated_weights, repeated_gradients; /* bytes */
} Sent;

static void add_sent(const Planner *p, const PlanLayout *layout, const Sent *sent, ZeroTime *traffic)
{
    const double micros = (double)micro_batches(p, layout);
    const double once = sent->gradients + (layout->zero < 2 ? sent->repeated_gradients : 0);
    const double gathered = sent->weights + (layout->zero < 3 ? sent->repeated_weights : 0);
    if (layout->zero == 0) {
        add_along(p, layout, OP_all_reduce, 2 * once, sent->axes, 1, traffic);
        return;
    }
    add_along(p, layout, OP_reduce_scatter, once, sent->axes, 1, traffic);
    add_along(p, layout, OP_all_gather, gathered, sent->axes, 1, traffic);
    if (layout->zero >= 2)
        add_along(p, layout, OP_reduce_scatter, sent->repeated_gradients, sent->axes, micros, traffic);
    if (layout->zero >= 3) /* forward and backward, once for all that are abreast */
        add_along(p, layout, OP_all_gather, sent->repeated_weights, sent->axes, 2 * micros / lanes_of(layout), traffic);
}

/* Of experts, ranks that share a sequence gather operands: each has the gradient of some of them, and sends it along
 * the batch.  With zero 3 each also computes these alone, so their weights are gathered along the batch. */
static unsigned batch_axes(const Planner *p, const ZeroTensor *tensor)
{
    unsigned axes = zero_axes(p, tensor);
    for (int i = 0; i < p->naxes && tensor->is_of_experts; i++)
        axes &= p->axis[i].is_batch ? ~0u : ~(1u << i);
    return axes;
}

enum { MOST_SENT = 1 << MAX_AXES };

static Sent *sent_along(Sent *sent, int *count, unsigned axes)
{
    int i = 0;
    while (i < *count && sent[i].axes != axes)
        i++;
    if (i == *count)
        sent[(*count)++] = (Sent){ .axes = axes };
    return &sent[i];
}

/* For which the ranks send what zero splits, as the mean of all stages. */
static ZeroTime zero_traffic(const Planner *p, const PlanLayout *layout)
{
    Sent sent[MOST_SENT];
    ZeroTime traffic = { 0 };
    int count = 0;
    for (int i = 0; i < p->ntensors && layout->zero >= 0; i++) {
        const ZeroTensor *t = &p->tensor[i];
        if (!is_splittable(p, layout, t))
            continue;
        const double share = 1 / (double)(ranks_on_axes(p, layout, t->split) * copy_ranks(p, layout));
        const unsigned all = zero_axes(p, t), along = batch_axes(p, t);
        const double part = share / (double)ranks_on_axes(p, layout, all & ~along);
        Sent *weights = sent_along(sent, &count, layout->zero < 3 ? all : along);
        *(t->is_repeated ? &weights->repeated_weights : &weights->weights) +=
            t->weight * (layout->zero < 3 ? share : part);
        Sent *gradients = sent_along(sent, &count, along);
        *(t->is_repeated ? &gradients->repeated_gradients : &gradients->gradients) += t->gradient * part;
    }
    for (int i = 0; i < count; i++)
        add_sent(p, layout, &sent[i], &traffic);
    return traffic;
}

/* Tensors that zero leaves whole for other reasons than sizes are not sent: none that are large have been found. */
#define TRAFFIC_SHARE 0.9

static double seconds_beside(const Planner *p, const PlanLayout *layout, const StepBound *without,
                             const ZeroTime *traffic)
{
    const double all = traffic->all * TRAFFIC_SHARE, moved = p->offload ? seconds_moved(p, layout) : 0;
    const bool follows = !p->away.forwards && !has_schedule(p, layout) && micro_batches(p, layout) > 1;
    double least = hides(layout) ? fmax(without->seconds, all) : without->seconds + all;
    least = fmax(least, moved + (follows ? without->seconds : 0));
    for (int place = 0; place < N_PLACES; place++)
        least = fmax(least, without->sent.seconds[place] + traffic->at.seconds[place] * TRAFFIC_SHARE);
    return least;
}

double seconds_with_zero(const Planner *p, const PlanLayout *layout, const StepBound *without)
{
    const ZeroTime traffic = zero_traffic(p, layout);
    return seconds_beside(p, layout, without, &traffic);
}

typedef struct {
    Planner *p;
    const StepBound *without;
    BlockBound least;
    bool is_known; /* of layouts with that zero, with overlap and without: */
    int zero;
    double memory;
    ZeroTime traffic;
} OverZeros;

static void note_zero(void *context, const PlanLayout *layout)
{
    OverZeros *over = context;
    const Planner *p = over->p;
    if (!over->is_known || over->zero != layout->zero) {
        over->is_known = true, over->zero = layout->zero;
        over->memory = least_memory(over->p, layout, true, NULL);
        over->traffic = over->memory <= p->memory ? zero_traffic(p, layout) : (ZeroTime){ 0 };
    }
    over->least.memory = fmin(over->least.memory, over->memory);
    if (over->memory <= p->memory)
        over->least.seconds = fmin(over->least.seconds, seconds_beside(p, layout, over->without, &over->traffic));
}

BlockBound over_zeros(Planner *p, const PlanLayout *layout, const StepBound *without)
{
    OverZeros over = { .p = p, .without = without, .least = { INFINITY, INFINITY, NULL } };
    visit_zeros(p, *layout, note_zero, &over);
    return over.least;
}
