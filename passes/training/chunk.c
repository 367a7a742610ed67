/* chunk.c -- computes head and loss in chunks of tokens, so that the logits of all tokens never exist.
 *
 *   %logits = dot %x, %w : [batch, seq, vocab]        func @llama.loss(%x: [batch, place, embed], %w, ...) {
 *   ...                                                 %logits = dot %x, %w : [batch, place, vocab]
 *   %ce = sub %lse, %picked : [batch, seq]        =>    ...
 *   %loss = sum %ce {over=batch+seq}                    return %ce : [batch, place]
 *                                                     }
 *                                                     %ces = loop %xs, %w, ... {dims=[chunk], callee=llama.loss,
 * chunked}
 *
 * The tail of the model (loss_tail.h) becomes the body of a loop.  Operands with the dim are split, seq -> (place,
 * chunk), and sliced along the chunks; results are stacked and merged.  The place is the outer of the two dims, and
 * layout rules split it as they split seq: so every rank has its part of every chunk, and no token moves.
 *
 * The backward of this loop computes a chunk again, whatever is recomputed elsewhere (recompute.c), and returns the
 * loss, too (late_loss.c): so the head is multiplied once, as without chunks.
 */
#include "amount.h"
#include "layout/tensor_layout.h"
#include "loss_tail.h"
#include "remark.h"
#include "uses.h"

#include <inttypes.h>
#include <string.h>

/* So few tokens in a chunk that reading and writing the gradient of the head in each takes long. */
enum { FEWEST_TOKENS = 1024 };

typedef struct {
    Module *m;
    Func *f;
    LossTail tail;
    Dim whole, place, chunk; /* the dim, and the two that it is split in */
    Func *body;
    Map inside;      /* value of f -> its value in the body */
    Values operands; /* of the loop */
    Values outputs;  /* of the tail, in f */
    const Dim *like; /* an evaluation has the chunks of the model: those of this dim; else NULL */
} Chunking;

/* --- Values inside and outside ---------------------------------------------------------------------- */

static bool has_whole(const Chunking *c, const Value *value) { return find_dim(&value->type, c->whole.name) >= 0; }

/* The names of a value's dims, with others in place of the whole one. */
static Names names_with(const Chunking *c, const Value *value, const Name *instead, int count)
{
    Names names = { 0 };
    for (int i = 0; i < value->type.rank; i++) {
        const bool is_whole = value->type.dim[i].name == c->whole.name;
        for (int j = 0; is_whole && j < count; j++)
            add_name(&names, instead[j]);
        if (!is_whole)
            add_name(&names, value->type.dim[i].name);
    }
    return names;
}

static Value *reordered(Builder *b, Value *x, Names order)
{
    return BUILD(b, OP_reorder, (Attrs){ .order = order }, x);
}

/* Chunk by chunk: [batch, seq] as [chunk, batch, place]. */
static Value *in_chunks(const Chunking *c, Builder *b, Value *value)
{
    const Attrs two = { .dim = c->whole.name, .dims = { 2, { c->place, c->chunk } } };
    Names order = { 1, { c->chunk.name } };
    const Names rest = names_with(c, value, &c->place.name, 1);
    for (int i = 0; i < rest.count; i++)
        add_name(&order, rest.name[i]);
    return reordered(b, BUILD(b, OP_split, two, value), order);
}

/* Back: what the loop has stacked, in the order of dims of the value that it stands for. */
static Value *put_together(const Chunking *c, Builder *b, Value *stacked, const Value *value)
{
    const Name both[] = { c->place.name, c->chunk.name };
    const Attrs one = { .over = { 2, { c->place.name, c->chunk.name } }, .dims = { 1, { c->whole } } };
    return BUILD(b, OP_merge, one, reordered(b, stacked, names_with(c, value, both, 2)));
}

/* A value that the tail reads, in the body: numbers are made again, all else is handed in. */
static Value *handed_in(Chunking *c, Builder *into, Value *value)
{
    Module *m = c->m;
    Value *own = map_get(&c->inside, value);
    if (own)
        return own;
    if (value->def && info(value->def)->family == LEAF && !has_whole(c, value)) {
        own = build_op(into, value->def->kind, value->def->attrs, 0, NULL);
    } else {
        Type type = value->type;
        if (has_whole(c, value))
            type.dim[find_dim(&type, c->whole.name)] = c->place;
        push_value(&m->arena, &c->operands, value);
        own = add_param(m, c->body, value->name, type);
    }
    map_put(&c->inside, value, own);
    return own;
}

/* The attributes of an op in the body, where the whole dim is only so many places. */
static Attrs attrs_inside(const Chunking *c, Attrs attrs)
{
    for (int i = 0; i < attrs.order.count; i++)
        if (attrs.order.name[i] == c->whole.name)
            attrs.order.name[i] = c->place.name;
    for (int i = 0; i < attrs.dims.count; i++)
        if (attrs.dims.dim[i].name == c->whole.name)
            attrs.dims.dim[i] = c->place;
    return attrs;
}

static bool is_read_outside(const Chunking *c, const Uses *uses, const Value *value)
{
    const Users *users = users_of(uses, value);
    bool outside = index_of(&c->f->results, value) >= 0;
    for (int i = 0; i < users->count; i++)
        outside |= !is_in_tail(&c->tail, users->op[i]);
    return outside;
}

/* --- The loop --------------------------------------------------------------------------------------- */

static void write_body(Chunking *c, const Uses *uses)
{
    Module *m = c->m;
    Builder b = { .module = m, .func = c->body };
    for (const Op *op = c->f->first; op; op = op->next) {
        if (!is_in_tail(&c->tail, op))
            continue;
        for (int i = 0; i < op->args.count; i++)
            handed_in(c, &b, arg(op, i));
        Op narrow = *op;
        narrow.attrs = attrs_inside(c, op->attrs);
        const Op *own = clone_mapped(&b, &narrow, &c->inside);
        for (int i = 0; i < op->results.count; i++)
            if (is_read_outside(c, uses, op->results.at[i])) {
                push_value(&m->arena, &c->outputs, op->results.at[i]);
                push_value(&m->arena, &c->body->results, own->results.at[i]);
            }
    }
}

static Op *last_of_tail(const Chunking *c)
{
    Op *last = c->f->last;
    while (!is_in_tail(&c->tail, last))
        last = last->prev;
    return last;
}

/* Puts what reads the tail, between its ops, behind the last one.  Returns the op before which the loop goes. */
static Op *make_room(Chunking *c)
{
    Arena scratch = { 0 };
    Map reads = { .arena = &scratch }; /* ops that depend on the tail */
    Op *last = last_of_tail(c), *end = last->next, *moved = NULL;
    for (Op *op = c->f->first, *next; op != last; op = next) {
        next = op->next;
        bool depends = false;
        for (int i = 0; i < op->args.count && !is_in_tail(&c->tail, op); i++)
            depends |= is_in_tail(&c->tail, arg(op, i)->def) || (arg(op, i)->def && map_get(&reads, arg(op, i)->def));
        if (!depends)
            continue;
        map_put(&reads, op, op);
        remove_op(c->f, op);
        insert_op(c->f, op, end);
        moved = moved ? moved : op;
    }
    arena_free(&scratch);
    return moved ? moved : end;
}

static void write_loop(Chunking *c, Op *before)
{
    Module *m = c->m;
    const Op *head = c->tail.head;
    Builder b = builder_at(m, c->f, before);
    b.loc = head->loc, b.path = head->path, b.where = head->where;
    for (int i = 0; i < c->operands.count; i++)
        if (has_whole(c, c->operands.at[i]))
            c->operands.at[i] = in_chunks(c, &b, c->operands.at[i]);
    const Attrs attrs = { .callee = c->body->name, .dims = { 1, { c->chunk } }, .scan = true, .chunked = true };
    const Op *loop = build(&b, OP_loop, attrs, c->operands.count, c->operands.at);
    for (int i = 0; i < c->outputs.count; i++) {
        Value *old = c->outputs.at[i], *whole = put_together(c, &b, loop->results.at[i], old);
        whole->name = old->name;
        replace_uses(c->f, old, whole);
    }
    for (Op *op = c->f->last, *above; op; op = above) {
        above = op->prev;
        if (is_in_tail(&c->tail, op))
            remove_op(c->f, op);
    }
}

static void cut_tail(Chunking *c)
{
    const Uses uses = find_uses(&c->m->arena, c->f);
    c->inside.arena = &c->m->arena;
    c->body = add_func(c->m, free_func_name(c->m, intern_format(c->m, "%s.loss", c->f->name)), PLAIN);
    write_body(c, &uses);
    write_loop(c, make_room(c));
}

/* --- How many --------------------------------------------------------------------------------------- */

/* The number of parts into which layout rules cut the dim; each part has all chunks. */
static int64_t parts_by_rules(const Module *m, Name dim)
{
    int64_t parts = 1;
    for (const ShardRule *rule = m->rules; rule; rule = rule->next)
        if (has_name(&rule->dims, dim) || rule->otherwise == dim)
            parts *= m->axis_size[rule->axis] * (rule->zigzag ? rule->zigzag : 1);
    return parts;
}

static int64_t bytes_of_rank(const LayoutRules *rules, const Type *type)
{
    const Type split = layout_type(rules, *type);
    return local_bytes(rules->m, &split);
}

/* The largest activation that is in memory without the tail, of a rank: what a product or a library op makes. */
static int64_t largest_other(const Chunking *c, const LayoutRules *rules)
{
    int64_t most = 1;
    for (const Func *f = c->m->funcs; f; f = f->next)
        for (const Op *op = f->role == PLAIN || f->role == MODEL ? f->first : NULL; op; op = op->next)
            if ((info(op)->family == PRODUCT || info(op)->family == LIBRARY) && !is_in_tail(&c->tail, op)) {
                const int64_t bytes = bytes_of_rank(rules, &result(op)->type);
                most = bytes > most ? bytes : most;
            }
    return most;
}

/* So many that a chunk of logits is no larger than another activation, which is there anyway, but not of few tokens. */
static int64_t count_that_pays(const Chunking *c, int64_t divided)
{
    const LayoutRules rules = layout_rules(c->m);
    const Type logits = layout_type(&rules, result(c->tail.head)->type);
    const int64_t other = largest_other(c, &rules), bytes = local_bytes(c->m, &logits);
    int64_t tokens = 1, count = 1;
    for (int i = 0; i < logits.rank; i++)
        tokens *= logits.dim[i].name == c->tail.wide ? 1 : local_size(c->m, &logits.dim[i]);
    for (int64_t next = 2; next <= divided && tokens / next >= FEWEST_TOKENS && count * other < bytes; next++)
        count = divided % next == 0 ? next : count;
    return count;
}

static Name chunk_name(const Chunking *c) { return intern_format(c->m, "%s.chunk", c->whole.name); }

/* 1: the dim stays whole. */
static int64_t chunks_of(const Chunking *c)
{
    if (c->like)
        return c->like->name == chunk_name(c) ? c->like->size : 1;
    const int64_t asked = c->m->train.loss_chunks, parts = parts_by_rules(c->m, c->whole.name);
    const int64_t divided = c->whole.size % parts ? c->whole.size : c->whole.size / parts;
    int64_t count = 1;
    if (asked == LOSS_CHUNKS_AUTO)
        return count_that_pays(c, divided);
    for (int64_t next = 2; next <= divided && (asked > 0 ? next <= asked : count == 1); next++)
        count = divided % next == 0 ? next : count;
    return count;
}

/* --- The pass --------------------------------------------------------------------------------------- */

/* Says that there are no chunks, and why: an error if a number of them was asked for.  An evaluation that has none, by
 * an operation of its own, takes no gradients into memory beside its logits. */
static void refuse(const Chunking *c, const Op *at, const char *why, const char *help)
{
    Module *m = c->m;
    if (c->f->role != MODEL)
        return;
    if (m->train.loss_chunks > 0)
        error_at(m->diags, (Where){ .at = at->loc, .help = help }, "train.loss_chunks: %s", why);
    else
        remark(m, at, "the loss is not computed in chunks: %s", why);
}

static void tell_chunks(const Chunking *c)
{
    const Type *logits = &result(c->tail.head)->type;
    const double bytes = (double)local_bytes(c->m, logits);
    remark(c->m, c->tail.head, "the loss in %" PRId64 " chunks of %" PRId64 " of '%s': %s of the %s for %s",
           c->chunk.size, c->place.size, c->whole.name, bytes_text(&c->m->arena, bytes / (double)c->chunk.size),
           bytes_text(&c->m->arena, bytes), c->tail.wide);
}

/* Along this dim of the logits; false: it cannot be cut, or need not be. */
static bool chunk_along(Chunking *c, Dim dim)
{
    Module *m = c->m;
    c->whole = dim;
    c->tail = find_loss_tail(&m->arena, m, c->f, dim.name, c->tail.wide);
    const int64_t count = c->tail.head && dim.size == dim.padded ? chunks_of(c) : 1;
    if (count == 1)
        return false;
    const int64_t places = dim.size / count;
    c->chunk = (Dim){ .name = chunk_name(c), .size = count, .padded = count };
    c->place = (Dim){ .name = intern_format(m, "%s.place", dim.name), .size = places, .padded = places };
    add_made_dim(m, c->place.name, MADE_LIKE, dim.name);
    if (c->f->role == MODEL)
        tell_chunks(c);
    cut_tail(c);
    return true;
}

static bool is_of_inputs(const Module *m, Name dim)
{
    bool has = false;
    for (const Input *input = m->inputs; input; input = input->next)
        has |= find_dim(&input->type, dim) >= 0;
    return has;
}

/* The dims along which there may be chunks: those that inputs and the logits have, the largest first, but the
 * micro-batch last. */
static int dims_to_try(const Module *m, const Type *logits, Name wide, Dim dims[])
{
    int count = 0;
    for (int i = 0; i < logits->rank; i++) {
        const Dim dim = logits->dim[i];
        if (dim.name == wide || !is_of_inputs(m, dim.name))
            continue;
        int at = count++;
        for (; at > 0 && dim.name != m->batch && (dims[at - 1].name == m->batch || dims[at - 1].size < dim.size); at--)
            dims[at] = dims[at - 1];
        dims[at] = dim;
    }
    return count;
}

/* The dims of the largest product with the dim of the logits; their number. */
static int dims_of_logits(const Module *m, const Func *f, Name wide, Dim dims[])
{
    int64_t most = 0;
    int count = 0;
    for (const Op *op = f->first; op && wide; op = op->next) {
        Dim own[MAX_RANK];
        const Type *type = info(op)->family == PRODUCT ? &result(op)->type : NULL;
        const int found = type && find_dim(type, wide) >= 0 ? dims_to_try(m, type, wide, own) : 0;
        if (!found || element_count(type) <= most)
            continue;
        most = element_count(type);
        count = found;
        memcpy(dims, own, (size_t)found * sizeof *own);
    }
    return count;
}

static const char *why_no_number(const Chunking *c)
{
    Arena *arena = &c->m->arena;
    if (c->m->train.loss_chunks < 0)
        return "the logits are no larger than other activations, or of too few tokens";
    return arena_text(arena, "no number from 2 to %" PRId64 " divides the %" PRId64 " elements of '%s'%s",
                      c->m->train.loss_chunks, c->whole.size, c->whole.name,
                      parts_by_rules(c->m, c->whole.name) > 1 ? " into parts for all ranks" : "");
}

/* The sum of all that is wide, as a regulariser has it, is that of sums for each token. */
static void reduce_by_token(Module *m, Func *f, Name wide)
{
    for (Op *op = f->first; op; op = op->next) {
        Names first = { 0 }, then = { 0 };
        for (int i = 0; i < op->attrs.over.count && info(op)->family == REDUCTION; i++)
            add_name(op->attrs.over.name[i] != wide && is_of_inputs(m, op->attrs.over.name[i]) ? &then : &first,
                     op->attrs.over.name[i]);
        if (!then.count || !has_name(&first, wide))
            continue;
        Builder b = builder_at(m, f, op);
        op->args.at[0] = BUILD(&b, op->kind, (Attrs){ .over = first }, arg(op, 0));
        op->attrs.over = then;
    }
}

/* The dim of the chunks, without a name if there are none. */
static Dim chunk_func(Module *m, Func *f, const Dim *like)
{
    static const char *const whole = "loss_chunks = none, or auto, which leaves such a loss whole";
    Chunking c = { .m = m, .f = f, .like = like };
    const Name wide = dim_of_logits(m, f);
    Dim dims[MAX_RANK];
    const int count = dims_of_logits(m, f, wide, dims);
    reduce_by_token(m, f, wide);
    Chunking first = c; /* of the dims that were tried, which says why not */
    for (int i = 0; i < count; i++) {
        c.tail.wide = wide;
        if (chunk_along(&c, dims[i]))
            return c.chunk;
        first = i == 0 ? c : first;
    }
    if (!count)
        refuse(&first, f->last, "the model has no product that makes logits, outside of repeats and scans", whole);
    else if (first.tail.blocked)
        refuse(&first, first.tail.blocked, first.tail.why, whole);
    else
        refuse(&first, first.tail.head, why_no_number(&first), "another size, or loss_chunks = none");
    return (Dim){ 0 };
}

void pass_chunk(Module *m);
void pass_chunk(Module *m)
{
    if (!m->train.loss_chunks)
        return;
    const Dim chunks = chunk_func(m, func_with_role(m, MODEL), NULL);
    Func *eval = chunks.name ? func_with_role(m, EVAL) : NULL;
    if (eval)
        chunk_func(m, eval, &chunks);
}
