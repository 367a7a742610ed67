/* cuda_row_kept.c -- the packs of a row that its threads keep: the iterations over them, registers, shared memory, and
 * masks of dropouts.
 */
#include "cuda_row.h"
#include "templates.h"

#include <inttypes.h>

/* --- Iterations ----------------------------------------------------------------------------------- */

/* The number of iterations of a thread, or packs of a row that is read again, that are inside the row as a whole. */
static int64_t full_iterations(const Launch *p)
{
    bool is_one_loop = p->vector->dims == p->region.inner;
    int64_t full = p->packs - (has_tail(p) ? 1 : 0);
    if (has_tail(p) && !is_one_loop)
        return 0;
    return p->iterations ? full / p->row_threads : full;
}

static char *iteration_text(Launch *p, IterationText *body, const void *context)
{
    Text lines;
    open_text(&lines);
    body(p, context, lines.out);
    return with_indices(p, p->pack, p->region.inner, true, close_text(&p->k->m->arena, &lines));
}

static void write_strides(Launch *p, const char *from, const char *end, IterationText *body, const void *context,
                          FILE *out)
{
    const char *text = iteration_text(p, body, context);
    FILL(out, cuda_strides_template, { "unroll", p->kept ? "#pragma unroll 2" : "" }, { "type", p->index_type },
         { "pack", declare(p->pack) }, { "from", from }, { "end", end }, { "threads", number(p, p->row_threads) },
         { "body", text });
}

/* The packs of a row that is read again: those that stay, the others, and the one that is not inside the row as a
 * whole.
 */
static void write_pass(Launch *p, IterationText *body, const void *context, FILE *out)
{
    Arena *arena = &p->k->m->arena;
    const int64_t full = full_iterations(p);
    const char *from = "lane";
    p->is_full = true;
    if (p->kept) {
        p->is_in_part = true;
        write_strides(p, from, p->kept_name, body, context, out);
        p->is_in_part = false;
        from = arena_text(arena, "%s + lane", p->kept_name);
    }
    if (full)
        write_strides(p, from, number(p, full), body, context, out);
    p->is_full = false;
    if (full < p->packs)
        write_strides(p, full ? arena_text(arena, "%" PRId64 " + lane", full) : from, number(p, p->packs), body,
                      context, out);
}

static void write_some_iterations(Launch *p, int64_t from, int64_t end, IterationText *body, const void *context,
                                  FILE *out)
{
    Arena *arena = &p->k->m->arena;
    bool is_exact = p->is_full || (int64_t)p->iterations * p->row_threads == p->packs;
    const char *text = iteration_text(p, body, context);
    Hole first = { "from", arena_text(arena, "%" PRId64, from) }, last = { "end", arena_text(arena, "%" PRId64, end) };
    if (!is_exact && end - from > 1)
        text = arena_text(arena, "if (%s >= %" PRId64 ")\n    break;\n%s", use(p->pack), p->packs, text);
    else if (!is_exact)
        text = guarded(p, arena_text(arena, "%s < %" PRId64, use(p->pack), p->packs), text);
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
    if (!p->iterations) {
        write_pass(p, body, context, out);
        return;
    }
    int64_t all = p->iterations, full = full_iterations(p);
    p->is_full = true;
    if (full)
        write_some_iterations(p, 0, full, body, context, out);
    p->is_full = false;
    if (full < all)
        write_some_iterations(p, full, all, body, context, out);
}

/* --- Loads ---------------------------------------------------------------------------------------- */

/* "x + row * 768 + embed_first" */
char *pack_address(const Launch *p, int array)
{
    const Array *a = &p->k->array[array];
    Variable *element = p->vector->index;
    if (p->width > 1)
        p->vector->index = p->first;
    char *index = index_text(p->k, &p->region, a->dims, a->stride);
    p->vector->index = element;
    return arena_text(&p->k->m->arena, "%s + %s", a->name, index);
}

void write_pack_load(const Launch *p, int array, const char *to, FILE *out)
{
    Hole name = { "to", to }, width = { "width", number(p, p->width) }, from = { "from", pack_address(p, array) };
    if (has_tail(p))
        FILL(out, "$to = rt_load_some<$width>($from, $count);\n", name, width, from, { "count", use(p->count) });
    else
        FILL(out, "$to = rt_load_pack<$width>($from);\n", name, width, from);
}

void write_register_loads(Launch *p, const void *names, FILE *out)
{
    const char *const *name = names;
    for (int i = 0; i < p->k->f->params.count; i++)
        if (p->in_registers[i])
            write_pack_load(p, i, arena_text(&p->k->m->arena, "%s[iteration]", name[i]), out);
}

/* Pointers to arrays that stay in shared memory. */
void write_shared_rows(Launch *p, const Step *step, FILE *out)
{
    (void)step;
    int64_t bytes = 0;
    if (p->shared)
        fputs("RT_DYNAMIC_SHARED(memory);\n", out);
    if (p->kept)
        write_room_of_part(p, out);
    for (int i = 0; i < p->k->narrays; i++) {
        if (!p->in_shared[i])
            continue;
        FILL(out, "$type *const $name = reinterpret_cast<$type *>(memory$at);\n",
             { "type", element_type(p->k->array[i].value->type.dtype) }, { "name", p->shared_name[i] },
             { "at", bytes ? arena_text(&p->k->m->arena, " + %" PRId64, bytes) : "" });
        bytes += p->packs * 16;
    }
}

static void write_shared_load(const Launch *p, int array, FILE *out)
{
    Hole to = { "to", p->shared_name[array] }, pack = { "pack", use(p->pack) },
         width = { "width", number(p, p->width) }, from = { "from", pack_address(p, array) };
    if (has_tail(p))
        FILL(out, "rt_keep_pack($to + $pack * $width, rt_load_some<$width>($from, $count));\n", to, pack, width, from,
             { "count", use(p->count) });
    else
        FILL(out, "rt_copy_async($to + $pack * $width, $from, true);\n", to, pack, width, from);
}

/* Each thread copies the packs that it will read itself, so no barrier is needed. */
static void write_shared_loads(Launch *p, const void *context, FILE *out)
{
    (void)context;
    for (int i = 0; i < p->k->narrays; i++)
        if (p->in_shared[i])
            write_shared_load(p, i, out);
}

/* --- Masks ---------------------------------------------------------------------------------------- */

/* The mask of a row: the bits, and the first dropout that uses them. */
typedef struct {
    const char *name;
    const Node *node;
} RowMask;

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

void write_kept_rows(Launch *p, const Step *step, FILE *out)
{
    (void)step;
    bool any = false;
    write_row_packs(p, p->pack_name, out);
    for (int i = 0; i < p->k->narrays; i++)
        any |= p->in_registers[i];
    if (p->reads_ahead)
        write_next_row(p, out);
    else if (any)
        write_iterations(p, write_register_loads, p->pack_name, out);
    if (p->shared && !p->kept) {
        write_iterations(p, write_shared_loads, NULL, out);
        fputs("rt_copy_commit();\nrt_copy_wait<0>();\n", out);
    }
    write_masks(p, out);
}
