/* quantize.c -- rounds operands of products marked {fp8=wanted} to 8 bits, e4m3, block by block.
 *
 * A block is a run of elements along the sum of the product, at most 128.  It has a scale of its own, the power of two
 * that brings its largest element below e4m3's largest number.  So there is no history of scales to keep, no number
 * depends on how the mesh splits a tensor or on the micro-batch, and what was rounded is a bf16 number: the products
 * themselves remain as they are.  Each operand x of a sum over embed:768 becomes
 *
 *   %1 = split %x {dim=embed, dims=[embed.block:6, embed.inside:128]}
 *   %2 = abs %1
 *   %3 = max %2 {over=embed.inside}
 *   %4 = scale_e4m3 %3
 *   %5 = mul %1, %4
 *   %6 = round_e4m3 %5
 *   %7 = div %6, %4
 *   %8 = cast %7 {dtype=bf16}
 *   %9 = merge %8 {over=embed.block+embed.inside, dims=[embed:768]}
 *
 * A weight, which has the dim {across} besides, is cut along that one, too, and the maximum is over both insides: its
 * blocks are squares.  So it is rounded to the same numbers for the forward product and for the gradient of the
 * activations, which sums over {across}; and GPUs multiply squares faster than runs (docs/cuda.md).
 *
 * The gradient of the weight is a sum over other dims, for which both operands are rounded again, from 16 bits.
 * Gradients are e4m3, too: a scale for each block makes up for the smaller range of its exponents (DeepSeek-V3, section
 * 3.3).  A product stays in 16 bits if its sum is over the micro-batch or slots of experts alone, whose size says how
 * the work is divided, or if no number from 16 to 128 divides the dim.
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

/* Can the dim of this type be divided into blocks? */
static bool has_blocks(const Module *m, const Dim *dim)
{
    return dim->name != m->batch && dim->padded == dim->size && block_of(dim->size) && is_declared(m, dim->name);
}

/* The innermost dim of the sum that can be divided into blocks, or NULL. */
static const Dim *dim_of_blocks(const Module *m, const Op *op)
{
    for (int i = op->attrs.over.count - 1; i >= 0; i--) {
        const Type *type = &arg(op, 0)->type;
        const Dim *dim = &type->dim[find_dim(type, op->attrs.over.name[i])];
        if (has_blocks(m, dim))
            return dim;
    }
    return NULL;
}

/* The dim as its blocks, which ranks split as they split the dim, and their elements; or as it is, if it is one block.
 */
static Dims blocks_of(Module *m, const Dim *dim)
{
    const int64_t inside = block_of(dim->size), blocks = dim->size / inside;
    if (blocks == 1)
        return (Dims){ 1, { *dim } };
    const Name outer = intern_format(m, "%s.block", dim->name), inner = intern_format(m, "%s.inside", dim->name);
    add_made_dim(m, outer, MADE_LIKE, ruled_as(m, dim->name));
    return (Dims){ .count = 2,
                   .dim = { { .name = outer, .size = blocks, .padded = blocks },
                            { .name = inner, .size = inside, .padded = inside } } };
}

/* Each block of elements along `insides` has a scale of its own. */
static Value *rounded_blocks(Builder *b, Value *x, Names insides)
{
    Value *size = BUILD(b, OP_max, ((Attrs){ .over = insides }), BUILD(b, OP_abs, NO_ATTRS, x));
    Value *scale = BUILD(b, OP_scale_e4m3, NO_ATTRS, size);
    Value *scaled = BUILD(b, OP_round_e4m3, NO_ATTRS, BUILD(b, OP_mul, NO_ATTRS, x, scale));
    Attrs narrow = { .dtype = intern_text(b->module, dtype_name[x->type.dtype]) };
    return BUILD(b, OP_cast, narrow, BUILD(b, OP_div, NO_ATTRS, scaled, scale));
}

/* x rounded in blocks along those of its dims that are cut: in their order in x, so that a weight is rounded alike
 * whichever of them is summed. */
static Value *rounded(Builder *b, Value *x, const Names *cut)
{
    Names insides = { 0 };
    Value *y = x;
    for (int i = 0; i < x->type.rank; i++) {
        const Dim *dim = &x->type.dim[i];
        if (!has_name(cut, dim->name))
            continue;
        const Dims blocks = blocks_of(b->module, dim);
        add_name(&insides, blocks.dim[blocks.count - 1].name);
        if (blocks.count > 1)
            y = BUILD(b, OP_split, ((Attrs){ .dim = dim->name, .dims = blocks }), y);
    }
    y = rounded_blocks(b, y, insides);
    for (int i = x->type.rank - 1; i >= 0; i--) {
        const Dim *dim = &x->type.dim[i];
        const Dims blocks = has_name(cut, dim->name) ? blocks_of(b->module, dim) : (Dims){ 0 };
        const Names halves = { 2, { blocks.dim[0].name, blocks.dim[1].name } };
        if (blocks.count > 1)
            y = BUILD(b, OP_merge, ((Attrs){ .over = halves, .dims = { 1, { *dim } } }), y);
    }
    return y;
}

/* The dim {across} of the weight, or NULL if there is none, or one that has no blocks. */
static Name dim_across(const Module *m, const Op *op)
{
    for (int i = 0; i < op->args.count && op->attrs.across; i++) {
        const int at = find_dim(&arg(op, i)->type, op->attrs.across);
        if (at >= 0 && has_blocks(m, &arg(op, i)->type.dim[at]))
            return op->attrs.across;
    }
    return NULL;
}

/* False: it stays in 16 bits. */
static bool quantize(Module *m, Func *f, Op *op)
{
    const Dim *along = dim_of_blocks(m, op);
    op->attrs.fp8 = along ? FP8_ROUNDED : NO_FP8;
    op->attrs.dim = along ? along->name : NULL;
    op->attrs.across = along ? dim_across(m, op) : NULL;
    if (!along) {
        remark(m, op, "stays in 16 bits: no dim of its sum can be divided into blocks");
        return false;
    }
    const int64_t block = block_of(along->size);
    Names cut = { 1, { op->attrs.dim } };
    if (op->attrs.across)
        add_name(&cut, op->attrs.across);
    Builder b = builder_at(m, f, op);
    for (int i = 0; i < op->args.count; i++)
        op->args.at[i] = rounded(&b, arg(op, i), &cut);
    remark(m, op, "in 8 bits: blocks of %lld along %s%s%s", (long long)block, op->attrs.dim,
           op->attrs.across ? ", of the weight also along " : "", op->attrs.across ? op->attrs.across : "");
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
