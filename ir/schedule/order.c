/* order.c -- messages between the actions of a schedule, and the slots that they need.
 *
 * All actions and messages of all ranks are put into one order: an action at its start, a message at the end of the
 * action that makes it, by the simulator's default costs.  What each rank does is a projection of that order, so the
 * first event of it that is not yet done can always be done: ranks do not wait in a circle, whatever a message blocks.
 */
#include "schedule.h"

/* Of one time, messages come first: actions that read them do not start before, and no reduction delays them. */
typedef enum { MESSAGE, REDUCTION, ACTION, N_ITEM_KINDS } ItemKind;

/* An action, the message with its result, or the reduction after it. */
typedef struct {
    double time; /* a whole number, as the default costs are */
    ItemKind kind;
    int rank, index;
} Item;

/* The rank that reads an action's result in a message; -1: nobody, or the same rank. */
static int reader_rank(const PipelineSchedule *s, Action a)
{
    int stage = a.kind == FORWARD_ACTION ? a.stage + 1 : a.stage - 1;
    if (a.kind == WEIGHT_ACTION || stage < 0 || stage == stage_count(s))
        return -1;
    int rank = rank_of_stage(s, stage);
    return rank == rank_of_stage(s, a.stage) ? -1 : rank;
}

bool ends_stage(const PipelineSchedule *s, int rank, int i)
{
    for (int later = i + 1; later < s->nactions[rank]; later++)
        if (s->action[rank][later].stage == s->action[rank][i].stage)
            return false;
    return true;
}

/* All items, by rank and index. */
static Item *list_items(Arena *arena, const PipelineSchedule *s, const Timeline *t, int *count)
{
    int n = 0;
    for (int rank = 0; rank < s->ranks; rank++)
        n += 2 * s->nactions[rank] + s->chunks;
    Item *items = NEW_ARRAY(arena, Item, n);
    *count = 0;
    for (int rank = 0; rank < s->ranks; rank++)
        for (int i = 0; i < s->nactions[rank]; i++) {
            items[(*count)++] = (Item){ t->start[rank][i], ACTION, rank, i };
            if (reader_rank(s, s->action[rank][i]) >= 0)
                items[(*count)++] = (Item){ t->end[rank][i], MESSAGE, rank, i };
            if (s->reduces && ends_stage(s, rank, i))
                items[(*count)++] = (Item){ t->end[rank][i], REDUCTION, rank, i };
        }
    return items;
}

static int place_in_order(const Item *item) { return (int)item->time * N_ITEM_KINDS + (int)item->kind; }

/* Sorts by time, then by kind (counting sort); items alike in both keep their order. */
static Item *items_in_order(Arena *arena, const PipelineSchedule *s, const Timeline *t, int *count)
{
    const Item *items = list_items(arena, s, t, count);
    Item *sorted = NEW_ARRAY(arena, Item, *count);
    int places = 0;
    for (int i = 0; i < *count; i++)
        places = place_in_order(&items[i]) >= places ? place_in_order(&items[i]) + 1 : places;
    int *begin = NEW_ARRAY(arena, int, places + 1);
    for (int i = 0; i < *count; i++)
        begin[place_in_order(&items[i]) + 1]++;
    for (int i = 0; i < places; i++)
        begin[i + 1] += begin[i];
    for (int i = 0; i < *count; i++)
        sorted[begin[place_in_order(&items[i])]++] = items[i];
    return sorted;
}

static void add_event(PipelineSchedule *s, int rank, Event event) { s->event[rank][s->nevents[rank]++] = event; }

static void project(PipelineSchedule *s, Item item)
{
    Action a = s->action[item.rank][item.index];
    if (item.kind != MESSAGE) {
        add_event(s, item.rank, (Event){ .action = a, .reduces = item.kind == REDUCTION });
        return;
    }
    Event event = { .is_message = true, .message = { a.kind == BACKWARD_ACTION, a.stage, a.micro }, .sends = true };
    add_event(s, item.rank, event);
    event.sends = false;
    add_event(s, reader_rank(s, a), event);
}

/* --- Slots ------------------------------------------------------------------------------------------ */

/* What F of a micro-batch begins to hold, and its last backward action frees. */
static void count_activations(Arena *arena, PipelineSchedule *s)
{
    const ActionKind last = s->splits_backward ? WEIGHT_ACTION : BACKWARD_ACTION;
    int *held = NEW_ARRAY(arena, int, stage_count(s));
    s->activations = NEW_ARRAY(arena, int, stage_count(s));
    for (int rank = 0; rank < s->ranks; rank++)
        for (int i = 0; i < s->nactions[rank]; i++) {
            const Action a = s->action[rank][i];
            held[a.stage] += (a.kind == FORWARD_ACTION) - (a.kind == last);
            if (held[a.stage] > s->activations[a.stage])
                s->activations[a.stage] = held[a.stage];
        }
}

/* Does the event make the value, or let it arrive? */
static bool begins(const Event *e, const Lifetime *life, int stage)
{
    const bool back = life->made == BACKWARD_ACTION;
    if (is_action(e))
        return !life->arrives && e->action.kind == life->made && e->action.stage == stage;
    return e->is_message && life->arrives && !e->sends && e->message.backward == back &&
           e->message.stage + (back ? -1 : 1) == stage;
}

int slots_needed(const PipelineSchedule *s, int rank, const Lifetime *life)
{
    const int made = stage_on_rank(s, rank, life->made_chunk), read = stage_on_rank(s, rank, life->read_chunk);
    int now = 0, most = 1;
    for (int i = 0; i < s->nevents[rank]; i++) {
        const Event *e = &s->event[rank][i];
        now += begins(e, life, made);
        most = now > most ? now : most;
        now -= is_action(e) && e->action.kind == life->read && e->action.stage == read;
    }
    return most;
}

bool order_messages(Arena *arena, PipelineSchedule *s, const char **why)
{
    Timeline t;
    int n, rank;
    if (!simulate_schedule(arena, s, NULL, &t)) {
        *why = arena_text(arena, "ranks wait for each other forever: %s", circle_text(arena, s, &t, &rank));
        return false;
    }
    s->nevents = NEW_ARRAY(arena, int, s->ranks);
    s->event = NEW_ARRAY(arena, Event *, s->ranks);
    for (rank = 0; rank < s->ranks; rank++)
        s->event[rank] =
            NEW_ARRAY(arena, Event, 3 * s->nactions[rank] + s->chunks); /* each may receive once, and send once */
    const Item *items = items_in_order(arena, s, &t, &n);
    for (int i = 0; i < n; i++)
        project(s, items[i]);
    count_activations(arena, s);
    return true;
}
