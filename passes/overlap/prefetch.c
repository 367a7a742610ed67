/* prefetch.c -- gathers the parameters of a loop's iteration one iteration early.
 *
 *   func @layer(%x, %w: f32[e:4/dp]) {                  func @layer(%x, %w.whole: f32[e:4] in_flight, %w.next) {
 *     %1 = all_gather %w {started}                        %2 = wait %w.whole
 *     %2 = wait %1                             =>         %1 = all_gather %w.next {started}
 *     %y = mul %x, %2                                     %y = mul %x, %2
 *     return %y                                           return %y, %1
 *   }                                                   }
 *   %3 = loop %x, %ws {carried=1}                       %4 = slice %ws {index=0}
 *                                                       %5 = all_gather %4 {started}
 *                                                       %3, %6 = loop %x, %5, %ws {carried=2, prefetch=1}
 *
 * Applies to parameters that a loop slices, message by message: see flight.h.  A split loop begins on each of them
 * with the rank's own first slice, if all have as many.
 */
#include "flight.h"
#include "overlap.h"
#include "split_loop.h"
#include "storage.h"
#include "uses.h"

typedef struct {
    Module *m;
    Func *f, *caller;
    Op *loop;
} Prefetch;

/* The operand is a row-major slice, as messages require, and the result is used only in this iteration. */
static bool can_prefetch(const Prefetch *p, const Op *op, const Op *wait)
{
    const int at = index_of(&p->f->params, arg(op, 0));
    const Value *whole = at >= p->loop->attrs.carried ? arg(p->loop, at) : NULL;
    const bool is_alike = is_split_loop(p->loop) ? !p->loop->attrs.dims.dim[0].split.parts /* on all ranks */
                                                 : !result(p->loop)->type.on.at;
    const bool is_ahead = op->attrs.purpose == WEIGHT || (info(op)->traits & CARRIES && !op->attrs.tier);
    return op->attrs.started && is_alike && is_ahead && whole && (shown_by(whole) == whole || whole->type.tier) &&
           find_dim(&whole->type, p->loop->attrs.dims.dim[0].name) == 0 && index_of(&p->f->results, result(wait)) < 0;
}

static Value *new_value(Module *m, Name name, const Type *type, Op *def)
{
    Value *value = NEW(&m->arena, Value);
    *value = (Value){ .name = name, .type = *type, .def = def };
    return value;
}

Value *carry(Module *m, Func *f, Op *loop, Value *next, Value *first, Name name)
{
    const int at = (int)loop->attrs.carried++;
    Value *param = new_value(m, free_name(m, f, name), &next->type, NULL);
    insert_value(&m->arena, &f->params, at, param);
    insert_value(&m->arena, &loop->args, at, first);
    insert_result(m, f, at, next);
    insert_value(&m->arena, &loop->results, at, new_value(m, fresh_name(m), &next->type, loop));
    return param;
}

/* The operand of the first iteration's message, inserted before the messages already started. */
static Value *first_slice(Prefetch *p, Op *op, Op *before)
{
    const Dim *dim = &p->loop->attrs.dims.dim[0];
    Builder b = { p->m, p->caller, before, op->loc, op->path, op->where };
    Attrs attrs = { .dim = dim->name,
                    .own = is_split_loop(p->loop),
                    .index = p->loop->attrs.reverse ? local_size(p->m, dim) - 1 : 0 };
    return BUILD(&b, OP_slice, attrs, arg(p->loop, index_of(&p->f->params, arg(op, 0))));
}

/* Makes the message started before the loop a parameter of f, which waits for it, and the one that f starts a
 * result. */
static void hand_on(Prefetch *p, Op *op, Op *wait, Value *first)
{
    Module *m = p->m;
    Op *loop = p->loop;
    Value *slice = arg(op, 0), *whole = arg(loop, index_of(&p->f->params, slice));
    loop->attrs.prefetch++;
    wait->args.at[0] = carry(m, p->f, loop, result(op), first, intern_format(m, "%s.whole", slice->name));
    Value *next = new_value(m, free_name(m, p->f, intern_format(m, "%s.next", slice->name)), &slice->type, NULL);
    push_value(&m->arena, &p->f->params, next);
    push_value(&m->arena, &loop->args, whole);
    op->args.at[0] = next;
    const int old = index_of(&p->f->params, slice);
    if (!is_used(p->f, slice)) {
        take_away(&p->f->params, old);
        take_away(&loop->args, old);
    }
}

/* Moves the starts of a message, up to `end`, after its waits, which follow. */
static void prefetch_message(Prefetch *p, Op *first, Op *end)
{
    Op *wait = end, *behind = end, *slices_end = p->loop, *next;
    for (const Op *op = first; op != end; op = op->next)
        behind = behind->next;
    for (Op *op = first; op != end; op = next, wait = wait->next) {
        Value *slice = first_slice(p, op, slices_end);
        Builder b = { p->m, p->caller, p->loop, op->loc, op->path, op->where };
        Op *started = build(&b, op->kind, op->attrs, 1, &slice);
        slices_end = slices_end == p->loop ? started : slices_end;
        hand_on(p, op, wait, result(started));
        next = op->next;
        remove_op(p->f, op);
        insert_op(p->f, op, behind);
    }
}

static bool has_op(const Func *f, const Op *op)
{
    const Op *own = f->first;
    while (own && own != op)
        own = own->next;
    return own != NULL;
}

Func *function_with(const Module *m, const Op *call)
{
    Func *f = m->funcs;
    while (!has_op(f, call))
        f = f->next;
    return f;
}

void prefetch_weights(Module *m, Func *f, const Map *callers)
{
    Op *call = only_caller(m, callers, f);
    Prefetch p = { .m = m, .f = f };
    if (call && call->attrs.dims.count)
        p.loop = call, p.caller = function_with(m, call);
    for (Op *first = f->first, *end; first && p.loop; first = end) {
        end = after_message(first);
        const Op *wait = end;
        bool may = first->attrs.started && handed_on(f, first) < 0;
        for (const Op *op = first; may && op != end; op = op->next, wait = wait->next)
            may = can_prefetch(&p, op, wait);
        if (may)
            prefetch_message(&p, first, end);
    }
}
