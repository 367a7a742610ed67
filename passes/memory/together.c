/* together.c -- runs the forward passes of several micro-batches in one loop over the layers, where it moves a layer's
 * state: the transfers then have the time of all of them.
 *
 *   %y, %xs, %c = loop %x, %w {callee=h.fwd.first}      %x2 = gather ...
 *   (the rest of the first micro-batch)                 %y, %y2, %xs, %c, %xs2 = loop %x, %x2, %w {callee=h.fwd.first}
 *   %x2 = gather ...                                =>  (the rest of the first micro-batch)
 *   %y2, %xs2 = loop %x2, %c {callee=h.fwd.next}        (the rest of the second)
 *
 * What a layer keeps for its backward pass is in memory for all of them.  Backward passes come one after the other, as
 * before: so sums of gradients are added in the same order.
 */
#include "join.h"
#include "ports.h"
#include "uses.h"

typedef struct {
    Module *m;
    Func *f;
    Op *loop, *other; /* the second runs with the first */
    Func *body, *more;
} Beside;

/* --- Which --------------------------------------------------------------------------------------------- */

/* The ops that the other loop needs besides the slices that the first one makes. */
static Map needs_of(const Beside *p)
{
    Map needed = { .arena = &p->m->arena };
    for (int i = 0; i < p->other->args.count; i++)
        if (arg(p->other, i)->def != p->loop)
            note_with_operands(&needed, arg(p->other, i)->def);
    return needed;
}

/* The loop over the same layers that is the next to read the slices of what the first one makes, if nothing else that
 * it needs comes from there. */
static bool find_other(Beside *p, const Map *caller)
{
    p->body = body_of(p->m, caller, p->loop);
    for (p->other = p->loop->next; p->other; p->other = p->other->next) {
        p->other = first_reader(p->other, &p->loop->results);
        p->more = p->other ? body_of(p->m, caller, p->other) : NULL;
        if (!p->other || (p->more && reads_slices(p->other, &p->loop->results, &p->loop->attrs.dims.dim[0])))
            break;
    }
    const Map needed = p->other ? needs_of(p) : (Map){ 0 };
    return p->body && p->other && !map_get(&needed, p->loop);
}

/* --- One loop ------------------------------------------------------------------------------------------ */

static void put_needs_first(const Beside *p)
{
    const Map needed = needs_of(p);
    for (Op *op = p->loop->next, *next; op != p->other; op = next) {
        next = op->next;
        if (!map_get(&needed, op))
            continue;
        remove_op(p->f, op);
        insert_op(p->f, op, p->loop);
    }
}

/* The operands of the other loop, and the parameters for them: behind those that are carried, or of slices. */
static void add_operands(const Beside *p, Map *own)
{
    Arena *arena = &p->m->arena;
    const int carried = (int)p->loop->attrs.carried;
    for (int i = 0; i < p->other->args.count; i++) {
        Value *given = arg(p->other, i), *param = p->more->params.at[i];
        const int stack = index_of(&p->loop->results, given);
        if (stack >= 0) {
            map_put(own, param, p->body->results.at[stack]);
            continue;
        }
        Value *copy = add_param(p->m, p->body, free_name(p->m, p->body, param->name), param->type);
        copy->port = param->port;
        map_put(own, param, copy);
        const int at = i < p->other->attrs.carried ? carried + i : p->loop->args.count;
        insert_value(arena, &p->loop->args, at, given);
        take_away(&p->body->params, p->body->params.count - 1);
        insert_value(arena, &p->body->params, at, copy);
    }
}

static void move_ops(const Beside *p, const Map *own)
{
    for (Op *op = p->more->first, *next; op; op = next) {
        next = op->next;
        for (int i = 0; i < op->args.count; i++)
            if (map_get(own, arg(op, i)))
                op->args.at[i] = map_get(own, arg(op, i));
        for (int i = 0; i < op->results.count; i++)
            op->results.at[i]->name = free_name(p->m, p->body, op->results.at[i]->name);
        remove_op(p->more, op);
        insert_op(p->body, op, NULL);
    }
}

/* Residuals are the last, with their ports. */
static void add_results(const Beside *p, const Map *own)
{
    const int carried = (int)p->loop->attrs.carried;
    for (int i = 0; i < p->other->results.count; i++) {
        const bool is_residual = i >= first_residual(p->more);
        const int at = is_residual ? p->loop->results.count : carried + i;
        Value *value = p->more->results.at[i], *given = map_get(own, value), *of_loop = p->other->results.at[i];
        if (is_residual)
            add_result(p->m, p->body, given ? given : value, result_port(p->more, i));
        else
            insert_result(p->m, p->body, at, given ? given : value);
        insert_value(&p->m->arena, &p->loop->results, at, of_loop);
        of_loop->def = p->loop;
    }
}

static void run_in_one(const Beside *p)
{
    Map own = { .arena = &p->m->arena };
    put_needs_first(p);
    add_operands(p, &own);
    move_ops(p, &own);
    add_results(p, &own);
    p->loop->attrs.carried += p->other->attrs.carried;
    remove_op(p->f, p->other);
    remove_func(p->m, p->more);
}

/* --- All --------------------------------------------------------------------------------------------- */

/* Does the loop run a forward pass, and move what it updates? */
static bool is_joined(const Module *m, const Map *caller, const Op *loop)
{
    const Func *body = loop->attrs.callee && loop->attrs.carried ? body_of(m, caller, loop) : NULL;
    return body && fetches_any(body);
}

/* All readers of updated tensors, in order: those of a second repeat need the results of the first. */
static void run_all_in_one(Module *m, Func *f)
{
    Map caller = note_callers(m);
    for (Op *op = f->first; op; op = op->next) {
        Beside p = { .m = m, .f = f, .loop = op };
        if (!is_joined(m, &caller, op) || !find_other(&p, &caller))
            continue;
        run_in_one(&p);
        caller = note_callers(m);
    }
}

void run_together(Module *m, Func *f)
{
    for (int64_t count = 1; count < m->train.offload_together; count++) {
        const Map caller = note_callers(m);
        const Op *joined = f->first;
        while (joined && !is_joined(m, &caller, joined))
            joined = joined->next;
        if (!joined || !peel_next(m, f, &caller, joined))
            break;
        run_all_in_one(m, f);
    }
}
