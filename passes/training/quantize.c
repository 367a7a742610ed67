/* quantize.c -- operands of products marked {fp8=wanted} are rounded to 8 bits, e4m3, block by block.
 *
 * A block is a run of elements along the sum of the product, at most 128.  It has a scale of its own, the power of two
 * that brings its largest element below e4m3's largest number.  So there is no history of scales to keep, no number
 * depends on how the mesh splits a tensor or on the micro-batch, and what was rounded is a bf16 number: the products
 * themselves remain as they are.  Each operand x of a sum over embed:768 becomes
 *
 *   %1 = split %x {dim=embed, dims=[embed.block:6, embed.inside:128]}
 *   %2 = abs %1                                                                    : bf16[..., embed.block:6,
 * embed.inside:128] %3 = max %2 {over=embed.inside}                                                : f32[...,
 * embed.block:6] %4 = scale_e4m3 %3 %5 = mul %1, %4 %6 = round_e4m3 %5 %7 = div %6, %4 %8 = cast %7 {dtype=bf16} %9 =
 * merge %8 {over=embed.block+embed.inside, dims=[embed:768]}
 *
 * The two gradients of such a product are sums over other dims, for which both operands are rounded again, from 16
 * bits. Gradients are e4m3 too: a scale for each block makes up for the smaller range of its exponents (DeepSeek-V3,
 * section 3.3).  A product stays in 16 bits if its sum is over the micro-batch or slots of experts alone, whose size
 * says how the work is divided, or if no number from 16 to 128 divides the dim.
 */
#include "remark.h"
#include "simplify/cleanup.h"

/* The elements of a block; 0: there is no good number of them. */
static int64_t block_of(int64_t size)
{
    enum { LEAST = 16, MOST = 128 };
    int64_t block = size < MOST ? size : MOST;
    while (size % block)
        block--;
    return block >= LEAST || block == size ? block : 0;
}

/* Has a parameter or an input this dim?  Others are made by the compiler. */
static bool is_declared(const Module *m, Name name)
{
    bool is_found = false;
    for (const Param *param = m->params; param && !is_found; param = param->next)
        is_found = find_dim(&param->type, name) >= 0;
    for (const Input *input = m->inputs; input && !is_found; input = input->next)
        is_found = find_dim(&input->type, name) >= 0;
    return is_found;
}

/* The innermost dim of the sum that can be divided into blocks, or NULL. */
static const Dim *dim_of_blocks(const Module *m, const Op *op)
{
    for (int i = op->attrs.over.count - 1; i >= 0; i--) {
        const Type *type = &arg(op, 0)->type;
        const Dim *dim = &type->dim[find_dim(type, op->attrs.over.name[i])];
        if (dim->name != m->batch && dim->padded == dim->size && block_of(dim->size) && is_declared(m, dim->name))
            return dim;
    }
    return NULL;
}

/* The dim as its blocks, which ranks split as they split the dim, and their elements. */
static Dims blocks_of(Module *m, const Dim *dim)
{
    const int64_t inside = block_of(dim->size), blocks = dim->size / inside;
    const Name outer = intern_format(m, "%s.block", dim->name), inner = intern_format(m, "%s.inside", dim->name);
    add_made_dim(m, outer, MADE_LIKE, ruled_as(m, dim->name));
    return (Dims){ .count = 2,
                   .dim = { { .name = outer, .size = blocks, .padded = blocks },
                            { .name = inner, .size = inside, .padded = inside } } };
}

static Value *rounded_along(Builder *b, Value *x, Name inside)
{
    Value *size = BUILD(b, OP_max, ((Attrs){ .over = { 1, { inside } } }), BUILD(b, OP_abs, NO_ATTRS, x));
    Value *scale = BUILD(b, OP_scale_e4m3, NO_ATTRS, size);
    Value *scaled = BUILD(b, OP_round_e4m3, NO_ATTRS, BUILD(b, OP_mul, NO_ATTRS, x, scale));
    Attrs narrow = { .dtype = intern_text(b->module, dtype_name[x->type.dtype]) };
    return BUILD(b, OP_cast, narrow, BUILD(b, OP_div, NO_ATTRS, scaled, scale));
}

static Value *rounded(Builder *b, Value *x, Dim dim)
{
    if (block_of(dim.size) == dim.size)
        return rounded_along(b, x, dim.name);
    const Dims blocks = blocks_of(b->module, &dim);
    const Names names = { 2, { blocks.dim[0].name, blocks.dim[1].name } };
    Value *divided = BUILD(b, OP_split, ((Attrs){ .dim = dim.name, .dims = blocks }), x);
    Value *y = rounded_along(b, divided, blocks.dim[1].name);
    return BUILD(b, OP_merge, ((Attrs){ .over = names, .dims = { 1, { dim } } }), y);
}

/* False: it stays in 16 bits. */
static bool quantize(Module *m, Func *f, Op *op)
{
    const Dim *dim = dim_of_blocks(m, op);
    op->attrs.fp8 = dim ? FP8_ROUNDED : NO_FP8;
    if (!dim) {
        remark(m, op, "stays in 16 bits: no dim of its sum can be divided into blocks");
        return false;
    }
    const Dim along = *dim;
    op->attrs.dim = along.name;
    Builder b = builder_at(m, f, op);
    for (int i = 0; i < op->args.count; i++)
        op->args.at[i] = rounded(&b, arg(op, i), along);
    remark(m, op, "in 8 bits: blocks of %lld along %s", (long long)block_of(along.size), along.name);
    return true;
}

void pass_quantize(Module *m);
void pass_quantize(Module *m)
{
    const Op *left = NULL; /* in 16 bits */
    bool any = false;
    for (Func *f = m->funcs; f && m->train.precision == PRECISION_FP8; f = f->next) {
        for (Op *op = f->first; op; op = op->next) {
            if (op->attrs.fp8 != FP8_WANTED)
                continue;
            const bool is_rounded = quantize(m, f, op);
            any |= is_rounded;
            left = is_rounded ? left : op;
        }
        share_equal(f); /* an operand of several products is rounded once */
    }
    if (left && !any)
        error_at(m->diags,
                 (Where){ .at = left->loc, .help = "sizes that a number from 16 to 128 divides, or precision = bf16" },
                 "precision = fp8 changes nothing: the sums of all products are over dims that have no blocks");
}
