/* pipeline.c -- `parallel { pipeline h over pp, schedule = ..., chunks = ..., stages = [...] }`: the repeats whose
 * copies go to stages, and the order in which these run micro-batches. */
#include "lower/expr.h"
#include "parallel.h"
#include "stages.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const schedules[] = { "naive", "gpipe", "1f1b", "interleaved", "zb", NULL };
static const char *const pipeline_options[] = { "schedule", "chunks", "stages", NULL };

static const Ast *option_named(const Ast *list, const char *name)
{
    while (list && (list->kind != A_KEYWORD || strcmp(list->name, name) != 0))
        list = list->next;
    return list;
}

ShardRule *split_layers(Module *m, Name copies, int axis, Name parts)
{
    ShardRule *rule = NEW(&m->arena, ShardRule), **end = &m->rules;
    *rule = (ShardRule){ .axis = axis, .parts = parts };
    add_name(&rule->dims, copies);
    while (*end)
        end = &(*end)->next;
    return *end = rule;
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

/* --- The copies of each stage: stages = [7, 8, 8, 9] or --stages=7,8,8,9 ----------------------------------- */

/* `example`: a list that would do; NULL: any. */
static bool bad_parts(Lower *l, const Ast *ast, const char *example, const char *why)
{
    if (l->options->stages)
        fail_command(l, override_text(l, "--stages", l->options->stages),
                     arena_text(l->arena, "--stages=%s", example ? example : "7,8,8,9"), "%s", why);
    else
        complain(
            l, (Where){ .at = ast->loc, .help = arena_text(l->arena, "stages = [%s]", example ? example : "7,8,8,9") },
            "%s", why);
    return false;
}

/* The last stages, which keep fewer micro-batches, have one more. */
static int64_t even_part(int64_t copies, int64_t stages, int64_t stage)
{
    return copies / stages + (stage >= stages - copies % stages);
}

static const char *example_of_parts(Lower *l, int64_t copies, int64_t stages)
{
    const char *text = "";
    for (int64_t i = 0; i < stages; i++)
        text = arena_text(l->arena, "%s%s%lld", text, i ? "," : "", (long long)even_part(copies, stages, i));
    return text;
}

/* Of a list on the command line, or of one in the file; at least one. */
static int64_t most_numbers(const char *said, const Ast *item)
{
    int64_t most = 1;
    for (; said && *said; said++)
        most += *said == ',';
    for (; item; item = item->next)
        most++;
    return most;
}

static bool read_parts(Lower *l, const Ast *ast, Parts *parts)
{
    const char *said = l->options->stages;
    const Ast *item = !said && ast->child->kind == A_LIST ? ast->child->child : NULL;
    if (!said && !item)
        return bad_parts(l, ast, NULL, "'stages' is a list of numbers, one for each stage");
    parts->part = NEW_ARRAY(l->arena, int64_t, most_numbers(said, item));
    for (bool more = true; more; parts->count++) {
        int64_t copies = 0;
        char *end = NULL;
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

/* Does a repeat end, and another one begin, after so many copies of all? */
static bool ends_repeat(const Repeats *repeats, int64_t copies)
{
    int64_t end = 0;
    for (int i = 0; i + 1 < repeats->count && end < copies; i++)
        end += repeats->at[i]->copies;
    return end == copies && copies < repeats->copies;
}

/* The first chunk that begins with a repeat, from 1 on; 0: none does. */
static int chunk_with_repeat(const Parts *parts, const Repeats *repeats, int ranks)
{
    int64_t copies = 0;
    for (int stage = 0; stage < parts->count; copies += parts->part[stage++])
        if (stage && stage % ranks == 0 && ends_repeat(repeats, copies))
            return stage / ranks;
    return 0;
}

/* Of several repeats in chunks: evenly, but no chunk begins with a repeat, see check_chunk_ends(). */
static Parts even_parts(Arena *arena, const Repeats *repeats, int ranks, int chunks)
{
    Parts parts = { NEW_ARRAY(arena, int64_t, ranks * chunks), repeats->copies, ranks * chunks };
    for (int i = 0; i < parts.count; i++)
        parts.part[i] = even_part(repeats->copies, parts.count, i);
    for (int chunk = 1; chunk < chunks; chunk++) {
        int64_t *first = &parts.part[chunk * ranks];
        if (chunk_with_repeat(&parts, repeats, ranks) != chunk)
            continue;
        const int more = first[0] > 1 ? 1 : -1;
        first[-1] += more;
        first[0] -= more;
    }
    return parts;
}

/* The model is shrunk for verification: of two stages of three copies, the larger half of the copies is where it was;
 * of more, each has one copy, and the last one what is left. */
static void shrink_parts(Arena *arena, Parts *parts, int64_t copies, int count)
{
    int64_t first = 0;
    for (int i = 0; i < parts->count / 2; i++)
        first += parts->part[i];
    const bool first_is_larger = count == 2 && 2 * first > parts->sum;
    *parts = (Parts){ NEW_ARRAY(arena, int64_t, count), copies, count };
    for (int i = 0; i < count; i++)
        parts->part[i] = i == (first_is_larger ? 0 : count - 1) ? copies - (count - 1) : 1;
}

/* Of all stages, in their order; none: the stages share the copies as their work suggests, or after reporting. */
static Parts parts_of(Lower *l, const Ast *ast, const Repeats *repeats, int64_t count)
{
    Parts parts = { .count = 0 };
    const char *example = example_of_parts(l, repeats->copies, count);
    if ((!ast && !l->options->stages) || !read_parts(l, ast, &parts))
        return (Parts){ .count = 0 };
    if (l->options->shrink && (parts.count != count || parts.sum != repeats->copies))
        shrink_parts(l->arena, &parts, repeats->copies, (int)count);
    if (parts.count != count)
        bad_parts(l, ast, example,
                  arena_text(l->arena, "%d stages are given, and there are %lld", parts.count, (long long)count));
    else if (parts.sum != repeats->copies)
        bad_parts(l, ast, example,
                  arena_text(l->arena, "the stages have %lld copies together, and '%s' has %lld", (long long)parts.sum,
                             repeats->text, (long long)repeats->copies));
    else
        return parts;
    return (Parts){ .count = 0 };
}

/* Can the copies be cut in chunks? */
static bool check_chunks(Layout *p, const Ast *ast, const Repeats *repeats)
{
    const Ast *name = ast->child;
    const char *why = NULL;
    if (p->pipeline.chunks == 1)
        return true;
    if (!p->is_model_wrong && !place_in_model(p->l->m, repeats->at[0]->dim))
        why = arena_text(p->l->arena, "the repeat of '%s' is inside another one, and cannot be cut in chunks",
                         name->name);
    if (why)
        complain(p->l, (Where){ .at = ast->name_loc, .help = "chunks = 1" }, "%s", why);
    return !why;
}

/* Are there no more ranks than a pipeline can have? */
static bool check_stage_ranks(Layout *p, const Ast *ast, const MeshAxis *axis)
{
    Lower *l = p->l;
    if (axis->size <= MAX_SET_RANKS)
        return true;
    return complain(l,
                    (Where){ .at = ast->init->loc, .help = arena_text(l->arena, "%s = %d", axis->name, MAX_SET_RANKS) },
                    "a pipeline has at most %d ranks: '%s' has %lld", MAX_SET_RANKS, axis->name, (long long)axis->size);
}

/* Can so many stages share the copies? */
static bool check_copies(Layout *p, const Ast *ast, const Repeats *repeats, const MeshAxis *axis)
{
    Lower *l = p->l;
    const int chunks = p->pipeline.chunks;
    const int64_t most = repeats->copies / chunks;
    if (splits_dims(l->m, axis))
        return complain(l, (Where){ .at = ast->init->loc, .help = "give the pipeline an axis of its own" },
                        "%s splits dims, too", axis->name);
    if (!check_chunks(p, ast, repeats) || !check_stage_ranks(p, ast, axis))
        return false;
    if (axis->size <= most)
        return true;
    const int64_t fit = repeats->copies / axis->size; /* chunks of so many ranks */
    return complain(l,
                    (Where){ .at = ast->init->loc,
                             .help = most  ? arena_text(l->arena, "%s = %lld", axis->name, (long long)most)
                                     : fit ? arena_text(l->arena, "chunks = %lld", (long long)fit)
                                           : arena_text(l->arena, "%s = %lld, chunks = 1", axis->name,
                                                        (long long)repeats->copies) },
                    "%lld stages cannot share the %lld copies of '%s'", (long long)axis->size * chunks,
                    (long long)repeats->copies, repeats->text);
}

/* Several repeats: the stages have copies of one after the other. */
static void split_repeats(Layout *p, const Repeats *repeats, const MeshAxis *axis)
{
    Module *m = p->l->m;
    const Parts *parts = &p->pipeline.parts;
    int64_t copies[MAX_REPEATS], part[MAX_REPEATS][MAX_SET_RANKS];
    for (int i = 0; i < repeats->count; i++)
        copies[i] = repeats->at[i]->copies;
    const bool is_known = parts->count && p->pipeline.chunks == 1;
    if (is_known)
        cut_repeats(copies, repeats->count, parts->part, part);
    for (int i = 0; i < repeats->count; i++) {
        Name text = is_known ? parts_text(m, part[i], parts->count) : NULL;
        p->pipeline.rule[i] = split_layers(m, repeats->at[i]->dim, axis->first, text);
        p->pipeline.rule[i]->joined = i > 0;
    }
}

static void set_stages(Layout *p, const Ast *ast, const Repeats *repeats, const MeshAxis *axis)
{
    Lower *l = p->l;
    const Ast *stages = option_named(ast->type, "stages");
    const int chunks = p->pipeline.chunks;
    Name text = NULL;
    if (check_copies(p, ast, repeats, axis)) {
        p->pipeline.parts = parts_of(l, stages, repeats, axis->size * chunks);
        if (p->pipeline.parts.count)
            text = parts_text(l->m, p->pipeline.parts.part, p->pipeline.parts.count);
        else if (repeats->count > 1 && chunks > 1)
            p->pipeline.parts = even_parts(l->arena, repeats, (int)axis->size, chunks);
        if (repeats->count > 1)
            split_repeats(p, repeats, axis);
        else
            p->pipeline.rule[0] = split_layers(l->m, repeats->at[0]->dim, axis->first, chunks == 1 ? text : NULL);
        p->pipeline.repeats = repeats->count;
        p->pipeline.copies = repeats->copies;
        for (int i = 0; i < repeats->count; i++)
            p->pipeline.repeat_copies[i] = repeats->at[i]->copies;
    }
    note_policy(l, "parallel.stages", text ? text : "balanced", stages, l->options->stages);
}

/* --- Schedules: schedule = zb, chunks = 2 or --schedule=zb --chunks=2 ------------------------------------------ */

static void complain_of_schedule(Lower *l, const Ast *ast, const char *help, const char *why)
{
    if (l->options->schedule || l->options->chunks)
        fail_command(l,
                     l->options->schedule ? override_text(l, "--schedule", l->options->schedule)
                                          : override_text(l, "--chunks", l->options->chunks),
                     help, "%s", why);
    else
        complain(l, (Where){ .at = ast->loc, .help = help }, "%s", why);
}

/* Those that are abreast pass the stages as one.  A batch that is smaller than a micro-batch is reported where the
 * settings are checked. */
static int micro_batches(const Module *m)
{
    const int64_t abreast = m->train.abreast > 1 ? m->train.abreast : 1;
    const int count = m->train.microbatch ? (int)(m->train.batch / (m->train.microbatch * abreast)) : 1;
    return count > 0 ? count : 1;
}

/* The schedule and the placement of its stages; false, with `why` and `help`, if there is none for these counts. */
static bool use_generated(Layout *p, ActionOrder schedule, int ranks, const char **why, const char **help)
{
    Lower *l = p->l;
    const PipelineSchedule *s =
        make_schedule(l->arena, ActionOrder_words[schedule], ranks, p->pipeline.chunks, micro_batches(l->m), why, help);
    if (p->pipeline.repeats)
        l->m->train.stages = schedule;
    p->pipeline.placement = s ? s->placement : CYCLIC;
    return s;
}

/* A generated one with stages in the same places. */
static ActionOrder like_table(Lower *l, Diags *diags, const MeshAxis *axis, int chunks)
{
    if (chunks > 1)
        return table_placement(l->arena, diags, (int)axis->declared, chunks) == VEE ? STAGES_ZB_V : STAGES_INTERLEAVED;
    return strchr(diags->source->text, 'W') ? STAGES_ZB_H1 : STAGES_ONE_F_ONE_B;
}

/* A model that is shrunk for verification has fewer stages and micro-batches than the table. */
static void use_table(Layout *p, const Ast *schedule, const char *path, const MeshAxis *axis)
{
    Lower *l = p->l;
    const char *why;
    const bool has_stages = axis && axis->size > 1;
    Source *table = l->options->read_text(l->options->context, path, &why);
    if (!table && l->options->schedule)
        fail_command(l, override_text(l, "--schedule", l->options->schedule), NULL, "cannot read %s: %s", path, why);
    else if (!table)
        complain(l, (Where){ .at = schedule->loc }, "cannot read %s: %s", path, why);
    if (!table || !has_stages)
        return;
    Diags diags = { .arena = l->arena, .source = table, .out = l->diags->out };
    if (l->options->shrink) {
        const char *unsaid[2];
        use_generated(p, like_table(l, &diags, axis, p->pipeline.chunks), (int)axis->size, &unsaid[0], &unsaid[1]);
        return;
    }
    const PipelineSchedule *s =
        read_schedule(l->arena, &diags, (int)axis->size, p->pipeline.chunks, micro_batches(l->m));
    l->diags->errors += diags.errors;
    l->m->train.stages = STAGES_TABLE;
    l->m->table = table;
    p->pipeline.placement = s ? s->placement : CYCLIC;
}

/* One that is generated.  `zb` with two chunks is ZB-V. */
static void use_schedule(Layout *p, const Ast *ast, const char *word, const MeshAxis *axis)
{
    Lower *l = p->l;
    const char *name = strcmp(word, "zb") != 0 ? word : p->pipeline.chunks > 1 ? "zb-v" : "zb-h1";
    const ActionOrder schedule = WORD_OF(ActionOrder, name);
    const int64_t abreast = l->m->train.abreast;
    const char *why, *help;
    if (use_generated(p, schedule, (int)axis->size, &why, &help) || l->options->shrink)
        return;
    if (abreast > 1)
        why = arena_text(l->arena, "%s; %" PRId64 " that are abreast count as one", why, abreast);
    complain_of_schedule(l, ast, help, why);
}

static int64_t default_chunks(const Lower *l, const Ast *schedule)
{
    const char *word = l->options->schedule ? l->options->schedule : schedule ? schedule->child->name : NULL;
    return word && strcmp(word, "interleaved") == 0 ? 2 : 1;
}

static int read_chunks(Lower *l, const Ast *pipeline)
{
    const Ast *chunks = option_named(pipeline->type, "chunks");
    const char *said = l->options->chunks;
    int64_t count = default_chunks(l, option_named(pipeline->type, "schedule"));
    char *end = NULL;
    if (said && ((count = strtoll(said, &end, 10)) < 1 || count > MAX_CHUNKS || *end))
        fail_command(l, override_text(l, "--chunks", said), "--chunks=2", "a rank has from 1 to %d chunks", MAX_CHUNKS);
    else if (!said && chunks)
        integer_of(l, chunks->child, "'chunks'", 1, MAX_CHUNKS, &count);
    return count < 1 || count > MAX_CHUNKS ? 1 : (int)count;
}

int64_t shrunk_copies(Layout *p)
{
    const Ast *pipeline = only_statement(p, A_PIPELINE);
    return !pipeline ? 2 : 2 * read_chunks(p->l, pipeline) + 1; /* one more: stages differ */
}

static void set_schedule(Layout *p, const Ast *ast, const MeshAxis *axis)
{
    Lower *l = p->l;
    const Ast *schedule = option_named(ast->type, "schedule");
    const char *word = "1f1b", *file = schedule_file(l, schedule);
    if (file)
        word = file;
    else if (schedule || l->options->schedule)
        word = read_word(l, "schedule of a pipeline", schedules, schedule ? schedule->child : NULL, "--schedule",
                         l->options->schedule);
    if (word)
        note_policy(l, "parallel.schedule", word, schedule, l->options->schedule);
    note_policy(l, "parallel.chunks", arena_text(l->arena, "%d", p->pipeline.chunks), option_named(ast->type, "chunks"),
                l->options->chunks);
    if (file)
        use_table(p, schedule, file, axis);
    else if (word && axis && (axis->size == 1 || p->pipeline.repeats))
        use_schedule(p, schedule ? schedule : ast, word, axis);
}

/* --- The whole statement ------------------------------------------------------------------------------------ */

static void check_options(Lower *l, const Ast *options)
{
    for (const Ast *option = options; option; option = option->next)
        if (option->kind != A_KEYWORD || !is_word(pipeline_options, option->name, &(NearMiss){ .name = option->name }))
            complain(l, (Where){ .at = option->loc, .help = "schedule = ..., chunks = ..., stages = [...]" },
                     "pipeline has no option '%s'", option->name);
    check_given_once(l, options);
}

/* What stands between two repeats is on one rank, where the former ends; the first stage of a chunk is on another one,
 * unless chunks alternate. */
static void check_chunk_ends(Layout *p, const Ast *ast, const Repeats *repeats, int ranks)
{
    Lower *l = p->l;
    const Parts even = even_parts(l->arena, repeats, ranks, p->pipeline.chunks);
    const bool are_alike = p->pipeline.parts.count == even.count && p->pipeline.placement != VEE && !l->options->shrink;
    const int chunk = are_alike ? chunk_with_repeat(&p->pipeline.parts, repeats, ranks) : 0;
    const Ast *stages = option_named(ast->type, "stages");
    const char *example = "";
    for (int i = 0; i < even.count; i++)
        example = arena_text(l->arena, "%s%s%lld", example, i ? "," : "", (long long)even.part[i]);
    if (chunk)
        bad_parts(
            l, stages ? stages : ast, chunk_with_repeat(&even, repeats, ranks) ? NULL : example,
            arena_text(l->arena,
                       "chunk %d begins where a repeat does: one copy of it, or of the one before, has to be in the "
                       "other chunk",
                       chunk + 1));
}

static void check_stages(Layout *p, const Ast *ast)
{
    Lower *l = p->l;
    Repeats repeats;
    check_options(l, ast->type);
    const bool are_known = check_repeats(p, ast->child, &repeats);
    const MeshAxis *axis = use_axis(p, ast->init);
    const bool are_counted = l->diags->errors == 0; /* copies in which there is an error may be missing */
    p->pipeline.chunks = read_chunks(l, ast);
    if (!are_counted)
        return;
    if (are_known && axis && axis->size > 1)
        set_stages(p, ast, &repeats, axis);
    else if (axis && l->options->stages)
        bad_parts(l, ast, example_of_parts(l, are_known ? repeats.copies : 1, 1),
                  arena_text(l->arena, "%s has one rank", axis->name));
    set_schedule(p, ast, axis);
    if (p->pipeline.repeats)
        check_chunk_ends(p, ast, &repeats, (int)axis->size);
}

void check_pipeline(Layout *p)
{
    Lower *l = p->l;
    const struct {
        const char *option, *said;
    } said[] = { { "--schedule", l->options->schedule },
                 { "--stages", l->options->stages },
                 { "--chunks", l->options->chunks } };
    const Ast *pipeline = only_statement(p, A_PIPELINE);
    if (pipeline)
        check_stages(p, pipeline);
    for (int i = 0; i < 3 && !pipeline; i++)
        if (said[i].said) {
            fail_command(l, override_text(l, said[i].option, said[i].said), "pipeline h over pp",
                         "the file has no 'pipeline'");
            return;
        }
}
