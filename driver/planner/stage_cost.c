/* stage_cost.c -- the actions of a pipeline, made of the parts of a micro-batch with the copies that its stages have,
 * and how long the schedule of them takes. */
#include "pipeline.h"

#include <math.h>
#include <string.h>

/* --- The actions of a pipeline ------------------------------------------------------------------------------------ */

/* Each stage has the next copies of the repeats, and what is beside those that begin or end there. */
static void fill_stages(const MicroTime *time, const RepeatLoads *w, ActionKind kind, int stages, const int64_t *copies,
                        double *seconds)
{
    int repeat = 0;
    int64_t left = w->copies[0];
    for (int stage = 0; stage < stages; stage++) {
        seconds[stage] = stage == 0 ? time->beside[kind][0] : 0;
        for (int64_t rest = copies[stage]; rest > 0;) {
            const int64_t run = left > 0 && left < rest ? left : rest; /* copies of one repeat */
            seconds[stage] += (double)run * time->copy[kind][repeat] - time->carried[kind][repeat];
            rest -= run, left -= run;
            if (left == 0) {
                seconds[stage] += time->beside[kind][++repeat];
                left = repeat < w->repeats ? w->copies[repeat] : -1;
            }
        }
    }
}

static double message_between(const Planner *p, const PlanLayout *layout, double bytes)
{
    Axes axes = 0;
    for (int i = 0; i < p->naxes; i++)
        axes |= p->axis[i].splits_copies ? 1u << i : 0;
    const Group group = group_along(p->machine, layout->size, p->naxes, axes);
    return message_seconds(p->machine, OP_send, bytes, (Group){ 2, group.on_one_machine == group.ranks ? 2 : 1 });
}

/* Seconds of the actions of all stages before each one; at [stages] of all. */
static void add_up(const double *seconds, int stages, double message, double *before)
{
    before[0] = 0;
    for (int stage = 0; stage < stages; stage++)
        before[stage + 1] = before[stage] + seconds[stage] + (stage < stages - 1 ? message : 0);
}

/* The seconds that messages of a rank take in one place, with so many copies of each repeat. */
static double sent_of(const RepeatLoads *w, const OnceTime *once, const double *seconds, const RankCopies *copies)
{
    double sum = 0;
    for (int i = 0; i < w->repeats; i++)
        sum += seconds[i] * copies->copies[i] / (double)w->copies[i];
    return sum * once->share;
}

/* Until all ranks have what their first actions need. */
static double before_all(const RepeatLoads *w, const Pipeline *pipeline, const OnceTime *once, bool overlaps)
{
    double most = 0;
    for (int rank = 0; rank < pipeline->ranks && once->share > 0; rank++) {
        const double inside = sent_of(w, once, once->before[INSIDE], &pipeline->held[rank]);
        const double outside = sent_of(w, once, once->before[OUTSIDE], &pipeline->held[rank]);
        most = fmax(most, overlaps ? fmax(inside, outside) : inside + outside);
    }
    return most;
}

/* Seconds for which early messages of a rank still go in one place after its last action.  They start when their chunk
 * ends, the last chunk first.  chunk_end: when chunks end, before that action; NULL: one of them does then. */
static double early_left(const RepeatLoads *w, const Pipeline *pipeline, const OnceTime *once, const double *seconds,
                         int rank, const double *chunk_end)
{
    double least = INFINITY, sent = -INFINITY;
    for (int chunk = pipeline->chunks - 1; chunk >= 0; chunk--) {
        const double own =
            sent_of(w, once, seconds, &pipeline->of_stage[stage_on_rank(pipeline->schedule, rank, chunk)]);
        least = fmin(least, own);
        sent = fmax(sent, chunk_end ? chunk_end[chunk] : 0) + own;
    }
    return chunk_end ? fmax(0, sent) : least;
}

/* After the last action of a rank. */
static double after_rank(const RepeatLoads *w, const Pipeline *pipeline, const OnceTime *once, bool overlaps, int rank,
                         const double *chunk_end)
{
    const RankCopies *held = &pipeline->held[rank];
    double most = once->computed / pipeline->ranks, sum = most, moved = 0;
    for (int i = 0; i < w->repeats; i++)
        moved += once->moved[i] * held->copies[i] / (double)w->copies[i];
    if (once->share <= 0) /* of messages nothing is known */
        return moved;
    for (int place = 0; place < N_PLACES; place++) {
        const double late = sent_of(w, once, once->late[place], held);
        sum += sent_of(w, once, once->early[place], held) + late;
        most = fmax(most, early_left(w, pipeline, once, once->early[place], rank, chunk_end) + late);
    }
    return fmax(moved, overlaps ? most : sum);
}

/* The longest of these ways through the schedule, which are all in it: to the first action of a rank, then all that the
 * rank does; through all stages and back to the first backward action of the rank, then all that it does from there on;
 * and then, unless its last actions are of weights, through the stages before it.  Messages of the rank follow. */
static double longest_way(const Planner *p, const PlanLayout *layout, const Pipeline *pipeline, const StageCosts *costs,
                          const OnceTime *once, double message)
{
    const RepeatLoads *w = loads_of(p, layout->recompute);
    const PipelineSchedule *s = pipeline->schedule;
    const int stages = stage_count(s);
    const double turns = (double)turns_of(p, layout);
    const double after_first = after_rank(w, pipeline, once, layout->overlaps, 0, NULL);
    double *forward = costs->forward_before, *backward = costs->back_before, most = 0;
    add_up(costs->seconds[FORWARD_ACTION], stages, message, forward);
    add_up(costs->back, stages, message, backward);
    for (int rank = 0; rank < s->ranks; rank++) {
        const int first = stage_on_rank(s, rank, 0);
        double work = 0, ahead = 0;
        for (int chunk = 0; chunk < s->chunks; chunk++) {
            const int stage = stage_on_rank(s, rank, chunk);
            for (ActionKind kind = 0; kind < N_ACTION_KINDS; kind++)
                work += costs->seconds[kind][stage] * turns;
            ahead += costs->seconds[FORWARD_ACTION][stage] * pipeline->ahead[rank * s->chunks + chunk];
        }
        const int turn = pipeline->turn[rank];
        const double back = backward[stages] - backward[turn + 1];
        const double way = fmax(forward[first] + work, forward[stages] + back + work - ahead);
        most = fmax(most, way + after_rank(w, pipeline, once, layout->overlaps, rank, NULL));
        if (!s->splits_backward)
            most = fmax(most, way + backward[first] + after_first);
    }
    return most + before_all(w, pipeline, once, layout->overlaps);
}

/* Of copies whose messages of zero overlap: a stage takes at least as long as if those of one copy were for nothing.
 * A message of weights outside of copies, such as an embedding, may be started in one part of a micro-batch and end in
 * another, which runs on another stage: it counts for nothing.  In a program with stages, each is on its stage. */
static MicroTime with_carried(const Block *with, const Block *without)
{
    MicroTime time = with->time;
    const bool is_elsewhere = with->like.overlaps && !with->of.in_actions;
    for (int kind = 0; kind < N_ACTION_KINDS; kind++)
        for (int i = 0; i < MAX_REPEATS; i++)
            time.carried[kind][i] = fmax(0, with->time.copy[kind][i] - without->time.copy[kind][i]);
    for (int kind = 0; kind < N_ACTION_KINDS && is_elsewhere; kind++)
        for (int i = 0; i <= MAX_REPEATS; i++)
            time.beside[kind][i] = fmin(time.beside[kind][i], without->time.beside[kind][i]);
    return time;
}

/* has_weights: backward actions of the time have both parts, those of the schedule have one. */
static void fill_seconds(const Planner *p, const PlanLayout *layout, const Pipeline *pipeline, const MicroTime *time,
                         bool has_weights, StageCosts *costs)
{
    const RepeatLoads *w = loads_of(p, layout->recompute);
    const int stages = pipeline->ranks * pipeline->chunks;
    MicroTime back = { 0 };
    for (ActionKind kind = 0; kind < N_ACTION_KINDS; kind++)
        fill_stages(time, w, kind, stages, pipeline->copies, costs->seconds[kind]);
    memcpy(back.copy[BACKWARD_ACTION], time->back, sizeof time->back);
    fill_stages(has_weights ? &back : time, w, BACKWARD_ACTION, stages, pipeline->copies, costs->back);
}

/* When the last rank has sent its messages. */
static double end_of(const Planner *p, const PlanLayout *layout, const Pipeline *pipeline,
                     const PipelineSchedule *schedule, const Timeline *timeline, const OnceTime *once)
{
    const RepeatLoads *w = loads_of(p, layout->recompute);
    double most = 0;
    for (int rank = 0; rank < pipeline->ranks; rank++) {
        double chunk_end[MAX_CHUNKS] = { 0 }, end = 0;
        for (int i = 0; i < schedule->nactions[rank]; i++)
            for (int chunk = 0; chunk < schedule->chunks; chunk++)
                if (schedule->action[rank][i].stage == stage_on_rank(schedule, rank, chunk))
                    chunk_end[chunk] = end = timeline->end[rank][i];
        for (int chunk = 0; chunk < schedule->chunks; chunk++)
            chunk_end[chunk] -= end;
        most = fmax(most, end + after_rank(w, pipeline, once, layout->overlaps, rank, chunk_end));
    }
    return most + before_all(w, pipeline, once, layout->overlaps);
}

/* Seconds of a step; 0: the schedule is too long to look at all of it. */
static double simulated(const Planner *p, const PlanLayout *layout, const Pipeline *pipeline, const Costs *costs,
                        const OnceTime *once)
{
    enum { MOST_ACTIONS = 400000 };
    Arena arena = { 0 };
    Timeline timeline;
    const int64_t micros = turns_of(p, layout);
    const bool is_short = micros * pipeline->ranks * pipeline->chunks * N_ACTION_KINDS <= MOST_ACTIONS;
    PipelineSchedule *schedule = !is_short ? NULL
                                 : micros == pipeline->micros
                                     ? pipeline->schedule
                                     : make_plan_schedule(&arena, layout, pipeline->ranks, (int)micros);
    const bool ends = schedule && simulate_schedule(&arena, schedule, costs, &timeline);
    const double seconds = ends ? end_of(p, layout, pipeline, schedule, &timeline, once) : 0;
    arena_free(&arena);
    return seconds;
}

/* Seconds of the stages of the layout's pipeline; simulate: else by what each rank does. */
static double bound_of_pipeline(Planner *p, const PlanLayout *layout, const Block *b, const Block *without,
                                const Block *zero, bool simulate)
{
    static const OnceTime nothing;
    const Pipeline *pipeline = find_pipeline(p, layout);
    OnceTime once = zero ? zero->sent : nothing;
    find_moved(p, layout, &once);
    if (!pipeline->schedule || !loads_of(p, layout->recompute)->repeats)
        return 0;
    StageCosts *s = pipeline->costs;
    const MicroTime time = with_carried(b, without);
    /* else both parts of a backward action are one */
    const bool is_alike = divides_backward(&b->like) == pipeline->schedule->splits_backward;
    fill_seconds(p, layout, pipeline, &time, !is_alike, s);
    const Costs costs = { s->seconds[FORWARD_ACTION], s->seconds[BACKWARD_ACTION], s->seconds[WEIGHT_ACTION],
                          message_between(p, layout, b->handed_on), 0 };
    const double way = longest_way(p, layout, pipeline, s, &once, costs.message);
    return simulate && is_alike ? fmax(way, simulated(p, layout, pipeline, &costs, &once)) : way;
}

/* Backward actions may have two parts, of activations and of weights; and in stages no message crosses from copy to
 * copy, which hides more, the more micro-batches are abreast. */
bool needs_actions(const Planner *p, const PlanLayout *layout)
{
    return has_schedule(p, layout) && loads_of(p, layout->recompute)->repeats > 0 &&
           (divides_backward(layout) || lanes_of(layout) > 1);
}

/* NULL: it says no more, or cannot be compiled. */
static const Block *block_in_actions(Planner *p, const PlanLayout *layout, bool with_zero)
{
    const BlockOf of = { .with_zero = with_zero, .is_summed = micro_batches(p, layout) > 1, .in_actions = true };
    const Block *block = needs_actions(p, layout) ? find_block(p, layout, of) : NULL;
    return block && !block->refused ? block : NULL;
}

/* Values that lie in others count twice where backward actions are divided: found up to 4 %, of two repeats 6 %. */
static double slots_share(const Planner *p, const PlanLayout *layout)
{
    return loads_of(p, layout->recompute)->repeats > 1 ? 0.9 : 0.95;
}

BlockBound bound_of_actions(Planner *p, const PlanLayout *layout, const Block *b, const Block *without,
                            const Block *zero, int closeness)
{
    const bool simulate = closeness >= SIMULATED;
    const Block *apart = simulate ? block_in_actions(p, layout, closeness == WITH_ZERO) : NULL;
    if (!apart)
        return (BlockBound){ .seconds = bound_of_pipeline(p, layout, b, without, zero, simulate) };
    const Block *apart_without = block_in_actions(p, layout, false);
    BlockBound bound = { 0 };
    if (apart_without)
        bound.seconds = bound_of_pipeline(p, layout, apart, apart_without, zero, true);
    if (divides_backward(layout))
        bound.memory = slots_share(p, layout) * least_memory(p, layout, false, &apart->divided);
    return bound;
}

/* --- A micro-batch's parts alone ------------------------------------------------------------------------------------
 */

/* The step lasts as long as the mean of the ranks works and waits: at least for the first micro-batch, and in schedules
 * that do not divide backward actions for what comes back of the last one. */
static double mean_of_ranks(const Planner *p, const PlanLayout *layout, const MicroTime *time, bool divides)
{
    const RepeatLoads *w = loads_of(p, layout->recompute);
    const double ranks = (double)copy_ranks(p, layout);
    const double copies = fmax(1, floor((double)p->copies / ranks / layout->chunks));
    double forward = 0, backward = 0;
    for (int i = 0; i < w->repeats; i++) {
        forward += time->copy[FORWARD_ACTION][i] * (double)w->copies[i];
        backward += time->copy[BACKWARD_ACTION][i] * (double)w->copies[i];
    }
    return time->whole * (double)turns_of(p, layout) / ranks +
           (ranks - 1) / 2 * copies / (double)p->copies * (forward + (divides ? 0 : backward));
}

/* As micros_in_schedule(), but the schedule is not timed if already a lower bound is `enough` seconds: this is returned
 * then. */
static double micros_if_less(Planner *p, const PlanLayout *layout, const MicroTime *time, double enough)
{
    const bool divides = divides_backward(layout);
    if (!has_schedule(p, layout))
        return time->whole * (double)turns_of(p, layout);
    const double mean = mean_of_ranks(p, layout, time, divides);
    if (mean >= enough)
        return mean;
    const Pipeline *pipeline = find_pipeline(p, layout);
    if (!pipeline->schedule || !loads_of(p, layout->recompute)->repeats)
        return mean;
    fill_seconds(p, layout, pipeline, time, divides, pipeline->costs);
    return fmax(mean, longest_way(p, layout, pipeline, pipeline->costs, &time->once, 0));
}

double micros_in_schedule(Planner *p, const PlanLayout *layout, const MicroTime *time)
{
    return micros_if_less(p, layout, time, INFINITY);
}

typedef struct {
    int count;
    struct {
        PlanSchedule schedule;
        int chunks;
    } at[MOST_SCHEDULES];
} Schedules;

static void note_schedule(void *context, const PlanLayout *layout)
{
    Schedules *all = context;
    all->at[all->count].schedule = layout->schedule;
    all->at[all->count++].chunks = layout->chunks;
}

/* Ranks wait least in the last ones: then it shows at once that others take longer. */
double least_of_micros(Planner *p, const PlanLayout *layout, const MicroTime *time)
{
    Schedules all = { 0 };
    PlanLayout with = *layout;
    double least = INFINITY;
    visit_schedules(p, *layout, note_schedule, &all);
    for (int i = all.count - 1; i >= 0; i--) {
        with.schedule = all.at[i].schedule, with.chunks = all.at[i].chunks;
        least = fmin(least, micros_if_less(p, &with, time, least));
    }
    return least;
}
