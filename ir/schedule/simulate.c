/* simulate.c -- the timeline of a schedule: each rank does its actions in order, each as soon as what it reads is
 * there.  What a rank sends goes one after the other. */
#include "schedule.h"

typedef struct {
    const PipelineSchedule *s;
    const Costs *costs; /* NULL: the default */
    Timeline *t;
    double *end;   /* by kind, stage, micro-batch; at first UNDONE */
    double *come;  /* when what has been made there is at the rank that reads it, if that is another one */
    double *sends; /* by rank: until when */
    int *home;     /* by stage: its rank */
    int *ready;    /* ranks whose next action may have become possible */
    int nready;
    bool *is_ready;
} Simulation;

static const double UNDONE = -1;

static size_t number_of(const PipelineSchedule *s, Action a)
{
    return ((size_t)a.kind * (size_t)stage_count(s) + (size_t)a.stage) * (size_t)s->micros + (size_t)a.micro;
}

static double cost(const Costs *costs, bool splits_backward, Action a)
{
    const double *by_stage[N_ACTION_KINDS] = { NULL };
    if (costs) {
        by_stage[FORWARD_ACTION] = costs->forward;
        by_stage[BACKWARD_ACTION] = costs->backward;
        by_stage[WEIGHT_ACTION] = costs->weight;
    }
    double own = by_stage[a.kind] ? by_stage[a.kind][a.stage] : 1;
    if (a.kind == BACKWARD_ACTION && !splits_backward)
        own += by_stage[WEIGHT_ACTION] ? by_stage[WEIGHT_ACTION][a.stage] : 1;
    return own;
}

/* What an action reads: of another stage, and of its own; how many there are. */
static int operands(const PipelineSchedule *s, Action a, Action read[2])
{
    int n = 0;
    if (a.kind == FORWARD_ACTION && a.stage > 0)
        read[n++] = (Action){ FORWARD_ACTION, a.stage - 1, a.micro };
    if (a.kind == BACKWARD_ACTION && a.stage + 1 < stage_count(s))
        read[n++] = (Action){ BACKWARD_ACTION, a.stage + 1, a.micro };
    if (a.kind != FORWARD_ACTION)
        read[n++] = (Action){ a.kind - 1, a.stage, a.micro };
    return n;
}

/* When what an action reads is there; UNDONE: not yet. */
static double when_possible(const Simulation *sim, Action a)
{
    Action read[2];
    double when = 0;
    for (int i = operands(sim->s, a, read) - 1; i >= 0; i--) {
        const bool is_sent = sim->home[read[i].stage] != sim->home[a.stage];
        const double there = (is_sent ? sim->come : sim->end)[number_of(sim->s, read[i])];
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
static void pass_on(Simulation *sim, Action a, int rank, int reader)
{
    const double end = sim->end[number_of(sim->s, a)], message = sim->costs ? sim->costs->message : 0;
    if (reader != rank) {
        sim->sends[rank] = (end > sim->sends[rank] ? end : sim->sends[rank]) + message;
        sim->come[number_of(sim->s, a)] = sim->sends[rank];
    }
    wake(sim, reader);
}

/* Does as many actions of a rank as are possible, and wakes those who wait for them. */
static void run_rank(Simulation *sim, int rank)
{
    const PipelineSchedule *s = sim->s;
    double *start = sim->t->start[rank], *end = sim->t->end[rank];
    int *i = &sim->t->done[rank];
    for (; *i < s->nactions[rank]; ++*i) {
        Action a = s->action[rank][*i];
        double possible = when_possible(sim, a), free = *i ? end[*i - 1] : 0;
        if (possible < 0)
            return;
        start[*i] = possible > free ? possible : free;
        end[*i] = sim->end[number_of(s, a)] = start[*i] + cost(sim->costs, s->splits_backward, a);
        const int reader = a.kind == FORWARD_ACTION ? a.stage + 1 : a.kind == BACKWARD_ACTION ? a.stage - 1 : -1;
        if (reader >= 0 && reader < stage_count(s))
            pass_on(sim, a, rank, sim->home[reader]);
    }
}

static bool run_all(Simulation *sim)
{
    const PipelineSchedule *s = sim->s;
    for (int rank = 0; rank < s->ranks; rank++)
        wake(sim, rank);
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

static void summarize(const PipelineSchedule *s, const Costs *costs, Timeline *t)
{
    const ActionKind last = s->splits_backward ? WEIGHT_ACTION : BACKWARD_ACTION;
    double busiest = 0;
    for (int rank = 0; rank < s->ranks; rank++) {
        const int n = s->nactions[rank];
        double work = 0, span = n ? t->end[rank][n - 1] - t->start[rank][0] : 0;
        int held = 0;
        for (int i = 0; i < n; i++) {
            Action a = s->action[rank][i];
            work += cost(costs, s->splits_backward, a);
            held += (a.kind == FORWARD_ACTION) - (a.kind == last);
            t->most_in_flight[rank] = held > t->most_in_flight[rank] ? held : t->most_in_flight[rank];
        }
        busiest = work > busiest ? work : busiest;
        t->makespan = span > t->makespan ? span : t->makespan;
    }
    t->bubble = t->makespan > 0 ? (t->makespan - busiest) / t->makespan : 0;
}

bool simulate_schedule(Arena *arena, const PipelineSchedule *s, const Costs *costs, Timeline *t)
{
    const int actions = N_ACTION_KINDS * stage_count(s) * s->micros;
    *t = (Timeline){ .start = NEW_ARRAY(arena, double *, s->ranks),
                     .end = NEW_ARRAY(arena, double *, s->ranks),
                     .done = NEW_ARRAY(arena, int, s->ranks),
                     .most_in_flight = NEW_ARRAY(arena, int, s->ranks) };
    for (int rank = 0; rank < s->ranks; rank++) {
        t->start[rank] = NEW_ARRAY(arena, double, s->nactions[rank]);
        t->end[rank] = NEW_ARRAY(arena, double, s->nactions[rank]);
    }
    Simulation sim = { .s = s,
                       .costs = costs,
                       .t = t,
                       .end = NEW_ARRAY(arena, double, actions),
                       .come = NEW_ARRAY(arena, double, actions),
                       .sends = NEW_ARRAY(arena, double, s->ranks),
                       .home = NEW_ARRAY(arena, int, stage_count(s)),
                       .ready = NEW_ARRAY(arena, int, s->ranks),
                       .is_ready = NEW_ARRAY(arena, bool, s->ranks) };
    for (int i = 0; i < actions; i++)
        sim.end[i] = sim.come[i] = UNDONE;
    for (int stage = 0; stage < stage_count(s); stage++)
        sim.home[stage] = rank_of_stage(s, stage);
    if (!run_all(&sim))
        return false;
    summarize(s, costs, t);
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
    Action read[2], next = s->action[rank][t->done[rank]];
    int i = operands(s, next, read) - 1;
    while (i > 0 && is_done(s, t, read[i]))
        i--;
    return read[i];
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
