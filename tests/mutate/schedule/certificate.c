/* certificate.c -- injects faults into pipeline schedules, and counts those that certify_schedule() detects.
 *
 * Every event of every rank of each schedule is left out, doubled, moved or made another one, one at a time; so is
 * every count of slots made one less.  The actions are then those of the events, so that only what is wrong with them
 * counts. A mutant that is certified is run by hand: if every action reads what belongs to its micro-batch, and
 * micro-batches pass each stage in order, it is another right schedule, and no fault.
 *
 * Prints a row for each kind of fault: letter, mutants, detected, not detected, no faults, what it is. */
#include "schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

/* --- Faults ------------------------------------------------------------------------------------------ */

/* In place, at event i of a rank; false: it does not apply. */
typedef bool (*Fault)(PipelineSchedule *s, int rank, int i);

static bool leave_out(PipelineSchedule *s, int rank, int i)
{
    Event *at = &s->event[rank][i];
    memmove(at, at + 1, (size_t)(--s->nevents[rank] - i) * sizeof *at);
    return true;
}

static bool repeat(PipelineSchedule *s, int rank, int i)
{
    Event *at = &s->event[rank][i];
    memmove(at + 1, at, (size_t)(s->nevents[rank]++ - i) * sizeof *at);
    return true;
}

/* Behind the `by` events that follow it. */
static bool move(PipelineSchedule *s, int rank, int i, int by)
{
    Event *at = &s->event[rank][i];
    const Event moved = *at;
    if (i + by >= s->nevents[rank])
        return false;
    memmove(at, at + 1, (size_t)by * sizeof *at);
    at[by] = moved;
    return true;
}

static bool move_by_one(PipelineSchedule *s, int rank, int i) { return move(s, rank, i, 1); }
static bool move_by_four(PipelineSchedule *s, int rank, int i) { return move(s, rank, i, 4); }
static bool move_to_end(PipelineSchedule *s, int rank, int i) { return move(s, rank, i, s->nevents[rank] - 1 - i); }

static bool next_micro(PipelineSchedule *s, int rank, int i)
{
    Event *e = &s->event[rank][i];
    int *micro = e->is_message ? &e->message.micro : &e->action.micro;
    *micro = (*micro + 1) % s->micros;
    return s->micros > 1;
}

static bool next_stage(PipelineSchedule *s, int rank, int i)
{
    Event *e = &s->event[rank][i];
    int *stage = e->is_message ? &e->message.stage : &e->action.stage;
    *stage = (*stage + 1) % stage_count(s);
    return true;
}

static bool other_kind(PipelineSchedule *s, int rank, int i)
{
    Event *e = &s->event[rank][i];
    if (e->is_message)
        e->message.backward = !e->message.backward;
    else
        e->action.kind = (e->action.kind + 1) % (s->splits_backward ? N_ACTION_KINDS : WEIGHT_ACTION);
    return true;
}

static bool other_side(PipelineSchedule *s, int rank, int i)
{
    s->event[rank][i].sends = !s->event[rank][i].sends;
    return s->event[rank][i].is_message;
}

/* Of slots there is an index for each stage instead. */
static bool fewer_slots(PipelineSchedule *s, int rank, int i)
{
    return i < stage_count(s) && rank_of_stage(s, i) == rank && s->activations[i]-- > 0;
}

typedef struct {
    char kind;
    const char *what;
    Fault plant;
} Row;

static const Row faults[] = {
    { 'o', "an event of a stage left out", leave_out },
    { 'o', "an event of a stage twice", repeat },
    { 'o', "an event after the next one", move_by_one },
    { 'o', "an event after the next four", move_by_four },
    { 'o', "an event after all others", move_to_end },
    { 'o', "an event of the next micro-batch", next_micro },
    { 'o', "an event of the next stage", next_stage },
    { 'o', "another kind of action or message", other_kind },
    { 'o', "a send for a receive, and the other way round", other_side },
    { 'p', "a slot of a stage too few", fewer_slots },
};
enum { FAULTS = sizeof faults / sizeof *faults };

static struct {
    int mutants, detected, missed, same;
} score[FAULTS];

/* --- By hand ----------------------------------------------------------------------------------------- */

/* What a stage has: of activations, micro-batch i is in slot i mod their number. */
typedef struct {
    int *saved;       /* by slot: the micro-batch */
    bool *arrived[2]; /* by micro-batch: its activation, its gradient */
    int done[N_ACTION_KINDS];
} Stage;

typedef struct {
    const PipelineSchedule *s;
    Stage *stage;
    int *next; /* by rank: its event */
} Run;

static int *slot(const Run *run, int stage, int micro)
{
    const int count = run->s->activations[stage];
    return &run->stage[stage].saved[micro % (count > 0 ? count : 1)];
}

/* Does the action find what belongs to its micro-batch?  And is it the next one of its stage? */
static bool act(const Run *run, Action a)
{
    const PipelineSchedule *s = run->s;
    Stage *stage = &run->stage[a.stage];
    const int before = a.kind == FORWARD_ACTION ? a.stage - 1 : a.stage + 1;
    bool right = stage->done[a.kind]++ == a.micro;
    if (a.kind != WEIGHT_ACTION && before >= 0 && before < stage_count(s) &&
        rank_of_stage(s, before) != rank_of_stage(s, a.stage))
        right &= stage->arrived[a.kind == BACKWARD_ACTION][a.micro];
    if (a.kind == FORWARD_ACTION)
        *slot(run, a.stage, a.micro) = a.micro;
    else
        right &= *slot(run, a.stage, a.micro) == a.micro && stage->done[a.kind - 1] > a.micro;
    return right;
}

static bool is_other_side(const Event *e, const Event *other)
{
    return other->is_message && e->sends != other->sends && e->message.backward == other->message.backward &&
           e->message.stage == other->message.stage && e->message.micro == other->message.micro;
}

/* Does the next event of a rank, a message when its other side has come to it; then `moved`.  false: it is wrong. */
static bool step(const Run *run, int rank, bool *moved)
{
    const PipelineSchedule *s = run->s;
    const Event *e = &s->event[rank][run->next[rank]];
    if (!e->is_message) {
        *moved = ++run->next[rank];
        return act(run, e->action);
    }
    const int to = e->message.stage + (e->message.backward ? -1 : 1);
    const int other = rank_of_stage(s, e->sends ? to : e->message.stage);
    if (run->next[other] == s->nevents[other] || !is_other_side(e, &s->event[other][run->next[other]]))
        return true;
    run->stage[to].arrived[e->message.backward][e->message.micro] = true;
    *moved = ++run->next[rank] && ++run->next[other];
    return true;
}

static bool is_right(Arena *arena, const PipelineSchedule *s)
{
    Run run = { s, NEW_ARRAY(arena, Stage, stage_count(s)), NEW_ARRAY(arena, int, s->ranks) };
    for (int stage = 0; stage < stage_count(s); stage++) {
        run.stage[stage].saved = NEW_ARRAY(arena, int, s->micros);
        memset(run.stage[stage].saved, -1, (size_t)s->micros * sizeof(int));
        for (int backward = 0; backward < 2; backward++)
            run.stage[stage].arrived[backward] = NEW_ARRAY(arena, bool, s->micros);
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < s->ranks; rank++)
            if (run.next[rank] < s->nevents[rank] && !step(&run, rank, &moved))
                return false;
    }
    bool right = true;
    for (int rank = 0; rank < s->ranks; rank++)
        right &= run.next[rank] == s->nevents[rank];
    for (int stage = 0; stage < stage_count(s); stage++)
        for (ActionKind kind = 0; kind < (s->splits_backward ? N_ACTION_KINDS : WEIGHT_ACTION); kind++)
            right &= run.stage[stage].done[kind] == s->micros;
    return right;
}

/* --- Every fault of every schedule ----------------------------------------------------------------------- */

static PipelineSchedule *make(Arena *arena, const char *name, int ranks, int chunks, int micros)
{
    const char *why = "", *help;
    PipelineSchedule *s = make_schedule(arena, name, ranks, chunks, micros, &why, &help);
    if (!s || !order_messages(arena, s, &why) || !certify_schedule(arena, s, &why) || !is_right(arena, s)) {
        fprintf(stderr, "certificate: %s, %d ranks, %d micro-batches: wrong before anything is planted: %s\n", name,
                ranks, micros, why);
        exit(EXIT_FAILURE);
    }
    for (int rank = 0; rank < ranks; rank++) { /* with room for one more */
        const size_t count = (size_t)s->nevents[rank];
        Event *roomy = NEW_ARRAY(arena, Event, count + 1);
        memcpy(roomy, s->event[rank], count * sizeof *roomy);
        s->event[rank] = roomy;
        s->action[rank] = NEW_ARRAY(arena, Action, count + 1);
    }
    return s;
}

static void take_actions_from_events(PipelineSchedule *s)
{
    for (int rank = 0; rank < s->ranks; rank++) {
        s->nactions[rank] = 0;
        for (int i = 0; i < s->nevents[rank]; i++)
            if (!s->event[rank][i].is_message)
                s->action[rank][s->nactions[rank]++] = s->event[rank][i].action;
    }
}

typedef struct {
    const char *name;
    int chunks, ranks, micros;
} Shape;

/* Fault f at event i of a rank; false: the rank has no such event. */
static bool judge(Shape of, size_t f, int rank, int i)
{
    Arena arena = { 0 };
    const char *why;
    PipelineSchedule *s = make(&arena, of.name, of.ranks, of.chunks, of.micros);
    const bool exists = i < s->nevents[rank];
    if (exists && faults[f].plant(s, rank, i)) {
        take_actions_from_events(s);
        const bool detected = !certify_schedule(&arena, s, &why), same = !detected && is_right(&arena, s);
        score[f].mutants += !same;
        score[f].detected += detected;
        score[f].same += same;
        score[f].missed += !detected && !same;
        if (!detected && !same)
            printf("missed: %s, %s, %d ranks, %d micro-batches: event %d of rank %d\n", faults[f].what, of.name,
                   of.ranks, of.micros, i, rank);
    }
    arena_free(&arena);
    return exists;
}

int main(void)
{
    static const Shape shapes[] = { { "naive", 1, 3, 3 },       { "gpipe", 1, 2, 4 }, { "gpipe", 1, 4, 3 },
                                    { "1f1b", 1, 2, 4 },        { "1f1b", 1, 4, 8 },  { "1f1b", 1, 4, 2 },
                                    { "zb-h1", 1, 2, 4 },       { "zb-h1", 1, 4, 6 }, { "gpipe", 2, 2, 4 },
                                    { "interleaved", 2, 2, 4 }, { "zb-v", 2, 2, 4 } };
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++)
        for (size_t f = 0; f < FAULTS; f++)
            for (int rank = 0; rank < shapes[n].ranks; rank++)
                for (int i = 0; judge(shapes[n], f, rank, i);)
                    i++;
    for (size_t f = 0; f < FAULTS; f++)
        printf("%c %5d %5d %5d %5d  %s\n", faults[f].kind, score[f].mutants, score[f].detected, score[f].missed,
               score[f].same, faults[f].what);
    return 0;
}
