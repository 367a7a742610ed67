/* flight.c -- asynchronous collectives: queries and verification. */
#include "flight.h"

#include "infer.h"
#include "map.h"
#include "micro.h"

bool is_one_message(const Op *a, const Op *b)
{
    if (a->kind != b->kind || !(info(a)->traits & SENDS) || !a->attrs.bucket || a->attrs.bucket != b->attrs.bucket)
        return false;
    const Type *x = &arg(a, 0)->type, *y = &arg(b, 0)->type;
    return a->attrs.axis == b->attrs.axis && x->dtype == y->dtype && x->by == y->by;
}

bool is_prefetched(const Op *loop, int i) { return i >= loop->args.count - loop->attrs.prefetch; }

int handed_on(const Func *f, const Op *start)
{
    return start->attrs.started ? index_of(&f->results, result(start)) : -1;
}

const Op *flight_start(const Func *f, const Value *value)
{
    const int at = value->def ? -1 : index_of(&f->params, value);
    const Op *op = at >= 0 && at < f->results.count ? f->results.at[at]->def : value->def;
    return op && op->attrs.started ? op : NULL;
}

/* The index of the result of f that a message reads, or a view of it; -1: of none. */
static int result_sent(const Func *f, const Op *start)
{
    const Value *value = arg(start, 0);
    while (index_of(&f->results, value) < 0 && value->def && info(value->def)->family == VIEW)
        value = arg(value->def, 0);
    return index_of(&f->results, value);
}

const Value *sent_before(const Func *f, const Value *in_flight)
{
    const Op *start = in_flight->def || !in_flight->type.in_flight ? NULL : flight_start(f, in_flight);
    const int at = start ? result_sent(f, start) : -1;
    return at >= 0 ? f->params.at[at] : NULL;
}

Op *flight_end(const Op *start)
{
    Op *op = start->next;
    while (op && index_of(&op->args, result(start)) < 0)
        op = op->next;
    return op;
}

const Op *continued_by(const Module *m, const Op *start)
{
    const Op *loop = start->attrs.started ? flight_end(start) : NULL;
    const Func *callee = loop ? called_by(m, loop) : NULL;
    return callee ? flight_start(callee, callee->params.at[index_of(&loop->args, result(start))]) : start;
}

/* --- The verifier's part -------------------------------------------------------------------------- */

#define WRONG_OP(...) (error_at(m->diags, (Where){ .at = op->loc, .label = origin_text(m, op) }, __VA_ARGS__), false)
#define WRONG_FUNC(...) (error_at(m->diags, (Where){ .at = f->last ? f->last->loc : f->loc }, __VA_ARGS__), false)

static const Op *mate_before(const Op *start)
{
    return start->prev && is_one_message(start->prev, start) ? start->prev : NULL;
}

/* All collectives of a message are started together and waited for together. */
static bool verify_message(Module *m, const Func *f, const Op *op)
{
    const Op *before = op->prev;
    if (before && is_one_message(before, op) && before->attrs.started != op->attrs.started)
        return WRONG_OP("%%%s is sent in one message with %%%s, but only one of them is started", result(op)->name,
                        result(before)->name);
    const Op *start = info(op)->traits & WAITS ? flight_start(f, arg(op, 0)) : NULL,
             *mate = start ? mate_before(start) : NULL;
    if (mate && !(before && info(before)->traits & WAITS && flight_start(f, arg(before, 0)) == mate))
        return WRONG_OP("%%%s is sent in one message with %%%s, but not waited for together with it", arg(op, 0)->name,
                        result(mate)->name);
    return true;
}

/* The initial value of a loop's carried message has the same members as the message that the callee starts. */
static bool verify_carried(Module *m, const Func *f, const Op *op, const Func *callee, int i)
{
    const Op *first = arg(op, i)->def, *next = flight_start(callee, callee->params.at[i]);
    if (!first || !first->attrs.started || !next)
        return WRONG_OP("%%%s is carried in flight: @%s and @%s must each start it", arg(op, i)->name, f->name,
                        callee->name);
    const Op *mate = mate_before(first), *mate_next = mate_before(next);
    bool alike = attrs_equal(&first->attrs, &next->attrs) && type_equal(&arg(first, 0)->type, &arg(next, 0)->type) &&
                 !mate == !mate_next;
    if (alike && mate)
        alike = index_of(&op->args, result(mate)) == handed_on(callee, mate_next);
    if (!alike)
        return WRONG_OP("%%%s is not the message that @%s waits for", arg(op, i)->name, callee->name);
    const int sent = result_sent(callee, next), slice = index_of(&callee->params, arg(next, 0));
    return (sent >= 0 ? sent < op->attrs.carried : slice >= op->attrs.carried) ||
           WRONG_OP("the loop carries %%%s, but not %%%s of @%s, which it reads", arg(op, i)->name, arg(next, 0)->name,
                    callee->name);
}

/* The last slice has no successor: a prefetched operand may be read only by collectives that the last iteration does
 * not start. */
static bool verify_prefetched(Module *m, const Op *op, const Func *callee, int i)
{
    const Value *param = callee->params.at[i];
    for (const Op *reader = callee->first; reader; reader = reader->next)
        if (index_of(&reader->args, param) >= 0 && handed_on(callee, reader) < 0)
            return WRONG_OP("%s of @%s reads %%%s, which its last iteration does not receive", info(reader)->name,
                            callee->name, param->name);
    return true;
}

static bool verify_loop(Module *m, const Func *f, const Op *op)
{
    const Func *callee = find_func(m, op->attrs.callee);
    bool good = true;
    for (int i = 0; good && i < op->args.count; i++) {
        if (arg(op, i)->type.in_flight)
            good = verify_carried(m, f, op, callee, i);
        if (good && is_prefetched(op, i))
            good = verify_prefetched(m, op, callee, i);
    }
    return good;
}

/* Does it read a result of a split loop, or of an early op on one? */
static bool may_be_early(const Op *op)
{
    const Op *before = op->args.count == 1 ? arg(op, 0)->def : NULL;
    const bool is_ready = before && (before->attrs.early || is_scheduled(before));
    return is_ready && (op->attrs.started || op->attrs.callee) && op->results.count == 1;
}

/* Notes the reader of each value in flight. */
static bool note_readers(Module *m, const Func *f, const Op *op, Map *reader)
{
    for (int i = 0; i < op->args.count; i++) {
        const Value *value = arg(op, i);
        if (!value->type.in_flight)
            continue;
        if (value->def && info(value->def)->family == CONTROL)
            return WRONG_OP("the last iteration starts nothing: %s cannot read %%%s", info(op)->name, value->name);
        if (map_get(reader, value))
            return WRONG_OP("%%%s is waited for twice", value->name);
        map_put(reader, value, (void *)op);
    }
    if (op->attrs.early && !may_be_early(op))
        return WRONG_OP("%%%s is early, but neither a started reduction of what a loop in stages returns, nor a kernel "
                        "before it",
                        result(op)->name);
    const int at = handed_on(f, op);
    const Op *wait = at >= 0 && at < f->params.count ? map_get(reader, f->params.at[at]) : NULL;
    if (at >= 0 && (!wait || !f->params.at[at]->type.in_flight))
        return WRONG_OP("@%s returns %%%s in flight without waiting for the previous one", f->name, result(op)->name);
    return verify_message(m, f, op) && (info(op)->family != CONTROL || verify_loop(m, f, op));
}

bool verify_flights(Module *m, const Func *f)
{
    Arena scratch = { 0 };
    Map reader = { .arena = &scratch };
    bool good = true;
    for (const Op *op = f->first; op && good; op = op->next)
        good = note_readers(m, f, op, &reader);
    for (const Op *op = f->first; op && good; op = op->next)
        if (op->attrs.started && !map_get(&reader, result(op)) && handed_on(f, op) < 0)
            good = WRONG_OP("%s of %%%s is started, but never waited for", info(op)->name, result(op)->name);
    for (int i = 0; i < f->params.count && good; i++)
        if (f->params.at[i]->type.in_flight && !map_get(&reader, f->params.at[i]))
            good = WRONG_FUNC("@%s receives %%%s in flight, but does not wait for it", f->name, f->params.at[i]->name);
    for (int i = 0; i < f->results.count && good; i++)
        if (f->results.at[i]->type.in_flight && (f->role != PLAIN || !flight_start(f, f->results.at[i])))
            good = WRONG_FUNC("@%s returns %%%s, which is in flight", f->name, f->results.at[i]->name);
    arena_free(&scratch);
    return good;
}
