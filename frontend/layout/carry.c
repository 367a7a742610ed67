/* carry.c -- repeats that share the stages of a pipeline: a value of one repeat that a later one reads is carried
 * through those between, from stage to stage.
 *
 *   %1 = loop %x, %h.w {callee=h, carried=1}
 *   %m = rename %1
 *   %2 = loop %y, %g.w, %m {callee=g, carried=1}               %2, %3 = loop %y, %m, %g.w {callee=g, carried=2}
 *   %4 = add %2, %m                                       =>   %4 = add %2, %3
 *
 * Copies return the new carried value as they get it, so its gradient is summed up on the way back.  What does not
 * depend on a repeat of the pipeline is left as it is: each stage computes what it needs.
 */
#include "map.h"
#include "parallel.h"

typedef struct {
    Module *m;
    const Name *dims; /* of the repeats, in order */
    int count;
    int so_far;              /* how many the function has run */
    Map latest;              /* op -> the number of the last repeat before it, from 1, if it depends on one; else 0 */
    Map passed[MAX_REPEATS]; /* value -> the same, as it leaves that repeat */
    Op *loop[MAX_REPEATS];
} Carry;

static bool runs_repeat(const Carry *c, const Op *op)
{
    bool runs = false;
    for (int i = 0; i < c->count && op->attrs.callee && op->attrs.dims.count; i++)
        runs |= op->attrs.dims.dim[0].name == c->dims[i];
    return runs;
}

static int latest_of(const Carry *c, const Value *value)
{
    return value->def ? (int)(intptr_t)map_get(&c->latest, value->def) : 0;
}

static int note_latest(Carry *c, const Op *op, bool is_repeat)
{
    bool depends = is_repeat;
    for (int i = 0; i < op->args.count; i++)
        depends |= latest_of(c, arg(op, i)) > 0;
    map_put(&c->latest, op, (void *)(intptr_t)(depends ? c->so_far : 0));
    return depends ? c->so_far : 0;
}

/* What the body has of a value that its loop is to carry: a parameter that it has captured, or a new one. */
static Value *inside_body(Carry *c, Op *loop, Func *body, const Value *value)
{
    int captured = (int)loop->attrs.carried;
    while (captured < loop->args.count && arg(loop, captured) != value)
        captured++;
    if (captured == loop->args.count) {
        Value *own = add_param(c->m, body, free_name(c->m, body, value->name), value->type);
        body->params.count--;
        return own;
    }
    Value *own = body->params.at[captured];
    take_away(&loop->args, captured);
    take_away(&body->params, captured);
    return own;
}

/* The value as it leaves that repeat, which comes after it. */
static Value *pass_through(Carry *c, int repeat, Value *value)
{
    Arena *arena = &c->m->arena;
    Value *leaving = map_get(&c->passed[repeat], value);
    if (leaving)
        return leaving;
    Op *loop = c->loop[repeat];
    Func *body = find_func(c->m, loop->attrs.callee);
    const int at = (int)loop->attrs.carried;
    Value *own = inside_body(c, loop, body, value);
    insert_value(arena, &loop->args, at, latest_of(c, value) < repeat ? pass_through(c, repeat - 1, value) : value);
    insert_value(arena, &body->params, at, own);
    insert_value(arena, &body->results, at, own);
    leaving = NEW(arena, Value);
    *leaving = (Value){ .name = fresh_name(c->m), .type = value->type, .def = loop };
    insert_value(arena, &loop->results, at, leaving);
    loop->attrs.carried++;
    map_put(&c->passed[repeat], value, leaving);
    return leaving;
}

/* Carries the operands of an op through the repeats between, and those that all copies of a repeat read through it. */
static void carry_operands(Carry *c, Op *op, bool is_repeat, int latest)
{
    const int before = is_repeat ? latest - 1 : latest; /* repeats that its operands come from */
    for (int i = 0; i < op->args.count; i++) {
        Value *value = arg(op, i);
        const int from = latest_of(c, value);
        if (!from)
            continue;
        if (is_repeat && i >= op->attrs.carried)
            pass_through(c, latest - 1, value), i = -1; /* the list has changed */
        else if (from < before)
            op->args.at[i] = pass_through(c, before - 1, value);
    }
}

static void carry_in(Carry *c, Func *f)
{
    c->so_far = 0;
    for (Op *op = f->first; op; op = op->next) {
        const bool is_repeat = runs_repeat(c, op);
        if (is_repeat)
            c->loop[c->so_far++] = op;
        carry_operands(c, op, is_repeat, note_latest(c, op, is_repeat));
    }
}

void carry_through(Module *m, const Name *dims, int count)
{
    static const FuncRole roles[] = { MODEL, TOTALS, EVAL, PREDICT, OUTPUTS };
    Carry c = { .m = m, .dims = dims, .count = count, .latest.arena = &m->arena };
    for (int i = 0; i < count; i++)
        c.passed[i].arena = &m->arena;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (func_with_role(m, roles[i]))
            carry_in(&c, func_with_role(m, roles[i]));
}
