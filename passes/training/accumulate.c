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
 * gradients besides the sums: each layer's gradient dies when it is added, and `memory` writes the sum in place.
 */
#include "map.h"
#include "simplify/cleanup.h"
#include "stages.h"

typedef struct {
    Module *m;
    Arena scratch;
    Map calls;  /* of a function: number of calls */
    Map uses;   /* of a value of the present function */
    Map number; /* of an op of it: its index */
    Map names;  /* of a called function: the names of its values */
} Accumulate;

static int count_of(const Map *map, const void *key) { return (int)(intptr_t)map_get(map, key); }

static void count(Map *map, const void *key) { map_put(map, key, (void *)(intptr_t)(count_of(map, key) + 1)); }

static void count_calls(Accumulate *a)
{
    for (const Func *f = a->m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            if (op->attrs.callee)
                count(&a->calls, find_func(a->m, op->attrs.callee));
}

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

/* The called function that makes `value`, if the addition can move there; NULL: it cannot. */
static Func *maker(const Accumulate *a, const Op *add, const Value *value, const Value *other)
{
    const Op *call = value->def;
    Func *callee = call && call->attrs.callee ? find_func(a->m, call->attrs.callee) : NULL;
    bool may = callee && callee->role == PLAIN && count_of(&a->calls, callee) == 1 &&
               index_of(&call->results, value) >= call->attrs.carried && count_of(&a->uses, value) == 1 &&
               type_equal(&value->type, &other->type) && type_equal(&value->type, &result(add)->type) &&
               (!other->def || count_of(&a->number, other->def) < count_of(&a->number, call));
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

static void move_add(Accumulate *a, Func *f, Op *add, int side, Func *callee, Map *instead)
{
    Value *made = arg(add, side), *sum = arg(add, 1 - side);
    Op *call = made->def;
    Name dim = call->attrs.dims.count ? call->attrs.dims.dim[0].name : NULL;
    int at = index_of(&call->results, made);
    Type type = dim ? without_dim(sum->type, dim) : sum->type;
    type.on = is_staged(a->m, callee) ? type.on : (Stages){ 0 };
    Value *param = add_param(a->m, callee, new_name(a, callee, sum->name), type);
    push_value(&a->m->arena, &call->args, sum);
    Builder b = builder_at(a->m, callee, NULL);
    b.path = add->path, b.where = add->where, b.loc = add->loc;
    Value *inner = callee->results.at[at], *sides[] = { inner, inner };
    sides[1 - side] = param;
    callee->results.at[at] = build_op(&b, OP_add, NO_ATTRS, 2, sides);
    made->name = result(add)->name;
    map_put(instead, result(add), made);
    map_put(&a->uses, made, map_get(&a->uses, result(add))); /* its readers are those of the sum now */
    remove_op(f, add);
}

/* Moves additions of `f`; the resulting ones in called functions move in the next iteration of this pass. */
static bool move_adds(Accumulate *a, Func *f)
{
    bool any = false;
    Map instead = { .arena = &a->scratch };
    look_at(a, f);
    for (Op *op = f->first, *next; op; op = next) {
        next = op->next;
        resolve_all(&instead, &op->args);
        for (int side = 0; side < 2 && is_addition(op); side++) {
            Func *callee = maker(a, op, arg(op, side), arg(op, 1 - side));
            if (!callee)
                continue;
            move_add(a, f, op, side, callee, &instead);
            any = true;
            break;
        }
    }
    resolve_all(&instead, &f->results);
    return any;
}

void pass_accumulate(Module *m);
void pass_accumulate(Module *m)
{
    Accumulate a = { .m = m };
    a.calls.arena = &a.scratch;
    count_calls(&a);
    for (bool again = true; again;) {
        again = false;
        for (Func *f = m->funcs; f; f = f->next)
            again |= f->role != KERNEL && f->role != MODEL && move_adds(&a, f);
    }
    arena_free(&a.scratch);
}
