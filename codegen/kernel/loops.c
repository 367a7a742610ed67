/* loops.c -- addresses of the operands of a row kernel, and dims that one loop can cover: the part of the plan that
 * depends on strides.
 */
#include "kernel.h"

#include "extent.h"
#include "ir/storage.h"

#include <inttypes.h>
#include <string.h>

/* --- Memory ----------------------------------------------------------------------------------- */

static void add_array(RowKernel *k, const Value *value, const Value *given)
{
    Array *array = &k->array[k->narrays++];
    *array = (Array){ .value = value, .given = given, .storage = given->storage };
    array->padding_overhangs = given->storage && padding_overhangs(k->m, given);
    if (!given->storage) {
        error_at(k->m->diags, (Where){ .at = k->call->loc }, "internal: '%s' has no storage", given->name);
        array->storage = NEW(&k->m->arena, Storage);
    }
    for (int i = 0; i < value->type.rank; i++) {
        int at = find_space_dim(k, value->type.dim[i].name);
        if (at < 0)
            continue;
        array->dims |= 1u << at;
        array->stride[at] = array->storage->stride[i];
    }
}

void place_arrays(RowKernel *k)
{
    int nparams = k->f->params.count;
    k->array = NEW_ARRAY(&k->m->arena, Array, nparams + k->f->results.count);
    for (int i = 0; i < nparams; i++)
        add_array(k, k->f->params.at[i], k->call->args.at[i]);
    for (int i = 0; i < k->f->results.count; i++)
        add_array(k, k->f->results.at[i], k->call->results.at[i]);
}

void plan_arrays(RowKernel *k)
{
    place_arrays(k);
    name_arrays(k);
    plan_sharing(k);
}

/* --- Loops ------------------------------------------------------------------------------------ */

static void dense_strides(const RowKernel *k, const Region *region, DimSet dims, int64_t stride[])
{
    int64_t step = 1;
    for (int i = region->norder - 1; i >= 0; i--) {
        int dim = region->order[i];
        stride[dim] = 0;
        if (dims >> dim & 1) {
            stride[dim] = step;
            step *= k->dim[dim].size;
        }
    }
}

/* May dims a and b be one loop for these strides: is a's stride that of the end of b? */
static bool allows(const RowKernel *k, DimSet dims, const int64_t stride[], int a, int b)
{
    bool has_a = dims >> a & 1, has_b = dims >> b & 1;
    return has_a == has_b && (!has_a || stride[a] == stride[b] * k->dim[b].size);
}

static bool dense_allows(const RowKernel *k, const Region *region, DimSet dims, int a, int b)
{
    int64_t stride[MAX_RANK] = { 0 };
    dense_strides(k, region, dims, stride);
    return allows(k, dims, stride, a, b);
}

/* Strides of positions for positional ops: over the logical sizes of the whole tensor, the batch outermost; stride[i]
 * is that of dim i of the type.  Returns the number of elements of one sequence of the batch. */
int64_t position_strides(const RowKernel *k, const Type *type, int64_t stride[])
{
    int64_t step = 1;
    int batch = k->m->batch ? find_dim(type, k->m->batch) : -1;
    for (int i = type->rank - 1; i >= 0; i--)
        if (i != batch) {
            stride[i] = step;
            step *= type->dim[i].size;
        }
    if (batch >= 0)
        stride[batch] = step;
    return step;
}

static bool positions_allow(const RowKernel *k, const Node *node, int a, int b)
{
    int64_t by_type[MAX_RANK] = { 0 }, stride[MAX_RANK] = { 0 };
    const Type *type = &node->value->type;
    if (!node->op || !(info(node->op)->traits & POSITIONAL))
        return true;
    position_strides(k, type, by_type);
    for (int i = 0; i < type->rank; i++) {
        int at = find_space_dim(k, type->dim[i].name);
        if (at >= 0)
            stride[at] = by_type[i];
        const Dim *dim = &type->dim[i];
        if ((dim->zigzag || dim->split.dealt || dim->split.parts) && (at == a || at == b))
            return false; /* its positions are not contiguous */
    }
    return allows(k, node->dims, stride, a, b);
}

static bool can_merge(const RowKernel *k, const Region *region, int a, int b)
{
    DimSet apart = k->inner & region->dims;
    if (!dense_allows(k, region, region->own, a, b) || !dense_allows(k, region, apart, a, b))
        return false;
    for (int i = 0; i < k->narrays; i++)
        if (!allows(k, k->array[i].dims, k->array[i].stride, a, b))
            return false;
    for (int i = 0; i < k->nnodes; i++) {
        const Node *node = &k->node[i];
        if (!positions_allow(k, node, a, b))
            return false;
        if (node->is_reduction && !dense_allows(k, region, node->operand[0]->dims, a, b))
            return false;
        if (node->is_column && !dense_allows(k, region, node->dims, a, b))
            return false;
    }
    return true;
}

/* The number of elements in memory, if all operands have the same layout and no op is positional: then one loop covers
 * them, including padding.  0 if not. */
static int64_t flat_count(const RowKernel *k, const Region *region)
{
    if (k->by_rows || region->has_columns || k->nregions > 1 || region->norder == 0)
        return 0;
    for (int i = 0; i < k->nnodes; i++)
        if (k->node[i].op && (info(k->node[i].op)->traits & POSITIONAL || k->node[i].value->type.dtype == I32))
            return 0; /* integers: padding may divide by zero */
    int64_t count = 0;
    for (int i = 0; i < k->narrays; i++) {
        const Type *type = &k->array[i].value->type;
        int64_t step = 1;
        if (!k->array[i].dims)
            continue;
        if (k->array[i].dims != region->dims || k->array[i].padding_overhangs)
            return 0;
        for (int j = type->rank - 1; j >= 0; j--) {
            if (k->array[i].storage->stride[j] != step)
                return 0;
            step *= j ? local_size(k->m, &type->dim[j]) : loop_size(k->m, &type->dim[j]);
        }
        if (memcmp(k->array[i].stride, k->array[k->narrays - 1].stride, sizeof k->array[i].stride) != 0 ||
            k->array[i].stride[region->order[region->norder - 1]] != 1) /* only padding after the last dim */
            return 0;
        if (count && count != step) /* padding differs */
            return 0;
        count = step;
    }
    return count;
}

Variable *new_variable(RowKernel *k, const char *name)
{
    Variable *variable = NEW(&k->m->arena, Variable);
    variable->name = name;
    return variable;
}

static Variable *loop_index(RowKernel *k, const Region *region, int at)
{
    const Loop *loop = &region->loop[at];
    SpaceDim *dim = &k->dim[loop->last];
    if (loop->dims != 1u << loop->last)
        return new_variable(k, at == region->nloops - 1 ? "i"
                               : at == 0                ? "row"
                                                        : new_identifier(&k->names, "iteration"));
    if (!dim->index)
        dim->index = new_variable(k, name_dim(k, loop->last));
    dim->index->is_named = false; /* by the text of another region or launch, which has it, too */
    return dim->index;
}

/* Checks that the loops of a region stay inside all arrays that it can use. */
static void check_loops(const RowKernel *k, const Region *region)
{
    for (int i = 0; i < k->narrays; i++) {
        const Array *array = &k->array[i];
        Access access = { 0 };
        if (array->dims & ~region->dims)
            continue;
        for (int l = 0; l < region->nloops; l++)
            if (region->loop[l].dims & array->dims)
                add_access(&access, region->loop[l].size, array->stride[region->loop[l].last]);
        access_stays_inside(k->m, k->call, array->value->name, &array->value->type, array->storage, &access);
    }
}

void plan_loops(RowKernel *k, Region *region)
{
    int64_t flat = flat_count(k, region);
    for (int i = 0; i < region->norder; i++) {
        int dim = region->order[i];
        Loop *last = region->nloops ? &region->loop[region->nloops - 1] : NULL;
        if (last && (flat || can_merge(k, region, last->last, dim))) {
            last->dims |= 1u << dim;
            last->last = dim;
            last->size *= k->dim[dim].size;
        } else {
            region->loop[region->nloops++] = (Loop){ .dims = 1u << dim, .last = dim, .size = k->dim[dim].size };
        }
    }
    if (flat)
        region->loop[0].size = flat;
    region->inner = region->dims & k->inner;
    if (!region->inner && region->nloops)
        region->inner = region->loop[region->nloops - 1].dims;
    for (int i = 0; i < region->nloops; i++) {
        region->nouter += !(region->loop[i].dims & region->inner);
        region->loop[i].index = loop_index(k, region, i);
    }
    check_loops(k, region);
}

/* Adds "index * stride" to a sum. */
static char *plus_term(const RowKernel *k, const char *sum, const char *index, int64_t stride)
{
    const char *plus = *sum ? " + " : "";
    return stride == 1 ? arena_text(&k->m->arena, "%s%s%s", sum, plus, index)
                       : arena_text(&k->m->arena, "%s%s%s * %" PRId64, sum, plus, index, stride);
}

/* The loop's index, along a value of this type, in the whole tensor. */
static const char *whole_index(const RowKernel *k, const Type *type, const Loop *loop)
{
    int at = find_dim(type, k->dim[loop->last].name);
    return at >= 0 && type->dim[at].split.count && loop->dims == 1u << loop->last
               ? position_in_whole(k->m, k->offsets, &type->dim[at], use(loop->index))
               : use(loop->index);
}

/* Adds the offsets of this rank's part along dims without a loop of their own: merged ones, or of one element. */
static char *plus_firsts(const RowKernel *k, const Region *region, const Type *type, char *sum, const int64_t stride[])
{
    for (int i = 0; i < type->rank; i++) {
        bool has_loop = false;
        int at = find_space_dim(k, type->dim[i].name);
        for (int l = 0; l < region->nloops && at >= 0; l++)
            has_loop |= region->loop[l].dims == 1u << at;
        if (type->dim[i].split.count && !has_loop)
            sum = plus_term(k, sum, position_in_whole(k->m, k->offsets, &type->dim[i], "0"), stride[i]);
    }
    return sum;
}

char *position_index(const RowKernel *k, const Region *region, const Type *type, const int64_t stride[])
{
    char *text = "";
    for (int i = 0; i < region->nloops; i++) {
        int at = find_dim(type, k->dim[region->loop[i].last].name);
        if (at >= 0)
            text = plus_term(k, text, whole_index(k, type, &region->loop[i]), stride[at]);
    }
    text = plus_firsts(k, region, type, text, stride);
    return *text ? text : "0";
}

char *index_text(const RowKernel *k, const Region *region, DimSet dims, const int64_t stride[])
{
    char *text = "";
    for (int i = 0; i < region->nloops; i++)
        if (region->loop[i].dims & dims)
            text = plus_term(k, text, use(region->loop[i].index), stride[region->loop[i].last]);
    return *text ? text : "0";
}

char *dense_index(const RowKernel *k, const Region *region, DimSet dims)
{
    int64_t stride[MAX_RANK] = { 0 };
    dense_strides(k, region, dims, stride);
    return index_text(k, region, dims, stride);
}
