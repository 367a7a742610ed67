/* report_command.c -- the command `mpc report`: what its options ask for, in order. */
#include "report.h"

#include "manager/pass.h"
#include "model_explorer.h"

static void print_json(const Report *r) { puts(json_text(&r->run->arena, report_json(r), true)); }

/* Options that only a picture obeys, of a pipeline or at least of the step on a machine, where there is none. */
static bool refuse_picture(const Report *r)
{
    static const char none[] = "the program has no pipeline (pipeline NAME over AXIS, in parallel)";
    const Options *o = r->run->options;
    const bool asks = !r->time && o->svg;
    const char *option = asks ? "svg" : o->gpu_flops ? "gpu-flops" : o->link ? "link" : o->actions ? "actions" : NULL;
    return !option || run_failed(r->run, "--%s has no effect: %s%s", option, r->no_picture ? r->no_picture : none,
                                 asks ? "; with --machine NAME|FILE, it draws the timeline of the step" : "");
}

static bool write_picture(const Report *r, const char *path)
{
    NewFile file;
    if (!open_new(r->run, &file, path))
        return false;
    write_timeline_svg(r->picture, file.out);
    return close_new(r->run, &file);
}

/* What --costs and --machine ask for. */
static bool report_costs(Report *r)
{
    const Options *o = r->run->options;
    if (!o->costs && !o->machine)
        return true;
    StepCost *cost = NEW(&r->run->arena, StepCost);
    *cost = step_cost(r->m, &r->classes, &r->run->arena);
    r->cost = cost;
    if (o->costs && !write_costs(r, o->costs))
        return false;
    r->time = o->machine ? time_report(r) : NULL;
    return !o->machine || r->time;
}

static bool report_picture(Report *r)
{
    const Options *o = r->run->options;
    r->pipeline = report_pipeline(r, &r->no_picture);
    const bool is_step = !r->pipeline && r->time && (o->html || o->svg) && !o->actions;
    r->picture = r->pipeline ? &r->pipeline->picture : is_step ? step_picture(r) : NULL;
    return !r->picture ? refuse_picture(r) : !o->svg || write_picture(r, o->svg);
}

static bool report_program(Run *run, Module *m)
{
    Report r = make_report(run, m);
    const char *graphs = run->options->model_explorer;
    if (graphs && !write_model_explorer(run, m, graphs))
        return false;
    if (!report_costs(&r) || !report_picture(&r))
        return false;
    r.remedies = report_remedies(&r);
    r.faster = report_faster(&r);
    if (run->options->html && !write_report_page(&r, run->options->html))
        return false;
    if (run->options->memory_svg && !write_memory_svg(&r, run->options->memory_svg))
        return false;
    (run->options->json ? print_json : print_report_tables)(&r);
    return true;
}

int run_report(Run *run)
{
    const Options *o = run->options;
    if (o->link && !o->gpu_flops)
        return usage_error(o->command, "--link has no effect without --gpu-flops: times are relative");
    if (o->actions && !o->json)
        return usage_error(o->command, "--actions has no effect without --json");
    Module *m = read_source(run, o->operand) ? lower_source(run, 0, NULL) : NULL;
    bool good = m && run_passes(m, &(PassOptions){ 0 }) && report_program(run, m);
    if (m)
        free_module(m);
    return good ? STATUS_OK : STATUS_FAILED;
}
