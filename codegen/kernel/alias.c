/* alias.c -- results in the storage of parameters: an element must be read before it is overwritten. */
#include "kernel.h"

#include <string.h>

bool reads(const RowKernel *k, const Node *node, const Node *what)
{
    int from = (int)(what - k->node), at = (int)(node - k->node);
    for (int i = from; i <= at; i++)
        k->node[i].is_reached = i == at;
    for (; at > from; at--)
        for (int i = 0; k->node[at].is_reached && i < 3; i++)
            if (k->node[at].operand[i])
                k->node[at].operand[i]->is_reached = true;
    return at == from && what->is_reached;
}

/* Bytes from the start of an array to its end. */
static int64_t extent(const RowKernel *k, const Array *array)
{
    int64_t last = 0;
    for (int i = 0; i < k->ndims; i++)
        last += array->dims >> i & 1 ? (k->dim[i].size - 1) * array->stride[i] : 0;
    return (last + 1) * dtype_bytes(array->value->type.dtype);
}

static bool same_layout(const Array *a, const Array *b)
{
    return a->dims == b->dims && memcmp(a->stride, b->stride, sizeof a->stride) == 0 &&
           dtype_bytes(a->value->type.dtype) == dtype_bytes(b->value->type.dtype);
}

/* Do both have rows of the same pitch, in different parts of it: members of a pack (passes/memory/pack.h)? */
static bool are_interleaved(const RowKernel *k, const Array *in, const Array *out)
{
    int64_t pitch = 0, row[2] = { 1, 1 }, bytes = dtype_bytes(in->value->type.dtype);
    const Array *const both[] = { in, out };
    for (int a = 0; a < 2; a++)
        for (int i = k->ndims - 1; i >= 0; i--) {
            bool has = both[a]->dims >> i & 1 && k->dim[i].size > 1;
            if (has && both[a]->stride[i] == row[a])
                row[a] *= k->dim[i].size;
            else if (has && (pitch == 0 || both[a]->stride[i] < pitch))
                pitch = both[a]->stride[i];
        }
    for (int a = 0; a < 2; a++)
        for (int i = 0; i < k->ndims; i++)
            if (both[a]->dims >> i & 1 && both[a]->stride[i] >= row[a] && (pitch == 0 || both[a]->stride[i] % pitch))
                return false;
    int64_t from = in->storage->at / bytes, to = out->storage->at / bytes;
    int64_t ahead = pitch ? ((to - from) % pitch + pitch) % pitch : 0;
    return pitch && bytes == dtype_bytes(out->value->type.dtype) && ahead >= row[0] && ahead + row[1] <= pitch;
}

/* Pointers of a called function with the same layout may be the same memory. */
static bool may_share(const RowKernel *k, const Array *in, const Array *out)
{
    int64_t a = in->storage->at, b = out->storage->at;
    if (!same_base(in->storage, out->storage))
        return in->storage->base == BY_POINTER && out->storage->base == BY_POINTER && same_layout(in, out);
    return a < b + extent(k, out) && b < a + extent(k, in) && !are_interleaved(k, in, out);
}

/* Do they overlap, but not exactly?  Then no order of statements is correct. */
static bool is_torn(const RowKernel *k, const Array *in, const Array *out)
{
    return may_share(k, in, out) && same_base(in->storage, out->storage) &&
           (in->storage->at != out->storage->at || !same_layout(in, out));
}

static void check_overlap(const RowKernel *k, const Array *in, const Array *out)
{
    if (is_torn(k, in, out))
        error_at(k->m->diags, (Where){ .at = k->call->loc },
                 "internal: '%s' overlaps '%s', which kernel '%s' reads: only an equal address is supported",
                 out->value->name, in->value->name, k->f->name);
}

/* Does `region` overwrite anything that `other` reads? */
static bool destroys(const RowKernel *k, int region, int other)
{
    for (int s = 0; s < k->nsinks; s++)
        for (int i = 0; k->sink[s].region == region && i < k->f->params.count; i++) {
            if (!may_share(k, &k->array[i], &k->array[k->f->params.count + k->sink[s].result]))
                continue;
            for (int t = 0; t < k->nsinks; t++)
                if (k->sink[t].region == other && reads(k, k->sink[t].node, find_node(k, k->array[i].value)))
                    return true;
        }
    return false;
}

/* Orders regions so that none overwrites operands of later ones.  False if there is no such order. */
static bool order_regions(RowKernel *k)
{
    k->region_order = NEW_ARRAY(&k->m->arena, int, k->nregions);
    bool *done = NEW_ARRAY(&k->m->arena, bool, k->nregions);
    for (int count = 0; count < k->nregions; count++) {
        int next = -1;
        for (int i = k->nregions - 1; i >= 0; i--) {
            bool harmless = !done[i];
            for (int j = 0; j < k->nregions && harmless; j++)
                harmless = j == i || done[j] || !destroys(k, i, j);
            next = harmless ? i : next;
        }
        if (next < 0)
            return false;
        done[next] = true;
        k->region_order[count] = next;
    }
    return true;
}

void plan_sharing(RowKernel *k)
{
    int nparams = k->f->params.count;
    for (int s = 0; s < k->nsinks; s++)
        for (int i = 0; i < nparams; i++) {
            Sink *sink = &k->sink[s];
            Array *in = &k->array[i], *out = &k->array[nparams + sink->result];
            if (!may_share(k, in, out))
                continue;
            check_overlap(k, in, out);
            in->shared = out->shared = true;
            /* Delays the store until after the last read of this row. */
            if (k->by_rows && !sink->operand && sink->node->dims & k->inner)
                sink->is_late = true, sink->phase = k->nphases - 1;
        }
    if (!order_regions(k))
        error_at(k->m->diags, (Where){ .at = k->call->loc },
                 "internal: each part of kernel '%s' stores results over what another one reads", k->f->name);
}

/* As may_share(), or more often: strides do not matter here. */
static bool may_be_shared(const Module *m, const Value *in, const Value *out)
{
    const Storage *a = in->storage, *b = out->storage;
    return same_base(a, b) ? a->at < b->at + span_bytes(m, out) && b->at < a->at + span_bytes(m, in)
                           : a->base == BY_POINTER && b->base == BY_POINTER;
}

bool row_kernel_shares(const Module *m, const Op *call)
{
    for (int i = 0; i < call->args.count + call->results.count; i++)
        if (!arg_or_result(call, i)->storage)
            return false; /* the emitter reports the error */
    for (int i = 0; i < call->args.count; i++)
        for (int k = 0; k < call->results.count; k++)
            if (may_be_shared(m, arg(call, i), call->results.at[k]))
                return true;
    return false;
}

bool row_kernel_accepts(Module *m, const Func *kernel, const Op *call, RequiredLayout wanted[])
{
    if (!row_kernel_shares(m, call))
        return true;
    RowKernel *k = plan_row_kernel(m, kernel, call);
    int nparams = kernel->params.count;
    bool good = true;
    place_arrays(k);
    bool ordered = order_regions(k);
    for (int s = 0; s < k->nsinks; s++)
        for (int i = 0; i < nparams; i++) {
            const Array *in = &k->array[i], *out = &k->array[nparams + k->sink[s].result];
            bool is_read_apart = !ordered && k->nregions > 1 && may_share(k, in, out);
            if (is_torn(k, in, out) || is_read_apart) {
                wanted[i].copied = true;
                wanted[i].apart = is_read_apart && !is_torn(k, in, out);
                good = false;
            }
        }
    return good;
}
