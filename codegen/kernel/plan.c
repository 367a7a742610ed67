/* plan.c -- values and loop nests of a row kernel: the part of the plan that depends on types. */
#include "kernel.h"

#include <string.h>

/* --- The space ------------------------------------------------------------------------------- */

int find_space_dim(const RowKernel *k, Name name)
{
    for (int i = 0; i < k->ndims; i++)
        if (k->dim[i].name == name)
            return i;
    return -1;
}

/* Dims that a type adds to the space go before the dim that follows them in the type. */
static void add_dims(RowKernel *k, const Type *type)
{
    int before = k->ndims;
    for (int i = type->rank - 1; i >= 0; i--) {
        int known = find_space_dim(k, type->dim[i].name);
        int64_t size = loop_size(k->m, &type->dim[i]);
        if (known >= 0 || size == 1) {
            before = known >= 0 ? known : before;
            continue;
        }
        if (k->ndims == MAX_RANK) {
            error_at(k->m->diags, (Where){ .at = k->f->first->loc }, "kernel '%s' spans more than %d dims", k->f->name,
                     MAX_RANK);
            return;
        }
        memmove(&k->dim[before + 1], &k->dim[before], (size_t)(k->ndims - before) * sizeof *k->dim);
        k->dim[before] = (SpaceDim){ .name = type->dim[i].name, .size = size };
        k->ndims++;
    }
}

/* The space has the memory order of the value of the highest rank: of a result, if several are equal. */
static void find_space(RowKernel *k)
{
    for (int rank = MAX_RANK; rank > 0; rank--) {
        for (int i = 0; i < k->f->results.count; i++)
            if (k->f->results.at[i]->type.rank == rank)
                add_dims(k, &k->f->results.at[i]->type);
        for (int i = 0; i < k->f->params.count; i++)
            if (k->f->params.at[i]->type.rank == rank)
                add_dims(k, &k->f->params.at[i]->type);
    }
    for (const Op *op = k->f->first; op; op = op->next)
        add_dims(k, &result(op)->type);
    for (int i = 0; i < k->ndims; i++)
        if (has_name(&k->f->inner, k->dim[i].name))
            k->inner |= 1u << i;
}

static DimSet dims_of(const RowKernel *k, const Type *type)
{
    DimSet dims = 0;
    for (int i = 0; i < type->rank; i++) {
        int at = find_space_dim(k, type->dim[i].name);
        dims |= at < 0 ? 0 : 1u << at;
    }
    return dims;
}

int64_t count_points(const RowKernel *k, DimSet dims)
{
    int64_t points = 1;
    for (int i = 0; i < k->ndims; i++)
        points *= dims >> i & 1 ? k->dim[i].size : 1;
    return points;
}

/* --- The values ------------------------------------------------------------------------------ */

Node *find_node(const RowKernel *k, const Value *value) { return map_get(&k->node_of, value); }

static Node *add_node(RowKernel *k, const Value *value, const Op *op, int array)
{
    Node *node = &k->node[k->nnodes++];
    map_put(&k->node_of, value, node);
    *node = (Node){
        .value = value, .op = op, .array = array, .dims = dims_of(k, &value->type), .kept_from = -1, .kept_array = -1
    };
    for (int i = 0; op && i < op->args.count; i++) {
        node->operand[i] = find_node(k, arg(op, i));
        node->operand[i]->is_read = true;
    }
    return node;
}

static void find_values(RowKernel *k)
{
    int count = k->f->params.count;
    k->node_of = (Map){ .arena = &k->m->arena };
    for (const Op *op = k->f->first; op; op = op->next)
        count++;
    k->node = NEW_ARRAY(&k->m->arena, Node, count);
    for (int i = 0; i < k->f->params.count; i++)
        add_node(k, k->f->params.at[i], NULL, i);
    for (const Op *op = k->f->first; op; op = op->next)
        add_node(k, result(op), op, -1);
}

static DimSet reduced_dims(const RowKernel *k, const Node *node)
{
    if (!node->op || info(node->op)->family != REDUCTION)
        return 0;
    return node->operand[0]->dims & ~node->dims;
}

/* If no value depends on a reduction and no dim is outer, rows are not needed and all dims are outer. */
static bool needs_rows(const RowKernel *k)
{
    DimSet outer = 0, reduced = 0;
    bool waits = false;
    for (int i = 0; i < k->nnodes; i++) {
        const Node *node = &k->node[i];
        DimSet gone = reduced_dims(k, node);
        outer |= node->dims & ~k->inner;
        if (gone && !(gone & ~k->inner)) {
            reduced |= gone;
            waits |= node->is_read;
        }
    }
    return reduced && (outer || waits);
}

static void classify(RowKernel *k)
{
    k->by_rows = needs_rows(k);
    if (!k->by_rows)
        k->inner = 0;
    for (int i = 0; i < k->nnodes; i++) {
        Node *node = &k->node[i];
        DimSet gone = reduced_dims(k, node);
        node->is_column = gone & ~k->inner;
        node->is_reduction = gone && !node->is_column;
        if ((node->is_column && node->is_read) || (node->is_reduction && node->dims & k->inner))
            error_at(k->m->diags, (Where){ .at = node->op->loc },
                     "internal: '%s' is a reduction that kernel '%s' cannot compute in rows along its inner dims",
                     node->value->name, k->f->name);
    }
    find_most(k);
    plan_phases(k, false);
}

/* Outer dims first, otherwise keeping the order. */
static void put_outer_first(RowKernel *k)
{
    SpaceDim sorted[MAX_RANK];
    int count = 0;
    DimSet inner = 0;
    for (int i = 0; i < k->ndims; i++)
        if (!(k->inner >> i & 1))
            sorted[count++] = k->dim[i];
    for (int i = 0; i < k->ndims; i++)
        if (k->inner >> i & 1) {
            inner |= 1u << count;
            sorted[count++] = k->dim[i];
        }
    memcpy(k->dim, sorted, sizeof sorted);
    k->inner = inner;
}

/* --- Sinks and their regions ------------------------------------------------------------------ */

static int find_region(RowKernel *k, DimSet dims)
{
    for (int i = 0; i < k->nregions; i++)
        if (k->region[i].dims == dims)
            return i;
    Region *region = &k->region[k->nregions];
    region->dims = dims;
    region->points = count_points(k, dims);
    for (int i = 0; i < k->ndims; i++)
        if (dims >> i & 1)
            region->order[region->norder++] = i;
    return k->nregions++;
}

static void find_sinks(RowKernel *k)
{
    k->sink = NEW_ARRAY(&k->m->arena, Sink, k->f->results.count);
    k->region = NEW_ARRAY(&k->m->arena, Region, k->f->results.count);
    for (int i = 0; i < k->f->results.count; i++) {
        Node *node = find_node(k, k->f->results.at[i]);
        Node *operand = node->is_column ? node->operand[0] : NULL;
        const Node *from = operand ? operand : node;
        DimSet dims = k->by_rows ? (from->dims & ~k->inner) | k->inner : from->dims;
        if (k->by_rows && !from->phase && !(from->dims & k->inner))
            dims = from->dims; /* not part of any row */
        Sink sink = { .result = i, .node = node, .operand = operand, .at = -1 };
        sink.region = find_region(k, dims);
        k->region[sink.region].has_columns |= operand != NULL;
        k->sink[k->nsinks++] = sink;
    }
}

RowKernel *plan_row_kernel(Module *m, const Func *kernel, const Op *call)
{
    RowKernel *k = NEW(&m->arena, RowKernel);
    *k = (RowKernel){ .m = m, .f = kernel, .call = call ? call : kernel->first, .names.module = m };
    find_space(k);
    find_values(k);
    if (!needs_rows(k))
        k->inner = 0;
    put_outer_first(k);
    k->nnodes = 0; /* again: dims have been reordered */
    find_values(k);
    classify(k);
    find_sinks(k);
    plan_phases(k, false);
    return k;
}
