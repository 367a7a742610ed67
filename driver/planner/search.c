/* search.c -- best bound first: see planner.h.
 *
 * A node is a mesh; then also the size of a micro-batch; what is recomputed, and how attention gets its keys; zero; the
 * schedule.  So the few choices that count most come first, and most nodes are never divided. */
#include "queue.h"
#include "room.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <unistd.h>

typedef struct {
    Planner *p;
    Queue queue;
    Answer answer;
    int wanted; /* layouts, in the answer */
    int nfastest, fastest_room;
    const PlanResult **fastest; /* of each mesh, of those that have been compiled and fit */
    Level next;                 /* of the nodes that are being added */
    double bound;               /* of the node that is being divided */
    time_t shown;               /* when progress was shown, to the second */
    bool shows;
} Search;

/* Are all layouts compiled?  And held against bounds? */
static bool is_exhaustive(const Search *s) { return s->p->run->options->exhaustive || s->p->mixes; }
static bool holds_bounds(const Search *s) { return s->p->run->options->exhaustive && !s->p->mixes; }

/* --- How many layouts a node stands for ---------------------------------------------------------------------- */

typedef struct {
    double count;
    PlanLayout last;
} LayoutCount;

static void count_one(void *context, const PlanLayout *layout)
{
    LayoutCount *c = context;
    c->count++, c->last = *layout;
}

typedef struct {
    const Planner *p;
    double count;
} MicrobatchCount;

/* All policies have as many micro-batches abreast, on which schedules depend. */
static double count_with(const Planner *p, const PlanLayout *layout, Level level)
{
    LayoutCount policies = { 0, *layout }, zeros = { 0 }, schedules = { 0 };
    if (level < POLICIES)
        visit_policies(p, *layout, count_one, &policies);
    if (level < ZERO)
        visit_zeros(p, *layout, count_one, &zeros);
    if (level < SCHEDULE)
        visit_schedules(p, policies.last, count_one, &schedules);
    return (level < POLICIES ? policies.count : 1) * (level < ZERO ? zeros.count : 1) *
           (level < SCHEDULE ? schedules.count : 1);
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

static void add(Search *s, const PlanLayout *layout, double bound, int closeness)
{
    push_node(&s->queue, (Node){ .layout = *layout, .level = s->next, .bound = bound, .closeness = closeness });
}

static void add_bounded(Search *s, const PlanLayout *layout, BlockBound bound, double memory, int closeness)
{
    if (bound.seconds == INFINITY)
        note_refusal(s->p, &s->answer, layout, layouts_of(s->p, layout, s->next), bound.refused);
    else if (memory + bound.memory > s->p->memory)
        does_not_fit(s, layout, memory + bound.memory);
    else
        add(s, layout, fmax(s->bound, bound.seconds), closeness);
}

/* micros: without zero; INFINITY: it cannot be compiled. */
static void add_policies(Search *s, const PlanLayout *layout, StepBound micros, int closeness)
{
    const BlockBound least = over_zeros(s->p, layout, &micros);
    const bool can_be = micros.seconds < INFINITY;
    if (can_be && least.memory > s->p->memory)
        does_not_fit(s, layout, least.memory);
    else
        add_bounded(s, layout, (BlockBound){ least.seconds, 0, can_be ? NULL : micro_refusal(s->p, layout) }, 0,
                    closeness);
}

static void add_node(void *context, const PlanLayout *layout)
{
    Search *s = context;
    Planner *p = s->p;
    PlanLayout least = *layout;
    least.zero = s->next < ZERO ? 3 : least.zero;
    least.microbatch = s->next < MICROBATCH ? 1 : least.microbatch;
    least.recompute = s->next < POLICIES ? RECOMPUTE_FULL : least.recompute;
    const double memory = least_memory(p, &least, s->next < SCHEDULE, NULL);
    if (is_exhaustive(s))
        add(s, layout, 0, 0);
    else if (memory > p->memory)
        does_not_fit(s, layout, memory);
    else if (s->next == POLICIES)
        add_policies(s, layout, model_bound(p, layout), BY_MODEL);
    else if (s->next == ZERO)
        add_bounded(s, layout, traffic_bound(p, layout), 0, BY_TRAFFIC);
    else if (s->next == SCHEDULE)
        add_bounded(s, layout, schedule_bound(p, layout, BY_WAITS), 0, BY_WAITS);
    else
        add(s, layout, s->bound, 0);
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

static void look_at_microbatch(Search *s, const Node *node)
{
    s->next = MICROBATCH;
    add(s, &node->layout, fmax(node->bound, split_bound(s->p, &node->layout)), BY_SPLIT);
}

static void look_at_policies(Search *s, const Node *node)
{
    static StepBound (*const closer[])(Planner *, const PlanLayout *) = { rough_bound, micro_bound };
    s->next = POLICIES;
    s->bound = node->bound;
    add_policies(s, &node->layout, closer[node->closeness](s->p, &node->layout), node->closeness + 1);
}

static void look_at_zero(Search *s, const Node *node)
{
    s->next = ZERO;
    s->bound = node->bound;
    add_bounded(s, &node->layout, zero_bound(s->p, &node->layout), 0, BY_ITS_PROGRAM);
}

static void look_at_schedule(Search *s, const Node *node)
{
    const int closeness = node->closeness + 1;
    s->next = SCHEDULE;
    s->bound = node->bound;
    add_bounded(s, &node->layout, schedule_bound(s->p, &node->layout, closeness), 0, closeness);
}

static void divide(Search *s, const Node *node)
{
    s->next = node->level + 1;
    s->bound = node->bound;
    if (s->next == MICROBATCH)
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
    answer->compiled =
        room_for(s->p->arena, answer->compiled, sizeof result, answer->ncompiled, 1, &answer->compiled_room);
    answer->compiled[answer->ncompiled++] = result;
}

static bool same_mesh(const Planner *p, const PlanLayout *a, const PlanLayout *b)
{
    return memcmp(a->size, b->size, (size_t)p->naxes * sizeof *a->size) == 0;
}

static void note_fastest(Search *s, const PlanResult *result)
{
    for (int i = 0; i < s->nfastest; i++)
        if (same_mesh(s->p, &s->fastest[i]->layout, &result->layout)) {
            s->fastest[i] = result->seconds < s->fastest[i]->seconds ? result : s->fastest[i];
            return;
        }
    s->fastest = room_for(s->p->arena, s->fastest, sizeof result, s->nfastest, 1, &s->fastest_room);
    s->fastest[s->nfastest++] = result;
}

/* The first layout of the answer is proved to be the fastest.  Of the others those come first that are the fastest if
 * bounds are right, without what they leave for being wrong. */
static double key_of(const Search *s, const PlanResult *result)
{
    return s->answer.count ? result->seconds * (1 - STRUCTURE_ERROR) : result->seconds;
}

/* An exact result of a node, compiled. */
static void note_result(Search *s, const Node *node, PlanResult *result)
{
    Planner *p = s->p;
    const double memory = (double)(result->arena + result->beside);
    result->bound = node->bound;
    s->answer.tally.compiled++;
    if (result->is_slower) {
        s->answer.tally.slower++;
        return;
    }
    if (result->refused) {
        note_refusal(p, &s->answer, &node->layout, 1, result->refused);
        return;
    }
    keep_compiled(s, result);
    if (holds_bounds(s)) {
        const BlockBound bound = most_of_bounds(p, &node->layout);
        result->bound = bound.seconds;
        s->answer.overrun_memory = fmax(s->answer.overrun_memory, bound.memory / memory - 1);
    }
    note_overrun(&s->answer, result);
    if (memory > p->memory) {
        note_too_large(s, result);
    } else {
        note_fastest(s, result);
        push_node(&s->queue,
                  (Node){ .layout = node->layout, .level = COMPILED, .bound = key_of(s, result), .result = result });
    }
}

/* --- The search ------------------------------------------------------------------------------------------------ */

/* Is the mesh of the layout that of one of the first so many of the answer? */
static bool is_among(const Search *s, int count, const PlanLayout *layout)
{
    for (int i = 0; i < count; i++)
        if (same_mesh(s->p, &s->answer.best[i].layout, layout))
            return true;
    return false;
}

static bool is_done(const Search *s, const PlanLayout *layout) { return is_among(s, s->answer.count, layout); }

static void take(Search *s, const Node *node)
{
    Answer *answer = &s->answer;
    if (is_done(s, &node->layout))
        answer->tally.slower++;
    else
        answer->best[answer->count++] = *node->result;
}

static int faster_first(const void *a, const void *b)
{
    const PlanResult *x = a, *y = b;
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

void sort_answer(Answer *answer) { qsort(answer->best, (size_t)answer->count, sizeof *answer->best, faster_first); }

/* How the next bound of a node comes about. */
typedef enum { BY_ARITHMETIC, BY_PROGRAM, EXACTLY } Means;

/* What the next bound of a node asks for. */
static int asked_by(Planner *p, const Node *node, BlockAsk ask[MOST_ASKED])
{
    if (node->level == SCHEDULE)
        return asked_by_schedule(p, &node->layout, node->closeness + 1, ask);
    if (node->level == ZERO)
        return node->closeness == BY_TRAFFIC ? asked_by_zero(p, &node->layout, ask) : 0;
    if (node->level == MICROBATCH && node->closeness == BY_MESH)
        return asked_by_split(p, &node->layout, ask);
    if (node->level != POLICIES || node->closeness == BY_MICRO)
        return 0;
    return node->closeness == BY_MODEL ? asked_by_rough(p, &node->layout, ask) : asked_by_micro(p, &node->layout, ask);
}

static Means means_of(Planner *p, const Node *node)
{
    BlockAsk ask[MOST_ASKED];
    if (node->level > SCHEDULE || (node->level == SCHEDULE && node->closeness == closest_bound(p, &node->layout)))
        return EXACTLY;
    for (int i = asked_by(p, node, ask) - 1; i >= 0; i--)
        if (!is_program_known(p, &ask[i]))
            return BY_PROGRAM;
    return BY_ARITHMETIC;
}

/* A layout that takes longer is not listed: one of its mesh is faster, or as many others as are listed.  But a page
 * shows all that are compiled, and all bounds can be held against them. */
static double enough_seconds(const Search *s, const PlanLayout *layout)
{
    double enough = INFINITY;
    for (int i = 0; i < s->nfastest && !s->p->run->options->exhaustive && !s->p->run->options->html; i++) {
        int as_fast = 0;
        for (int k = 0; k < s->nfastest; k++)
            as_fast += s->fastest[k]->seconds <= s->fastest[i]->seconds;
        if (as_fast >= s->wanted || same_mesh(s->p, &s->fastest[i]->layout, layout))
            enough = fmin(enough, s->fastest[i]->seconds);
    }
    return enough;
}

/* With the next one, if it is exact and will be looked at soon: another process has nothing else to do. */
static void compile(Search *s, const Node *first)
{
    static const double soon = 1.01;
    Node node[COMPILED_AHEAD] = { *first };
    PlanLayout layout[COMPILED_AHEAD];
    double enough[COMPILED_AHEAD];
    PlanResult *result = NEW_ARRAY(s->p->arena, PlanResult, COMPILED_AHEAD);
    int count = 1;
    while (count < COMPILED_AHEAD && s->queue.count && s->queue.node[0].bound <= first->bound * soon &&
           s->queue.node[0].level != COMPILED && !is_done(s, &s->queue.node[0].layout) &&
           (is_exhaustive(s) ? s->queue.node[0].level == SCHEDULE : means_of(s->p, &s->queue.node[0]) == EXACTLY))
        node[count++] = pop_node(&s->queue);
    for (int i = 0; i < count; i++)
        layout[i] = node[i].layout, enough[i] = enough_seconds(s, &layout[i]);
    compiled_results(s->p, layout, enough, count, result);
    for (int i = 0; i < count; i++)
        note_result(s, &node[i], &result[i]);
}

/* Replaces a node, which is no compiled layout, by closer ones. */
static void look_closer(Search *s, const Node *node)
{
    if (is_done(s, &node->layout) && !is_exhaustive(s))
        s->answer.tally.slower += layouts_of(s->p, &node->layout, node->level);
    else if (node->level == MICROBATCH && node->closeness < BY_SPLIT && !is_exhaustive(s))
        look_at_microbatch(s, node);
    else if (node->level == POLICIES && node->closeness < BY_MICRO && !is_exhaustive(s))
        look_at_policies(s, node);
    else if (node->level == ZERO && node->closeness < BY_ITS_PROGRAM && !is_exhaustive(s))
        look_at_zero(s, node);
    else if (node->level < SCHEDULE)
        divide(s, node);
    else if (node->closeness < closest_bound(s->p, &node->layout) && !is_exhaustive(s))
        look_at_schedule(s, node);
    else
        compile(s, node);
}

/* --- Programs ----------------------------------------------------------------------------------------------------- */

typedef struct {
    Node *node;
    int nodes, room;
    BlockAsks asks;
} Batch;

static void add_to_batch(Planner *p, Batch *batch, const Node *node)
{
    BlockAsk ask[MOST_ASKED];
    if (batch->nodes == batch->room) {
        batch->node = realloc(batch->node, sizeof *batch->node * (size_t)(batch->room = 2 * batch->room + 64));
        if (!batch->node)
            out_of_memory(sizeof *batch->node * (size_t)batch->room);
    }
    batch->node[batch->nodes++] = *node;
    if (means_of(p, node) == BY_PROGRAM)
        add_asks(p, &batch->asks, ask, asked_by(p, node, ask));
}

/* Programs take long, and several processes can look at them.  So the next nodes whose bounds are not much larger than
 * that of the first one look at theirs now.  What is exact waits for its turn. */
static void look_at_programs(Search *s, Node first)
{
    static const double soon = 1.02;
    Batch batch = { 0 };
    push_node(&s->queue, first);
    while (s->queue.count && s->queue.node[0].bound <= first.bound * soon && !are_enough(&batch.asks)) {
        const Node next = pop_node(&s->queue);
        if (means_of(s->p, &next) == BY_ARITHMETIC)
            look_closer(s, &next);
        else
            add_to_batch(s->p, &batch, &next);
    }
    find_programs(s->p, &batch.asks);
    for (int i = 0; i < batch.nodes; i++)
        if (means_of(s->p, &batch.node[i]) == EXACTLY)
            push_node(&s->queue, batch.node[i]);
        else
            look_closer(s, &batch.node[i]);
    free(batch.node);
}

/* On a terminal, what has been found so far, each second from the second one on: a line that end_progress() takes away.
 */
static void show_progress(Search *s)
{
    const time_t now = time(NULL);
    double least = INFINITY;
    if (now == s->shown)
        return;
    s->shown = now;
    if (!isatty(STDERR_FILENO))
        return;
    for (int i = 0; i < s->nfastest; i++)
        least = fmin(least, s->fastest[i]->seconds);
    fprintf(stderr, "\r\033[Klooking at %s: ", counted(s->p->arena, (int64_t)s->answer.tally.all, "layout"));
    if (s->nfastest)
        fprintf(stderr, "the fastest so far takes %.4g s a step", least);
    else
        fprintf(stderr, "%s compiled, none that fits",
                counted(s->p->arena, (int64_t)s->answer.tally.compiled, "program"));
    s->shows = true;
}

static void end_progress(const Search *s)
{
    if (s->shows)
        fputs("\r\033[K", stderr);
}

/* Where bounds are far from what layouts need, nearly all would be compiled. */
static bool is_long(const Search *s)
{
    enum { MOST = 100, MOST_OF_EACH = 10, MOST_IN_VAIN = 400 };
    const double most = s->nfastest ? MOST + MOST_OF_EACH * s->wanted : MOST_IN_VAIN;
    return !is_exhaustive(s) && s->answer.tally.compiled >= most;
}

/* In place of the rest of the search: the fastest that have been compiled. */
static void stop(Search *s)
{
    Answer *answer = &s->answer;
    const int proved = answer->count;
    double least = INFINITY;
    while (s->queue.count) {
        const Node node = pop_node(&s->queue);
        const double layouts = node.level == COMPILED ? 1 : layouts_of(s->p, &node.layout, node.level);
        if (node.level == COMPILED && answer->count < s->wanted)
            take(s, &node);
        else if (node.level == COMPILED || is_among(s, proved, &node.layout))
            answer->tally.slower += layouts;
        else
            answer->tally.open += layouts, least = fmin(least, node.bound);
    }
    answer->gap = proved || !answer->count ? 0 : fmax(0, 1 - least / answer->best[0].seconds);
}

Answer search_layouts(Planner *p, int top)
{
    Search s = { .p = p, .queue.arena = p->arena, .next = MESH, .wanted = top, .shown = time(NULL) };
    const int programs = p->programs;
    s.answer.best = NEW_ARRAY(p->arena, PlanResult, top);
    s.answer.least = INFINITY;
    visit_meshes(p, add_mesh, &s);
    if (!p->is_elastic) {
        const double divisible = s.answer.tally.meshes - s.answer.tally.indivisible;
        s.answer.tally.meshes = count_meshes(p, 0, p->ranks);
        s.answer.tally.indivisible = s.answer.tally.meshes - divisible;
    }
    while (s.queue.count && s.answer.count < top && !is_long(&s)) {
        const Node node = pop_node(&s.queue);
        show_progress(&s);
        if (node.level == COMPILED)
            take(&s, &node);
        else if (means_of(p, &node) == BY_PROGRAM && !is_exhaustive(&s))
            look_at_programs(&s, node);
        else
            look_closer(&s, &node);
    }
    end_tasks(p);
    end_progress(&s);
    if (s.answer.count < top && is_long(&s))
        stop(&s);
    s.answer.tally.programs = p->programs - programs;
    for (int i = 0; i < s.queue.count; i++)
        s.answer.tally.slower +=
            s.queue.node[i].level == COMPILED ? 1 : layouts_of(p, &s.queue.node[i].layout, s.queue.node[i].level);
    sort_answer(&s.answer);
    return s.answer;
}
