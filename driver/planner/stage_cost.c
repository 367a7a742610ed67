/* stage_cost.c -- the actions of a pipeline, made of the parts of a micro-batch with the copies that its stages have
 * (share_copies.h), and how long the schedule of them takes. */
#include "block.h"

#include "layout/share_copies.h"

#include <math.h>

/* --- What stages share ----------------------------------------------------------------------------------------- */

static void read_weights(Planner *p, Recompute policy)
{
    Run run = { 0 };
    const char *why;
    StageWeights *weights = &p->blocks->weights[policy];
    PlanLayout two = { .microbatch = 1, .recompute = policy, .zero = -1, .chunks = 1 };
    for (int i = 0; i < p->naxes; i++)
        two.size[i] = p->axis[i].is_pipeline ? 2 : 1;
    const PassOptions passes = { .stop_after = "recompute", .unchecked = true };
    Module *m = compile_layout(p, &two, 2, &passes, &run, &why);
    *weights = m ? weigh_stages(m) : (StageWeights){ 0 };
    for (int i = 0; i < weights->repeats; i++)
        weights->dim[i] = arena_text(p->arena, "%s", weights->dim[i]);
    if (m)
        free_module(m);
    arena_free(&run.arena);
}

void prepare_blocks(Planner *p)
{
    static const Recompute policies[] = { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };
    p->blocks = NEW(p->arena, BlockCache);
    for (int i = 0; i < 3 && p->copies; i++)
        read_weights(p, policies[i]);
}

const StageWeights *stage_weights(const Planner *p, Recompute policy) { return &p->blocks->weights[policy]; }

/* One repeat: the copies of each stage of a rank, see balance.c. */
static void share_one(const StageWeights *w, const PlanLayout *layout, int ranks, int64_t *copies)
{
    ChunkLoads c = { .ranks = ranks, .count = layout->chunks, .copy = w->copy[0] > 0 ? w->copy[0] : 1 };
    int64_t part[MAX_CHUNKS][MAX_STAGE_RANKS];
    for (int chunk = 0; chunk < c.count; chunk++) {
        c.copies[chunk] = w->copies[0] / c.count + (chunk < w->copies[0] % c.count);
        c.reversed[chunk] = layout->schedule == ZB_V && chunk % 2;
    }
    const int last = c.count - 1;
    c.beside[0][0] += w->beside[0];
    c.beside[last][c.reversed[last] ? 0 : ranks - 1] += w->beside[1];
    share_chunks(&c, part);
    for (int chunk = 0; chunk < c.count; chunk++)
        for (int i = 0; i < ranks; i++)
            copies[chunk * ranks + i] = part[chunk][c.reversed[chunk] ? ranks - 1 - i : i];
}

/* Several: as a sequence of copies; in chunks about evenly. */
static void share_several(Arena *arena, const StageWeights *w, int64_t all, int stages, bool evenly, int64_t *copies)
{
    double *flops = NEW_ARRAY(arena, double, all);
    int64_t at = 0;
    flops[0] = w->beside[0];
    for (int i = 0; i < w->repeats; i++) {
        for (int64_t copy = 0; copy < w->copies[i]; copy++)
            flops[at++] += w->copy[i] > 0 ? w->copy[i] : 1;
        flops[at - 1] += w->beside[i + 1];
    }
    for (int i = 0; i < stages; i++)
        copies[i] = all / stages + (i >= stages - all % stages);
    if (!evenly)
        share_copies(arena, flops, all, stages, copies);
}

/* --- The actions of a pipeline ------------------------------------------------------------------------------------ */

/* Of a micro-batch, by stage. */
typedef struct {
    double seconds[N_ACTION_KINDS][MAX_STAGES];
    double saved[MAX_STAGES]; /* bytes */
} StageCosts;

/* Each stage has the next copies of the repeats, and what is beside those that begin or end there. */
static void fill_stages(const Block *b, const StageWeights *w, ActionKind kind, int stages, const int64_t *copies,
                        double *seconds)
{
    int repeat = 0;
    int64_t left = w->copies[0];
    seconds[0] = b->beside[kind][0];
    for (int stage = 0; stage < stages; stage++)
        for (int64_t i = 0; i < copies[stage]; i++) {
            seconds[stage] += b->copy[kind][repeat];
            if (--left == 0) {
                seconds[stage] += b->beside[kind][++repeat];
                left = repeat < w->repeats ? w->copies[repeat] : -1;
            }
        }
}

static void fill_saved(const Block *b, const StageWeights *w, int stages, const int64_t *copies, double *saved)
{
    int repeat = 0;
    int64_t left = w->copies[0];
    for (int stage = 0; stage < stages; stage++)
        for (int64_t i = 0; i < copies[stage]; i++) {
            saved[stage] += b->saved[repeat];
            if (--left == 0 && repeat + 1 < w->repeats)
                left = w->copies[++repeat];
        }
}

static double message_between(const Planner *p, const PlanLayout *layout, double bytes)
{
    Axes axes = 0;
    for (int i = 0; i < p->naxes; i++)
        axes |= p->axis[i].is_pipeline ? 1u << i : 0;
    const Group group = group_along(p->machine, layout->size, p->naxes, axes);
    return message_seconds(p->machine, OP_send, bytes, (Group){ 2, group.on_one_machine == group.ranks ? 2 : 1 });
}

/* A rank begins when the first micro-batch has come to it, and what it hands back of the last one, if that is known,
 * goes through the ranks before it. */
static double busiest(const PipelineSchedule *s, double micros, const StageCosts *stages, bool hands_back)
{
    double most = 0, around = 0;
    for (int rank = 0; rank < s->ranks; rank++) {
        const int first = stage_on_rank(s, rank, 0);
        double work = 0;
        for (int chunk = 0; chunk < s->chunks; chunk++) {
            const int stage = stage_on_rank(s, rank, chunk);
            for (ActionKind kind = 0; kind < N_ACTION_KINDS; kind++)
                work += stages->seconds[kind][stage];
        }
        most = fmax(most, around + work * micros);
        around += stages->seconds[FORWARD_ACTION][first] + (hands_back ? stages->seconds[BACKWARD_ACTION][first] : 0);
    }
    return most;
}

/* Made once for all layouts with the same numbers; NULL: there is none. */
typedef struct Generated {
    PlanSchedule kind;
    int ranks, chunks, micros;
    PipelineSchedule *schedule;
    struct Generated *next;
} Generated;

/* Of no more micro-batches than can be in flight and as many again: more change nothing of what stages keep. */
static int micros_in_flight(const Planner *p, const PlanLayout *layout)
{
    const int64_t most = 4 * pipeline_ranks(p, layout), micros = micro_batches(p, layout);
    return (int)(micros < most ? micros : most);
}

static const PipelineSchedule *schedule_of(Planner *p, const PlanLayout *layout)
{
    static const char *const names[N_SCHEDULES] = { "1f1b", "interleaved", "zb-h1", "zb-v" };
    const Generated like = {
        layout->schedule, (int)pipeline_ranks(p, layout), layout->chunks, micros_in_flight(p, layout), NULL, NULL
    };
    const char *why, *help;
    for (const Generated *g = p->blocks->generated; g; g = g->next)
        if (g->kind == like.kind && g->ranks == like.ranks && g->chunks == like.chunks && g->micros == like.micros)
            return g->schedule;
    Generated *made = NEW(p->arena, Generated);
    *made = like;
    made->next = p->blocks->generated, p->blocks->generated = made;
    made->schedule = make_schedule(p->arena, names[like.kind], like.ranks, like.chunks, like.micros, &why, &help);
    if (made->schedule && !order_messages(p->arena, made->schedule, &why))
        made->schedule = NULL;
    return made->schedule;
}

/* What micro-batches keep on the rank that keeps most. */
static double most_saved(const PipelineSchedule *schedule, const StageCosts *s)
{
    double most = 0;
    for (int rank = 0; rank < schedule->ranks; rank++) {
        double saved = 0;
        for (int chunk = 0; chunk < schedule->chunks; chunk++) {
            const int stage = stage_on_rank(schedule, rank, chunk);
            saved += s->saved[stage] * schedule->activations[stage];
        }
        most = fmax(most, saved);
    }
    return most;
}

/* Simulated, unless there are so many micro-batches that stages fill and drain in a small share of the time. */
BlockBound bound_of_pipeline(Planner *p, const PlanLayout *layout, const Block *b, bool simulate)
{
    const StageWeights *w = stage_weights(p, layout->recompute);
    const int ranks = (int)pipeline_ranks(p, layout), stages = ranks * layout->chunks;
    const PipelineSchedule *schedule = schedule_of(p, layout);
    int64_t copies[MAX_STAGES];
    Arena arena = { 0 };
    BlockBound bound = { 0, 0 };
    if (!schedule || !w->repeats)
        return bound;
    if (w->repeats == 1)
        share_one(w, layout, ranks, copies);
    else
        share_several(&arena, w, p->copies, stages, layout->chunks > 1, copies);
    StageCosts *s = NEW(&arena, StageCosts);
    for (ActionKind kind = 0; kind < N_ACTION_KINDS; kind++)
        fill_stages(b, w, kind, stages, copies, s->seconds[kind]);
    fill_saved(b, w, stages, copies, s->saved);
    const Costs costs = { s->seconds[FORWARD_ACTION], s->seconds[BACKWARD_ACTION], s->seconds[WEIGHT_ACTION],
                          message_between(p, layout, b->handed_on) };
    Timeline timeline;
    bound.memory = most_saved(schedule, s);
    const bool is_alike = b->of.is_divided == schedule->splits_backward; /* else it is known what both parts take */
    bound.seconds = busiest(schedule, (double)micro_batches(p, layout), s, is_alike);
    if (simulate && is_alike && schedule->micros == micro_batches(p, layout) &&
        simulate_schedule(&arena, schedule, &costs, &timeline))
        bound.seconds = timeline.makespan;
    arena_free(&arena);
    return bound;
}
