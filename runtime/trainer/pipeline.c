/* pipeline.c -- runs the micro-batches of a step in the order of a schedule.
 *
 * Messages are started where the schedule has them and run in the background, one after the other.  The schedule is
 * free of deadlock even if each of them blocks both sides until both have come, and so is this queue. */
#include "state.h"
#include "trace.h"

#include <stdlib.h>

/* Of a direction, the numbers of messages: see rt_message_wait; -1: none. */
typedef struct {
    int64_t *arrival; /* [message][micro] */
    int64_t *sent;    /* [message][slot]: the last one from there */
} Numbers;

typedef struct {
    Rt *rt;
    const RtPipeline *p;
    char *arena;
    int stage;
    Numbers of[2];
} Pipeline;

static int slots_of(const RtPipeline *p, int ring, int stage) { return p->ring[ring].slots[stage]; }

void *rt_slot(const Rt *rt, const RtPipeline *p, char *arena, int ring, int64_t micro)
{
    return arena + p->ring[ring].offset + micro % slots_of(p, ring, rt_coordinate(rt, p->axis)) * p->ring[ring].bytes;
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

/* The neighbour that gets what the stage sends in a direction, or that sends what it gets. */
static int neighbour(const Pipeline *r, bool backward, bool sends) { return r->stage + (backward == sends ? -1 : 1); }

static void start_messages(Pipeline *r, bool backward, bool sends, int64_t micro)
{
    const RtPipeline *p = r->p;
    const int other = neighbour(r, backward, sends);
    for (int i = 0; i < p->nmessages[backward]; i++) {
        const RtStageMessage *m = &p->message[backward][i];
        void *data = rt_slot(r->rt, p, r->arena, sends ? m->leave : m->enter, micro);
        if (sends)
            r->of[backward].sent[i * p->micros + micro % slots_of(p, m->leave, r->stage)] =
                rt_send_start(r->rt, m->id, other, data);
        else
            r->of[backward].arrival[i * p->micros + micro] = rt_receive_start(r->rt, m->id, other, data);
    }
}

/* What the action reads has arrived, and what it writes over has been sent. */
static void prepare(Pipeline *r, bool backward, int64_t micro)
{
    const RtPipeline *p = r->p;
    for (int i = 0; i < p->nmessages[backward]; i++) {
        const RtStageMessage *m = &p->message[backward][i];
        await(r, m->id, &r->of[backward].arrival[i * p->micros + micro]);
        await(r, m->id, &r->of[backward].sent[i * p->micros + micro % slots_of(p, m->leave, r->stage)]);
    }
}

/* For messages about ranks that wait. */
static void tell_action(Rt *rt, int action, int micro)
{
    atomic_store(&rt->action, action);
    atomic_store(&rt->micro, micro);
}

static void run_action(const Pipeline *r, RtAction action, int64_t micro)
{
    if (r->p->action[action])
        RT_RUN(r->rt, RT_TRACED_ACTION, r->p->action[action](r->rt, r->arena, micro));
}

/* The action that an event is, or whose message it is. */
static char action_of(RtEvent event)
{
    return event.kind == 's' || event.kind == 'r' ? 'F' : event.kind == 'S' || event.kind == 'R' ? 'B' : event.kind;
}

static void run_event(Pipeline *r, RtEvent event)
{
    const int64_t micro = event.micro;
    if (event.kind == 'F' || event.kind == 'B' || event.kind == 'W')
        tell_action(r->rt, event.kind, event.micro);
    switch (event.kind) {
    case 'F':
    case 'B':
        prepare(r, event.kind == 'B', micro);
        run_action(r, event.kind == 'B' ? RT_BACKWARD : RT_FORWARD, micro);
        return;
    case 'W':
        run_action(r, RT_WEIGHTS, micro);
        return;
    default:
        start_messages(r, event.kind == 'S' || event.kind == 'R', event.kind == 's' || event.kind == 'S', micro);
    }
}

void rt_pipeline(Rt *rt, const RtPipeline *p, char *arena)
{
    Pipeline r = { .rt = rt, .p = p, .arena = arena, .stage = rt_coordinate(rt, p->axis) };
    for (int backward = 0; backward < 2; backward++) {
        r.of[backward].arrival = none_of((int64_t)p->nmessages[backward] * p->micros);
        r.of[backward].sent = none_of((int64_t)p->nmessages[backward] * p->micros);
    }
    for (int i = 0; i < p->nevents[r.stage]; i++) {
        const RtEvent event = p->event[r.stage][i];
        rt_trace_action(rt, r.stage, action_of(event), event.micro);
        run_event(&r, event);
    }
    rt_trace_action(rt, 0, 0, -1);
    tell_action(rt, 0, 0);
    for (int backward = 0; backward < 2; backward++) {
        for (int i = 0; i < p->nmessages[backward]; i++)
            for (int slot = 0; slot < p->micros; slot++)
                await(&r, p->message[backward][i].id, &r.of[backward].sent[i * p->micros + slot]);
        free(r.of[backward].arrival);
        free(r.of[backward].sent);
    }
}
