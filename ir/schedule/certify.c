/* certify.c -- proofs about a schedule from its tables alone.
 *
 * Nothing here is shared with those who write the tables but the placement of stages and the names of actions.  Each
 * check relies on those before it: actions, events, reductions, what each rank has when it acts or sends, pairs of
 * messages, deadlock, slots. */
#include "schedule.h"

enum { N_DIRECTIONS = 2 };

/* Where things are among the events of their rank: index + 1; 0: nowhere.  By stage (a message: the sender's) and
 * micro. */
typedef struct {
    Arena *arena;
    const PipelineSchedule *s;
    const char **why;
    int *acted[N_ACTION_KINDS], *sent[N_DIRECTIONS], *got[N_DIRECTIONS];
} Proof;

#define REFUSE(p, ...) (*(p)->why = arena_text((p)->arena, __VA_ARGS__), false)

static size_t cell(const Proof *p, int stage, int micro)
{
    return (size_t)stage * (size_t)p->s->micros + (size_t)micro;
}

static bool is_cell(const Proof *p, int stage, int micro)
{
    return stage >= 0 && stage < stage_count(p->s) && micro >= 0 && micro < p->s->micros;
}

static const char *text_of(const Proof *p, ActionKind kind, int stage, int micro)
{
    return action_text(p->arena, (Action){ kind, stage, micro });
}

static int receiving_stage(const Message *m) { return m->stage + (m->backward ? -1 : 1); }
static int sender(const Proof *p, const Message *m) { return rank_of_stage(p->s, m->stage); }
static int receiver(const Proof *p, const Message *m) { return rank_of_stage(p->s, receiving_stage(m)); }

static bool is_same_message(const Message *a, const Message *b)
{
    return a->backward == b->backward && a->stage == b->stage && a->micro == b->micro;
}

/* "F1 of micro-batch 2": the result of that action is what is sent. */
static const char *message_text(const Proof *p, const Message *m)
{
    return arena_text(p->arena, "%c%d of micro-batch %d", action_letter[m->backward ? BACKWARD_ACTION : FORWARD_ACTION],
                      m->stage, m->micro);
}

/* "receives B1 of micro-batch 0 from rank 1" */
static const char *event_text(const Proof *p, const Event *e)
{
    const Message *m = &e->message;
    if (e->reduces)
        return arena_text(p->arena, "reduces the gradients of stage %d", e->action.stage);
    if (!e->is_message)
        return arena_text(p->arena, "does %s", action_text(p->arena, e->action));
    return arena_text(p->arena, "%s %s %s rank %d", e->sends ? "sends" : "receives", message_text(p, m),
                      e->sends ? "to" : "from", e->sends ? receiver(p, m) : sender(p, m));
}

/* --- Actions: each once, and where its stage is ---------------------------------------------------- */

static bool check_action(Proof *p, int rank, int i)
{
    const PipelineSchedule *s = p->s;
    const Action a = s->action[rank][i];
    if (a.kind >= N_ACTION_KINDS || !is_cell(p, a.stage, a.micro))
        return REFUSE(p, "rank %d: its action number %d is of no stage and micro-batch that there is", rank, i);
    if (a.kind == WEIGHT_ACTION && !s->splits_backward)
        return REFUSE(p, "rank %d does %s, though this schedule does not split B", rank, action_text(p->arena, a));
    if (rank_of_stage(s, a.stage) != rank)
        return REFUSE(p, "rank %d does %s, but stage %d is on rank %d", rank, action_text(p->arena, a), a.stage,
                      rank_of_stage(s, a.stage));
    int *acted = &p->acted[a.kind][cell(p, a.stage, a.micro)];
    if (*acted)
        return REFUSE(p, "rank %d does %s twice", rank, action_text(p->arena, a));
    *acted = i + 1;
    return true;
}

static bool check_actions(Proof *p)
{
    const PipelineSchedule *s = p->s;
    for (int rank = 0; rank < s->ranks; rank++)
        for (int i = 0; i < s->nactions[rank]; i++)
            if (!check_action(p, rank, i))
                return false;
    for (ActionKind kind = 0; kind < (s->splits_backward ? WEIGHT_ACTION + 1 : WEIGHT_ACTION); kind++)
        for (int stage = 0; stage < stage_count(s); stage++)
            for (int micro = 0; micro < s->micros; micro++)
                if (!p->acted[kind][cell(p, stage, micro)])
                    return REFUSE(p, "rank %d lacks %s", rank_of_stage(s, stage), text_of(p, kind, stage, micro));
    return true;
}

/* --- Events: the same actions, and messages of this rank, each once --------------------------------- */

static bool check_message(Proof *p, int rank, int i)
{
    const Event *e = &p->s->event[rank][i];
    const Message *m = &e->message;
    if (!is_cell(p, m->stage, m->micro) || !is_cell(p, receiving_stage(m), m->micro))
        return REFUSE(p, "rank %d: its event number %d is a message between stages that there are not", rank, i);
    if (sender(p, m) == receiver(p, m) || (e->sends ? sender(p, m) : receiver(p, m)) != rank)
        return REFUSE(p, "rank %d %s, which goes from rank %d to rank %d", rank, event_text(p, e), sender(p, m),
                      receiver(p, m));
    int *seen = &(e->sends ? p->sent : p->got)[m->backward][cell(p, m->stage, m->micro)];
    if (*seen)
        return REFUSE(p, "rank %d %s twice", rank, event_text(p, e));
    *seen = i + 1;
    return true;
}

static bool check_events(Proof *p)
{
    const PipelineSchedule *s = p->s;
    for (int rank = 0; rank < s->ranks; rank++) {
        int next = 0;
        for (int i = 0; i < s->nevents[rank]; i++) {
            const Event *e = &s->event[rank][i];
            if (e->is_message && !check_message(p, rank, i))
                return false;
            if (!is_action(e))
                continue;
            const Action *a = next < s->nactions[rank] ? &s->action[rank][next++] : NULL;
            if (!a || a->kind != e->action.kind || a->stage != e->action.stage || a->micro != e->action.micro)
                return REFUSE(p, "rank %d %s among its messages, where its actions have %s", rank, event_text(p, e),
                              a ? action_text(p->arena, *a) : "no more");
            p->acted[a->kind][cell(p, a->stage, a->micro)] = i + 1;
        }
        if (next < s->nactions[rank])
            return REFUSE(p, "rank %d lacks %s among its messages", rank, action_text(p->arena, s->action[rank][next]));
    }
    return true;
}

/* --- Reductions: one of each stage on its rank, when all of its actions are over ------------------------ */

static bool check_reduction(const Proof *p, int rank, int i, bool *reduced)
{
    const Event *e = &p->s->event[rank][i];
    const int stage = e->action.stage;
    if (!p->s->reduces)
        return REFUSE(p, "rank %d %s, though this schedule does not reduce", rank, event_text(p, e));
    if (!is_cell(p, stage, 0) || rank_of_stage(p->s, stage) != rank)
        return REFUSE(p, "rank %d %s, which is not on it", rank, event_text(p, e));
    if (reduced[stage])
        return REFUSE(p, "rank %d %s twice", rank, event_text(p, e));
    for (int later = i + 1; later < p->s->nevents[rank]; later++)
        if (is_action(&p->s->event[rank][later]) && p->s->event[rank][later].action.stage == stage)
            return REFUSE(p, "rank %d %s before %s", rank, event_text(p, e),
                          action_text(p->arena, p->s->event[rank][later].action));
    reduced[stage] = true;
    return true;
}

static bool check_reductions(const Proof *p)
{
    bool *reduced = NEW_ARRAY(p->arena, bool, stage_count(p->s));
    for (int rank = 0; rank < p->s->ranks; rank++)
        for (int i = 0; i < p->s->nevents[rank]; i++)
            if (p->s->event[rank][i].reduces && !check_reduction(p, rank, i, reduced))
                return false;
    for (int stage = 0; stage < stage_count(p->s) && p->s->reduces; stage++)
        if (!reduced[stage])
            return REFUSE(p, "rank %d never reduces the gradients of stage %d", rank_of_stage(p->s, stage), stage);
    return true;
}

/* --- What each rank has when it acts or sends ------------------------------------------------------- */

/* Is the result of `kind` at `from` there before the action `kind` at `stage` reads it? */
static bool check_read(const Proof *p, ActionKind kind, int from, int stage, int micro)
{
    const int rank = rank_of_stage(p->s, stage), direction = kind == BACKWARD_ACTION;
    const size_t there = cell(p, from, micro);
    const int reads = p->acted[kind][cell(p, stage, micro)], made = p->acted[kind][there];
    const int sent = p->sent[direction][there], got = p->got[direction][there];
    if (rank_of_stage(p->s, from) == rank)
        return made < reads || REFUSE(p, "rank %d does %s before %s, which it reads", rank,
                                      text_of(p, kind, stage, micro), text_of(p, kind, from, micro));
    if (!sent || sent < made)
        return REFUSE(p, "rank %d %s %s to rank %d", rank_of_stage(p->s, from),
                      sent ? "does not yet have what it sends:" : "never sends", text_of(p, kind, from, micro), rank);
    if (!got)
        return REFUSE(p, "rank %d never receives %s from rank %d, which %s reads", rank, text_of(p, kind, from, micro),
                      rank_of_stage(p->s, from), text_of(p, kind, stage, micro));
    if (got > reads)
        return REFUSE(p, "rank %d does %s before it receives %s from rank %d", rank, text_of(p, kind, stage, micro),
                      text_of(p, kind, from, micro), rank_of_stage(p->s, from));
    return true;
}

static bool check_kinds(const Proof *p, int stage, int micro)
{
    const ActionKind last = p->s->splits_backward ? WEIGHT_ACTION : BACKWARD_ACTION;
    for (ActionKind kind = BACKWARD_ACTION; kind <= last; kind++)
        if (p->acted[kind][cell(p, stage, micro)] < p->acted[kind - 1][cell(p, stage, micro)])
            return REFUSE(p, "rank %d does %s before %s", rank_of_stage(p->s, stage), text_of(p, kind, stage, micro),
                          text_of(p, kind - 1, stage, micro));
    return true;
}

/* Sums over micro-batches are added up in their order, and they take slots in it. */
static bool check_order(const Proof *p, int stage, int micro)
{
    const ActionKind last = p->s->splits_backward ? WEIGHT_ACTION : BACKWARD_ACTION;
    for (ActionKind kind = FORWARD_ACTION; kind <= last && micro > 0; kind++)
        if (p->acted[kind][cell(p, stage, micro)] < p->acted[kind][cell(p, stage, micro - 1)])
            return REFUSE(p, "rank %d does %s before %s", rank_of_stage(p->s, stage), text_of(p, kind, stage, micro),
                          text_of(p, kind, stage, micro - 1));
    return true;
}

static bool check_reads(const Proof *p)
{
    for (int stage = 0; stage < stage_count(p->s); stage++)
        for (int micro = 0; micro < p->s->micros; micro++)
            if (!check_kinds(p, stage, micro) || !check_order(p, stage, micro) ||
                (stage > 0 && !check_read(p, FORWARD_ACTION, stage - 1, stage, micro)) ||
                (stage > 0 && !check_read(p, BACKWARD_ACTION, stage, stage - 1, micro)))
                return false;
    return true;
}

/* --- Pairs: the n-th receive of a rank from another is that one's n-th send to it ------------------- */

/* The next message from rank `from` to rank `to` among the events of one of them; NULL: none. */
static const Event *next_between(const Proof *p, int of, int from, int to, int *i)
{
    while (*i < p->s->nevents[of]) {
        const Event *e = &p->s->event[of][(*i)++];
        if (e->is_message && sender(p, &e->message) == from && receiver(p, &e->message) == to)
            return e;
    }
    return NULL;
}

static bool check_pair(const Proof *p, int from, int to)
{
    for (int i = 0, j = 0;;) {
        const Event *sends = next_between(p, from, from, to, &i), *gets = next_between(p, to, from, to, &j);
        if (!sends && !gets)
            return true;
        if (!sends || !gets)
            return sends ? REFUSE(p, "rank %d %s, which does not receive it", from, event_text(p, sends))
                         : REFUSE(p, "rank %d %s, which does not send it", to, event_text(p, gets));
        if (!is_same_message(&sends->message, &gets->message))
            return REFUSE(p, "rank %d receives %s where rank %d sends %s", to, message_text(p, &gets->message), from,
                          message_text(p, &sends->message));
    }
}

/* Ranks of neighbouring stages: others have no messages. */
static bool check_pairs(const Proof *p)
{
    for (int stage = 0; stage + 1 < stage_count(p->s); stage++) {
        const int a = rank_of_stage(p->s, stage), b = rank_of_stage(p->s, stage + 1);
        if (a != b && (!check_pair(p, a, b) || !check_pair(p, b, a)))
            return false;
    }
    return true;
}

/* --- Deadlock ---------------------------------------------------------------------------------------
 * The graph has a node for each action and each message, whose send and receive are one node; an edge goes from each
 * event of a rank to its next.  Nodes are taken away that have no edge to them from one that is left.  Since a rank's
 * events are a chain, only the first that is left of each rank has to be looked at.  What cannot be taken away holds a
 * circle.
 *
 * Other pipelines of the mesh run the same events: a reduction, or a collective in an action, is one node of all of
 * them then, and their graphs laid upon each other have a circle only if one has. */

/* The rank that has to come to the first event that is left of `rank` as well; the same rank: nobody else has to. */
static int other_side(const Proof *p, int rank, const int *first)
{
    const Event *e = &p->s->event[rank][first[rank]];
    return !e->is_message ? rank : e->sends ? receiver(p, &e->message) : sender(p, &e->message);
}

/* Are both sides at their first event, and is it the same message? */
static bool meet(const Proof *p, int a, int b, const int *first)
{
    if (a == b)
        return true;
    if (first[b] == p->s->nevents[b])
        return false;
    const Event *x = &p->s->event[a][first[a]], *y = &p->s->event[b][first[b]];
    return y->is_message && is_same_message(&x->message, &y->message);
}

static void take_away(const Proof *p, int *first)
{
    bool moved = true;
    while (moved) {
        moved = false;
        for (int rank = 0; rank < p->s->ranks; rank++)
            while (first[rank] < p->s->nevents[rank]) {
                int other = other_side(p, rank, first);
                if (!meet(p, rank, other, first))
                    break;
                first[rank]++;
                first[other] += other != rank;
                moved = true;
            }
    }
}

static bool check_deadlock(const Proof *p)
{
    int *first = NEW_ARRAY(p->arena, int, p->s->ranks), at = 0;
    take_away(p, first);
    while (at < p->s->ranks && first[at] == p->s->nevents[at])
        at++;
    if (at == p->s->ranks)
        return true;
    for (int i = 0; i < p->s->ranks; i++) /* after so many steps we are in the circle */
        at = other_side(p, at, first);
    const char *text = arena_text(p->arena, "deadlock: rank %d", at);
    for (int rank = at, steps = 0; rank != at || steps == 0; rank = other_side(p, rank, first), steps++)
        text = arena_text(p->arena, "%s%s %s", text, steps ? ", which first" : "",
                          event_text(p, &p->s->event[rank][first[rank]]));
    return REFUSE(p, "%s", text);
}

/* --- Slots ------------------------------------------------------------------------------------------ */

/* Proves that slots for activations suffice. */
static bool check_slots(const Proof *p)
{
    const PipelineSchedule *s = p->s;
    int *held = NEW_ARRAY(p->arena, int, stage_count(s));
    for (int rank = 0; rank < s->ranks; rank++)
        for (int i = 0; i < s->nevents[rank]; i++) {
            const Event *e = &s->event[rank][i];
            const int stage = e->action.stage;
            if (!is_action(e))
                continue;
            held[stage] += e->action.kind == FORWARD_ACTION;
            if (held[stage] > s->activations[stage])
                return REFUSE(p, "rank %d %s, and then holds %d activations of stage %d: it has %d slot%s", rank,
                              event_text(p, e), held[stage], stage, s->activations[stage],
                              s->activations[stage] == 1 ? "" : "s");
            held[stage] -= e->action.kind == (s->splits_backward ? WEIGHT_ACTION : BACKWARD_ACTION);
        }
    return true;
}

bool certify_slots(Arena *arena, const PipelineSchedule *s, int rank, const Lifetime *life, int slots, const char **why)
{
    const Proof proof = { .arena = arena, .s = s, .why = why };
    int *holder = NEW_ARRAY(arena, int, slots); /* micro-batch + 1; 0: free */
    for (int i = 0; i < s->nevents[rank]; i++) {
        const Event *e = &s->event[rank][i];
        if (e->reduces)
            continue;
        const int stage = e->is_message ? receiving_stage(&e->message) : e->action.stage;
        const int micro = e->is_message ? e->message.micro : e->action.micro;
        const ActionKind kind = !e->is_message        ? e->action.kind
                                : e->message.backward ? BACKWARD_ACTION
                                                      : FORWARD_ACTION;
        int *slot = &holder[micro % slots];
        if (e->is_message == life->arrives && !(e->is_message && e->sends) && kind == life->made &&
            stage == stage_on_rank(s, rank, life->made_chunk)) {
            if (*slot)
                return REFUSE(&proof, "rank %d %s into the slot that micro-batch %d still has: there are %d", rank,
                              event_text(&proof, e), *slot - 1, slots);
            *slot = micro + 1;
        }
        if (e->is_message || kind != life->read || stage != stage_on_rank(s, rank, life->read_chunk))
            continue;
        if (*slot != micro + 1)
            return REFUSE(&proof, "rank %d %s, whose slot does not hold it", rank, event_text(&proof, e));
        *slot = 0;
    }
    return true;
}

bool certify_schedule(Arena *arena, const PipelineSchedule *s, const char **why)
{
    Proof p = { .arena = arena, .s = s, .why = why };
    const int cells = stage_count(s) * s->micros;
    for (int i = 0; i < N_ACTION_KINDS; i++)
        p.acted[i] = NEW_ARRAY(arena, int, cells);
    for (int i = 0; i < N_DIRECTIONS; i++) {
        p.sent[i] = NEW_ARRAY(arena, int, cells);
        p.got[i] = NEW_ARRAY(arena, int, cells);
    }
    return check_actions(&p) && check_events(&p) && check_reductions(&p) && check_reads(&p) && check_pairs(&p) &&
           check_deadlock(&p) && check_slots(&p);
}
