/* search.c -- best bound first: see planner.h.
 *
 * A node is a mesh; then also the size of a micro-batch; what is recomputed, and how attention gets its keys; zero; the
 * schedule.  So the few choices that count most come first, and most nodes are never divided.  The queue is a heap. */
#include "planner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What is known of a node, in order. */
typedef enum { MESH, MICROBATCH, POLICIES, ZERO, SCHEDULE, COMPILED } Level;

/* By which bound a node of POLICIES is where it is. */
enum { BY_MODEL, BY_MESSAGES, BY_RING, BY_MICRO };

typedef struct {
    PlanLayout layout;
    Level level;
    double bound;             /* seconds */
    int closeness;            /* of POLICIES: 1: by micro_bound(); of SCHEDULE: see schedule_bound() */
    const PlanResult *result; /* of COMPILED */
} Node;

typedef struct {
    Planner *p;
    Node *heap;
    int count, room;
    Answer answer;
    Level next;   /* of the nodes that are being added */
    double bound; /* of the node that is being divided */
} Search;

static bool is_exhaustive(const Search *s) { return s->p->run->options->exhaustive; }

/* --- The queue --------------------------------------------------------------------------------------------- */

static bool is_before(const Node *a, const Node *b)
{
    return a->bound < b->bound || (a->bound == b->bound && a->level > b->level);
}

static void swap(Node *a, Node *b)
{
    const Node c = *a;
    *a = *b, *b = c;
}

static void push(Search *s, Node node)
{
    if (s->count == s->room) {
        Node *grown = NEW_ARRAY(s->p->arena, Node, s->room = s->room * 2 + 1024);
        for (int i = 0; i < s->count; i++)
            grown[i] = s->heap[i];
        s->heap = grown;
    }
    s->heap[s->count] = node;
    for (int i = s->count++; i && is_before(&s->heap[i], &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        swap(&s->heap[i], &s->heap[(i - 1) / 2]);
}

static Node pop(Search *s)
{
    const Node first = s->heap[0];
    s->heap[0] = s->heap[--s->count];
    for (int i = 0;;) {
        int least = i;
        for (int k = 2 * i + 1; k <= 2 * i + 2 && k < s->count; k++)
            least = is_before(&s->heap[k], &s->heap[least]) ? k : least;
        if (least == i)
            return first;
        swap(&s->heap[i], &s->heap[least]);
        i = least;
    }
}

/* --- How many layouts a node stands for ---------------------------------------------------------------------- */

static void count_one(void *context, const PlanLayout *layout)
{
    (void)layout;
    ++*(double *)context;
}

typedef struct {
    const Planner *p;
    double count;
} MicrobatchCount;

static double count_with(const Planner *p, const PlanLayout *layout, Level level)
{
    double policies = 0, zeros = 0, schedules = 0;
    if (level < POLICIES)
        visit_policies(p, *layout, count_one, &policies);
    if (level < ZERO)
        visit_zeros(p, *layout, count_one, &zeros);
    if (level < SCHEDULE)
        visit_schedules(p, *layout, count_one, &schedules);
    return (level < POLICIES ? policies : 1) * (level < ZERO ? zeros : 1) * (level < SCHEDULE ? schedules : 1);
}

static void count_microbatch(void *context, const PlanLayout *layout)
{
    MicrobatchCount *c = context;
    c->count += count_with(c->p, layout, MICROBATCH);
}

static double layouts_of(const Planner *p, const PlanLayout *layout, Level level)
{
    MicrobatchCount c = { p, 0 };
    if (level > MESH)
        return count_with(p, layout, level);
    visit_microbatches(p, *layout, count_microbatch, &c);
    return c.count;
}

/* --- Nodes ----------------------------------------------------------------------------------------------------- */

static void does_not_fit(Search *s, const PlanLayout *layout, double memory)
{
    s->answer.least = fmin(s->answer.least, memory);
    const double count = layouts_of(s->p, layout, s->next);
    s->answer.tally.too_large += count, s->answer.tally.bounded += count;
}

static void add_bounded(Search *s, const PlanLayout *layout, BlockBound bound, double memory, int closeness)
{
    if (bound.seconds == INFINITY)
        s->answer.tally.refused += layouts_of(s->p, layout, s->next);
    else if (memory + bound.memory > s->p->memory)
        does_not_fit(s, layout, memory + bound.memory);
    else
        push(s, (Node){ *layout, s->next, fmax(s->bound, bound.seconds), closeness, NULL });
}

static void add_node(void *context, const PlanLayout *layout)
{
    Search *s = context;
    Planner *p = s->p;
    PlanLayout least = *layout;
    least.zero = s->next < ZERO ? 3 : least.zero;
    least.microbatch = s->next < MICROBATCH ? 1 : least.microbatch;
    least.recompute = s->next < POLICIES ? RECOMPUTE_FULL : least.recompute;
    const double memory = least_memory(p, &least);
    if (is_exhaustive(s))
        push(s, (Node){ *layout, s->next, 0, 0, NULL });
    else if (memory > p->memory)
        does_not_fit(s, layout, memory);
    else if (s->next == ZERO)
        add_bounded(s, layout, zero_bound(p, layout), 0, 0);
    else if (s->next == SCHEDULE)
        add_bounded(s, layout, schedule_bound(p, layout, BY_WAITS), 0, BY_WAITS);
    else
        push(s, (Node){ *layout, s->next, s->next == POLICIES ? fmax(s->bound, least_seconds(p, layout)) : s->bound, 0,
                        NULL });
}

static void add_mesh(void *context, const PlanLayout *layout)
{
    Search *s = context;
    Tally *tally = &s->answer.tally;
    tally->meshes++;
    if (!divides(s->p, layout)) {
        tally->indivisible++;
        return;
    }
    tally->all += layouts_of(s->p, layout, MESH);
    s->bound = is_exhaustive(s) ? 0 : least_seconds_of_ranks(s->p, mesh_ranks(s->p, layout));
    add_node(s, layout);
}

static void divide(Search *s, const Node *node)
{
    static BlockBound (*const closer[])(Planner *, const PlanLayout *) = { message_bound, ring_bound, micro_bound };
    PlanLayout least = node->layout;
    const bool is_close = node->closeness == BY_MICRO || is_exhaustive(s);
    s->next = node->level == POLICIES && !is_close ? POLICIES : node->level + 1;
    s->bound = node->bound;
    least.zero = 3;
    if (s->next == node->level)
        add_bounded(s, &node->layout, closer[node->closeness](s->p, &node->layout), least_memory(s->p, &least),
                    node->closeness + 1);
    else if (s->next == MICROBATCH)
        visit_microbatches(s->p, node->layout, add_node, s);
    else if (s->next == POLICIES)
        visit_policies(s->p, node->layout, add_node, s);
    else if (s->next == ZERO)
        visit_zeros(s->p, node->layout, add_node, s);
    else
        visit_schedules(s->p, node->layout, add_node, s);
}

/* A bound that turns out not to have been one. */
static void note_overrun(Answer *answer, const PlanResult *result)
{
    answer->overrun = fmax(answer->overrun, result->bound / result->seconds - 1);
}

static void note_too_large(Search *s, const PlanResult *result)
{
    Answer *answer = &s->answer;
    answer->tally.too_large++;
    answer->least = fmin(answer->least, (double)(result->arena + result->beside));
    if (!answer->too_large || result->seconds < answer->too_large->seconds)
        answer->too_large = result;
}

/* All that have been compiled, for the page. */
static void keep_compiled(Search *s, const PlanResult *result)
{
    Answer *answer = &s->answer;
    if (answer->ncompiled == answer->compiled_room) {
        const PlanResult **grown =
            NEW_ARRAY(s->p->arena, const PlanResult *, answer->compiled_room = answer->compiled_room * 2 + 64);
        for (int i = 0; i < answer->ncompiled; i++)
            grown[i] = answer->compiled[i];
        answer->compiled = grown;
    }
    answer->compiled[answer->ncompiled++] = result;
}

/* The first layout of the answer is proved to be the fastest.  Of the others those come first that are the fastest if
 * bounds are right, without what they leave for being wrong. */
static double key_of(const Search *s, const PlanResult *result)
{
    return s->answer.count ? result->seconds * (1 - STRUCTURE_ERROR) : result->seconds;
}

static void compile(Search *s, const Node *node)
{
    Planner *p = s->p;
    Tally *tally = &s->answer.tally;
    PlanResult *result = NEW(p->arena, PlanResult);
    *result = compiled_result(p, &node->layout, p->arena);
    result->bound = node->bound;
    tally->compiled++;
    if (result->refused) {
        tally->refused++;
        return;
    }
    keep_compiled(s, result);
    note_overrun(&s->answer, result);
    if ((double)(result->arena + result->beside) > p->memory)
        note_too_large(s, result);
    else
        push(s, (Node){ node->layout, COMPILED, key_of(s, result), 0, result });
}

/* --- The search ------------------------------------------------------------------------------------------------ */

static bool same_mesh(const Planner *p, const PlanLayout *a, const PlanLayout *b)
{
    return memcmp(a->size, b->size, (size_t)p->naxes * sizeof *a->size) == 0;
}

static void take(Search *s, const Node *node)
{
    Answer *answer = &s->answer;
    for (int i = 0; i < answer->count; i++)
        if (same_mesh(s->p, &answer->best[i].layout, &node->layout)) {
            answer->tally.slower++;
            return;
        }
    answer->best[answer->count++] = *node->result;
}

static bool is_done(const Search *s, const PlanLayout *layout)
{
    for (int i = 0; i < s->answer.count; i++)
        if (same_mesh(s->p, &s->answer.best[i].layout, layout))
            return true;
    return false;
}

static void look_closer(Search *s, const Node *node)
{
    const int closeness = node->closeness + 1;
    s->next = SCHEDULE;
    s->bound = node->bound;
    add_bounded(s, &node->layout, schedule_bound(s->p, &node->layout, closeness), 0, closeness);
}

static int faster_first(const void *a, const void *b)
{
    const PlanResult *x = a, *y = b;
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

Answer search_layouts(Planner *p, int top)
{
    Search s = { .p = p, .next = MESH };
    s.answer.best = NEW_ARRAY(p->arena, PlanResult, top);
    s.answer.least = INFINITY;
    visit_meshes(p, add_mesh, &s);
    if (!p->is_elastic) {
        const double divisible = s.answer.tally.meshes - s.answer.tally.indivisible;
        s.answer.tally.meshes = count_meshes(p, 0, p->ranks);
        s.answer.tally.indivisible = s.answer.tally.meshes - divisible;
    }
    while (s.count && s.answer.count < top) {
        const Node node = pop(&s);
        if (node.level == COMPILED)
            take(&s, &node);
        else if (is_done(&s, &node.layout) && !is_exhaustive(&s))
            s.answer.tally.slower += layouts_of(p, &node.layout, node.level);
        else if (node.level < SCHEDULE)
            divide(&s, &node);
        else if (node.closeness < CLOSEST && !is_exhaustive(&s))
            look_closer(&s, &node);
        else
            compile(&s, &node);
    }
    for (int i = 0; i < s.count; i++)
        s.answer.tally.slower += s.heap[i].level == COMPILED ? 1 : layouts_of(p, &s.heap[i].layout, s.heap[i].level);
    qsort(s.answer.best, (size_t)s.answer.count, sizeof *s.answer.best, faster_first);
    return s.answer;
}
