/* join.c -- joins two loops of which one makes slices, from tensors in another tier, that the other reads in the same
 * iteration: a layer's state or weights then arrive while the layer before it is computed.
 *
 *   %c = loop %w, %lr {dims=[n:12], callee=k.copy}               %y, %c = loop %x, %w, %lr {dims=[n:12], callee=h.fwd}
 *   %x = gather ...                                       =>     func @h.fwd(%x, %w, %lr) {
 *   %y = loop %x, %c {dims=[n:12], callee=h.fwd}                   %1 = move %w
 *                                                                  %2 = call %1, %lr {callee=k}
 *                                                                  %y = (the rest, with %2 in the place of its slice)
 *                                                                  return %y, %2
 *                                                                }
 *
 * Such loops are the updates that `defer` has left to the step, and casts of weights that are in another tier.  If the
 * reader is part of each micro-batch, the first of these is taken out of their loop before: see peel.c.  The forward
 * passes of others can be part of it: see together.c.
 */
#include "join.h"
#include "micro.h"
#include "uses.h"

typedef struct {
    Module *m;
    Func *f;
    Op *maker, *reader; /* the two loops */
    Func *made, *body;  /* the callees of the two loops */
} Pair;

Func *body_of(const Module *m, const Map *caller, const Op *loop)
{
    const Attrs *attrs = &loop->attrs;
    const bool is_plain = !attrs->reverse && !attrs->scan && !is_scheduled(loop) && !attrs->prefetch;
    const bool is_alone = attrs->callee && map_get(caller, attrs->callee) == loop;
    Func *body = is_plain && is_alone && attrs->dims.count == 1 ? find_func(m, attrs->callee) : NULL;
    return body && body->role == PLAIN ? body : NULL;
}

bool fetches_any(const Func *body)
{
    const Op *op = body->first;
    while (op && !(info(op)->traits & CARRIES && !op->attrs.tier))
        op = op->next;
    return op;
}

bool reads_slices(const Op *loop, const Values *stacks, const Dim *dim)
{
    for (int i = 0; i < loop->args.count; i++)
        if (index_of(stacks, arg(loop, i)) >= 0 &&
            (i < loop->attrs.carried || find_dim(&arg(loop, i)->type, dim->name) != 0))
            return false;
    return dim_equal(&loop->attrs.dims.dim[0], dim);
}

/* Is any operand on some ranks alone?  Values in the body of the reader do not say so. */
static bool is_on_some_ranks(const Op *loop)
{
    bool on = false;
    for (int i = 0; i < loop->args.count; i++)
        on |= arg(loop, i)->type.on.at != 0;
    return on;
}

/* Does it make slices of the values that it moves? */
static bool is_maker(const Pair *p, const Map *caller)
{
    const Func *made = body_of(p->m, caller, p->maker);
    return made && !p->maker->attrs.carried && !is_on_some_ranks(p->maker) && fetches_any(made);
}

/* The first reader of a loop's results is another loop, which it can be part of. */
static bool find_pair(Pair *p, const Map *caller)
{
    p->made = body_of(p->m, caller, p->maker);
    p->reader = first_reader(p->maker->next, &p->maker->results);
    p->body = p->reader ? body_of(p->m, caller, p->reader) : NULL;
    return p->body && reads_slices(p->reader, &p->maker->results, &p->maker->attrs.dims.dim[0]);
}

/* Puts the ops of one function at the beginning of the other, whose loop gets their operands. */
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
    Map caller = note_callers(m);
    for (Func *f = m->funcs; f; f = f->next)
        for (Op *op = f->role == KERNEL ? NULL : f->first, *next; op; op = next) {
            Pair pair = { .m = m, .f = f, .maker = op };
            next = op->next;
            if (!is_maker(&pair, &caller))
                continue;
            if (peel_reader(m, f, &caller, op))
                caller = note_callers(m);
            if (find_pair(&pair, &caller))
                join_loops(&pair);
        }
    if (func_with_role(m, STEP) && m->train.offload_just_in_time)
        run_together(m, func_with_role(m, STEP));
}
