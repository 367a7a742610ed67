/* cuda_epilogue.c -- the epilogue of a product as a row kernel, where cuBLASLt cannot fuse it.
 *
 *   func kernel @k.h.mlp.epilogue(%product: bf16[matrix:1, row:8192, column:3072], %bias: bf16[column:3072]) {
 *     %before = add %product, %bias
 *     %c = gelu_tanh %before
 *     return %before, %c
 *   }
 */
#include "cuda_epilogue.h"

enum { MATRIX, ROW, COLUMN, DIMS };

static Type type_of(Module *m, const RtProductShape *s, DType dtype)
{
    static const char *const name[DIMS] = { "matrix", "row", "column" };
    const int64_t size[DIMS] = { s->batch, s->m, s->n };
    Type type = { .dtype = dtype, .rank = DIMS };
    for (int i = 0; i < DIMS; i++)
        type.dim[i] = (Dim){ .name = intern_text(m, name[i]), .size = size[i], .padded = size[i] };
    return type;
}

/* A value at the address of another one, with other strides.  If loops move the pointers, their alignment is unknown:
 * the address is then odd. */
static Value *placed(Module *m, const Value *like, const Value *there, const int64_t stride[], bool moves)
{
    Value *value = NEW(&m->arena, Value);
    *value = (Value){ .name = like->name, .type = like->type, .storage = NEW(&m->arena, Storage) };
    *value->storage = *there->storage;
    value->storage->at += moves ? dtype_bytes(like->type.dtype) : 0;
    for (int i = 0; i < like->type.rank; i++)
        value->storage->stride[i] = stride[i];
    return value;
}

static void place_operands(Module *m, const Func *kernel, const Op *call, const Product *p, Op *op)
{
    const RtProductShape *s = &p->shape;
    const int64_t strides[DIMS] = { s->c.batch, s->c.row, s->c.column }, one = 1;
    const Value *c = call->results.at[p->c], *product = s->keeps_before ? call->results.at[p->before] : c;
    bool moves = p->nloops > 0;
    push_value(&m->arena, &op->args, placed(m, kernel->params.at[0], product, strides, moves));
    if (s->has_bias)
        push_value(&m->arena, &op->args, placed(m, kernel->params.at[1], arg(call, p->bias), &one, moves));
    if (p->slope)
        push_value(&m->arena, &op->args, placed(m, kernel->params.at[1], arg(call, p->at), strides, moves));
    if (s->keeps_before)
        push_value(&m->arena, &op->results, placed(m, kernel->results.at[0], product, strides, moves));
    push_value(&m->arena, &op->results, placed(m, kernel->results.at[s->keeps_before], c, strides, moves));
}

/* Calls of one kernel may differ in strides, and thus in sizes of epilogues. */
static Name new_name(Module *m, const Op *call)
{
    Name name = intern_format(m, "%s.epilogue", call->attrs.callee);
    for (int i = 2; find_func(m, name); i++)
        name = intern_format(m, "%s.epilogue.%d", call->attrs.callee, i);
    return name;
}

static Func *epilogue_kernel(Module *m, const Op *call, const Product *p)
{
    const RtProductShape *s = &p->shape;
    Type type = type_of(m, s, call->results.at[p->c]->type.dtype), row = { .dtype = type.dtype, .rank = 1 };
    Func *kernel = add_func(m, new_name(m, call), KERNEL);
    Builder b = { .module = m, .func = kernel, .path = call->path, .where = call->where };
    Value *value = add_param(m, kernel, intern_text(m, "product"), type);
    row.dim[0] = type.dim[COLUMN];
    if (s->has_bias)
        value = BUILD(&b, OP_add, NO_ATTRS, value, add_param(m, kernel, intern_text(m, "bias"), row));
    if (s->keeps_before) {
        value->name = intern_text(m, "before");
        push_value(&m->arena, &kernel->results, value);
    }
    if (p->activation)
        value = build_op(&b, p->activation->kind, p->activation->attrs, 1, &value);
    if (p->slope) {
        Value *at = add_param(m, kernel, intern_text(m, "at"), type);
        value = BUILD(&b, OP_mul, NO_ATTRS, value, build_op(&b, p->slope->kind, p->slope->attrs, 1, &at));
    }
    value->name = intern_text(m, "c");
    push_value(&m->arena, &kernel->results, value);
    add_name(&kernel->inner, row.dim[0].name);
    return kernel;
}

const Op *const *unfused_epilogue(Module *m, const Op *call, const Product *product)
{
    const Func *kernel = epilogue_kernel(m, call, product);
    const Op **list = NEW(&m->arena, const Op *);
    Op *op = NEW(&m->arena, Op);
    *op = (Op){ .kind = OP_call,
                .attrs.callee = kernel->name,
                .loc = call->loc,
                .path = call->path,
                .where = call->where,
                .prev = (Op *)(uintptr_t)call }; /* it stands behind the product */
    place_operands(m, kernel, call, product, op);
    *list = op;
    return list;
}
