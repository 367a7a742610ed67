/* plant_gradient.c -- faults in the output of autodiff: backward functions, and the sum over micro-batches. */
#include "plant.h"

#include <string.h>

/* --- Which ops -------------------------------------------------------------------------------------------- */

static bool is_backward(const Func *f)
{
    bool sums_gradients = false;
    for (int i = 0; i < f->results.count; i++)
        sums_gradients |= result_port(f, i).kind == PORT_GRADIENT;
    return f->forward || sums_gradients;
}

static bool is_moving(const Op *op)
{
    return op->results.count == 1 && is_float(result(op)->type.dtype) && info(op)->family != LEAF;
}

static bool adds_gradients(Module *m, Func *f, Op *op) { return is_backward(f) && adds_terms(op); }
static bool makes_gradient(Module *m, Func *f, Op *op) { return is_backward(f) && is_moving(op); }
static bool is_constant(Module *m, Func *f, Op *op) { return is_backward(f) && is_scale(m, f, op); }

static double summed_elements(const Op *op)
{
    double elements = 1;
    for (int i = 0; i < op->attrs.over.count; i++)
        elements *= (double)arg(op, 0)->type.dim[find_dim(&arg(op, 0)->type, op->attrs.over.name[i])].size;
    return elements;
}

static bool sums(Module *m, Func *f, Op *op)
{
    return makes_gradient(m, f, op) && (op->kind == OP_sum || op->kind == OP_dot) && summed_elements(op) > 1;
}

static bool reduces(Module *m, Func *f, Op *op) { return sums(m, f, op) && op->kind == OP_sum; }

static bool has_order(Module *m, Func *f, Op *op)
{
    return is_backward(f) && (op->kind == OP_sub || op->kind == OP_div || op->kind == OP_where || op->attrs.callee);
}

/* Does it read a value that could be replaced by another one? */
static bool reads_values(Module *m, Func *f, Op *op)
{
    return is_backward(f) && op->args.count > 1 && op->results.count;
}

static OpKind sister(const Op *op)
{
    switch (op->kind) {
    case OP_gelu_slope:
        return OP_gelu_tanh_slope;
    case OP_gelu_tanh_slope:
        return OP_gelu_slope;
    case OP_gt:
        return OP_lt;
    case OP_lt:
        return OP_gt;
    case OP_eq:
        return OP_ne;
    case OP_cos:
        return OP_sin;
    case OP_sin:
        return OP_cos;
    case OP_sign:
        return OP_abs;
    default:
        return N_OPS;
    }
}

static bool has_sister(Module *m, Func *f, Op *op) { return is_backward(f) && sister(op) != N_OPS; }
static bool drops_out(Module *m, Func *f, Op *op) { return is_backward(f) && op->kind == OP_dropout; }
static bool turns(Module *m, Func *f, Op *op) { return is_backward(f) && op->kind == OP_rope; }
static bool attends(Module *m, Func *f, Op *op) { return is_backward(f) && op->kind == OP_attend_grad; }

static bool takes_part(Module *m, Func *f, Op *op)
{
    return is_backward(f) && (op->kind == OP_pad || op->kind == OP_slice || op->kind == OP_part);
}

/* A reverse loop with carried values. */
static bool runs_back(Module *m, Func *f, Op *op)
{
    return is_backward(f) && op->kind == OP_loop && op->attrs.reverse && op->attrs.carried &&
           op->attrs.dims.dim[0].size > 1;
}

/* --- Changes to ops ------------------------------------------------------------------------------------------ */

static bool negate(Module *m, Func *f, Op *op) { return scale_result(m, f, op, -1); }
static bool count_one(Module *m, Func *f, Op *op) { return scale_result(m, f, op, 1 / summed_elements(op)); }

static bool take_largest(Module *m, Func *f, Op *op)
{
    op->kind = OP_max;
    return true;
}

static bool become_sister(Module *m, Func *f, Op *op)
{
    op->kind = sister(op);
    return true;
}

static bool turn_on(Module *m, Func *f, Op *op)
{
    op->attrs.inverse = !op->attrs.inverse;
    return true;
}

static bool other_mask(Module *m, Func *f, Op *op)
{
    op->attrs.causal = !op->attrs.causal;
    return true;
}

/* One element to the left, or to the right if there is none. */
static bool shift(Module *m, Func *f, Op *op)
{
    const Dim *dim =
        op->kind == OP_pad ? &op->attrs.dims.dim[0] : &arg(op, 0)->type.dim[find_dim(&arg(op, 0)->type, op->attrs.dim)];
    int at = op->kind == OP_pad ? find_dim(&arg(op, 0)->type, op->attrs.dim) : -1;
    int64_t own = op->kind == OP_part             ? op->attrs.dims.dim[0].size
                  : op->kind == OP_pad && at >= 0 ? arg(op, 0)->type.dim[at].size
                                                  : 1;
    if (op->attrs.index == 0 && own >= dim->size)
        return false;
    op->attrs.index += op->attrs.index ? -1 : 1;
    return true;
}

static bool run_on(Module *m, Func *f, Op *op)
{
    op->attrs.reverse = false;
    return true;
}

static const Plant plants[] = {
    { 'm', "a gradient loses its first term", adds_gradients, lose_left },
    { 'm', "a gradient loses its second term", adds_gradients, lose_right },
    { 'm', "a gradient has the wrong sign", makes_gradient, negate },
    { 'm', "a gradient counts twice", makes_gradient, double_it },
    { 'm', "a constant of a gradient is twice as large", is_constant, double_constant },
    { 'm', "a sum of gradients is a mean", sums, count_one },
    { 'm', "a sum of gradients is their largest", reduces, take_largest },
    { 'm', "operands stand in each other's place", has_order, exchange_operands },
    { 'm', "a gradient reads another value", reads_values, read_another },
    { 'm', "the slope of another function", has_sister, become_sister },
    { 'm', "the gradient of a dropout drops others", drops_out, other_instance },
    { 'm', "the gradient of a rotation goes on turning", turns, turn_on },
    { 'm', "the gradient of attention has another mask", attends, other_mask },
    { 'm', "the gradient of a part lies beside it", takes_part, shift },
    { 'm', "the backward of a loop runs forward", runs_back, run_on },
};
const PlantList plants_of_gradients = { sizeof plants / sizeof *plants, plants };
