/* planner.c -- mpc plan: reads the model and the machine, searches, and answers. */
#include "planner.h"

#include "machine.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { TOP = 10 }; /* layouts that are listed by default */

static const Ast *find_parallel(const Ast *file)
{
    while (file && file->kind != A_PARALLEL)
        file = file->next;
    return file;
}

/* The text around the model's layout. */
static const char *text_without(Arena *arena, const Source *source, const Ast *parallel)
{
    return arena_text(arena, "%.*s%s", parallel->loc.begin, source->text, source->text + parallel->loc.end);
}

static bool read_number(Run *run, const char *option, const char *said, int64_t most, int64_t *number)
{
    char *end;
    const long long value = strtoll(said, &end, 10);
    if (end == said || *end || value < 1 || value > most)
        return run_failed(run, "--%s=%s: a number from 1 to %" PRId64 " is needed", option, said, most);
    *number = value;
    return true;
}

/* GPUs, unless the machine says what only processors have. */
static const char *target_of(const Options *o, const Machine *machine)
{
    return o->target ? o->target : is_said(machine, LINE_elementwise) ? "c" : "cuda";
}

/* The copies that stages share: of the pipeline with two of them.  None: it has fewer, or there is no pipeline. */
static int64_t copies_of(const Planner *p)
{
    Run run = { 0 };
    const char *why;
    PlanLayout two = { .microbatch = 1, .recompute = RECOMPUTE_NONE, .zero = -1, .chunks = 1 };
    int64_t copies = 0;
    for (int i = 0; i < p->naxes; i++)
        two.size[i] = p->axis[i].is_pipeline ? 2 : 1;
    if (pipeline_ranks(p, &two) == 1)
        return 0;
    Module *m = compile_layout(p, &two, 2, &(PassOptions){ .stop_after = "lower" }, &run, &why);
    for (const ShardRule *rule = m ? m->rules : NULL; rule; rule = rule->next)
        copies += copies_along(m, rule->dims.name[0]);
    if (m)
        free_module(m);
    arena_free(&run.arena);
    return copies;
}

static bool read_planner(Planner *p)
{
    Run *run = p->run;
    const Options *o = run->options;
    if (!read_number(run, "ranks", o->ranks, INT32_MAX, &p->ranks))
        return false;
    p->machine = read_machine(run, o->machine);
    if (!p->machine)
        return false;
    if (!connects(p->machine, p->ranks))
        return run_failed(run, "--machine %s: it does not say how %" PRId64 " ranks are connected", o->machine,
                          p->ranks);
    p->memory = o->memory ? strtod(o->memory, NULL) : machine_memory(p->machine);
    return read_source(run, o->operand);
}

static bool read_model(Planner *p)
{
    Run *run = p->run;
    const Ast *file = parse_mdl(&run->source, &run->diags, p->arena);
    Settings settings = { 0 };
    if (run->diags.errors)
        return false;
    p->parallel = find_parallel(file);
    if (!p->parallel)
        return run_failed(run, "%s has no 'parallel' block: write one with the axes that it can have",
                          run->source.path);
    Module *m = lower_ast(run, file, 0, &settings, &run->diags);
    if (!m)
        return false;
    p->rest = text_without(p->arena, &run->source, p->parallel);
    bool good = read_space(p, m);
    p->batch = p->batch ? arena_text(p->arena, "%s", p->batch) : NULL;
    free_module(m);
    p->copies = good ? copies_of(p) : 0;
    if (good)
        prepare_blocks(p);
    return good && read_model_cost(p);
}

int run_plan(Run *run)
{
    const Options *o = run->options;
    Planner p = { .run = run, .arena = &run->arena };
    int64_t top = TOP;
    if (!o->ranks)
        return usage_error(o->command, "on how many ranks? give --ranks N");
    if (!o->machine)
        return usage_error(o->command, "on which machine? give --machine h100, or another one");
    if ((o->top && !read_number(run, "top", o->top, 1000000, &top)) || !read_planner(&p))
        return STATUS_FAILED;
    Options own = *o;
    own.target = target_of(o, p.machine);
    run->options = &own;
    const bool good = read_model(&p);
    if (good) {
        const Answer answer = search_layouts(&p, (int)top);
        (o->json ? print_plan_json : print_plan)(&p, &answer);
    }
    run->options = o;
    return good ? STATUS_OK : STATUS_FAILED;
}
