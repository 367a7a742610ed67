/* weight_loop.c -- divides the backward loop of a pipeline in two: zero-bubble schedules (Qi et al., arXiv 2401.10241)
 * send the gradient of the activations on first, and compute those of the weights when a stage would be idle.
 *
 *   %dx, %dw = loop %dy, %x, %w, %sum {callee=h.bwd, carried=1}
 *   =>
 *   %dx, %1 = loop %dy, %x, %w {callee=h.bwd.activations, carried=1}
 *   %dw = loop %x, %1, %sum {callee=h.bwd.weights}
 *
 * What the carried results need stays in the first loop; the rest is the second one, which has no messages.  The second
 * gets what it needs of the first as stacked values, but for what is smaller to make again, as a broadcast.
 */
#include "weight_loop.h"

#include "map.h"
#include "rank_layout.h"
#include "uses.h"

typedef struct {
    Module *m;
    Func *caller;
    Op *loop;                /* backward, before it is divided */
    const Func *body;        /* of it */
    Map needed;              /* ops of the body that its carried results need */
    Func *first, *second;    /* the new bodies */
    Map in_first, in_second; /* values of the body -> those of the new ones */
    Values first_args;       /* of the new loops */
    Values second_args;
    Values handed_on; /* values of the body: results of `first` that `second` reads */
    int handed_at;    /* the first of these results */
} Division;

static bool stays(const Division *d, const Value *value) { return !value->def || map_get(&d->needed, value->def); }

/* --- The first loop ------------------------------------------------------------------------------------- */

static void copy_op(Division *d, Func *into, Map *map, const Op *op, Value *(*inside)(Division *, Value *))
{
    Builder b = { .module = d->m, .func = into };
    for (int i = 0; i < op->args.count; i++)
        inside(d, arg(op, i));
    clone_mapped(&b, op, map);
}

/* A parameter of a new body, and the operand of its loop. */
static Value *add_operand(Division *d, Func *into, Map *map, Values *args, Value *param, Value *given)
{
    Value *own = add_param(d->m, into, param->name, param->type);
    map_put(map, param, own);
    push_value(&d->m->arena, args, given);
    return own;
}

static Value *inside_first(Division *d, Value *value)
{
    Value *own = map_get(&d->in_first, value);
    return own ? own
               : add_operand(d, d->first, &d->in_first, &d->first_args, value,
                             arg(d->loop, index_of(&d->body->params, value)));
}

static void build_first(Division *d)
{
    for (int i = 0; i < d->loop->attrs.carried; i++)
        inside_first(d, d->body->params.at[i]);
    for (const Op *op = d->body->first; op; op = op->next)
        if (map_get(&d->needed, op))
            copy_op(d, d->first, &d->in_first, op, inside_first);
    for (int i = 0; i < d->body->results.count; i++)
        if (stays(d, d->body->results.at[i]))
            push_value(&d->m->arena, &d->first->results, inside_first(d, d->body->results.at[i]));
    d->handed_at = d->first->results.count;
}

/* --- The second loop ------------------------------------------------------------------------------------ */

/* Is it made again where it is needed, rather than kept until then? */
static bool is_made_again(const Op *op)
{
    return info(op)->family == LEAF || info(op)->family == VIEW ||
           (info(op)->traits & COPIES && bytes_of(&result(op)->type) > bytes_of(&arg(op, 0)->type));
}

static Value *inside_second(Division *d, Value *value)
{
    Value *own = map_get(&d->in_second, value);
    if (own)
        return own;
    const int at = value->def ? -1 : index_of(&d->body->params, value);
    if (at >= d->loop->attrs.carried)
        return add_operand(d, d->second, &d->in_second, &d->second_args, value, arg(d->loop, at));
    if (value->def && is_made_again(value->def)) {
        copy_op(d, d->second, &d->in_second, value->def, inside_second);
        return map_get(&d->in_second, value);
    }
    push_value(&d->m->arena, &d->handed_on, value);
    push_value(&d->m->arena, &d->first->results, map_get(&d->in_first, value));
    return add_operand(d, d->second, &d->in_second, &d->second_args, value, NULL); /* the first loop gives it */
}

static void build_second(Division *d)
{
    for (const Op *op = d->body->first; op; op = op->next)
        if (!map_get(&d->needed, op))
            copy_op(d, d->second, &d->in_second, op, inside_second);
    for (int i = 0; i < d->body->results.count; i++)
        if (!stays(d, d->body->results.at[i]))
            push_value(&d->m->arena, &d->second->results, map_get(&d->in_second, d->body->results.at[i]));
}

/* --- Both ------------------------------------------------------------------------------------------------- */

static Op *add_loop(Division *d, const Func *body, const Values *args, int64_t carried)
{
    Builder b = builder_at(d->m, d->caller, d->loop);
    Attrs attrs = d->loop->attrs;
    attrs.callee = body->name;
    attrs.carried = carried;
    return build(&b, OP_loop, attrs, args->count, args->at);
}

static void replace_loop(Division *d, Op *first, Op *second)
{
    int from_first = 0, from_second = 0;
    for (int i = 0; i < d->loop->results.count; i++) {
        Value *now =
            stays(d, d->body->results.at[i]) ? first->results.at[from_first++] : second->results.at[from_second++];
        now->name = d->loop->results.at[i]->name;
        replace_uses(d->caller, d->loop->results.at[i], now);
    }
    remove_op(d->caller, d->loop);
}

Op *divide_backward(Module *m, Func *caller, Op **loop)
{
    const Func *body = find_func(m, (*loop)->attrs.callee);
    Division d = { .m = m, .caller = caller, .loop = *loop, .body = body };
    d.needed.arena = d.in_first.arena = d.in_second.arena = &m->arena;
    for (int i = 0; i < (*loop)->attrs.carried; i++)
        note_with_operands(&d.needed, body->results.at[i]->def);
    bool all = true;
    for (const Op *op = body->first; op; op = op->next)
        all &= map_get(&d.needed, op) != NULL;
    if (all)
        return NULL;
    d.first = add_func(m, intern_format(m, "%s.activations", body->name), PLAIN);
    d.second = add_func(m, intern_format(m, "%s.weights", body->name), PLAIN);
    build_first(&d);
    build_second(&d);
    Op *first = add_loop(&d, d.first, &d.first_args, (*loop)->attrs.carried);
    for (int i = 0; i < d.handed_on.count; i++)
        d.second_args.at[index_of(&d.second->params, map_get(&d.in_second, d.handed_on.at[i]))] =
            first->results.at[d.handed_at + i];
    Op *second = add_loop(&d, d.second, &d.second_args, 0);
    replace_loop(&d, first, second);
    *loop = first;
    return second;
}
