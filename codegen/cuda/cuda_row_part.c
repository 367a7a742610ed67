/* cuda_row_part.c -- of a row that each phase reads again, the packs that stay in shared memory.
 *
 *     constexpr int kept = RT_SMALL_SHARED ? 6144 : 10240;
 *     rt_bf16 *const x_kept = reinterpret_cast<rt_bf16 *>(memory);
 *     for (int pack = lane; pack < kept; pack += 1024) {            in the first phase
 *         const RtPack<rt_bf16, 8> x_pack = rt_load_pack<8>(x + row * 128256 + pack * 8);
 *         rt_keep_pack(x_kept + pack * 8, x_pack);
 *         ...
 *     }
 *     for (int pack = kept + lane; pack < 16032; pack += 1024)
 *         ...
 *
 * A thread takes the same packs in each phase, so it needs no barrier.  A multiprocessor has one row at a time: of two,
 * each would keep less than half as much, and the rest of all of them would not stay in the second-level cache.  So
 * that as many bytes are under way as with two, loops are unrolled once.
 */
#include "cuda_row.h"

#include <inttypes.h>

/* A GPU has at least this many bytes for a block if it has more than 99 KiB: sm_80. */
enum { LARGE_SHARED = 163 * 1024, SMALL_SHARED = 99 * 1024 };

static int64_t bytes_of_pack(const Launch *p, int array)
{
    return (int64_t)p->width * dtype_bytes(p->k->array[array].value->type.dtype);
}

/* --- Which ---------------------------------------------------------------------------------------- */

static bool loads(const Launch *p, const Step *loop, int array)
{
    bool any = false;
    for (const Step *step = loop->body; step && !any; step = step->next)
        any = step->kind == STEP_LOOP ? loads(p, step, array) : step->kind == STEP_LOAD && step->node->array == array;
    return any;
}

/* In how many passes over a row is it loaded? */
static int passes_over(const Launch *p, const Step *steps, int array)
{
    int passes = 0;
    for (const Step *step = steps; step; step = step->next)
        if (step->kind == STEP_LOOP)
            passes +=
                step->runner == BY_LANES ? step->dims && loads(p, step, array) : passes_over(p, step->body, array);
    return passes;
}

/* Bytes of parts of sums that warps leave to each other. */
static int64_t bytes_of_sums(const Launch *p)
{
    int64_t sums = p->ncolumns;
    for (int i = 0; i < p->k->nnodes; i++)
        sums += p->k->node[i].is_reduction && p->k->node[i].is_wanted ? 2 : 0;
    return sums * (p->row_threads / WARP) * 4;
}

/* Packs that fit: as many of each thread, or all warps of them that are within the row as a whole. */
static int64_t kept_of(const Launch *p, int64_t shared, int64_t bytes)
{
    const int64_t all = (p->packs - has_tail(p)) / WARP * WARP,
                  of_threads = (shared - bytes_of_sums(p)) / (bytes * p->row_threads);
    return of_threads * p->row_threads < all ? of_threads * p->row_threads : all;
}

void keep_part_of_rows(Launch *p, const Step *steps)
{
    int64_t bytes = 0;
    if (!reads_rows_again(p) || has_wide_sums(p) || p->vector->dims != p->region.inner)
        return;
    for (int i = 0; i < p->k->f->params.count; i++) {
        p->keeps[i] = fits_registers(p, i) && passes_over(p, steps, i) > 1;
        bytes += p->keeps[i] ? bytes_of_pack(p, i) : 0;
    }
    if (!bytes || kept_of(p, SMALL_SHARED, bytes) <= 0)
        return;
    p->kept = kept_of(p, LARGE_SHARED, bytes);
    p->kept_small = kept_of(p, SMALL_SHARED, bytes);
    p->shared = p->kept * bytes;
    p->shared_small = p->kept_small * bytes;
}

/* --- Their text ----------------------------------------------------------------------------------- */

void write_room_of_part(Launch *p, FILE *out)
{
    int64_t bytes = 0;
    p->kept_name = new_identifier(&p->k->names, "kept");
    FILL(out, "constexpr int $kept = RT_SMALL_SHARED ? $small : $large;\n", { "kept", p->kept_name },
         { "small", number(p, p->kept_small) }, { "large", number(p, p->kept) });
    for (int i = 0; i < p->k->narrays; i++) {
        if (!p->keeps[i])
            continue;
        FILL(out, "$type *const $name = reinterpret_cast<$type *>(memory$at);\n",
             { "type", element_type(p->k->array[i].value->type.dtype) }, { "name", p->shared_name[i] },
             { "at", bytes ? arena_text(&p->k->m->arena, " + %s * %" PRId64, p->kept_name, bytes) : "" });
        bytes += bytes_of_pack(p, i);
    }
}

void write_keep(Launch *p, int array, FILE *out)
{
    if (!p->is_in_part || !p->keeps[array])
        return;
    p->is_kept[array] = true;
    FILL(out, "rt_keep_pack($to + $pack * $width, $from);\n", { "to", p->shared_name[array] }, { "pack", use(p->pack) },
         { "width", number(p, p->width) }, { "from", p->pack_name[array] });
}

bool is_in_shared(const Launch *p, int array) { return p->in_shared[array] || (p->is_in_part && p->is_kept[array]); }
