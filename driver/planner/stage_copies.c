/* stage_copies.c -- the stages of a layout's pipeline: which copies of the repeats they have (stage_shares.h), and of
 * how many of them activations are kept at once. */
#include "pipeline.h"

#include "layout/stage_shares.h"

#include <math.h>
#include <string.h>

/* --- What stages share ----------------------------------------------------------------------------------------- */

/* A param, and the stages that have it; if it is not of copies. */
typedef struct EndParam {
    const char *name;
    int ends; /* see ends_with() */
    struct EndParam *next;
} EndParam;

/* What is computed between two repeats is on the stage where the first of them ends. */
static bool has_work_between(const RepeatLoads *w)
{
    for (int i = 1; i < w->repeats; i++)
        if (w->beside[i] > 0)
            return true;
    return false;
}

/* Of a pipeline of two stages that is laid out. */
static void read_ends(Planner *p, const Module *m)
{
    const Func *step = func_with_role(m, STEP);
    for (int i = 0; i < step->params.count; i++) {
        const Value *value = step->params.at[i];
        const uint64_t on = value->type.on.at;
        if (value->port.kind != PORT_PARAM)
            continue;
        EndParam *end = NEW(p->arena, EndParam);
        *end = (EndParam){ arena_text(p->arena, "%s", value->port.of), on ? (int)on : ON_FIRST | ON_LAST,
                           p->blocks->copies->ends };
        p->blocks->copies->ends = end;
    }
}

int ends_with(const Planner *p, Name param)
{
    for (const EndParam *end = p->blocks->copies->ends; end; end = end->next)
        if (strcmp(end->name, param) == 0)
            return end->ends;
    return 0;
}

static void read_loads(Planner *p, Recompute policy)
{
    Run run = { .trains_alone = true };
    const char *why;
    RepeatLoads *loads = &p->blocks->copies->loads[policy];
    const PlanLayout two = layout_on(p, policy, 2);
    const PassOptions passes = { .stop_after = "recompute", .unchecked = true };
    if (!has_schedule(p, &two)) /* it is one rank */
        return;
    Module *m = compile_layout(p, &two, 2, &passes, &run, &why);
    for (int i = 0; m && i < m->naxes && !loads->repeats; i++)
        *loads = weigh_repeats(m, i);
    for (int i = 0; i < loads->repeats; i++)
        loads->dim[i] = arena_text(p->arena, "%s", loads->dim[i]);
    if (m && loads->repeats && policy == RECOMPUTE_NONE && !has_work_between(loads)) {
        const PassOptions more = { .start_after = "recompute", .stop_after = "layout", .unchecked = true };
        m = run_more(m, &run, &more, &why) ? m : NULL;
        if (m)
            read_ends(p, m);
    }
    if (m)
        free_module(m);
    arena_free(&run.arena);
}

void prepare_blocks(Planner *p)
{
    static const Recompute policies[] = { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };
    p->blocks = NEW(p->arena, BlockCache);
    p->blocks->copies = NEW(p->arena, CopyCache);
    for (int i = 0; i < 3 && !p->mixes; i++)
        read_loads(p, policies[i]);
    p->copies = all_copies(loads_of(p, RECOMPUTE_NONE));
}

const RepeatLoads *loads_of(const Planner *p, Recompute policy) { return &p->blocks->copies->loads[policy]; }

/* One repeat: the copies of each stage of a rank, see stage_balance.c. */
static void share_one(const RepeatLoads *w, const PlanLayout *layout, int ranks, int64_t *copies)
{
    ChunkLoads c = { .ranks = ranks, .count = layout->chunks, .loads = w };
    int64_t part[MAX_CHUNKS][MAX_SET_RANKS];
    for (int chunk = 0; chunk < c.count; chunk++) {
        c.copies[chunk] = w->copies[0] / c.count + (chunk < w->copies[0] % c.count);
        c.reversed[chunk] = layout->schedule == ZB_V && chunk % 2;
    }
    share_chunks(&c, part);
    for (int chunk = 0; chunk < c.count; chunk++)
        for (int i = 0; i < ranks; i++)
            copies[chunk * ranks + i] = part[chunk][c.reversed[chunk] ? ranks - 1 - i : i];
}

/* Several in chunks. */
static void share_evenly(int64_t all, int stages, int64_t *copies)
{
    for (int i = 0; i < stages; i++)
        copies[i] = all / stages + (i >= stages - all % stages);
}

static void share_stages(const Planner *p, const PlanLayout *layout, int64_t *copies)
{
    const RepeatLoads *w = loads_of(p, layout->recompute);
    const int ranks = (int)copy_ranks(p, layout);
    Arena arena = { 0 };
    if (w->repeats == 1)
        share_one(w, layout, ranks, copies);
    else if (w->repeats > 1 && layout->chunks == 1)
        share_repeats(&arena, w, ranks, copies);
    else
        share_evenly(p->copies, ranks * layout->chunks, copies);
    arena_free(&arena);
}

/* --- Pipelines ------------------------------------------------------------------------------------------------- */

/* Of no more micro-batches than can be in flight and as many again: more change nothing of what stages keep.  Those
 * abreast are one for a schedule. */
static int micros_in_flight(const Planner *p, const PlanLayout *layout)
{
    const int64_t most = 4 * copy_ranks(p, layout), micros = turns_of(p, layout);
    return (int)(micros < most ? micros : most);
}

/* Micro-batches between an action of that kind of a stage and another one, at most. */
static int in_flight(const PipelineSchedule *s, int rank, int stage, ActionKind made, ActionKind read)
{
    int now = 0, most = 0;
    for (int i = 0; i < s->nactions[rank]; i++) {
        const Action *a = &s->action[rank][i];
        now += a->stage == stage && a->kind == made;
        most = now > most ? now : most;
        now -= a->stage == stage && a->kind == read;
    }
    return most;
}

/* Stages have the copies of the repeats in the order of the model. */
static RankCopies *copies_by_repeat(Arena *arena, const RepeatLoads *w, const Pipeline *pipeline)
{
    const int stages = pipeline->ranks * pipeline->chunks;
    RankCopies *of_stage = NEW_ARRAY(arena, RankCopies, stages);
    int repeat = 0;
    int64_t left = w->copies[0];
    for (int stage = 0; stage < stages; stage++)
        for (int64_t copies = pipeline->copies[stage]; copies > 0 && repeat < w->repeats;) {
            const int64_t next = copies < left ? copies : left;
            of_stage[stage].copies[repeat] += (double)next;
            copies -= next, left -= next;
            if (left == 0)
                left = ++repeat < w->repeats ? w->copies[repeat] : 0;
        }
    return of_stage;
}

static void add_copies(RankCopies *sum, const RankCopies *copies, double times)
{
    for (int i = 0; i < MAX_REPEATS; i++)
        sum->copies[i] += copies->copies[i] * times;
}

static void count_copies(Planner *p, Pipeline *pipeline)
{
    static const ActionKind made[N_KEPT] = { FORWARD_ACTION, FORWARD_ACTION, BACKWARD_ACTION };
    static const ActionKind read[N_KEPT] = { BACKWARD_ACTION, WEIGHT_ACTION, WEIGHT_ACTION };
    const PipelineSchedule *s = pipeline->schedule;
    const RankCopies *of_stage = pipeline->of_stage =
        copies_by_repeat(p->arena, loads_of(p, pipeline->recompute), pipeline);
    pipeline->held = NEW_ARRAY(p->arena, RankCopies, pipeline->ranks);
    for (int kind = 0; kind < (s->splits_backward ? N_KEPT : 1); kind++)
        pipeline->kept[kind] = NEW_ARRAY(p->arena, RankCopies, pipeline->ranks);
    for (int rank = 0; rank < pipeline->ranks; rank++)
        for (int chunk = 0; chunk < pipeline->chunks; chunk++) {
            const int stage = stage_on_rank(s, rank, chunk);
            add_copies(&pipeline->held[rank], &of_stage[stage], 1);
            for (int kind = 0; kind < (s->splits_backward ? N_KEPT : 1); kind++)
                add_copies(&pipeline->kept[kind][rank], &of_stage[stage],
                           in_flight(s, rank, stage, made[kind], read[kind]));
        }
}

static double copies_kept(const Pipeline *pipeline, int kind, int rank, int repeat)
{
    return pipeline->kept[kind] ? pipeline->kept[kind][rank].copies[repeat] : 0;
}

/* Has a rank no more of anything than one of another pipeline, or of the same? */
static bool has_no_more(const Pipeline *pipeline, int rank, const Pipeline *than, int other)
{
    bool good = true;
    for (int i = 0; i < MAX_REPEATS; i++) {
        good &= pipeline->held[rank].copies[i] <= than->held[other].copies[i];
        for (int kind = 0; kind < N_KEPT; kind++)
            good &= copies_kept(pipeline, kind, rank, i) <= copies_kept(than, kind, other, i);
    }
    return good;
}

/* Whatever the bytes of a copy, one of these ranks has most: mostly it is the first one alone. */
static void find_fullest(Planner *p, Pipeline *pipeline)
{
    pipeline->fullest = NEW_ARRAY(p->arena, int, pipeline->ranks);
    for (int rank = 0; rank < pipeline->ranks; rank++) {
        bool is_full = true;
        for (int i = 0; i < pipeline->nfullest; i++)
            is_full = is_full && !has_no_more(pipeline, rank, pipeline, pipeline->fullest[i]);
        if (is_full)
            pipeline->fullest[pipeline->nfullest++] = rank;
    }
}

static void count_ahead(Planner *p, Pipeline *pipeline)
{
    const PipelineSchedule *s = pipeline->schedule;
    pipeline->ahead = NEW_ARRAY(p->arena, int, s->ranks * s->chunks);
    pipeline->turn = NEW_ARRAY(p->arena, int, s->ranks);
    for (int rank = 0; rank < s->ranks; rank++) {
        const Action *action = s->action[rank];
        int i = 0;
        for (; action[i].kind == FORWARD_ACTION; i++)
            for (int chunk = 0; chunk < s->chunks; chunk++)
                pipeline->ahead[rank * s->chunks + chunk] += stage_on_rank(s, rank, chunk) == action[i].stage;
        pipeline->turn[rank] = action[i].stage;
    }
}

PipelineSchedule *make_plan_schedule(Arena *arena, const PlanLayout *layout, int ranks, int micros)
{
    static const char *const names[N_SCHEDULES] = { "1f1b", "interleaved", "zb-h1", "zb-v" };
    const char *why, *help;
    return make_schedule(arena, names[layout->schedule], ranks, layout->chunks, micros, &why, &help);
}

static void fill_pipeline(Planner *p, const PlanLayout *layout, Pipeline *pipeline)
{
    pipeline->schedule = make_plan_schedule(p->arena, layout, pipeline->ranks, pipeline->micros);
    if (!pipeline->schedule)
        return;
    pipeline->first = rank_of_stage(pipeline->schedule, 0);
    pipeline->last = rank_of_stage(pipeline->schedule, stage_count(pipeline->schedule) - 1);
    share_stages(p, layout, pipeline->copies);
    count_copies(p, pipeline);
    find_fullest(p, pipeline);
    count_ahead(p, pipeline);
}

static StageCosts *new_costs(Arena *arena, int stages)
{
    StageCosts *costs = NEW(arena, StageCosts);
    for (int kind = 0; kind < N_ACTION_KINDS; kind++)
        costs->seconds[kind] = NEW_ARRAY(arena, double, stages);
    costs->back = NEW_ARRAY(arena, double, stages);
    costs->forward_before = NEW_ARRAY(arena, double, stages + 1);
    costs->back_before = NEW_ARRAY(arena, double, stages + 1);
    return costs;
}

const Pipeline *find_pipeline(Planner *p, const PlanLayout *layout)
{
    const int ranks = (int)copy_ranks(p, layout), micros = micros_in_flight(p, layout);
    const int hash =
        (((ranks * 127 + micros) * 31 + layout->chunks) * 4 + (int)layout->schedule) * 4 + (int)layout->recompute;
    Pipeline **first = &p->blocks->copies->pipelines[(unsigned)hash % PIPELINE_LISTS];
    for (const Pipeline *known = *first; known; known = known->next)
        if (known->kind == layout->schedule && known->ranks == ranks && known->chunks == layout->chunks &&
            known->micros == micros && known->recompute == layout->recompute)
            return known;
    const int stages = ranks * layout->chunks;
    Pipeline *made = NEW(p->arena, Pipeline);
    *made = (Pipeline){ .kind = layout->schedule,
                        .ranks = ranks,
                        .chunks = layout->chunks,
                        .micros = micros,
                        .recompute = layout->recompute,
                        .copies = NEW_ARRAY(p->arena, int64_t, stages),
                        .costs = new_costs(p->arena, stages),
                        .next = *first };
    *first = made;
    fill_pipeline(p, layout, made);
    return made;
}

static double bytes_of(const RepeatLoads *w, const RankCopies *copies, const double *bytes)
{
    double sum = 0;
    for (int i = 0; i < w->repeats; i++)
        sum += copies->copies[i] * bytes[i];
    return sum;
}

/* Of the state that is beside copies. */
static double bytes_at_ends(const Pipeline *pipeline, int rank, const CopyBytes *bytes)
{
    const bool is_first = rank == pipeline->first, is_last = rank == pipeline->last;
    return (is_first ? bytes->first : 0) + (is_last ? bytes->last : 0) + (is_first || is_last ? bytes->ends : 0);
}

static double bytes_of_all(const RepeatLoads *w, const CopyBytes *bytes)
{
    double sum = bytes->others;
    for (int i = 0; i < w->repeats; i++)
        sum += (double)w->copies[i] * (bytes->held[i] + bytes->kept[FOR_BACKWARD][i]);
    return sum;
}

static double bytes_on_rank(const RepeatLoads *w, const Pipeline *pipeline, int rank, const CopyBytes *bytes)
{
    double all = bytes->others + bytes_of(w, &pipeline->held[rank], bytes->held) + bytes_at_ends(pipeline, rank, bytes);
    for (int kind = 0; kind < N_KEPT; kind++)
        all += pipeline->kept[kind] ? bytes_of(w, &pipeline->kept[kind][rank], bytes->kept[kind]) : 0;
    return all;
}

static double bytes_in_pipeline(const RepeatLoads *w, const Pipeline *pipeline, const CopyBytes *bytes)
{
    double most = 0;
    if (!pipeline->schedule)
        return bytes->others;
    for (int i = 0; i < pipeline->nfullest; i++)
        most = fmax(most, bytes_on_rank(w, pipeline, pipeline->fullest[i], bytes));
    most = fmax(most, bytes_on_rank(w, pipeline, pipeline->first, bytes));
    return fmax(most, bytes_on_rank(w, pipeline, pipeline->last, bytes));
}

double bytes_of_last(Planner *p, const PlanLayout *layout, const CopyBytes *bytes)
{
    const Pipeline *pipeline = find_pipeline(p, layout);
    return pipeline->schedule ? bytes_on_rank(loads_of(p, layout->recompute), pipeline, pipeline->last, bytes) : 0;
}

double most_of_copies(Planner *p, const PlanLayout *layout, const CopyBytes *bytes)
{
    const RepeatLoads *w = loads_of(p, layout->recompute);
    return has_schedule(p, layout) ? bytes_in_pipeline(w, find_pipeline(p, layout), bytes) : bytes_of_all(w, bytes);
}

/* --- Of any schedule ---------------------------------------------------------------------------------------------- */

/* Of the pipelines that a layout can have with its ranks and micro-batches, those that others are not better than:
 * whatever the bytes of a copy, one of them has the least on its fullest rank. */
typedef struct LeanPipelines {
    int ranks, micros;
    bool is_even; /* micro-batches are a multiple of the ranks: see visit_schedules() */
    Recompute recompute;
    int count;
    const Pipeline *pipeline[MOST_SCHEDULES];
    struct LeanPipelines *next;
} LeanPipelines;

static bool is_no_fuller(const Pipeline *pipeline, const Pipeline *than)
{
    bool good = has_no_more(pipeline, pipeline->first, than, than->first) &&
                has_no_more(pipeline, pipeline->last, than, than->last) &&
                (pipeline->first != pipeline->last || than->first == than->last);
    for (int i = 0; i < pipeline->nfullest && good; i++) {
        bool is_reached = false;
        for (int k = 0; k < than->nfullest; k++)
            is_reached = is_reached || has_no_more(pipeline, pipeline->fullest[i], than, than->fullest[k]);
        good &= is_reached;
    }
    return good;
}

typedef struct {
    Planner *p;
    LeanPipelines *lean;
} Leaning;

static void note_split_loop(void *context, const PlanLayout *layout)
{
    const Leaning *leaning = context;
    LeanPipelines *lean = leaning->lean;
    const Pipeline *pipeline = find_pipeline(leaning->p, layout);
    int kept = 0;
    for (int i = 0; i < lean->count; i++)
        if (is_no_fuller(lean->pipeline[i], pipeline))
            return;
    for (int i = 0; i < lean->count; i++)
        if (!is_no_fuller(pipeline, lean->pipeline[i]))
            lean->pipeline[kept++] = lean->pipeline[i];
    lean->pipeline[kept++] = pipeline;
    lean->count = kept;
}

static const LeanPipelines *find_lean(Planner *p, const PlanLayout *layout)
{
    const int ranks = (int)copy_ranks(p, layout), micros = micros_in_flight(p, layout);
    const bool is_even = turns_of(p, layout) % ranks == 0;
    const unsigned hash = (unsigned)(micros * 131 + ranks * 8 + (int)layout->recompute * 2 + is_even) % PIPELINE_LISTS;
    LeanPipelines **first = &p->blocks->copies->lean[hash];
    for (const LeanPipelines *known = *first; known; known = known->next)
        if (known->ranks == ranks && known->micros == micros && known->is_even == is_even &&
            known->recompute == layout->recompute)
            return known;
    LeanPipelines *made = NEW(p->arena, LeanPipelines);
    *made = (LeanPipelines){
        .ranks = ranks, .micros = micros, .is_even = is_even, .recompute = layout->recompute, .next = *first
    };
    visit_schedules(p, *layout, note_split_loop, &(Leaning){ p, made });
    return *first = made;
}

double least_of_copies(Planner *p, const PlanLayout *layout, const CopyBytes *bytes)
{
    const RepeatLoads *w = loads_of(p, layout->recompute);
    double least = INFINITY;
    if (!has_schedule(p, layout))
        return bytes_of_all(w, bytes);
    const LeanPipelines *lean = find_lean(p, layout);
    for (int i = 0; i < lean->count; i++)
        least = fmin(least, bytes_in_pipeline(w, lean->pipeline[i], bytes));
    return isinf(least) ? bytes->others : least;
}
