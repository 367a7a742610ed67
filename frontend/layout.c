/* layout.c -- `parallel { }`: the mesh and the `shard` statements become axes and rules of the module.
 *
 * An axis of one rank is nothing: it is checked, and then left out with all that names it, so that on a mesh of one a
 * layout changes nothing.  The mesh is read before the model, whose batch grows with it; whether the rules speak of
 * this model can be said only after it.
 *
 *   mesh tp = 4                                  mesh tp.kv_heads=2, tp.group=2
 *   shard (kv_heads, group), ff over tp    =>    shard kv_heads+ff over tp.kv_heads
 *   dim kv_heads = 2                             shard group+ff over tp.group
 */
#include "layout.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *said_text(Lower *l, const char *option, const char *value)
{
    return arena_text(l->arena, "%s %s", option, value);
}

/* --- The mesh ------------------------------------------------------------------------------ */

MeshAxis *find_axis(Layout *p, const char *name)
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

MeshAxis *use_axis(Layout *p, const Ast *name)
{
    MeshAxis *axis = find_axis(p, name->name);
    if (axis)
        axis->used = true;
    else
        complain(p->l, (Where){ .at = name->loc, .help = axis_help(p, name->name) }, "the mesh has no axis '%s'",
                 name->name);
    return axis;
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
            p->axis[p->naxes++] = (MeshAxis){ .name = ast->name, .size = size, .loc = ast->loc };
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
    MeshAxis *axis = find_axis(p, name);
    if (after != end || size < 1 || size > INT32_MAX)
        fail_command(l, said, "--mesh dp=2,tp=4", "an axis and its size are needed");
    else if (!axis)
        fail_command(l, said, axis_help(p, name), "the mesh of the file has no axis '%s'", name);
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

static void check_mesh(Layout *p)
{
    for (int i = 0; i < p->naxes; i++) {
        const MeshAxis *axis = &p->axis[i];
        if (!axis->used)
            complain(p->l, (Where){ .at = axis->loc, .help = "shard a dim over it, or remove it" },
                     "the axis '%s' is used by nothing", axis->name);
        add_setting(p->l, arena_text(p->l->arena, "parallel.mesh.%s", axis->name),
                    arena_text(p->l->arena, "%lld", (long long)axis->size), "ranks",
                    axis->on_command_line ? "command line" : where_text(p->l, axis->loc));
    }
}

/* For verification a few ranks say as much as many. */
static void shrink_mesh(Layout *p)
{
    for (int i = 0; i < p->naxes && p->l->options->shrink; i++)
        p->axis[i].size = p->axis[i].size > 2 ? 2 : p->axis[i].size;
}

/* --- Axes of the module ---------------------------------------------------------------------- */

static int64_t common_divisor(int64_t a, int64_t b) { return b ? common_divisor(b, a % b) : a; }

static bool is_shard_over(const Ast *ast, const char *axis)
{
    return ast->kind == A_SHARD && strcmp(ast->name, axis) == 0;
}

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

/* An axis with more ranks than the first dim of its pair has elements is two axes. */
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
        add_axis(p, axis->name, axis->size);
    }
    axis->count = l->m->naxes - axis->first;
}

/* --- Rules --------------------------------------------------------------------------------- */

/* The dim that an element of the list means for the number-th of the axes that the mesh's axis has become. */
static const Ast *dim_for(const Ast *dim, int number)
{
    return dim->kind != A_PAIR ? dim : number ? dim->child->next : dim->child;
}

static void add_rule(Layout *p, const Ast *ast, const MeshAxis *axis, int number)
{
    Module *m = p->l->m;
    ShardRule *rule = NEW(p->l->arena, ShardRule), **end = &m->rules;
    rule->axis = axis->first + number;
    for (const Ast *dim = ast->child; dim; dim = dim->next)
        add_name(&rule->dims, intern_text(m, dim_for(dim, number)->name));
    rule->otherwise = ast->init ? intern_text(m, ast->init->name) : NULL;
    while (*end)
        end = &(*end)->next;
    *end = rule;
}

static void check_dim_name(Lower *l, const Ast *name)
{
    Dim dim;
    find_dim_named(l, name->name, name->loc, &dim);
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
    for (const Ast *dim = ast->child; dim; dim = dim->next) {
        if (dim->kind == A_NAME)
            check_dim_name(p->l, dim);
        for (const Ast *part = dim->kind == A_PAIR ? dim->child : NULL; part; part = part->next)
            check_dim_name(p->l, part);
    }
    if (ast->init)
        check_dim_name(p->l, ast->init);
    const MeshAxis *axis = use_axis(p, &name);
    for (int i = 0; axis && i < axis->count; i++)
        add_rule(p, ast, axis, i);
    note_shard(p, ast);
}

int64_t ranks_of(const Module *m, Axes axes)
{
    int64_t ranks = 1;
    for (int i = 0; i < m->naxes; i++)
        ranks *= axes >> i & 1 ? m->axis_size[i] : 1;
    return ranks;
}

/* The axes that rules split a dim over; with those that do so as a last resort. */
static Axes axes_over(const Module *m, Name dim, bool otherwise)
{
    Axes axes = 0;
    for (const ShardRule *rule = m->rules; rule; rule = rule->next)
        if (has_name(&rule->dims, dim) || (otherwise && rule->otherwise == dim))
            axes |= 1u << rule->axis;
    return axes;
}

/* Sizes that were cut down for verification become multiples of what the layout needs, zig-zag included. */
static void fit_shrunk_dims(Lower *l)
{
    for (Symbol *s = l->globals.newest; s && l->options->shrink; s = s->next) {
        Name name = intern_text(l->m, s->name);
        int64_t multiple = ranks_of(l->m, axes_over(l->m, name, true)) * (axes_over(l->m, name, false) ? 2 : 1);
        if (s->kind != S_DIM || s == l->batch || multiple == 1)
            continue;
        bool is_padded = s->padded != s->number.integer;
        s->padded = (s->padded + multiple - 1) / multiple * multiple;
        s->number = integer_constant(is_padded ? s->padded - 1 : s->padded);
    }
}

/* --- Do the rules fit the model? -------------------------------------------------------------- */

static const char *size_help(Lower *l, const Dim *dim, int64_t ranks)
{
    int64_t below = dim->size / ranks * ranks;
    const char *sizes = below ? arena_text(l->arena, "%" PRId64 " or %" PRId64, below, below + ranks)
                              : arena_text(l->arena, "%" PRId64, ranks);
    return arena_text(l->arena, "dim %s = %s, or = %" PRId64 " padded %" PRId64, dim->name, sizes, dim->size, ranks);
}

static const char *axes_text(Lower *l, Axes axes)
{
    const char *text = NULL;
    for (int i = 0; i < l->m->naxes; i++)
        if (axes >> i & 1)
            text = arena_text(l->arena, "%s%s%s = %" PRId64, text ? text : "", text ? ", " : "", l->m->axis[i],
                              l->m->axis_size[i]);
    return text;
}

static void check_divides(Lower *l, const Ast *name, bool otherwise)
{
    Dim dim;
    if (!find_dim_named(l, name->name, name->loc, &dim) || dim.name == l->m->batch)
        return;
    Axes axes = axes_over(l->m, dim.name, otherwise);
    int64_t ranks = ranks_of(l->m, axes);
    int count = __builtin_popcount(axes);
    if (count > MAX_SPLIT)
        complain(l, (Where){ .at = name->loc }, "'%s' is split over %d axes; at most %d can be", dim.name, count,
                 MAX_SPLIT);
    else if (dim.padded % ranks)
        complain(l, (Where){ .at = name->loc, .help = size_help(l, &dim, ranks) },
                 "'%s' (%" PRId64 ") does not divide by %s", dim.name, dim.padded, axes_text(l, axes));
}

static bool has_dim(const Module *m, Name dim)
{
    for (const Func *f = m->funcs; f; f = f->next) {
        for (int i = 0; i < f->params.count; i++)
            if (find_dim(&f->params.at[i]->type, dim) >= 0)
                return true;
        for (const Op *op = f->first; op; op = op->next)
            for (int i = 0; i < op->results.count; i++)
                if (find_dim(&op->results.at[i]->type, dim) >= 0)
                    return true;
    }
    return false;
}

static bool attends_causally(const Module *m, Name dim)
{
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            if (op->attrs.causal && op->attrs.seq == dim)
                return true;
    return false;
}

static void check_shard(Layout *p, const Ast *ast)
{
    Lower *l = p->l;
    const MeshAxis *axis = find_axis(p, ast->name);
    bool speaks_of_model = false;
    for (int i = 0; axis && i < axis->count; i++)
        for (const Ast *item = ast->child; item; item = item->next) {
            const Ast *dim = dim_for(item, i);
            speaks_of_model |= has_dim(l->m, intern_text(l->m, dim->name));
            check_divides(l, dim, false);
        }
    if (axis && axis->count && ast->init)
        check_divides(l, ast->init, true);
    if (axis && axis->count && !speaks_of_model)
        complain(l, (Where){ .at = ast->child->loc },
                 "no tensor of the model has a dim of these: nothing is split over '%s'", ast->name);
}

/* Along a dim that causal attention runs along, the first axis deals its blocks out forth and back. */
static void choose_zigzag(const Lower *l)
{
    for (ShardRule *rule = l->m->rules; rule; rule = rule->next)
        for (int i = 0; i < rule->dims.count; i++) {
            Name name = rule->dims.name[i];
            const Symbol *symbol = find_symbol_here(&l->globals, name);
            Axes outermost = axes_over(l->m, name, false);
            bool is_first = true;
            for (const ShardRule *other = l->m->rules; other != rule; other = other->next)
                is_first &= !has_name(&other->dims, name);
            if (is_first && outermost && symbol && attends_causally(l->m, name))
                rule->zigzag = symbol->padded % (2 * l->m->axis_size[rule->axis]) == 0;
        }
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

const Ast *only_statement(Layout *p, AstKind kind)
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

void read_layout(Lower *l)
{
    Layout *p = l->layout = NEW(l->arena, Layout);
    p->l = l;
    find_parallel(p);
    const Ast *mesh = only_statement(p, A_MESH);
    if (mesh)
        read_mesh(p, mesh);
    override_mesh(p);
    shrink_mesh(p);
    for (int i = 0; i < p->naxes; i++)
        add_axes(p, &p->axis[i]);
    for (const Ast *ast = p->parallel ? p->parallel->body : NULL; ast; ast = ast->next)
        if (ast->kind == A_SHARD)
            read_shard(p, ast);
    fit_shrunk_dims(l);
    l->data_ranks = l->batch ? ranks_of(l->m, axes_over(l->m, intern_text(l->m, l->batch->name), false)) : 1;
    read_policies(p);
}

void check_layout(Lower *l)
{
    Layout *p = l->layout;
    for (const Ast *ast = p->parallel ? p->parallel->body : NULL; ast; ast = ast->next)
        if (ast->kind == A_SHARD)
            check_shard(p, ast);
    choose_zigzag(l);
    check_pipeline(p);
    check_mesh(p);
}
