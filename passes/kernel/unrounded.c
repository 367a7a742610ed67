/* unrounded.c -- gives products of 8 bits their operands before rounding, too.
 *
 *   %r = call %x {callee=k.h.mlp}                         abs, max, scale_e4m3, mul, round_e4m3, div, cast
 *   %y = call %r, %w {callee=k.h.mlp.2}                   dot %r, %w {dim=embed, fp8=rounded}
 * =>
 *   %y = call %r, %w, %x {callee=k.h.mlp.2}               dot_e4m3 %r, %w, %x, %w {dim=embed, fp8=rounded}
 *
 * A GPU writes numbers of 8 bits and their scales before it multiplies them.  It can compute them from %x: then nobody
 * reads %r, and the kernel that computes it need not run.  Whether products are computed so is known when a trainer
 * starts, so the program has both.  Where the kernel that rounds also computes something else, or its operand is not in
 * memory, nothing is gained, and the product stays as it is.
 */
#include "blocks.h"
#include "fuse.h"
#include "target.h"

/* A value of a function, or of a kernel that one of its ops calls. */
typedef struct {
    Value *value;
    const Op *call; /* NULL: of the function */
} Place;

static bool is_same(Place a, Place b) { return a.value == b.value && a.call == b.call; }

/* Where it is computed, through views and into and out of kernels; not further than a value of the function that has
 * this type, if there is one. */
static Place origin(const Module *m, Place at, const Type *type)
{
    for (;;) {
        const Op *op = at.value->def;
        const Func *kernel = at.call ? kernel_called_by(m, at.call) : op ? kernel_called_by(m, op) : NULL;
        if (!at.call && type && type_equal(&at.value->type, type))
            return at;
        if (op && info(op)->traits & FOLDS)
            at.value = arg(op, 0);
        else if (op && !at.call && kernel)
            at = (Place){ kernel->results.at[index_of(&op->results, at.value)], op };
        else if (!op && at.call)
            at = (Place){ arg(at.call, index_of(&kernel->params, at.value)), NULL };
        else
            return at;
    }
}

static Place operand_of(const Module *m, Place at, int operand, const Type *type)
{
    return origin(m, (Place){ arg(at.value->def, operand), at.call }, type);
}

static bool is_made_by(Place at, OpKind kind) { return at.value->def && at.value->def->kind == kind; }

/* The value whose blocks have this scale, scale_e4m3(max(abs(x))); NULL: it is none. */
static Place scaled_by(const Module *m, Place scale, const Type *type)
{
    static const Place none = { NULL, NULL };
    if (!is_made_by(scale, OP_scale_e4m3))
        return none;
    Place at = operand_of(m, scale, 0, NULL);
    if (!is_made_by(at, OP_max))
        return none;
    at = operand_of(m, at, 0, NULL);
    while (at.value->def && info(at.value->def)->traits & (ROUNDS | CASTS))
        at = operand_of(m, at, 0, NULL);
    return is_made_by(at, OP_abs) ? operand_of(m, at, 0, type) : none;
}

/* What a kernel of its own has rounded to `rounded`: cast(round_e4m3(x * scale) / scale); NULL: none has. */
static Value *find_unrounded(const Module *m, Value *rounded)
{
    const Type *type = &rounded->type;
    Place at = origin(m, (Place){ rounded, NULL }, NULL);
    if (!at.call || at.call->results.count > 1 || !at.value->def || !(info(at.value->def)->traits & CASTS))
        return NULL;
    at = operand_of(m, at, 0, NULL);
    if (!is_made_by(at, OP_div))
        return NULL;
    const Place scale = operand_of(m, at, 1, NULL), x = scaled_by(m, scale, type);
    at = operand_of(m, at, 0, NULL);
    if (!x.value || x.call || !is_made_by(at, OP_round_e4m3))
        return NULL;
    at = operand_of(m, at, 0, NULL);
    const bool is_x =
        is_made_by(at, OP_mul) && is_same(operand_of(m, at, 0, type), x) && is_same(operand_of(m, at, 1, NULL), scale);
    return is_x ? x.value : NULL;
}

/* May the op have such an operand? */
static bool has_blocks(const Module *m, const Op *dot, const Value *x)
{
    bool good = has_e4m3_blocks(m, &x->type, dot->attrs.dim);
    if (dot->attrs.across && find_dim(&x->type, dot->attrs.across) >= 0)
        good &= has_e4m3_blocks(m, &x->type, dot->attrs.across);
    for (int i = 0; i < x->type.rank; i++)
        good &= x->type.dim[i].padded == x->type.dim[i].size;
    return good;
}

/* The kernel's parameter for a value of the function. */
static Value *param_reading(Module *m, Func *kernel, Op *call, Value *value)
{
    const int at = index_of(&call->args, value);
    if (at >= 0)
        return kernel->params.at[at];
    push_value(&m->arena, &call->args, value);
    return add_param(m, kernel, value->name, value->type);
}

static void read_unrounded(Module *m, Op *call, Func *kernel, Op *dot)
{
    Value *operand[4], *from[2];
    bool any = false;
    for (int i = 0; i < 2; i++) {
        const int at = index_of(&kernel->params, arg(dot, i));
        Value *rounded = at < 0 ? NULL : arg(call, at);
        if (!rounded || !has_blocks(m, dot, rounded))
            return;
        from[i] = find_unrounded(m, rounded);
        any |= from[i] != NULL;
        from[i] = from[i] ? from[i] : rounded;
    }
    if (!any || kernel->params.count + kernel->results.count + 2 > MAX_KERNEL_VALUES)
        return;
    for (int i = 0; i < 2; i++) {
        operand[i] = arg(dot, i);
        operand[i + 2] = param_reading(m, kernel, call, from[i]);
    }
    Builder b = builder_at(m, kernel, dot);
    Value *old = result(dot), *y = result(build(&b, OP_dot_e4m3, dot->attrs, 4, operand));
    y->name = old->name;
    replace_uses(kernel, old, y);
    remove_op(kernel, dot);
}

void read_before_rounding(Module *m)
{
    for (Func *f = m->funcs; f && m->target->rounds_operands; f = f->next)
        for (Op *op = f->role == KERNEL ? NULL : f->first; op; op = op->next) {
            Func *kernel = kernel_called_by(m, op);
            for (Op *dot = kernel ? kernel->first : NULL, *next; dot; dot = next) {
                next = dot->next;
                if (dot->kind == OP_dot && dot->attrs.fp8 == FP8_ROUNDED)
                    read_unrounded(m, op, kernel, dot);
            }
        }
}
