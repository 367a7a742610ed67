/* collectives.c -- lowers each reshard to collectives, determined by its two types.
 *
 *   partial -> replicated   all_reduce           split -> replicated     all_gather
 *   partial -> split        reduce_scatter       split on d -> on e      all_to_all
 *   replicated -> split     local_slice, no communication
 *   on one rank -> another send                 on one rank -> on more      pend, all_reduce
 *   on ranks -> some of them: hold, no communication    a sum of terms on different ones: pend, the same
 *
 * Attention whose keys pass by becomes steps: see ring.c.  Dims that are dealt in blocks: see pieces.c.
 *
 * First, a sum of several reduced sums becomes one sum that is reduced once, and a reshard of a reshard becomes one
 * reshard; gathers of a layer's weights are moved together, within the limit `bucket`.  Then adjacent reshards are
 * lowered step by step, with collectives of one kind adjacent, and get the number of a bucket: the runtime sends a
 * bucket as one message.
 */
#include "map.h"
#include "pieces.h"
#include "ranks.h"
#include "ring.h"
#include "simplify/cleanup.h"
#include "steps.h"
#include "uses.h"

static Type type_after(const Op *reshard) { return result(reshard)->type; }

static bool is_reshard(const Op *op) { return op && info(op)->traits & WISHES; }

/* --- A reshard of a reshard -------------------------------------------------------------------- */

static void join_reshards(Func *f)
{
    for (Op *op = f->first; op; op = op->next)
        while (is_reshard(op) && is_reshard(arg(op, 0)->def) && uses_in(f, arg(op, 0)) == 1) {
            Op *inner = arg(op, 0)->def;
            op->args.at[0] = arg(inner, 0);
            remove_op(f, inner);
        }
}

/* --- Reshards with casts between them -------------------------------------------------------------- */

static void move_op(Func *f, Op *op, Op *before)
{
    if (before == op || before == op->next)
        return;
    remove_op(f, op);
    insert_op(f, op, before);
}

static bool is_cast(const Op *op, bool of_reshard)
{
    return info(op)->traits & CASTS && is_reshard(arg(op, 0)->def) == of_reshard;
}

/* Values sent in another dtype are cast before and after.  Moves the casts before up and the casts after down, so that
 * the reshards are adjacent. */
static void make_room(Func *f)
{
    for (Op *op = f->first, *next; op; op = next) {
        Op *above = op;
        next = op->next;
        while (is_cast(op, false) && above->prev && arg(op, 0)->def != above->prev &&
               (is_reshard(above->prev) || is_cast(above->prev, true)))
            above = above->prev;
        move_op(f, op, above);
    }
    for (Op *op = f->last, *prev; op; op = prev) {
        Op *below = op->next;
        prev = op->prev;
        while (is_cast(op, true) && is_reshard(below) && arg(below, 0) != result(op))
            below = below->next;
        move_op(f, op, below);
    }
}

/* --- Weights that zero 3 gathers ----------------------------------------------------------------- */

static bool gathers_weight(const Op *op)
{
    bool is_parameter = is_reshard(op) && !arg(op, 0)->def && !arg(op, 0)->type.partial;
    return is_parameter && op->attrs.purpose == WEIGHT;
}

/* The op from `first` to `last` that gathers the same value, or NULL. */
static Op *find_gathered(Op *first, const Op *last, const Op *op)
{
    for (Op *other = first; other; other = other == last ? NULL : other->next)
        if (arg(other, 0) == arg(op, 0) && type_equal(&result(other)->type, &result(op)->type))
            return other;
    return NULL;
}

/* Moves each gather up to the earlier ones of its bucket: messages are sent in the order of first use. */
static void gather_together(Module *m, Func *f)
{
    Op *first = NULL, *last = NULL;
    int64_t bytes = 0;
    for (Op *op = f->first, *next; op; op = next) {
        next = op->next;
        if (!gathers_weight(op))
            continue;
        Op *same = find_gathered(first, last, op);
        if (same) {
            replace_uses(f, result(op), result(same));
            remove_op(f, op);
            continue;
        }
        bytes += local_bytes(m, &result(op)->type);
        if (last && (m->train.bucket == 0 || bytes <= m->train.bucket))
            move_op(f, op, last->next);
        else
            first = op, bytes = local_bytes(m, &result(op)->type);
        last = op;
    }
}

/* --- Sums of reduced sums ---------------------------------------------------------------------- */

static bool is_sum(const Value *value, const Type *type)
{
    const Op *op = value->def;
    return op && is_addition(op) && type_equal(&arg(op, 0)->type, type) && type_equal(&arg(op, 1)->type, type);
}

/* Use counts of the values of a function, recomputed on demand after a change. */
typedef struct {
    Module *m;
    Func *f;
    Map count;
    Map inner; /* additions inside a tree that has been processed */
} Sums;

static void count_reads(Sums *s, const Values *values)
{
    for (int i = 0; i < values->count; i++)
        map_put(&s->count, values->at[i], (void *)((intptr_t)map_get(&s->count, values->at[i]) + 1));
}

static void count_all_reads(Sums *s)
{
    s->count = (Map){ .arena = &s->m->arena };
    for (const Op *op = s->f->first; op; op = op->next)
        count_reads(s, &op->args);
    count_reads(s, &s->f->results);
}

static bool is_read_once(const Sums *s, const Value *value) { return (intptr_t)map_get(&s->count, value) == 1; }

/* The terms of a tree of additions, from left to right, through additions without other readers. */
static void find_terms(Sums *s, Value *root, const Type *type, Values *terms)
{
    Values left = { 0 };
    push_value(&s->m->arena, &left, root);
    while (left.count) {
        Value *value = left.at[--left.count];
        if (is_sum(value, type) && (value == root || is_read_once(s, value))) {
            map_put(&s->inner, value->def, value);
            push_value(&s->m->arena, &left, arg(value->def, 1));
            push_value(&s->m->arena, &left, arg(value->def, 0));
        } else {
            push_value(&s->m->arena, terms, value);
        }
    }
}

static bool reduces(const Sums *s, const Value *term)
{
    const Type *before = is_reshard(term->def) ? &arg(term->def, 0)->type : NULL;
    return before && before->partial && before->by == BY_SUM && is_read_once(s, term);
}

static Value *sum_of(Builder *b, const Values *terms)
{
    Value *sum = terms->at[0];
    for (int i = 1; i < terms->count; i++)
        sum = BUILD(b, OP_add, NO_ATTRS, sum, terms->at[i]);
    return sum;
}

/* Replaces all terms that reduce sums of one type by one term that reduces the sum of them. */
static bool reduce_together(const Sums *s, Builder *b, Values *terms, int first)
{
    Arena *arena = &s->m->arena;
    const Op *like = terms->at[first]->def;
    Values pending = { 0 }, rest = { 0 };
    for (int i = 0; i < terms->count; i++) {
        Value *term = terms->at[i];
        bool same = reduces(s, term) && type_equal(&arg(term->def, 0)->type, &arg(like, 0)->type);
        push_value(arena, same ? &pending : &rest, same ? arg(term->def, 0) : term);
    }
    if (pending.count < 2)
        return false;
    Value *sum = sum_of(b, &pending);
    push_value(arena, &rest, build_op(b, OP_reshard, like->attrs, 1, &sum));
    *terms = rest;
    return true;
}

static void join_reductions_of_tree(Sums *s, Op *root)
{
    Values terms = { 0 };
    find_terms(s, result(root), &result(root)->type, &terms);
    Builder b = builder_at(s->m, s->f, root);
    bool changed = false;
    for (int i = 0; i < terms.count; i++)
        if (reduces(s, terms.at[i]) && reduce_together(s, &b, &terms, i))
            changed = true, i = -1;
    if (!changed)
        return;
    Value *sum = sum_of(&b, &terms);
    sum->name = result(root)->name;
    replace_uses(s->f, result(root), sum);
    count_all_reads(s);
}

static void join_reductions(Module *m, Func *f)
{
    Sums sums = { .m = m, .f = f, .inner = { .arena = &m->arena } };
    if (m->naxes)
        count_all_reads(&sums);
    for (Op *op = f->last, *above; op && m->naxes; op = above) {
        above = op->prev;
        if (is_addition(op) && is_sum(result(op), &result(op)->type) && !map_get(&sums.inner, op))
            join_reductions_of_tree(&sums, op);
    }
    drop_dead(f);
}

/* --- Adjacent reshards ---------------------------------------------------------------------------- */

enum { MANY = 256 };

typedef struct {
    Op *reshard;
    Value *now; /* the value after the steps so far */
    Collective next;
    bool done;
} Way;

/* The dim that counts the copies of a chunk of the pipeline; NULL: there is none. */
static Name copies_of(const Type *type, int kind_axis)
{
    for (int i = 0; i < type->rank && kind_axis >= 0; i++)
        if (type->dim[i].split.count && type->dim[i].split.axis[0] == kind_axis)
            return type->dim[i].name;
    return NULL;
}

/* Gradients of different chunks are complete at different times: apart, they need not wait for each other. */
static bool end_together(const Way *a, const Way *b, int kind_axis)
{
    return a->reshard->attrs.purpose != GRADIENT ||
           copies_of(&a->now->type, kind_axis) == copies_of(&b->now->type, kind_axis);
}

static bool same_kind(const Way *a, const Way *b)
{
    return a->next.kind == b->next.kind && a->next.attrs.axis == b->next.attrs.axis &&
           same_ranks(a->next.attrs.on, b->next.attrs.on) && a->now->type.dtype == b->now->type.dtype &&
           same_ranks(a->now->type.on, b->now->type.on) && a->now->type.by == b->now->type.by &&
           op_table[a->next.kind].traits & SENDS;
}

static void take_step(Module *m, Func *f, Way *way, Op *before, int64_t bucket)
{
    Builder b = builder_at(m, f, before);
    b.path = way->reshard->path, b.where = way->reshard->where, b.loc = way->reshard->loc;
    way->next.attrs.purpose = way->reshard->attrs.purpose;
    way->next.attrs.cause = way->reshard->attrs.cause;
    way->next.attrs.bucket = bucket;
    way->now = build_op(&b, way->next.kind, way->next.attrs, 1, &way->now);
    Type to = type_after(way->reshard);
    way->done = !next_step(m, &way->now->type, &to, &way->next);
}

/* Writes one step of `ways[first]`, and all next steps of the same kind, bucket by bucket. */
static void step_together(Module *m, Func *f, Way ways[], int n, int first, Op *before, int64_t *buckets)
{
    const Way like = ways[first];
    int64_t bytes = 0, bucket = 0;
    int alike = 0;
    const int kind_axis = m->train.overlap_grads ? m->kind_axis : -1;
    for (int i = first; i < n; i++)
        alike += !ways[i].done && same_kind(&ways[i], &like) && end_together(&ways[i], &like, kind_axis);
    for (int i = first; i < n; i++) {
        if (i != first && (ways[i].done || !same_kind(&ways[i], &like) || !end_together(&ways[i], &like, kind_axis)))
            continue;
        int64_t more = local_bytes(m, &ways[i].now->type);
        if (alike > 1 && (!bucket || (m->train.bucket && bytes + more > m->train.bucket)))
            bucket = ++*buckets, bytes = 0;
        bytes += more;
        take_step(m, f, &ways[i], before, bucket);
    }
}

/* The reshards from ways[0] to ways[n - 1] are adjacent and independent. */
static void write_steps(Module *m, Func *f, Way ways[], int n, int64_t *buckets, Map *instead)
{
    Op *before = ways[n - 1].reshard->next;
    for (int i = 0; i < n; i++) {
        Type to = type_after(ways[i].reshard);
        ways[i].now = arg(ways[i].reshard, 0);
        ways[i].done = !next_step(m, &ways[i].now->type, &to, &ways[i].next);
    }
    for (int i = 0; i < n; i++)
        while (!ways[i].done)
            step_together(m, f, ways, n, i, before, buckets);
    for (int i = 0; i < n; i++) {
        ways[i].now->name = result(ways[i].reshard)->name;
        map_put(instead, result(ways[i].reshard), ways[i].now);
        remove_op(f, ways[i].reshard);
    }
}

/* The number of adjacent, independent reshards from `first` on, whose operands are resolved. */
static int count_together(Op *first, Way ways[], const Map *instead)
{
    int n = 0;
    for (Op *op = first; is_reshard(op) && n < MANY; op = op->next) {
        resolve_all(instead, &op->args);
        for (int i = 0; i < n; i++)
            if (arg(op, 0) == result(ways[i].reshard))
                return n;
        ways[n++] = (Way){ .reshard = op };
    }
    return n;
}

/* An operand of an addition as its result's type. */
static Value *term_of(Builder *b, Value *operand, const Type *type)
{
    return build_cast(b, type->dtype, build_like(b, operand, type));
}

/* Terms of a sum on different ranks: if no rank has two, nothing is added before the sum over them.  Else each is zero
 * where only the other is. */
static void write_terms(Module *m, Func *f, Op *add, Map *instead)
{
    const RankSet on = result(add)->type.on, own[] = { arg(add, 0)->type.on, arg(add, 1)->type.on };
    Builder b = builder_at(m, f, add);
    if (own[0].at && own[1].at && !(own[0].at & own[1].at)) {
        const Attrs attrs = { .axis = 1u << own[0].axis, .on = on };
        Value *terms = BUILD(&b, OP_pend, attrs, term_of(&b, arg(add, 0), &result(add)->type),
                             term_of(&b, arg(add, 1), &result(add)->type));
        terms->name = result(add)->name;
        map_put(instead, result(add), terms);
        remove_op(f, add);
        return;
    }
    for (int i = 0; i < 2; i++)
        if (!same_ranks(own[i], on))
            add->args.at[i] = BUILD(&b, OP_pend, ((Attrs){ .axis = 1u << own[i].axis, .on = on }), arg(add, i));
}

void pass_collectives(Module *m);
void pass_collectives(Module *m)
{
    int64_t buckets = 0;
    for (Func *f = m->funcs; f; f = f->next) {
        join_reductions(m, f);
        join_reshards(f);
        share_equal(f);
        lower_dealt(m, f);
        make_room(f);
        gather_together(m, f);
        lower_rings(m, f);
        Map instead = { .arena = &m->arena };
        for (Op *op = f->first, *next; op; op = next) {
            Way ways[MANY];
            resolve_all(&instead, &op->args);
            int n = count_together(op, ways, &instead);
            next = n ? ways[n - 1].reshard->next : op->next;
            if (n)
                write_steps(m, f, ways, n, &buckets, &instead);
            else if (adds_ranks(op))
                write_terms(m, f, op, &instead);
        }
        resolve_all(&instead, &f->results);
    }
}
