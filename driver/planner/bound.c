/* bound.c -- the least time that a layout can take, from the program of one rank.
 *
 * The model is compiled for one rank and micro-batches of one sequence, once for each policy of recomputation.  On more
 * ranks each of its products, attentions and kernels has its size divided by the axes that can split it, at most, and
 * multiplied by the sequences of a micro-batch; it takes at least as long as the machine says for that size.  What has
 * no batch, and all messages, count as nothing.  A stage of a pipeline has at least the mean of all.
 * memory_bound.c does likewise with what the program has in memory. */
#include "memory_bound.h"
#include "report.h"

#include "codegen/host/host.h"

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

typedef struct ModelCost {
    int count[POLICIES], room[POLICIES];
    Piece *piece[POLICIES];
} ModelCost;

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

int shared_loop(const Planner *p, const Op *op)
{
    const RepeatLoads *weights = loads_of(p, RECOMPUTE_NONE);
    for (int i = 0; i < weights->repeats; i++)
        if (strcmp(op->attrs.dims.dim[0].name, weights->dim[i]) == 0)
            return op->attrs.reverse ? -i - 1 : i + 1;
    return 0;
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
            note_savings(s, (Recompute)policy, item->op);
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

static bool read_program(Planner *p, Recompute policy, bool is_first)
{
    Run run = { .trains_alone = true };
    const char *why;
    const PlanLayout one = layout_on(p, policy, 1);
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
    p->beside = (double)product_space(m);
    const Classes classes = classify_tensors(m);
    const StepCost cost = step_cost(m, &classes, &run.arena);
    add_pieces(p, &s, (int)policy, &cost.before[0], 0.5, 0);
    if (is_first)
        note_state(p, &s, &classes, &cost.before[0]);
    free_module(m);
    arena_free(&run.arena);
    return true;
}

bool read_model_cost(Planner *p)
{
    static const Recompute policies[] = { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };
    p->cost = NEW(p->arena, ModelCost);
    start_memory_bounds(p);
    if (p->mixes) /* what the model computes is no sum over sequences */
        return true;
    for (int i = 0; i < 3; i++)
        if (!read_program(p, policies[i], i == 0))
            return false;
    return true;
}

/* --- Bounds ------------------------------------------------------------------------------------------------- */

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
            seconds / (double)loads_of(p, RECOMPUTE_NONE)->copies[repeat];
}

MicroTime least_micro(const Planner *p, const PlanLayout *layout)
{
    const int policy = (int)layout->recompute;
    MicroTime time = { 0 };
    for (int i = 0; i < p->cost->count[policy]; i++) {
        const Piece *piece = &p->cost->piece[policy][i];
        const double part = (double)layout->microbatch / ranks_sharing(p, layout, piece->split);
        const double own = lanes_of(layout) * piece->times * seconds_of_part(p->machine, &piece->item, part);
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
            const double part = (double)layout->microbatch / ranks_sharing(p, layout, piece->split);
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
        const double part = (double)layout->microbatch / ranks_sharing(p, layout, piece->split);
        seconds += piece->times * (seconds_of_part(p->machine, &block, part) - seconds_of_part(p->machine, &all, part));
    }
    return seconds;
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
