/* layout.c -- `parallel { }`: the mesh and the `shard` statements become axes and rules of the module.
 *
 * An axis of one rank is checked and then removed with all its uses, so that on a mesh of one rank a layout has no
 * effect.  The mesh is read before the model, whose batch depends on it; the rules are checked against the model after
 * it.
 *
 *   mesh tp = 4                                  mesh tp.kv_heads=2, tp.group=2
 *   shard (kv_heads, group), ff over tp    =>    shard kv_heads+ff over tp.kv_heads
 *   dim kv_heads = 2                             shard group+ff over tp.group
 */
#include "cost/cost.h"
#include "lower/expr.h"
#include "parallel.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char DATA_AXIS[] = "dp";

/* --- The mesh ------------------------------------------------------------------------------ */

static void read_mesh(Layout *p, const Ast *mesh)
{
    for (const Ast *ast = mesh->child; ast; ast = ast->next) {
        int64_t size = 1;
        integer_of(p->l, ast->child, "the size of a mesh axis", 1, MOST_RANKS, &size);
        if (find_axis(p, ast->name))
            complain(p->l, (Where){ .at = ast->name_loc }, "the mesh already has an axis '%s'", ast->name);
        else if (p->naxes == MAX_AXES)
            complain(p->l, (Where){ .at = ast->name_loc }, "a mesh has at most %d axes", MAX_AXES);
        else
            p->axis[p->naxes++] = (MeshAxis){ .name = ast->name, .size = size, .loc = ast->loc };
    }
}

static bool is_shard_over(const Ast *ast, const char *axis)
{
    return ast->kind == A_SHARD && strcmp(ast->name, axis) == 0;
}

static bool may_add_data_axis(const Layout *p)
{
    for (const Ast *ast = p->parallel ? p->parallel->body : NULL; ast; ast = ast->next)
        if (is_shard_over(ast, DATA_AXIS))
            return false;
    return p->l->batch && p->naxes < MAX_AXES;
}

/* --mesh dp=2 of a model that says nothing about dp is data parallelism: the outermost axis, which splits the batch. */
static MeshAxis *add_data_axis(Layout *p)
{
    for (int i = p->naxes++; i > 0; i--)
        p->axis[i] = p->axis[i - 1];
    p->axis[0] = (MeshAxis){ .name = DATA_AXIS, .used = true, .of_batch = true };
    return &p->axis[0];
}

/* One `axis=size` of --mesh, from `at` to `end`. */
static void override_axis(Layout *p, const char *at, const char *end)
{
    Lower *l = p->l;
    const char *said = override_text(l, "--mesh", arena_text(l->arena, "%.*s", (int)(end - at), at));
    const char *equals = memchr(at, '=', (size_t)(end - at));
    char *after = NULL;
    long long size = equals ? strtoll(equals + 1, &after, 10) : 0;
    const char *name = arena_text(l->arena, "%.*s", (int)((equals ? equals : end) - at), at);
    MeshAxis *axis = find_axis(p, name);
    const bool adds = !axis && strcmp(name, DATA_AXIS) == 0 && may_add_data_axis(p);
    if (!equals || after == equals + 1 || after != end)
        fail_command(l, said, "--mesh dp=2,tp=4", "an axis and its size, a whole number, are needed");
    else if (size < 1 || size > MOST_RANKS)
        fail_command(l, said, NULL, "the size of an axis must be from 1 to %d", MOST_RANKS);
    else if (adds)
        axis = add_data_axis(p), axis->size = size, axis->on_command_line = true;
    else if (!axis)
        fail_command(
            l, said,
            axis_help(
                p, name,
                arena_text(l->arena,
                           "write 'mesh %s = 1' and what it splits, as 'shard %s over %s', into 'parallel { }', or let "
                           "'mpc plan' write it (--write); only %s, which splits the batch, needs no declaration",
                           name, dims_to_split(l), name, DATA_AXIS)),
            "the mesh of the file has no axis '%s'", name);
    else if (axis->on_command_line)
        fail_command(l, said, NULL, "'%s' already has a size", name);
    else
        axis->size = size, axis->on_command_line = true;
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

/* Ranks are counted in 32 bits, as MPI does. */
static void check_rank_count(Layout *p, const Ast *mesh)
{
    Lower *l = p->l;
    int64_t ranks = 1;
    for (int i = 0; i < p->naxes && ranks <= MOST_RANKS; i++)
        ranks *= p->axis[i].size;
    if (ranks <= MOST_RANKS)
        return;
    if (l->options->mesh)
        fail_command(l, override_text(l, "--mesh", l->options->mesh), "make an axis smaller",
                     "the mesh has more than %d ranks", MOST_RANKS);
    else
        complain(l, (Where){ .at = mesh->loc, .help = "make an axis smaller" }, "the mesh has more than %d ranks",
                 MOST_RANKS);
    for (int i = 0; i < p->naxes; i++) /* so that the rest can be checked */
        p->axis[i].size = 1;
}

/* For verification, a few ranks are sufficient. */
static void shrink_mesh(Layout *p)
{
    for (int i = 0; i < p->naxes; i++) {
        p->axis[i].declared = p->axis[i].size;
        p->axis[i].size = p->l->options->shrink && p->axis[i].size > 2 ? 2 : p->axis[i].size;
    }
}

/* --- Axes of the module ---------------------------------------------------------------------- */

static int64_t common_divisor(int64_t a, int64_t b) { return b ? common_divisor(b, a % b) : a; }

/* The first pair of dims that is split over the axis; NULL: none. */
static const Ast *pair_over(const Layout *p, const char *axis)
{
    for (const Ast *ast = p->parallel ? p->parallel->body : NULL; ast; ast = ast->next)
        for (const Ast *dim = is_shard_over(ast, axis) ? ast->child : NULL; dim; dim = dim->next)
            if (dim->kind == A_PAIR)
                return dim;
    return NULL;
}

static void add_axis(Layout *p, const char *name, int64_t size)
{
    Module *m = p->l->m;
    if (m->naxes == MAX_AXES) {
        complain(p->l, (Where){ .at = p->parallel->name_loc }, "the layout needs more than %d axes", MAX_AXES);
        return;
    }
    m->axis[m->naxes] = intern_text(m, name);
    m->axis_size[m->naxes++] = size;
}

/* If an axis has more ranks than the first dim of its pair has elements, it becomes two axes.  If the first dim cannot
 * be split (a single key-value head), the axis is the second dim's. */
static void add_axes(Layout *p, MeshAxis *axis)
{
    Lower *l = p->l;
    const Ast *pair = pair_over(p, axis->name);
    Dim first;
    axis->first = l->m->naxes;
    if (axis->size == 1)
        return;
    int64_t outer = axis->size;
    if (pair && find_dim_named(l, pair->child->name, pair->child->loc, &first))
        outer = common_divisor(first.padded, axis->size);
    if (outer < axis->size && outer > 1) {
        add_axis(p, arena_text(l->arena, "%s.%s", axis->name, pair->child->name), outer);
        add_axis(p, arena_text(l->arena, "%s.%s", axis->name, pair->child->next->name), axis->size / outer);
    } else {
        axis->only_second = pair && outer == 1;
        add_axis(p, axis->name, axis->size);
    }
    axis->count = l->m->naxes - axis->first;
}

/* --- Rules --------------------------------------------------------------------------------- */

const Ast *dim_for(const Ast *dim, const MeshAxis *axis, int number)
{
    return dim->kind != A_PAIR ? dim : number || axis->only_second ? dim->child->next : dim->child;
}

typedef enum { ATTEND_GATHER, ATTEND_ALL_TO_ALL, ATTEND_RING, N_ATTENDS } Attend;

/* What `shard` says of attention along its dims. */
typedef struct {
    Attend attend;
    int64_t blocks; /* of each rank; 0: as attention needs */
    int64_t pieces; /* of messages along `else`; 1: whole */
} ShardOptions;

/* gather: attention has a part of the queries and all keys; all_to_all: a part of the heads; ring: a part of the
 * queries, and a block of keys at a time. */
static Attend read_attend(Layout *p, const Ast *word)
{
    static const char *const words[N_ATTENDS] = { "gather", "all_to_all", "ring" };
    for (int i = 0; i < N_ATTENDS && word->kind == A_NAME; i++)
        if (strcmp(word->name, words[i]) == 0)
            return (Attend)i;
    complain(p->l, (Where){ .at = word->loc, .help = "attend = gather, = all_to_all, or = ring" },
             "attention gathers keys, exchanges heads, or passes keys around a ring");
    return ATTEND_GATHER;
}

static int64_t read_blocks(Layout *p, const Ast *number)
{
    int64_t blocks = 0;
    if (integer_of(p->l, number, "'blocks'", 1, MAX_ZIGZAG, &blocks) && blocks > 1 && blocks % 2)
        return complain(p->l,
                        (Where){ .at = number->loc, .help = arena_text(p->l->arena, "blocks = %" PRId64, blocks + 1) },
                        "blocks are dealt forth and back, so each rank has an even number of them, or one"),
               0;
    return blocks;
}

static ShardOptions read_options(Layout *p, const Ast *ast)
{
    ShardOptions options = { .attend = ATTEND_GATHER };
    check_given_once(p->l, ast->type);
    for (const Ast *option = ast->type; option; option = option->next) {
        const bool has_value = option->kind == A_KEYWORD && option->child;
        if (has_value && strcmp(option->name, "attend") == 0)
            options.attend = read_attend(p, option->child);
        else if (has_value && strcmp(option->name, "blocks") == 0)
            options.blocks = read_blocks(p, option->child);
        else if (has_value && strcmp(option->name, "overlap") == 0)
            integer_of(p->l, option->child, "'overlap'", 1, MAX_CONCAT, &options.pieces);
        else
            complain(p->l,
                     (Where){ .at = option->loc,
                              .help = "attend = gather, = all_to_all, or = ring; blocks = 8; overlap = 4" },
                     "'shard' has no option '%s'", option->name);
    }
    return options;
}

static void add_rule(Layout *p, const Ast *ast, const MeshAxis *axis, int number, ShardOptions options)
{
    Module *m = p->l->m;
    ShardRule *rule = NEW(p->l->arena, ShardRule), **end = &m->rules;
    rule->exchange = options.attend == ATTEND_ALL_TO_ALL;
    rule->ring = options.attend == ATTEND_RING;
    rule->zigzag = number == 0 ? (int)options.blocks : 0;
    rule->axis = axis->first + number;
    for (const Ast *dim = ast->child; dim; dim = dim->next)
        add_name(&rule->dims, intern_text(m, dim_for(dim, axis, number)->name));
    rule->otherwise = ast->init ? intern_text(m, ast->init->name) : NULL;
    rule->dealt = rule->otherwise && options.pieces > 1 ? (int)options.pieces : 0;
    while (*end)
        end = &(*end)->next;
    *end = rule;
}

/* The position of `dim` in a list before `end`; NULL: absent. */
static const Ast *listed(const Ast *list, const char *dim, const Ast *end)
{
    for (const Ast *item = list; item && item != end; item = item->next) {
        const Ast *found = item->kind == A_PAIR ? listed(item->child, dim, end) : NULL;
        if (found || (item->kind == A_NAME && strcmp(item->name, dim) == 0))
            return found ? found : item;
    }
    return NULL;
}

/* Checks the name of a dim, and that it occurs once in the rules of the axis. */
static void check_dim_name(Layout *p, const Ast *shard, const Ast *name)
{
    Dim dim;
    const Ast *before = NULL;
    if (!find_dim_named(p->l, name->name, name->loc, &dim))
        return;
    for (const Ast *ast = p->parallel->body; ast && !before; ast = ast == shard ? NULL : ast->next)
        if (is_shard_over(ast, shard->name))
            before = listed(ast->child, name->name, name);
    if (before && before->loc.begin < name->loc.begin)
        complain(p->l, (Where){ .at = name->loc }, "'%s' is already split over '%s', at %s", name->name, shard->name,
                 position_text(p->l, before->loc));
}

static void check_dim_names(Layout *p, const Ast *shard)
{
    int count = 0;
    for (const Ast *dim = shard->child; dim; dim = dim->next) {
        if (dim->kind == A_NAME)
            check_dim_name(p, shard, dim);
        for (const Ast *part = dim->kind == A_PAIR ? dim->child : NULL; part; part = part->next)
            check_dim_name(p, shard, part);
        if (++count == MAX_NAMES + 1)
            complain(p->l, (Where){ .at = dim->loc, .help = "another shard over the same axis" },
                     "a shard names at most %d dims", MAX_NAMES);
    }
    if (shard->init)
        check_dim_name(p, shard, shard->init);
}

/* "parallel.shard.tp" = "(kv_heads, group), ff else seq" */
static void note_shard(Layout *p, const Ast *ast)
{
    Arena *arena = p->l->arena;
    const char *dims = "";
    for (const Ast *dim = ast->child; dim; dim = dim->next)
        dims = arena_text(arena, "%s%s%s", dims, *dims ? ", " : "",
                          dim->kind == A_PAIR ? arena_text(arena, "(%s, %s)", dim->child->name, dim->child->next->name)
                                              : dim->name);
    add_setting(p->l, arena_text(arena, "parallel.shard.%s", ast->name),
                arena_text(arena, "%s%s%s", dims, ast->init ? " else " : "", ast->init ? ast->init->name : ""), "",
                where_text(p->l, ast->loc));
}

static void read_shard(Layout *p, const Ast *ast)
{
    const Ast name = { .kind = A_NAME, .name = ast->name, .loc = ast->name_loc };
    check_dim_names(p, ast);
    const MeshAxis *axis = use_axis(p, &name);
    const ShardOptions options = read_options(p, ast);
    for (int i = 0; axis && i < axis->count; i++)
        add_rule(p, ast, axis, i, options);
    note_shard(p, ast);
}

/* As `shard batch over dp` would. */
static void split_batch(Layout *p, const MeshAxis *axis)
{
    Lower *l = p->l;
    const Ast batch = { .kind = A_NAME, .name = l->batch->name }, shard = { .kind = A_SHARD, .child = (Ast *)&batch };
    for (int i = 0; i < axis->count; i++)
        add_rule(p, &shard, axis, i, (ShardOptions){ 0 });
    add_setting(l, arena_text(l->arena, "parallel.shard.%s", axis->name), l->batch->name, "", "command line");
}

/* Blocks that each rank may get of a dim. */
static int most_blocks(const Module *m, Name dim)
{
    int most = axes_over(m, dim, false) ? 2 : 1;
    for (const ShardRule *rule = m->rules; rule; rule = rule->next) {
        most = has_name(&rule->dims, dim) && rule->zigzag > most ? rule->zigzag : most;
        most = rule->otherwise == dim && rule->dealt > most ? rule->dealt : most;
    }
    return most;
}

/* Sizes shrunk for verification become multiples of those that the layout needs, including zig-zag. */
static void fit_shrunk_dims(Lower *l)
{
    for (Symbol *s = l->globals.newest; s && l->options->shrink; s = s->next) {
        Name name = intern_text(l->m, s->name);
        int64_t multiple = count_ranks(l->m, axes_over(l->m, name, true)) * most_blocks(l->m, name);
        if (s->kind != S_DIM || s == l->batch || multiple == 1)
            continue;
        bool is_padded = s->padded != s->number.integer;
        s->padded = (s->padded + multiple - 1) / multiple * multiple;
        s->number = integer_constant(is_padded ? s->padded - 1 : s->padded);
    }
}

/* --- The whole statement --------------------------------------------------------------------- */

static void find_parallel(Layout *p)
{
    for (const Ast *ast = p->l->file; ast; ast = ast->next) {
        if (ast->kind == A_PARALLEL && p->parallel)
            complain(p->l, (Where){ .at = ast->name_loc }, "a second 'parallel': the first is at %s",
                     position_text(p->l, p->parallel->name_loc));
        else if (ast->kind == A_PARALLEL)
            p->parallel = ast;
    }
}

void read_layout(Lower *l)
{
    Layout *p = l->layout = NEW(l->arena, Layout);
    p->l = l;
    find_parallel(p);
    const Ast *mesh = only_statement(p, A_MESH);
    if (mesh)
        read_mesh(p, mesh);
    override_mesh(p);
    check_rank_count(p, mesh);
    shrink_mesh(p);
    for (int i = 0; i < p->naxes; i++)
        add_axes(p, &p->axis[i]);
    for (int i = 0; i < p->naxes; i++)
        if (p->axis[i].of_batch)
            split_batch(p, &p->axis[i]);
    for (const Ast *ast = p->parallel ? p->parallel->body : NULL; ast; ast = ast->next)
        if (ast->kind == A_SHARD)
            read_shard(p, ast);
    fit_shrunk_dims(l);
    const Axes of_batch = l->batch ? axes_over(l->m, intern_text(l->m, l->batch->name), false) : 0;
    l->data_ranks = l->declared_ranks = count_ranks(l->m, of_batch);
    for (int i = 0; i < p->naxes; i++)
        if (of_batch >> p->axis[i].first & ((1u << p->axis[i].count) - 1))
            l->declared_ranks = l->declared_ranks * p->axis[i].declared / p->axis[i].size; /* or its part */
    read_policies(p);
    l->shrunk_copies = l->options->shrink ? shrunk_copies(p) : 0;
}
