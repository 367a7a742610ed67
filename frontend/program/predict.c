/* predict.c -- what a prediction returns: the logits of one position of its sequence, whose number the trainer feeds.
 *
 *   %y = dot %x, %w {over=embed} : [batch:1, seq:8192, vocab]      %1 = gather %x, %position {dim=seq} : [batch:1,
 * embed] return %y as logits                                        =>  %2 = dot %1, %w {over=embed} : [batch:1, vocab]
 *                                                                  return %2 as logits
 *
 * A sampled token needs no others: those of all positions would take 4 GB of a sequence of 8,192 tokens, and as much
 * again for messages that gather them.  What computes each position by itself, as the head and the norm before it, is
 * computed for that one; from where it does not, positions are picked.
 */
#include "lower/emit.h"
#include "lower/expr.h"
#include "map.h"
#include "program.h"

typedef struct {
    Lower *l;
    Name dim;
    Value *position;
    Map own; /* Value -> itself at the position */
} Pick;

static bool names(const Attrs *attrs, Name dim)
{
    bool named = attrs->order.count || attrs->dim == dim || attrs->to == dim || has_name(&attrs->over, dim);
    for (int i = 0; i < attrs->dims.count; i++)
        named |= attrs->dims.dim[i].name == dim;
    return named;
}

/* Does the op compute each position of its result from the same position of its operands? */
static bool is_apart(const Op *op, Name dim)
{
    static const bool by_name[CONTROL + 1] = { [POINTWISE] = true, [PRODUCT] = true, [REDUCTION] = true };
    return by_name[info(op)->family] && op->results.count == 1 && op_role(op, dim) == KEEP &&
           !(info(op)->traits & POSITIONAL) && !names(&op->attrs, dim);
}

static Value *at_position(Pick *p, Value *value)
{
    Value *own = map_get(&p->own, value);
    const Op *op = value->def;
    if (own || find_dim(&value->type, p->dim) < 0)
        return own ? own : value;
    p->l->b.loc = op ? op->loc : p->l->b.loc;
    if (op && is_apart(op, p->dim)) {
        Value **args = NEW_ARRAY(p->l->arena, Value *, op->args.count);
        for (int i = 0; i < op->args.count; i++)
            args[i] = at_position(p, arg(op, i));
        own = result(clone_op(&p->l->b, op, args));
        own->name = value == p->l->now.logits ? value->name : fresh_name(p->l->m); /* others may be read elsewhere */
    } else {
        own = emit_gather(p->l, value, p->dim, p->position);
    }
    map_put(&p->own, value, own);
    return own;
}

Value *predicted_logits(Lower *l)
{
    Type order = longest_input(l->m)->type; /* [batch, S] */
    const Value *logits = l->now.logits;
    l->frame->position = new_port(l, intern_text(l->m, "position"), scalar_type(I32), (Port){ .kind = PORT_POSITION });
    Pick pick = { l, order.dim[order.rank - 1].name, l->frame->position, { .arena = l->arena } };
    order.dim[order.rank - 1] = logits->type.dim[find_dim(&logits->type, l->m->vocab)];
    return reorder(l, at_position(&pick, l->now.logits), &order);
}
