/* returned.c -- returns the tensor behind a view instead of the view, and views it in the reader of the result.
 *
 *   %1 = concat %a, %b : [rank:8/dp, piece:2, f]        %1 = concat %a, %b : [rank:8/dp, piece:2, f]
 *   %2 = merge %1 : [batch:16/dp, f]                    return saves(%1)
 *   return saves(%2)                              =>
 *   func @h.bwd(%r: [batch:16/dp, f])                   func @h.bwd(%r: [rank:8/dp, piece:2, f])
 *     %3 = mul %r, %d                                     %4 = merge %r : [batch:16/dp, f]
 *                                                         %3 = mul %4, %d
 *
 * A result is in memory of its own, so a view that is one would be copied.  This is done for what a loop stacks, if one
 * other loop alone reads the slices.
 */
#include "fuse.h"

/* The value that a view shows all of, through all views in between; NULL: it shows a part, or a parameter. */
static Value *shown_whole(const Module *m, Value *value)
{
    Value *whole = value;
    while (whole && whole->def && info(whole->def)->family == VIEW) {
        Value *shown = arg(whole->def, 0);
        whole = local_bytes(m, &shown->type) == local_bytes(m, &whole->type) ? shown : NULL;
    }
    return whole && whole != value && whole->def && info(whole->def)->family != LEAF ? whole : NULL;
}

/* The only loop that reads the value, whose callee has one caller; NULL: it is read otherwise. */
static Op *slicing_loop(const Map *callers, const Func *f, const Value *value, Name dim)
{
    Op *loop = f->first;
    while (loop && index_of(&loop->args, value) < 0)
        loop = loop->next;
    const bool is_loop = loop && loop->attrs.callee && loop->attrs.dims.count && loop->attrs.dims.dim[0].name == dim &&
                         map_get(callers, loop->attrs.callee) == loop;
    return is_loop && uses_in(f, value) == 1 && index_of(&loop->args, value) >= loop->attrs.carried ? loop : NULL;
}

/* The type with the dims of another one behind the first `kept` of its own. */
static Type with_dims_of(Type type, int kept, const Type *of)
{
    for (int i = 0; i < of->rank; i++)
        type.dim[kept + i] = of->dim[i];
    type.rank = kept + of->rank;
    return type;
}

/* The views between `whole` and the value, applied to `shown` instead. */
static Value *viewed(Builder *b, const Value *whole, Value *value, Value *shown)
{
    Value *const x = value == whole ? shown : viewed(b, whole, arg(value->def, 0), shown);
    return value == whole ? x : result(clone_op(b, value->def, &x));
}

/* The parameter becomes a slice of the viewed tensor, and its readers read a view of that. */
static void view_in_reader(Module *m, Func *reader, Value *param, const Value *whole, Value *value)
{
    Builder b = builder_at(m, reader, reader->first);
    Value *own = NEW(&m->arena, Value);
    *own = *param;
    own->name = free_name(m, reader, whole->name);
    own->type = with_dims_of(param->type, 0, &whole->type);
    reader->params.at[index_of(&reader->params, param)] = own;
    Value *view = viewed(&b, whole, value, own);
    replace_uses(reader, param, view);
}

static void return_shown(Module *m, const Map *callers, Func *f, const Op *loop, int i)
{
    Func *callee = find_func(m, loop->attrs.callee);
    Value *value = callee->results.at[i], *whole = shown_whole(m, value), *stack = loop->results.at[i];
    const bool is_apart = whole && index_of(&callee->results, whole) < 0 && stack->type.rank == value->type.rank + 1 &&
                          whole->type.rank < MAX_RANK;
    Op *other = is_apart ? slicing_loop(callers, f, stack, loop->attrs.dims.dim[0].name) : NULL;
    if (!other)
        return;
    Func *reader = find_func(m, other->attrs.callee);
    callee->results.at[i] = whole;
    stack->type = with_dims_of(stack->type, 1, &whole->type);
    view_in_reader(m, reader, reader->params.at[index_of(&other->args, stack)], whole, value);
}

void return_shown_by_views(Module *m)
{
    const Map callers = note_callers(m);
    for (Func *f = m->funcs; f; f = f->next)
        for (const Op *loop = f->first; loop; loop = loop->next)
            if (loop->attrs.callee && loop->attrs.dims.count && map_get(&callers, loop->attrs.callee) == loop)
                for (int i = (int)loop->attrs.carried; i < loop->results.count; i++)
                    return_shown(m, &callers, f, loop, i);
}
