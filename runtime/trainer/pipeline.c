/* pipeline.c -- runs the micro-batches of a step in the order of a schedule.
 *
 * Messages are started where the schedule has them and run in the background, also several at once.  The schedule is
 * free of deadlock even if each of them blocks both sides until both have come, and so are they: see the device's
 * collectives. */
#include "device.h"
#include "trace.h"

#include <stdlib.h>
#include <string.h>

/* The numbers of the messages of one table, see rt_message_wait; -1: none. */
typedef struct {
    const RtStageMessages *table;
    int64_t *number; /* [message][micro], or [message][slot]: the last one from there */
} Numbers;

typedef struct {
    Rt *rt;
    const RtPipeline *p;
    char *arena;
    int rank;             /* along the axis */
    Numbers *arrivals[2]; /* of each direction, by chunk: at the stage of this rank, by micro-batch */
    Numbers *sent[2];     /* from there, by slot */
} Pipeline;

static int slots_of(const RtPipeline *p, int ring, int rank) { return p->ring[ring].slots[rank]; }

static int64_t common_divisor(int64_t a, int64_t b) { return b ? common_divisor(b, a % b) : a; }

void *rt_slot(Rt *rt, const RtPipeline *p, char *arena, int ring, int64_t micro)
{
    const RtRing *r = &p->ring[ring];
    const int slots = slots_of(p, ring, rt_coordinate(rt, p->axis));
    if (slots > 0 && rt->slot_period > 0)
        rt->slot_period *= slots / common_divisor(rt->slot_period, slots);
    return arena + rt_own_place(rt, r->offset + micro % slots * r->bytes);
}

static int64_t *none_of(int64_t count)
{
    int64_t *numbers = rt_allocate(count + 1, sizeof *numbers);
    for (int64_t i = 0; i < count; i++)
        numbers[i] = -1;
    return numbers;
}

static void await(Pipeline *r, int id, int64_t *number)
{
    if (*number >= 0)
        rt_message_wait(r->rt, id, *number);
    *number = -1;
}

/* Of the messages that the stages of this rank send, or of those that they receive. */
static Numbers *numbers_of(const Pipeline *r, bool backward, bool arrive)
{
    static const RtStageMessages none = { 0 };
    const RtPipeline *p = r->p;
    const int stages = p->chunks * p->ranks;
    Numbers *numbers = rt_allocate(p->chunks, sizeof *numbers);
    for (int chunk = 0; chunk < p->chunks; chunk++) {
        const int stage = p->stage[r->rank][chunk], sender = !arrive ? stage : backward ? stage + 1 : stage - 1;
        const RtStageMessages *table = sender >= 0 && sender < stages ? &p->message[backward][sender] : &none;
        numbers[chunk] = (Numbers){ table, none_of((int64_t)table->count * p->micros) };
    }
    return numbers;
}

static void free_numbers(const RtPipeline *p, Numbers *numbers)
{
    for (int chunk = 0; chunk < p->chunks; chunk++)
        free(numbers[chunk].number);
    free(numbers);
}

/* Chunks have as many stages each as there are ranks. */
static int chunk_of(const RtPipeline *p, int stage) { return stage / p->ranks; }

static int rank_of(const RtPipeline *p, int stage)
{
    int rank = 0;
    while (p->stage[rank][chunk_of(p, stage)] != stage)
        rank++;
    return rank;
}

static void start_messages(Pipeline *r, RtEvent event)
{
    const bool sends = event.kind == RT_SENDS || event.kind == RT_SENDS_BACK;
    const bool backward = event.kind == RT_SENDS_BACK || event.kind == RT_RECEIVES_BACK;
    const Numbers *numbers = &(sends ? r->sent : r->arrivals)[backward][chunk_of(r->p, event.stage)];
    const int peer = rank_of(r->p, event.stage + (sends == backward ? -1 : 1));
    for (int i = 0; i < numbers->table->count; i++) {
        const RtStageMessage *m = &numbers->table->message[i];
        void *data = rt_slot(r->rt, r->p, r->arena, sends ? m->leave : m->enter, event.micro);
        const int64_t row = (int64_t)i * r->p->micros;
        if (sends)
            numbers->number[row + event.micro % slots_of(r->p, m->leave, r->rank)] =
                rt_send_start(r->rt, m->id, peer, data);
        else
            numbers->number[row + event.micro] = rt_receive_start(r->rt, m->id, peer, data);
    }
}

static void await_arrivals(Pipeline *r, const Numbers *numbers, int64_t micro)
{
    for (int i = 0; i < numbers->table->count; i++)
        await(r, numbers->table->message[i].id, &numbers->number[(int64_t)i * r->p->micros + micro]);
}

static void await_sent(Pipeline *r, const Numbers *numbers, int64_t micro)
{
    for (int i = 0; i < numbers->table->count; i++) {
        const RtStageMessage *m = &numbers->table->message[i];
        await(r, m->id, &numbers->number[(int64_t)i * r->p->micros + micro % slots_of(r->p, m->leave, r->rank)]);
    }
}

/* What the action reads has arrived, and what it writes over has been sent. */
static void prepare(Pipeline *r, bool backward, int chunk, int64_t micro)
{
    await_arrivals(r, &r->arrivals[backward][chunk], micro);
    await_sent(r, &r->sent[backward][chunk], micro);
}

/* For messages about ranks that wait. */
static void tell_action(Rt *rt, int action, int micro)
{
    atomic_store(&rt->action, action);
    atomic_store(&rt->micro, micro);
}

static void run_action(Pipeline *r, RtAction action, int chunk, int micro)
{
    tell_action(r->rt, RT_EVENT_LETTERS[action], micro);
    if (action != RT_WEIGHTS)
        prepare(r, action == RT_BACKWARD, chunk, micro);
    if (r->p->action[action][chunk])
        RT_RUN(r->rt, RT_TRACED_ACTION, rt_run_action(r->rt, r->p, action, chunk, micro, r->arena));
}

static void run_event(Pipeline *r, RtEvent event)
{
    const char *const traced = "FBWFBFBR"; /* by kind: the action, or that whose message it is; R: a reduction */
    const int chunk = chunk_of(r->p, event.stage);
    rt_trace_action(r->rt, event.stage, traced[event.kind], event.kind == RT_REDUCES ? -1 : event.micro);
    if (event.kind < RT_ACTIONS)
        run_action(r, (RtAction)event.kind, chunk, event.micro);
    else if (event.kind != RT_REDUCES)
        start_messages(r, event);
    else if (r->p->reduce[chunk])
        RT_RUN(r->rt, RT_TRACED_ACTION, r->p->reduce[chunk](r->rt, r->arena));
}

const char *rt_read_event(const char *events, RtEvent *event)
{
    if (!*events)
        return NULL;
    const char *const letters = RT_EVENT_LETTERS;
    char *end;
    event->kind = (int)(strchr(letters, *events) - letters);
    event->stage = (int)strtol(events + 1, &end, 10);
    event->micro = (int)strtol(end + 1, &end, 10);
    return end + 1;
}

void rt_pipeline(Rt *rt, const RtPipeline *p, char *arena)
{
    if (rt_defers_pipeline(rt, p))
        return;
    Pipeline r = { .rt = rt, .p = p, .arena = arena, .rank = rt_coordinate(rt, p->axis) };
    for (int backward = 0; backward < 2; backward++) {
        r.arrivals[backward] = numbers_of(&r, backward, true);
        r.sent[backward] = numbers_of(&r, backward, false);
    }
    RtEvent event;
    for (const char *next = p->events[r.rank]; (next = rt_read_event(next, &event));)
        run_event(&r, event);
    rt_trace_action(rt, 0, 0, -1);
    tell_action(rt, 0, 0);
    for (int backward = 0; backward < 2; backward++) {
        for (int chunk = 0; chunk < p->chunks; chunk++)
            for (int64_t micro = 0; micro < p->micros; micro++)
                await_sent(&r, &r.sent[backward][chunk], micro);
        free_numbers(p, r.arrivals[backward]);
        free_numbers(p, r.sent[backward]);
    }
}
