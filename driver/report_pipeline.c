/* report_pipeline.c -- the pipeline of a program: the work of each stage, and the picture of its schedule.
 *
 * A micro-batch is a forward and a backward action on each stage.  Their FLOPs are those of the ops that the stage
 * runs, divided by --gpu-flops; without it, times are relative.  Forward is what a loop in stages needs, and the loop
 * itself, as in passes/layout/pipeline.c, also where micro-batches run one after the other.
 */
#include "report.h"

#include "map.h"
#include "needed.h"
#include "schedule/slots.h"
#include "split_loop.h"
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
    int ranks, stages;
    const Op *loop; /* over micro-batches */
    MicroParts parts;
    Paths *only; /* by stage: ops that no other rank runs */
} Survey;

/* --- Work -------------------------------------------------------------------------------------------- */

static int stage_of(const Survey *s, const StagePart *part, int rank)
{
    return stage_on_rank(s->p->picture.schedule, rank, part->chunk);
}

static void note_path(Survey *s, const StagePart *part, const Op *op, uint64_t ranks)
{
    bool names_repeat = false;
    for (int i = 0; i < part->nloops; i++)
        names_repeat |= op->path == part->loop[i]->path;
    if (!op->path || names_repeat || !ranks || ranks & (ranks - 1))
        return;
    Paths *paths = &s->only[stage_of(s, part, __builtin_ctzll(ranks))];
    for (int i = 0; i < paths->count; i++)
        if (paths->path[i] == op->path)
            return;
    if (paths->count <= MOST_PATHS)
        paths->path[paths->count++] = op->path;
}

/* Adds to the FLOPs of each stage that runs it, of those that run its function; `around`: the loop in stages around it,
 * or NULL. */
static void add_op(Survey *s, const StagePart *part, const Op *op, const Op *around, uint64_t stages, double times)
{
    double *const flops[] = { s->p->forward, s->p->backward, s->p->weight };
    const Func *callee = op->attrs.callee ? find_func(s->m, op->attrs.callee) : NULL;
    const uint64_t on = stages & ranks_running(s->m, op);
    if (callee && callee->role != KERNEL) {
        const double turns = is_split_loop(op) ? 1 : (double)rank_iterations(s->m, op);
        for (const Op *inner = callee->first; inner; inner = inner->next)
            add_op(s, part, inner, is_split_loop(op) ? op : around, on, times * turns);
        return;
    }
    const double work = (op_work(s->m, NULL, op).rank + (callee ? flops_run(s->m, callee) : 0)) * times;
    for (int rank = 0; rank < s->ranks; rank++) {
        const double copies = around ? (double)part_size(s->m, &around->attrs.dims.dim[0], rank) : 1;
        flops[part->kind][stage_of(s, part, rank)] += on >> rank & 1 ? work * copies : 0;
    }
    note_path(s, part, op, on);
}

static void add_work(Survey *s)
{
    assign_parts(&s->parts);
    for (const Op *op = s->parts.micro->first; op; op = op->next)
        add_op(s, part_numbered(&s->parts, part_of(&s->parts, op)), op, NULL, ranks_of_axis(s->m, s->m->kind_axis), 1);
}

/* The value that this one is a copy of, in its function: itself, if it is none. */
static const Value *copied_value(const Module *m, const Value *value)
{
    const Op *op = value->def;
    const Func *kernel = op && op->attrs.callee ? find_func(m, op->attrs.callee) : NULL;
    if (op && info(op)->traits & COPIES)
        return copied_value(m, arg(op, 0));
    if (!kernel || kernel->role != KERNEL)
        return value;
    const Value *inside = copied_value(m, kernel->results.at[index_of(&op->results, value)]);
    const int param = index_of(&kernel->params, inside);
    return param < 0 ? value : copied_value(m, arg(op, param));
}

/* Do the copies hand on what is carried as it has come, for later ones to read? */
static bool is_handed_on(const Module *m, const Op *loop, int carried)
{
    const Func *body = find_func(m, loop->attrs.callee);
    return copied_value(m, body->results.at[carried]) == body->params.at[carried];
}

/* --- Texts ------------------------------------------------------------------------------------------- */

/* "h.0 to h.3", where `h` is the instance that is repeated; of several instances, "layers 0 to 3".  The number-th
 * repeat of its chunk; NULL: the stage has none of its copies. */
static const char *slices_text(const Survey *s, int stage, int number)
{
    const int rank = rank_of_stage(s->p->picture.schedule, stage);
    const StageCopies c = stage_copies(&s->parts, stage / s->ranks, number, rank);
    const char *name = arena_text(s->arena, "%s%s", c.name, c.is_instance ? "." : " ");
    if (c.count == 0)
        return NULL;
    if (c.count == 1)
        return arena_text(s->arena, "%s%" PRId64, name, c.first);
    return arena_text(s->arena, "%s%" PRId64 " to %s%" PRId64, name, c.first, c.is_instance ? name : "",
                      c.first + c.count - 1);
}

static const char *contents_text(const Survey *s, int stage)
{
    const Paths *paths = &s->only[stage];
    const char *text = NULL;
    for (int i = 0; i < part_doing(&s->parts, FORWARD_ACTION, stage / s->ranks)->nloops; i++) {
        const char *slices = slices_text(s, stage, i);
        text = !slices ? text : text ? arena_text(s->arena, "%s, %s", text, slices) : slices;
    }
    for (int i = 0; i < paths->count && i < MOST_PATHS; i++)
        text = arena_text(s->arena, "%s, %s", text, paths->path[i]);
    return paths->count > MOST_PATHS ? arena_text(s->arena, "%s, ...", text) : text;
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

static void set_costs_by_flops(Survey *s, const Options *o)
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
}

/* The time of each action on --machine; without, its FLOPs. */
static void set_costs(Survey *s, const Report *r)
{
    s->p->picture.costs = &s->p->costs;
    if (r->time)
        s->p->costs = r->time->time.costs;
    else
        set_costs_by_flops(s, r->run->options);
}

/* --- Memory ------------------------------------------------------------------------------------------- */

/* What micro-batches in flight hold of the arena is shown over time; the rest is fixed.  With schedule naive it has no
 * slots, and all is fixed. */
static void set_memory(Survey *s, const MemoryUse *of_kind)
{
    const PipelineSchedule *schedule = s->p->picture.schedule;
    const MicroSlots *slots = s->loop->attrs.stages ? slots_of_loop(s->m, s->loop) : NULL;
    double *fixed = NEW_ARRAY(s->arena, double, s->ranks), *held = NEW_ARRAY(s->arena, double, s->stages);
    for (int i = 0; slots && i < slots->nrings; i++) {
        int64_t bytes[MAX_SET_RANKS];
        slot_bytes(rank_kinds(s->m), slots, i, bytes);
        for (int rank = 0; rank < s->ranks && slots->ring[i].in_flight; rank++)
            held[stage_on_rank(schedule, rank, part_called(&slots->parts, slots->ring[i].call)->chunk)] +=
                (double)aligned_bytes(bytes[rank]);
    }
    for (int rank = 0; rank < s->ranks; rank++) {
        double all = 0;
        for (int chunk = 0; chunk < s->parts.chunks; chunk++) {
            const int stage = stage_on_rank(schedule, rank, chunk);
            all += schedule->activations[stage] * held[stage];
        }
        fixed[rank] = (double)of_kind[rank].arena - all;
    }
    s->p->picture.fixed_bytes = fixed;
    s->p->picture.activation_bytes = held;
}

/* --- The pipeline --------------------------------------------------------------------------------------- */

static void fill_in(Survey *s, const Report *r)
{
    TimelinePicture *picture = &s->p->picture;
    const PipelineSchedule *schedule = picture->schedule;
    picture->title = picture_title(r);
    picture->step = r->time && (r->run->options->html || r->run->options->svg) ? timeline_step(r) : NULL;
    picture->axis = s->m->axis[s->m->kind_axis];
    picture->capacity_bytes = memory_room(r) < INFINITY ? memory_room(r) : 0;
    picture->published_bubble = published_bubble(schedule->name, schedule->ranks, schedule->chunks, schedule->micros);
    s->p->forward = NEW_ARRAY(s->arena, double, s->stages);
    s->p->backward = NEW_ARRAY(s->arena, double, s->stages);
    s->p->weight = NEW_ARRAY(s->arena, double, s->stages);
    s->p->message_bytes = bytes_between_stages(s->m, &s->parts, NULL);
    s->p->handed_on_bytes = bytes_between_stages(s->m, &s->parts, is_handed_on);
    add_work(s);
    name_stages(s);
    set_costs(s, r);
    set_memory(s, r->of_kind);
}

PipelineReport *report_pipeline(const Report *r, const char **why)
{
    Arena *arena = &r->run->arena;
    const int axis = r->m->kind_axis;
    *why = NULL;
    if (axis < 0)
        return NULL;
    Survey s = { .m = r->m, .arena = arena, .p = NEW(arena, PipelineReport), .ranks = (int)r->m->axis_size[axis] };
    s.p->picture.schedule = schedule_of_step(r->m, arena, &s.loop, &s.parts, why);
    if (!s.p->picture.schedule)
        return NULL;
    s.stages = s.ranks * s.parts.chunks;
    s.only = NEW_ARRAY(arena, Paths, s.stages);
    fill_in(&s, r);
    return s.p;
}
