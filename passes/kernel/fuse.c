/* fuse.c -- groups ops into kernels: functions with the role KERNEL, each one loop nest.
 *
 *   %1 = sub %x, %mean                      func kernel @h.ln_1(%x, %mean, %gain) inner(embed) {
 *   %2 = square %1                 =>         ...
 *   %3 = sum %2 {over=embed}                }
 *   ...                                     %y, %rstd = call %x, %mean, %gain {callee=h.ln_1}
 *
 * A group is a loop over `outer` dims with an inner loop over `inner` dims: pointwise ops, reductions over all of inner
 * (rows), and reductions over all of outer (columns), whose results are outputs of the group.  Groups grow along values
 * and between readers of one value, as long as there is no path between their ops through other ops.  Products
 * are groups of their own: fuse_products.c.
 */
#include "fuse.h"

#include "infer.h"
#include "needed.h"
#include "simplify/cleanup.h"
#include "simplify/rewrite.h"
#include "storage.h"

static bool is_fusible(const Op *op) { return info(op)->family == POINTWISE || info(op)->family == REDUCTION; }

/* --- Dims ---------------------------------------------------------------------------------- */

static bool subset(const Names *a, const Names *b)
{
    for (int i = 0; i < a->count; i++)
        if (!has_name(b, a->name[i]))
            return false;
    return true;
}

static bool same_names(const Names *a, const Names *b) { return subset(a, b) && subset(b, a); }

static Names without(const Names *a, const Names *b)
{
    Names names = { 0 };
    for (int i = 0; i < a->count; i++)
        if (!has_name(b, a->name[i]))
            add_name(&names, a->name[i]);
    return names;
}

/* The space of the op's loop: of its operands and its result (broadcast has more). */
static Type loop_space(Module *m, const Op *op)
{
    Type space;
    op_space(m, op, &space);
    const Type *y = &result(op)->type;
    return y->rank > space.rank ? *y : space;
}

/* A group of just this op. */
static FusionGroup *new_group(Fusion *p, const Op *op, int index)
{
    FusionGroup *g = NEW(&p->m->arena, FusionGroup);
    *g = (FusionGroup){ .index = index, .last = index, .size = 1, .product = info(op)->family == PRODUCT };
    g->ranks = ranks_running(p->m, op);
    g->step = op->attrs.step;
    g->values = op->args.count + op->results.count;
    if (g->product)
        return g;
    g->space = loop_space(p->m, op);
    g->space.partial = 0;
    Names all = dim_names(&g->space);
    if (info(op)->family == REDUCTION && op->attrs.over.count < all.count) {
        g->has_inner = true; /* rows or columns? a reduction over the last dims is along rows */
        Name last = g->space.dim[g->space.rank - 1].name;
        g->inner = has_name(&op->attrs.over, last) ? op->attrs.over : without(&all, &op->attrs.over);
    }
    return g;
}

/* --- May two groups be one? ---------------------------------------------------------------- */

static bool same_space(const FusionGroup *a, const FusionGroup *b)
{
    Names x = dim_names(&a->space), y = dim_names(&b->space);
    return same_names(&x, &y);
}

/* A group without inner dims, like the statistics of rows, fits into a group with the same outer dims. */
static bool is_outer_part(const FusionGroup *small, const FusionGroup *large)
{
    if (small->has_inner || !large->has_inner)
        return false;
    Names all = dim_names(&large->space), outer = without(&all, &large->inner), own = dim_names(&small->space);
    return same_names(&own, &outer) && outer.count > 0;
}

/* Does an op of one read a result of the other?  A product reads its operands from memory. */
static bool is_read_by(const Fusion *p, const FusionGroup *a, const FusionGroup *b)
{
    for (int i = a->index; i >= 0; i = p->sibling[i])
        for (int j = 0; j < p->users[i].count; j++)
            if (final_group(p->group[p->users[i].at[j]]) == b)
                return true;
    return false;
}

/* Have shared dims of both loops the same elements on each rank? */
static bool same_shards(const FusionGroup *a, const FusionGroup *b)
{
    for (int i = 0; i < a->space.rank; i++) {
        int at = find_dim(&b->space, a->space.dim[i].name);
        if (at >= 0 && !same_split(&a->space.dim[i], &b->space.dim[at]))
            return false;
    }
    return true;
}

/* (A kernel that more ranks run would overwrite values that they have received.) */
static bool fits(const Fusion *p, const FusionGroup *a, const FusionGroup *b)
{
    if (a->ranks != b->ranks || (a->step && b->step && a->step != b->step))
        return false;
    if (a->product || b->product)
        return products_fit(p, a, b) && !is_read_by(p, a, b) && !is_read_by(p, b, a);
    if (!same_shards(a, b))
        return false;
    if (same_space(a, b))
        return !a->has_inner || !b->has_inner || same_names(&a->inner, &b->inner);
    return is_outer_part(a, b) || is_outer_part(b, a);
}

/* A column reduction: its result lacks outer dims, so no op of the same loop can read it. */
static bool leaves_loop(const Op *op, const FusionGroup *g)
{
    if (info(op)->family != REDUCTION)
        return false;
    if (!g->has_inner)
        return true;
    return !same_names(&op->attrs.over, &g->inner) && !(subset(&op->attrs.over, &g->inner) && op->attrs.over.count > 0);
}

/* Does an op of `b` read the result of a column reduction of `a`?  Searches the smaller group. */
static bool reads_column(const Fusion *p, const FusionGroup *a, const FusionGroup *b, const FusionGroup *as)
{
    bool ask_readers = b->size <= a->size;
    for (int i = ask_readers ? b->index : a->index; i >= 0; i = p->sibling[i]) {
        for (int j = 0; ask_readers && j < p->ops[i]->args.count; j++) {
            Op *def = arg(p->ops[i], j)->def;
            if (def && group_of(p, def) == a && leaves_loop(def, as))
                return true;
        }
        const Numbers *readers =
            ask_readers || !leaves_loop(p->ops[i], as) ? NULL : map_get(&p->readers, result(p->ops[i]));
        for (int j = 0; readers && j < readers->count; j++)
            if (final_group(p->group[readers->at[j]]) == b)
                return true;
    }
    return false;
}

/* In a loop over outer and inner dims each result has all outer dims, or is that of a column reduction. */
static bool results_fit(const Fusion *p, const FusionGroup *g, const FusionGroup *as)
{
    if (!as->has_inner || (g->size > 1 && g->has_inner && same_names(&g->inner, &as->inner) && same_space(g, as)))
        return true; /* checked when its ops were merged */
    Names all = dim_names(&as->space), outer = without(&all, &as->inner);
    for (int i = g->index; i >= 0; i = p->sibling[i]) {
        const Op *op = p->ops[i];
        Names own = dim_names(&result(op)->type);
        if (leaves_loop(op, as)) {
            Names space = dim_names(&arg(op, 0)->type), outer_here = without(&space, &as->inner);
            if (!subset(&outer_here, &op->attrs.over))
                return false;
        } else if (!subset(&outer, &own)) {
            return false;
        }
    }
    return true;
}

FusionGroup joined(const FusionGroup *a, const FusionGroup *b)
{
    FusionGroup g = *(a->index < b->index ? a : b);
    const FusionGroup *leading = a->has_inner ? a : b->has_inner ? b : NULL;
    const FusionGroup *large = a->space.rank >= b->space.rank ? a : b;
    g.space = large->space;
    g.updates = a->updates || b->updates;
    g.step = a->step ? a->step : b->step;
    g.size = a->size + b->size;
    g.values = a->values + b->values;
    g.is_counted = false;
    if (leading)
        g.has_inner = true, g.inner = leading->inner;
    return g;
}

void merge(Fusion *p, FusionGroup *a, FusionGroup *b, FusionGroup as)
{
    FusionGroup *into = a->index < b->index ? a : b, *from = into == a ? b : a;
    join_ranks(p, a->index, b->index, into->index);
    p->sibling[into->last] = from->index;
    as.last = from->last;
    *into = as;
    from->merged = into;
}

static bool is_in(const Fusion *p, int i, const FusionGroup *a, const FusionGroup *b)
{
    const FusionGroup *g = final_group(p->group[i]);
    return g == a || g == b;
}

/* Is an operand of op i, a parameter of this rank or a value computed from it in these groups element by element,
 * reduced or broadcast there? */
static bool is_spread(Fusion *p, int i, int rank, const FusionGroup *a, const FusionGroup *b)
{
    const Op *op = p->ops[i];
    if (p->seen[i] == p->stamp || !is_in(p, i, a, b))
        return false;
    p->seen[i] = p->stamp;
    if (info(op)->family != POINTWISE || result(op)->type.rank != rank)
        return true;
    for (int j = 0; j < p->users[i].count; j++)
        if (is_spread(p, p->users[i].at[j], rank, a, b))
            return true;
    return false;
}

static bool read_view(const Fusion *p, const Value *old, const FusionGroup *a, const FusionGroup *b)
{
    const Numbers *readers = map_get(&p->view_readers, old);
    for (int i = 0; readers && i < readers->count; i++)
        if (is_in(p, readers->at[i], a, b))
            return true;
    return false;
}

/* New state is written over the old one: a kernel that does so may read the old one only at the same element. */
static bool keeps_old_state(Fusion *p, const FusionGroup *a, const FusionGroup *b)
{
    const FusionGroup *const groups[] = { a, b };
    for (int k = 0; k < 2; k++)
        for (int i = groups[k]->updates ? groups[k]->index : -1; i >= 0; i = p->sibling[i]) {
            const Numbers *readers = p->over[i] ? map_get(&p->readers, p->over[i]) : NULL;
            if (p->over[i] && read_view(p, p->over[i], a, b))
                return false;
            p->stamp++;
            for (int j = 0; readers && j < readers->count; j++)
                if (is_spread(p, readers->at[j], p->over[i]->type.rank, a, b))
                    return false;
        }
    return true;
}

/* Values between the groups are counted only where the bound without it is not enough, and from then on. */
static bool has_few_values(const Fusion *p, FusionGroup *a, FusionGroup *b, FusionGroup *as)
{
    FusionGroup *large = a->size < b->size ? b : a;
    if (as->values <= MAX_KERNEL_VALUES && !large->is_counted)
        return true;
    if (!large->is_counted)
        large->values = count_values(p, large);
    large->is_counted = as->is_counted = true;
    as->values = large->values + count_values_added(p, large, large == a ? b : a);
    return as->values <= MAX_KERNEL_VALUES;
}

bool try_merge(Fusion *p, FusionGroup *a, FusionGroup *b)
{
    if (!a || !b || a == b || stay_apart(p, a, b) || !fits(p, a, b) || hides_match(p, a, b))
        return false;
    FusionGroup as = joined(a, b);
    const bool may = !reads_column(p, a, b, &as) && !reads_column(p, b, a, &as) && results_fit(p, a, &as) &&
                     results_fit(p, b, &as) && keeps_old_state(p, a, b) && has_few_values(p, a, b, &as) &&
                     !has_way_around(p, a, b);
    if (may)
        merge(p, a, b, as);
    return may;
}

/* --- Growing ---------------------------------------------------------------------------------- */

static bool worth_sharing(const FusionGroup *g, const Value *value)
{
    return value->type.rank > 0 && value->type.rank == g->space.rank;
}

/* The index in the list of the first reader to try before op i: distant ones cannot be merged, and there may be
 * many. */
static int nearest(const Numbers *readers, int i)
{
    enum { MOST = 64 };
    const int low = first_from(readers, i);
    return low > MOST ? low - MOST : 0;
}

static void grow_groups(Fusion *p)
{
    const Uses uses = find_uses(&p->m->arena, p->f);
    for (int i = 0; i < p->n; i++)
        take_sum(p, i);
    for (int i = 0; i < p->n; i++)
        take_tail(p, &uses, i);
    for (int i = 0; i < p->n; i++) /* along values */
        for (int j = 0; p->group[i] && j < p->ops[i]->args.count; j++)
            try_merge(p, group_of(p, arg(p->ops[i], j)->def), final_group(p->group[i]));
    for (int i = 0; i < p->n; i++) /* between readers of one value */
        for (int j = 0; p->group[i] && j < p->ops[i]->args.count; j++) {
            const Numbers *readers = map_get(&p->readers, arg(p->ops[i], j));
            for (int k = nearest(readers, i); readers->at[k] < i; k++)
                if (p->group[readers->at[k]] && worth_sharing(final_group(p->group[i]), arg(p->ops[i], j)))
                    try_merge(p, final_group(p->group[readers->at[k]]), final_group(p->group[i]));
        }
    for (int i = 0; i < p->n; i++) /* products */
        for (int j = 0; p->group[i] && info(p->ops[i])->family == PRODUCT && j < p->ops[i]->args.count; j++) {
            const Numbers *readers = map_get(&p->readers, arg(p->ops[i], j));
            for (int k = nearest(readers, i); readers->at[k] < i; k++)
                if (p->group[readers->at[k]] && p->group[readers->at[k]]->product)
                    try_merge(p, final_group(p->group[readers->at[k]]), final_group(p->group[i]));
        }
    for (int i = 0; i < p->n; i++)
        merge_sums(p, i);
}

/* --- The pass ------------------------------------------------------------------------------- */

Value *stored(Builder b, Value *value) { return BUILD(&b, OP_stop_gradient, NO_ATTRS, value); }

/* A function must write each result that it returns through a pointer: a copy is needed of a number, of a parameter or
 * a part of one, and of a value that is returned twice. */
static bool needs_copy(const Func *f, int at)
{
    const Value *value = f->results.at[at];
    if (!value->def)
        return f->role == PLAIN;
    return info(value->def)->family == LEAF || info(value->def)->family == VIEW || index_of(&f->results, value) < at;
}

/* Numbers that a loop or a library op reads must be in memory, like results. */
static void store_numbers(Module *m, Func *f)
{
    for (Op *op = f->first; op; op = op->next)
        for (int i = 0; i < op->args.count; i++) {
            Value *value = arg(op, i);
            if (!is_fusible(op) && value->def && info(value->def)->family == LEAF)
                op->args.at[i] = stored(builder_at(m, f, op), value);
        }
    for (int i = 0; i < f->results.count; i++)
        if (needs_copy(f, i))
            f->results.at[i] = stored(builder_at(m, f, NULL), f->results.at[i]);
}

/* Is it computed in each kernel that reads it, and read by nothing else? */
static bool is_in_readers(const Func *f, const Op *op)
{
    bool good = is_free(op) && index_of(&f->results, result(op)) < 0;
    for (const Op *reader = op->next; good && reader; reader = reader->next)
        good = is_fusible(reader) || index_of(&reader->args, result(op)) < 0;
    return good;
}

static Fusion ordered(Module *m, Func *f)
{
    Fusion p = { .m = m, .f = f, .has_kinds = m->kind_axis >= 0, .number.arena = &m->arena };
    p.readers.arena = p.view_readers.arena = p.returned.arena = &m->arena;
    for (int k = 0; k < f->results.count; k++)
        map_put(&p.returned, f->results.at[k], f->results.at[k]);
    for (Op *op = f->first; op; op = op->next)
        p.n++;
    p.ops = NEW_ARRAY(&m->arena, Op *, p.n);
    p.group = NEW_ARRAY(&m->arena, FusionGroup *, p.n);
    p.over = NEW_ARRAY(&m->arena, Value *, p.n);
    p.sibling = NEW_ARRAY(&m->arena, int, p.n);
    p.users = NEW_ARRAY(&m->arena, Numbers, p.n);
    p.needs = NEW_ARRAY(&m->arena, Numbers, p.n);
    p.seen = NEW_ARRAY(&m->arena, int, p.n);
    p.rank = NEW_ARRAY(&m->arena, int, p.n);
    p.node = NEW_ARRAY(&m->arena, int, p.n);
    int i = 0;
    for (Op *op = f->first; op; op = op->next, i++) {
        p.ops[i] = op;
        const bool has_group = is_fusible(op) || info(op)->family == PRODUCT;
        p.group[i] = has_group && !is_in_readers(f, op) ? new_group(&p, op, i) : NULL;
        p.sibling[i] = -1;
        map_put(&p.number, op, (void *)(intptr_t)(i + 1));
    }
    find_order(&p);
    return p;
}

static void fuse_func(Module *m, Func *f)
{
    store_numbers(m, f);
    Fusion p = ordered(m, f);
    if (copy_state(&p))
        p = ordered(m, f);
    find_matches(&p);
    rank_ops(&p);
    grow_groups(&p);
    gather_groups(&p);
    outline_groups(&p);
    drop_dead(f);
    put_sums_beside_products(m, f);
}

void pass_fuse(Module *m);
void pass_fuse(Module *m)
{
    inline_calls(m);
    Func *last = NULL;
    for (Func *f = m->funcs; f; f = f->next) {
        apply_rules(m, f);
        open_row_dots(m, f);
        share_equal(f);
        drop_dead(f);
        collect_rows(m, f);
        add_rows_in_place(m, f);
        widen_in_readers(m, f);
        drop_dead(f);
        last = f;
    }
    return_shown_by_views(m);
    note_ranks(m);
    for (Func *f = m->funcs; f; f = f->next) {
        fuse_func(m, f);
        if (f == last) /* kernels follow */
            break;
    }
    read_before_rounding(m);
    pick_from_long_rows(m);
    m->needed = NULL;
}
