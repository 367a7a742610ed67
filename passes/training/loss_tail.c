/* loss_tail.c -- finds the head and the loss of a model: the ops that act on each position along a dim by itself.
 *
 *   %x = loop ...                                  before: something in the tail needs it
 *   %logits = dot %x, %w : [seq, vocab]            tail
 *   %ce = ... : [seq]                              tail: small, but computed from what is wide
 *   %loss = sum %ce {over=seq}                     after: nothing in the tail needs it
 *
 * From the end of the function to its beginning, an op is in the tail if it keeps the dim, and its readers are in the
 * tail or after it; all that are wide are read in the tail.  Then ops are dropped again that no wide value leads to.
 */
#include "loss_tail.h"

#include "uses.h"

typedef enum { AFTER, IN_TAIL, BEFORE } Place;

typedef struct {
    const Module *m;
    const Func *f;
    LossTail *tail;
    Uses uses;
    Map place; /* op -> Place, stored as a pointer */
} Search;

static Place place_of(const Search *s, const Op *op) { return (Place)(intptr_t)map_get(&s->place, op); }

bool is_in_tail(const LossTail *tail, const Op *op) { return op && map_get(&tail->ops, op); }

static bool has(const Value *value, Name dim) { return find_dim(&value->type, dim) >= 0; }

static bool is_wide(const LossTail *tail, const Value *value)
{
    return has(value, tail->dim) && has(value, tail->wide);
}

static bool has_wide_result(const LossTail *tail, const Op *op)
{
    for (int i = 0; i < op->results.count; i++)
        if (is_wide(tail, op->results.at[i]))
            return true;
    return false;
}

static bool reads_wide(const LossTail *tail, const Op *op)
{
    for (int i = 0; i < op->args.count; i++)
        if (is_wide(tail, arg(op, i)))
            return true;
    return false;
}

/* Has the dim a part of its own in what the op does: as the sequence of attention, say? */
static bool names_dim(const Attrs *attrs, Name dim)
{
    return attrs->dim == dim || attrs->to == dim || attrs->seq == dim || attrs->key == dim || attrs->feature == dim;
}

/* Is each element of its results along the dim computed from the same element of its operands?  The loop has one dim
 * more than the values. */
static bool keeps(const Op *op, Name dim)
{
    bool given = false, fits = info(op)->family != CONTROL && info(op)->family != LEAF;
    for (int i = 0; i < op->args.count; i++) {
        given |= has(arg(op, i), dim);
        fits &= !has(arg(op, i), dim) || arg(op, i)->type.rank < MAX_RANK;
    }
    for (int i = 0; i < op->results.count; i++)
        fits &= has(op->results.at[i], dim) && op->results.at[i]->type.rank < MAX_RANK;
    return given && fits && op_role(op, dim) == KEEP && !names_dim(&op->attrs, dim) && !(info(op)->traits & POSITIONAL);
}

static Place place_by_readers(const Search *s, const Op *op)
{
    bool fits = keeps(op, s->tail->dim), is_needed = false;
    for (int i = 0; i < op->results.count; i++) {
        const Value *value = op->results.at[i];
        const Users *users = users_of(&s->uses, value);
        const bool wide = is_wide(s->tail, value);
        fits &= !wide || index_of(&s->f->results, value) < 0;
        for (int j = 0; j < users->count; j++) {
            const Place reader = place_of(s, users->op[j]);
            is_needed |= reader != AFTER;
            fits &= wide ? reader == IN_TAIL : reader != BEFORE;
        }
    }
    return fits ? IN_TAIL : is_needed ? BEFORE : AFTER;
}

static const char *why_blocked(const Search *s, const Op *op)
{
    const LossTail *tail = s->tail;
    return info(op)->traits & POSITIONAL ? "this depends on the position in the whole tensor"
           : keeps(op, tail->dim)
               ? "not only the loss reads what is computed here"
               : arena_text(tail->ops.arena, "this needs more than one position along '%s'", tail->dim);
}

/* Blames an op with a wide result that is not in the tail, or the reader that keeps it out. */
static void note_blocked(const Search *s, const Op *op)
{
    LossTail *tail = s->tail;
    tail->blocked = op;
    for (int i = 0; i < op->results.count && keeps(op, tail->dim); i++) {
        const Users *users = is_wide(tail, op->results.at[i]) ? users_of(&s->uses, op->results.at[i]) : NULL;
        for (int j = 0; users && j < users->count; j++)
            if (place_of(s, users->op[j]) != IN_TAIL)
                tail->blocked = users->op[j];
    }
    tail->why = why_blocked(s, tail->blocked);
}

/* Wide values that are whole whatever the tail does: not those that the model is given. */
static void find_blocked(const Search *s)
{
    for (const Op *op = s->f->last; op && !s->tail->blocked; op = op->prev)
        if (has_wide_result(s->tail, op) && !is_in_tail(s->tail, op) && info(op)->family != LEAF)
            note_blocked(s, op);
}

static bool follows_tail(const LossTail *tail, const Op *op)
{
    for (int i = 0; i < op->args.count; i++)
        if (is_in_tail(tail, arg(op, i)->def))
            return true;
    return false;
}

/* The product that makes the largest wide value. */
static void note_head(LossTail *tail, const Op *op)
{
    if (info(op)->family == PRODUCT && has_wide_result(tail, op) &&
        (!tail->head || element_count(&result(op)->type) > element_count(&result(tail->head)->type)))
        tail->head = op;
}

LossTail find_loss_tail(Arena *arena, Module *m, const Func *f, Name dim, Name wide)
{
    LossTail tail = { .dim = dim, .wide = wide, .ops.arena = arena };
    Search s = { m, f, &tail, find_uses(arena, f), { .arena = arena } };
    for (const Op *op = f->last; op; op = op->prev)
        map_put(&s.place, op, (void *)(intptr_t)place_by_readers(&s, op));
    for (const Op *op = f->first; op; op = op->next)
        if (place_of(&s, op) == IN_TAIL &&
            (has_wide_result(&tail, op) || reads_wide(&tail, op) || follows_tail(&tail, op))) {
            map_put(&tail.ops, op, (void *)(uintptr_t)op);
            note_head(&tail, op);
        }
    find_blocked(&s);
    tail.head = tail.blocked ? NULL : tail.head;
    return tail;
}

/* --- The dim of the logits ----------------------------------------------------------------------- */

/* A dim of one factor alone, which the other, with the batch, lacks: NULL: none. */
static Name dim_made_by(const Module *m, const Op *op)
{
    Name made = NULL;
    for (int side = 0; side < 2 && m->batch; side++) {
        const Type *from = &arg(op, side)->type, *to = &result(op)->type;
        for (int i = 0; i < from->rank && has(arg(op, !side), m->batch) && !has(arg(op, side), m->batch); i++)
            if (find_dim(to, from->dim[i].name) >= 0 && !has(arg(op, !side), from->dim[i].name))
                made = from->dim[i].name;
    }
    return made;
}

Name dim_of_logits(const Module *m, const Func *f)
{
    Name dim = m->vocab;
    for (const Op *op = f->last; op && !dim; op = op->prev)
        dim = info(op)->family == PRODUCT ? dim_made_by(m, op) : NULL;
    return dim;
}
