/* padding.c -- keeps padding out of sums.  A rank's part of a split dim has the same size in memory on every rank; the
 * start of its padding depends on the rank, and loops run over all of it.  Where the target's products want aligned
 * sizes, whole dims become full: loops run over their padding, too.  Operands of a sum (or maximum) along such a dim
 * are made neutral in the padding first:
 *
 *   %2 = sum %1 {over=vocab}     =>     %3 = iota {dims=[vocab:50257~50304/tp]}
 *                                       %4 = lt %3, 50257
 *                                       %5 = where %4, %1, 0
 *                                       %2 = sum %5 {over=vocab}
 *
 * Inputs and state, and casts of them, are finite in their padding: the step zeroes it in all new state.  In a product
 * with such an operand, only the other one needs a neutral padding: a finite number times 0.  Computed values may be
 * infinite in their padding, or what the memory held before, where they are cut out of a whole dim, whose padding no
 * loop writes; then both operands are made neutral.  The comparison is by position in the whole dim, so it fuses with
 * the op that computes the operand.
 */
#include "map.h"
#include "storage.h"
#include "target.h"

#include <float.h>
#include <stdint.h>

static bool has_ragged_end(const Dim *dim)
{
    return runs_over_padding(dim) && (dim->padded > dim->size || dim->split.parts);
}

/* --- Full dims ----------------------------------------------------------------------------------- */

static bool any_has(const Values *values, Name name)
{
    for (int i = 0; i < values->count; i++)
        if (find_dim(&values->at[i]->type, name) >= 0)
            return true;
    return false;
}

/* May loops of the op run over padding of the dim?  It does not need exactly the dim's elements, is no view along it,
 * and does not make it of another dim. */
static bool takes_padding(const Op *op, Name name)
{
    const Family family = info(op)->family;
    const bool is_read = any_has(&op->args, name), is_made = any_has(&op->results, name);
    bool is_given = false;
    for (int i = 0; i < op->attrs.dims.count; i++)
        is_given |= op->attrs.dims.dim[i].name == name;
    if (family == CONTROL || (!is_read && !is_made))
        return true;
    if (family == VIEW && (is_given || op->attrs.dim == name || is_read != is_made))
        return false;
    return is_read ? !needs_whole(op, name) : is_given;
}

static bool all_take_padding(const Module *m, Name name)
{
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            if (!takes_padding(op, name))
                return false;
    return true;
}

/* Padded dims of products, which want sizes in memory: 50304 elements are aligned, and 50257 are not. */
static Map dims_to_fill(Module *m)
{
    Map names = { .arena = &m->arena };
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            for (int i = 0; i < op->args.count && info(op)->family == PRODUCT; i++)
                for (int j = 0; j < arg(op, i)->type.rank; j++) {
                    const Dim *dim = &arg(op, i)->type.dim[j];
                    if (dim->padded > dim->size && !map_get(&names, dim->name) && all_take_padding(m, dim->name))
                        map_put(&names, dim->name, (void *)dim->name);
                }
    return names;
}

static void fill_in_type(const Map *names, Type *type)
{
    for (int i = 0; i < type->rank; i++)
        type->dim[i].full |= map_get(names, type->dim[i].name) != NULL;
}

static void fill_values(const Map *names, const Values *values)
{
    for (int i = 0; i < values->count; i++)
        fill_in_type(names, &values->at[i]->type);
}

static void fill_dims(Module *m)
{
    const Map names = dims_to_fill(m);
    for (Param *param = m->params; param; param = param->next)
        fill_in_type(&names, &param->type);
    for (Input *input = m->inputs; input; input = input->next)
        fill_in_type(&names, &input->type);
    for (Func *f = m->funcs; f && names.count; f = f->next) {
        fill_values(&names, &f->params);
        for (Op *op = f->first; op; op = op->next) {
            fill_values(&names, &op->results);
            for (int i = 0; i < op->attrs.dims.count; i++)
                op->attrs.dims.dim[i].full |= map_get(&names, op->attrs.dims.dim[i].name) != NULL;
        }
    }
}

/* --- Masks --------------------------------------------------------------------------------------- */

typedef struct {
    Name dim;
    double neutral;
} Mask;

typedef struct {
    Module *m;
    Map masks; /* value that the pass has masked -> its last Mask */
} Padding;

static void note_mask(Padding *p, const Value *masked, Name dim, double neutral)
{
    Mask *mask = NEW(&p->m->arena, Mask);
    *mask = (Mask){ dim, neutral };
    map_put(&p->masks, masked, mask);
}

static Value *constant(Builder *b, double value, const char *dtype)
{
    return build_op(b, OP_constant, (Attrs){ .value = value, .dtype = intern_text(b->module, dtype) }, 0, NULL);
}

/* A tensor of this number in the layout of x: zeros beside terms of a sum are terms, too. */
static Value *number_like(Builder *b, const Value *x, double number)
{
    Value *value = constant(b, number, dtype_name[x->type.dtype]);
    if (!x->type.partial)
        return value;
    value = BUILD(b, OP_broadcast, ((Attrs){ .axis = x->type.partial }), value);
    return x->type.on.at ? BUILD(b, OP_hold, ((Attrs){ .on = x->type.on }), value) : value;
}

/* `x`, and `neutral` in the padding of the dim. */
static Value *without_padding(Builder *b, Value *x, const Dim *dim, double neutral)
{
    Attrs along = { .dims = { .count = 1, .dim = { *dim } } };
    Value *index = build_op(b, OP_iota, along, 0, NULL);
    Value *inside = BUILD(b, OP_lt, NO_ATTRS, index, constant(b, (double)dim->size, "i32"));
    return BUILD(b, OP_where, NO_ATTRS, inside, x, number_like(b, x, neutral));
}

/* Is it an input or state, a part or a cast of one, or a parameter that is one in all callers? */
static bool is_given(const Module *m, const Func *f, const Value *value)
{
    value = shown_by(value);
    while (value->def && info(value->def)->family == POINTWISE && info(value->def)->traits & COPIES)
        value = shown_by(arg(value->def, 0));
    if (value->def)
        return false;
    int number = index_of(&f->params, value);
    for (const Func *caller = m->funcs; caller && f->role == PLAIN; caller = caller->next)
        for (const Op *op = caller->first; op; op = op->next)
            if (op->attrs.callee == f->name && (number < op->attrs.carried || !is_given(m, caller, arg(op, number))))
                return false;
    return true;
}

static int last_float(const Op *op)
{
    int at = op->args.count - 1;
    while (at >= 0 && !is_float(arg(op, at)->type.dtype))
        at--;
    return at;
}

/* Must this operand be neutral in its padding?  Computed operands; of a library op also the gradient, which is its last
 * float operand; of others, if none is computed, the first.  (Indices have a rule of their own.) */
static bool is_masked(const Module *m, const Func *f, const Op *op, int at)
{
    if (info(op)->family == LIBRARY)
        return is_float(arg(op, at)->type.dtype) && (at == last_float(op) || !is_given(m, f, arg(op, at)));
    int computed = 0;
    for (int i = 0; i < op->args.count; i++)
        computed += !is_given(m, f, arg(op, i));
    return computed ? !is_given(m, f, arg(op, at)) : at == 0;
}

/* Masks operand `at` along one dim, if the dim is padded.  Of a computed operand of products, all products read the
 * masked one, so that the other is not stored. */
static void mask_along(Padding *p, Func *f, Op *op, int at, const Dim *dim, double neutral)
{
    Value *x = arg(op, at);
    const Mask *mask = map_get(&p->masks, x);
    if (!has_ragged_end(dim) || (mask && mask->dim == dim->name && mask->neutral == neutral))
        return;
    const bool in_all = info(op)->family == PRODUCT && x->def;
    Builder b = builder_at(p->m, f, op);
    if (in_all)
        b.before = x->def->next;
    Value *masked = op->args.at[at] = without_padding(&b, x, dim, neutral);
    note_mask(p, masked, dim->name, neutral);
    for (Op *other = in_all ? masked->def->next : NULL; other; other = other->next)
        for (int i = 0; i < other->args.count && info(other)->family == PRODUCT; i++)
            other->args.at[i] = arg(other, i) == x ? masked : arg(other, i);
}

/* Below any maximum. */
static double lowest(const Type *type) { return is_float(type->dtype) ? -FLT_MAX : INT32_MIN; }

static void mask_reduced(Padding *p, Func *f, Op *op, int at)
{
    const Type type = arg(op, at)->type;
    for (int i = 0; i < type.rank; i++) {
        Role role = has_ragged_end(&type.dim[i]) ? op_role(op, type.dim[i].name) : KEEP;
        if ((role == SUM || role == MAX) && is_masked(p->m, f, op, at))
            mask_along(p, f, op, at, &type.dim[i], role == MAX ? lowest(&type) : 0);
    }
}

/* Indices are read in the padding too: there they are set to -1, if that selects nothing, or to 0, which is valid for
 * every dim. */
static void mask_indices(Padding *p, Func *f, Op *op)
{
    for (int at = 0; at < op->args.count; at++) {
        const Type type = arg(op, at)->type;
        for (int i = 0; i < type.rank && type.dtype == I32; i++)
            mask_along(p, f, op, at, &type.dim[i], info(op)->traits & SKIPS ? -1 : 0);
    }
}

static void mask_operands(Padding *p, Func *f, Op *op)
{
    for (int i = 0; i < op->args.count; i++)
        mask_reduced(p, f, op, i);
    if (info(op)->family == LIBRARY)
        mask_indices(p, f, op);
}

/* --- State --------------------------------------------------------------------------------------- */

/* Is all padding of `after` padding of `before`, too?  A whole dim has none. */
static bool has_padding_of(const Type *before, const Type *after)
{
    for (int i = 0; i < after->rank; i++) {
        const int at = find_dim(before, after->dim[i].name);
        if (has_ragged_end(&after->dim[i]) && (at < 0 || !has_ragged_end(&before->dim[at])))
            return false;
    }
    return true;
}

/* `value` with zeros in its padding: set where it is computed, before collectives that hand them on. */
static Value *finite_state(Module *m, Func *step, Value *value)
{
    Op *def = value->def;
    if (def && info(def)->family == COLLECTIVE && def->args.count == 1 &&
        has_padding_of(&arg(def, 0)->type, &value->type)) {
        def->args.at[0] = finite_state(m, step, arg(def, 0));
        return value;
    }
    Builder b = def ? builder_at(m, step, def) : (Builder){ 0 };
    b.before = def ? def->next : NULL;
    for (int i = 0; i < value->type.rank && def; i++) {
        const Dim dim = value->type.dim[i];
        if (has_ragged_end(&dim))
            value = without_padding(&b, value, &dim, 0);
    }
    return value;
}

static void keep_state_finite(Module *m, Func *step)
{
    for (int i = 0; i < step->results.count; i++)
        step->results.at[i] = finite_state(m, step, step->results.at[i]);
}

void pass_padding(Module *m);
void pass_padding(Module *m)
{
    if (m->target->fills_padding)
        fill_dims(m);
    Padding p = { .m = m, .masks.arena = &m->arena };
    for (Func *f = m->funcs; f; f = f->next) {
        for (Op *op = f->first; op; op = op->next)
            mask_operands(&p, f, op);
        if (f->role == STEP)
            keep_state_finite(m, f);
    }
}
