/* layout.c -- `parallel { }`: is it well formed, and does it speak of this model and this mesh?
 *
 * Meshes of more than one rank are refused here; on a mesh of one a layout changes nothing.
 */
#include "lowering.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct Axis {
    const char *name;
    int64_t size;
    Loc loc;
    bool used, on_command_line;
} Axis;

typedef struct {
    Lower *l;
    const Ast *parallel; /* NULL: the file has none */
    Axis axis[MAX_AXES];
    int naxes;
} Layout;

static const char *said_text(Lower *l, const char *option, const char *value)
{
    return arena_text(l->arena, "%s %s", option, value);
}

/* --- The mesh ------------------------------------------------------------------------------ */

static Axis *find_axis(Layout *p, const char *name)
{
    for (int i = 0; i < p->naxes; i++)
        if (strcmp(p->axis[i].name, name) == 0)
            return &p->axis[i];
    return NULL;
}

static const char *axis_help(Layout *p, const char *name)
{
    NearMiss near = { .name = name };
    for (int i = 0; i < p->naxes; i++)
        offer(&near, p->axis[i].name);
    return did_you_mean(p->l->arena, &near);
}

static void use_axis(Layout *p, const Ast *name)
{
    Axis *axis = find_axis(p, name->name);
    if (axis)
        axis->used = true;
    else
        complain(p->l, (Where){ .at = name->loc, .help = axis_help(p, name->name) }, "the mesh has no axis '%s'",
                 name->name);
}

static void read_mesh(Layout *p, const Ast *mesh)
{
    for (const Ast *ast = mesh->child; ast; ast = ast->next) {
        int64_t size = 1;
        integer_of(p->l, ast->child, "the size of a mesh axis", 1, INT32_MAX, &size);
        if (find_axis(p, ast->name))
            complain(p->l, (Where){ .at = ast->name_loc }, "the mesh has an axis '%s' already", ast->name);
        else if (p->naxes == MAX_AXES)
            complain(p->l, (Where){ .at = ast->name_loc }, "a mesh has at most %d axes", MAX_AXES);
        else
            p->axis[p->naxes++] = (Axis){ .name = ast->name, .size = size, .loc = ast->loc };
    }
}

/* One `axis=size` of --mesh, from `at` to `end`. */
static void override_axis(Layout *p, const char *at, const char *end)
{
    Lower *l = p->l;
    const char *said = said_text(l, "--mesh", arena_text(l->arena, "%.*s", (int)(end - at), at));
    const char *equals = memchr(at, '=', (size_t)(end - at));
    char *after = NULL;
    long long size = equals ? strtoll(equals + 1, &after, 10) : 0;
    const char *name = arena_text(l->arena, "%.*s", (int)((equals ? equals : end) - at), at);
    Axis *axis = find_axis(p, name);
    if (after != end || size < 1 || size > INT32_MAX)
        fail_command(l, said, "--mesh dp=2,tp=4", "an axis and its size are needed");
    else if (!axis)
        fail_command(l, said, axis_help(p, name), "the mesh of the file has no axis '%s'", name);
    else if (size > 1)
        fail_command(l, said, NULL, "a mesh of more than one rank is not there yet");
    else
        axis->on_command_line = true;
}

/* --mesh dp=2,tp=4 */
static void override_mesh(Layout *p)
{
    const char *at = p->l->options->mesh;
    while (at) {
        const char *end = at + strcspn(at, ",");
        override_axis(p, at, end);
        at = *end ? end + 1 : NULL;
    }
}

static void check_mesh(Layout *p)
{
    for (int i = 0; i < p->naxes; i++) {
        const Axis *axis = &p->axis[i];
        if (axis->size > 1)
            complain(p->l, (Where){ .at = axis->loc }, "'%s' is %lld: a mesh of more than one rank is not there yet",
                     axis->name, (long long)axis->size);
        if (!axis->used)
            complain(p->l, (Where){ .at = axis->loc, .help = "shard a dim over it, or remove it" },
                     "the axis '%s' is used by nothing", axis->name);
        add_setting(p->l, arena_text(p->l->arena, "parallel.mesh.%s", axis->name),
                    arena_text(p->l->arena, "%lld", (long long)axis->size), "ranks",
                    axis->on_command_line ? "command line" : where_text(p->l, axis->loc));
    }
}

/* --- shard --------------------------------------------------------------------------------- */

static void check_dim_name(Lower *l, const Ast *name)
{
    Dim dim;
    find_dim_named(l, name->name, name->loc, &dim);
}

static void check_shard(Layout *p, const Ast *ast)
{
    const Ast axis = { .kind = A_NAME, .name = ast->name, .loc = ast->name_loc };
    for (const Ast *dim = ast->child; dim; dim = dim->next) {
        if (dim->kind == A_NAME)
            check_dim_name(p->l, dim);
        for (const Ast *part = dim->kind == A_PAIR ? dim->child : NULL; part; part = part->next)
            check_dim_name(p->l, part);
    }
    if (ast->init)
        check_dim_name(p->l, ast->init);
    use_axis(p, &axis);
}

/* --- Words ---------------------------------------------------------------------------------- */

static const char *const schedules[] = { "gpipe", "1f1b", "interleaved", "zb", NULL };
static const char *const recomputations[] = { "none", "full", "selective", NULL };
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

/* A word of the file, or its twin of the command line; NULL after reporting. */
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
        fail_command(l, said_text(l, option, said), help, "'%s' is no %s", said, what);
    else
        complain(l, (Where){ .at = ast->kind == A_ZERO ? ast->name_loc : ast->loc, .help = help }, "%s is no %s",
                 quoted(l, ast), what);
    return NULL;
}

static void note(Lower *l, const char *name, const char *value, const Ast *ast, bool said)
{
    add_setting(l, name, value, "", said ? "command line" : ast ? where_text(l, ast->loc) : "default");
}

/* --- pipeline, zero, recompute ----------------------------------------------------------------- */

static const Ast *option_named(const Ast *list, const char *name)
{
    while (list && (list->kind != A_KEYWORD || strcmp(list->name, name) != 0))
        list = list->next;
    return list;
}

static void check_repeated(Layout *p, const Ast *ast)
{
    NearMiss near = { .name = ast->name };
    for (const Repeated *r = p->l->repeated; r; r = r->next) {
        if (strcmp(r->name, ast->name) == 0)
            return;
        offer(&near, r->name);
    }
    complain(p->l, (Where){ .at = ast->name_loc, .help = did_you_mean(p->l->arena, &near) },
             "no repeat has an instance '%s', nor is '%s' how often one repeats", ast->name, ast->name);
}

static void check_pipeline(Layout *p, const Ast *ast)
{
    Lower *l = p->l;
    const Ast *schedule = option_named(ast->child, "schedule"), *chunks = option_named(ast->child, "chunks");
    int64_t count = 1;
    for (const Ast *option = ast->child; option; option = option->next)
        if (option != schedule && option != chunks)
            complain(l, (Where){ .at = option->loc, .help = "schedule = ..., chunks = ..." },
                     "pipeline has no option '%s'", option->name);
    check_repeated(p, ast);
    use_axis(p, ast->init);
    const char *word = "1f1b";
    if (schedule || l->options->schedule)
        word = read_word(l, "schedule of a pipeline", schedules, schedule ? schedule->child : NULL, "--schedule",
                         l->options->schedule);
    if (chunks && integer_of(l, chunks->child, "'chunks'", 1, 1024, &count) && count > 1 && word &&
        strcmp(word, "interleaved") != 0)
        complain(l, (Where){ .at = chunks->loc, .help = "schedule = interleaved" },
                 "only an interleaved schedule has chunks");
    if (word)
        note(l, "parallel.schedule", word, schedule, l->options->schedule);
}

static void check_zero(Layout *p, const Ast *ast)
{
    Lower *l = p->l;
    const char *stage = read_word(l, "stage of zero", stages, ast, "--zero", l->options->zero);
    for (const Ast *option = ast->child; option; option = option->next)
        complain(l, (Where){ .at = option->loc }, "options of zero are not there yet");
    if (ast->init)
        use_axis(p, ast->init);
    else if (stage && strcmp(stage, "0") != 0)
        complain(l, (Where){ .at = ast->loc, .help = arena_text(l->arena, "zero %s over dp", stage) },
                 "zero %s needs the axis that it is over", stage);
    if (stage)
        note(l, "parallel.zero", stage, ast, l->options->zero);
}

static void check_recompute(Lower *l, const Ast *ast)
{
    const Ast *value = ast ? ast->child : NULL;
    const char *said = l->options->recompute, *word = "none";
    bool is_auto = said ? strncmp(said, "auto", 4) == 0 : value && value->name && strcmp(value->name, "auto") == 0;
    if (is_auto && said)
        fail_command(l, said_text(l, "--recompute", said), "none, full or selective",
                     "recompute auto is not there yet");
    else if (is_auto)
        complain(l, (Where){ .at = value->loc, .help = "none, full or selective" }, "recompute auto is not there yet");
    else if (value || said)
        word = read_word(l, "recomputation", recomputations, value, "--recompute", said);
    l->m->train.recompute = intern_text(l->m, word ? word : "none");
    note(l, "parallel.recompute", l->m->train.recompute, value, said);
}

/* --- All of it ------------------------------------------------------------------------------- */

static void find_parallel(Layout *p)
{
    for (const Ast *ast = p->l->file; ast; ast = ast->next) {
        if (ast->kind == A_PARALLEL && p->parallel)
            complain(p->l, (Where){ .at = ast->name_loc }, "a second parallel: the first is at %s",
                     position_text(p->l, p->parallel->name_loc));
        else if (ast->kind == A_PARALLEL)
            p->parallel = ast;
    }
}

/* The statement of a kind; a second one is an error, where one is all there can be. */
static const Ast *only_statement(Layout *p, AstKind kind)
{
    const Ast *found = NULL;
    for (const Ast *ast = p->parallel ? p->parallel->body : NULL; ast; ast = ast->next) {
        if (ast->kind == kind && found)
            complain(p->l, (Where){ .at = ast->loc }, "said already at %s", position_text(p->l, found->loc));
        else if (ast->kind == kind)
            found = ast;
    }
    return found;
}

void check_layout(Lower *l)
{
    Layout p = { .l = l };
    find_parallel(&p);
    const Ast *mesh = only_statement(&p, A_MESH), *pipeline = only_statement(&p, A_PIPELINE);
    const Ast *zero = only_statement(&p, A_ZERO), *recompute = only_statement(&p, A_RECOMPUTE);
    if (mesh)
        read_mesh(&p, mesh);
    override_mesh(&p);
    for (const Ast *ast = p.parallel ? p.parallel->body : NULL; ast; ast = ast->next)
        if (ast->kind == A_SHARD)
            check_shard(&p, ast);
    if (pipeline)
        check_pipeline(&p, pipeline);
    else if (l->options->schedule)
        fail_command(l, said_text(l, "--schedule", l->options->schedule), "pipeline h over pp",
                     "the file has no pipeline");
    if (zero)
        check_zero(&p, zero);
    else if (l->options->zero)
        fail_command(l, said_text(l, "--zero", l->options->zero), "zero 1 over dp", "the file has no zero");
    check_recompute(l, recompute);
    check_mesh(&p);
}
