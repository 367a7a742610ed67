/* schedules.c -- the pipeline that a layout can have: which ranks share the copies of the repeats, and in which order
 * they run micro-batches. */
#include "planner.h"

#include "schedule/schedule.h"

const char *const schedule_word[N_SCHEDULES] = {
    [ONE_F_ONE_B] = "1f1b", [INTERLEAVED] = "interleaved", [ZB_H1] = "zb", [ZB_V] = "zb"
};

/* --- The statement ---------------------------------------------------------------------------------------------- */

void find_copies_axis(Planner *p)
{
    const Ast *pipeline = statement(p, A_PIPELINE);
    PlanAxis *axis = pipeline ? axis_named(p, pipeline->init->name) : NULL;
    if (axis)
        axis->splits_copies = true, axis->is_batch = false;
}

void say_schedule(const Planner *p, Options *options)
{
    if (p->parallel && statement(p, A_PIPELINE))
        options->schedule = "1f1b", options->chunks = "1";
}

const char *schedule_line(Arena *arena, const Planner *p, const PlanLayout *layout, const Ast *ast)
{
    if (ast->kind != A_PIPELINE)
        return "";
    const char *text = arena_text(arena, "    pipeline %s over %s", list_text(arena, ast->child), ast->init->name);
    if (has_schedule(p, layout))
        text = arena_text(arena, "%s, schedule = %s", text, schedule_word[layout->schedule]);
    if (layout->chunks > 1)
        text = arena_text(arena, "%s, chunks = %d", text, layout->chunks);
    return arena_text(arena, "%s\n", text);
}

PlanLayout layout_on(const Planner *p, Recompute policy, int ranks)
{
    PlanLayout layout = { .microbatch = 1, .recompute = policy, .zero = -1, .chunks = 1 };
    for (int i = 0; i < p->naxes; i++)
        layout.size[i] = p->axis[i].splits_copies ? ranks : 1;
    return layout;
}

/* --- Of a layout ------------------------------------------------------------------------------------------------ */

int64_t copy_ranks(const Planner *p, const PlanLayout *layout)
{
    for (int i = 0; i < p->naxes; i++)
        if (p->axis[i].splits_copies)
            return layout->size[i];
    return 1;
}

bool has_schedule(const Planner *p, const PlanLayout *layout) { return copy_ranks(p, layout) > 1; }

bool divides_backward(const PlanLayout *layout) { return layout->schedule == ZB_H1 || layout->schedule == ZB_V; }

/* --- Enumeration ------------------------------------------------------------------------------------------------ */

bool have_copies(const Planner *p, const PlanLayout *layout)
{
    const int64_t ranks = copy_ranks(p, layout);
    return ranks == 1 || (ranks <= p->copies && ranks <= MAX_SET_RANKS);
}

/* Are there so many chunks and micro-batches?  See schedule.def. */
static bool can_run(const Planner *p, const PlanLayout *layout)
{
    const int64_t stages = copy_ranks(p, layout) * layout->chunks;
    return stages <= p->copies && (layout->schedule != INTERLEAVED || turns_of(p, layout) % copy_ranks(p, layout) == 0);
}

void visit_schedules(const Planner *p, PlanLayout layout, LayoutVisit visit, void *context)
{
    static const struct {
        int least, most;
    } chunks[N_SCHEDULES] = {
        [ONE_F_ONE_B] = { 1, 1 }, [INTERLEAVED] = { 2, MAX_CHUNKS }, [ZB_H1] = { 1, 1 }, [ZB_V] = { 2, 2 }
    };
    layout.schedule = ONE_F_ONE_B, layout.chunks = 1;
    if (!has_schedule(p, &layout)) {
        visit(context, &layout);
        return;
    }
    for (int schedule = 0; schedule < N_SCHEDULES; schedule++)
        for (int count = chunks[schedule].least; count <= chunks[schedule].most; count++) {
            layout.schedule = (PlanSchedule)schedule, layout.chunks = count;
            const int first = schedule == ZB_V ? ZB_H1 : schedule; /* which has its word */
            if (is_kept(p->kept.schedule, first) && is_kept(p->kept.chunks, count) && can_run(p, &layout))
                visit(context, &layout);
        }
}
