/* late_loss.c -- moves the loss into the backward of a loop over chunks, which computes the chunks again anyway.
 *
 *   func @m.fwd(%xs, ...)                                   func @m.fwd(%xs, ...)
 *     %ces = loop %xs, ... {callee=m.loss.fwd, chunked}
 *     %loss = sum %ces                                        return saves(...)
 *     return %loss saves(...)
 *   func @m.bwd(%d.loss, ...)                               func @m.bwd(%d.loss, ...)
 *     %dxs = loop ... {callee=m.loss.bwd, chunked}      =>    %dxs, %ces = loop ... {callee=m.loss.bwd, chunked}
 *     ...                                                     %loss = sum %ces
 *     return %dx                                              ...
 *                                                             return %dx, %loss
 *
 * The head is then multiplied by each chunk once in place of twice.  It can be, since the gradient of the loss does not
 * depend on the loss: only if the backward reads nothing of what follows the loop in the forward function.  The results
 * of the body become residuals, which the backward only returns: recompute.c makes them again there, from the logits
 * that it makes again anyway, and drops the loop that nothing reads.
 */
#include "late_loss.h"

#include "map.h"
#include "remark.h"
#include "residuals.h"

typedef struct {
    Module *m;
    Func *fwd, *bwd;   /* around the loops */
    Op *loop, *back;   /* of them: over chunks */
    Op *call, *recall; /* of fwd and bwd, in one function */
    Func *caller;
    Link link, inner;
    Map late; /* value of fwd that depends on the loop -> the same in bwd; before that: itself */
} Late;

static bool is_late(const Late *l, const Value *value) { return map_get(&l->late, value) != NULL; }

static Func *backward_of(const Module *m, const Func *fwd)
{
    Func *bwd = m->funcs;
    while (bwd && bwd->forward != fwd->name)
        bwd = bwd->next;
    return bwd;
}

static Op *chunked_loop(const Func *f, const Op *after)
{
    Op *op = after ? after->next : f->first;
    while (op && !op->attrs.chunked)
        op = op->next;
    return op;
}

static Op *backward_loop(const Late *l)
{
    Op *op = chunked_loop(l->bwd, NULL);
    while (op && find_func(l->m, op->attrs.callee)->forward != l->loop->attrs.callee)
        op = chunked_loop(l->bwd, op);
    return op;
}

static bool find_places(Late *l, const Map *calls)
{
    const CallPlace *of_fwd = map_get(calls, l->fwd->name), *of_bwd = map_get(calls, l->bwd->name);
    l->back = backward_loop(l);
    if (!l->back || !of_fwd || !of_bwd || of_fwd->caller != of_bwd->caller || of_fwd->op->attrs.dims.count)
        return false;
    l->call = of_fwd->op, l->recall = of_bwd->op, l->caller = of_fwd->caller;
    l->link = (Link){ .from = l->fwd, .to = l->bwd, .calls = calls };
    l->inner = (Link){ .from = find_func(l->m, l->loop->attrs.callee),
                       .to = find_func(l->m, l->back->attrs.callee),
                       .calls = calls };
    return true;
}

/* Marks what depends on the results of the loop; false if another loop does. */
static bool mark_late(Late *l)
{
    const int own = first_residual(l->inner.from);
    bool good = true;
    for (int i = 0; i < own; i++)
        map_put(&l->late, l->loop->results.at[i], l->loop->results.at[i]);
    for (const Op *op = l->loop->next; op; op = op->next) {
        bool depends = false;
        for (int i = 0; i < op->args.count; i++)
            depends |= is_late(l, arg(op, i));
        for (int i = 0; i < op->results.count && depends; i++)
            map_put(&l->late, op->results.at[i], op->results.at[i]);
        good &= !depends || info(op)->family != CONTROL;
    }
    return good;
}

/* Is nothing of it saved for the backward? */
static bool is_free(const Late *l)
{
    bool free = true;
    for (int i = first_residual(l->fwd); i < l->fwd->results.count; i++)
        free &= !is_late(l, l->fwd->results.at[i]);
    return free;
}

/* The results of the backward of the body get one more, which the body has returned. */
static void return_again(Late *l, int i)
{
    Module *m = l->m;
    Value *own = hand_residual(m, &l->inner, l->inner.from->results.at[i]), *all = NEW(&m->arena, Value);
    *all =
        (Value){ .name = fresh_name(m), .type = with_dim_first(own->type, l->back->attrs.dims.dim[0]), .def = l->back };
    push_value(&m->arena, &l->inner.to->results, own);
    push_value(&m->arena, &l->back->results, all);
    map_put(&l->late, l->loop->results.at[i], all);
}

static Value *in_backward(Late *l, Builder *b, Value *value)
{
    if (is_late(l, value))
        return map_get(&l->late, value);
    if (value->def && info(value->def)->family == LEAF)
        return build_op(b, value->def->kind, value->def->attrs, 0, NULL);
    return hand_residual(l->m, &l->link, value);
}

/* Right behind the loop. */
static void write_late_ops(Late *l)
{
    Builder b = builder_at(l->m, l->bwd, l->back->next);
    for (const Op *op = l->loop->next; op; op = op->next) {
        if (!op->results.count || !is_late(l, result(op)))
            continue;
        Value **args = NEW_ARRAY(&l->m->arena, Value *, op->args.count);
        for (int i = 0; i < op->args.count; i++)
            args[i] = in_backward(l, &b, arg(op, i));
        const Op *clone = clone_op(&b, op, args);
        for (int i = 0; i < op->results.count; i++) {
            clone->results.at[i]->name = fresh_name(l->m);
            map_put(&l->late, op->results.at[i], clone->results.at[i]);
        }
    }
}

/* Results of the forward function that the backward returns now. */
static void move_results(Late *l)
{
    Module *m = l->m;
    for (int i = first_residual(l->fwd) - 1; i >= 0; i--) {
        if (!is_late(l, l->fwd->results.at[i]))
            continue;
        Value *moved = NEW(&m->arena, Value);
        *moved = (Value){ .name = fresh_name(m), .type = l->call->results.at[i]->type, .def = l->recall };
        push_value(&m->arena, &l->bwd->results, map_get(&l->late, l->fwd->results.at[i]));
        push_value(&m->arena, &l->recall->results, moved);
        replace_uses(l->caller, l->call->results.at[i], moved);
        remove_result(l->fwd, i);
        take_away(&l->call->results, i);
    }
}

void compute_losses_late(Module *m)
{
    Arena scratch = { 0 };
    const Map calls = map_calls(&scratch, m);
    for (Func *f = m->funcs; f; f = f->next)
        for (Op *loop = chunked_loop(f, NULL); loop; loop = chunked_loop(f, loop)) {
            Late l = { .m = m, .fwd = f, .bwd = backward_of(m, f), .loop = loop, .late.arena = &scratch };
            if (!l.bwd || !find_places(&l, &calls))
                continue;
            if (!mark_late(&l) || !is_free(&l)) {
                remark(m, loop, "the backward needs the loss of all chunks: their logits are computed twice");
                continue;
            }
            for (int i = 0, own = first_residual(l.inner.from); i < own; i++)
                return_again(&l, i);
            write_late_ops(&l);
            move_results(&l);
        }
    arena_free(&scratch);
}
