/* block_bound.c -- bounds from what the parts of a micro-batch take.
 *
 * What is done once a step, and what a rank holds, count as the mean of all stages. */
#include "block.h"

#include <math.h>

/* Are there messages in layers that are not zero's: of axes that it does not split over, or of keys? */
static bool has_other_messages(const Planner *p, const PlanLayout *layout)
{
    bool has = false;
    for (int i = 0; i < p->naxes; i++)
        has |= (!p->axis[i].is_zero || p->axis[i].attends) && !p->axis[i].splits_copies && layout->size[i] > 1;
    return has;
}

/* How much longer than a layout parts of its program may take, at most: sizes decide some of the order of ops.  Found
 * with experts: 1.7 %, where sequences are split beside them 4.2 %; where messages of layers may cross into the next
 * one, 4.9 %, in pipelines, whose waits make up for some of it, 2.2 %. */
static double error_of(const Planner *p, const PlanLayout *layout)
{
    const bool has_other = has_other_messages(p, layout);
    if ((p->has_experts && attends_apart(p, layout)) || (has_other && !has_schedule(p, layout)))
        return 0.05;
    if (has_other && layout->zero == 3)
        return 0.04;
    if (has_other)
        return 0.023;
    return p->has_experts && !has_schedule(p, layout) ? 0.02 : STRUCTURE_ERROR;
}

static BlockBound less(const Planner *p, const PlanLayout *layout, double seconds, double memory)
{
    return (BlockBound){ seconds * (1 - error_of(p, layout)), memory, NULL };
}

static BlockOf asked_of(const Planner *p, const PlanLayout *layout, bool with_zero)
{
    return (BlockOf){ .with_zero = with_zero, .is_summed = micro_batches(p, layout) > 1 };
}

static const Block *block_of(Planner *p, const PlanLayout *layout, bool with_zero)
{
    return find_block(p, layout, asked_of(p, layout, with_zero));
}

/* Without zero and with it, where that makes a difference to a micro-batch (see block.c): of what the layout can have
 * and that may fit. */
typedef struct {
    Planner *p;
    bool without, with;
} ZeroKinds;

static void note_kind(void *context, const PlanLayout *layout)
{
    ZeroKinds *kinds = context;
    bool *kind = kinds->p->has_experts && layout->zero <= 0 ? &kinds->without : &kinds->with;
    *kind = *kind || least_memory(kinds->p, layout, true, NULL) <= kinds->p->memory;
}

/* Its layouts, by zero. */
static int kinds_of_zero(Planner *p, const PlanLayout *layout, PlanLayout kind[2])
{
    ZeroKinds kinds = { .p = p };
    int count = 0;
    visit_zeros(p, *layout, note_kind, &kinds);
    kind[0] = kind[1] = *layout;
    if (kinds.without)
        kind[count++].zero = 0;
    if (kinds.with)
        kind[count++].zero = 1;
    return count;
}

/* Those that differ in what a micro-batch sends. */
static int kinds_of_messages(Planner *p, const PlanLayout *layout, PlanLayout kind[2])
{
    kind[0] = kind[1] = *layout;
    kind[0].zero = 0, kind[1].zero = 1;
    return sums_late(p, &kind[0]) == sums_late(p, &kind[1]) ? 1 : kinds_of_zero(p, layout, kind);
}

/* The layout that gathers keys and recomputes nothing, with whole messages of one micro-batch after the other, in place
 * of this one. */
static PlanLayout base_of(const PlanLayout *layout)
{
    PlanLayout base = *layout;
    base.attend = GATHER, base.recompute = RECOMPUTE_NONE;
    base.pieces = 1, base.abreast = 1;
    return base;
}

int asked_by_micro(Planner *p, const PlanLayout *layout, BlockAsk ask[MOST_ASKED])
{
    PlanLayout kind[2];
    const int count = kinds_of_zero(p, layout, kind);
    for (int i = 0; i < count; i++)
        ask[i] = (BlockAsk){ kind[i], asked_of(p, layout, false) };
    return count;
}

/* What a micro-batch sends, of all of them; the mean of all stages. */
static PlaceTime sent_in_step(const Planner *p, const PlanLayout *layout, PlaceTime micro)
{
    for (int place = 0; place < N_PLACES; place++)
        micro.seconds[place] *= (double)micro_batches(p, layout) / (double)copy_ranks(p, layout);
    return micro;
}

static const StepBound nothing_known = { INFINITY, { { INFINITY, INFINITY } } };

static void take_less(StepBound *least, double seconds, PlaceTime sent)
{
    least->seconds = fmin(least->seconds, seconds);
    for (int place = 0; place < N_PLACES; place++)
        least->sent.seconds[place] = fmin(least->sent.seconds[place], sent.seconds[place]);
}

static StepBound lowered(StepBound bound, double share)
{
    bound.seconds *= share;
    for (int place = 0; place < N_PLACES; place++)
        bound.sent.seconds[place] *= share;
    return bound;
}

/* With full recomputation and one micro-batch after the other, which needs the least memory, and by any means to get
 * keys but to gather them. */
static PlanLayout with_any_policies(const Planner *p, const PlanLayout *layout)
{
    PlanLayout any = *layout;
    any.recompute = RECOMPUTE_FULL;
    any.abreast = 1;
    any.attend = attends_apart(p, layout) ? RING : GATHER;
    return any;
}

int asked_by_split(Planner *p, const PlanLayout *layout, BlockAsk ask[MOST_ASKED])
{
    const PlanLayout any = with_any_policies(p, layout);
    PlanLayout kind[2];
    int count = kinds_of_messages(p, &any, kind), asked = 0;
    for (int i = 0; i < count; i++) {
        const PlanLayout sender = first_sender(p, &kind[i]);
        if (mesh_ranks(p, &sender) > 1)
            ask[asked++] = (BlockAsk){ sender, { .is_summed = true, .is_rough = true } };
    }
    return asked;
}

double split_bound(Planner *p, const PlanLayout *layout)
{
    static const Recompute policies[] = { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };
    PlanLayout any = with_any_policies(p, layout), kind[2];
    double work = INFINITY, most[2] = { 0 };
    const int count = kinds_of_messages(p, &any, kind);
    for (int i = 0; i < 3; i++) {
        any.recompute = policies[i];
        work = fmin(work, least_micro(p, &any).whole);
    }
    for (int i = 0; i < count; i++) {
        const PlaceTime sent = least_messages(p, &kind[i]);
        most[i] = fmax(sent.seconds[INSIDE], sent.seconds[OUTSIDE]);
    }
    const double sent = count == 2 ? fmin(most[0], most[1]) : most[0];
    return fmax(work, sent) * (double)micro_batches(p, layout) / (double)copy_ranks(p, layout);
}

StepBound model_bound(Planner *p, const PlanLayout *layout)
{
    PlanLayout kind[2];
    StepBound least = nothing_known;
    const MicroTime work = least_micro(p, layout);
    const int count = kinds_of_messages(p, layout, kind);
    for (int i = 0; i < count; i++) {
        MicroTime time = work;
        const PlaceTime sent = least_messages(p, &kind[i]);
        time.whole = fmax(time.whole, lanes_of(layout) * fmax(sent.seconds[INSIDE], sent.seconds[OUTSIDE]));
        take_less(&least, least_of_micros(p, layout, &time), sent_in_step(p, layout, sent));
    }
    return count ? least : (StepBound){ 0 };
}

StepBound micro_bound(Planner *p, const PlanLayout *layout)
{
    PlanLayout kind[2];
    const int count = kinds_of_zero(p, layout, kind);
    StepBound least = nothing_known;
    for (int i = 0; i < count; i++) {
        const Block *b = block_of(p, &kind[i], false);
        if (!b->refused)
            take_less(&least, least_of_micros(p, layout, &b->time), sent_in_step(p, layout, b->links.grown));
    }
    return lowered(least, 1 - error_of(p, layout));
}

const char *micro_refusal(Planner *p, const PlanLayout *layout)
{
    PlanLayout kind[2];
    const char *why = NULL;
    for (int i = kinds_of_zero(p, layout, kind) - 1; i >= 0 && !why; i--)
        why = block_of(p, &kind[i], false)->refused;
    return why;
}

/* Messages in pieces, or of several micro-batches abreast, may all hide behind what the layout computes. */
static bool hides_more(const PlanLayout *layout) { return layout->pieces > 1 || lanes_of(layout) > 1; }

/* Of any number of sequences and of data-parallel ranks: other messages are joined then, and dims of one element are
 * moved for nothing. */
static BlockOf rough_of(const Planner *p, const PlanLayout *layout)
{
    return (BlockOf){ .is_summed = micro_batches(p, layout) > 1, .is_rough = true, .is_silent = hides_more(layout) };
}

/* A rough program counts for so much (found: 0.1 % too much of large models). */
#define ROUGH_SHARE 0.95

/* Of several sequences that ranks share, it adds the gradients of experts by kernels of their own, which a program of
 * one sequence does not (found: 15 % of a micro-batch). */
static double share_of_rough(const Planner *p, const PlanLayout *layout)
{
    return p->has_experts && layout->microbatch == 1 && attends_apart(p, layout) ? 0.8 : ROUGH_SHARE;
}

/* Of so many micro-batches that are abreast. */
static MicroTime times(const MicroTime *time, int lanes)
{
    MicroTime all = { .whole = time->whole * lanes };
    for (int i = 0; i <= MAX_REPEATS; i++)
        for (int kind = 0; kind < N_ACTION_KINDS; kind++) {
            all.beside[kind][i] = time->beside[kind][i] * lanes;
            if (i < MAX_REPEATS)
                all.copy[kind][i] = time->copy[kind][i] * lanes;
        }
    for (int i = 0; i < MAX_REPEATS; i++)
        all.back[i] = time->back[i] * lanes;
    return all;
}

/* The rough program that gathers keys and recomputes nothing serves others, too: keys that come by other means take at
 * least no time, what a ring computes of them takes longer, and products that are recomputed come on top.  But what is
 * not kept for the backward pass need not be written, nor sent: of an LSTM, that makes 5 %. */
StepBound rough_bound(Planner *p, const PlanLayout *layout)
{
    static const double not_kept = 0.08;
    const bool gathers = layout->attend == GATHER, keeps = layout->recompute == RECOMPUTE_NONE;
    const double share = (double)micro_batches(p, layout) / (double)copy_ranks(p, layout);
    const double lost = layout->attend == RING ? lost_in_ring(p, layout) : 0, again = products_again(p, layout);
    PlanLayout kind[2];
    StepBound least = nothing_known;
    const int count = kinds_of_zero(p, layout, kind);
    for (int i = 0; i < count; i++) {
        const PlanLayout base = base_of(&kind[i]);
        if (!is_regular(p, &base, rough_of(p, layout)))
            return (StepBound){ 0 };
        const Block *b = find_block(p, &base, rough_of(p, layout));
        const double all = (gathers ? b->time.whole : b->apart + lost) + again;
        PlaceTime sent = b->links.grown;
        for (int place = 0; place < N_PLACES && !gathers; place++)
            sent.seconds[place] -= b->links.keys.seconds[place];
        if (b->refused)
            return (StepBound){ 0 };
        const MicroTime abreast = times(&b->time, lanes_of(layout));
        take_less(&least, fmax(all * share, gathers ? least_of_micros(p, layout, &abreast) : 0),
                  sent_in_step(p, layout, sent));
    }
    return lowered(least, share_of_rough(p, layout) * (1 - error_of(p, layout)) * (keeps ? 1 : 1 - not_kept));
}

int asked_by_rough(Planner *p, const PlanLayout *layout, BlockAsk ask[MOST_ASKED])
{
    PlanLayout kind[2];
    const int count = kinds_of_zero(p, layout, kind);
    for (int i = 0; i < count; i++)
        ask[i] = (BlockAsk){ base_of(&kind[i]), rough_of(p, layout) };
    return count;
}

/* What is done once a step.  What stages know of their own of it is not here (stage_cost.c). */
static double once_seconds(const Planner *p, const PlanLayout *layout, const Block *b)
{
    const bool is_scheduled = has_schedule(p, layout);
    double messages = b->once - b->sent.computed;
    for (int place = 0; place < N_PLACES && is_scheduled; place++)
        for (int i = 0; i < MAX_REPEATS; i++)
            messages -= b->sent.before[place][i] + b->sent.early[place][i] + b->sent.late[place][i];
    return (is_scheduled ? 0 : b->sent.computed) + b->sent.share * fmax(0, messages);
}

/* What zero adds to a micro-batch and to a step is the same for all micro-batches and policies: of the smallest one. */
static PlanLayout smallest(const PlanLayout *layout)
{
    PlanLayout one = *layout;
    one.microbatch = 1, one.recompute = RECOMPUTE_NONE, one.attend = GATHER, one.overlaps = false;
    one.pieces = 1;
    return one;
}

/* The block of it; NULL: it cannot be compiled. */
static const Block *block_of_zero(Planner *p, const PlanLayout *layout)
{
    const PlanLayout one = smallest(layout);
    const Block *with = find_block(p, &one, asked_of(p, layout, true));
    return with->refused ? NULL : with;
}

/* Seconds. */
static double added_by_zero(Planner *p, const PlanLayout *layout)
{
    const PlanLayout one = smallest(layout);
    const double ranks = (double)copy_ranks(p, layout), turns = (double)turns_of(p, layout);
    const bool is_summed = micro_batches(p, layout) > 1;
    const Block *without = find_block(p, &one, (BlockOf){ .is_summed = is_summed }), *with = block_of_zero(p, layout);
    if (!with || without->refused)
        return 0;
    const double in_micros = fmax(0, with->time.whole - without->time.whole) * turns * JOINED_SHARE;
    return hides(layout) || !is_summed ? 0 : (in_micros + once_seconds(p, layout, with)) / ranks;
}

/* With what zero sends once a step, where that is known, and with transfers. */
static MicroTime with_messages(const Planner *p, const PlanLayout *layout, const MicroTime *time, const Block *zero)
{
    MicroTime all = *time;
    if (zero)
        all.once = zero->sent;
    find_moved(p, layout, &all.once);
    return all;
}

/* All messages of one place follow each other: those of the micro-batches, by the layout's program, and of zero. */
static double seconds_of_links(const Planner *p, const PlanLayout *layout, const Block *b, const Block *zero)
{
    const double micros = (double)micro_batches(p, layout);
    double most = 0;
    for (int place = 0; place < N_PLACES && zero; place++) {
        const LinkTime *of_zero = &zero->links; /* of one sequence */
        const double grown =
            fmin(b->links.grown.seconds[place], of_zero->grown.seconds[place] * (double)layout->microbatch);
        most = fmax(most, micros * (grown + of_zero->fixed.seconds[place] * of_zero->share) +
                              of_zero->once.seconds[place] * of_zero->share);
    }
    return most / (double)copy_ranks(p, layout);
}

static BlockBound bound_with(Planner *p, const PlanLayout *layout, bool is_any)
{
    const Block *b = block_of(p, layout, false);
    const double by_zero = added_by_zero(p, layout);
    if (b->refused)
        return (BlockBound){ INFINITY, 0, b->refused };
    const Block *with = block_of_zero(p, layout);
    const MicroTime time = with_messages(p, layout, &b->time, with);
    const double micros = is_any ? least_of_micros(p, layout, &b->time) : micros_in_schedule(p, layout, &b->time);
    const double with_once = is_any ? least_of_micros(p, layout, &time) : micros_in_schedule(p, layout, &time);
    const StepBound without = { micros, sent_in_step(p, layout, b->links.grown) };
    const double least = fmax(seconds_of_links(p, layout, b, with), seconds_with_zero(p, layout, &without));
    return less(p, layout, fmax(with_once + by_zero, least), block_memory(p, layout, b, with, is_any));
}

int asked_by_zero(const Planner *p, const PlanLayout *layout, BlockAsk ask[MOST_ASKED])
{
    const bool is_summed = micro_batches(p, layout) > 1;
    const PlanLayout one = smallest(layout);
    ask[0] = (BlockAsk){ *layout, { .is_summed = is_summed } };
    ask[1] = (BlockAsk){ one, { .is_summed = is_summed } };
    ask[2] = (BlockAsk){ one, { .with_zero = true, .is_summed = is_summed } };
    return 3;
}

BlockBound traffic_bound(Planner *p, const PlanLayout *layout)
{
    const Block *b = block_of(p, layout, false);
    if (b->refused)
        return (BlockBound){ INFINITY, 0, b->refused };
    const StepBound without = { least_of_micros(p, layout, &b->time), sent_in_step(p, layout, b->links.grown) };
    return less(p, layout, seconds_with_zero(p, layout, &without), 0);
}

BlockBound zero_bound(Planner *p, const PlanLayout *layout) { return bound_with(p, layout, true); }

int asked_by_schedule(const Planner *p, const PlanLayout *layout, int closeness, BlockAsk ask[MOST_ASKED])
{
    const bool with_zero = closeness == WITH_ZERO;
    int count = 0;
    if (with_zero)
        ask[count++] = (BlockAsk){ *layout, asked_of(p, layout, true) };
    if (closeness >= SIMULATED && needs_actions(p, layout)) {
        ask[count] = (BlockAsk){ *layout, asked_of(p, layout, with_zero) };
        ask[count++].of.in_actions = true;
    }
    return count;
}

/* Up to stage 1, zero does nothing in the actions of a pipeline. */
int closest_bound(const Planner *p, const PlanLayout *layout)
{
    return has_schedule(p, layout) && layout->zero < 2 ? SIMULATED : WITH_ZERO;
}

BlockBound schedule_bound(Planner *p, const PlanLayout *layout, int closeness)
{
    const bool is_scheduled = has_schedule(p, layout);
    if (closeness == BY_WAITS || (closeness < WITH_ZERO && !is_scheduled))
        return bound_with(p, layout, false);
    const Block *b = block_of(p, layout, closeness == WITH_ZERO);
    if (b->refused)
        return (BlockBound){ INFINITY, 0, b->refused };
    if (!is_scheduled)
        return less(p, layout, b->step - (b->once - once_seconds(p, layout, b)), block_memory(p, layout, b, b, false));
    const double once = closeness < WITH_ZERO ? added_by_zero(p, layout)
                        : layout->overlaps    ? 0
                                              : once_seconds(p, layout, b) / (double)copy_ranks(p, layout);
    const Block *zero = closeness == WITH_ZERO ? b : block_of_zero(p, layout);
    const BlockBound actions = bound_of_actions(p, layout, b, block_of(p, layout, false), zero, closeness);
    return less(p, layout, actions.seconds + once, fmax(block_memory(p, layout, b, zero, false), actions.memory));
}

/* --- All of them ----------------------------------------------------------------------------------------------- */

BlockBound most_of_bounds(Planner *p, const PlanLayout *layout)
{
    const bool may_fit = least_memory(p, layout, false, NULL) <= p->memory; /* else no bound of several knows it */
    static StepBound (*const bounds[])(Planner *, const PlanLayout *) = { model_bound, rough_bound, micro_bound };
    double seconds = split_bound(p, layout);
    for (size_t i = 0; i < (may_fit ? sizeof bounds / sizeof *bounds : 1); i++) {
        const StepBound micros = bounds[i](p, layout);
        const BlockBound over = over_zeros(p, layout, &micros);
        seconds = over.memory <= p->memory ? fmax(seconds, over.seconds) : seconds;
    }
    BlockBound most = zero_bound(p, layout);
    most.seconds = fmax(most.seconds, traffic_bound(p, layout).seconds);
    most.seconds = fmax(most.seconds, seconds);
    most.memory = fmax(most.memory, least_memory(p, layout, false, NULL));
    for (int closeness = BY_WAITS; closeness <= WITH_ZERO; closeness++) {
        const BlockBound bound = schedule_bound(p, layout, closeness);
        most.seconds = fmax(most.seconds, bound.seconds);
        most.memory = fmax(most.memory, bound.memory);
    }
    return most;
}
