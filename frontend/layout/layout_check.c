/* layout_check.c -- checks the rules of the layout against the lowered model: every dim that is split occurs in a
 * tensor and is divisible by its axes, and every axis is used. */
#include "cost/cost.h"
#include "operands.h"
#include "parallel.h"

#include <inttypes.h>
#include <string.h>

/* Suggests valid sizes; for a short dim, to share the axis with another one. */
static const char *size_help(Lower *l, const Dim *dim, Axes axes)
{
    int64_t ranks = count_ranks(l->m, axes), below = dim->size / ranks * ranks;
    if (dim->size > 1 && ranks % dim->size == 0 && __builtin_popcount(axes) == 1)
        return arena_text(l->arena, "shard (%s, D) over it, with D a second dim of its tensors that takes the rest",
                          dim->name);
    const char *sizes = below ? arena_text(l->arena, "%" PRId64 " or %" PRId64, below, below + ranks)
                              : arena_text(l->arena, "%" PRId64, ranks);
    return arena_text(l->arena, "dim %s = %s, or = %" PRId64 " padded %" PRId64, dim->name, sizes, dim->size, ranks);
}

static const char *axes_text(Lower *l, Axes axes)
{
    const char *text = NULL;
    for (int i = 0; i < l->m->naxes; i++)
        if (axes >> i & 1)
            text = arena_text(l->arena, "%s%s%s = %" PRId64, text ? text : "", text ? " and " : "", l->m->axis[i],
                              l->m->axis_size[i]);
    return text;
}

/* The micro-batch is multiplied by the ranks over which `shard` splits it; those of `else` must divide it. */
static void check_batch_divides(Lower *l, const Ast *name, Axes axes)
{
    int64_t ranks = count_ranks(l->m, axes), own = ranks / l->data_ranks;
    if (l->m->train.microbatch % ranks)
        complain(l, (Where){ .at = name->loc, .help = arena_text(l->arena, "microbatch = %" PRId64, own) },
                 "'%s' (%" PRId64 ") does not divide by %s", name->name, l->m->train.microbatch, axes_text(l, axes));
}

/* The product of all axes of a dim must divide it; reported once, for the last axis. */
static void check_divides(Lower *l, const Ast *name, int axis)
{
    Dim dim;
    if (!find_dim_named(l, name->name, name->loc, &dim))
        return;
    Axes axes = axes_over(l->m, dim.name, true);
    int64_t ranks = count_ranks(l->m, axes);
    int count = __builtin_popcount(axes);
    if (axes >> axis >> 1)
        return;
    if (count > MAX_SPLIT)
        complain(l, (Where){ .at = name->loc }, "'%s' is split over %d axes; at most %d can be", dim.name, count,
                 MAX_SPLIT);
    else if (dim.name == l->m->batch)
        check_batch_divides(l, name, axes);
    else if (dim.padded % ranks)
        complain(l, (Where){ .at = name->loc, .help = size_help(l, &dim, axes) },
                 "'%s' (%" PRId64 ") does not divide by %s", dim.name, dim.padded, axes_text(l, axes));
}

/* Each rank goes through all places of a scan. */
static void check_scans(Lower *l, const Ast *name)
{
    const ScanDim *scanned = l->noted.scanned;
    while (scanned && strcmp(scanned->dim, name->name) != 0)
        scanned = scanned->next;
    if (scanned && axes_over(l->m, scanned->dim, false))
        complain(l,
                 (Where){ .at = name->loc,
                          .label = arena_text(l->arena, "scanned at %s", position_text(l, scanned->loc)),
                          .help = "split another dim over this axis; 'else' may still name this one" },
                 "'%s' is scanned, position by position, so no rank can begin in the middle of it", name->name);
}

static bool attends_causally(const Module *m, Name dim)
{
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            if (op->attrs.causal && op->attrs.seq == dim)
                return true;
    return false;
}

/* Has each attention a dim that divides by the axis, and by those that split it anyway? */
static void check_exchange(Lower *l, const Ast *ast, const ShardRule *rule)
{
    for (const Func *f = l->m->funcs; f && rule->exchange; f = f->next)
        for (const Op *op = f->first; op; op = op->next) {
            bool divides = !exchanges(l->m, op, rule);
            const char *tried = NULL;
            const Type *x = op->args.count ? &arg(op, 0)->type : NULL;
            for (int i = 0; !divides && i < x->rank; i++) {
                const Dim *dim = &x->dim[i];
                if (!is_exchangeable(l->m, op, rule, dim->name, false) &&
                    !is_exchangeable(l->m, op, rule, dim->name, true))
                    continue;
                const Axes axes = axes_over(l->m, dim->name, false) | 1u << rule->axis;
                divides = dim->padded % count_ranks(l->m, axes) == 0;
                tried = arena_text(l->arena, "%s%s'%s' (%" PRId64 ") does not divide by %s", tried ? tried : "",
                                   tried ? ", and " : "", dim->name, dim->padded, axes_text(l, axes));
            }
            if (divides)
                continue;
            complain(l, (Where){ .at = ast->type->loc, .help = "attend = gather" },
                     "attention cannot exchange '%s' for its heads: %s", rule->dims.name[0],
                     tried ? tried : "queries, keys and values have no other dim in common");
            return;
        }
}

/* Is the ring the outermost axis of this sequence, which has no padding? */
static bool check_ring_along(Lower *l, const Ast *ast, const ShardRule *rule, const Op *op, const Dim *seq)
{
    if (operand_at(op, OPERAND_bias) >= 0 || operand_at(op, OPERAND_sinks) >= 0)
        return complain(
            l, (Where){ .at = ast->type->loc, .also = { op->loc }, .help = "attend = gather, or = all_to_all" },
            "attention along '%s' has a bias, a mask or sinks, which attend = ring does not support", seq->name);
    const Where at = { .at = ast->type->loc, .help = "name it first, or attend = gather" };
    if (seq->padded != seq->size)
        return complain(l, (Where){ .at = at.at, .help = "attend = gather, or a size without padding" },
                        "'%s' has padding, which attend = ring does not support", seq->name);
    for (const ShardRule *other = l->m->rules; other != rule; other = other->next)
        if (has_name(&other->dims, seq->name))
            return complain(l, at, "attend = ring works only along the outermost axis of '%s', which is '%s'",
                            seq->name, l->m->axis[other->axis]);
    return true;
}

static void check_ring(Lower *l, const Ast *ast, const ShardRule *rule)
{
    bool any = false;
    for (const Func *f = l->m->funcs; f && rule->ring; f = f->next)
        for (const Op *op = f->first; op; op = op->next) {
            const Type *q = passes_keys_around(l->m, op, rule) ? &arg(op, 0)->type : NULL;
            any |= q != NULL;
            if (q && !check_ring_along(l, ast, rule, op, &q->dim[find_dim(q, op->attrs.seq)]))
                return;
        }
    if (rule->ring && !any && !l->layout->is_model_wrong)
        complain(l, (Where){ .at = ast->type->loc, .help = "leave it out" },
                 "attend = ring changes nothing: no attention of the model has keys along '%s'", rule->dims.name[0]);
}

/* Are there rows by expert along the dim, or is it the dim of their slots?  Ranks have one block of these. */
static bool has_experts_rows(const Lower *l, Name dim)
{
    for (const Symbol *symbol = l->globals.newest; symbol; symbol = symbol->next)
        if (symbol->is_slots && (symbol->experts == dim || strcmp(symbol->name, dim) == 0))
            return true;
    return false;
}

static bool attends_along(const Module *m, Name dim)
{
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            if (info(op)->traits & IN_BLOCKS && op->attrs.seq == dim)
                return true;
    return false;
}

/* Can `blocks` be dealt to the ranks along this dim?  Else the reason, and in *help the remedy. */
static const char *cannot_deal(const Lower *l, const ShardRule *rule, const Symbol *symbol, Name dim, const char **help)
{
    const int64_t blocks = rule->zigzag * l->m->axis_size[rule->axis];
    for (const ShardRule *other = l->m->rules; other != rule; other = other->next)
        if (has_name(&other->dims, dim))
            return arena_text(l->arena, "blocks are dealt along the outermost axis of '%s', which is '%s'", dim,
                              l->m->axis[other->axis]);
    if (rule->exchange)
        return arena_text(l->arena, "attention exchanges heads for '%s', so that it is the same work on all ranks",
                          dim);
    if (has_experts_rows(l, dim))
        return arena_text(l->arena, "each rank has one block of the rows by expert along '%s'", dim);
    if (symbol->padded % blocks == 0)
        return NULL;
    *help = arena_text(l->arena, "%s = %" PRId64, dim, (symbol->padded + blocks - 1) / blocks * blocks);
    return arena_text(l->arena, "'%s' (%" PRId64 ") does not divide by %" PRId64 " blocks, %d for each rank of '%s'",
                      dim, symbol->padded, blocks, rule->zigzag, l->m->axis[rule->axis]);
}

/* `blocks = N`: for the dim of some attention; others of the rule are dealt likewise. */
static void check_blocks(Lower *l, const Ast *ast, const ShardRule *rule)
{
    const Ast *option = ast->type;
    while (option && (option->kind != A_KEYWORD || strcmp(option->name, "blocks") != 0))
        option = option->next;
    bool any = l->layout->is_model_wrong;
    for (int i = 0; i < rule->dims.count && option; i++) {
        const Name dim = rule->dims.name[i];
        const Symbol *symbol = find_symbol_here(&l->globals, dim);
        any |= attends_along(l->m, dim);
        const char *help = "leave it out", *why = symbol ? cannot_deal(l, rule, symbol, dim, &help) : NULL;
        if (why)
            complain(l, (Where){ .at = option->loc, .help = help }, "%s", why);
    }
    if (option && !any)
        complain(l, (Where){ .at = option->loc, .help = "leave it out" },
                 "no attention of the model is along '%s', so blocks of it balance nothing", rule->dims.name[0]);
}

/* Why messages along `else` cannot be cut into that many pieces, and in *help the remedy; NULL: they can. */
static const char *cannot_cut(const Lower *l, const ShardRule *rule, int naxes, const char **help)
{
    const Name dim = rule->otherwise;
    const Symbol *symbol = find_symbol_here(&l->globals, dim);
    const int64_t blocks = rule->dealt * l->m->axis_size[rule->axis];
    if (naxes > 1)
        return arena_text(l->arena, "pieces are messages over one axis, and '%s' is one of %d", l->m->axis[rule->axis],
                          naxes);
    for (const ShardRule *other = l->m->rules; other; other = other->next)
        if (has_name(&other->dims, dim) || (other != rule && other->otherwise == dim))
            return arena_text(l->arena, "pieces are cut where one axis splits '%s', which '%s' splits, too", dim,
                              l->m->axis[other->axis]);
    if (!symbol || (symbol->padded % blocks == 0 && symbol->padded == symbol->number.integer))
        return NULL;
    *help = arena_text(l->arena, "%s = %" PRId64, dim, (symbol->padded + blocks - 1) / blocks * blocks);
    return arena_text(l->arena, "'%s' (%" PRId64 ") does not divide by %" PRId64 " blocks, %d for each rank of '%s'",
                      dim, (int64_t)symbol->number.integer, blocks, rule->dealt, l->m->axis[rule->axis]);
}

/* `overlap = N` */
static void check_overlap(Lower *l, const Ast *ast, const ShardRule *rule, int naxes)
{
    const Ast *option = ast->type;
    while (option && (option->kind != A_KEYWORD || strcmp(option->name, "overlap") != 0))
        option = option->next;
    if (option && !rule->otherwise) {
        complain(l, (Where){ .at = option->loc, .help = "else seq (overlap = 4), or leave it out" },
                 "'overlap' cuts messages along the dim of 'else', and this rule has none");
        return;
    }
    const char *help = "leave it out", *why = option && rule->dealt ? cannot_cut(l, rule, naxes, &help) : NULL;
    if (why)
        complain(l, (Where){ .at = option->loc, .help = help }, "%s", why);
}

static void check_occurs(Lower *l, const Ast *name)
{
    Dim dim;
    if (find_dim_named(l, name->name, name->loc, &dim) && !l->layout->is_model_wrong && !has_dim(l->m, dim.name) &&
        !map_get(&l->noted.dims, dim.name))
        complain(l, (Where){ .at = name->loc, .help = "leave it out" },
                 "no tensor of the model has the dim '%s', so nothing is split along it", name->name);
}

static void check_shard(Layout *p, const Ast *ast)
{
    Lower *l = p->l;
    const MeshAxis *axis = find_axis(p, ast->name);
    for (const Ast *item = ast->child; item; item = item->next) {
        for (const Ast *dim = item->kind == A_PAIR ? item->child : item; dim;
             dim = item->kind == A_PAIR ? dim->next : NULL)
            check_occurs(l, dim), check_scans(l, dim);
        for (int i = 0; axis && i < axis->count; i++)
            check_divides(l, dim_for(item, axis, i), axis->first + i);
    }
    for (const ShardRule *rule = l->m->rules; axis && ast->type && rule; rule = rule->next)
        if (rule->axis >= axis->first && rule->axis < axis->first + axis->count) {
            check_exchange(l, ast, rule);
            check_ring(l, ast, rule);
            if (rule->axis == axis->first)
                check_overlap(l, ast, rule, axis->count);
            if (rule->zigzag)
                check_blocks(l, ast, rule);
        }
    if (ast->init)
        check_occurs(l, ast->init);
    if (axis && axis->count && ast->init)
        check_divides(l, ast->init, axis->first + axis->count - 1);
}

/* For the sequence dim of causal attention, the first axis is zig-zag, if there are two blocks for each rank and the
 * layout does not say how many. */
static void choose_zigzag(Lower *l)
{
    for (ShardRule *rule = l->m->rules; rule; rule = rule->next) {
        if (rule->zigzag) {
            rule->zigzag = rule->zigzag == 1 ? 0 : rule->zigzag;
            continue;
        }
        for (int i = 0; i < rule->dims.count; i++) {
            Name name = rule->dims.name[i];
            const Symbol *symbol = find_symbol_here(&l->globals, name);
            Axes outermost = axes_over(l->m, name, false);
            bool is_first = true;
            for (const ShardRule *other = l->m->rules; other != rule; other = other->next)
                is_first &= !has_name(&other->dims, name);
            if (rule->exchange || !is_first || !outermost || !symbol || !attends_causally(l->m, name))
                continue;
            const bool divides = symbol->padded % (2 * l->m->axis_size[rule->axis]) == 0;
            rule->zigzag = divides && !has_experts_rows(l, name) ? 2 : 0;
            add_setting(l, arena_text(l->arena, "parallel.zigzag.%s", l->m->axis[rule->axis]),
                        rule->zigzag ? "true" : "false", "", arena_text(l->arena, "causal attention along '%s'", name));
        }
    }
}

static void check_mesh(Layout *p)
{
    for (int i = 0; i < p->naxes; i++) {
        const MeshAxis *axis = &p->axis[i];
        if (!axis->used)
            complain_unused(p->l, (Where){ .at = axis->loc, .help = "shard a dim over it, or remove it" },
                            arena_text(p->l->arena, "the axis '%s' is unused", axis->name));
        add_setting(p->l, arena_text(p->l->arena, "parallel.mesh.%s", axis->name),
                    arena_text(p->l->arena, "%lld", (long long)axis->size), "ranks",
                    axis->on_command_line ? "command line" : where_text(p->l, axis->loc));
    }
}

void check_layout(Lower *l)
{
    Layout *p = l->layout;
    p->is_model_wrong = l->diags->errors > 0;
    for (const Ast *ast = p->parallel ? p->parallel->body : NULL; ast; ast = ast->next)
        if (ast->kind == A_SHARD)
            check_shard(p, ast);
    choose_zigzag(l);
    check_pipeline(p);
    check_offload(p);
    check_mesh(p);
}
