/* simulate.c -- the timeline of a schedule: each rank does its actions in order, each as soon as what it reads is
 * there.  What a rank sends goes one after the other.
 *
 * A message may take processor time of both its ranks: an action beside it takes longer, and so does what waits for
 * that.  The schedule is simulated again with what messages took the time before. */
#include "schedule.h"

#include <math.h>
#include <string.h>

/* When what an action has made is there. */
typedef struct {
    double end;  /* on its rank; at first UNDONE */
    double come; /* at the rank that reads it, if that is another one */
} Finish;

typedef struct {
    const PipelineSchedule *s;
    Timeline *t;
    int stages;
    double message, lost;
    double *cost;  /* by kind, stage */
    double **late; /* by rank, action: seconds that messages take of it */
    Finish *made;  /* by kind, stage, micro-batch */
    double *sends; /* by rank: until when */
    int *home;     /* by stage: its rank */
    int *ready;    /* ranks whose next action may have become possible */
    int nready;
    bool *is_ready;
} Simulation;

static const double UNDONE = -1;

static size_t number_of(const Simulation *sim, Action a)
{
    return ((size_t)a.kind * (size_t)sim->stages + (size_t)a.stage) * (size_t)sim->s->micros + (size_t)a.micro;
}

static double cost(const Costs *costs, bool splits_backward, ActionKind kind, int stage)
{
    const double *by_stage[N_ACTION_KINDS] = { NULL };
    if (costs) {
        by_stage[FORWARD_ACTION] = costs->forward;
        by_stage[BACKWARD_ACTION] = costs->backward;
        by_stage[WEIGHT_ACTION] = costs->weight;
    }
    double own = by_stage[kind] ? by_stage[kind][stage] : 1;
    if (kind == BACKWARD_ACTION && !splits_backward)
        own += by_stage[WEIGHT_ACTION] ? by_stage[WEIGHT_ACTION][stage] : 1;
    return own;
}

/* From whose stage an action reads besides its own: forward the one before, backward the one after; -1: from none. */
static int stage_read(int stages, Action a)
{
    const int stage = a.kind == FORWARD_ACTION ? a.stage - 1 : a.kind == BACKWARD_ACTION ? a.stage + 1 : -1;
    return stage < stages ? stage : -1;
}

/* And who reads of it. */
static int stage_reading(int stages, Action a)
{
    const int stage = a.kind == FORWARD_ACTION ? a.stage + 1 : a.kind == BACKWARD_ACTION ? a.stage - 1 : -1;
    return stage < stages ? stage : -1;
}

/* When what an action reads is there; UNDONE: not yet. */
static double when_possible(const Simulation *sim, Action a, size_t number)
{
    const int other = stage_read(sim->stages, a);
    const size_t micros = (size_t)sim->s->micros;
    double when = 0;
    if (a.kind != FORWARD_ACTION) { /* what the action before it has made, on its own stage */
        when = sim->made[number - (size_t)sim->stages * micros].end;
        if (when < 0)
            return UNDONE;
    }
    if (other >= 0) {
        const Finish *made = &sim->made[other < a.stage ? number - micros : number + micros];
        const double there = sim->home[other] != sim->home[a.stage] ? made->come : made->end;
        if (there < 0)
            return UNDONE;
        when = there > when ? there : when;
    }
    return when;
}

static void wake(Simulation *sim, int rank)
{
    if (!sim->is_ready[rank])
        sim->ready[sim->nready++] = rank;
    sim->is_ready[rank] = true;
}

/* What an action has made, to the rank that reads it. */
static void pass_on(Simulation *sim, Finish *made, int rank, int reader)
{
    if (reader != rank) {
        sim->sends[rank] = (made->end > sim->sends[rank] ? made->end : sim->sends[rank]) + sim->message;
        made->come = sim->sends[rank];
    }
    wake(sim, reader);
}

/* Does as many actions of a rank as are possible, and wakes those who wait for them. */
static void run_rank(Simulation *sim, int rank)
{
    const Action *action = sim->s->action[rank];
    const int count = sim->s->nactions[rank];
    double *start = sim->t->start[rank], *end = sim->t->end[rank];
    int i = sim->t->done[rank];
    for (; i < count; i++) {
        const Action a = action[i];
        const size_t number = number_of(sim, a);
        const double possible = when_possible(sim, a, number), free = i ? end[i - 1] : 0;
        if (possible < 0)
            break;
        start[i] = possible > free ? possible : free;
        end[i] = sim->made[number].end = start[i] + sim->cost[(int)a.kind * sim->stages + a.stage] + sim->late[rank][i];
        const int reader = stage_reading(sim->stages, a);
        if (reader >= 0)
            pass_on(sim, &sim->made[number], rank, sim->home[reader]);
    }
    sim->t->done[rank] = i;
}

static bool run_all(Simulation *sim)
{
    const PipelineSchedule *s = sim->s;
    for (int i = N_ACTION_KINDS * sim->stages * s->micros - 1; i >= 0; i--)
        sim->made[i] = (Finish){ UNDONE, UNDONE };
    for (int rank = 0; rank < s->ranks; rank++) {
        sim->t->done[rank] = 0;
        sim->sends[rank] = 0;
        wake(sim, rank);
    }
    while (sim->nready) {
        int rank = sim->ready[--sim->nready];
        sim->is_ready[rank] = false;
        run_rank(sim, rank);
    }
    for (int rank = 0; rank < s->ranks; rank++)
        if (sim->t->done[rank] < s->nactions[rank])
            return false;
    return true;
}

/* --- Messages beside actions ------------------------------------------------------------------------------- */

/* Takes of a rank's actions what a message does that is under way from `from` to `until`. */
static void take(Simulation *sim, int rank, double from, double until)
{
    const double *start = sim->t->start[rank], *end = sim->t->end[rank];
    const int count = sim->s->nactions[rank];
    int i = 0, behind = count;
    while (i < behind) { /* the first action that ends later */
        const int middle = (i + behind) / 2;
        if (end[middle] > from)
            behind = middle;
        else
            i = middle + 1;
    }
    for (; i < count && start[i] < until; i++)
        sim->late[rank][i] += sim->lost * (fmin(end[i], until) - fmax(start[i], from));
}

static void take_all(Simulation *sim)
{
    const PipelineSchedule *s = sim->s;
    for (int rank = 0; rank < s->ranks; rank++)
        memset(sim->late[rank], 0, (size_t)s->nactions[rank] * sizeof **sim->late);
    for (int rank = 0; rank < s->ranks; rank++)
        for (int i = 0; i < s->nactions[rank]; i++) {
            const Action a = s->action[rank][i];
            const int reader = stage_reading(sim->stages, a);
            const double come = sim->made[number_of(sim, a)].come;
            if (reader < 0 || sim->home[reader] == rank)
                continue;
            take(sim, rank, come - sim->message, come);
            take(sim, sim->home[reader], come - sim->message, come);
        }
}

/* An action that takes longer has more of a message beside it: each round finds the share `lost` of what the one before
 * it has found. */
static void share_processors(Simulation *sim)
{
    enum { ROUNDS = 16 };
    for (int i = 0; sim->lost > 0 && i < ROUNDS; i++) {
        take_all(sim);
        run_all(sim);
    }
}

static void summarize(const Simulation *sim)
{
    const PipelineSchedule *s = sim->s;
    Timeline *t = sim->t;
    const ActionKind last = s->splits_backward ? WEIGHT_ACTION : BACKWARD_ACTION;
    double busiest = 0;
    for (int rank = 0; rank < s->ranks; rank++) {
        const int n = s->nactions[rank];
        double work = 0, span = n ? t->end[rank][n - 1] - t->start[rank][0] : 0;
        int held = 0;
        for (int i = 0; i < n; i++) {
            const Action a = s->action[rank][i];
            work += sim->cost[(int)a.kind * sim->stages + a.stage];
            held += (a.kind == FORWARD_ACTION) - (a.kind == last);
            t->most_in_flight[rank] = held > t->most_in_flight[rank] ? held : t->most_in_flight[rank];
        }
        busiest = work > busiest ? work : busiest;
        t->makespan = span > t->makespan ? span : t->makespan;
    }
    t->bubble = t->makespan > 0 ? (t->makespan - busiest) / t->makespan : 0;
}

static void fill_simulation(Simulation *sim, const Costs *costs)
{
    for (int stage = 0; stage < sim->stages; stage++) {
        sim->home[stage] = rank_of_stage(sim->s, stage);
        for (ActionKind kind = 0; kind < N_ACTION_KINDS; kind++)
            sim->cost[(int)kind * sim->stages + stage] = cost(costs, sim->s->splits_backward, kind, stage);
    }
}

bool simulate_schedule(Arena *arena, const PipelineSchedule *s, const Costs *costs, Timeline *t)
{
    const int stages = stage_count(s);
    double **late = NEW_ARRAY(arena, double *, s->ranks);
    *t = (Timeline){ .start = NEW_ARRAY(arena, double *, s->ranks),
                     .end = NEW_ARRAY(arena, double *, s->ranks),
                     .done = NEW_ARRAY(arena, int, s->ranks),
                     .most_in_flight = NEW_ARRAY(arena, int, s->ranks) };
    for (int rank = 0; rank < s->ranks; rank++) {
        t->start[rank] = NEW_ARRAY(arena, double, s->nactions[rank]);
        t->end[rank] = NEW_ARRAY(arena, double, s->nactions[rank]);
        late[rank] = NEW_ARRAY(arena, double, s->nactions[rank]);
    }
    Simulation sim = { .s = s,
                       .t = t,
                       .stages = stages,
                       .message = costs ? costs->message : 0,
                       .lost = costs ? costs->lost : 0,
                       .late = late,
                       .cost = NEW_ARRAY(arena, double, N_ACTION_KINDS *stages),
                       .made = NEW_ARRAY(arena, Finish, N_ACTION_KINDS * stages * s->micros),
                       .sends = NEW_ARRAY(arena, double, s->ranks),
                       .home = NEW_ARRAY(arena, int, stages),
                       .ready = NEW_ARRAY(arena, int, s->ranks),
                       .is_ready = NEW_ARRAY(arena, bool, s->ranks) };
    fill_simulation(&sim, costs);
    if (!run_all(&sim))
        return false;
    share_processors(&sim);
    summarize(&sim);
    return true;
}

/* --- Who waits for whom --------------------------------------------------------------------------- */

static bool is_done(const PipelineSchedule *s, const Timeline *t, Action a)
{
    const int rank = rank_of_stage(s, a.stage);
    for (int i = 0; i < t->done[rank]; i++) {
        Action b = s->action[rank][i];
        if (a.kind == b.kind && a.stage == b.stage && a.micro == b.micro)
            return true;
    }
    return false;
}

/* What the next action of a rank waits for. */
static Action awaited(const PipelineSchedule *s, const Timeline *t, int rank)
{
    const Action next = s->action[rank][t->done[rank]];
    const Action own = { (int)next.kind - 1, next.stage, next.micro };
    const Action other = { next.kind, stage_read(stage_count(s), next), next.micro };
    return next.kind != FORWARD_ACTION && (other.stage < 0 || !is_done(s, t, own)) ? own : other;
}

const char *circle_text(Arena *arena, const PipelineSchedule *s, const Timeline *t, int *rank)
{
    const char *text = "";
    int at = 0;
    while (t->done[at] == s->nactions[at])
        at++;
    for (int i = 0; i < s->ranks; i++) /* after so many steps we are in the circle */
        at = rank_of_stage(s, awaited(s, t, at).stage);
    *rank = at;
    do {
        Action for_that = awaited(s, t, at);
        int next = rank_of_stage(s, for_that.stage);
        text = arena_text(arena, "%s%srank %d waits before %s for %s of rank %d", text, *text ? ", " : "", at,
                          action_text(arena, s->action[at][t->done[at]]), action_text(arena, for_that), next);
        at = next;
    } while (at != *rank);
    return text;
}
