/* borders.c -- messages under way at the border of two iterations.
 *
 *   func @bwd(%d: f32[i:4/tp], %sum) {                 func @bwd(%d: f32[i:4/tp], %1: f32[i:4] in_flight, %sum) {
 *     %1 = all_gather %d {started}                       %2 = wait %1
 *     %2 = wait %1                                       ... %dx ...
 *     ... %dx ...                              =>        %3 = all_gather %dx {started}
 *     %dw = ...                                          %dw = ...
 *     return %dx, %dw                                    return %dx, %3, %dw
 *   }                                                  }
 *   %4, %5 = loop %y, %s {carried=2}                   %6 = all_gather %y {started}
 *                                                      %4, %7, %5 = loop %y, %6, %s {carried=3}
 *
 * What an iteration sends first is sent at the end of the one before, as soon as it is there, beside what else that one
 * computes.  Views and short kernels between a carried value and the message are computed there, too, and what they
 * make is carried, since the message reads it until the next iteration waits: see sent_before().  They have the next
 * iteration's slices of small weights: these are rotated by one before the loop.  The last iteration, which has those
 * of the first, starts nothing.
 */
#include "flight.h"
#include "map.h"
#include "overlap.h"
#include "simplify/cleanup.h"
#include "split_loop.h"
#include "storage.h"
#include "uses.h"

/* Where the likes of f's values are computed. */
typedef struct {
    Func *where;
    Op *place;
    Map like; /* of a value of f */
} Copies;

typedef struct {
    Module *m;
    Func *f;
    Op *loop;
    Copies ahead;  /* of the next iteration, in f */
    Copies before; /* of the first iteration, before the loop */
    Map kernel;    /* of a value of f: the kernel that makes only that one */
    Map needed;    /* ops of f that the messages so far need */
} Border;

/* --- Which messages --------------------------------------------------------------------------------- */

/* From what is carried to a message. */
typedef struct {
    const Op *start;
    int ops;
    Map needed; /* ops of the iteration before */
} Way;

/* Are the slices of all iterations together smaller than the message of one? */
static bool may_rotate(const Border *b, const Value *whole, const Op *start)
{
    return !whole->type.tier && local_bytes(b->m, &whole->type) <= local_bytes(b->m, &result(start)->type);
}

static bool param_comes_early(const Border *b, Way *way, int at)
{
    const Op *before = at < b->loop->attrs.carried ? b->f->results.at[at]->def : NULL;
    if (before && !b->f->params.at[at]->type.in_flight)
        note_with_operands(&way->needed, before);
    const Value *given = arg(b->loop, at);
    return at < b->loop->attrs.carried ? before && !given->type.in_flight
                                       : !is_passed_in_slices(b->loop, given) || may_rotate(b, given, way->start);
}

/* Are the elements of a view one stretch of its operand?  Else a message sends a copy, which is gone when the next
 * iteration waits. */
static bool is_stretch(const Border *b, const Op *view)
{
    const Type *whole = &arg(view, 0)->type;
    const int at = find_dim(whole, view->attrs.dim);
    bool good = true;
    for (int i = 0; i < at; i++)
        good &= local_size(b->m, &whole->dim[i]) == 1;
    return good || local_bytes(b->m, whole) == local_bytes(b->m, &result(view)->type);
}

/* Can the iteration before compute the value? */
static bool comes_early(const Border *b, Way *way, const Value *value)
{
    enum { MOST_SHORT_OPS = 8 };
    const Op *op = value->def;
    if (!op)
        return param_comes_early(b, way, index_of(&b->f->params, value));
    const bool is_kernel = kernel_called_by(b->m, op),
               is_view = info(op)->family == VIEW && !(info(op)->traits & WAITS) && is_stretch(b, op);
    bool early = (is_view || is_kernel) && work_of(b->m, op) == 0 && ++way->ops <= MOST_SHORT_OPS;
    for (int i = 0; early && i < op->args.count; i++)
        early = comes_early(b, way, arg(op, i));
    return early;
}

/* Is there anything to be computed that neither this message needs nor those before it? */
static bool has_work_beside(const Border *b, const Way *way)
{
    bool any = false;
    for (const Op *op = b->f->first; op && !any; op = op->next)
        any = !map_get(&way->needed, op) && !map_get(&b->needed, op) && work_of(b->m, op) > 0;
    return any;
}

static bool may_cross(Border *b, const Op *op)
{
    Way way = { op, 0, { .arena = &b->m->arena } };
    if (!op->attrs.started || !(info(op)->traits & SENDS) || op->attrs.purpose || op->attrs.bucket ||
        handed_on(b->f, op) >= 0 || !comes_early(b, &way, arg(op, 0)) || !has_work_beside(b, &way))
        return false;
    bool any = false;
    for (const Op *other = b->f->first; other; other = other->next)
        if (map_get(&way.needed, other)) {
            map_put(&b->needed, other, b->f);
            any = true;
        }
    return any;
}

/* --- Kernels that make less ------------------------------------------------------------------------- */

static bool has_param(const Func *f, Name name)
{
    bool any = false;
    for (int i = 0; i < f->params.count; i++)
        any |= f->params.at[i]->name == name;
    return any;
}

/* The kernel that the op calls, without the results that are NULL. */
static Func *reduced_kernel(const Border *b, const Op *op, const Value *const kept[], const char *suffix)
{
    Func *kernel = copy_func(b->m, kernel_called_by(b->m, op), suffix);
    for (int i = op->results.count - 1; i >= 0; i--)
        if (!kept[i])
            remove_result(kernel, i);
    drop_dead(kernel);
    for (int i = kernel->params.count - 1; i >= 0; i--)
        if (!is_used(kernel, kernel->params.at[i]))
            take_away(&kernel->params, i);
    return kernel;
}

static Func *kernel_of(Border *b, const Value *value)
{
    const Op *op = value->def;
    Func *own = map_get(&b->kernel, value);
    if (!own && op->results.count > 1) {
        const Value **kept = NEW_ARRAY(&b->m->arena, const Value *, op->results.count);
        kept[index_of(&op->results, value)] = value;
        own = reduced_kernel(b, op, kept, ".next");
    } else if (!own) {
        own = kernel_called_by(b->m, op);
    }
    map_put(&b->kernel, value, own);
    return own;
}

/* What only the message read is no longer made in its place. */
static void drop_unread(Border *b)
{
    drop_dead(b->f);
    for (Op *op = b->f->first; op; op = op->next) {
        const Func *kernel = kernel_called_by(b->m, op);
        const Value **kept = NEW_ARRAY(&b->m->arena, const Value *, op->results.count + 1);
        int count = 0;
        for (int i = 0; i < op->results.count; i++)
            if (uses_in(b->f, op->results.at[i]) > 0)
                kept[i] = op->results.at[i], count++;
        if (!kernel || count == op->results.count)
            continue;
        Func *less = reduced_kernel(b, op, kept, ".rest");
        for (int i = op->args.count - 1; i >= 0; i--)
            if (!has_param(less, kernel->params.at[i]->name))
                take_away(&op->args, i);
        for (int i = op->results.count - 1; i >= 0; i--)
            if (!kept[i])
                take_away(&op->results, i);
        op->attrs.callee = less->name;
    }
}

/* Kernels that make less have taken their places. */
static void drop_uncalled(Module *m)
{
    Map called = { .arena = &m->arena };
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            if (op->attrs.callee)
                map_put(&called, op->attrs.callee, m);
    for (Func *f = m->funcs, *next; f; f = next) {
        next = f->next;
        if (f->role == KERNEL && !map_get(&called, f->name))
            remove_func(m, f);
    }
}

/* --- What is computed for the next iteration -------------------------------------------------------- */

/* The operand of the loop with the first of its slices behind the others; of a loop in reverse, the last before them.
 */
static Value *rotated(Border *b, Value *whole)
{
    const bool reverse = b->loop->attrs.reverse;
    const int64_t size = b->loop->attrs.dims.dim[0].size;
    Builder at = builder_at(b->m, b->before.where, b->loop);
    Value *part[2];
    for (int i = 0; i < 2; i++) {
        Attrs attrs = { .dim = b->loop->attrs.dims.dim[0].name, .dims = b->loop->attrs.dims };
        Dim *dim = &attrs.dims.dim[0];
        attrs.index = i ? 0 : reverse ? size - 1 : 1;
        dim->size = dim->padded = i         ? attrs.dims.dim[0].size - local_size(b->m, &part[0]->type.dim[0])
                                  : reverse ? 1
                                            : size - 1;
        part[i] = BUILD(&at, OP_part, attrs, whole);
    }
    const Attrs joined = { .dims = b->loop->attrs.dims };
    return build_op(&at, OP_concat, joined, 2, part);
}

static Value *add_next_slice(Border *b, const Value *param)
{
    Value *next =
        add_param(b->m, b->f, free_name(b->m, b->f, intern_format(b->m, "%s.next", param->name)), param->type);
    push_value(&b->m->arena, &b->loop->args, rotated(b, arg(b->loop, index_of(&b->f->params, param))));
    return next;
}

static Value *first_slice(Border *b, Value *whole)
{
    Builder at = builder_at(b->m, b->before.where, b->loop);
    const Dim *dim = &b->loop->attrs.dims.dim[0];
    const Attrs attrs = { .dim = dim->name, .index = b->loop->attrs.reverse ? dim->size - 1 : 0 };
    return BUILD(&at, OP_slice, attrs, whole);
}

static Value *like_param(Border *b, const Copies *c, Value *param)
{
    const int at = index_of(&b->f->params, param);
    Value *given = arg(b->loop, at);
    const bool is_ahead = c == &b->ahead, is_carried = at < b->loop->attrs.carried;
    if (!is_carried && is_passed_in_slices(b->loop, given))
        return is_ahead ? add_next_slice(b, param) : first_slice(b, given);
    return !is_ahead ? given : is_carried ? b->f->results.at[at] : param;
}

static Value *like(Border *b, Copies *c, Value *value);

static Value *like_result(Border *b, Copies *c, const Value *value)
{
    const Op *op = value->def;
    const Func *kernel = kernel_called_by(b->m, op), *own = kernel ? kernel_of(b, value) : NULL;
    Builder at = { b->m, c->where, c->place, op->loc, op->path, op->where };
    Attrs attrs = op->attrs;
    Values args = { 0 };
    for (int i = 0; i < op->args.count; i++)
        if (!own || has_param(own, kernel->params.at[i]->name))
            push_value(&b->m->arena, &args, like(b, c, arg(op, i)));
    attrs.callee = own ? own->name : attrs.callee;
    return build_op(&at, op->kind, attrs, args.count, args.at);
}

static Value *like(Border *b, Copies *c, Value *value)
{
    Value *own = map_get(&c->like, value);
    if (!own)
        own = value->def ? like_result(b, c, value) : like_param(b, c, value);
    map_put(&c->like, value, own);
    return own;
}

/* --- One message ------------------------------------------------------------------------------------ */

static Value *carry_like(Border *b, Value *value, const char *suffix)
{
    const Name name = intern_format(b->m, "%s.%s", value->name, suffix);
    return carry(b->m, b->f, b->loop, like(b, &b->ahead, value), like(b, &b->before, value), name);
}

static void cross(Border *b, Op *op)
{
    Value *sent = arg(op, 0), *source = (Value *)shown_by(sent);
    Op *wait = flight_end(op);
    if (source->def && index_of(&b->f->results, like(b, &b->ahead, source)) < 0)
        carry_like(b, source, "sent");
    Value *next = like(b, &b->ahead, sent), *first = like(b, &b->before, sent);
    Builder at = { b->m, b->before.where, b->loop, op->loc, op->path, op->where };
    Value *started = result(build(&at, op->kind, op->attrs, 1, &first));
    wait->args.at[0] = carry(b->m, b->f, b->loop, result(op), started, intern_format(b->m, "%s.whole", source->name));
    op->args.at[0] = next;
    remove_op(b->f, op);
    insert_op(b->f, op, NULL);
}

static Border border_of(Module *m, Func *f, Func *caller, Op *loop)
{
    return (Border){ .m = m,
                     .f = f,
                     .loop = loop,
                     .ahead = { f, NULL, { .arena = &m->arena } },
                     .before = { caller, loop, { .arena = &m->arena } },
                     .kernel.arena = &m->arena,
                     .needed.arena = &m->arena };
}

static bool any_may_cross(Module *m, Func *f, Op *loop)
{
    Border b = border_of(m, f, NULL, loop);
    bool any = false;
    for (const Op *op = f->first; op && !any; op = op->next)
        any = may_cross(&b, op);
    return any;
}

static void cross_all(Module *m, Func *f, Func *caller, Op *loop)
{
    Border b = border_of(m, f, caller, loop);
    for (Op *op = f->first, *next; op; op = next) {
        next = op->next;
        if (may_cross(&b, op))
            cross(&b, op);
    }
    drop_unread(&b);
}

/* Do iterations of a copy take less time that way? */
static bool pays(Module *m, Func *f, const Op *loop)
{
    Func *last = m->funcs;
    while (last->next)
        last = last->next;
    Func *caller = add_func(m, free_func_name(m, f->name), PLAIN), *copy = copy_func(m, f, ".copy");
    Values args = { 0 };
    for (int i = 0; i < loop->args.count; i++)
        push_value(&m->arena, &args, add_param(m, caller, arg(loop, i)->name, arg(loop, i)->type));
    Builder b = { .module = m, .func = caller };
    Op *own = clone_op(&b, loop, args.at);
    own->attrs.callee = copy->name;
    cross_all(m, copy, caller, own);
    const bool pays = iteration_time(m, copy, own) < iteration_time(m, f, loop);
    while (last->next)
        remove_func(m, last->next);
    return pays;
}

void cross_borders(Module *m, Func *f, const Map *callers)
{
    Op *loop = only_caller(m, callers, f);
    const bool may = loop && loop->attrs.dims.count && loop->attrs.dims.dim[0].size > 1 && !is_split_loop(loop);
    if (may && any_may_cross(m, f, loop) && pays(m, f, loop)) {
        cross_all(m, f, function_with(m, loop), loop);
        drop_uncalled(m);
    }
}
