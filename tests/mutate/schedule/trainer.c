/* trainer.c -- linked into a trainer of a pipeline, whose calls it wraps: one stage does one thing wrong in every step.
 *
 *   MUTANT=                  nothing wrong
 *   MUTANT=list              prints the faults that this trainer can have, as lines "KIND STAGE AT"
 *   MUTANT="KIND STAGE AT"   with one of them
 *
 *   slots AT       ring AT has a slot less than its contents need, of those that it has
 *   leave AT       what the AT-th message sends is taken from the next slot
 *   arrive AT      what it receives is put there
 *   action AT      event AT, an action, is that of the next micro-batch, which has other slots
 *   arrival AT     actions do not wait for what they read: activations (AT 0), or their gradients (AT 1)
 *
 * Messages block both sides, as the proof of the schedule assumes: then what lies where does not depend on how fast
 * ranks are.  Where an action does not wait, they are slow instead. */
#include "actions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void __real_rt_pipeline(Rt *rt, const RtPipeline *p, char *arena);
void *__real_rt_slot(const Rt *rt, const RtPipeline *p, char *arena, int ring, int64_t micro);
int64_t __real_rt_send_start(Rt *rt, int id, int to, const void *data);
int64_t __real_rt_receive_start(Rt *rt, int id, int from, void *data);
void __real_rt_message_wait(Rt *rt, int id, int64_t number);

enum { MOST = 256 };

typedef struct {
    int id;
    int64_t number;
} Arrival;

static struct {
    char kind[16]; /* of the fault, "list", or "" */
    int stage, at;
} mutant;

static struct {
    int stage;
    char *arena;
    RtPipeline p; /* with the fault */
    RtRing ring[MOST];
    int slots[MOST], nrings;
    RtEvent event[4 * MOST]; /* of the stage's rank, as the schedule has them */
    int nevents;
    int doing, chunk, messages;
    bool is_touched[MOST][RT_ACTIONS][CHUNKS]; /* does the action use the ring? */
    bool has_next[2 * MOST];                   /* by message: is there another slot? */
    Arrival arrival[MOST];                     /* not waited for */
    int narrivals;
} now;

static bool is_planted(const char *kind, int at)
{
    return strcmp(mutant.kind, kind) == 0 && mutant.stage == now.stage && mutant.at == at;
}

/* A pipeline does not say how many rings it has: each is met when it is first used. */
static void know_ring(const RtPipeline *right, int ring)
{
    static int by_stage[MOST][MOST];
    for (; now.nrings <= ring; now.nrings++) {
        const int i = now.nrings;
        now.ring[i] = right->ring[i];
        now.slots[i] = right->ring[i].slots[now.stage] - is_planted("slots", i);
        by_stage[i][now.stage] = now.slots[i];
        now.ring[i].slots = by_stage[i];
    }
}

/* --- What the trainer calls ------------------------------------------------------------------------------ */

static void act(Rt *rt, char *arena, int64_t micro, int kind, int chunk)
{
    now.doing = kind;
    now.chunk = chunk;
    own_action[kind][chunk](rt, arena, micro);
}

void *__wrap_rt_slot(const Rt *rt, const RtPipeline *p, char *arena, int ring, int64_t micro)
{
    know_ring(p, ring);
    now.is_touched[ring][now.doing][now.chunk] = true;
    return __real_rt_slot(rt, &now.p, arena, ring, micro);
}

/* The slot after the one at `data`, if `kind` is planted at this message. */
static char *place(const Rt *rt, const char *kind, const void *data)
{
    const int at = now.messages++;
    char *slot = (char *)data;
    for (int i = 0; i < now.nrings; i++)
        for (int64_t micro = 0; micro < now.slots[i]; micro++)
            if (slot == __real_rt_slot(rt, &now.p, now.arena, i, micro)) {
                now.has_next[at] = now.slots[i] > 1;
                return is_planted(kind, at) ? __real_rt_slot(rt, &now.p, now.arena, i, micro + 1) : slot;
            }
    return slot;
}

static bool is_slow(void) { return strcmp(mutant.kind, "arrival") == 0; }

int64_t __wrap_rt_send_start(Rt *rt, int id, int to, const void *data)
{
    const void *from = place(rt, "leave", data);
    if (is_slow())
        usleep(5000);
    const int64_t number = __real_rt_send_start(rt, id, to, from);
    if (!is_slow())
        __real_rt_message_wait(rt, id, number);
    return number;
}

/* The table of a direction, of what that stage sends. */
static const RtStageMessages *table_of(bool is_back, int stage) { return &now.p.message[is_back][stage]; }

static bool is_gradient(int id)
{
    for (int stage = 0; stage < now.p.ranks * now.p.chunks; stage++)
        for (int i = 0; i < table_of(true, stage)->count; i++)
            if (table_of(true, stage)->message[i].id == id)
                return true;
    return false;
}

int64_t __wrap_rt_receive_start(Rt *rt, int id, int from, void *data)
{
    const int64_t number = __real_rt_receive_start(rt, id, from, place(rt, "arrive", data));
    if (!is_slow())
        __real_rt_message_wait(rt, id, number);
    if (is_planted("arrival", is_gradient(id)))
        now.arrival[now.narrivals++] = (Arrival){ id, number };
    return number;
}

void __wrap_rt_message_wait(Rt *rt, int id, int64_t number)
{
    for (int i = 0; i < now.narrivals; i++)
        if (now.arrival[i].id == id && now.arrival[i].number == number)
            return;
    __real_rt_message_wait(rt, id, number);
}

/* --- Which faults there are -------------------------------------------------------------------------------- */

static bool sends(RtEvent e) { return e.kind == RT_SENDS || e.kind == RT_SENDS_BACK; }

/* The messages of an event; none of an action. */
static RtStageMessages messages_of(RtEvent e)
{
    const bool is_back = e.kind == RT_SENDS_BACK || e.kind == RT_RECEIVES_BACK;
    if (e.kind < RT_ACTIONS || e.kind == RT_REDUCES)
        return (RtStageMessages){ 0 };
    return *table_of(is_back, sends(e) ? e.stage : is_back ? e.stage + 1 : e.stage - 1);
}

/* Does the event begin, or use, what the ring has of its micro-batch? */
static bool concerns(int ring, RtEvent e)
{
    const RtStageMessages messages = messages_of(e);
    for (int i = 0; !sends(e) && i < messages.count; i++)
        if (messages.message[i].enter == ring)
            return true;
    return e.kind < RT_ACTIONS && now.is_touched[ring][e.kind][e.stage / now.p.ranks];
}

/* What leaves a stage needs a slot until it is sent: only the stage at the end of the direction has it any longer. */
static bool only_leaves(int ring)
{
    for (int k = 0; k < now.nevents; k++) {
        const RtEvent e = now.event[k];
        const RtStageMessages messages = messages_of(e);
        for (int i = 0; sends(e) && i < messages.count; i++)
            if (messages.message[i].leave == ring)
                return true;
    }
    return false;
}

/* The slots that a ring needs: micro-batches between the first event that concerns it and the last one. */
static int needed(int ring)
{
    int held = 0, most = 1, left[MOST] = { 0 };
    bool is_held[MOST] = { false };
    for (int i = 0; i < now.nevents; i++)
        left[now.event[i].micro] += concerns(ring, now.event[i]);
    for (int i = 0; i < now.nevents && !only_leaves(ring); i++) {
        const RtEvent e = now.event[i];
        if (!concerns(ring, e))
            continue;
        held += !is_held[e.micro];
        is_held[e.micro] = true;
        most = held > most ? held : most;
        held -= --left[e.micro] == 0;
    }
    return most;
}

/* Has the next micro-batch another slot in something that the action uses, and not only as a spare one? */
static bool has_other_slots(RtEvent e)
{
    const int next = (e.micro + 1) % now.p.micros;
    for (int i = 0; i < now.nrings; i++)
        if (concerns(i, e) && needed(i) > 1 && e.micro % now.slots[i] != next % now.slots[i])
            return true;
    return false;
}

static void list_faults(void)
{
    int message = 0;
    bool has[2] = { false };
    for (int i = 0; i < now.nrings; i++)
        if (now.slots[i] > 1 && now.slots[i] == needed(i))
            printf("slots %d %d\n", now.stage, i);
    for (int i = 0; i < now.nevents; i++) {
        const RtEvent e = now.event[i];
        if (e.kind < RT_ACTIONS && has_other_slots(e))
            printf("action %d %d\n", now.stage, i);
        has[e.kind == RT_RECEIVES_BACK] |= e.kind == RT_RECEIVES || e.kind == RT_RECEIVES_BACK;
        for (int k = 0; k < messages_of(e).count; k++, message++)
            if (now.has_next[message])
                printf("%s %d %d\n", sends(e) ? "leave" : "arrive", now.stage, message);
    }
    for (int is_back = 0; is_back < 2; is_back++)
        if (has[is_back])
            printf("arrival %d %d\n", now.stage, is_back);
    fflush(stdout);
    strcpy(mutant.kind, "");
}

/* --- The step ---------------------------------------------------------------------------------------------- */

/* The pipeline as mpc has made it, but for the fault. */
static void plant(const RtPipeline *right)
{
    static const char *events[MOST];
    static char own[64 * MOST];
    const char *next = right->events[now.stage];
    char *end = own;
    now.p = *right;
    wrap_actions(&now.p);
    now.p.ring = now.ring;
    for (now.nevents = 0; (next = rt_read_event(next, &now.event[now.nevents])); now.nevents++) {
        RtEvent e = now.event[now.nevents];
        if (is_planted("action", now.nevents))
            e.micro = (e.micro + 1) % right->micros;
        end += sprintf(end, "%c%d.%d ", RT_EVENT_LETTERS[e.kind], e.stage, e.micro);
    }
    events[now.stage] = own;
    now.p.events = events;
}

void __wrap_rt_pipeline(Rt *rt, const RtPipeline *p, char *arena)
{
    if (!now.arena)
        sscanf(getenv("MUTANT"), "%15s %d %d", mutant.kind, &mutant.stage, &mutant.at);
    now.stage = rt_coordinate(rt, p->axis);
    now.arena = arena;
    now.messages = now.narrivals = 0;
    plant(p);
    for (int number = 0; number < 2 * p->ranks * p->chunks; number++) {
        const RtStageMessages *messages = table_of(number % 2, number / 2);
        for (int i = 0; i < messages->count; i++) {
            know_ring(p, messages->message[i].leave);
            know_ring(p, messages->message[i].enter);
        }
    }
    __real_rt_pipeline(rt, &now.p, arena);
    while (now.narrivals > 0) {
        now.narrivals--;
        __real_rt_message_wait(rt, now.arrival[now.narrivals].id, now.arrival[now.narrivals].number);
    }
    if (strcmp(mutant.kind, "list") == 0)
        list_faults();
}
