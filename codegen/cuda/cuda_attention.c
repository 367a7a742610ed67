/* cuda_attention.c -- attention that cuDNN or the kernel for Hopper may compute in place of the general kernels, if the
 * trainer finds them faster.  Whole sequences in 16 bits, causal or not, with nothing added to scores. */
#include "cuda_library.h"

#include <inttypes.h>
#include <string.h>

enum { ALIGNED = 8 /* elements */ };

/* Is each rank's part of the sequence the whole, without padding? */
static bool is_whole(const Operands *o, int operand, Name sequence)
{
    const Type *type = &o->value[operand]->type;
    const Dim *dim = &type->dim[find_dim(type, sequence)];
    return dim->split.count == 0 && dim->padded == dim->size;
}

/* Only scores of queries and keys, and which of these are seen follows from places. */
static bool is_plain(const Operands *o)
{
    const Attrs *a = &o->op->attrs;
    const DType dtype = o->value[0]->type.dtype;
    if ((dtype != BF16 && dtype != F16) || a->softcap != 0 || operand_named(o, OPERAND_bias) ||
        operand_named(o, OPERAND_sinks) || operand_named(o, OPERAND_query_segment) || !is_whole(o, 0, a->seq) ||
        !is_whole(o, 1, a->key))
        return false;
    return a->window == 0 || (a->causal && size_along(o, o->value[0], a->seq) == size_along(o, o->value[1], a->key));
}

/* Heads of keys and those of queries that share one have one stride; all rows are aligned. */
static bool has_heads(const Operands *o, const DimGroup both[2], const DimGroup *group)
{
    const Attrs *a = &o->op->attrs;
    for (int i = 0; i < o->count; i++) {
        const Type *type = &o->value[i]->type;
        const bool of_keys = find_dim(type, a->key) >= 0;
        const int64_t row = stride_of(o->value[i], of_keys ? a->key : a->seq);
        if (!of_keys && both[1].size > 1 && group->size > 1 && both[1].stride[i] != group->stride[i] * group->size)
            return false;
        if (find_dim(type, a->feature) >= 0 &&
            (row % ALIGNED || both[0].stride[i] % ALIGNED || both[1].stride[i] % ALIGNED || group->stride[i] % ALIGNED))
            return false;
    }
    return size_along(o, o->value[0], a->feature) % ALIGNED == 0;
}

/* Is the log-sum-exp [batch, heads, queries], row-major? */
static bool has_rows(const Operands *o, const DimGroup both[2], const DimGroup *group)
{
    const int at = operand_at(o->op, OPERAND_lse);
    const Value *sums = o->value[at];
    const int64_t size[] = { both[0].size, both[1].size, group->size, size_along(o, sums, o->op->attrs.seq) };
    const int64_t stride[] = { both[0].stride[at], both[1].stride[at], group->stride[at],
                               stride_of(sums, o->op->attrs.seq) };
    int64_t expected = 1;
    for (int i = 3; i >= 0; i--) {
        if (size[i] > 1 && stride[i] != expected)
            return false;
        expected *= size[i];
    }
    return true;
}

static void put_heads(const Operands *o, const DimGroup both[2], const DimGroup *group, Text *fields)
{
    const Attrs *a = &o->op->attrs;
    for (int i = 0; i < o->count; i++) {
        const Value *value = o->value[i];
        if (find_dim(&value->type, a->feature) < 0)
            continue;
        const bool of_keys = find_dim(&value->type, a->key) >= 0;
        fprintf(fields->out, ".%s = { %" PRId64 ", %" PRId64 ", %" PRId64 " },\n", o->name[i], both[0].stride[i],
                stride_of(value, of_keys ? a->key : a->seq),
                of_keys || group->size == 1 ? both[1].stride[i] : group->stride[i]);
    }
}

static void put_hopper(const CudaLaunch *launch, Text *fields)
{
    fprintf(fields->out, ".hopper = { .name = \"%s\", .blocks = %" PRId64 ", .shared = %" PRId64 ", .threads = %d },\n",
            launch->name, launch->blocks, launch->shared, launch->threads);
}

static const char *shape_text(const Operands *o, const DimGroup both[2], const DimGroup *group,
                              const CudaLaunches *launches)
{
    const Attrs *a = &o->op->attrs;
    Text fields;
    open_text(&fields);
    put_number(&fields, "batch", both[0].size);
    put_number(&fields, "queries", size_along(o, o->value[0], a->seq));
    put_number(&fields, "keys", size_along(o, o->value[1], a->key));
    put_number(&fields, "heads", both[1].size * group->size);
    put_number(&fields, "key_heads", both[1].size);
    put_number(&fields, "feature", size_along(o, o->value[0], a->feature));
    put_heads(o, both, group, &fields);
    put_text(&fields, "type", element_constant(o->value[0]->type.dtype));
    if (a->causal)
        put_text(&fields, "causal", "true");
    if (a->window)
        put_number(&fields, "window", a->window);
    put_text(&fields, "scale", c_number(o->m, a->scale, false));
    if (o->op->kind == OP_attend_grad)
        put_text(&fields, "is_gradient", "true");
    put_text(&fields, "kernels", launches->at[0].name);
    if (launches->hopper.name)
        put_hopper(&launches->hopper, &fields);
    return close_text(&o->m->arena, &fields);
}

static bool find_attention(Module *m, const Op *op, Operands *o, DimGroup both[2], DimGroup *group)
{
    if ((op->kind != OP_attend && op->kind != OP_attend_grad) || !find_operands(m, op, o))
        return false;
    o->asks = true;
    return is_plain(o) && find_heads(o, both, group) && has_heads(o, both, group) && has_rows(o, both, group);
}

bool is_cuda_attention(Module *m, const Op *op)
{
    Operands o;
    DimGroup both[2], group;
    return find_attention(m, op, &o, both, &group);
}

const char *cuda_attention_text(Module *m, const Op *op, const CudaLaunches *launches)
{
    Operands o;
    DimGroup both[2], group;
    return find_attention(m, op, &o, both, &group) ? shape_text(&o, both, &group, launches) : NULL;
}
