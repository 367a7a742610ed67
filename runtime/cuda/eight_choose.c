/* eight_choose.c -- chooses the products that are computed in 8 bits.
 *
 * All are tried once, on random operands, when a trainer starts: 8 bits, by the fastest of cuBLASLt's kernels, are
 * taken if results are equal but for rounding, the same bits twice, and faster, with the encoding.  The answer is kept
 * in the cache of kernels by GPU, version of cuBLASLt and shape.  The memory for encoded operands, as large as the
 * largest pair, is not in the plan: it is taken from what is free, or 16 bits are. */
#include "convert.h"
#include "eight_bits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CANDIDATES = 8 };

typedef struct {
    int count;
    cublasLtMatmulHeuristicResult_t result[CANDIDATES];
} Kernels;

/* The number of kernels found. */
static int find_kernels(Rt *rt, const Product *p, Description *d, Kernels *found)
{
    enum { ALIGNED = 3 }; /* the number of operands' alignment to 16 bytes */
    const cublasLtMatrixLayout_t layout[] = { d->operand[A].layout, d->operand[B].layout, p->layout[C] };
    if (d->request.description && rt_eight_point(rt, d))
        found->count =
            rt_product_kernels(rt->gpu->products, p, &d->request, layout, ALIGNED, CANDIDATES, found->result, NULL);
    return found->count;
}

/* --- A trial -------------------------------------------------------------------------------- */

typedef struct {
    Product *product;
    Pointers at;
    void *other; /* a second C */
    int64_t bytes;
} Trial;

/* A strip of 128 lines of a matrix: numbers of e4m3 times powers of two, as bf16.  A run of 128 has a size of its own,
 * of which large ones are rare, times one of its square of 128 lines: so scales differ from those of their neighbours
 * along either stride, be they of runs or of squares. */
static void fill_strip(uint16_t *lines, int64_t pitch, int strip, uint32_t *state)
{
    enum { RUN = RT_ENCODE_BLOCK, MOST = 9, SIZES = 4, STEP = 3 };
    uint32_t exponent = 0;
    for (int64_t i = 0; i < RUN * pitch; i++) {
        if (i % pitch % RUN == 0) {
            exponent = 127 - 8 + STEP * (uint32_t)((strip + i % pitch / RUN) % SIZES);
            for (int more = 0; more < MOST && rt_gpu_random(state) >> 31; more++)
                exponent++;
        }
        const uint32_t bits = rt_gpu_random(state);
        lines[i] = (uint16_t)((bits & 0x8000) | exponent << 7 | (bits >> 16 & 0x70));
    }
}

/* A matrix whose lines are `pitch` elements apart. */
static void fill(Rt *rt, char *to, int64_t bytes, int64_t pitch)
{
    enum { STRIPS = 4 }; /* that are different: they take turns */
    const int64_t elements = RT_ENCODE_BLOCK * pitch, strip = elements * (int64_t)sizeof(uint16_t);
    uint16_t *lines = rt_allocate(STRIPS * elements, sizeof *lines);
    uint32_t state = 2463534242u;
    for (int i = 0; i < STRIPS && i * strip < bytes; i++)
        fill_strip(lines + i * elements, pitch, i, &state);
    for (int64_t done = 0; done < bytes; done += STRIPS * strip)
        rt_gpu_upload(rt, to + done, lines, bytes - done < STRIPS * strip ? bytes - done : STRIPS * strip);
    free(lines);
}

/* False if it does not fit in the arena. */
static bool open_trial(Rt *rt, Product *p, Trial *t)
{
    *t = (Trial){ .product = p, .bytes = rt_product_result_bytes(&p->shape) };
    char *rest = rt_product_place(rt, &p->shape, true, &t->at);
    t->other = rest;
    if (!rest || rest + t->bytes > rt->arena + rt_arena_bytes(rt))
        return false;
    const RtProductShape *shape = &p->shape;
    char *const a = (char *)t->at.a, *const b = (char *)t->at.b, *const c = t->at.c;
    fill(rt, a, b - a, shape->a.row * shape->a.column);
    fill(rt, b, c - b, shape->b.row * shape->b.column);
    fill(rt, c, rest - c, RT_ENCODE_BLOCK);
    return true;
}

static bool queue(Rt *rt, void *data)
{
    const Trial *t = data;
    rt_product_queue(rt, t->product, &t->at);
    return true;
}

static bool queue_plain(Rt *rt, const Trial *t, void *c, bool in_eight)
{
    const Product *p = t->product;
    const Pointers plain = { .a = t->at.a, .b = t->at.b, .c = c };
    rt_zero_bytes(rt, c, t->bytes);
    if (in_eight)
        return rt_eight_run(rt, p, &plain) == CUBLAS_STATUS_SUCCESS;
    return rt_product_plain(rt, t->product, &plain) == CUBLAS_STATUS_SUCCESS;
}

static double element(RtType type, const void *values, int64_t i)
{
    return type == RT_F32 ? (double)((const float *)values)[i]
                          : (double)rt_float_of_bf16(((const uint16_t *)values)[i]);
}

/* Row by row.  Sums of products of 4 bits each are nearly exact in 16 bits; in 8, a tensor core adds 14 bits or more of
 * each term (DeepSeek-V3, section 3.3.2), and results in bf16 are rounded to 2^-9.  A scale that belongs to another
 * block changes a row by at least a half of its terms' part in it. */
static bool are_equal(const RtProductShape *s, const void *a, const void *b)
{
    const double share = 1.0 / 64;
    for (int64_t row = 0; row < s->m; row++) {
        double size = 0, difference = 0;
        for (int64_t column = 0; column < s->n; column++) {
            const int64_t i = row * s->c.row + column * s->c.column;
            const double x = element(s->c.type, a, i), y = element(s->c.type, b, i);
            size += x * x;
            difference += (x - y) * (x - y);
        }
        if (!(sqrt(difference) <= share * sqrt(size)))
            return false;
    }
    return true;
}

static bool is_right(Rt *rt, const Trial *t)
{
    if (!queue_plain(rt, t, t->other, false) || !queue_plain(rt, t, t->at.c, true))
        return false;
    void *in_16 = rt_gpu_downloaded(rt, t->other, t->bytes), *in_8 = rt_gpu_downloaded(rt, t->at.c, t->bytes);
    bool same = are_equal(&t->product->shape, in_16, in_8) && queue_plain(rt, t, t->at.c, true);
    if (same) {
        void *again = rt_gpu_downloaded(rt, t->at.c, t->bytes);
        same = memcmp(again, in_8, (size_t)t->bytes) == 0;
        free(again);
    }
    free(in_16);
    free(in_8);
    return same;
}

/* --- Choices -------------------------------------------------------------------------------- */

typedef struct {
    bool is_better;
    Way way;
    cublasLtMatmulAlgo_t algorithm;
} Choice;

static void choose_kernel(EightBits *eight, Way way, const cublasLtMatmulAlgo_t *algorithm)
{
    eight->way = way;
    eight->algorithm = *algorithm;
}

/* The time of the product with its epilogue in 8 bits in one way, by the fastest kernel, which is taken. */
static double time_of_fastest(Rt *rt, Trial *t, Way way, const Kernels *found)
{
    EightBits *eight = t->product->eight;
    double least = INFINITY;
    int best = 0;
    eight->is_used = true;
    for (int i = 0; i < found->count; i++) {
        choose_kernel(eight, way, &found->result[i].algo);
        const double time = rt_gpu_time(rt, queue, t);
        if (time < least) {
            best = i;
            least = time;
        }
    }
    eight->is_used = false;
    choose_kernel(eight, way, &found->result[best].algo);
    return least;
}

/* Takes the fastest way that is right, and its time; INFINITY: none is. */
static double time_of_best(Rt *rt, Trial *t, const Kernels found[N_WAYS])
{
    EightBits *eight = t->product->eight;
    double least = INFINITY;
    EightBits best = *eight;
    for (Way way = 0; way < N_WAYS; way++) {
        const double time = found[way].count ? time_of_fastest(rt, t, way, &found[way]) : INFINITY;
        if (time < least && is_right(rt, t)) {
            best = *eight;
            least = time;
        }
    }
    *eight = best;
    return least;
}

static bool queue_encoding(Rt *rt, void *data)
{
    const Trial *t = data;
    rt_eight_encode(rt, t->product, &t->at);
    return true;
}

/* The time in 16 bits; operands that are not rounded yet have to be, which takes about as long as to encode them: it
 * moves 4 or 6 bytes for an element instead of 3, but some are rounded for several products. */
static double time_in_16(Rt *rt, Trial *t)
{
    const double own = rt_gpu_time(rt, queue, t);
    return t->product->shape.unrounded ? own + rt_gpu_time(rt, queue_encoding, t) : own;
}

/* Are 8 bits right, and faster, as the product is computed with its epilogue?  Said for those who read it. */
static bool is_better(Rt *rt, Trial *t, const Kernels found[N_WAYS])
{
    const double least_gain = 0.97;
    const RtProductShape *s = &t->product->shape;
    const double in_8 = time_of_best(rt, t, found);
    if (isinf(in_8)) {
        rt_note("products: %lld x %lld x %lld in 8 bits is not what it is in 16 bits: 16 bits are used",
                (long long)s->m, (long long)s->n, (long long)s->k);
        return false;
    }
    const double in_16 = time_in_16(rt, t);
    rt_note("products: %lld x %lld x %lld: %.3f ms in 8 bits%s, %.3f ms in 16", (long long)s->m, (long long)s->n,
            (long long)s->k, in_8, t->product->eight->way == BY_SQUARES ? " by squares" : "", in_16);
    return in_8 < least_gain * in_16;
}

static Choice choose(Rt *rt, const char *folder, Product *p, int *tried)
{
    Kernels found[N_WAYS] = { 0 };
    char *text = rt_product_text(rt, &p->shape, true), *key = rt_cache_key(1, (const char *const[]){ text }, "fp8");
    size_t bytes = 0;
    Choice *kept = rt_cache_find(folder, key, &bytes), choice = { .is_better = false };
    const bool is_kept = kept && bytes == sizeof choice && kept->way < N_WAYS;
    Trial t;
    if (is_kept)
        choice = *kept;
    int count = 0;
    for (Way way = 0; way < N_WAYS && !is_kept; way++)
        count += find_kernels(rt, p, &p->eight->by[way], &found[way]);
    if (count > 0 && open_trial(rt, p, &t)) {
        (*tried)++;
        choice.is_better = is_better(rt, &t, found);
        choice.way = p->eight->way;
        choice.algorithm = p->eight->algorithm;
        rt_cache_keep(folder, key, &choice, sizeof choice);
    }
    free(kept);
    free(key);
    free(text);
    return choice;
}

/* Of encoded operands, if the product is computed in 8 bits: in the way of `choice`, or in any. */
static int64_t bytes_of(const Product *p, const Choice *choice)
{
    int64_t most = 0;
    for (Way way = 0; way < N_WAYS && p->eight && (!choice || choice->is_better); way++)
        if ((!choice || choice->way == way) && p->eight->by[way].bytes > most)
            most = p->eight->by[way].bytes;
    return most;
}

/* Takes memory for the largest pair of operands of those that are `wanted`, or of all; false, on all ranks and with
 * none taken, if one has too little. */
static bool take_memory(Rt *rt, const Choice wanted[])
{
    const struct RtGpuProducts *all = rt->gpu->products;
    int64_t bytes = 0;
    for (int i = 0; i < all->count; i++) {
        const int64_t needed = bytes_of(&all->product[i], wanted ? &wanted[i] : NULL);
        bytes = needed > bytes ? needed : bytes;
    }
    rt_gpu_check(rt, cudaFree(rt->gpu->encode_space), "free memory");
    void *memory = NULL;
    if (rt_gpu_free_memory(rt) < bytes || bytes == 0 || cudaMalloc(&memory, (size_t)bytes) != cudaSuccess)
        memory = NULL;
    const bool everywhere = rt_comm_max(rt, memory ? 0 : 1) == 0;
    if (!everywhere)
        rt_gpu_check(rt, cudaFree(memory), "free memory");
    rt->gpu->encode_space = everywhere ? memory : NULL;
    rt->gpu->encode_bytes = everywhere ? bytes : 0;
    return everywhere;
}

/* On all ranks, or on none. */
static int use(Rt *rt, const Choice chosen[])
{
    const struct RtGpuProducts *all = rt->gpu->products;
    const bool has_memory = take_memory(rt, chosen);
    int used = 0;
    for (int i = 0; i < all->count; i++) {
        const Product *p = &all->product[i];
        const Way way = chosen[i].way;
        const bool is_ready = has_memory && chosen[i].is_better && p->eight->by[way].request.description &&
                              rt_eight_point(rt, &p->eight->by[way]);
        if (rt_comm_max(rt, is_ready ? 0 : 1) > 0)
            continue;
        choose_kernel(p->eight, way, &chosen[i].algorithm);
        p->eight->is_used = true;
        used++;
    }
    return used;
}

void rt_gpu_eights_choose(Rt *rt)
{
    const struct RtGpuProducts *all = rt->gpu->products;
    int described = 0, tried = 0;
    for (int i = 0; i < all->count; i++)
        described += all->product[i].eight != NULL;
    if (rt_comm_max(rt, -(double)described) >= 0 || !take_memory(rt, NULL))
        return;
    char *folder = rt_cache_folder(rt->gpu->options.kernel_cache);
    Choice *chosen = rt_allocate(all->count, sizeof *chosen);
    RtCacheLock lock = rt_cache_lock(folder, "fp8");
    for (int i = 0; i < all->count; i++)
        if (all->product[i].eight)
            chosen[i] = choose(rt, folder, &all->product[i], &tried);
    rt_cache_unlock(&lock);
    if (rt->ranks > 1)
        rt_gpu_agree(rt, all->cublasLtGetVersion(), chosen, (int64_t)sizeof *chosen * all->count);
    const int used = use(rt, chosen);
    if (tried)
        rt_zero(rt, 0, rt_arena_bytes(rt));
    rt_note("products: %d of %d in 8 bits (--no-fp8: none)", used, described);
    free(chosen);
    free(folder);
}
