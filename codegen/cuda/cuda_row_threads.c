/* cuda_row_threads.c -- loops, packs and threads of a launch: the part of the plan that depends on strides. */
#include "cuda_library.h"
#include "cuda_row.h"
#include "templates.h"

#include <inttypes.h>

enum { PACK_BYTES = 16, STATIC_SHARED = 40000 };

/* --- Loops ---------------------------------------------------------------------------------------- */

int64_t iterations_of(const Launch *p, DimSet dims)
{
    int64_t iterations = 1;
    for (int i = 0; i < p->region.nloops; i++)
        iterations *= p->region.loop[i].dims & dims ? p->region.loop[i].size : 1;
    return iterations;
}

static int64_t packs_along(const Launch *p, const Loop *loop)
{
    return loop == p->vector ? (loop->size + p->width - 1) / p->width : loop->size;
}

int64_t packs_of(const Launch *p, DimSet dims)
{
    int64_t packs = 1;
    for (int i = 0; i < p->region.nloops; i++)
        packs *= p->region.loop[i].dims & dims ? packs_along(p, &p->region.loop[i]) : 1;
    return packs;
}

int64_t items_of(const Launch *p) { return has_teams(p) ? iterations_of(p, p->items) : packs_of(p, p->items); }

/* "number / below % size" */
static char *digit(const Launch *p, const char *number, int64_t below, int64_t size, bool is_outermost)
{
    Arena *arena = &p->k->m->arena;
    char *text = below > 1 ? arena_text(arena, "%s / %" PRId64, number, below) : arena_text(arena, "%s", number);
    return is_outermost ? text : arena_text(arena, "%s %% %" PRId64, text, size);
}

/* Declares the indices of the loops over `dims`, from the iteration number `number`: those that the following text
 * uses, or all.  in_packs: iterations of the innermost loop are packs. */
char *index_lines(const Launch *p, Variable *number, DimSet dims, bool in_packs, bool all)
{
    Arena *arena = &p->k->m->arena;
    Text text;
    open_text(&text);
    int64_t below = in_packs ? packs_of(p, dims) : iterations_of(p, dims);
    bool is_outermost = true;
    bool counts = in_packs && p->vector && p->vector->dims & dims && has_tail(p) && (all || p->count->is_named);
    if (counts)
        p->first->is_named = true;
    for (int i = 0; i < p->region.nloops; i++) {
        const Loop *loop = &p->region.loop[i];
        if (!(loop->dims & dims))
            continue;
        bool packed = in_packs && loop == p->vector, is_digit = !is_outermost || below > packs_along(p, loop);
        Variable *index = packed ? p->first : loop->index;
        int64_t size = packed ? packs_along(p, loop) : loop->size;
        below /= size;
        if (all || index->is_named) {
            char *value = digit(p, use(number), below, size, is_outermost);
            if (packed && p->width > 1)
                value = arena_text(arena, is_digit ? "(%s) * %d" : "%s * %d", value, p->width);
            FILL(text.out, "const $type $name = $value;\n", { "type", p->index_type }, { "name", declare(index) },
                 { "value", value });
        }
        is_outermost = false;
    }
    if (counts)
        FILL(text.out, "const int $count = (int)rt_least<$type>($width, $size - $first);\n",
             { "count", declare(p->count) }, { "type", p->index_type }, { "width", arena_text(arena, "%d", p->width) },
             { "size", arena_text(arena, "%" PRId64, p->vector->size) }, { "first", p->first->name });
    return close_text(arena, &text);
}

/* `body` after the declarations of the indices that it uses. */
char *with_indices(const Launch *p, Variable *number, DimSet dims, bool in_packs, const char *body)
{
    return arena_text(&p->k->m->arena, "%s%s", index_lines(p, number, dims, in_packs, false), body);
}

/* `body` for each element of a pack, after the element's index if it uses that; to_the_end: the row may end within the
 * pack. */
char *each_element(const Launch *p, bool to_the_end, const char *body)
{
    Arena *arena = &p->k->m->arena;
    Text text;
    open_text(&text);
    const char *index = "", *guard = "";
    if (p->width > 1 && p->vector->index->is_named)
        index = arena_text(arena, "const %s %s = %s + e;\n", p->index_type, declare(p->vector->index), use(p->first));
    if (to_the_end && has_tail(p))
        guard = arena_text(arena, "if (e >= %s)\n    break;\n", use(p->count));
    FILL(text.out, cuda_pack_template, { "width", arena_text(arena, "%d", p->width) }, { "guard", guard },
         { "body", arena_text(arena, "%s%s", index, body) });
    return close_text(arena, &text);
}

/* --- Packs ---------------------------------------------------------------------------------------- */

static int element_bytes(const Array *array) { return dtype_bytes(array->value->type.dtype); }

static bool is_contiguous(const Launch *p, const Array *array)
{
    return p->vector && p->vector->dims & array->dims && array->stride[p->vector->last] == 1;
}

static bool is_aligned(const Launch *p, const Array *array, int width)
{
    for (int i = 0; i < p->region.nloops; i++) {
        const Loop *loop = &p->region.loop[i];
        if (loop != p->vector && loop->dims & array->dims && array->stride[loop->last] % width)
            return false;
    }
    return is_address_aligned(p->k->m, p->k->call, array->given, (int64_t)width * element_bytes(array));
}

bool is_packed(const Launch *p, int array)
{
    return is_contiguous(p, &p->k->array[array]) && is_aligned(p, &p->k->array[array], p->width);
}

static bool is_big(const Launch *p, const Array *array) { return (array->dims & p->region.dims) == p->region.dims; }

/* The widest pack with which all tensors as large as the space can be loaded and stored. */
static int choose_width(Launch *p)
{
    int64_t bytes = 2;
    for (int i = 0; i < p->k->narrays; i++)
        if (is_big(p, &p->k->array[i]) && is_contiguous(p, &p->k->array[i]) && element_bytes(&p->k->array[i]) > bytes)
            bytes = element_bytes(&p->k->array[i]);
    int width = (int)(PACK_BYTES / bytes);
    bool is_row = p->mapping == MAP_ROWS || p->mapping == MAP_COLUMNS;
    while (width > 1 && is_row && iterations_of(p, p->region.inner) / width < WARP)
        width /= 2;
    while (width > 1 && p->mapping == MAP_COLUMNS && p->ncolumns * BLOCK * width * 4 > STATIC_SHARED)
        width /= 2;
    for (int i = 0; i < p->k->narrays; i++)
        while (width > 1 && is_big(p, &p->k->array[i]) && is_contiguous(p, &p->k->array[i]) &&
               !is_aligned(p, &p->k->array[i], width))
            width /= 2;
    return width;
}

/* --- Threads -------------------------------------------------------------------------------------- */

static bool reads_array(const Launch *p, int array)
{
    const Node *node = array < p->k->f->params.count ? find_node(p->k, p->k->array[array].value) : NULL;
    return node && node->is_wanted;
}

/* Is it an array of the row worth keeping in registers?  Gains and biases are read from the cache. */
bool fits_registers(const Launch *p, int array)
{
    const Array *a = &p->k->array[array];
    return reads_array(p, array) && is_packed(p, array) && a->dims & p->region.dims & ~p->region.inner;
}

/* Registers of a thread for packs of the row. */
static int64_t pack_registers(const Launch *p, int64_t iterations)
{
    int64_t registers = 0;
    for (int i = 0; i < p->k->narrays; i++)
        registers += fits_registers(p, i) ? iterations * ((p->width * element_bytes(&p->k->array[i]) + 3) / 4) : 0;
    return registers;
}

/* Registers of one thread for the row and its sums. */
static int64_t row_registers(const Launch *p, int64_t iterations)
{
    int64_t registers = pack_registers(p, iterations);
    for (int i = 0; i < p->ncolumns; i++)
        registers += p->column[i].is_wide ? iterations * p->width : 0;
    for (int i = 0; i < p->k->nnodes; i++)
        registers += p->k->node[i].is_wanted && is_masking(p->k->node[i].op) ? iterations : 0;
    return registers;
}

/* Registers besides the row: values with one element per row; and for one pack at a time, loaded arrays and results
 * before they are stored.  About half of these are live at one time. */
static int64_t other_registers(const Launch *p)
{
    int64_t registers = 0;
    for (int i = 0; i < p->k->narrays; i++)
        if (is_packed(p, i) && !fits_registers(p, i))
            registers += reads_array(p, i) ? (p->width * element_bytes(&p->k->array[i]) + 3) / 4 : p->width;
    for (int i = 0; i < p->k->nnodes; i++)
        registers += p->k->node[i].is_wanted && !(p->k->node[i].dims & p->region.inner);
    return OTHER_REGISTERS + registers / 2;
}

bool has_wide_sums(const Launch *p)
{
    for (int i = 0; i < p->ncolumns; i++)
        if (p->column[i].is_wide)
            return true;
    return false;
}

/* Registers that a thread may have.  Two blocks should fit on a multiprocessor, so that one computes while the other
 * waits; blocks that sum columns run until the end of the launch, others are replaced. */
static int64_t most_registers(int threads)
{
    int64_t most = REGISTERS / (2 * threads);
    return most > MOST_REGISTERS ? MOST_REGISTERS : most;
}

/* Threads of a block, for `row_threads` threads per row with `registers` each. */
static int block_of(const Launch *p, int row_threads, int64_t registers)
{
    bool fits = iterations_of(p, p->region.inner) * 4 * p->ncolumns <= STATIC_SHARED;
    if (row_threads == WARP)
        return fits ? BLOCK : WARP;
    int rows = 1; /* rows of one block share barriers: each must exist */
    while (p->ncolumns && fits && row_threads * rows * 2 <= 2 * BLOCK && iterations_of(p, p->items) % (rows * 2) == 0 &&
           registers <= most_registers(row_threads * rows * 2))
        rows *= 2;
    return row_threads * rows;
}

/* Do this number of threads hold a row in registers? */
static bool fits_in_registers(const Launch *p, int row_threads)
{
    int64_t row = row_registers(p, (p->packs + row_threads - 1) / row_threads), all = row + other_registers(p);
    return all <= most_registers(block_of(p, row_threads, all)) && (has_wide_sums(p) || row <= ROW_REGISTERS);
}

/* A row that does not fit into registers stays in shared memory, if it fits there; else it is read again, from the
 * second-level cache. */
static void plan_shared_rows(Launch *p)
{
    bool fits = true;
    int64_t bytes = 0;
    for (int i = 0; i < p->k->narrays; i++)
        if (fits_registers(p, i)) {
            fits = fits && p->width * element_bytes(&p->k->array[i]) == PACK_BYTES;
            bytes += p->packs * PACK_BYTES;
        }
    if (!fits || bytes > CUDA_KEPT_ROW)
        return;
    for (int i = 0; i < p->k->narrays; i++)
        p->in_shared[i] = fits_registers(p, i);
    p->shared = bytes;
    p->row_threads = MOST_THREADS / 2; /* two blocks fit on a multiprocessor of a large device */
}

/* Are there registers for the packs of the next row, too, of two blocks on a multiprocessor, and do threads have more
 * than one row? */
static bool may_read_ahead(const Launch *p)
{
    const int64_t packs = pack_registers(p, p->iterations),
                  all = packs + row_registers(p, p->iterations) + other_registers(p);
    return packs && all <= REGISTERS / (2 * p->threads) && iterations_of(p, p->items) > p->row_blocks * rows_at_once(p);
}

static int64_t blocks_of_items(const Launch *p) { return (items_of(p) + rows_at_once(p) - 1) / rows_at_once(p); }

static void plan_row_threads(Launch *p)
{
    p->packs = packs_of(p, p->region.inner);
    int64_t least = (p->packs + ROW_ITERATIONS - 1) / ROW_ITERATIONS;
    p->row_threads = MOST_THREADS;
    for (int64_t threads = (least + WARP - 1) / WARP * WARP; threads <= 2 * BLOCK && !p->iterations; threads += WARP)
        if (fits_in_registers(p, (int)threads)) {
            p->row_threads = (int)threads;
            p->iterations = (int)((p->packs + threads - 1) / threads);
        }
    if (!p->iterations)
        plan_shared_rows(p);
    p->threads = p->row_threads;
    if (p->iterations)
        p->threads = block_of(p, p->row_threads, row_registers(p, p->iterations) + other_registers(p));
    for (int i = 0; i < p->k->narrays; i++)
        p->in_registers[i] = p->iterations && fits_registers(p, i);
    p->reads_ahead = p->ncolumns && p->iterations && may_read_ahead(p);
    p->blocks = p->ncolumns ? p->row_blocks * iterations_of(p, p->own) : blocks_of_items(p);
}

static void plan_column_threads(Launch *p)
{
    p->packs = packs_of(p, p->region.inner);
    p->threads = BLOCK;
    p->row_threads = WARP;
    p->blocks = p->row_blocks * iterations_of(p, p->own) * ((p->packs + WARP - 1) / WARP);
}

static void plan_sum_threads(Launch *p)
{
    p->packs = packs_of(p, p->items);
    p->threads = BLOCK;
    p->blocks = p->row_blocks * iterations_of(p, p->own);
}

static void plan_point_threads(Launch *p)
{
    p->packs = packs_of(p, p->items);
    p->threads = p->packs < BLOCK && !p->is_member ? (int)((p->packs + WARP - 1) / WARP * WARP) : BLOCK;
    p->blocks = blocks_of_items(p);
}

bool reads_rows_again(const Launch *p)
{
    return p->mapping == MAP_ROWS && !p->iterations && !p->shared && p->width > 1;
}

static const char *index_type(const RowKernel *k)
{
    for (int i = 0; i < k->nnodes; i++)
        if (element_count(&k->node[i].value->type) > INT32_MAX / 2)
            return "int64_t";
    for (int i = 0; i < k->narrays; i++)
        for (int d = 0; d < k->ndims; d++)
            if (k->array[i].stride[d] * k->dim[d].size > INT32_MAX / 2)
                return "int64_t";
    return "int";
}

void plan_threads(Launch *p)
{
    RowKernel *k = p->k;
    DimSet inner = p->region.inner;
    p->region.has_columns = p->ncolumns > 0;
    plan_loops(k, &p->region);
    p->region.inner = inner;
    p->region.nouter = 0;
    for (int i = 0; i < p->region.nloops; i++)
        p->region.nouter += !(p->region.loop[i].dims & inner);
    p->vector = p->region.nloops ? &p->region.loop[p->region.nloops - 1] : NULL;
    p->index_type = index_type(k);
    p->item = new_variable(k, "item");
    p->pack = new_variable(k, "pack");
    p->count = new_variable(k, "count");
    p->width = p->row_threads = 1;
    p->in_registers = NEW_ARRAY(&k->m->arena, bool, k->narrays);
    p->in_shared = NEW_ARRAY(&k->m->arena, bool, k->narrays);
    p->keeps = NEW_ARRAY(&k->m->arena, bool, k->narrays);
    p->is_kept = NEW_ARRAY(&k->m->arena, bool, k->narrays);
    p->pack_name = NEW_ARRAY(&k->m->arena, const char *, k->narrays);
    p->shared_name = NEW_ARRAY(&k->m->arena, const char *, k->narrays);
    p->next_name = NEW_ARRAY(&k->m->arena, const char *, k->narrays);
    p->read_name = new_identifier(&k->names, "read_row");
    for (int i = 0; i < k->narrays; i++) {
        p->pack_name[i] = new_identifier(&k->names, arena_text(&k->m->arena, "%s_pack", k->array[i].name));
        p->next_name[i] = new_identifier(&k->names, arena_text(&k->m->arena, "%s_next", k->array[i].name));
        p->shared_name[i] = new_identifier(&k->names, arena_text(&k->m->arena, "%s_shared", k->array[i].name));
    }
    if (p->vector) {
        p->width = choose_width(p);
        p->first = p->vector->index;
        if (p->width > 1)
            p->first = new_variable(
                k, new_identifier(&k->names, arena_text(&k->m->arena, "%s_first", p->vector->index->name)));
    }
    switch (p->mapping) {
    case MAP_ROWS:
        plan_row_threads(p);
        break;
    case MAP_COLUMNS:
        plan_column_threads(p);
        break;
    case MAP_SUMS:
        plan_sum_threads(p);
        break;
    case MAP_POINTS:
        plan_point_threads(p);
        break;
    }
}
