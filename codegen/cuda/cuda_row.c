/* cuda_row.c -- row kernels in CUDA: functions and launches. */
#include "cuda_row.h"
#include "templates.h"

#include <inttypes.h>

/* Names that the templates use; words of C++ and CUDA are reserved for all targets (text/names.c). */
static const char *const taken[] = { "e", "count", "item", "lane", "team", "pack", "other", "together" };

void add_launch(CudaLaunches *launches, CudaLaunch launch, Module *m)
{
    GROW(&m->arena, launches->at, launches->count, launches->room);
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
 * the launch, as many as fit: parts_of and most_registers depend on that.  Of rows in shared memory, two blocks fit; of
 * those that are there in part, one. */
static int blocks_together(const Launch *p)
{
    if (p->mapping == MAP_COLUMNS)
        return p->ncolumns == 1 ? 4 : 2;
    return (p->shared && !p->kept) || (p->iterations && (has_wide_sums(p) || rounds_halves(p) || writes_over(p))) ? 2
                                                                                                                  : 0;
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

/* --- The launch ----------------------------------------------------------------------------------- */

/* Values of the whole launch, and the initial values of its sums. */
static void add_start(Steps *to, const Launch *p)
{
    add_scalars(to);
    add_step(to, (Step){ .kind = STEP_ROOM });
    for (int i = 0; i < p->ncolumns; i++)
        add_step(to, (Step){ .kind = STEP_START, .node = p->column[i].sink->node, .sink = p->column[i].sink });
}

/* A thread has one row, or one pack; where columns are summed, one after another. */
static Step *launch_steps(Launch *p)
{
    const bool by_rows = p->mapping == MAP_ROWS, is_one = by_rows && !p->ncolumns;
    Step *steps = NULL;
    Steps all = { .k = p->k, .end = &steps };
    for (int i = 0; i < p->ncolumns; i++)
        name_sums(p->k, p->column[i].sink);
    if (!is_one)
        add_start(&all, p);
    Steps items = add_loop(&all, (Step){ .dims = p->items, .runner = BY_BLOCKS });
    if (is_one)
        add_start(&items, p);
    add_step(&items, (Step){ .kind = STEP_KEEP });
    add_row(&items, p->has, (Step){ .dims = by_rows ? p->region.inner : p->region.dims, .runner = BY_LANES });
    for (int i = 0; i < p->ncolumns; i++)
        add_step(&all, (Step){ .kind = STEP_COMBINE, .node = p->column[i].sink->node, .sink = p->column[i].sink });
    return steps;
}

/* Which row, columns or pack are those of a thread, and which dims those of the block's sums. */
static void write_places(const Launch *p, FILE *out)
{
    const int64_t tiles = tiles_of(p), own = iterations_of(p, p->own);
    const char *pack = p->mapping != MAP_COLUMNS ? ""
                       : tiles == 1
                           ? ", pack = lane"
                           : arena_text(&p->k->m->arena, ", pack = (int)blockIdx.x %% %" PRId64 " * 32 + lane", tiles);
    if (has_teams(p))
        FILL(out, "const int lane = threadIdx.x % $threads, team = threadIdx.x / $threads$pack;\n",
             { "threads", number(p, p->row_threads) }, { "pack", pack });
    if (own > 1)
        FILL(out, "const int own = (int)$block % $count;\n$lines\n", { "block", block_number(p) },
             { "count", number(p, own) },
             { "lines", index_lines(p, &(Variable){ .name = "own" }, p->own, false, true) });
    if (!p->ncolumns)
        FILL(out, "const $type item = ($type)$block * $at_once + $thread;\n", { "type", p->index_type },
             { "block", block_index(p) }, { "at_once", number(p, rows_at_once(p)) }, { "thread", place_in_block(p) });
    if (!p->ncolumns && items_of(p) % rows_at_once(p))
        FILL(out, "if (item >= $items)\n    return;\n", { "items", number(p, items_of(p)) });
}

static void write_launch(Launch *p, const char *name, FILE *out)
{
    Text body, places;
    open_text(&body);
    open_text(&places);
    p->k->depth = p->mapping == MAP_ROWS ? 4 : 3;
    const Step *steps = launch_steps(p);
    keep_part_of_rows(p, steps);
    print_launch_steps(p, steps, body.out);
    write_places(p, places.out);
    const char *lines = close_text(&p->k->m->arena, &places);
    FILL(out, function_template, { "head", launch_head(p, name, p->threads) },
         { "body", arena_text(&p->k->m->arena, "%s%s", lines, close_text(&p->k->m->arena, &body)) });
}

/* --- The kernel ----------------------------------------------------------------------------------- */

static RowKernel *plan_kernel(Module *m, const Func *kernel, const Op *call, RequiredLayout *wanted, bool anonymous,
                              Launch **launch, int *count)
{
    RowKernel *k = plan_row_kernel(m, kernel, call);
    k->is_anonymous = anonymous;
    k->wanted = wanted;
    const bool is_text = call && !wanted; /* else nobody reads names */
    for (size_t i = 0; i < (is_text ? sizeof taken / sizeof *taken : 0); i++)
        new_identifier(&k->names, taken[i]);
    if (call)
        plan_arrays(k);
    if (is_text)
        name_values(k);
    *count = plan_launches(k, launch, &k->scratch);
    return k;
}

int64_t cuda_row_scratch(Module *m, const Func *kernel)
{
    Launch *launch;
    int count;
    return plan_kernel(m, kernel, NULL, NULL, true, &launch, &count)->scratch;
}

bool cuda_row_accepts(Module *m, const Func *kernel, const Op *call, RequiredLayout wanted[])
{
    Launch *launch;
    int count;
    bool good = true;
    if (!row_kernel_shares(m, call))
        return true;
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
        plan_phases(k, reads_rows_again(p));
        if (i)
            fputc('\n', out);
        write_launch(p, own, out);
        add_launch(launches,
                   (CudaLaunch){ .name = own,
                                 .blocks = p->blocks,
                                 .threads = p->threads,
                                 .shared = p->shared,
                                 .shared_small = p->shared_small,
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
