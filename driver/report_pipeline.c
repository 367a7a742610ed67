/* report_pipeline.c -- the pipeline of a program: the work of each stage, and the picture of its schedule.
 *
 * A micro-batch is a forward and a backward action on each stage.  Their FLOPs are those of the ops that the stage
 * runs, divided by --gpu-flops; without it, times are relative.  Forward is the loop in stages and what it needs, as in
 * passes/layout/pipeline.c, also where micro-batches run one after the other.
 */
#include "report.h"

#include "map.h"
#include "schedule/slots.h"
#include "stages.h"
#include "uses.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PATHS = 4 }; /* that are listed of a stage */

typedef struct {
    int count;
    Name path[MOST_PATHS + 1];
} Paths;

typedef struct {
    Module *m;
    Arena *arena;
    PipelineReport *p;
    int stages;
    const Op *loop;               /* over micro-batches */
    const Op *forward, *backward; /* of the loop's callee: the loops in stages, or the calls of the halves */
    const Op *weights;            /* of a schedule that divides backward; else NULL */
    Map made_first;               /* ops that `forward` needs, and itself */
    Paths *only;                  /* by stage: ops that no other one runs */
} Survey;

/* --- What belongs to forward, and what to backward -------------------------------------------------- */

static const Op *loop_within(const Module *m, const Op *op)
{
    return runs_in_stages(op) ? op : op->attrs.stages ? stage_loop(find_func(m, op->attrs.callee)) : NULL;
}

/* False: there are not one loop in stages forward and one backward. */
static bool find_halves(Survey *s)
{
    const Func *micro = find_func(s->m, s->loop->attrs.callee);
    for (const Op *op = micro->first; op; op = op->next) {
        const Op *loop = loop_within(s->m, op);
        const bool is_weights = loop && loop->attrs.reverse && !loop->attrs.carried && s->backward;
        const Op **half = is_weights ? &s->weights : loop && loop->attrs.reverse ? &s->backward : &s->forward;
        if (loop && *half)
            return false;
        if (loop)
            *half = op;
    }
    return s->forward && s->backward;
}

/* --- Work -------------------------------------------------------------------------------------------- */

static void note_path(Survey *s, const Op *op, uint64_t stages)
{
    if (!op->path || op->path == s->forward->path || !stages || stages & (stages - 1))
        return;
    Paths *paths = &s->only[__builtin_ctzll(stages)];
    for (int i = 0; i < paths->count; i++)
        if (paths->path[i] == op->path)
            return;
    if (paths->count <= MOST_PATHS)
        paths->path[paths->count++] = op->path;
}

static double copies_on(const Survey *s, const Op *loop, int stage)
{
    return loop ? (double)part_size(s->m, &loop->attrs.dims.dim[0], stage) : 1;
}

/* Adds to the FLOPs of each stage that runs it; `around`: the loop in stages around it, or NULL. */
static void add_op(Survey *s, const Op *op, const Op *around, double times, double *flops)
{
    const Func *callee = op->attrs.callee ? find_func(s->m, op->attrs.callee) : NULL;
    if (callee && callee->role != KERNEL) {
        const double turns = runs_in_stages(op) ? 1 : (double)rank_iterations(s->m, op);
        for (const Op *inner = callee->first; inner; inner = inner->next)
            add_op(s, inner, runs_in_stages(op) ? op : around, times * turns, flops);
        return;
    }
    const uint64_t all = ALL_STAGES >> (64 - s->stages), on = stages_running(s->m, op) & all;
    const double work = op_work(s->m, NULL, op).rank + (callee ? flops_run(s->m, callee) : 0);
    for (int stage = 0; stage < s->stages; stage++)
        flops[stage] += on >> stage & 1 ? work * times * copies_on(s, around, stage) : 0;
    note_path(s, op, on);
}

static void add_work(Survey *s)
{
    const Func *micro = find_func(s->m, s->loop->attrs.callee);
    note_with_operands(&s->made_first, s->forward);
    for (const Op *op = micro->first; op; op = op->next)
        add_op(s, op, NULL, 1,
               op == s->weights              ? s->p->weight
               : map_get(&s->made_first, op) ? s->p->forward
                                             : s->p->backward);
}

/* What a loop in stages carries from one to the next. */
static double carried_bytes(const Survey *s, const Op *half)
{
    const Op *loop = loop_within(s->m, half);
    double bytes = 0;
    for (int i = 0; i < loop->attrs.carried; i++)
        bytes += (double)local_bytes(s->m, &loop->results.at[i]->type);
    return bytes;
}

/* --- Texts ------------------------------------------------------------------------------------------- */

/* "h.0 to h.3", where `h` is the instance that is repeated; of several instances, "layers 0 to 3". */
static const char *slices_text(const Survey *s, int stage)
{
    const Dim *dim = &loop_within(s->m, s->forward)->attrs.dims.dim[0];
    const int64_t first = part_first(s->m, dim, stage), last = first + part_size(s->m, dim, stage) - 1;
    const char *end = strstr(dim->name, ".copy");
    const bool is_copy = end && strcmp(end, ".copy") == 0;
    const char *name = arena_text(s->arena, "%.*s%s", is_copy ? (int)(end - dim->name) : (int)strlen(dim->name),
                                  dim->name, is_copy ? "." : " ");
    if (first == last)
        return arena_text(s->arena, "%s%" PRId64, name, first);
    return arena_text(s->arena, "%s%" PRId64 " to %s%" PRId64, name, first, is_copy ? name : "", last);
}

static const char *contents_text(const Survey *s, int stage)
{
    const Paths *paths = &s->only[stage];
    const char *text = slices_text(s, stage);
    for (int i = 0; i < paths->count && i < MOST_PATHS; i++)
        text = arena_text(s->arena, "%s, %s", text, paths->path[i]);
    return paths->count > MOST_PATHS ? arena_text(s->arena, "%s, ...", text) : text;
}

static const char *title_text(const Report *r)
{
    const Module *m = r->m;
    const char *slash = strrchr(r->run->source.path, '/'), *file = slash ? slash + 1 : r->run->source.path;
    const char *text = arena_text(&r->run->arena, "%s, mesh", file);
    for (int i = 0; i < m->naxes; i++)
        text = arena_text(&r->run->arena, "%s%s%s=%" PRId64, text, i ? "," : " ", m->axis[i], m->axis_size[i]);
    return text;
}

double stage_share(const PipelineReport *p, int stage)
{
    double all = 0;
    for (int i = 0; i < stage_count(p->picture.schedule); i++)
        all += p->forward[i] + p->backward[i] + p->weight[i];
    return all > 0 ? (p->forward[stage] + p->backward[stage] + p->weight[stage]) / all : 0;
}

static void name_stages(Survey *s)
{
    const char **text = NEW_ARRAY(s->arena, const char *, s->stages);
    s->p->contents = NEW_ARRAY(s->arena, const char *, s->stages);
    for (int stage = 0; stage < s->stages; stage++) {
        s->p->contents[stage] = contents_text(s, stage);
        text[stage] =
            arena_text(s->arena, "%s; %.1f %% of FLOPs", s->p->contents[stage], 100 * stage_share(s->p, stage));
    }
    s->p->picture.stage_text = text;
}

/* --- Times -------------------------------------------------------------------------------------------- */

static double number_of(const char *text) { return text ? strtod(text, NULL) : 0; }

static void set_costs(Survey *s, const Options *o)
{
    PipelineReport *p = s->p;
    double *forward = NEW_ARRAY(s->arena, double, s->stages), *backward = NEW_ARRAY(s->arena, double, s->stages);
    double *weight = NEW_ARRAY(s->arena, double, s->stages);
    double speed = number_of(o->gpu_flops);
    int slowest = 0;
    for (int stage = 1; stage < s->stages; stage++)
        slowest = p->forward[stage] > p->forward[slowest] ? stage : slowest;
    if (!o->gpu_flops) {
        speed = p->forward[slowest] > 0 ? p->forward[slowest] : 1;
        p->picture.unit = arena_text(s->arena, "F of stage %d", slowest);
    }
    for (int stage = 0; stage < s->stages; stage++) {
        forward[stage] = p->forward[stage] / speed;
        backward[stage] = p->backward[stage] / speed;
        weight[stage] = p->weight[stage] / speed;
    }
    p->costs = (Costs){ .forward = forward,
                        .backward = backward,
                        .weight = weight,
                        .message = o->link ? p->message_bytes / number_of(o->link) : 0 };
    p->picture.costs = &p->costs;
}

/* --- Memory ------------------------------------------------------------------------------------------- */

/* All ranks allocate the same arena.  What micro-batches in flight hold of it is shown over time, on the stage with
 * most of them all of it; the rest is fixed.  With schedule naive it has no slots, and all is fixed. */
static void set_memory(Survey *s, int64_t arena)
{
    const PipelineSchedule *schedule = s->p->picture.schedule;
    const PipelineSlots *slots = s->loop->attrs.stages ? pipeline_slots(s->m, s->loop) : NULL;
    double *fixed = NEW_ARRAY(s->arena, double, s->stages), *held = NEW_ARRAY(s->arena, double, s->stages), bytes = 0;
    int most = 0;
    for (int i = 0; slots && i < slots->nrings; i++)
        bytes += slots->ring[i].in_flight ? (double)slots->ring[i].bytes : 0;
    for (int stage = 0; stage < s->stages; stage++)
        most = schedule->activations[stage] > most ? schedule->activations[stage] : most;
    for (int stage = 0; stage < s->stages; stage++) {
        fixed[stage] = (double)arena - most * bytes;
        held[stage] = bytes;
    }
    s->p->picture.fixed_bytes = fixed;
    s->p->picture.activation_bytes = held;
}

/* --- The pipeline --------------------------------------------------------------------------------------- */

static PipelineSchedule *schedule_of(Survey *s, const char **why)
{
    const char *help;
    if (s->loop->attrs.stages)
        return pipeline_slots(s->m, s->loop)->schedule;
    PipelineSchedule *schedule =
        make_schedule(s->arena, "naive", s->stages, 1, (int)s->loop->attrs.dims.dim[0].size, why, &help);
    return schedule && order_messages(s->arena, schedule, why) ? schedule : NULL;
}

/* Why there is no picture of this pipeline; NULL: there may be. */
static const char *refusal(Survey *s)
{
    const Func *step = func_with_role(s->m, STEP);
    if (!s->loop && step && stage_loop(step))
        return "train.batch is train.microbatch, and one micro-batch is not scheduled";
    if (!s->loop)
        return "the repeat that runs in stages is inside another one";
    return find_halves(s) ? NULL : "a micro-batch does not pass the stages once forward and once backward";
}

static void fill_in(Survey *s, const Report *r)
{
    TimelinePicture *picture = &s->p->picture;
    const PipelineSchedule *schedule = picture->schedule;
    picture->title = title_text(r);
    picture->axis = s->m->axis[pipeline_axis(s->m)];
    picture->capacity_bytes = number_of(r->run->options->gpu_memory);
    picture->published_bubble = published_bubble(schedule->name, schedule->ranks, schedule->chunks, schedule->micros);
    s->p->forward = NEW_ARRAY(s->arena, double, s->stages);
    s->p->backward = NEW_ARRAY(s->arena, double, s->stages);
    s->p->weight = NEW_ARRAY(s->arena, double, s->stages);
    s->p->message_bytes = fmax(carried_bytes(s, s->forward), carried_bytes(s, s->backward));
    add_work(s);
    name_stages(s);
    set_costs(s, r->run->options);
    set_memory(s, r->memory.arena);
}

PipelineReport *report_pipeline(const Report *r, const char **why)
{
    Arena *arena = &r->run->arena;
    const int axis = pipeline_axis(r->m), stages = axis < 0 ? 0 : (int)r->m->axis_size[axis];
    *why = NULL;
    if (axis < 0)
        return NULL;
    Survey s = { .m = r->m,
                 .arena = arena,
                 .p = NEW(arena, PipelineReport),
                 .stages = stages,
                 .loop = micro_loop(r->m),
                 .made_first.arena = arena,
                 .only = NEW_ARRAY(arena, Paths, stages) };
    *why = refusal(&s);
    if (*why || !(s.p->picture.schedule = schedule_of(&s, why)))
        return NULL;
    fill_in(&s, r);
    return s.p;
}
