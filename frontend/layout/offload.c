/* offload.c -- `parallel { }`: offload, which tensors are in another tier of memory than the device's. */
#include "lower/expr.h"
#include "parallel.h"
#include "ports.h"
#include "target.h"

#include <inttypes.h>
#include <string.h>

static const char *const tiers[] = { "host", "disk", NULL };
static const char *const classes[] = { "optimizer", "params", "activations", NULL };

/* The setting of a class; NULL: there is none of this name, and a message says so. */
static Tier *setting_of(Lower *l, const Ast *name)
{
    Train *t = &l->m->train;
    Tier *const settings[] = { &t->offload_optimizer, &t->offload_params, &t->offload_activations };
    if (strcmp(name->name, "gradients") == 0)
        return complain(
                   l, (Where){ .at = name->loc, .help = "train { grad_storage = bf16 }, or zero 2 over several ranks" },
                   "gradients cannot be offloaded: the backward pass of each micro-batch adds to all of them"),
               NULL;
    const char *word = read_word(l, "part of a trainer to offload", classes, name, NULL, NULL);
    for (int i = 0; word && classes[i]; i++)
        if (strcmp(word, classes[i]) == 0)
            return settings[i];
    return NULL;
}

static void read_classes(Lower *l, const Ast *names, Tier tier)
{
    for (const Ast *name = names; name; name = name->next) {
        Tier *setting = setting_of(l, name);
        if (setting)
            *setting = tier;
    }
    check_given_once(l, names);
}

static Tier read_tier(Lower *l, const Ast *ast)
{
    const Ast name = { .kind = A_NAME, .loc = ast->name_loc, .name = ast->name };
    const char *word = read_word(l, "tier of memory", tiers, &name, NULL, NULL);
    const Tier tier = word ? WORD_OF(Tier, word) : ON_DEVICE;
    if (tier == ON_HOST && !l->m->target->is_gpu)
        complain(l, (Where){ .at = ast->name_loc, .help = "disk" },
                 "a trainer for processors has its tensors on the host already");
    if (tier == ON_DISK && l->m->target->is_gpu)
        complain(l, (Where){ .at = ast->name_loc, .help = "host" }, "trainers for GPUs cannot offload to disk");
    return tier;
}

static void read_budget(Lower *l, const Ast *budget)
{
    const double MOST = 0x1p60;
    Constant number;
    if (!constant_of(l, budget->child, &number))
        return;
    if (!(number.value >= 0 && number.value <= MOST))
        complain(l, (Where){ .at = budget->child->loc, .help = "keep 20e9" },
                 "the bytes that offload keeps must be from 0 to %.2g, not %s", MOST, constant_text(l->arena, number));
    else if (!l->options->shrink) /* a small instance has not so many */
        l->m->train.offload_keep = number.real ? (int64_t)number.value : number.integer;
}

/* just_in_time 2: so many forward passes with the updates */
static void read_forwards(Lower *l, const Ast *option)
{
    enum { MOST = 64 };
    Constant number;
    l->m->train.offload_just_in_time = true;
    if (!constant_of(l, option->child, &number))
        return;
    if (number.real || number.integer < 1 || number.integer > MOST)
        complain(l, (Where){ .at = option->child->loc, .help = "just_in_time 2" },
                 "the micro-batches whose forward pass runs with the updates must be from 1 to %d, not %s", MOST,
                 constant_text(l->arena, number));
    else
        l->m->train.offload_together = number.integer;
}

/* keep 20e9, just_in_time, or both */
static void read_options(Lower *l, const Ast *options)
{
    static const char *const words[] = { "just_in_time", NULL };
    for (const Ast *option = options; option; option = option->next)
        if (option->kind != A_KEYWORD && read_word(l, "option of offload", words, option, NULL, NULL))
            l->m->train.offload_just_in_time = true;
        else if (option->kind == A_KEYWORD && strcmp(option->name, "keep") == 0)
            read_budget(l, option);
        else if (option->kind == A_KEYWORD && strcmp(option->name, "just_in_time") == 0)
            read_forwards(l, option);
        else if (option->kind == A_KEYWORD)
            complain(l, (Where){ .at = option->name_loc, .help = "keep 20e9" }, "offload has no option '%s'",
                     option->name);
    if (options && options->next && options->next->kind == A_KEYWORD && strcmp(options->name, options->next->name) == 0)
        complain(l, (Where){ .at = options->next->name_loc }, "'%s' is given twice", options->name);
    const Train *t = &l->m->train;
    if (t->offload_just_in_time && !t->offload_optimizer)
        complain(l, (Where){ .at = options->loc, .help = "offload optimizer to ..." },
                 "just_in_time says when updates run, which read the optimizer's state: this is not offloaded");
    else if (t->offload_just_in_time && t->offload_params)
        complain(
            l, (Where){ .at = options->loc, .help = "offload optimizer to ..." },
            "just_in_time leaves new weights on the device, where the model reads them: params cannot be offloaded");
}

static const char *classes_text(Lower *l, const Ast *names)
{
    const char *text = "";
    for (const Ast *name = names; name; name = name->next)
        text = arena_text(l->arena, "%s%s%s", text, *text ? ", " : "", name->name);
    return text;
}

/* "offload to disk", "offload optimizer to", "offload optimizer disk" */
static void complain_of_word(Lower *l, const Ast *ast)
{
    const bool says_nothing = !ast->child->next && strcmp(ast->child->name, "to") == 0;
    const bool ends = strcmp(ast->name, "to") == 0;
    const char *help =
        arena_text(l->arena, "offload %s to %s", says_nothing ? "optimizer" : classes_text(l, ast->child),
                   !ends                  ? ast->name
                   : l->m->target->is_gpu ? "host"
                                          : "disk");
    if (says_nothing)
        complain(l, (Where){ .at = ast->loc, .help = help },
                 "this does not say what is offloaded: optimizer, params or activations");
    else if (ends)
        complain(l, (Where){ .at = ast->name_loc, .help = help }, "this does not say to where it is offloaded");
    else
        complain(l, (Where){ .at = ast->name_loc, .help = help }, "expected 'to' before '%s'", ast->name);
}

/* " just_in_time 2" */
static const char *when_text(Lower *l)
{
    const Train *t = &l->m->train;
    const char *word = t->offload_just_in_time ? " just_in_time" : "";
    return t->offload_together ? arena_text(l->arena, "%s %" PRId64, word, t->offload_together) : word;
}

static void read_statement(Lower *l, const Ast *ast, bool said)
{
    Train *t = &l->m->train;
    if (!ast->as) {
        complain_of_word(l, ast);
        return;
    }
    if (strcmp(ast->as, "to") != 0)
        complain(l, (Where){ .at = ast->as_loc, .help = "offload optimizer to disk" }, "expected 'to', not '%s'",
                 ast->as);
    const Tier tier = read_tier(l, ast);
    read_classes(l, ast->child, tier);
    if (ast->init && tier != ON_DISK)
        complain(l, (Where){ .at = ast->init->loc }, "only a disk has a folder");
    else if (ast->init)
        t->offload_folder = intern_text(l->m, ast->init->name);
    read_options(l, ast->type);
    note_policy(l, "parallel.offload",
                arena_text(l->arena, "%s to %s%s", classes_text(l, ast->child), ast->name, when_text(l)), ast, said);
    if (t->offload_folder)
        note_policy(l, "parallel.offload.folder", t->offload_folder, ast->init, said);
    const Ast *keep = ast->type;
    while (keep && strcmp(keep->name, "keep") != 0)
        keep = keep->next;
    add_setting(l, "parallel.offload.keep", arena_text(l->arena, "%" PRId64, t->offload_keep), "bytes",
                said   ? "command line"
                : keep ? where_text(l, keep->loc)
                       : "default");
}

/* --offload "optimizer to disk": the statement without its first word. */
static void read_option(Lower *l, const char *said)
{
    OtherText elsewhere;
    if (strcmp(said, "none") == 0)
        return;
    enter_other_text(l, &elsewhere, "--offload", arena_text(l->arena, "parallel {\noffload %s\n}\n", said));
    const Ast *file = parse_mdl(l->source, l->diags, l->arena), *ast = file && !l->diags->errors ? file->body : NULL;
    if (ast)
        read_statement(l, ast, true);
    leave_other_text(l, &elsewhere);
}

static void refuse(Layout *p, const char *what, const char *help)
{
    Lower *l = p->l;
    const char *said = l->options->offload;
    if (said)
        fail_command(l, override_text(l, "--offload", said), help, "%s", what);
    else
        complain(l, (Where){ .at = only_statement(p, A_OFFLOAD)->loc, .help = help }, "%s", what);
}

/* Are weights whole before the first forward pass?  Then all updates come before it. */
static bool gathers_first(const Train *t) { return t->zero && !(t->gather ? t->gather == GATHER_MICRO : t->zero >= 3); }

static bool has_repeat(const Module *m)
{
    const Func *model = func_with_role(m, MODEL);
    const Op *op = model ? model->first : NULL;
    while (op && !(op->attrs.callee && op->attrs.dims.count))
        op = op->next;
    return op != NULL;
}

/* Small instances for --verify-passes have fewer micro-batches. */
static void check_together(Layout *p)
{
    Lower *l = p->l;
    const Train *t = &l->m->train;
    const int64_t micros = t->batch / t->microbatch;
    if (t->abreast > 1)
        refuse(p,
               arena_text(l->arena, "with train.abreast = %" PRId64 ", so many forward passes run together anyway",
                          t->abreast),
               "just_in_time");
    else if (t->offload_together > micros && !l->options->shrink)
        refuse(p,
               arena_text(l->arena, "a step has %" PRId64 " micro-batch%s, and just_in_time wants %" PRId64, micros,
                          micros == 1 ? "" : "es", t->offload_together),
               micros == 1 ? "just_in_time" : arena_text(l->arena, "just_in_time %" PRId64, micros));
    else if (!has_repeat(l->m))
        refuse(p, "the model has no repeat, in whose loop forward passes of several micro-batches could run",
               "just_in_time");
}

static bool has_weights_of_repeat(const Module *m, bool trained)
{
    const Param *param = m->params;
    while (param && (param->state || (trained && param->frozen) ||
                     !is_of_repeat(m, (Port){ .kind = PORT_PARAM, .of = param->name })))
        param = param->next;
    return param != NULL;
}

void check_trained_offload(Lower *l)
{
    if (l->m->train.offload_together > 1 && !l->options->shrink && !has_weights_of_repeat(l->m, true))
        refuse(l->layout, "no weights of a repeat are trained, and only their updates run beside forward passes",
               "just_in_time");
}

/* What only a repeat has. */
static void check_classes(Layout *p)
{
    const Module *m = p->l->m;
    const Train *t = &m->train;
    const bool lacks_weights = t->offload_params && !has_weights_of_repeat(m, false);
    if (p->l->options->shrink || p->l->diags->errors || (!lacks_weights && (!t->offload_activations || has_repeat(m))))
        return;
    refuse(p,
           lacks_weights ? "the model has no weights in a repeat, and others stay where they are"
                         : "the model has no repeat, and other activations than those of one stay where they are",
           arena_text(p->l->arena, "optimizer to %s, or none",
                      Tier_words[lacks_weights ? t->offload_params : t->offload_activations]));
}

/* Activations of a pipeline's stages lie in slots, several micro-batches of them. */
void check_offload(Layout *p)
{
    const Train *t = &p->l->m->train;
    if (t->offload_activations && has_schedule(p))
        refuse(p, "activations of a pipeline cannot be offloaded",
               "recompute full: stages keep the inputs of layers alone");
    if (t->offload_together > 1 && has_schedule(p))
        refuse(p, "a pipeline has an order of its own for its forward passes, and updates come before all of them",
               "just_in_time");
    else if (t->offload_together > 1 && gathers_first(t))
        refuse(p, "weights are gathered before the first forward pass, and updates come before that",
               "just_in_time; or gather = micro");
    else if (t->offload_together > 1)
        check_together(p);
    check_classes(p);
}

void read_offload(Layout *p)
{
    const Ast *ast = only_statement(p, A_OFFLOAD);
    if (p->l->options->offload)
        read_option(p->l, p->l->options->offload);
    else if (ast)
        read_statement(p->l, ast, false);
}
