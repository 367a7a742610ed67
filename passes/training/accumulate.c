/* accumulate.c -- accumulates gradients where they are computed.
 *
 *   func @micro(%sum: [h.copy, e, f], ...)              func @micro(%sum: [h.copy, e, f], ...)
 *     %dw = loop %x {callee=h.bwd, dims=[h.copy]}  =>     %new = loop %x, %sum {callee=h.bwd, dims=[h.copy]}
 *     %new = add %sum, %dw                                return %new
 *     return %new
 *   func @h.bwd(%x)                                     func @h.bwd(%x, %sum)
 *     %dw = ...                                           %dw = ...
 *     return %dw                                          %1 = add %sum, %dw
 *                                                         return %1
 *
 * An addition to the result of a called function moves into that function, recursively.  This avoids a second set of
 * gradients besides the sums: each layer's gradient dies when it is added, and `memory` writes the sum in place.  So
 * does a cast of such a result to a narrower dtype: with grad_storage = bf16 no more than a layer's gradient is in f32.
 *
 *   %dw = loop %zeros, %hs {callee=scan.bwd, carried=1}  =>  %new = loop %sum, %hs {callee=scan.bwd, carried=1}
 *   %new = add %sum, %dw
 *
 * What a loop sums up over its iterations, the gradient of a weight that all places of a scan read, begins with the sum
 * instead of zeros, also if more is added to it before.
 */
#include "layout/accumulator.h"
#include "layout/rank_sums.h"
#include "map.h"
#include "simplify/cleanup.h"
#include "split_loop.h"
#include "uses.h"

typedef struct {
    Module *m;
    Arena scratch;
    Map calls;  /* see note_callers() */
    Map uses;   /* of a value of the present function */
    Map number; /* of an op of it: its index */
    Map names;  /* of a called function: the names of its values */
} Accumulate;

static int count_of(const Map *map, const void *key) { return (int)(intptr_t)map_get(map, key); }

static void count(Map *map, const void *key) { map_put(map, key, (void *)(intptr_t)(count_of(map, key) + 1)); }

static void look_at(Accumulate *a, const Func *f)
{
    intptr_t number = 0;
    a->uses = a->number = a->names = (Map){ .arena = &a->scratch };
    for (const Op *op = f->first; op; op = op->next) {
        map_put(&a->number, op, (void *)++number);
        for (int i = 0; i < op->args.count; i++)
            count(&a->uses, arg(op, i));
    }
    for (int i = 0; i < f->results.count; i++)
        count(&a->uses, f->results.at[i]);
}

static bool narrows(const Op *op)
{
    return info(op)->traits & CASTS && dtype_bytes(result(op)->type.dtype) < dtype_bytes(arg(op, 0)->type.dtype);
}

static bool is_before(const Accumulate *a, const Value *value, const Op *call)
{
    return !value->def || count_of(&a->number, value->def) < count_of(&a->number, call);
}

static bool same_but_dtype(Type a, const Type *b)
{
    a.dtype = b->dtype;
    return type_equal(&a, b);
}

/* The called function that makes this operand, if the addition or cast can move there; NULL: it cannot. */
static Func *maker(const Accumulate *a, const Op *op, int side)
{
    const Value *made = arg(op, side), *sum = is_addition(op) ? arg(op, 1 - side) : NULL;
    const Op *call = made->def;
    Func *callee = call && call->attrs.callee ? find_func(a->m, call->attrs.callee) : NULL;
    bool may = callee && callee->role == PLAIN && map_get(&a->calls, callee->name) == call &&
               index_of(&call->results, made) >= call->attrs.carried && count_of(&a->uses, made) == 1 &&
               same_but_dtype(made->type, &result(op)->type) &&
               dtype_bytes(result(op)->type.dtype) <= dtype_bytes(made->type.dtype) &&
               (!sum || (same_but_dtype(sum->type, &made->type) && is_before(a, sum, call)));
    return may ? callee : NULL;
}

static void note_names(Map *names, const Values *values)
{
    for (int i = 0; i < values->count; i++)
        map_put(names, values->at[i]->name, names);
}

/* `name`, made unique among the values of f. */
static Name new_name(Accumulate *a, const Func *f, Name name)
{
    Map *names = map_get(&a->names, f);
    if (!names) {
        map_put(&a->names, f, names = NEW(&a->scratch, Map));
        names->arena = &a->scratch;
        note_names(names, &f->params);
        for (const Op *op = f->first; op; op = op->next)
            note_names(names, &op->results);
    }
    if (map_get(names, name))
        return fresh_name(a->m);
    map_put(names, name, names);
    return name;
}

/* The value of the caller as a new parameter of the called function. */
static Value *passed_in(Accumulate *a, Op *call, Func *callee, Value *value)
{
    Name dim = call->attrs.dims.count ? call->attrs.dims.dim[0].name : NULL;
    Type type = dim ? without_dim(value->type, dim) : value->type;
    type.on = says_where(a->m, callee) ? type.on : (RankSet){ 0 };
    push_value(&a->m->arena, &call->args, value);
    return add_param(a->m, callee, new_name(a, callee, value->name), type);
}

/* Before which op of the called function it goes; NULL: at the end.  If it changes the dtype, right behind the
 * gradient, whose memory is then free again. */
static Op *place_in(const Func *callee, const Op *op, const Value *inner)
{
    bool same = result(op)->type.dtype == inner->type.dtype;
    for (int i = 0; i < op->args.count; i++)
        same &= arg(op, i)->type.dtype == inner->type.dtype;
    return same ? NULL : inner->def ? inner->def->next : callee->first;
}

/* A product that nothing else reads, of operands in the dtype that the cast gives, gives it itself. */
static bool rounds_itself(const Func *callee, const Op *op, const Value *inner)
{
    const Op *def = narrows(op) ? inner->def : NULL;
    return def && info(def)->traits & WIDENS && arg(def, 0)->type.dtype == result(op)->type.dtype &&
           uses_in(callee, inner) == 1;
}

/* The op in the called function, on `inner`: a new one, or one that the op before includes. */
static Value *built_in(Accumulate *a, Func *callee, const Op *op, Value *args[], Value *inner)
{
    if (rounds_itself(callee, op, inner)) {
        inner->def->attrs.dtype = NULL;
        inner->type.dtype = result(op)->type.dtype;
        return inner;
    }
    Builder b = builder_at(a->m, callee, place_in(callee, op, inner));
    b.path = op->path, b.where = op->where, b.loc = op->loc;
    return build_op(&b, op->kind, op->attrs, op->args.count, args);
}

static void move_into(Accumulate *a, Func *f, Op *op, int side, Func *callee, Map *instead)
{
    Value *made = arg(op, side), *args[2];
    Op *call = made->def;
    const int at = index_of(&call->results, made);
    Value *inner = callee->results.at[at];
    for (int i = 0; i < op->args.count; i++)
        args[i] = i == side ? inner : passed_in(a, call, callee, arg(op, i));
    callee->results.at[at] = built_in(a, callee, op, args, inner);
    made->name = result(op)->name;
    made->type.dtype = result(op)->type.dtype;
    map_put(instead, result(op), made);
    map_put(&a->uses, made, map_get(&a->uses, result(op))); /* its readers are those of the op now */
    remove_op(f, op);
}

/* --- Sums that loops carry ------------------------------------------------------------------------ */

/* Does the loop sum up this result from zeros, so that it can begin with something else? */
static bool begins_with_zeros(const Accumulate *a, const Op *loop, const Value *made)
{
    const int at = index_of(&loop->results, made);
    return loop->attrs.dims.count && at < loop->attrs.carried && !is_split_loop(loop) && is_zeros(arg(loop, at)) &&
           accumulating(find_func(a->m, loop->attrs.callee), at);
}

/* The result of such a loop among the terms of `made`, which nothing else reads, for a sum that the function is given;
 * NULL: there is none. */
static Value *term_that_begins(const Accumulate *a, Value *made, const Value *sum)
{
    const Op *def = made->def;
    if (!def || sum->def || count_of(&a->uses, made) != 1 || !type_equal(&made->type, &sum->type))
        return NULL;
    if (info(def)->family == CONTROL)
        return begins_with_zeros(a, def, made) ? made : NULL;
    Value *term = is_addition(def) ? term_that_begins(a, arg(def, 0), sum) : NULL;
    return is_addition(def) && !term ? term_that_begins(a, arg(def, 1), sum) : term;
}

/* sum + (a + loop) becomes a + a loop that begins with the sum. */
static bool begin_with_sum(Accumulate *a, Func *f, Op *add, Map *instead)
{
    for (int side = 0; side < 2; side++) {
        Value *made = arg(add, side), *sum = arg(add, 1 - side), *term = term_that_begins(a, made, sum);
        if (!term)
            continue;
        term->def->args.at[index_of(&term->def->results, term)] = sum;
        made->name = result(add)->name;
        map_put(instead, result(add), made);
        map_put(&a->uses, made, map_get(&a->uses, result(add)));
        remove_op(f, add);
        return true;
    }
    return false;
}

/* Moves additions and casts of `f`; the resulting ones in called functions move in the next iteration of this pass. */
static bool move_ops(Accumulate *a, Func *f)
{
    bool any = false;
    Map instead = { .arena = &a->scratch };
    look_at(a, f);
    for (Op *op = f->first, *next; op; op = next) {
        next = op->next;
        resolve_all(&instead, &op->args);
        const bool moves = is_addition(op) || narrows(op);
        Func *callee = NULL;
        for (int side = 0; moves && !callee && side < op->args.count; side++) {
            callee = maker(a, op, side);
            if (callee)
                move_into(a, f, op, side, callee, &instead);
        }
        any |= callee || (is_addition(op) && begin_with_sum(a, f, op, &instead));
    }
    resolve_all(&instead, &f->results);
    return any;
}

static void move_all(Accumulate *a)
{
    for (bool again = true; again;) {
        again = false;
        for (Func *f = a->m->funcs; f; f = f->next)
            again |= f->role != KERNEL && f->role != MODEL && move_ops(a, f);
    }
}

void pass_accumulate(Module *m);
void pass_accumulate(Module *m)
{
    Accumulate a = { .m = m, .calls = note_callers(m) };
    move_all(&a);
    if (sum_terms_apart(m))
        move_all(&a);
    arena_free(&a.scratch);
}
