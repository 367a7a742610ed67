/* compiled.c -- a layout compiled: its memory and time as `mpc report --machine` has them. */
#include "planner.h"
#include "report.h"

#include "codegen/host/host.h"
#include "manager/pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The first line of what went wrong, without the place, which is in a text that nobody has. */
static const char *first_message(Arena *arena, const char *messages)
{
    const char *error = strstr(messages, "error: ");
    const char *from = error ? error + strlen("error: ") : messages;
    return *from ? arena_text(arena, "%.*s", (int)strcspn(from, "\n"), from) : "it cannot be compiled";
}

/* The options of the command, with the micro-batches of the layout.  What it offloads is in its block. */
static Options options_of(Arena *arena, const Planner *p, const PlanLayout *layout, int64_t sequences, bool offloads)
{
    Options options = *p->run->options;
    options.offload = offloads ? NULL : "none";
    const TextList without_batch = sets_without(arena, &options.set, "train.batch");
    const TextList without_micro = sets_without(arena, &without_batch, "train.microbatch");
    const TextList set = sets_without(arena, &without_micro, "train.abreast");
    const char **all = NEW_ARRAY(arena, const char *, set.count + 3);
    for (int i = 0; i < set.count; i++)
        all[i] = set.at[i];
    all[set.count] = arena_text(arena, "train.batch=%lld", (long long)sequences);
    all[set.count + 1] = arena_text(arena, "train.microbatch=%lld", (long long)layout->microbatch);
    all[set.count + 2] = arena_text(arena, "train.abreast=%d", lanes_of(layout));
    options.set = (TextList){ .count = set.count + 3, .room = set.count + 3, .at = all };
    return options;
}

bool run_more(Module *m, Run *run, const PassOptions *passes, const char **why)
{
    char *messages = NULL;
    size_t length;
    run->diags.out = open_memory(&messages, &length);
    const bool good = run_passes(m, passes);
    fclose(run->diags.out);
    run->diags.out = stderr;
    *why = good ? NULL : first_message(&run->arena, messages);
    free(messages);
    if (!good)
        free_module(m);
    return good;
}

static Module *compile_with(const Planner *p, const PlanLayout *layout, int64_t sequences, bool offloads,
                            const PassOptions *passes, Run *run, const char **why)
{
    char *messages = NULL;
    size_t length;
    Arena *arena = &run->arena;
    Options *options = NEW(arena, Options);
    *options = options_of(arena, p, layout, sequences, offloads);
    const char *text = arena_text(arena, "%s\n%s", p->rest, layout_block(arena, p, layout));
    run->options = options;
    run->source = (Source){ p->run->source.path, text, (int)strlen(text) };
    run->diags = (Diags){ .arena = arena, .source = &run->source, .out = open_memory(&messages, &length) };
    const Ast *file = parse_mdl(&run->source, &run->diags, arena);
    Module *m = run->diags.errors ? NULL : lower_ast(run, file, 0, NULL, &run->diags);
    fclose(run->diags.out);
    run->diags.out = stderr;
    *why = m ? NULL : first_message(arena, messages);
    free(messages);
    return m && run_more(m, run, passes, why) ? m : NULL;
}

Module *compile_layout(const Planner *p, const PlanLayout *layout, int64_t sequences, const PassOptions *passes,
                       Run *run, const char **why)
{
    return compile_with(p, layout, sequences, false, passes, run, why);
}

/* --- The figures ------------------------------------------------------------------------------------------- */

static void add_exposed(PlanResult *result, Arena *arena, const Module *m, const StepTime *time)
{
    const int most = (int)(sizeof result->exposed / sizeof *result->exposed);
    for (int i = 0; i < time->naxes && result->naxes < most; i++)
        if (time->axes[i].exposed > 0)
            result->exposed[result->naxes++].axes = axes_list(arena, m, time->axes[i].axes),
            result->exposed[result->naxes - 1].exposed = time->axes[i].exposed;
}

static void add_time(const Planner *p, PlanResult *result, Arena *arena, Run *run, Module *m)
{
    const Classes classes = classify_tensors(m);
    const StepCost cost = step_cost(m, &classes, &run->arena);
    const Totals totals = program_totals(m);
    if (cost.unscheduled) {
        result->refused = arena_text(arena, "%s", cost.unscheduled);
        return;
    }
    const StepTime time = step_time(&cost, p->machine, &run->arena);
    result->seconds = time.seconds;
    result->tokens = (double)(totals.micro * totals.batch * totals.seq) / time.seconds;
    result->mfu = totals.flops / time.seconds / machine_flops(p->machine, precision_of(m)) /
                  (double)mesh_ranks(p, &result->layout);
    result->idle = time.idle;
    result->recomputed = time.phase[RECOMPUTED];
    for (int i = 0; i < N_ITEM_KINDS; i++)
        result->parts[i] = time.item[i];
    add_exposed(result, arena, m, &time);
}

/* Of the kind of rank that needs most, as `mpc report` has it. */
static void add_memory(PlanResult *result, Module *m)
{
    Kinds *kinds = rank_kinds(m);
    int64_t *messages = NEW_ARRAY(&m->arena, int64_t, kinds->count);
    message_space(m, kinds->count, messages);
    for (int kind = 0; kind < kinds->count; kind++) {
        const int64_t arena = arena_on(kinds, kind);
        if (arena + messages[kind] <= result->arena + result->beside)
            continue;
        result->arena = arena;
        result->beside = messages[kind];
    }
    result->beside += product_space(m) + transfer_space(m);
}

/* Memory that is planned adds copies to a program, or nothing: it makes none faster. */
static double least_seconds(const Planner *p, Module *m, Run *run)
{
    const Classes classes = classify_tensors(m);
    rank_kinds(m); /* it notes which stages run what */
    const StepCost cost = step_cost(m, &classes, &run->arena);
    const double seconds = cost.unscheduled ? 0 : step_time(&cost, p->machine, &run->arena).seconds;
    m->kinds = NULL, m->needed = NULL; /* of ops that may not be the last */
    return seconds;
}

PlanResult compiled_result(const Planner *p, const PlanLayout *layout, double enough, Arena *arena)
{
    static const PassOptions first = { .unchecked = true, .stop_after = "overlap" };
    static const PassOptions rest = { .unchecked = true, .start_after = "overlap" };
    Run run = { 0 };
    PlanResult result = { .layout = *layout };
    const char *why;
    Module *m = compile_with(p, layout, p->sequences, true, &first, &run, &why);
    result.seconds = m && !isinf(enough) ? least_seconds(p, m, &run) : 0;
    result.is_slower = result.seconds > enough;
    if (result.is_slower) {
        free_module(m);
    } else if (m && run_more(m, &run, &rest, &why)) {
        add_memory(&result, m); /* first: it notes which stages run what */
        add_time(p, &result, arena, &run, m);
        free_module(m);
    } else {
        result.refused = arena_text(arena, "%s", why);
    }
    arena_free(&run.arena);
    return result;
}
