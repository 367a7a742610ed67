/* peel.c -- peels the first iteration off a loop over micro-batches: a loop that makes slices can then become part of
 * the one that reads them first.
 *
 *   %c = loop %w {dims=[n:12], callee=k.copy}            %c = loop %w {dims=[n:12], callee=k.copy}
 *   %s = loop %0, %xs, %c {dims=[micro:4],          =>   %x = slice %xs {dim=micro, index=0}
 *                          carried=1, callee=micro}      (the ops of @micro on %0, %x and %c)
 *   func @micro(%s, %x, %c) {                            %rest = part %xs {dim=micro, dims=[micro:3], index=1}
 *     %y = loop %x, %c {dims=[n:12], callee=h.fwd}       %s = loop %s.first, %rest, %c {dims=[micro:3], ...}
 *     ...
 *   }
 *
 * Later iterations read what the first one has made.  The next one can become ops of the function, too, so that its
 * loop runs together with that of the first: see together.c.
 */
#include "join.h"
#include "simplify/cleanup.h"
#include "storage.h"
#include "uses.h"

typedef struct {
    Module *m;
    Func *f;
    Op *loop;
    Func *body;
} Peel;

/* The parameters that are these values as they are; false: some value is carried or sliced, or is put away: then its
 * slices would come back to the first iteration as to all others. */
static bool find_passed(const Peel *p, const Values *stacks, Values *passed)
{
    for (int i = 0; i < p->loop->args.count; i++) {
        if (index_of(stacks, arg(p->loop, i)) < 0)
            continue;
        if (i < p->loop->attrs.carried || is_passed_in_slices(p->loop, arg(p->loop, i)) || arg(p->loop, i)->type.tier)
            return false;
        push_value(&p->m->arena, passed, p->body->params.at[i]);
    }
    return true;
}

/* What an iteration adds to begins where the first one reads it, so that its memory is taken no earlier, and is no
 * other value's, so that the sum can take its place. */
static void begin_late(Module *m, Func *f, Op *reader, int at)
{
    Op *op = arg(reader, at)->def;
    if (!op || op->args.count)
        return;
    Builder b = builder_at(m, f, reader);
    Attrs attrs = op->attrs;
    b.loc = op->loc, b.path = op->path, b.where = op->where;
    if (attrs.callee) {
        const Name name = free_kernel_name(m, op, ".first");
        Func *kernel = copy_func(m, find_func(m, attrs.callee), ".first");
        rename_func(m, kernel, name);
        attrs.callee = name;
    }
    const Op *own = build(&b, op->kind, attrs, 0, NULL);
    reader->args.at[at] = own->results.at[index_of(&op->results, arg(reader, at))];
}

static void begin_all_late(Module *m, Func *f, const Values *begins)
{
    for (Op *op = f->first; op; op = op->next)
        for (int i = 0; i < op->args.count; i++)
            if (index_of(begins, arg(op, i)) >= 0)
                begin_late(m, f, op, i);
}

/* The other iterations: there may be none. */
static void run_rest(const Peel *p, const Op *first)
{
    Op *loop = p->loop;
    Dim *dim = &loop->attrs.dims.dim[0];
    Builder b = builder_at(p->m, p->f, loop);
    dim->size = --dim->padded;
    for (int i = 0; i < loop->results.count && !dim->size; i++) {
        replace_uses(p->f, loop->results.at[i], first->results.at[i]);
        replace_value(&p->f->results, loop->results.at[i], first->results.at[i]);
    }
    if (!dim->size) {
        remove_op(p->f, loop);
        return;
    }
    for (int i = 0; i < loop->args.count; i++) {
        const Attrs behind = { .dim = dim->name, .dims = loop->attrs.dims, .index = 1 };
        if (i < loop->attrs.carried)
            loop->args.at[i] = first->results.at[i];
        else if (is_passed_in_slices(loop, arg(loop, i)))
            loop->args.at[i] = BUILD(&b, OP_part, behind, arg(loop, i));
    }
}

static void peel_first(const Peel *p, const char *suffix)
{
    Module *m = p->m;
    Op *loop = p->loop;
    const Dim *dim = &loop->attrs.dims.dim[0];
    const Func *first = copy_func(m, p->body, suffix);
    Builder b = builder_at(m, p->f, loop);
    Values args = { 0 }, begins = { 0 };
    for (int i = 0; i < loop->args.count; i++) {
        Value *given = arg(loop, i);
        const Attrs at_first = { .dim = dim->name };
        push_value(&m->arena, &args,
                   i >= loop->attrs.carried && is_passed_in_slices(loop, given) ? BUILD(&b, OP_slice, at_first, given)
                                                                                : given);
        if (i < loop->attrs.carried)
            push_value(&m->arena, &begins, given);
    }
    const Op *call = build(&b, OP_call, (Attrs){ .callee = first->name }, args.count, args.at);
    run_rest(p, call);
    inline_calls(m);
    begin_all_late(m, p->f, &begins);
    drop_dead(p->f);
    drop_unreached(m);
}

/* The loop in the body of p->loop that reads the stacks of another loop slice by slice; NULL: p->loop is none over
 * micro-batches, or reads them otherwise. */
static const Op *find_reader(const Peel *p, const Map *caller, const Op *maker)
{
    Values passed = { 0 };
    if (!p->body || p->loop->results.count > p->loop->attrs.carried || !find_passed(p, &maker->results, &passed))
        return NULL;
    const Dim *dim = &p->loop->attrs.dims.dim[0];
    const Op *reader = first_reader(p->body->first, &passed);
    const bool reads =
        reader && body_of(p->m, caller, reader) && reads_slices(reader, &passed, &maker->attrs.dims.dim[0]);
    return reads && !runs_over_padding(dim) && dim->size == dim->padded ? reader : NULL;
}

bool peel_reader(Module *m, Func *f, const Map *caller, const Op *maker)
{
    Peel p = { .m = m, .f = f, .loop = first_reader(maker->next, &maker->results) };
    p.body = p.loop ? body_of(m, caller, p.loop) : NULL;
    if (!p.loop || !find_reader(&p, caller, maker))
        return false;
    peel_first(&p, ".first");
    return true;
}

/* Does nothing that the op needs depend on the iteration before? */
static bool is_independent(const Peel *p, const Op *op)
{
    Map needed = { .arena = &p->m->arena };
    note_with_operands(&needed, op);
    Values carried = p->body->params;
    carried.count = (int)p->loop->attrs.carried;
    const Op *reader = first_reader(p->body->first, &carried);
    while (reader && !map_get(&needed, reader))
        reader = first_reader(reader->next, &carried);
    return !reader;
}

bool peel_next(Module *m, Func *f, const Map *caller, const Op *joined)
{
    Peel p = { .m = m, .f = f };
    for (p.loop = joined->next; p.loop; p.loop = p.loop->next) {
        p.body = body_of(m, caller, p.loop);
        const Op *reader = find_reader(&p, caller, joined);
        if (!reader || !is_independent(&p, reader))
            continue;
        peel_first(&p, ".next");
        return true;
    }
    return false;
}
