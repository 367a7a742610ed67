/* join.c -- a loop that makes slices of which another one reads each in the same iteration becomes part of that one, if
 * it moves what they are made of: a layer's state or weights then arrive while the layer before it is computed.
 *
 *   %c = loop %w, %lr {dims=[n:12], callee=k.copy}               %y, %c = loop %x, %w, %lr {dims=[n:12], callee=h.fwd}
 *   %x = gather ...                                       =>     func @h.fwd(%x, %w, %lr) {
 *   %y = loop %x, %c {dims=[n:12], callee=h.fwd}                   %1 = move %w
 *                                                                  %2 = call %1, %lr {callee=k}
 *                                                                  %y = (the rest, with %2 in the place of its slice)
 *                                                                  return %y, %2
 *                                                                }
 *
 * Such loops are the updates that `defer` has left to the step, and casts of weights that are in another tier.
 */
#include "map.h"
#include "uses.h"

typedef struct {
    Module *m;
    Func *f;
    const Map *caller;  /* of a function by its name: the only op that calls it; of several, none of them */
    Op *maker, *reader; /* the two loops */
    Func *made, *body;  /* what they call */
} Pair;

static void note_callers(Module *m, Map *caller)
{
    for (const Func *f = m->funcs; f; f = f->next)
        for (Op *op = f->first; op; op = op->next)
            if (op->attrs.callee)
                map_put(caller, op->attrs.callee, map_get(caller, op->attrs.callee) ? (void *)m : op);
}

/* The function of a plain loop, if nothing else calls it; else NULL. */
static Func *body_of(const Pair *p, const Op *loop)
{
    const Attrs *attrs = &loop->attrs;
    const bool is_plain = !attrs->reverse && !attrs->scan && !attrs->stages && !attrs->prefetch;
    const bool is_alone = attrs->callee && map_get(p->caller, attrs->callee) == loop;
    Func *body = is_plain && is_alone && attrs->dims.count == 1 ? find_func(p->m, attrs->callee) : NULL;
    return body && body->role == PLAIN ? body : NULL;
}

static bool fetches_any(const Func *body)
{
    const Op *op = body->first;
    while (op && !(info(op)->traits & CARRIES && !op->attrs.tier))
        op = op->next;
    return op;
}

static bool reads_any(const Op *op, const Op *maker)
{
    for (int i = 0; i < op->args.count; i++)
        if (arg(op, i)->def == maker)
            return true;
    return false;
}

/* Does it read what the maker makes slice by slice, and nothing of it otherwise? */
static bool reads_slices(const Op *reader, const Op *maker)
{
    for (int i = 0; i < reader->args.count; i++)
        if (arg(reader, i)->def == maker &&
            (i < reader->attrs.carried || find_dim(&arg(reader, i)->type, maker->attrs.dims.dim[0].name) != 0))
            return false;
    return dim_equal(&reader->attrs.dims.dim[0], &maker->attrs.dims.dim[0]);
}

/* The first reader of a loop's results is another loop, which it can be part of. */
static bool find_pair(Pair *pair, Op *maker)
{
    pair->maker = maker;
    pair->made = body_of(pair, maker);
    if (!pair->made || maker->attrs.carried || !fetches_any(pair->made))
        return false;
    pair->reader = maker->next;
    while (pair->reader && !reads_any(pair->reader, maker))
        pair->reader = pair->reader->next;
    pair->body = pair->reader ? body_of(pair, pair->reader) : NULL;
    return pair->body && reads_slices(pair->reader, maker);
}

/* The ops of one function at the beginning of the other, whose loop passes what they read. */
static void move_ops(const Pair *p)
{
    Map own = { .arena = &p->m->arena };
    Op *first = p->body->first;
    for (int i = 0; i < p->made->params.count; i++) {
        const Value *param = p->made->params.at[i];
        Value *copy = add_param(p->m, p->body, free_name(p->m, p->body, param->name), param->type);
        copy->port = param->port;
        map_put(&own, param, copy);
        push_value(&p->m->arena, &p->reader->args, arg(p->maker, i));
    }
    for (Op *op = p->made->first, *next; op; op = next) {
        next = op->next;
        for (int i = 0; i < op->args.count; i++)
            if (map_get(&own, arg(op, i)))
                op->args.at[i] = map_get(&own, arg(op, i));
        remove_op(p->made, op);
        insert_op(p->body, op, first);
    }
    for (int i = 0; i < p->made->results.count; i++)
        if (map_get(&own, p->made->results.at[i]))
            p->made->results.at[i] = map_get(&own, p->made->results.at[i]);
}

/* What the reader got as a slice is there already. */
static void read_directly(const Pair *p, const Value *stack, Value *slice)
{
    for (int at; (at = index_of(&p->reader->args, stack)) >= 0;) {
        const Value *param = p->body->params.at[at];
        for (Op *op = p->body->first; op; op = op->next)
            replace_value(&op->args, param, slice);
        replace_value(&p->body->results, param, slice);
        take_away(&p->body->params, at);
        take_away(&p->reader->args, at);
    }
}

static void return_stack(const Pair *p, Value *stack, Value *slice)
{
    const int at = (int)p->reader->attrs.carried;
    insert_result(p->m, p->body, at, slice);
    insert_value(&p->m->arena, &p->reader->results, at, stack);
    stack->def = p->reader;
}

static void join_loops(const Pair *p)
{
    move_ops(p);
    for (int i = p->made->results.count - 1; i >= 0; i--) {
        Value *stack = p->maker->results.at[i], *slice = p->made->results.at[i];
        read_directly(p, stack, slice);
        if (uses_in(p->f, stack))
            return_stack(p, stack, slice);
    }
    remove_op(p->f, p->maker);
    remove_func(p->m, p->made);
}

void pass_join(Module *m);
void pass_join(Module *m)
{
    Map caller = { .arena = &m->arena };
    note_callers(m, &caller);
    for (Func *f = m->funcs; f; f = f->next)
        for (Op *op = f->role == KERNEL ? NULL : f->first, *next; op; op = next) {
            Pair pair = { .m = m, .f = f, .caller = &caller };
            next = op->next;
            if (find_pair(&pair, op))
                join_loops(&pair);
        }
}
