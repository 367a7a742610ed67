/* lower.c -- lowering: its steps, in order. */
#include "elaborate/slots.h"
#include "functions/functions.h"
#include "layout/parallel.h"
#include "program.h"
#include "train/train.h"

/* --- All steps ------------------------------------------------------------------------------- */

static void count_calls(const Module *m, Map *calls, const Func *f, int more)
{
    for (const Op *op = f->first; op; op = op->next) {
        const Func *callee = called_by(m, op);
        if (callee)
            map_put(calls, callee, (void *)((intptr_t)map_get(calls, callee) + more));
    }
}

static bool remove_uncalled_once(Module *m, Map *calls)
{
    Func *f = m->funcs;
    bool removed = false;
    while (f && f->next)
        f = f->next;
    for (Func *before; f; f = before) { /* from the last: callers come after their callees */
        before = f->prev;
        if (f->role != PLAIN || map_get(calls, f))
            continue;
        count_calls(m, calls, f, -1);
        remove_func(m, f);
        removed = true;
    }
    return removed;
}

/* Removes the bodies of unused loops. */
static void remove_uncalled(Module *m)
{
    Map calls = { .arena = &m->arena }; /* of each function */
    for (const Func *f = m->funcs; f; f = f->next)
        count_calls(m, &calls, f, 1);
    while (remove_uncalled_once(m, &calls))
        ;
}

static void check_blocks_used(Lower *l)
{
    for (const Symbol *s = l->globals.newest; s && !l->too_many; s = s->next)
        if (s->kind == S_BLOCK && !s->used)
            complain_unused(l, (Where){ .at = s->loc, .help = "call it, or remove it" },
                            arena_text(l->arena, "the block '%s' is never used", s->name));
}

static void lower_functions(Lower *l)
{
    const Func *model = lower_model(l, MODEL);
    bool has_totals = l->now.total_count > 0, predicts = l->now.logits != NULL, writes = l->now.outputs != NULL;
    check_blocks_used(l);
    check_layout(l);
    if (l->diags->errors)
        return;
    check_sum_over_sequences(l, model);
    if (l->diags->errors)
        return;
    const bool is_compiled = !l->options->facts; /* an editor needs the model alone: others repeat its messages */
    if (is_compiled && has_totals)
        lower_model(l, TOTALS);
    decide_decay(l);
    freeze_params(l);
    check_trained_offload(l);
    match_groups(l);
    name_repeats(l);
    if ((is_compiled && !l->options->trains_alone) || l->is_evaluated_otherwise)
        check_sum_over_sequences(l, lower_model(l, EVAL));
    if (is_compiled && predicts && !l->options->trains_alone)
        lower_model(l, PREDICT);
    if (writes && !l->options->trains_alone)
        check_model_outputs(l, lower_model(l, OUTPUTS), model);
    name_routers(l->m);
    cut_pipeline(l);
    remove_uncalled(l->m);
    if (l->diags->errors == 0)
        lower_updates(l);
}

static void lower_file(Lower *l)
{
    declare_all(l);
    if (!l->model)
        return;
    l->observes = has_updates(l, NULL) || holds_slots(l, NULL);
    l->m->name = intern_text(l->m, l->model->name);
    l->m->source = intern_text(l->m, visible_text(l->arena, l->source->path));
    l->m->batch = l->batch ? intern_text(l->m, l->batch->name) : NULL;
    read_layout(l);
    read_settings(l);
    if (l->diags->errors == 0)
        settle_overlap(l);
    lower_functions(l);
    if (l->diags->errors == 0)
        check_defines_used(l);
}

static Module *lower_once(const Ast *file, const Source *source, const LowerOptions *options, Diags *diags,
                          Settings *settings)
{
    Module *m = new_module(diags);
    Lower l = { .m = m,
                .arena = &m->arena,
                .copies.dims.arena = &m->arena,
                .copies.names.arena = &m->arena,
                .copies.numbers.arena = &m->arena,
                .noted.dims.arena = &m->arena,
                .file = file,
                .source = source,
                .options = options,
                .functions = functions,
                .diags = diags,
                .settings = settings };
    m->target = options->target ? options->target : m->target;
    *settings = (Settings){ 0 };
    l.incomplete = diags->errors > 0;
    l.scope = &l.globals;
    l.b.module = m;
    sort_messages(diags); /* settings and the layout are read before the model, wherever they are */
    lower_file(&l);
    if (options->facts)
        finish_facts(&l);
    print_sorted(diags);
    const bool is_whole = !options->facts && !options->trains_alone; /* else nobody will run it */
    if (diags->errors == 0 && (!is_whole || verify_module(m)))
        return m;
    free_module(m);
    return NULL;
}

/* Sizes that other parts of the file depend on may not be shrinkable: then retries without these, if they are known,
 * else with a larger target. */
static Module *lower_shrunk(const Ast *file, const Source *source, const LowerOptions *options, Diags *diags,
                            Settings *settings)
{
    enum { LARGEST = 1 << 20 };
    for (int64_t size = options->shrink; size <= LARGEST;) {
        LowerOptions smaller = *options;
        const int known = options->whole->count;
        Diags silent = { .arena = diags->arena, .source = diags->source, .out = open_discarding() };
        smaller.shrink = size;
        Module *m = lower_once(file, source, &smaller, &silent, settings);
        if (m) {
            m->diags = diags;
            options->whole->others = size;
            return m;
        }
        if (options->whole->count == known)
            size *= 2;
    }
    LowerOptions as_declared = *options;
    as_declared.shrink = options->whole->others = 0;
    return lower_once(file, source, &as_declared, diags, settings);
}

Module *lower_mdl(const Ast *file, const Source *source, const LowerOptions *options, Diags *diags, Settings *settings)
{
    Settings unread = { 0 };
    settings = settings ? settings : &unread;
    return (options->shrink ? lower_shrunk : lower_once)(file, source, options, diags, settings);
}
