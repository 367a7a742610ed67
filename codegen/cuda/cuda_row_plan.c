/* cuda_plan.c -- the launches of a row kernel and their reductions: the part of the plan that depends on types. */
#include "cuda_row.h"

static bool is_row_region(const RowKernel *k, const Region *r) { return k->by_rows && r->dims & k->inner; }

/* The dims kept by a column sum, equal for all sums of a launch; in rows, the outer ones. */
static DimSet kept_by(const RowKernel *k, const Region *r, const Sink *sink)
{
    return sink->node->dims & (is_row_region(k, r) ? ~k->inner : ~0u);
}

/* The longest suffix of dims that are all kept. */
static DimSet kept_suffix(const Region *r, DimSet kept)
{
    DimSet suffix = 0;
    for (int i = r->norder - 1; i >= 0 && kept >> r->order[i] & 1; i--)
        suffix |= 1u << r->order[i];
    return suffix;
}

static Launch new_launch(RowKernel *k, int region)
{
    Launch p = { .k = k, .region = k->region[region], .mapping = MAP_POINTS, .row_blocks = 1 };
    p.has = NEW_ARRAY(&k->m->arena, bool, k->nsinks);
    p.column = NEW_ARRAY(&k->m->arena, Column, k->nsinks);
    p.region.inner = p.items = p.region.dims;
    if (is_row_region(k, &p.region)) {
        p.mapping = MAP_ROWS;
        p.region.inner = p.region.dims & k->inner;
        p.items = p.region.dims & ~k->inner;
    }
    return p;
}

static int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t at_least_one(int64_t a) { return a > 1 ? a : 1; }

/* The number of row blocks into which the rows of the same results are divided: enough for a whole device, and no more,
 * since each of them writes its sums. */
static int64_t row_blocks_of(const Launch *p)
{
    int64_t rows = count_points(p->k, p->items), results = count_points(p->k, p->own);
    if (p->mapping == MAP_ROWS)
        return at_least_one(at_most(PARTS / results, rows / 8));
    if (p->mapping == MAP_COLUMNS) {
        int64_t tiles = (count_points(p->k, p->region.inner) + BLOCK - 1) / BLOCK;
        return at_least_one(at_most(2 * PARTS / (tiles * results), rows / WARP));
    }
    return at_least_one(at_most(2 * PARTS / results, rows / (16 * BLOCK)));
}

/* The number of sums of one block: one for each inner element if `is_wide`. */
int64_t sums_of(const Launch *p, const Column *column)
{
    return count_points(p->k, p->own) * (column->is_wide ? count_points(p->k, p->region.inner) : 1);
}

static void place_columns(Launch *p, int64_t *scratch)
{
    p->row_blocks = row_blocks_of(p);
    for (int i = 0; i < p->ncolumns; i++) {
        Column *column = &p->column[i];
        column->is_wide = p->mapping == MAP_COLUMNS || column->sink->node->dims & p->region.inner;
        column->at = -1;
        if (p->row_blocks == 1 && p->mapping != MAP_ROWS)
            continue;
        column->at = *scratch / 4;
        *scratch += (p->row_blocks * sums_of(p, column) * 4 + 63) / 64 * 64;
    }
}

static void choose_mapping(Launch *p, DimSet kept)
{
    if (p->mapping == MAP_ROWS) {
        p->own = kept;
    } else {
        DimSet suffix = kept_suffix(&p->region, kept);
        p->mapping = suffix ? MAP_COLUMNS : MAP_SUMS;
        p->region.inner = suffix;
        p->own = kept & ~suffix;
    }
    p->region.own = p->own;
    p->items = p->region.dims & ~p->own & ~p->region.inner;
}

/* Results of earlier launches must not overwrite operands of this one: only the last launch of a region may write in
 * place. */
static void check_order(const RowKernel *k, const Launch *p)
{
    for (int i = 0; i < k->nsinks; i++)
        if (!p->has[i] || !k->array[k->f->params.count + k->sink[i].result].shared)
            continue;
        else if (k->wanted)
            k->wanted[k->f->params.count + k->sink[i].result] = (RequiredLayout){ .copied = true, .apart = true };
        else
            error_at(k->m->diags, (Where){ .at = k->call->loc },
                     "internal: '%s' is summed in place, while another launch of kernel '%s' may still read it",
                     k->sink[i].node->value->name, k->f->name);
}

static int plan_region(RowKernel *k, int region, Launch launch[], int count, int64_t *scratch)
{
    const Region *r = &k->region[region];
    bool *done = NEW_ARRAY(&k->m->arena, bool, k->nsinks);
    for (int i = 0; i < k->nsinks; i++) {
        if (k->sink[i].region != region || !k->sink[i].operand || done[i])
            continue;
        Launch *p = &launch[count++];
        *p = new_launch(k, region);
        choose_mapping(p, kept_by(k, r, &k->sink[i]));
        for (int j = i; j < k->nsinks; j++)
            if (k->sink[j].region == region && k->sink[j].operand &&
                kept_by(k, r, &k->sink[j]) == kept_by(k, r, &k->sink[i])) {
                p->column[p->ncolumns++].sink = &k->sink[j];
                p->has[j] = done[j] = true;
            }
        place_columns(p, scratch);
        if (p > launch && p[-1].region.dims == r->dims && k->array)
            check_order(k, &p[-1]);
    }
    return count;
}

int plan_launches(RowKernel *k, Launch **launches, int64_t *scratch)
{
    int count = 0;
    Launch *launch = *launches = NEW_ARRAY(&k->m->arena, Launch, k->nsinks + k->nregions + 1);
    for (int i = 0; i < k->nregions; i++) {
        int region = k->region_order ? k->region_order[i] : i, before = count;
        count = plan_region(k, region, launch, count, scratch);
        bool any = false;
        for (int s = 0; s < k->nsinks; s++)
            any |= k->sink[s].region == region && !k->sink[s].operand;
        if (any && count == before)
            launch[count++] = new_launch(k, region);
        for (int s = 0; s < k->nsinks; s++)
            if (k->sink[s].region == region && !k->sink[s].operand)
                launch[count - 1].has[s] = true; /* stores are in the last launch */
    }
    return count;
}

int64_t launch_bytes(const Launch *p)
{
    const RowKernel *k = p->k;
    int64_t bytes = 0;
    for (int i = 0; i < k->nnodes; i++) {
        const Node *node = &k->node[i];
        if (!node->op && node->is_wanted)
            bytes += count_points(k, node->dims) * dtype_bytes(node->value->type.dtype);
    }
    for (int i = 0; i < k->nsinks; i++)
        if (p->has[i] && !k->sink[i].operand)
            bytes += count_points(k, k->sink[i].node->dims) * dtype_bytes(k->sink[i].node->value->type.dtype);
    for (int i = 0; i < p->ncolumns; i++) {
        const Column *column = &p->column[i];
        const Node *sum = column->sink->node;
        const int64_t parts = p->row_blocks * sums_of(p, column) * dtype_bytes(F32);
        bytes += column->at < 0 ? count_points(k, sum->dims) * dtype_bytes(sum->value->type.dtype)
                                : (is_in_scratch(p, column) ? 2 : 1) * parts;
    }
    return bytes;
}
