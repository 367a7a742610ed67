/* attention_choose.c -- by cuDNN or by the program's kernels?  Both are tried once, on random operands, when a trainer
 * starts: cuDNN is taken if its results are the same but for rounding, the same bits twice, and it is faster.  The
 * answer is kept in the cache of kernels by GPU, version of cuDNN and shape.
 *
 * cuDNN's workspace, of all gradients together as large as the largest, is not in the planned memory: a gradient that
 * always has the same bits needs about 2 bytes for each score.  It is taken from what is free, or cuDNN is not used. */
#include "attention.h"
#include "convert.h"
#include "gpu.h"
#include "mesh/comm.h"
#include "sizes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OPERANDS = RT_ATTEND_SHARE };

/* Operands on the GPU, and results twice: of the kernels and of cuDNN. */
typedef struct {
    const RtAttention *attention;
    int count;
    int64_t bytes[MOST_OPERANDS];
    void *by_kernels[MOST_OPERANDS], *by_cudnn[MOST_OPERANDS];
    char *memory, *workspace;
} Trial;

/* --- Operands ------------------------------------------------------------------------------- */

/* The bytes of heads with these strides, up to the last. */
static int64_t heads_bytes(const RtAttentionShape *s, const RtHeads *h, bool of_keys)
{
    const int64_t heads = of_keys ? s->key_heads : s->heads, rows = of_keys ? s->keys : s->queries;
    return 2 * ((s->batch - 1) * h->batch + (heads - 1) * h->head + (rows - 1) * h->row + s->feature);
}

static int64_t operand_bytes(const RtAttentionShape *s, int number)
{
    const RtHeads *const heads[] = {
        [RT_ATTEND_Q] = &s->q,   [RT_ATTEND_K] = &s->k,   [RT_ATTEND_V] = &s->v,   [RT_ATTEND_Y] = &s->y,
        [RT_ATTEND_DY] = &s->dy, [RT_ATTEND_DQ] = &s->dq, [RT_ATTEND_DK] = &s->dk, [RT_ATTEND_DV] = &s->dv
    };
    if (number == RT_ATTEND_SUM || number == RT_ATTEND_SHARE)
        return s->batch * s->heads * s->queries * (int64_t)sizeof(float);
    return heads_bytes(s, heads[number],
                       number == RT_ATTEND_K || number == RT_ATTEND_V || number == RT_ATTEND_DK ||
                           number == RT_ATTEND_DV);
}

static bool is_result(const RtAttentionShape *s, int number)
{
    return s->is_gradient ? number >= RT_ATTEND_DQ : number >= RT_ATTEND_Y;
}

/* Standard deviation of scores, if q and k are uniform in (-1, 1): their variance is 1/3. */
static double spread_of(const RtAttentionShape *s) { return (double)s->scale * sqrt((double)s->feature) / 3; }

/* Uniform in (-1, 1), but q such that scores differ by SPREAD; and the log-sum-exp large enough that no weight is above
 * 1, which is where it would be if no score were more than 7 SPREAD. */
static void fill(Rt *rt, const RtAttentionShape *s, int number, void *at, int64_t bytes)
{
    const double spread = 2.0 / 3, size = number == RT_ATTEND_Q ? spread / spread_of(s) : 1;
    char *values = rt_allocate(bytes, 1);
    uint32_t state = 2463534242u + (uint32_t)number;
    if (number == RT_ATTEND_SUM) {
        for (int64_t i = 0; i < bytes / 4; i++)
            ((float *)values)[i] = (float)(7 * spread + rt_gpu_random(&state) * 0x1p-32);
    } else {
        for (int64_t i = 0; i < bytes / 2; i++) {
            const float value = (float)(size * (rt_gpu_random(&state) * 0x1p-31 - 1));
            ((uint16_t *)values)[i] = s->type == RT_F16 ? rt_f16_of_float(value) : rt_bf16_of_float(value);
        }
    }
    rt_gpu_upload(rt, at, values, bytes);
    free(values);
}

static void *take(char **at, int64_t bytes)
{
    void *place = *at;
    *at += rt_gpu_aligned(bytes);
    return place;
}

/* False without enough free memory. */
static bool open_trial(Rt *rt, const RtAttention *attention, Trial *t)
{
    const RtAttentionShape *s = attention->shape;
    int64_t bytes = rt_gpu_aligned(attention->graph.workspace);
    *t = (Trial){ .attention = attention, .count = rt_attention_operands(s) };
    for (int i = 0; i < t->count; i++) {
        t->bytes[i] = operand_bytes(s, i + 1);
        bytes += 2 * rt_gpu_aligned(t->bytes[i]);
    }
    void *memory;
    if (cudaMalloc(&memory, (size_t)bytes) != cudaSuccess)
        return false;
    char *at = t->memory = memory;
    t->workspace = take(&at, attention->graph.workspace);
    for (int i = 0; i < t->count; i++) {
        t->by_kernels[i] = t->by_cudnn[i] = take(&at, t->bytes[i]);
        if (is_result(s, i + 1)) {
            t->by_cudnn[i] = take(&at, t->bytes[i]);
            rt_zero_bytes(rt, t->by_kernels[i], t->bytes[i]);
            rt_zero_bytes(rt, t->by_cudnn[i], t->bytes[i]);
        } else {
            fill(rt, s, i + 1, t->by_kernels[i], t->bytes[i]);
        }
    }
    return true;
}

static bool queue_kernels(Rt *rt, void *data)
{
    const Trial *t = data;
    rt_launch(rt, t->attention->shape->kernels, (const void *const *)t->by_kernels);
    return true;
}

static bool queue_cudnn(Rt *rt, void *data)
{
    const Trial *t = data;
    (void)rt;
    return rt_attention_by_cudnn(t->attention, (const void *const *)t->by_cudnn, t->workspace);
}

/* --- Results -------------------------------------------------------------------------------- */

static float element(const RtAttentionShape *s, int number, const void *values, int64_t i)
{
    if (number == RT_ATTEND_SUM)
        return ((const float *)values)[i];
    const uint16_t bits = ((const uint16_t *)values)[i];
    return s->type == RT_F16 ? rt_float_of_f16(bits) : rt_float_of_bf16(bits);
}

/* Row by row: each is a sum of many random terms with weights that are rounded to 2^-9 of themselves, and rounded
 * itself. A key that is seen but should not be, or the other way round, changes a row of n keys by about 1 / sqrt(n) of
 * it. */
static bool are_equal(const RtAttentionShape *s, int number, const void *a, const void *b, int64_t bytes)
{
    const double share = 1.0 / 64, least = 1e-6;
    const int64_t length = number == RT_ATTEND_SUM ? 1 : s->feature, count = bytes / (number == RT_ATTEND_SUM ? 4 : 2);
    for (int64_t row = 0; row < count; row += length) {
        double size = 0, difference = 0;
        for (int64_t i = row; i < row + length && i < count; i++) {
            const double x = (double)element(s, number, a, i), y = (double)element(s, number, b, i);
            size += x * x;
            difference += (x - y) * (x - y);
        }
        if (!(sqrt(difference) <= share * sqrt(size) + least))
            return false;
    }
    return true;
}

/* After one run of each, and a second of cuDNN. */
static bool has_same_results(Rt *rt, Trial *t)
{
    const RtAttentionShape *s = t->attention->shape;
    bool same = queue_kernels(rt, t) && queue_cudnn(rt, t);
    void *first[MOST_OPERANDS] = { NULL };
    for (int i = 0; i < t->count && same; i++)
        if (is_result(s, i + 1) && i + 1 != RT_ATTEND_SHARE) {
            void *by_kernels = rt_gpu_downloaded(rt, t->by_kernels[i], t->bytes[i]);
            first[i] = rt_gpu_downloaded(rt, t->by_cudnn[i], t->bytes[i]);
            same = are_equal(s, i + 1, by_kernels, first[i], t->bytes[i]);
            free(by_kernels);
        }
    same = same && queue_cudnn(rt, t);
    for (int i = 0; i < t->count; i++) {
        void *second = same && first[i] ? rt_gpu_downloaded(rt, t->by_cudnn[i], t->bytes[i]) : NULL;
        same = same && (!second || memcmp(first[i], second, (size_t)t->bytes[i]) == 0);
        free(second);
        free(first[i]);
    }
    return same;
}

/* --- Choices -------------------------------------------------------------------------------- */

static char *key_of(const Rt *rt, const RtAttentionShape *s)
{
    const RtHeads *const heads[] = { &s->q, &s->k, &s->v, &s->y, &s->dy, &s->dq, &s->dk, &s->dv };
    char *text = rt_text("%s, cuDNN %zu, %lld %lld %lld %lld %lld %lld, %d %d %lld %a %d", rt->gpu->model,
                         rt->gpu->attentions->version, (long long)s->batch, (long long)s->queries, (long long)s->keys,
                         (long long)s->heads, (long long)s->key_heads, (long long)s->feature, s->type, s->causal,
                         (long long)s->window, (double)s->scale, s->is_gradient);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        rt_append(&text, ", %lld %lld %lld", (long long)heads[i]->batch, (long long)heads[i]->row,
                  (long long)heads[i]->head);
    char *key = rt_cache_key(1, (const char *const[]){ text }, "attention");
    free(text);
    return key;
}

/* Both as fast as they are, said for those who read it. */
static bool is_faster(Rt *rt, Trial *t)
{
    const double least_gain = 0.97;
    const RtAttentionShape *s = t->attention->shape;
    const double by_cudnn = rt_gpu_time(rt, queue_cudnn, t), by_kernels = rt_gpu_time(rt, queue_kernels, t);
    rt_note(
        "attention: %s of %lld x %lld heads, %lld queries, %lld keys, %lld features: %.3f ms by cuDNN, %.3f ms by mpc",
        s->is_gradient ? "gradient" : "forward", (long long)s->batch, (long long)s->heads, (long long)s->queries,
        (long long)s->keys, (long long)s->feature, by_cudnn, by_kernels);
    return by_cudnn < least_gain * by_kernels;
}

/* Is cuDNN right and faster?  Not known, and so false, without memory to try it or for its plan. */
static bool is_better(Rt *rt, RtAttention *attention, int64_t most_workspace, bool *is_known)
{
    Trial t;
    const bool has_plan = rt_attention_plan(rt->gpu->attentions, attention, most_workspace);
    *is_known = attention->graph.nengines == 0;
    if (!has_plan)
        return false;
    *is_known = open_trial(rt, attention, &t);
    if (!*is_known)
        return false;
    const bool is_right = has_same_results(rt, &t), is_taken = is_right && is_faster(rt, &t);
    rt_gpu_check(rt, cudaFree(t.memory), "free memory");
    if (!is_right)
        rt_note("attention: cuDNN's results are not those of the program's kernels: it is not used for this shape");
    return is_taken;
}

static bool choose(Rt *rt, const char *folder, RtAttention *attention, int64_t most_workspace, int *tried)
{
    char *key = key_of(rt, attention->shape), answer = 'n';
    size_t bytes = 0;
    char *kept = rt_cache_find(folder, key, &bytes);
    if (kept) {
        answer = *kept;
    } else {
        bool is_known;
        (*tried)++;
        answer = is_better(rt, attention, most_workspace, &is_known) ? 'y' : 'n';
        if (is_known)
            rt_cache_keep(folder, key, &answer, 1);
    }
    free(kept);
    free(key);
    return answer == 'y';
}

/* Makes the plans of those that are chosen, and takes the memory they need; on all ranks, or on none. */
static int use(Rt *rt, const bool chosen[], int64_t most_workspace)
{
    struct RtGpuAttentions *all = rt->gpu->attentions;
    int used = 0;
    for (int i = 0; i < all->count; i++) {
        RtAttention *attention = &all->attention[i];
        const bool has_plan = chosen[i] && (attention->graph.plan || rt_attention_plan(all, attention, most_workspace));
        if (rt_comm_max(rt, has_plan ? 0 : 1) > 0) {
            rt_cudnn_close(&attention->graph);
            continue;
        }
        used++;
        if (attention->graph.workspace > rt->gpu->attention_bytes)
            rt->gpu->attention_bytes = attention->graph.workspace;
    }
    if (rt->gpu->attention_bytes)
        rt_gpu_check(rt, cudaMalloc(&all->workspace, (size_t)rt->gpu->attention_bytes), "get memory for cuDNN");
    return used;
}

void rt_gpu_attentions_choose(Rt *rt)
{
    struct RtGpuAttentions *all = rt->gpu->attentions;
    if (!all || rt->gpu->options.no_cudnn)
        return;
    const bool everywhere = rt_comm_max(rt, -(double)all->version) < 0;
    const int64_t most_workspace = everywhere ? rt_gpu_free_memory(rt) : 0;
    if (!everywhere || most_workspace <= 0)
        return;
    char *folder = rt_cache_folder(rt->gpu->options.kernel_cache);
    bool *chosen = rt_allocate(all->count, sizeof *chosen);
    int tried = 0, better = 0;
    RtCacheLock lock = rt_cache_lock(folder, "attentions");
    for (int i = 0; i < all->count; i++)
        chosen[i] = choose(rt, folder, &all->attention[i], most_workspace, &tried);
    rt_cache_unlock(&lock);
    if (rt->ranks > 1)
        rt_gpu_agree(rt, all->version, chosen, (int64_t)sizeof *chosen * all->count);
    const int used = use(rt, chosen, most_workspace);
    for (int i = 0; i < all->count; i++)
        better += chosen[i];
    if (tried || better)
        rt_note("attention: cuDNN %zu.%zu computes %d of %d (--no-cudnn: none)", all->version / 10000,
                all->version / 100 % 100, used, all->count);
    free(chosen);
    free(folder);
}
