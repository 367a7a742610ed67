/* pieces.c -- lowers reshards of dims that are dealt in blocks (Split.dealt), and cuts the products beside them, so
 * that one piece is sent while another is multiplied.
 *
 *   %2 = reshard %1 {seq:1024/4d/tp -> seq:1024}     =>  %s = split %1 : [seq.piece:4, seq.block:256/tp, embed]
 *   %3 = dot %2, %w {over=embed}                         %4 = slice %s {dim=seq.piece, index=0}
 *                                                        %5 = reshard %4 : [seq.block:256, embed]
 *                                                        %6 = dot %5, %w {over=embed}
 *                                                        ... likewise for 1, 2 and 3
 *                                                        %3 = concat of the four products
 *
 * and the mirror image: a product whose terms are reduced to blocks becomes products of slices of its operand, each of
 * which is reduced by itself.  The blocks of all ranks with one number are next to each other in the dim: so the pieces
 * are ranges of it, each element is the same sum as without, and a reader that needs the whole dim, as the gradient of
 * a weight does, finds it in its order.
 *
 * Where a rank has several sequences of the micro-batch, such a range would be a stretch of each of them.  There, the
 * pieces are some of the sequences: whole ones lie next to each other, and so does what a message brings of them.
 *
 *   %2 = reshard %1 {seq:1024/tp -> seq:1024}        =>  %s = split %1 : [batch.rank:2/dp, batch.piece:4,
 *                                                                          batch.block:1, seq:1024/tp, embed]
 */
#include "pieces.h"

#include "map.h"
#include "simplify/cleanup.h"
#include "uses.h"

/* A dim that is cut, and those that it is: of a dealt one, `held` is a block of which each rank has its part; of the
 * batch, `rank` counts the ranks, if it is split: each has pieces of its own sequences, and the name of `rank` is set.
 */
typedef struct {
    Dim one, rank, piece, block, held;
} Blocks;

static bool is_dealt(const Dim *dim) { return dim->split.dealt != 0; }

static Blocks blocks_of(Module *m, const Dim *dim, int64_t count)
{
    const int64_t ranks = is_dealt(dim) ? 1 : dim->size / local_size(m, dim), length = dim->size / ranks / count;
    Blocks k = { .one = *dim,
                 .piece = { .size = count, .padded = count },
                 .block = { .size = length, .padded = length } };
    k.piece.name = intern_format(m, "%s.piece", dim->name);
    k.block.name = intern_format(m, "%s.block", dim->name);
    k.held = k.block;
    if (is_dealt(dim))
        k.held.split = dim->split;
    else if (dim->split.count)
        k.rank = (Dim){ intern_format(m, "%s.rank", dim->name), .size = ranks, .padded = ranks, .split = dim->split };
    k.held.split.dealt = 0;
    return k;
}

/* The dim of a reshard that is dealt on one side only, or otherwise there; -1: none. */
static int find_dealt(const Op *reshard)
{
    const Type *from = &arg(reshard, 0)->type, *to = &result(reshard)->type;
    for (int i = 0; i < to->rank; i++)
        if ((is_dealt(&from->dim[i]) || is_dealt(&to->dim[i])) && !split_equal(from->dim[i].split, to->dim[i].split))
            return i;
    return -1;
}

/* The dims that are one: [rank, piece, block] or [piece, block]. */
static Dims parts_of(const Blocks *k, Dim block)
{
    return k->rank.name ? (Dims){ 3, { k->rank, k->piece, block } } : (Dims){ 2, { k->piece, block } };
}

static Value *opened(Builder *b, const Blocks *k, Value *x)
{
    const bool is_held = is_dealt(&x->type.dim[find_dim(&x->type, k->one.name)]);
    return BUILD(b, OP_split, ((Attrs){ .dim = k->one.name, .dims = parts_of(k, is_held ? k->held : k->block) }), x);
}

/* The dim again, dealt if its blocks are held. */
static Value *closed(Builder *b, const Blocks *k, Value *x)
{
    const Dims parts = parts_of(k, k->block);
    Attrs attrs = { .dims = { 1, { k->one } } };
    if (is_dealt(&k->one) && !x->type.dim[find_dim(&x->type, k->block.name)].split.count)
        attrs.dims.dim[0].split = (Split){ 0 };
    for (int i = 0; i < parts.count; i++)
        add_name(&attrs.over, parts.dim[i].name);
    return build_op(b, OP_merge, attrs, 1, &x);
}

static Value *piece_of(Builder *b, const Blocks *k, Value *x, int number)
{
    return BUILD(b, OP_slice, ((Attrs){ .dim = k->piece.name, .index = number }), x);
}

/* The same of blocks that are held, or of ranks: each has its part of each piece. */
static Value *joined_apart(Builder *b, const Blocks *k, Value *const pieces[])
{
    Value *piece[MAX_CONCAT];
    const Name own = intern_format(b->module, "%s.own", k->block.name);
    Dim one = k->piece;
    one.size = one.padded = 1;
    for (int i = 0; i < k->piece.size; i++) {
        Value *x = BUILD(b, OP_rename, ((Attrs){ .dim = k->block.name, .to = own }), pieces[i]);
        piece[i] = BUILD(b, OP_split, ((Attrs){ .dim = own, .dims = { 2, { one, k->held } } }), x);
    }
    Value *all = build_op(b, OP_concat, (Attrs){ .dims = { 1, { k->piece } } }, (int)k->piece.size, piece);
    return closed(b, k, all);
}

/* The pieces one behind the other. */
static Value *joined(Builder *b, const Blocks *k, Value *const pieces[])
{
    Value *piece[MAX_CONCAT];
    Dim one = k->one;
    one.split = (Split){ 0 };
    if (k->rank.name || pieces[0]->type.dim[find_dim(&pieces[0]->type, k->block.name)].split.count)
        return joined_apart(b, k, pieces);
    for (int i = 0; i < k->piece.size; i++)
        piece[i] = BUILD(b, OP_rename, ((Attrs){ .dim = k->block.name, .to = one.name }), pieces[i]);
    return build_op(b, OP_concat, (Attrs){ .dims = { 1, { one } } }, (int)k->piece.size, piece);
}

/* The reshard of a value with other dims in the place of the dealt one. */
static Value *resharded(Builder *b, const Op *reshard, Value *x, const Dim *held)
{
    Attrs attrs = reshard->attrs;
    attrs.dims = (Dims){ .count = x->type.rank };
    for (int i = 0; i < x->type.rank; i++) {
        const int at = find_dim(&result(reshard)->type, x->type.dim[i].name);
        attrs.dims.dim[i] = at >= 0 ? result(reshard)->type.dim[at] : x->type.dim[i];
        if (x->type.dim[i].name == held->name)
            attrs.dims.dim[i] = *held;
    }
    return build_op(b, OP_reshard, attrs, 1, &x);
}

/* The op on one piece. */
static Value *computed(Builder *b, const Blocks *k, const Op *op, Value *const args[])
{
    Attrs attrs = op->attrs;
    attrs.order = (Names){ 0 };
    for (int i = 0; i < op->attrs.order.count; i++) {
        const bool is_cut = op->attrs.order.name[i] == k->one.name;
        if (is_cut && k->rank.name)
            add_name(&attrs.order, k->rank.name);
        add_name(&attrs.order, is_cut ? k->block.name : op->attrs.order.name[i]);
    }
    return build_op(b, op->kind, attrs, op->args.count, args);
}

/* --- Products behind a message ----------------------------------------------------------------------- */

static bool is_product(const Op *op) { return info(op)->family == PRODUCT; }

/* May the dim of its result become three? */
static bool has_room(const Op *op) { return result(op)->type.rank + op->attrs.over.count + 2 <= MAX_RANK; }

/* A product that keeps the dim, which only its i-th operand has: that operand, else -1. */
static int kept_operand(const Op *op, Name dim)
{
    if (!is_product(op) || has_name(&op->attrs.over, dim) || !has_room(op))
        return -1;
    const bool has[] = { find_dim(&arg(op, 0)->type, dim) >= 0, find_dim(&arg(op, 1)->type, dim) >= 0 };
    return has[0] == has[1] ? -1 : has[1];
}

static bool is_above(const Value *value, const Op *op)
{
    const Op *above = op;
    while (value->def && above && above != value->def)
        above = above->prev;
    return !value->def || above;
}

typedef struct {
    Module *m;
    Func *f;
    const Blocks *k;
    Value *piece[MAX_CONCAT]; /* of the message's result */
} Gathered;

/* Its products with these pieces, before `before`; made[i]: of piece i. */
static void multiply(const Gathered *g, Op *const dots[], int n, Op *before)
{
    Value *made[MAX_NAMES][MAX_CONCAT];
    for (int i = 0; i < g->k->piece.size; i++)
        for (int d = 0; d < n; d++) {
            Builder b = { g->m, g->f, before, dots[d]->loc, dots[d]->path, dots[d]->where };
            const int at = kept_operand(dots[d], g->k->one.name);
            Value *args[] = { arg(dots[d], 0), arg(dots[d], 1) };
            args[at] = g->piece[i];
            made[d][i] = computed(&b, g->k, dots[d], args);
        }
    for (int d = 0; d < n; d++) {
        Builder b = { g->m, g->f, before, dots[d]->loc, dots[d]->path, dots[d]->where };
        Value *whole = joined(&b, g->k, made[d]);
        whole->name = result(dots[d])->name;
        replace_uses(g->f, result(dots[d]), whole);
        remove_op(g->f, dots[d]);
    }
}

/* The products of what the message brings are computed piece by piece: as many of them as may be, at once. */
static int multiply_pieces(const Gathered *g, const Value *whole, Op *from)
{
    int all = 0;
    for (Op *op = from, *next; op; op = next) {
        Op *dots[MAX_NAMES];
        int n = 0;
        next = op->next;
        for (Op *other = op; other && n < MAX_NAMES; other = other->next) {
            const int at = kept_operand(other, g->k->one.name);
            if (at >= 0 && arg(other, at) == whole && (n || other == op) && is_above(arg(other, !at), op))
                dots[n++] = other;
        }
        for (int d = 0; d < n; d++)
            next = dots[d] == next ? next->next : next;
        if (n)
            multiply(g, dots, n, next);
        all += n;
    }
    return all;
}

static bool is_multiplied(const Func *f, const Value *whole, const Op *from, Name dim)
{
    for (const Op *op = from; op; op = op->next) {
        const int at = kept_operand(op, dim);
        if (at >= 0 && arg(op, at) == whole)
            return true;
    }
    return false;
}

/* A reshard from blocks to the whole dim. */
static void gather_pieces(Module *m, Func *f, Op *reshard, const Blocks *k)
{
    Gathered g = { .m = m, .f = f, .k = k };
    Builder b = builder_at(m, f, reshard);
    Value *whole = result(reshard), *from = opened(&b, k, arg(reshard, 0));
    for (int i = 0; i < k->piece.size; i++)
        g.piece[i] = resharded(&b, reshard, piece_of(&b, k, from, i), &k->block);
    multiply_pieces(&g, whole, reshard->next);
    if (uses_in(f, whole)) {
        b.before = first_reader(reshard->next, &reshard->results);
        replace_uses(f, whole, joined(&b, k, g.piece));
    }
    remove_op(f, reshard);
}

/* --- Products before a message ------------------------------------------------------------------------ */

typedef struct {
    Builder b;
    const Blocks *k;
    int number;
    Map *split; /* of a value: it, as pieces */
} PieceBuilder;

/* Is the value computed for this reader alone, element by element along the dim, by ops one of which is a product? */
static bool is_cut(const Func *f, const Value *value, Name dim)
{
    const Op *op = value->def;
    if (!op || uses_in(f, value) != 1 || find_dim(&value->type, dim) < 0)
        return false;
    if (is_product(op))
        return kept_operand(op, dim) >= 0;
    bool any = false;
    for (int i = 0; i < op->args.count; i++)
        any |= is_cut(f, arg(op, i), dim);
    return any && info(op)->family == POINTWISE && !(info(op)->traits & POSITIONAL) && !op->attrs.dims.count;
}

static Value *cut_value(PieceBuilder *s, Value *value)
{
    const Name dim = s->k->one.name;
    if (find_dim(&value->type, dim) < 0)
        return value;
    if (is_cut(s->b.func, value, dim)) {
        Value *args[3];
        for (int i = 0; i < value->def->args.count; i++)
            args[i] = cut_value(s, arg(value->def, i));
        return computed(&s->b, s->k, value->def, args);
    }
    Value *split = map_get(s->split, value);
    if (!split)
        map_put(s->split, value, split = opened(&s->b, s->k, value));
    return piece_of(&s->b, s->k, split, s->number);
}

/* A reshard of terms to the blocks of their sum. */
static void scatter_pieces(Module *m, Func *f, Op *reshard, const Blocks *k)
{
    Map split = { .arena = &m->arena };
    Value *made[MAX_CONCAT];
    Builder b = builder_at(m, f, reshard);
    for (int i = 0; i < k->piece.size; i++) {
        PieceBuilder s = { b, k, i, &split };
        made[i] = resharded(&b, reshard, cut_value(&s, arg(reshard, 0)), &k->held);
    }
    Value *whole = joined(&b, k, made);
    whole->name = result(reshard)->name;
    replace_uses(f, result(reshard), whole);
    remove_op(f, reshard);
}

/* --- Sums over the dim ----------------------------------------------------------------------------------- */

/* A product that sums over a dim that is dealt, as the gradient of a weight does, needs all pieces, and nothing needs
 * it soon: the later it comes, the longer messages have, and the more of them pass beside it.  So these products come
 * last, with what only they read and what reads them; but before the next loop or call, during which what they read
 * would take memory. */
typedef struct {
    Func *f;
    Map late; /* values -> the same */
    Names dealt;
} Late;

static bool is_late(const Late *l, const Op *op)
{
    bool late = false;
    for (int i = 0; i < l->dealt.count && is_product(op); i++)
        late |= has_name(&op->attrs.over, l->dealt.name[i]);
    for (int i = 0; i < op->args.count; i++)
        late |= map_get(&l->late, arg(op, i)) != NULL;
    return late && info(op)->family != CONTROL;
}

static void note_late(Late *l, const Op *op)
{
    for (int i = 0; i < op->results.count; i++)
        map_put(&l->late, op->results.at[i], op->results.at[i]);
}

/* From the last op up: messages and views that only late ops read. */
static void note_late_operands(Late *l, Arena *arena)
{
    Map read = { .arena = arena }; /* by others */
    note_read(&read, &l->f->results);
    for (Op *op = l->f->last; op; op = op->prev) {
        const bool may = info(op)->traits & (WISHES | JOINS) || info(op)->family == VIEW;
        if (map_get(&l->late, result(op)))
            continue;
        if (may && !map_get(&read, result(op)))
            note_late(l, op);
        else
            note_read(&read, &op->args);
    }
}

static void sink_sums(Module *m, Func *f, Names dealt)
{
    Late l = { .f = f, .late.arena = &m->arena, .dealt = dealt };
    for (Op *op = f->first; op; op = op->next)
        if (is_late(&l, op))
            note_late(&l, op);
    note_late_operands(&l, &m->arena);
    Op *first = NULL; /* of those at the end of the ops walked over so far */
    for (Op *op = f->first, *next; op; op = next) {
        next = op->next;
        const bool late = info(op)->family != CONTROL && op->results.count && map_get(&l.late, result(op));
        if (info(op)->family == CONTROL)
            first = NULL;
        else if (late && !first)
            first = op;
        else if (!late && first)
            remove_op(f, op), insert_op(f, op, first);
    }
}

/* --- The pass ------------------------------------------------------------------------------------------ */

/* From one split of the dim to another one: by way of the whole dim. */
static void reshard_by_whole_dim(Module *m, Func *f, Op *reshard, int i)
{
    Builder b = builder_at(m, f, reshard);
    Value *x = arg(reshard, 0);
    Attrs attrs = reshard->attrs;
    attrs.dims = (Dims){ .count = x->type.rank };
    for (int d = 0; d < x->type.rank; d++)
        attrs.dims.dim[d] = x->type.dim[d];
    attrs.dims.dim[i].split = (Split){ 0 };
    attrs.dims.dim[i].zigzag = 0;
    attrs.axis = x->type.partial;
    attrs.on = x->type.on;
    reshard->args.at[0] = build_op(&b, OP_reshard, attrs, 1, &x);
}

/* Cuts the products beside it; false: there are none. */
static bool cut_products(Module *m, Func *f, Op *op, const Blocks *k, bool gathers)
{
    const bool reduces = arg(op, 0)->type.partial & ~result(op)->type.partial;
    if (k->piece.size > MAX_CONCAT)
        return false;
    if (gathers && is_multiplied(f, result(op), op->next, k->one.name))
        gather_pieces(m, f, op, k);
    else if (!gathers && reduces && is_cut(f, arg(op, 0), k->one.name))
        scatter_pieces(m, f, op, k);
    else
        return false;
    return true;
}

static void lower_reshard(Module *m, Func *f, Op *op, int i)
{
    const Dim *from = &arg(op, 0)->type.dim[i], *to = &result(op)->type.dim[i], *dealt = is_dealt(from) ? from : to;
    const Blocks k = blocks_of(m, dealt, dealt->split.dealt);
    if (cut_products(m, f, op, &k, is_dealt(from)))
        return;
    Builder b = builder_at(m, f, op);
    Value *y = closed(&b, &k, resharded(&b, op, opened(&b, &k, arg(op, 0)), is_dealt(to) ? &k.held : &k.block));
    y->name = result(op)->name;
    replace_uses(f, result(op), y);
    remove_op(f, op);
}

/* --- Some of the sequences ------------------------------------------------------------------------------- */

int64_t rank_sequences(const Module *m)
{
    int64_t sequences = m->batch ? m->train.microbatch : 1;
    for (const ShardRule *rule = m->rules; rule; rule = rule->next)
        sequences /= has_name(&rule->dims, m->batch) ? m->axis_size[rule->axis] : 1;
    return sequences;
}

int64_t batch_pieces(const Module *m, const ShardRule *rule)
{
    const int64_t sequences = rank_sequences(m);
    int64_t pieces = rule->dealt > 1 ? rule->dealt : 1;
    while (sequences % pieces || rule->dealt % pieces)
        pieces--;
    return pieces;
}

static bool is_along(const Split *split, int axis)
{
    return split->count == 1 && split->axis[0] == axis && !split->parts && !split->turn;
}

/* The rule along whose `else` the reshard gathers or splits; NULL: there is none. */
static const ShardRule *cut_rule(const Module *m, const Op *op, bool *gathers)
{
    const Type *from = &arg(op, 0)->type, *to = &result(op)->type;
    for (const ShardRule *rule = m->rules; rule; rule = rule->next)
        for (int i = 0; i < to->rank && rule->dealt > 1; i++) {
            const Split *a = &from->dim[i].split, *b = &to->dim[i].split;
            *gathers = a->count;
            if (ruled_as(m, to->dim[i].name) == rule->otherwise && (a->count ? !b->count : b->count) &&
                is_along(a->count ? a : b, rule->axis))
                return rule;
        }
    return NULL;
}

/* Where a rank has several sequences, messages of some of them, and products likewise. */
static bool cut_batch(Module *m, Func *f, Op *op)
{
    bool gathers;
    const ShardRule *rule = cut_rule(m, op, &gathers);
    const int64_t pieces = rule ? batch_pieces(m, rule) : 1;
    const Type *type = &arg(op, 0)->type;
    const int at = pieces > 1 && type->rank + 2 <= MAX_RANK ? find_dim(type, m->batch) : -1;
    if (at < 0 || !split_equal(type->dim[at].split, result(op)->type.dim[at].split) || type->dim[at].zigzag ||
        type->dim[at].padded != type->dim[at].size || local_size(m, &type->dim[at]) % pieces)
        return false;
    const Blocks k = blocks_of(m, &type->dim[at], pieces);
    return cut_products(m, f, op, &k, gathers);
}

static void note_cut(Names *cut, Name dim)
{
    if (cut->count < MAX_NAMES && !has_name(cut, dim))
        add_name(cut, dim);
}

void lower_dealt(Module *m, Func *f)
{
    Names dealt = { 0 };
    for (Op *op = f->first, *next; op; op = next) {
        Op *above = op->prev;
        next = op->next;
        if (info(op)->traits & WISHES && cut_batch(m, f, op)) {
            note_cut(&dealt, m->batch);
            next = above ? above->next : f->first; /* its pieces may be dealt, too */
            continue;
        }
        const int i = info(op)->traits & WISHES ? find_dealt(op) : -1;
        if (i < 0)
            continue;
        note_cut(&dealt, result(op)->type.dim[i].name);
        if (arg(op, 0)->type.dim[i].split.count && result(op)->type.dim[i].split.count) {
            reshard_by_whole_dim(m, f, op, i);
            next = op->prev; /* the first half */
            continue;
        }
        lower_reshard(m, f, op, i);
        next = above ? above->next : f->first; /* other dims may be dealt, too */
    }
    if (!dealt.count)
        return;
    drop_dead(f);
    sink_sums(m, f, dealt);
}
