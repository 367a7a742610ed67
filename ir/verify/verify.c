/* verify.c -- checks that a module is well formed and well typed.
 *
 * The type of each result is inferred again and compared with the given one: this detects a pass that changes an op
 * without its type, or drops a collective.
 */
#include "epilogue.h"
#include "flight.h"
#include "infer.h"
#include "map.h"
#include "micro.h"
#include "split_loop.h"

#define WRONG(at_loc, ...) (error_at(m->diags, (Where){ .at = (at_loc) }, __VA_ARGS__), false)
#define WRONG_OP(...) (error_at(m->diags, (Where){ .at = op->loc, .label = origin_text(m, op) }, __VA_ARGS__), false)

static void define(Map *defined, const Values *values)
{
    for (int i = 0; i < values->count; i++)
        map_put(defined, values->at[i], values->at[i]);
}

/* Is the layout valid: blocks of equal size, each axis used at most once? */
static bool verify_type(Module *m, Loc loc, const Value *value)
{
    const Type *type = &value->type;
    for (int i = 0; i < type->rank; i++) {
        const Dim *dim = &type->dim[i];
        if (!splits_evenly(m, dim))
            return WRONG(loc, "%%%s : %s: '%s' does not divide into equal blocks for %lld ranks", value->name,
                         type_text(m, type), dim->name, (long long)split_count(m, dim->split));
    }
    if (!each_axis_once(type, type->partial))
        return WRONG(loc, "%%%s : %s uses one mesh axis twice", value->name, type_text(m, type));
    return true;
}

/* A function gets a pointer for each parameter and each result; what the trainer calls, none. */
static bool verify_pointer(Module *m, const Func *f, Loc loc, const Value *value)
{
    const bool is_entry = is_program(f);
    const int count = is_entry ? 0 : f->params.count + f->results.count;
    const Storage *storage = value->storage;
    return !storage || storage->base != BY_POINTER || storage->pointer < count ||
           WRONG(loc, "%%%s is at pointer p%d, and @%s has %d pointers", value->name, storage->pointer, f->name, count);
}

/* All split loops are split over one axis, and a set of its ranks is a number. */
static bool verify_split(Module *m, const Op *op)
{
    const int axis = op->attrs.dims.dim[0].split.axis[0];
    if (axis != m->kind_axis)
        return WRONG_OP("its iterations are split over %s, those of other loops over another mesh axis", m->axis[axis]);
    return m->axis_size[axis] <= MAX_SET_RANKS ||
           WRONG_OP("its iterations are split over the %lld ranks of %s, and a pipeline has at most %d",
                    (long long)m->axis_size[axis], m->axis[axis], MAX_SET_RANKS);
}

/* What a loop of a part of a micro-batch carries comes from another rank into the memory of the loop's operand. */
static bool verify_received(Module *m, const Op *op)
{
    for (int i = 0; i < op->attrs.carried; i++)
        if (index_of(&op->args, arg(op, i)) != i)
            return WRONG_OP("two of the values that it carries arrive in %%%s", arg(op, i)->name);
    return true;
}

/* `defined`: the values defined before it. */
static bool verify_op(Module *m, const Func *f, const Op *op, const Map *defined)
{
    for (int i = 0; i < op->args.count; i++)
        if (!map_get(defined, arg(op, i)))
            return WRONG_OP("%%%s is used before it is defined in @%s", arg(op, i)->name, f->name);
    if (is_split_loop(op) && (!verify_split(m, op) || (is_part_of_micro(m, f) && !verify_received(m, op))))
        return false;
    const Type *inferred = infer_results(m, op);
    const int expected = result_count(m, op);
    if (!inferred)
        return false;
    if (op->results.count != expected)
        return WRONG_OP("%s has %d results, not %d", info(op)->name, expected, op->results.count);
    for (int i = 0; i < op->results.count; i++) {
        const Value *value = op->results.at[i];
        if (!type_equal(&inferred[i], &value->type))
            return WRONG_OP("%s gives %s, but %%%s is %s", info(op)->name, type_text(m, &inferred[i]), value->name,
                            type_text(m, &value->type));
        if (!verify_type(m, op->loc, value) || !verify_pointer(m, f, op->loc, value))
            return false;
    }
    if (op->attrs.beside && !lone_sums(m, op))
        return WRONG_OP("@%s computes more than sums of its operands, and its call has {beside}", op->attrs.callee);
    const char *wrong = wrong_role(f, op);
    return !wrong || WRONG_OP("%s of @%s is %s, and has {as}", info(op)->name, f->name, wrong);
}

enum { DEEPEST = 32 };

/* How deep calls in f are nested, at most DEEPEST + 1: deeper, or a function calls itself.  `known`: of functions, or
 * that while they are looked at; plus 1. */
static int call_depth(const Module *m, Map *known, const Func *f, int level)
{
    const intptr_t before = (intptr_t)map_get(known, f);
    int depth = level > DEEPEST ? DEEPEST + 1 : 0;
    if (before || depth)
        return before ? (int)before - 1 : depth;
    map_put(known, f, (void *)(intptr_t)(DEEPEST + 2));
    for (const Op *op = f->first; op && depth <= DEEPEST; op = op->next) {
        const Func *callee = called_by(m, op);
        const int below = callee ? call_depth(m, known, callee, level + 1) + 1 : 0;
        depth = below > depth ? below : depth;
    }
    depth = depth < DEEPEST + 1 ? depth : DEEPEST + 1;
    map_put(known, f, (void *)(intptr_t)(depth + 1));
    return depth;
}

/* A kernel is one loop nest: each dim has the same elements in all its values. */
static bool verify_kernel_dims(Module *m, const Func *kernel, const Value *value, Type *seen)
{
    for (int i = 0; i < value->type.rank; i++) {
        const Dim *dim = &value->type.dim[i];
        int at = find_dim(seen, dim->name);
        if (at < 0 && seen->rank < MAX_RANK)
            seen->dim[seen->rank++] = *dim;
        else if (at >= 0 && (seen->dim[at].size != dim->size || !same_split(&seen->dim[at], dim)))
            return WRONG(value->def ? value->def->loc : (Loc){ 0 },
                         "kernel @%s has two layouts of '%s': %%%s : %s differs from those before it", kernel->name,
                         dim->name, value->name, type_text(m, &value->type));
    }
    return true;
}

/* Several products of one left operand form one product of all their columns, which may be split differently. */
static bool is_of_columns(const Func *kernel)
{
    int products = 0;
    for (const Op *op = kernel->first; op; op = op->next)
        products += info(op)->family == PRODUCT;
    return products > 1;
}

static bool verify_kernel(Module *m, const Func *kernel)
{
    Type seen = { 0 };
    bool good = true;
    if (kernel->params.count + kernel->results.count > MAX_KERNEL_VALUES)
        return WRONG(kernel->first ? kernel->first->loc : kernel->loc,
                     "kernel @%s has %d operands and results, more than %d", kernel->name,
                     kernel->params.count + kernel->results.count, MAX_KERNEL_VALUES);
    for (int i = 0; i < kernel->results.count; i++) {
        const Value *value = kernel->results.at[i];
        const char *wrong = wrong_terms(value);
        if (wrong)
            return WRONG(value->def ? value->def->loc : kernel->loc, "%%%s of kernel @%s is %s", value->name,
                         kernel->name, wrong);
    }
    if (is_of_columns(kernel))
        return true;
    for (int i = 0; good && i < kernel->params.count; i++)
        good = verify_kernel_dims(m, kernel, kernel->params.at[i], &seen);
    for (const Op *op = kernel->first; op; op = op->next)
        for (int i = 0; good && i < op->results.count; i++)
            good = verify_kernel_dims(m, kernel, op->results.at[i], &seen);
    return good;
}

static bool verify_body(Module *m, const Func *f, Map *defined)
{
    bool good = true;
    define(defined, &f->params);
    for (const Op *op = f->first; op; op = op->next) {
        good &= verify_op(m, f, op, defined);
        define(defined, &op->results);
    }
    for (int i = 0; good && i < f->results.count; i++)
        if (!map_get(defined, f->results.at[i]))
            return WRONG(f->last ? f->last->loc : f->loc, "@%s returns %%%s, which it does not define", f->name,
                         f->results.at[i]->name);
    return good;
}

static bool verify_func(Module *m, Map *depths, const Func *f)
{
    bool good = true;
    Loc loc = f->first ? f->first->loc : (Loc){ 0 };
    const bool may_be_several = f->role == UPDATE || f->role == OPTIMIZE;
    if (f->role != PLAIN && f->role != KERNEL && !may_be_several && func_with_role(m, f->role) != f)
        return WRONG(loc, "two functions have the role '%s'", role_name[f->role]);
    if (call_depth(m, depths, f, 0) > DEEPEST)
        return WRONG(loc, "@%s calls itself, or calls are nested deeper than %d", f->name, DEEPEST);
    for (int i = 0; i < f->params.count; i++)
        good &= verify_type(m, loc, f->params.at[i]) && verify_pointer(m, f, f->loc, f->params.at[i]);
    if (!good)
        return false;
    Arena scratch = { 0 };
    Map defined = { .arena = &scratch };
    good = verify_body(m, f, &defined);
    arena_free(&scratch);
    good = good && verify_flights(m, f);
    if (good && f->role == KERNEL)
        good = verify_kernel(m, f);
    return good;
}

/* --- What the trainer calls ------------------------------------------------------------------- */

/* A parameter of the model and its declared tensor have the same dims; the dtype may be narrower.  Functions may take
 * inputs of different batch sizes: only those of the model are compared. */
static bool verify_declared(Module *m, const Func *f, const Value *value)
{
    const Port port = value->port;
    const Param *param = port.kind == PORT_PARAM ? find_param(m, port.of) : NULL;
    const Input *input = port.kind == PORT_INPUT && f->role == MODEL ? find_input(m, port.of) : NULL;
    const Type *type = param ? &param->type : input ? &input->type : NULL;
    if (type && !same_dims(type, &value->type))
        return WRONG((Loc){ 0 }, "@%s takes %%%s : %s, but it is declared as %s%s%s", f->name, value->name,
                     type_text(m, &value->type), type_text(m, type), param && param->where ? " at " : "",
                     param && param->where ? param->where : "");
    return true;
}

/* State keeps its type; of outputs each rank writes its part; all other results that the trainer reads are whole on
 * every rank. */
static bool verify_returned(Module *m, const Func *f, int i)
{
    const Value *value = f->results.at[i];
    const Op *op = value->def;
    const int old = state_replaced(f, i);
    if (old >= 0) {
        const Value *before = f->params.at[old];
        if (op && !type_equal(&before->type, &value->type))
            return WRONG_OP("@%s receives %%%s : %s, but returns %%%s : %s", f->name, before->name,
                            type_text(m, &before->type), value->name, type_text(m, &value->type));
        return true;
    }
    Axes axes = value->type.partial;
    for (int j = 0; j < value->type.rank && result_port(f, i).kind != PORT_OUTPUT; j++)
        axes |= split_axes(value->type.dim[j].split);
    if (op && axes)
        return WRONG_OP("the trainer reads all of %%%s : %s of @%s, on every rank", value->name,
                        type_text(m, &value->type), f->name);
    return true;
}

static char *port_text(Module *m, Port port)
{
    return arena_text(&m->arena,
                      !port.of     ? "%s"
                      : !port.slot ? "%s(%s)"
                                   : "%s(%s, %s)",
                      port_word(port.kind), port.of, port.slot);
}

/* State is last, in one order. */
static bool verify_state(Module *m, const Func *f)
{
    const int first = first_state(f), count = f->params.count - first, offset = f->results.count - count;
    for (int i = 0; i < first; i++)
        if (port_is_state(f->params.at[i]->port.kind))
            return WRONG(f->loc, "@%s takes the state %%%s before parameters that are not state", f->name,
                         f->params.at[i]->name);
    for (int i = 0; i < f->results.count - count; i++)
        if (port_is_state(result_port(f, i).kind))
            return WRONG(f->loc, "@%s returns the state %s, which its last parameters do not list in the same order",
                         f->name, port_text(m, result_port(f, i)));
    for (int i = 0; i < count; i++) {
        Port port = f->params.at[first + i]->port;
        if (offset < 0 || !same_port(port, result_port(f, offset + i)))
            return WRONG(f->loc, "@%s takes the state %s, which its last results do not list in the same order",
                         f->name, port_text(m, port));
    }
    return true;
}

/* Each result that the trainer reads occurs once; residuals are last. */
static bool verify_results(Module *m, const Func *f)
{
    const int residuals = first_residual(f);
    for (int i = 0; i < f->results.count; i++) {
        Port port = result_port(f, i);
        if (port.kind == PORT_RESIDUAL && i < residuals)
            return WRONG(f->loc, "@%s returns the residual %%%s before other results", f->name, f->results.at[i]->name);
        if (port.kind && port.kind != PORT_RESIDUAL && !port.of && result_for(f, port.kind) != f->results.at[i])
            return WRONG(f->loc, "@%s returns two values as %s", f->name, port_text(m, port));
    }
    return true;
}

static bool verify_entry(Module *m, const Func *f)
{
    bool good = !returns_state(f) || verify_state(m, f);
    if (!good)
        return false;
    for (int i = 0; i < f->params.count; i++)
        good &= verify_declared(m, f, f->params.at[i]);
    for (int i = 0; i < f->results.count && f->role != TOTALS; i++)
        good &= verify_returned(m, f, i);
    return good;
}

bool verify_module(Module *m)
{
    Arena scratch = { 0 };
    Map depths = { .arena = &scratch }; /* see call_depth() */
    bool good = true;
    for (const Func *f = m->funcs; f; f = f->next) {
        bool is_entry = f->role != PLAIN && f->role != KERNEL;
        good &= verify_func(m, &depths, f) && verify_results(m, f) && (!is_entry || verify_entry(m, f));
    }
    arena_free(&scratch);
    return good;
}
