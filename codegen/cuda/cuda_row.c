/* cuda_row.c -- row kernels in CUDA: functions and launches. */
#include "cuda_row.h"
#include "templates.h"

#include <inttypes.h>
#include <string.h>

/* Names that the templates use; words of C++ and CUDA are reserved for all targets (text/names.c). */
static const char *const taken[] = { "e", "count", "item", "lane", "team", "pack", "other", "together" };

void add_launch(CudaLaunches *launches, CudaLaunch launch, Module *m)
{
    if (launches->count == launches->room) {
        CudaLaunch *more = NEW_ARRAY(&m->arena, CudaLaunch, launches->room = launches->room ? 2 * launches->room : 4);
        for (int i = 0; i < launches->count; i++)
            more[i] = launches->at[i];
        launches->at = more;
    }
    launches->at[launches->count++] = launch;
}

bool same_launches(const CudaLaunches *a, const CudaLaunches *b)
{
    bool same = a->count == b->count && a->hopper.blocks == b->hopper.blocks;
    for (int i = 0; same && i < a->count; i++) {
        const CudaLaunch *x = &a->at[i], *y = &b->at[i];
        same = x->blocks == y->blocks && x->threads == y->threads && x->shared == y->shared &&
               x->shared_small == y->shared_small;
    }
    return same;
}

/* Without a number of blocks, the compiler aims at high occupancy and may spill registers. */
char *cuda_bounds(Module *m, int threads, int blocks)
{
    return blocks ? arena_text(&m->arena, "%d, %d", threads, blocks) : arena_text(&m->arena, "%d", threads);
}

char *kernel_head(Module *m, const char *name, const char *bounds, int count, const char *const items[])
{
    return wrapped_list(m,
                        arena_text(&m->arena, "extern \"C\" __global__ void __launch_bounds__(%s) %s(", bounds, name),
                        count, items, ")", 0);
}

/* Does it round intermediate values to bf16 or f16?  Then values before and after rounding are live at one time. */
static bool rounds_halves(const Launch *p)
{
    for (int i = 0; i < p->k->nnodes; i++) {
        const Node *node = &p->k->node[i];
        if (node->op && node->is_read && is_half(node->value->type.dtype))
            return true;
    }
    return false;
}

/* Is a result in the place of an operand?  Then loads cannot be moved behind stores. */
static bool writes_over(const Launch *p)
{
    for (int i = p->k->f->params.count; i < p->k->narrays; i++)
        if (p->k->array[i].shared)
            return true;
    return false;
}

/* The minimum of blocks per multiprocessor; 0: the compiler may choose.  Blocks that sum columns run until the end of
 * the launch, as many as fit: parts_of and most_registers depend on that.  Of rows in shared memory, two blocks fit. */
static int blocks_together(const Launch *p)
{
    if (p->mapping == MAP_COLUMNS)
        return p->ncolumns == 1 ? 4 : 2;
    return p->shared || (p->iterations && (has_wide_sums(p) || rounds_halves(p) || writes_over(p))) ? 2 : 0;
}

const char *block_index(const Launch *p) { return p->is_member ? "block" : "blockIdx.x"; }

char *launch_head(const Launch *p, const char *name, int threads)
{
    const RowKernel *k = p->k;
    int count;
    const char *const *items = row_parameters(k, "__restrict__", &count);
    if (p->is_member)
        return wrapped_list(k->m, arena_text(&k->m->arena, "RT_INLINE void %s(int block, ", name), count, items, ")",
                            0);
    int blocks = threads == p->threads ? blocks_together(p) : 0;
    return kernel_head(k->m, name, cuda_bounds(k->m, threads, blocks), count, items);
}

/* The mask of a row: the bits, and the first dropout that uses them. */
typedef struct {
    const char *name;
    const Node *node;
} RowMask;

/* --- Phases of a row ------------------------------------------------------------------------------ */

static char *indented(const Launch *p, const char *text)
{
    Text lines;
    open_text(&lines);
    FILL(lines.out, "    $text\n", { "text", text });
    return close_text(&p->k->m->arena, &lines);
}

/* The number of iterations of a thread, or packs of a row that is read again, that are inside the row as a whole. */
static int64_t full_iterations(const Launch *p)
{
    bool is_one_loop = p->vector->dims == p->region.inner;
    int64_t full = p->packs - (has_tail(p) ? 1 : 0);
    if (has_tail(p) && !is_one_loop)
        return 0;
    return p->iterations ? full / p->row_threads : full;
}

static void write_some_iterations(Launch *p, int64_t from, int64_t end, IterationText *body, const void *context,
                                  FILE *out)
{
    Arena *arena = &p->k->m->arena;
    bool is_exact = p->is_full || (int64_t)p->iterations * p->row_threads == p->packs;
    Text lines;
    open_text(&lines);
    body(p, context, lines.out);
    const char *text = with_indices(p, p->pack, p->region.inner, true, close_text(arena, &lines));
    Hole first = { "from", arena_text(arena, "%" PRId64, from) }, last = { "end", arena_text(arena, "%" PRId64, end) };
    if (!p->iterations) {
        FILL(out, cuda_strides_template, { "type", p->index_type }, { "pack", declare(p->pack) },
             { "from", from ? arena_text(arena, "%" PRId64 " + lane", from) : "lane" }, last,
             { "threads", number(p, p->row_threads) }, { "body", text });
        return;
    }
    if (!is_exact)
        text = arena_text(arena,
                          end - from > 1 ? "if (%s >= %" PRId64 ")\n    break;\n%s" : "if (%s < %" PRId64 ") {\n%s}\n",
                          use(p->pack), p->packs, end - from > 1 ? text : indented(p, text));
    if (p->pack->is_named)
        text = arena_text(arena, "const int %s = iteration * %d + lane;\n%s", declare(p->pack), p->row_threads, text);
    Hole lines_of_iteration = { "body", text };
    if (end - from > 1)
        FILL(out, cuda_iterations_template, first, last, lines_of_iteration);
    else
        FILL(out, cuda_iteration_template, first, lines_of_iteration);
}

/* `body` for each of the thread's packs of a row: from registers in unrolled loops, or read again.  If the row ends
 * within the last packs, these are written separately. */
void write_iterations(Launch *p, IterationText *body, const void *context, FILE *out)
{
    int64_t all = p->iterations ? p->iterations : p->packs, full = full_iterations(p);
    p->is_full = true;
    if (full)
        write_some_iterations(p, 0, full, body, context, out);
    p->is_full = false;
    if (full < all)
        write_some_iterations(p, full, all, body, context, out);
}

static void write_shared_iteration(Launch *p, const void *context, FILE *out) { write_shared_loads(p, out); }

static void write_mask_iteration(Launch *p, const void *mask, FILE *out)
{
    const RowMask *of = mask;
    const char *stays = keep_text(p->k, of->node->op, element_position(p->k, &p->region, of->node));
    fputs(each_element(p, false, arena_text(&p->k->m->arena, "%s[iteration] |= (uint32_t)%s << e;\n", of->name, stays)),
          out);
}

/* Do two dropouts keep the same elements? */
static bool keep_same(const Op *a, const Op *b)
{
    return a->attrs.instance == b->attrs.instance && a->attrs.rate == b->attrs.rate && arg(a, 1) == arg(b, 1) &&
           arg(a, 2) == arg(b, 2) && same_dims(&result(a)->type, &result(b)->type);
}

/* The dropout mask of the row, one bit per element: random numbers are the most expensive part, and several phases, and
 * the gradient, use the same. */
static void write_masks(Launch *p, FILE *out)
{
    RowKernel *k = p->k;
    RowMask *mask = NEW_ARRAY(&k->m->arena, RowMask, k->nnodes);
    int count = 0;
    for (int i = 0; i < k->nnodes; i++) {
        Node *node = &k->node[i];
        node->mask = NULL;
        if (!p->iterations || !node->is_wanted || !is_masking(node->op) || !(node->dims & p->region.inner))
            continue;
        int same = 0;
        while (same < count && !keep_same(mask[same].node->op, node->op))
            same++;
        if (same == count) {
            const char *name = new_identifier(&k->names, arena_text(&k->m->arena, "%s_mask", node->name));
            mask[count++] = (RowMask){ name, node };
            FILL(out, "uint32_t $name[$iterations] = {};\n", { "name", name },
                 { "iterations", number(p, p->iterations) });
            write_iterations(p, write_mask_iteration, &mask[same], out);
        }
        node->mask = arena_text(&k->m->arena, "(%s[iteration] >> e & 1u) != 0", mask[same].name);
    }
}

static void write_kept_rows(Launch *p, FILE *out)
{
    bool any = false;
    write_row_packs(p, p->pack_name, out);
    for (int i = 0; i < p->k->narrays; i++)
        any |= p->in_registers[i];
    if (p->reads_ahead)
        write_next_row(p, out);
    else if (any)
        write_iterations(p, write_register_loads, p->pack_name, out);
    if (p->shared) {
        write_iterations(p, write_shared_iteration, NULL, out);
        fputs("rt_copy_commit();\nrt_copy_wait<0>();\n", out);
    }
}

/* --- The four mappings ---------------------------------------------------------------------------- */

static void write_by_row(Launch *p, const char *head, const char *row, FILE *out)
{
    int64_t rows = iterations_of(p, p->region.dims & ~p->region.inner);
    bool is_exact = rows % rows_at_once(p) == 0;
    FILL(out, cuda_row_template, { "head", head }, { "threads", number(p, p->row_threads) }, { "type", p->index_type },
         { "at_once", number(p, rows_at_once(p)) },
         { "guard", is_exact ? "" : arena_text(&p->k->m->arena, "if (item >= %" PRId64 ")\n    return;\n", rows) },
         { "row", with_indices(p, p->item, p->region.dims & ~p->region.inner, false, row) });
}

/* The indices of the dims that the block's sums keep. */
static char *own_lines(const Launch *p, const char *block)
{
    if (iterations_of(p, p->own) == 1)
        return "";
    char *own = arena_text(&p->k->m->arena, "const int own = %s %% %" PRId64 ";\n", block, iterations_of(p, p->own));
    return arena_text(&p->k->m->arena, "%s%s", own, index_lines(p, &(Variable){ .name = "own" }, p->own, false, true));
}

/* The part of a block, from a number that includes own dims. */
static char *part_text(const Launch *p, const char *block)
{
    int64_t own = iterations_of(p, p->own);
    return own > 1 ? arena_text(&p->k->m->arena, "%s / %" PRId64, block, own)
                   : arena_text(&p->k->m->arena, "%s", block);
}

static void write_rows_in_parts(Launch *p, const char *head, const char *start, const char *row, const char *end,
                                FILE *out)
{
    FILL(out, cuda_rows_template, { "head", head }, { "threads", number(p, p->row_threads) },
         { "own", own_lines(p, "(int)blockIdx.x") }, { "start", start }, { "type", p->index_type },
         { "side", p->takes_sides ? "int side = 0;" : "" }, { "block", part_text(p, "blockIdx.x") },
         { "at_once", number(p, rows_at_once(p)) }, { "rows", number(p, iterations_of(p, p->reduced)) },
         { "step", number(p, p->parts * rows_at_once(p)) }, { "row", with_indices(p, p->item, p->reduced, false, row) },
         { "iteration_side", p->takes_sides ? "side ^= 1;" : "" }, { "end", end });
}

static void write_columns_in_parts(Launch *p, const char *head, const char *start, const char *row, const char *end,
                                   FILE *out)
{
    int64_t tiles = (p->packs + WARP - 1) / WARP, warps = p->threads / WARP;
    const char *block =
        tiles > 1 ? arena_text(&p->k->m->arena, "(int)blockIdx.x / %" PRId64, tiles) : "(int)blockIdx.x";
    const char *pack =
        tiles > 1 ? arena_text(&p->k->m->arena, "(int)blockIdx.x %% %" PRId64 " * 32 + lane", tiles) : "lane";
    const char *inner = index_lines(p, p->pack, p->region.inner, true, true);
    FILL(out, cuda_column_template, { "head", head }, { "pack", pack }, { "own", own_lines(p, block) },
         { "start", start }, { "columns", inner }, { "packs", number(p, p->packs) }, { "type", p->index_type },
         { "part", part_text(p, block) }, { "warps", number(p, warps) },
         { "rows", number(p, iterations_of(p, p->reduced)) }, { "step", number(p, p->parts * warps) },
         { "row", with_indices(p, p->item, p->reduced, false, row) }, { "end", end });
}

static void write_all_in_parts(Launch *p, const char *head, const char *start, const char *row, const char *end,
                               FILE *out)
{
    const char *block = arena_text(&p->k->m->arena, "(int)%s", block_index(p));
    FILL(out, cuda_sum_template, { "head", head }, { "own", own_lines(p, block) }, { "start", start },
         { "type", p->index_type }, { "part", part_text(p, block_index(p)) }, { "threads", number(p, p->threads) },
         { "packs", number(p, p->packs) }, { "step", number(p, p->parts * p->threads) },
         { "row", with_indices(p, p->item, p->reduced, true, row) }, { "end", end });
}

static void write_points(Launch *p, const char *head, const char *start, const char *row, FILE *out)
{
    bool is_exact = p->packs % p->threads == 0;
    FILL(out, cuda_points_template, { "head", head }, { "type", p->index_type }, { "block", block_index(p) },
         { "threads", number(p, p->threads) },
         { "guard", is_exact ? "" : arena_text(&p->k->m->arena, "if (item >= %" PRId64 ")\n    return;\n", p->packs) },
         { "start", start }, { "row", with_indices(p, p->item, p->region.dims, true, row) });
}

static void write_launch(Launch *p, const char *name, FILE *out)
{
    RowKernel *k = p->k;
    Step *scalars = NULL, *steps = NULL;
    add_scalars(&(Steps){ .k = k, .end = &scalars });
    add_row(&(Steps){ .k = k, .end = &steps }, p->has,
            (Step){ .dims = p->mapping == MAP_ROWS ? p->region.inner : p->region.dims, .runner = BY_LANES });
    Text start, row, end;
    open_text(&start);
    open_text(&row);
    open_text(&end);
    k->depth = p->mapping == MAP_ROWS ? 4 : 3;
    print_launch_steps(p, scalars, start.out);
    write_shared_rows(p, start.out);
    write_sums_start(p, start.out);
    if (p->reads_ahead)
        write_first_row(p, part_text(p, "blockIdx.x"), start.out);
    write_kept_rows(p, row.out);
    write_masks(p, row.out);
    print_launch_steps(p, steps, row.out);
    write_sums_end(p, end.out);
    char *head = launch_head(p, name, p->threads), *starts = close_text(&k->m->arena, &start),
         *rows = close_text(&k->m->arena, &row), *ends = close_text(&k->m->arena, &end);
    if (p->mapping == MAP_ROWS && !p->ncolumns)
        write_by_row(p, head, arena_text(&k->m->arena, "%s%s", starts, rows), out);
    else if (p->mapping == MAP_ROWS)
        write_rows_in_parts(p, head, starts, rows, ends, out);
    else if (p->mapping == MAP_COLUMNS)
        write_columns_in_parts(p, head, starts, rows, ends, out);
    else if (p->mapping == MAP_SUMS)
        write_all_in_parts(p, head, starts, rows, ends, out);
    else
        write_points(p, head, starts, rows, out);
}

/* --- The kernel ----------------------------------------------------------------------------------- */

static RowKernel *plan_kernel(Module *m, const Func *kernel, const Op *call, Wanted *wanted, bool anonymous,
                              Launch **launch, int *count)
{
    RowKernel *k = plan_row_kernel(m, kernel, call);
    k->is_anonymous = anonymous;
    k->scratch = 0; /* used only by the plan for processors */
    k->wanted = wanted;
    if (call) {
        for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
            new_identifier(&k->names, taken[i]);
        plan_arrays(k);
        name_values(k);
    }
    *count = plan_launches(k, launch, &k->scratch);
    return k;
}

int64_t cuda_row_scratch(Module *m, const Func *kernel)
{
    Launch *launch;
    int count;
    return plan_kernel(m, kernel, NULL, NULL, true, &launch, &count)->scratch;
}

bool cuda_row_takes(Module *m, const Func *kernel, const Op *call, Wanted wanted[])
{
    Launch *launch;
    int count;
    bool good = true;
    plan_kernel(m, kernel, call, wanted, true, &launch, &count);
    for (int i = 0; i < call->args.count + call->results.count; i++)
        good &= !wanted[i].copied;
    return good;
}

const char *emit_cuda_row(Module *m, const Func *kernel, const Op *call, const char *name, bool anonymous,
                          ShardOffsets *offsets, CudaLaunches *launches, FILE *out)
{
    Launch *launch;
    int count;
    RowKernel *k = plan_kernel(m, kernel, call, NULL, anonymous, &launch, &count);
    k->offsets = offsets;
    for (int i = 0; i < count; i++) {
        Launch *p = &launch[i];
        const char *own = i ? arena_text(&m->arena, "%s_%d", name, i + 1) : name;
        mark_wanted(p->k, p->has);
        plan_threads(p);
        if (i)
            fputc('\n', out);
        write_launch(p, own, out);
        add_launch(launches,
                   (CudaLaunch){ .name = own,
                                 .blocks = p->blocks,
                                 .threads = p->threads,
                                 .shared = p->shared,
                                 .bytes = launch_bytes(p) },
                   m);
        write_totals(p, own, launches, out);
    }
    return row_comment(k);
}

CudaMember cuda_member(Module *m, const Func *kernel)
{
    Launch *launch;
    int count;
    plan_kernel(m, kernel, NULL, NULL, true, &launch, &count);
    return count != 1                        ? NO_MEMBER
           : launch[0].mapping == MAP_POINTS ? MEMBER_OF_POINTS
           : launch[0].mapping == MAP_SUMS   ? MEMBER_OF_SUMS
                                             : NO_MEMBER;
}

void emit_cuda_member(Module *m, const Func *kernel, const Op *call, const char *name, bool anonymous,
                      ShardOffsets *offsets, CudaLaunches *launches, FILE *out)
{
    Launch *p;
    int count;
    plan_kernel(m, kernel, call, NULL, anonymous, &p, &count)->offsets = offsets;
    p->is_member = true;
    mark_wanted(p->k, p->has);
    plan_threads(p);
    write_launch(p, name, out);
    launches->count = 0;
    add_launch(launches,
               (CudaLaunch){ .name = name, .blocks = p->blocks, .threads = p->threads, .bytes = launch_bytes(p) }, m);
    write_totals(p, name, launches, out);
}
