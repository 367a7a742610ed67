/* source.c -- loads the module that a command's operand names. */
#include "driver.h"

#include "codegen/cuda/cuda.h"
#include "codegen/host/host.h"
#include "manager/pass.h"
#include "storage.h"

#include <inttypes.h>
#include <string.h>

static Override *read_overrides(Run *run, const TextList *list)
{
    Override *overrides = NEW_ARRAY(&run->arena, Override, list->count + 1);
    for (int i = 0; i < list->count; i++) {
        const char *equals = strchr(list->at[i], '=');
        overrides[i].name = arena_text(&run->arena, "%.*s", (int)(equals - list->at[i]), list->at[i]);
        overrides[i].value = equals + 1;
    }
    return overrides;
}

static const Target *chosen_target(const Options *o)
{
    return o->target && strcmp(o->target, cuda_target.name) == 0 ? &cuda_target : &c_target;
}

bool is_cuda(const Options *o) { return chosen_target(o) == &cuda_target; }

Module *lower_ast(Run *run, const Ast *file, int64_t shrink, Settings *settings, Diags *diags)
{
    const Options *o = run->options;
    LowerOptions options = { .defines = read_overrides(run, &o->define),
                             .ndefines = o->define.count,
                             .sets = read_overrides(run, &o->set),
                             .nsets = o->set.count,
                             .mesh = o->mesh,
                             .zero = o->zero,
                             .recompute = o->recompute,
                             .offload = o->offload,
                             .schedule = o->schedule,
                             .stages = o->stages,
                             .chunks = o->chunks,
                             .read_text = read_text,
                             .context = run,
                             .target = chosen_target(o),
                             .shrink = shrink,
                             .facts = run->facts,
                             .no_overlap = run->no_overlap,
                             .has_map = run->has_map,
                             .trains_alone = run->trains_alone,
                             .whole = &run->whole };
    return lower_mdl(file, &run->source, &options, diags, settings);
}

static bool settle_recompute(Run *run, const Ast *file, int64_t shrink, Module *m)
{
    if (m->train.recompute != RECOMPUTE_AUTO)
        return true;
    if (!shrink && !choose_saved(run, file, m))
        return false;
    if (shrink && run->saved)
        set_saved_of_small(run, file, shrink, m);
    else
        apply_saved_choice(m, run);
    return true;
}

/* What fits has been chosen for the program in which fewer messages overlap with computation. */
static Module *lower_without_overlap(Run *run, const Ast *file, Module *m, Settings *settings)
{
    free_module(m);
    m = lower_ast(run, file, 0, settings, &run->diags);
    if (m)
        apply_saved_choice(m, run);
    return m;
}

Module *lower_source(Run *run, int64_t shrink, Settings *settings)
{
    const Ast *file = parse_mdl(&run->source, &run->diags, &run->arena);
    Module *m = run->diags.errors ? NULL : lower_ast(run, file, shrink, settings, &run->diags);
    const bool overlaps = !run->no_overlap;
    if (!m || settle_recompute(run, file, shrink, m))
        return overlaps && run->no_overlap ? lower_without_overlap(run, file, m, settings) : m;
    free_module(m);
    return NULL;
}

Module *parse_ir(Run *run)
{
    Module *m = parse_module(&run->source, &run->diags);
    m->target = chosen_target(run->options);
    if (run->diags.errors == 0 && verify_module(m) && verify_memory(m) && verify_kinds(m))
        return m;
    free_module(m);
    return NULL;
}

bool verify_copy(Run *run, VerifyOptions options)
{
    Module *copy = parse_ir(run);
    options.report = stderr;
    options.exact = *run->options->verify_passes;
    bool good = copy && verify_passes(copy, &options);
    if (copy)
        free_module(copy);
    return good;
}

const char *step_text(const Module *m, Totals totals)
{
    Arena *arena = (Arena *)&m->arena;
    const char *all = counted(arena, totals.micro * totals.batch * totals.seq, is_fed_records(m) ? "record" : "token");
    const char *micros = counted(arena, totals.micro, "micro-batch");
    if (is_fed_records(m))
        return arena_text(arena, "%s in %s of %s", all, micros, grouped(arena, totals.batch));
    return arena_text(arena, "%s in %s of %s of %s", all, micros, counted(arena, totals.batch, "sequence"),
                      grouped(arena, totals.seq));
}

static const Setting *setting_named(const Settings *settings, const char *name)
{
    for (int i = 0; i < settings->count; i++)
        if (strcmp(settings->at[i].name, name) == 0)
            return &settings->at[i];
    return NULL;
}

static bool is_default(const Settings *settings, const char *name)
{
    const Setting *setting = setting_named(settings, name);
    return !setting || strcmp(setting->from, "default") == 0;
}

void note_unset_batch(Run *run, const Module *m, const Settings *settings)
{
    if (!m->batch || !is_default(settings, "train.batch") || !is_default(settings, "train.microbatch"))
        return;
    const Totals totals = program_totals((Module *)m);
    const Setting *lr = setting_named(settings, "train.optimizer.lr");
    const bool says_nothing = is_default(settings, "train.optimizer") && lr && is_default(settings, lr->name);
    const char *with = says_nothing ? arena_text(&run->arena, ", with %s at lr = %s",
                                                 setting_named(settings, "train.optimizer")->value, lr->value)
                                    : "";
    fprintf(stderr,
            "mpc: note: %s sets no batch: a step trains on %s%s; write 'train { batch = 64 }', or give --set "
            "train.batch=64\n",
            run->source.path,
            counted(&run->arena, totals.micro * totals.batch, is_fed_records(m) ? "record" : "sequence"), with);
}
