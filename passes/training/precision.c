/* precision.c -- turns an fp32 program into one of mixed precision: narrow weights, activations and products.
 *
 * Parameters enter the model in train.precision (the f32 ones stay with the optimizer; autodiff's step casts them once
 * a step).  Then types follow from the table: reductions give f32, a pointwise op has the widest dtype of its operands,
 * and ops that are NARROW (products, attention) take narrow operands (but for logits of attention).  Values cast to f32
 * stay f32: so a norm is computed in f32, and its result is rounded once, where a product reads it.  Where the model
 * itself says cast(x, f32) of an operand, the product is computed in f32: that of a router.
 *
 *   %1 = mul %x, %rstd : f32[...]        %1 = mul %x, %rstd : f32[...]
 *   %2 = dot %1, %w : f32[...]           %n = cast %1 {dtype=bf16} : bf16[...]
 *                                        %2 = dot %n, %w : bf16[...]
 *
 * fp8 is bf16, in which products of activations and weights are marked {fp8=wanted} in what is repeated, but not in a
 * scan.
 */
#include "autodiff.h"

#include "operands.h"
#include "roles.h"
#include "simplify/cleanup.h"

static Value *narrowed(Builder *b, Value *value, DType dtype)
{
    if (!is_float(value->type.dtype) || value->type.dtype == dtype)
        return value;
    return BUILD(b, OP_cast, (Attrs){ .dtype = intern_text(b->module, dtype_name[dtype]) }, value);
}

/* Operands that are partly narrow are not narrowed further. */
static DType widest(const Op *op)
{
    DType dtype = arg(op, 0)->type.dtype;
    for (int i = 1; i < op->args.count; i++)
        dtype = arg(op, i)->type.dtype == F32 ? F32 : dtype;
    return dtype;
}

/* Of floating-point numbers, which are f32 in the language, a cast to f32 has no other meaning. */
static bool is_said_wide(const Value *value)
{
    const Op *def = value->def;
    return def && def->kind == OP_cast && value->type.dtype == F32 && is_float(arg(def, 0)->type.dtype);
}

static bool has_wide_operand(const Op *op)
{
    bool wide = false;
    for (int i = 0; i < op->args.count; i++)
        wide |= !is_logit(op, i) && is_said_wide(arg(op, i));
    return wide;
}

/* The required dtype of an operand; N_DTYPES: any. */
static DType wanted(const Module *m, const Op *op, int operand, DType narrow)
{
    if (info(op)->traits & NARROW)
        return is_logit(op, operand) || has_wide_operand(op) ? F32 : narrow;
    if (info(op)->traits & ONE_DTYPE)
        return widest(op);
    const Func *callee = called_by(m, op);
    return callee ? callee->params.at[operand]->type.dtype : N_DTYPES;
}

static bool is_state(const Module *m, Port port)
{
    return port_is_measured(port.kind) || (port.kind == PORT_PARAM && find_param(m, port.of)->state);
}

/* --- Products of fp8 -------------------------------------------------------------------------------- */

/* Is it a parameter, or in `made`, of those that are made of parameters and numbers alone? */
static bool is_weight(const Module *m, const Map *made, const Value *value)
{
    while (value->def && info(value->def)->traits & CASTS)
        value = arg(value->def, 0);
    return value->def ? map_get(made, value) != NULL : value->port.kind == PORT_PARAM && !is_state(m, value->port);
}

static void note_weight(const Module *m, Map *made, const Op *op)
{
    bool is_made = op->args.count > 0 && (info(op)->family == POINTWISE || info(op)->family == VIEW);
    for (int i = 0; is_made && i < op->args.count; i++)
        is_made = is_any_number(arg(op, i)) || is_weight(m, made, arg(op, i));
    if (is_made)
        map_put(made, result(op), made);
}

/* Does it multiply activations by a weight, in 16 bits? */
static bool is_linear(const Module *m, const Map *made, const Op *op)
{
    return info(op)->family == PRODUCT && is_half(arg(op, 0)->type.dtype) && is_half(arg(op, 1)->type.dtype) &&
           is_weight(m, made, arg(op, 0)) != is_weight(m, made, arg(op, 1));
}

static void mark_products(Module *m, const Func *layer)
{
    Map made = { .arena = &m->arena };
    for (Op *op = layer->first; op; op = op->next) {
        note_weight(m, &made, op);
        if (!is_linear(m, &made, op))
            continue;
        op->attrs.fp8 = FP8_WANTED;
        op->attrs.across = free_dim(op, is_weight(m, &made, arg(op, 0)) ? 0 : 1);
    }
}

/* --- Functions ---------------------------------------------------------------------------------------- */

static void narrow_op(Module *m, Func *f, Op *op, DType narrow)
{
    Builder b = builder_at(m, f, op);
    for (int i = 0; i < op->args.count; i++) {
        DType dtype = wanted(m, op, i, narrow);
        if (dtype != N_DTYPES && is_float(dtype))
            op->args.at[i] = narrowed(&b, arg(op, i), dtype);
    }
    const Type *types = infer_results(m, op);
    if (types)
        for (int i = 0; i < op->results.count; i++)
            op->results.at[i]->type = types[i];
}

static bool is_all_logits(const Module *m, const Func *f, const Value *value);

static bool reads_logits(const Module *m, const Func *f, const Op *op, int operand)
{
    const Func *callee = called_by(m, op);
    if (callee)
        return is_all_logits(m, callee, callee->params.at[operand]);
    if (info(op)->traits & CASTS || info(op)->family == VIEW)
        return is_all_logits(m, f, result(op));
    return is_logit(op, operand);
}

/* Does the function read it as logits of attention alone, itself or by calls? */
static bool is_all_logits(const Module *m, const Func *f, const Value *value)
{
    bool is_read = false;
    for (const Op *op = f->first; op; op = op->next)
        for (int i = 0; i < op->args.count; i++)
            if (arg(op, i) == value && !reads_logits(m, f, op, i))
                return false;
            else
                is_read |= arg(op, i) == value;
    return is_read && index_of(&f->results, value) < 0;
}

/* Tensors become narrow; scalars (divisors, scales), counts, and state that is no parameter stay, and so do inputs,
 * since what a loss compares with is not rounded, what a scan carries, which would be rounded at every place, and
 * logits for all iterations: each would make them wide again, and keep that. */
static void narrow_params(const Module *m, Func *f, const Op *call, DType narrow)
{
    for (int i = call && call->attrs.scan ? (int)call->attrs.carried : 0; i < f->params.count; i++) {
        Value *param = f->params.at[i];
        const bool stays = param->port.kind == PORT_INPUT || is_state(m, param->port) ||
                           (call && is_captured(call, i) && is_all_logits(m, f, param));
        if (param->type.dtype == F32 && param->type.rank > 0 && !stays)
            param->type.dtype = narrow;
    }
}

/* Carried values keep their dtype from iteration to iteration. */
static void narrow_results(Module *m, Func *f, const Func *caller, DType narrow)
{
    for (const Op *op = caller->first; op; op = op->next)
        for (int i = 0; op->attrs.callee == f->name && i < op->attrs.carried; i++) {
            Builder b = builder_at(m, f, NULL);
            if (f->last)
                b.path = f->last->path, b.where = f->last->where;
            f->results.at[i] = narrowed(&b, f->results.at[i], f->params.at[i]->type.dtype);
        }
}

/* Callees first: they determine the types of calls.  call: of f, or NULL; loop: the one around it, or NULL. */
static void narrow_func(Module *m, Func *f, const Op *call, const Op *loop, DType narrow)
{
    const bool in_layer = loop && !loop->attrs.scan;
    narrow_params(m, f, call, narrow);
    for (Op *op = f->first; op; op = op->next) {
        Func *callee = called_by(m, op);
        if (callee) {
            narrow_func(m, callee, op, op->attrs.dims.count ? op : loop, narrow);
            narrow_results(m, callee, f, narrow);
        }
        narrow_op(m, f, op, narrow);
    }
    if (m->train.precision == PRECISION_FP8 && in_layer)
        mark_products(m, f);
}

/* A weak number beside narrow operands takes their dtype by inference; the losses and counts that a
 * program returns stay f32. */
static void widen_results(Module *m, Func *f)
{
    for (int i = 0; i < f->results.count; i++) {
        Builder b = builder_at(m, f, NULL);
        f->results.at[i] = narrowed(&b, f->results.at[i], F32);
    }
}

/* Evaluation, prediction and outputs read the optimizer's f32 weights, and cast them first. */
static void widen_params(Module *m, Func *f)
{
    for (int i = 0; i < f->params.count; i++) {
        Value *param = f->params.at[i];
        if (param->port.kind != PORT_PARAM || param->type.dtype == F32)
            continue;
        Builder b = builder_at(m, f, f->first);
        b.path = param->name;
        Value *wide = NEW(&m->arena, Value);
        *wide = (Value){ .name = param->name, .type = param->type, .port = param->port };
        wide->type.dtype = F32;
        Value *cast = narrowed(&b, wide, param->type.dtype);
        f->params.at[i] = wide;
        replace_uses(f, param, cast);
    }
}

/* Casts to f32 of values that are f32. */
static void drop_idle_casts(Module *m, Func *f)
{
    Map instead = { .arena = &m->arena };
    for (Op *op = f->first, *next; op; op = next) {
        next = op->next;
        resolve_all(&instead, &op->args);
        const bool of_number = op->kind == OP_cast && is_any_number(arg(op, 0)); /* its dtype is irrelevant */
        if (op->kind != OP_cast || of_number || !type_equal(&arg(op, 0)->type, &result(op)->type))
            continue;
        map_put(&instead, result(op), arg(op, 0));
        remove_op(f, op);
    }
    resolve_all(&instead, &f->results);
}

static bool has_marked(const Module *m)
{
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            if (op->attrs.fp8)
                return true;
    return false;
}

static void refuse_fp8(const Module *m)
{
    const Func *model = func_with_role(m, MODEL);
    error_at(m->diags, (Where){ .at = model->last ? model->last->loc : model->loc, .help = "precision = bf16" },
             "precision = fp8 is for products with parameters of a 'repeat', and model '%s' has none", m->name);
}

void pass_precision(Module *m);
void pass_precision(Module *m)
{
    static const DType dtype[N_Precision] = { F32, F32, BF16, F16, BF16 };
    const DType narrow = dtype[m->train.precision];
    static const FuncRole programs[] = { MODEL, TOTALS, EVAL, PREDICT, OUTPUTS };
    for (size_t i = 0; narrow != F32 && i < sizeof programs / sizeof *programs; i++) {
        Func *f = func_with_role(m, programs[i]);
        if (!f)
            continue;
        narrow_func(m, f, NULL, NULL, narrow);
        widen_results(m, f);
        if (f->role == EVAL || f->role == PREDICT || f->role == OUTPUTS)
            widen_params(m, f);
    }
    if (m->train.precision == PRECISION_FP8 && !has_marked(m))
        refuse_fp8(m);
    for (Func *f = m->funcs; f; f = f->next)
        drop_idle_casts(m, f);
    for (Func *f = m->funcs; f && narrow != F32; f = f->next)
        share_equal(f); /* an operand of several products is rounded once, and saved once for the backward */
}
