/* tune.c -- the fastest of cuBLASLt's kernels for each product: timed once, when a trainer starts, and kept in the
 * cache of kernels by GPU, version of cuBLASLt and shape.
 *
 * The arena is free then: operands are in it. */
#include "product.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CANDIDATES = 8, TIMED = ALIGNMENTS - 1, PLACE = LEAST_ALIGNMENT << TIMED }; /* the alignment of planned values */

typedef struct {
    cublasLtMatmulAlgo_t algorithm;
    bool is_chosen;
} Choice;

/* --- Operands in the arena ------------------------------------------------------------------ */

/* The bytes of `rows` x `columns` elements, `batch` times, with these strides. */
static int64_t bytes_of(RtType type, int64_t rows, int64_t row, int64_t columns, int64_t column, int64_t batch,
                        int64_t stride)
{
    int64_t last = (rows - 1) * row + (columns - 1) * column + (batch - 1) * stride;
    return (last + 1) * (type == RT_F32 ? 4 : 2);
}

static void *take(char **at, int64_t bytes)
{
    void *place = *at;
    *at += (bytes + PLACE - 1) / PLACE * PLACE;
    return place;
}

int64_t rt_product_result_bytes(const RtProductShape *s)
{
    return bytes_of(s->c.type, s->m, s->c.row, s->n, s->c.column, s->batch, s->c.batch);
}

char *rt_product_place(const Rt *rt, const RtProductShape *s, bool with_epilogue, Pointers *p)
{
    char *at = rt->arena + (PLACE - (uintptr_t)rt->arena % PLACE) % PLACE;
    const int64_t c = rt_product_result_bytes(s);
    *p = (Pointers){ .a = NULL };
    p->a = take(&at, bytes_of(s->a.type, s->m, s->a.row, s->k, s->a.column, s->batch, s->a.batch));
    p->b = take(&at, bytes_of(s->b.type, s->k, s->b.row, s->n, s->b.column, s->batch, s->b.batch));
    p->c = take(&at, c);
    p->bias = with_epilogue && s->has_bias ? take(&at, s->n * 4) : NULL;
    p->at = with_epilogue && s->activation == RT_GELU_TANH_SLOPE ? take(&at, c) : NULL;
    p->before = with_epilogue && s->keeps_before ? take(&at, c) : NULL;
    const int64_t sums = (s->sums == RT_SUMS_A ? s->m : s->n) + (s->batch - 1) * s->between_sums;
    p->sums = with_epilogue && s->sums ? take(&at, sums * 4) : NULL;
    return at <= rt->arena + rt_arena_bytes(rt) ? at : NULL;
}

/* --- Times ----------------------------------------------------------------------------------- */

double rt_gpu_time(Rt *rt, bool (*queue)(Rt *rt, void *data), void *data)
{
    enum { RUNS = 3 };
    cudaEvent_t event[2];
    float milliseconds = INFINITY;
    bool is_queued = true;
    for (int i = 0; i < 2; i++)
        rt_gpu_check(rt, cudaEventCreate(&event[i]), "make an event");
    for (int run = -1; run < RUNS && is_queued; run++) {
        if (run == 0)
            rt_gpu_check(rt, cudaEventRecord(event[0], rt->gpu->compute), "time a kernel");
        is_queued = queue(rt, data);
    }
    if (is_queued) {
        rt_gpu_check(rt, cudaEventRecord(event[1], rt->gpu->compute), "time a kernel");
        rt_gpu_check(rt, cudaEventSynchronize(event[1]), "time a kernel");
        rt_gpu_check(rt, cudaEventElapsedTime(&milliseconds, event[0], event[1]), "time a kernel");
    }
    for (int i = 0; i < 2; i++)
        rt_gpu_check(rt, cudaEventDestroy(event[i]), "drop an event");
    return (double)milliseconds / RUNS;
}

typedef struct {
    const Product *product;
    const Request *request;
    const Pointers *at;
    const cublasLtMatmulAlgo_t *algorithm;
} Candidate;

static bool queue_candidate(Rt *rt, void *data)
{
    const Candidate *c = data;
    return rt_product_run(rt, c->product, c->request, c->at, c->algorithm) == CUBLAS_STATUS_SUCCESS;
}

/* The first, supposedly the fastest, unless another is clearly faster. */
static int fastest(Rt *rt, const Product *p, const Request *request, const Pointers *at, int count,
                   const cublasLtMatmulHeuristicResult_t found[])
{
    const double least_gain = 0.97;
    int best = 0;
    double least = INFINITY;
    for (int i = 0; i < count; i++) {
        const double time = rt_gpu_time(rt, queue_candidate, &(Candidate){ p, request, at, &found[i].algo });
        if (time < least * (i ? least_gain : 1)) {
            best = i;
            least = time;
        }
    }
    return best;
}

/* --- Choices --------------------------------------------------------------------------------- */

char *rt_product_text(const Rt *rt, const RtProductShape *s, bool with_epilogue)
{
    const __typeof__(s->a) *const m[] = { &s->a, &s->b, &s->c };
    char *text =
        rt_text("%s, cuBLASLt %zu, %d %d %d %d, %lld x %lld x %lld, %lld times%s%s%s", rt->gpu->model,
                rt->gpu->products->cublasLtGetVersion(), with_epilogue ? s->has_bias : 0,
                with_epilogue ? s->activation : 0, with_epilogue ? s->keeps_before : 0, with_epilogue ? s->sums : 0,
                (long long)s->m, (long long)s->n, (long long)s->k, (long long)s->batch, s->accumulate ? ", added" : "",
                s->squares == RT_SQUARES_A   ? ", squares of A"
                : s->squares == RT_SQUARES_B ? ", squares of B"
                                             : "",
                s->unrounded ? ", unrounded" : "");
    for (int i = 0; i < OPERANDS; i++) {
        char *longer = rt_text("%s, %d %lld %lld %lld", text, m[i]->type, (long long)m[i]->row, (long long)m[i]->column,
                               (long long)m[i]->batch);
        free(text);
        text = longer;
    }
    return text;
}

static char *key_of(const Rt *rt, const RtProductShape *s, bool with_epilogue)
{
    char *text = rt_product_text(rt, s, with_epilogue),
         *key = rt_cache_key(1, (const char *const[]){ text }, "product");
    free(text);
    return key;
}

/* False if there is nothing to choose. */
static bool choose(Rt *rt, const char *folder, const Product *p, const Request *request, Choice *choice, int *timed)
{
    const bool with_epilogue = request == &p->with;
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    Pointers at;
    char *key = key_of(rt, &p->shape, with_epilogue);
    size_t bytes = 0;
    void *kept = rt_cache_find(folder, key, &bytes);
    int count = 0;
    choice->is_chosen = kept && bytes == sizeof choice->algorithm;
    if (choice->is_chosen)
        memcpy(&choice->algorithm, kept, bytes);
    else if (rt_product_place(rt, &p->shape, with_epilogue, &at) &&
             (!with_epilogue || rt_product_point(rt->gpu->products, p, &at)))
        count = rt_product_kernels(rt->gpu->products, p, request, p->layout, TIMED, CANDIDATES, found, NULL);
    if (count > 1) {
        if (!(*timed)++)
            rt_gpu_fill(rt, rt->arena, rt_arena_bytes(rt));
        choice->algorithm = found[fastest(rt, p, request, &at, count, found)].algo;
        choice->is_chosen = true;
        rt_cache_keep(folder, key, &choice->algorithm, sizeof choice->algorithm);
    }
    free(kept);
    free(key);
    return choice->is_chosen;
}

static void take_choice(Request *request, const Choice *choice)
{
    if (!choice->is_chosen)
        return;
    request->algorithm[TIMED] = choice->algorithm;
    request->was_asked[TIMED] = request->has_algorithm[TIMED] = true;
}

uint32_t rt_gpu_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

void rt_gpu_agree(Rt *rt, size_t version, void *choices, int64_t bytes)
{
    struct {
        char model[sizeof rt->gpu->model];
        size_t version;
    } own = { .version = version }, *all = rt_allocate(rt->ranks, sizeof *all);
    memcpy(own.model, rt->gpu->model, sizeof own.model);
    char *of_all = rt_allocate(rt->ranks, bytes);
    rt_comm_gather(rt, &own, sizeof own, (char *)all);
    rt_comm_gather(rt, choices, bytes, of_all);
    int rank = 0;
    while (memcmp(&all[rank], &own, sizeof own) != 0)
        rank++;
    memcpy(choices, of_all + rank * bytes, (size_t)bytes);
    free(of_all);
    free(all);
}

void rt_gpu_products_choose(Rt *rt)
{
    struct RtGpuProducts *all = rt->gpu->products;
    const double begin = rt_seconds();
    char *folder = rt_cache_folder(rt->gpu->options.kernel_cache);
    Choice *choice = rt_allocate(2 * (int64_t)all->count + 1, sizeof *choice);
    int timed = 0, chosen = 0;
    RtCacheLock lock = rt_cache_lock(folder, "products");
    for (int i = 0; i < 2 * all->count; i++) {
        const Product *p = &all->product[i / 2];
        const Request *request = i % 2 ? &p->with : &p->plain;
        chosen += request->description && choose(rt, folder, p, request, &choice[i], &timed);
    }
    rt_cache_unlock(&lock);
    if (rt->ranks > 1)
        rt_gpu_agree(rt, all->cublasLtGetVersion(), choice, 2 * (int64_t)sizeof *choice * all->count);
    for (int i = 0; i < 2 * all->count; i++)
        take_choice(i % 2 ? &all->product[i / 2].with : &all->product[i / 2].plain, &choice[i]);
    if (timed) {
        rt_zero(rt, 0, rt_arena_bytes(rt));
        rt_note("products: kernels of %d of %d chosen by time in %.1f s, kept in %s", timed, chosen,
                rt_seconds() - begin, folder);
    }
    free(choice);
    free(folder);
}
