/* policies.c -- `parallel { }`: pipeline, zero and recompute. */
#include "layout.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- Words ---------------------------------------------------------------------------------- */

static const char *const schedules[] = { "naive", "gpipe", "1f1b", "interleaved", "zb", NULL };
static const char *const pipeline_options[] = { "schedule", "chunks", "stages", NULL };
static const char *const recomputations[] = { "none", "full", "selective", "auto(BYTES)", NULL };
static const char *const stages[] = { "0", "1", "2", "3", NULL };

static bool is_word(const char *const words[], const char *word, NearMiss *near)
{
    for (int i = 0; words[i]; i++) {
        offer(near, words[i]);
        if (strcmp(words[i], word) == 0)
            return true;
    }
    return false;
}

static const char *word_list(Lower *l, const char *const words[])
{
    const char *list = words[0];
    for (int i = 1; words[i]; i++)
        list = arena_text(l->arena, "%s%s%s", list, words[i + 1] ? ", " : " or ", words[i]);
    return list;
}

/* A word from the command line or else from the file; NULL after reporting. */
static const char *read_word(Lower *l, const char *what, const char *const words[], const Ast *ast, const char *option,
                             const char *said)
{
    const char *word = said ? said : ast && (ast->kind == A_NAME || ast->kind == A_ZERO) ? ast->name : "";
    NearMiss near = { .name = word };
    if (is_word(words, word, &near))
        return word;
    const char *help = did_you_mean(l->arena, &near);
    help = help ? help : word_list(l, words);
    if (said)
        fail_command(l, said_text(l, option, said), help, "'%s' is not a valid %s", said, what);
    else
        complain(l, (Where){ .at = ast->kind == A_ZERO ? ast->name_loc : ast->loc, .help = help },
                 "%s is not a valid %s", quoted(l, ast), what);
    return NULL;
}

static void note(Lower *l, const char *name, const char *value, const Ast *ast, bool said)
{
    add_setting(l, name, value, "", said ? "command line" : ast ? where_text(l, ast->loc) : "default");
}

/* --- pipeline ----------------------------------------------------------------- */

static const Ast *option_named(const Ast *list, const char *name)
{
    while (list && (list->kind != A_KEYWORD || strcmp(list->name, name) != 0))
        list = list->next;
    return list;
}

static const Repeated *check_repeated(Layout *p, const Ast *ast)
{
    NearMiss near = { .name = ast->name };
    for (const Repeated *r = p->l->repeated; r; r = r->next) {
        if (strcmp(r->name, ast->name) == 0)
            return r;
        offer(&near, r->name);
    }
    complain(p->l, (Where){ .at = ast->name_loc, .help = did_you_mean(p->l->arena, &near) },
             "'%s' is neither an instance inside a repeat nor a repeat count", ast->name);
    return NULL;
}

/* Rejects repeated options. */
static void check_given_once(Lower *l, const Ast *options)
{
    for (const Ast *option = options; option; option = option->next)
        for (const Ast *before = options; before != option; before = before->next)
            if (strcmp(before->name, option->name) == 0)
                complain(l, (Where){ .at = option->loc }, "'%s' is already specified at %s", option->name,
                         position_text(l, before->loc));
}

/* A pipeline is a rule as others are: the copies of a repeat are split over its axis. */
static void split_layers(Module *m, Name copies, int axis, Name parts)
{
    ShardRule *rule = NEW(&m->arena, ShardRule), **end = &m->rules;
    *rule = (ShardRule){ .axis = axis, .parts = parts };
    add_name(&rule->dims, copies);
    while (*end)
        end = &(*end)->next;
    *end = rule;
}

static void set_schedule(Lower *l, Loc loc, const char *word)
{
    static const char *const done[] = {
        [STAGES_NAIVE] = "naive", [STAGES_GPIPE] = "gpipe", [STAGES_ONE_F_ONE_B] = "1f1b", [STAGES_ZB_H1] = "zb"
    };
    for (StageSchedule schedule = STAGES_NAIVE; schedule <= STAGES_ZB_H1; schedule++)
        if (strcmp(word, done[schedule]) == 0)
            l->m->train.stages = schedule;
    if (!l->m->train.stages)
        complain(l, (Where){ .at = loc, .help = "schedule = 1f1b" }, "the schedule %s is not implemented yet", word);
}

static bool splits_dims(const Module *m, const MeshAxis *axis)
{
    for (const ShardRule *rule = m->rules; rule; rule = rule->next)
        if (rule->axis >= axis->first && rule->axis < axis->first + axis->count)
            return true;
    return false;
}

/* The file of a schedule, schedule = "my.csv" or --schedule=my.csv; NULL: it is a word.  A path in the model is one
 * from the model's folder. */
static const char *schedule_file(Lower *l, const Ast *schedule)
{
    const char *said = l->options->schedule, *slash = strrchr(l->source->path, '/');
    if (said)
        return strpbrk(said, "./") ? said : NULL;
    if (!schedule || schedule->child->kind != A_STRING)
        return NULL;
    const char *path = schedule->child->name;
    return *path == '/' || !slash
               ? path
               : arena_text(l->arena, "%.*s%s", (int)(slash - l->source->path) + 1, l->source->path, path);
}

/* A model that is shrunk for verification has fewer stages and micro-batches than the table. */
static void use_table(Lower *l, const Ast *schedule, const char *path, bool has_stages)
{
    const char *why;
    Source *table = l->options->read_text(l->options->context, path, &why);
    if (!table && l->options->schedule)
        fail_command(l, said_text(l, "--schedule", l->options->schedule), NULL, "cannot read %s: %s", path, why);
    else if (!table)
        complain(l, (Where){ .at = schedule->loc }, "cannot read %s: %s", path, why);
    else if (has_stages && l->options->shrink)
        l->m->train.stages = strchr(table->text, 'W') ? STAGES_ZB_H1 : STAGES_ONE_F_ONE_B;
    else if (has_stages)
        l->m->train.stages = STAGES_TABLE, l->m->table = table;
}

/* --- The copies of each stage: stages = [7, 8, 8, 9] or --stages=7,8,8,9 ----------------------------------- */

typedef struct {
    int64_t part[MAX_STAGES], sum;
    int count;
} Parts;

/* `example`: a list that would do; NULL: any. */
static bool bad_parts(Lower *l, const Ast *ast, const char *example, const char *why)
{
    if (l->options->stages)
        fail_command(l, said_text(l, "--stages", l->options->stages),
                     arena_text(l->arena, "--stages=%s", example ? example : "7,8,8,9"), "%s", why);
    else
        complain(
            l, (Where){ .at = ast->loc, .help = arena_text(l->arena, "stages = [%s]", example ? example : "7,8,8,9") },
            "%s", why);
    return false;
}

static const char *example_of_parts(Lower *l, int64_t copies, int64_t stages)
{
    const char *text = "";
    for (int64_t i = 0; i < stages; i++)
        text = arena_text(l->arena, "%s%s%lld", text, i ? "," : "",
                          (long long)(copies / stages + (i >= stages - copies % stages)));
    return text;
}

static bool read_parts(Lower *l, const Ast *ast, Parts *parts)
{
    const char *said = l->options->stages;
    const Ast *item = !said && ast->child->kind == A_LIST ? ast->child->child : NULL;
    if (!said && !item)
        return bad_parts(l, ast, NULL, "'stages' is a list of numbers, one for each stage");
    for (bool more = true; more; parts->count++) {
        int64_t copies = 0;
        char *end = NULL;
        if (parts->count == MAX_STAGES)
            return bad_parts(l, ast, NULL, arena_text(l->arena, "there are more than %d stages", MAX_STAGES));
        if (item && !integer_of(l, item, "the copies of a stage", 1, MAX_COPIES, &copies))
            return false;
        if (said && ((copies = strtoll(said, &end, 10)) < 1 || copies > MAX_COPIES || (*end && *end != ',')))
            return bad_parts(l, ast, NULL, "each stage has a number of copies, from 1");
        parts->part[parts->count] = copies;
        parts->sum += copies;
        more = said ? *end == ',' : item->next != NULL;
        said = said ? end + 1 : NULL;
        item = item ? item->next : NULL;
    }
    return true;
}

/* The model is shrunk for verification: two stages of three copies, the larger half of the copies where it was. */
static Name shrunk_parts(Lower *l, const Parts *parts, const Repeated *repeated)
{
    int64_t first = 0;
    for (int i = 0; i < parts->count / 2; i++)
        first += parts->part[i];
    const int64_t one = repeated->copies - 1,
                  part[] = { 2 * first > parts->sum ? one : 1, 2 * first > parts->sum ? 1 : one };
    return parts_text(l->m, part, 2);
}

/* NULL: the stages share the copies as their work suggests, or after reporting. */
static Name parts_of(Lower *l, const Ast *ast, const Repeated *repeated, const MeshAxis *axis)
{
    Parts parts = { .count = 0 };
    if ((!ast && !l->options->stages) || !read_parts(l, ast, &parts))
        return NULL;
    if (l->options->shrink)
        return axis->size == 2 && repeated->copies > 1 ? shrunk_parts(l, &parts, repeated) : NULL;
    const char *example = example_of_parts(l, repeated->copies, axis->size);
    if (parts.count != axis->size)
        return bad_parts(l, ast, example,
                         arena_text(l->arena, "%d stages are given, and %s = %lld", parts.count, axis->name,
                                    (long long)axis->size)),
               NULL;
    if (parts.sum != repeated->copies)
        return bad_parts(l, ast, example,
                         arena_text(l->arena, "the stages have %lld copies together, and '%s' has %lld",
                                    (long long)parts.sum, repeated->name, (long long)repeated->copies)),
               NULL;
    return parts_text(l->m, parts.part, parts.count);
}

static void set_stages(Lower *l, const Ast *ast, const Repeated *repeated, const MeshAxis *axis)
{
    const Ast *stages = option_named(ast->child, "stages");
    Name parts = NULL;
    const int64_t most = axis->size < MAX_STAGES ? axis->size : MAX_STAGES;
    if (splits_dims(l->m, axis))
        complain(l, (Where){ .at = ast->init->loc, .help = "give the pipeline an axis of its own" },
                 "%s splits dims, too", axis->name);
    else if (repeated->copies < axis->size || axis->size > MAX_STAGES)
        complain(l,
                 (Where){ .at = ast->init->loc,
                          .help = arena_text(l->arena, "%s = %lld", axis->name,
                                             (long long)(repeated->copies < most ? repeated->copies : most)) },
                 "%lld stages cannot share the %lld copies of '%s'", (long long)axis->size, (long long)repeated->copies,
                 ast->name);
    else
        split_layers(l->m, repeated->dim, axis->first, parts = parts_of(l, stages, repeated, axis));
    note(l, "parallel.stages", parts ? parts : "balanced", stages, l->options->stages);
}

static void check_stages(Layout *p, const Ast *ast)
{
    Lower *l = p->l;
    const Ast *schedule = option_named(ast->child, "schedule"), *chunks = option_named(ast->child, "chunks");
    int64_t count = 1;
    for (const Ast *option = ast->child; option; option = option->next)
        if (option->kind != A_KEYWORD || !is_word(pipeline_options, option->name, &(NearMiss){ .name = option->name }))
            complain(l, (Where){ .at = option->loc, .help = "schedule = ..., chunks = ..., stages = [...]" },
                     "pipeline has no option '%s'", option->name);
    check_given_once(l, ast->child);
    const Repeated *repeated = check_repeated(p, ast);
    const MeshAxis *axis = use_axis(p, ast->init);
    if (repeated && axis && axis->size > 1)
        set_stages(l, ast, repeated, axis);
    else if (axis && l->options->stages)
        bad_parts(l, ast, example_of_parts(l, repeated ? repeated->copies : 1, 1),
                  arena_text(l->arena, "%s has one rank", axis->name));
    const char *word = "1f1b", *file = schedule_file(l, schedule);
    if (file)
        word = file;
    else if (schedule || l->options->schedule)
        word = read_word(l, "schedule of a pipeline", schedules, schedule ? schedule->child : NULL, "--schedule",
                         l->options->schedule);
    if (chunks && integer_of(l, chunks->child, "'chunks'", 1, 1024, &count) && count > 1 && word &&
        strcmp(word, "interleaved") != 0)
        complain(l, (Where){ .at = chunks->loc, .help = "schedule = interleaved" },
                 "only an interleaved schedule has chunks");
    if (word)
        note(l, "parallel.schedule", word, schedule, l->options->schedule);
    if (file)
        use_table(l, schedule, file, axis && axis->size > 1);
    else if (word && axis && axis->size > 1)
        set_schedule(l, schedule ? schedule->loc : ast->loc, word);
}

/* --- zero ----------------------------------------------------------------------------------------- */

static const char *const grad_dtypes[] = { "f32", "bf16", NULL };

static void read_flag(Lower *l, const Ast *option, Flag *flag)
{
    const char *word = option->kind == A_NAME ? "true" : option->child->name ? option->child->name : "";
    *flag = strcmp(word, "true") == 0;
    if (!*flag && strcmp(word, "false") != 0)
        complain(l, (Where){ .at = option->child->loc, .help = "true or false" }, "'%s' must be true or false",
                 option->name);
}

static void read_zero_option(Lower *l, const Ast *option)
{
    static const char *const names[] = { "grad_dtype", "bucket", "overlap_grads", "overlap_params", NULL };
    Train *t = &l->m->train;
    NearMiss near = { .name = option->name };
    if (!is_word(names, option->name, &near)) {
        const char *help = did_you_mean(l->arena, &near);
        complain(l, (Where){ .at = option->loc, .help = help ? help : word_list(l, names) }, "zero has no option '%s'",
                 option->name);
    } else if (strncmp(option->name, "overlap", 7) == 0) {
        read_flag(l, option, strcmp(option->name, "overlap_grads") == 0 ? &t->overlap_grads : &t->overlap_params);
    } else if (option->kind != A_KEYWORD) {
        complain(l, (Where){ .at = option->loc, .help = arena_text(l->arena, "%s = ...", option->name) },
                 "'%s' needs a value", option->name);
    } else if (strcmp(option->name, "bucket") == 0) {
        integer_of(l, option->child, "'bucket', in bytes,", 1, INT64_C(1) << 40, &t->bucket);
    } else {
        const char *word = read_word(l, "dtype of gradients", grad_dtypes, option->child, NULL, NULL);
        t->grad_dtype = word ? intern_text(l->m, word) : NULL;
    }
}

/* Is the axis data-parallel? */
static bool splits_data(const Lower *l, const MeshAxis *axis)
{
    for (const ShardRule *rule = l->m->rules; rule; rule = rule->next)
        for (int i = 0; i < rule->dims.count && rule->axis == axis->first; i++)
            for (const Ast *ast = l->model ? l->model->body : NULL; ast; ast = ast->next)
                for (const Ast *dim = ast->kind == A_INPUT ? ast->type->child : NULL; dim; dim = dim->next)
                    if (strcmp(dim->name, rule->dims.name[i]) == 0)
                        return true;
    return false;
}

/* Notes zero's effective options, including defaults; none on one rank. */
static void note_zero_options(Lower *l, const Ast *ast)
{
    const Train *t = &l->m->train;
    const struct {
        const char *name, *value, *unit;
    } options[] = {
        { "grad_dtype", t->grad_dtype ? t->grad_dtype : "as computed", "" },
        { "bucket", arena_text(l->arena, "%" PRId64, t->bucket), "bytes" },
        { "overlap_grads", t->overlap_grads ? "true" : "false", "" },
        { "overlap_params", t->overlap_params ? "true" : "false", "" },
    };
    for (size_t i = 0; t->zero_axes && i < sizeof options / sizeof *options; i++) {
        const Ast *said = ast->child;
        while (said && strcmp(said->name, options[i].name) != 0)
            said = said->next;
        add_setting(l, arena_text(l->arena, "parallel.zero.%s", options[i].name), options[i].value, options[i].unit,
                    said ? where_text(l, said->loc) : "default");
    }
}

/* The names of the axes, as one text. */
static const char *read_zero_axes(Layout *p, const Ast *names)
{
    Lower *l = p->l;
    const char *all = NULL;
    for (const Ast *name = names; name; name = name->next) {
        const MeshAxis *axis = use_axis(p, name);
        all = all ? arena_text(l->arena, "%s, %s", all, name->name) : name->name;
        if (axis && axis->count && !splits_data(l, axis))
            complain(l, (Where){ .at = name->loc, .help = arena_text(l->arena, "shard batch over %s", axis->name) },
                     "zero needs a data-parallel axis, but no input is split over '%s'", axis->name);
        for (int i = 0; axis && i < axis->count; i++)
            l->m->train.zero_axes |= 1u << (axis->first + i);
    }
    return all;
}

static void read_zero(Layout *p, const Ast *ast)
{
    Lower *l = p->l;
    Train *t = &l->m->train;
    const char *stage = read_word(l, "stage of zero", stages, ast, "--zero", l->options->zero);
    const char *axes = read_zero_axes(p, ast->init);
    t->bucket = 25000000; /* the default of PyTorch's DistributedDataParallel */
    for (const Ast *option = ast->child; option; option = option->next)
        read_zero_option(l, option);
    check_given_once(l, ast->child);
    check_given_once(l, ast->init);
    if (!ast->init && stage && strcmp(stage, "0") != 0)
        complain(l, (Where){ .at = ast->loc, .help = arena_text(l->arena, "zero %s over dp", stage) },
                 "zero %s needs an axis", stage);
    t->zero = stage ? stage[0] - '0' : 0;
    if (!t->zero_axes) /* one rank: nothing to split */
        t->zero = t->bucket = 0, t->grad_dtype = NULL, t->overlap_grads = false;
    if (stage)
        note(l, "parallel.zero", stage, ast, l->options->zero);
    if (axes)
        note(l, "parallel.zero.over", axes, ast->init, NULL);
    note_zero_options(l, ast);
}

/* --- recompute ------------------------------------------------------------------------------------ */

static bool says_auto(const Ast *value)
{
    return value && (value->kind == A_CALL || value->kind == A_NAME) && strcmp(value->name, "auto") == 0;
}

/* auto(BYTES); false after reporting. */
static bool read_auto(Lower *l, const Ast *value)
{
    const double MOST = 0x1p60;
    const Ast *bytes = value->kind == A_CALL ? value->child : NULL;
    Constant number;
    if (!bytes || bytes->next || bytes->kind == A_KEYWORD || bytes->kind == A_ARROW || value->as) {
        complain(l, (Where){ .at = value->loc, .help = "auto(40e9)" },
                 "'auto' needs one number: the most bytes of memory that a rank may use");
        return false;
    }
    if (!constant_of(l, bytes, &number))
        return false;
    if (!(number.value >= 1 && number.value <= MOST)) {
        complain(l, (Where){ .at = bytes->loc, .help = "auto(40e9)" },
                 "the bytes of 'auto' must be from 1 to %.2g, not %s", MOST, constant_text(l->arena, number));
        return false;
    }
    l->m->train.recompute_budget = number.real ? (int64_t)number.value : number.integer;
    return true;
}

static bool read_auto_option(Lower *l, const char *said)
{
    Elsewhere elsewhere;
    go_elsewhere(l, &elsewhere, "--recompute", said);
    const Ast *value = parse_expression(l->source, l->diags, l->arena);
    bool good = value && says_auto(value) && read_auto(l, value);
    come_back(l, &elsewhere);
    return good;
}

static void read_recompute(Lower *l, const Ast *ast)
{
    const Ast *value = ast ? ast->child : NULL;
    const char *said = l->options->recompute, *word = "none";
    Train *t = &l->m->train;
    if (said && (strcmp(said, "auto") == 0 || strncmp(said, "auto(", 5) == 0))
        word = read_auto_option(l, said) ? "auto" : NULL;
    else if (!said && says_auto(value))
        word = read_auto(l, value) ? "auto" : NULL;
    else if (value || said)
        word = read_word(l, "recomputation", recomputations, value, "--recompute", said);
    t->recompute = word ? WORD_OF(Recompute, word) : RECOMPUTE_NONE;
    note(l, "parallel.recompute",
         t->recompute == RECOMPUTE_AUTO ? arena_text(l->arena, "auto(%" PRId64 ")", t->recompute_budget)
                                        : Recompute_words[t->recompute],
         value, said);
}

/* --- The whole statement --------------------------------------------------------------------- */

void read_policies(Layout *p)
{
    Lower *l = p->l;
    const Ast *zero = only_statement(p, A_ZERO);
    if (zero)
        read_zero(p, zero);
    else if (l->options->zero)
        fail_command(l, said_text(l, "--zero", l->options->zero), "zero 1 over dp", "the file has no 'zero'");
    read_recompute(l, only_statement(p, A_RECOMPUTE));
}

void check_pipeline(Layout *p)
{
    Lower *l = p->l;
    const Ast *pipeline = only_statement(p, A_PIPELINE);
    if (pipeline)
        check_stages(p, pipeline);
    else if (l->options->schedule || l->options->stages)
        fail_command(l,
                     l->options->schedule ? said_text(l, "--schedule", l->options->schedule)
                                          : said_text(l, "--stages", l->options->stages),
                     "pipeline h over pp", "the file has no 'pipeline'");
}
