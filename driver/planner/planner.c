/* planner.c -- mpc plan: reads the model and the machine, searches, and answers. */
#include "planner.h"

#include "derive.h"
#include "machine.h"
#include "rewrite.h"
#include "structure.h"

#include "codegen/host/host.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

/* Of a model without a layout: what can be split, as a block of its own. */
static bool derive(Planner *p, const Module *m, bool may_share)
{
    Source *source = NEW(p->arena, Source);
    const char *block = derive_layout(p->arena, p->file, m, may_share);
    if (!block)
        return run_failed(p->run, "%s has nothing that ranks can split", p->run->source.path);
    *source = (Source){ "<derived>", block, (int)strlen(block) };
    Diags diags = { .arena = p->arena, .source = source, .out = stderr };
    p->parallel = parse_mdl(source, &diags, p->arena);
    p->layout_text = block;
    p->rest = p->run->source.text;
    return diags.errors == 0;
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

/* Can a schedule have two micro-batches on two ranks that share the copies?  They may need more of each other than a
 * repeat carries. */
static bool can_interleave(const Planner *p)
{
    Run run = { .trains_alone = true };
    const char *why;
    const PlanLayout two = layout_on(p, RECOMPUTE_NONE, 2);
    const PassOptions passes = { .unchecked = true, .stop_after = "pipeline" };
    if (!has_schedule(p, &two))
        return true;
    Module *m = compile_layout(p, &two, 2, &passes, &run, &why);
    const bool can = m != NULL;
    if (m)
        free_module(m);
    arena_free(&run.arena);
    return can;
}

/* No ranks share copies. */
static bool derive_again(Planner *p, const Module *m)
{
    p->naxes = p->ndims = 0;
    p->heads = (Names){ 0 };
    return derive(p, m, false) && read_space(p, m);
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

/* The sequences of a step are the file's, or the command line's: with their default, each data-parallel rank has one.
 */
static bool has_batch(Planner *p, const Settings *settings)
{
    for (int i = 0; i < settings->count; i++)
        if (strcmp(settings->at[i].name, "train.batch") == 0 && strcmp(settings->at[i].from, "default") == 0) {
            report_error(stderr, "--set train.batch=512", "%s does not say how many sequences a step has",
                         p->run->source.path);
            p->run->diags.errors++;
            return false;
        }
    return true;
}

/* Does the file or an option say what a micro-batch has?  A model without a batch cannot. */
static bool says_microbatch(const Planner *p)
{
    const TextList *set = &p->run->options->set;
    for (int i = 0; i < set->count; i++)
        if (strncmp(set->at[i], "train.microbatch=", strlen("train.microbatch=")) == 0)
            return true;
    for (const Ast *ast = p->file; ast; ast = ast->next)
        for (const Ast *setting = ast->kind == A_TRAIN ? ast->body : NULL; setting; setting = setting->next)
            if (setting->kind == A_SETTING && strcmp(setting->name, "microbatch") == 0)
                return true;
    return false;
}

/* Of the layout that a file has, only what it can split counts: the model is read on one rank.  micro: its micro-batch,
 * "train.microbatch=1"; NULL: as the file and options say. */
static Module *lowered(Planner *p, const char *micro, Settings *settings)
{
    Run *run = p->run;
    const Options *o = run->options;
    Options one = *o;
    for (const Ast *ast = p->parallel ? p->parallel->body : NULL; ast; ast = ast->next) {
        for (const Ast *axis = ast->kind == A_MESH ? ast->child : NULL; axis; axis = axis->next)
            one.mesh = arena_text(p->arena, "%s%s%s=1", one.mesh ? one.mesh : "", one.mesh ? "," : "", axis->name);
    }
    say_schedule(p, &one);
    if (micro) {
        one.set = sets_without(p->arena, &o->set, "train.microbatch");
        one.set.at[one.set.count++] = micro;
    }
    run->options = &one;
    Module *m = lower_ast(run, p->file, 0, settings, &run->diags);
    run->options = o;
    return m;
}

/* NULL: nothing has been set. */
static const char *whole_batch(Arena *arena, const Settings *settings)
{
    for (int i = 0; i < settings->count; i++)
        if (strcmp(settings->at[i].name, "train.batch") == 0)
            return arena_text(arena, "train.microbatch=%s", settings->at[i].value);
    return NULL;
}

/* In micro-batches of one sequence; but a loss that mixes those of a batch has only one.  Where that fails, too, it is
 * reported. */
static Module *lower_on_one_rank(Planner *p, Settings *settings)
{
    Diags *diags = &p->run->diags;
    FILE *out = diags->out;
    char *messages = NULL;
    size_t length;
    if (!says_microbatch(p))
        return lowered(p, NULL, settings);
    diags->out = open_memory(&messages, &length);
    Module *m = lowered(p, "train.microbatch=1", settings);
    fclose(diags->out);
    diags->out = out;
    if (!m) {
        const int errors = diags->errors;
        const char *whole = whole_batch(p->arena, settings);
        diags->errors = 0;
        *settings = (Settings){ 0 };
        m = lowered(p, whole, settings);
        if (m && !m->mixes) {
            free_module(m);
            m = NULL;
            fputs(messages, diags->out);
            diags->errors = errors;
        }
    } else {
        fputs(messages, diags->out);
    }
    free(messages);
    return m;
}

static bool read_model(Planner *p)
{
    Run *run = p->run;
    Settings settings = { 0 };
    p->file = parse_mdl(&run->source, &run->diags, p->arena);
    p->parallel = find_parallel(p->file);
    Module *m = run->diags.errors ? NULL : lower_on_one_rank(p, &settings);
    if (!m)
        return false;
    p->layout_text = run->source.text;
    if (p->parallel)
        p->rest = text_without(p->arena, &run->source, p->parallel);
    p->mixes = m->mixes;
    p->is_gpu = m->target->is_gpu;
    const bool has_layout = p->parallel;
    bool good = (!m->batch || has_batch(p, &settings)) && (has_layout || derive(p, m, true));
    good = good && read_away(p, m) && read_space(p, m);
    if (good && !has_layout && !p->mixes && !can_interleave(p))
        good = derive_again(p, m);
    free_module(m);
    if (!good)
        return false;
    prepare_blocks(p);
    return read_model_cost(p);
}

/* --- The answer ------------------------------------------------------------------------------------------ */

/* The first layout, into the model's file. */
static bool write_layout(Planner *p, const Answer *answer)
{
    const Options *o = p->run->options;
    const PlanResult *best = &answer->best[0];
    char date[16];
    const time_t now = time(NULL);
    struct tm local;
    strftime(date, sizeof date, "%Y-%m-%d", localtime_r(&now, &local));
    const char *comment = arena_text(p->arena, "mpc plan, %s: %s of %s, %.4g s a step, %s a rank", date,
                                     counted(p->arena, mesh_ranks(p, &best->layout), "rank"), o->machine, best->seconds,
                                     bytes_text(p->arena, (double)(best->arena + best->beside)));
    const char *text = with_layout(p->arena, &p->run->source, p->file, layout_block(p->arena, p, &best->layout),
                                   comment, best->layout.microbatch, best->layout.abreast);
    p->run->input = (struct stat){ 0 }; /* the file to be overwritten */
    if (!write_new(p->run, o->operand, text))
        return false;
    fprintf(stderr, "%s: the layout %s is written\n", o->operand, layout_name(p->arena, p, &best->layout));
    return true;
}

static bool write_page(const Planner *p, const Answer *answer)
{
    NewFile file;
    if (!open_new(p->run, &file, p->run->options->html))
        return false;
    write_plan_page(p, answer, file.out);
    return close_new(p->run, &file);
}

/* What ranks can divide among themselves: "256 sequences, heads 12, ff 3,072, copies of repeats 12". */
static const char *divisible_text(const Planner *p)
{
    Arena *a = p->arena;
    const char *text = counted(a, p->sequences, "sequence");
    for (int i = 0; i < p->ndims; i++)
        text = arena_text(a, "%s, %s %s", text, p->dim[i].name, grouped(a, p->dim[i].size));
    return p->copies ? arena_text(a, "%s, copies of repeats %s", text, grouped(a, p->copies)) : text;
}

static bool nothing_fits(const Planner *p, const Answer *answer)
{
    const PlanResult *larger = answer->too_large;
    Arena *a = p->arena;
    p->run->diags.errors++;
    if (answer->tally.too_large == 0) {
        report_error(stderr, "another number of ranks or of sequences, or less that is kept (--keep)",
                     "the model has no layout of %s%s; ranks can divide %s", counted(a, p->ranks, "rank"),
                     answer->tally.all > 0 ? " that can be compiled" : "", divisible_text(p));
        return false;
    }
    if (answer->tally.open > 0) {
        report_error(stderr, "more ranks, --memory BYTES, a smaller batch, or less to choose from (--keep)",
                     "of %s, %s were compiled, and none fits into %s a rank: each needs %s or more",
                     counted(a, (int64_t)answer->tally.all, "layout"), grouped(a, (int64_t)answer->tally.compiled),
                     bytes_text(a, p->memory), bytes_text(a, answer->least));
        return false;
    }
    report_error(
        stderr, "more ranks, --memory BYTES, a smaller batch, or what 'mpc report' of a layout says with --memory",
        "no layout of %s fits into %s a rank: each needs %s or more%s%s", counted(a, p->ranks, "rank"),
        bytes_text(a, p->memory), bytes_text(a, answer->least),
        answer->least_offloaded > 0
            ? arena_text(a, ", and with optimizer and params offloaded %s", bytes_text(a, answer->least_offloaded))
            : "",
        larger ? arena_text(a, "; the fastest that was compiled, %s, needs %s", layout_name(a, p, &larger->layout),
                            bytes_text(a, (double)(larger->arena + larger->beside)))
               : "");
    return false;
}

/* With --elastic: what all ranks would do; from here on the question is of fewer.  false after reporting. */
static bool search_all_ranks(Planner *p, PlanResult *best)
{
    const Options *o = p->run->options;
    int64_t left;
    if (!read_number(p->run, "elastic", o->elastic, p->ranks - 1, &left))
        return false;
    const Answer all = search_layouts(p, 1);
    free_structures(p);
    if (!all.count)
        return nothing_fits(p, &all);
    *best = all.best[0];
    if (!o->json)
        printf("with all %s: %s, %.4g s a step; without some of them:\n", counted(p->arena, p->ranks, "rank"),
               layout_name(p->arena, p, &best->layout), best->seconds);
    p->ranks = left;
    p->is_elastic = true;
    return true;
}

/* --- Where nothing fits without ------------------------------------------------------------------------------- */

/* Bounds depend on it: what they know of the model is found again. */
static bool offload_more(Planner *p, int away)
{
    Module m = { .target = p->is_gpu ? &cuda_target : &c_target };
    p->away = (Way){ .away = away };
    p->tier = p->is_gpu ? ON_HOST : ON_DISK;
    p->offload = way_text(p->arena, &m, &p->away);
    p->ntensors = 0;
    prepare_blocks(p);
    return read_model_cost(p);
}

/* If no layout fits, and neither the model nor an option says what is offloaded: of layouts that offload the state;
 * then weights, too.  false after reporting. */
static bool search_offloaded(Planner *p, int top, Answer *answer)
{
    static const int away[] = { AWAY_STATE, AWAY_STATE | AWAY_PARAMS };
    const Options *o = p->run->options;
    const bool may = !answer->count && answer->tally.too_large > 0 && !p->offload && !o->offload && !o->exhaustive;
    Answer found = *answer;
    if (!may || isnan(machine_tier(p->machine, p->is_gpu ? ON_HOST : ON_DISK)))
        return true;
    p->least_without = answer->least;
    p->tried_without = answer->tally.open > 0 ? answer->tally.compiled : 0;
    for (size_t i = 0; i < sizeof away / sizeof *away && !found.count; i++) {
        if (!offload_more(p, away[i]))
            return false;
        found = search_layouts(p, top);
    }
    if (found.count) {
        *answer = found;
        return true;
    }
    answer->least_offloaded = found.least;
    p->away = (Way){ 0 }, p->offload = NULL, p->least_without = 0;
    return true;
}

/* --- The command --------------------------------------------------------------------------------------------- */

static bool answer_plan(Planner *p, int top)
{
    const Options *o = p->run->options;
    PlanResult all;
    if (o->elastic && !search_all_ranks(p, &all))
        return false;
    Answer answer = search_layouts(p, top);
    if (!search_offloaded(p, top, &answer))
        return false;
    if (o->refine)
        refine_answer(p, &answer);
    free_structures(p);
    if (o->json)
        print_plan_json(p, &answer, o->elastic ? &all : NULL);
    else if (answer.count)
        print_plan(p, &answer);
    if (o->html && !write_page(p, &answer))
        return false;
    if (!answer.count)
        return nothing_fits(p, &answer);
    return !o->write || write_layout(p, &answer);
}

int run_plan(Run *run)
{
    const Options *o = run->options;
    Planner p = { .run = run, .arena = &run->arena };
    int64_t top = TOP;
    if (!o->ranks)
        return usage_error(o->command, "on how many ranks? give --ranks N");
    if (o->write && strcmp(o->operand, "-") == 0)
        return usage_error(o->command, "--write needs a file to write to, not standard input");
    if (!o->machine)
        return usage_error(o->command, "on which machine? give --machine NAME, of %s, or --machine FILE",
                           shipped_machines(p.arena));
    if ((o->top && !read_number(run, "top", o->top, 1000000, &top)) || !read_planner(&p))
        return STATUS_FAILED;
    Options own = *o;
    own.target = target_of(o, p.machine);
    run->options = &own;
    const bool good = read_model(&p) && answer_plan(&p, (int)top);
    run->options = o;
    return good ? STATUS_OK : STATUS_FAILED;
}
