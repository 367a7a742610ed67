/* attention_choose.c -- chooses who computes attention: cuDNN, the kernel for Hopper, or the program's general kernels.
 * When a trainer starts, each runs once on random operands; of those whose results agree with the general kernels but
 * for rounding, and repeat bit for bit, the fastest is taken.  The answer is kept in the cache of kernels by GPU,
 * version of cuDNN, kernels and shape.
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

/* Operands on the GPU, and results twice: of the general kernels and of a candidate. */
typedef struct {
    const RtAttention *attention;
    int count;
    int64_t bytes[MOST_OPERANDS];
    void *by_kernels[MOST_OPERANDS], *by_candidate[MOST_OPERANDS];
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
        t->by_kernels[i] = t->by_candidate[i] = take(&at, t->bytes[i]);
        if (is_result(s, i + 1)) {
            t->by_candidate[i] = take(&at, t->bytes[i]);
            rt_zero_bytes(rt, t->by_kernels[i], t->bytes[i]);
            rt_zero_bytes(rt, t->by_candidate[i], t->bytes[i]);
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

static bool queue_hopper(Rt *rt, void *data)
{
    const Trial *t = data;
    return rt_attention_by_hopper(rt, t->attention, (const void *const *)t->by_candidate);
}

static bool queue_cudnn(Rt *rt, void *data)
{
    const Trial *t = data;
    (void)rt;
    return rt_attention_by_cudnn(t->attention, (const void *const *)t->by_candidate, t->workspace);
}

static const struct {
    const char *name;
    bool (*queue)(Rt *rt, void *trial);
} kinds[] = { [RT_BY_KERNELS] = { "mpc", queue_kernels },
              [RT_BY_HOPPER] = { "mpc's kernel for Hopper", queue_hopper },
              [RT_BY_CUDNN] = { "cuDNN", queue_cudnn } };

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

/* After a run of each, and a second one of the candidate. */
static bool has_same_results(Rt *rt, Trial *t, RtAttentionKind kind)
{
    const RtAttentionShape *s = t->attention->shape;
    bool same = queue_kernels(rt, t) && kinds[kind].queue(rt, t);
    void *first[MOST_OPERANDS] = { NULL };
    for (int i = 0; i < t->count && same; i++)
        if (is_result(s, i + 1) && i + 1 != RT_ATTEND_SHARE) {
            void *by_kernels = rt_gpu_downloaded(rt, t->by_kernels[i], t->bytes[i]);
            first[i] = rt_gpu_downloaded(rt, t->by_candidate[i], t->bytes[i]);
            same = are_equal(s, i + 1, by_kernels, first[i], t->bytes[i]);
            free(by_kernels);
        }
    same = same && kinds[kind].queue(rt, t);
    for (int i = 0; i < t->count; i++) {
        void *second = same && first[i] ? rt_gpu_downloaded(rt, t->by_candidate[i], t->bytes[i]) : NULL;
        same = same && (!second || memcmp(first[i], second, (size_t)t->bytes[i]) == 0);
        free(second);
        free(first[i]);
    }
    return same;
}

/* --- Choices -------------------------------------------------------------------------------- */

static char *key_of(const Rt *rt, const RtAttention *attention)
{
    const RtAttentionShape *s = attention->shape;
    const RtHeads *const heads[] = { &s->q, &s->k, &s->v, &s->y, &s->dy, &s->dq, &s->dk, &s->dv };
    char *text =
        rt_text("%s, cuDNN %zu, Hopper %d, %lld %lld %lld %lld %lld %lld, %d %d %lld %a %d", rt->gpu->model,
                rt->gpu->attentions->version, attention->hopper != NULL, (long long)s->batch, (long long)s->queries,
                (long long)s->keys, (long long)s->heads, (long long)s->key_heads, (long long)s->feature, s->type,
                s->causal, (long long)s->window, (double)s->scale, s->is_gradient);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        rt_append(&text, ", %lld %lld %lld", (long long)heads[i]->batch, (long long)heads[i]->row,
                  (long long)heads[i]->head);
    char *key = rt_cache_key(2, (const char *const[]){ text, rt_gpu_kernels_header() }, "attention");
    free(text);
    return key;
}

static char *attention_name(const RtAttentionShape *s)
{
    return rt_text("%s of %lld x %lld heads, %lld queries, %lld keys, %lld features",
                   s->is_gradient ? "gradient" : "forward", (long long)s->batch, (long long)s->heads,
                   (long long)s->queries, (long long)s->keys, (long long)s->feature);
}

/* The fastest of those that are right, and all times, for those who read them. */
static RtAttentionKind fastest(Rt *rt, Trial *t)
{
    const double least_gain = 0.97;
    const bool is_there[] = { [RT_BY_HOPPER] = t->attention->hopper, [RT_BY_CUDNN] = t->attention->graph.plan };
    const double by_kernels = rt_gpu_time(rt, queue_kernels, t);
    char *what = attention_name(t->attention->shape),
         *times = rt_text("%.3f ms by %s", by_kernels, kinds[RT_BY_KERNELS].name);
    RtAttentionKind best = RT_BY_KERNELS;
    double least = least_gain * by_kernels;
    for (RtAttentionKind kind = RT_BY_KERNELS + 1; kind < RT_ATTENTION_KINDS; kind++) {
        const bool is_right = is_there[kind] && has_same_results(rt, t, kind);
        if (is_there[kind] && !is_right)
            rt_note(
                "attention: %s: results of %s are not those of the program's general kernels: it is not used for this "
                "shape",
                what, kinds[kind].name);
        if (!is_right)
            continue;
        const double time = rt_gpu_time(rt, kinds[kind].queue, t);
        rt_append(&times, ", %.3f ms by %s", time, kinds[kind].name);
        if (time < least) {
            best = kind;
            least = time;
        }
    }
    rt_note("attention: %s: %s", what, times);
    free(what);
    free(times);
    return best;
}

/* Who computes it best?  Not known, and so the general kernels, without memory to try the others or for cuDNN's plan.
 */
static RtAttentionKind find_best(Rt *rt, RtAttention *attention, int64_t most_workspace, bool *is_known)
{
    Trial t;
    const bool asks_cudnn = most_workspace > 0;
    const bool has_plan = asks_cudnn && rt_attention_plan(rt->gpu->attentions, attention, most_workspace);
    *is_known = asks_cudnn ? has_plan || attention->graph.nengines == 0 : rt->gpu->attentions->version == 0;
    if (!has_plan && !attention->hopper)
        return RT_BY_KERNELS;
    if (!open_trial(rt, attention, &t)) {
        *is_known = false;
        return RT_BY_KERNELS;
    }
    const RtAttentionKind best = fastest(rt, &t);
    rt_gpu_check(rt, cudaFree(t.memory), "free memory");
    return best;
}

static RtAttentionKind choose(Rt *rt, const char *folder, RtAttention *attention, int64_t most_workspace, int *tried)
{
    char *key = key_of(rt, attention);
    size_t bytes = 0;
    char *kept = rt_cache_find(folder, key, &bytes);
    char answer = kept ? *kept : RT_BY_KERNELS;
    if (!kept) {
        bool is_known;
        (*tried)++;
        answer = (char)find_best(rt, attention, most_workspace, &is_known);
        if (is_known)
            rt_cache_keep(folder, key, &answer, 1);
    }
    free(kept);
    free(key);
    return (RtAttentionKind)answer;
}

/* Takes what is chosen, with the plans and the memory that it needs, if all ranks can; else the general kernels. */
static void use(Rt *rt, const RtAttentionKind chosen[], int64_t most_workspace)
{
    struct RtGpuAttentions *all = rt->gpu->attentions;
    for (int i = 0; i < all->count; i++) {
        RtAttention *attention = &all->attention[i];
        const bool by_cudnn = chosen[i] == RT_BY_CUDNN;
        const bool is_ready = !by_cudnn || attention->graph.plan || rt_attention_plan(all, attention, most_workspace);
        const double least = -rt_comm_max(rt, is_ready ? -(double)chosen[i] : 0);
        attention->by = rt_comm_max(rt, (double)chosen[i]) == least ? chosen[i] : RT_BY_KERNELS;
        if (attention->by != RT_BY_CUDNN)
            rt_cudnn_close(&attention->graph);
        else if (attention->graph.workspace > rt->gpu->attention_bytes)
            rt->gpu->attention_bytes = attention->graph.workspace;
    }
    if (rt->gpu->attention_bytes)
        rt_gpu_check(rt, cudaMalloc(&all->workspace, (size_t)rt->gpu->attention_bytes), "get memory for cuDNN");
}

static void say(const Rt *rt, bool has_hopper, bool has_cudnn)
{
    const struct RtGpuAttentions *all = rt->gpu->attentions;
    int used[RT_ATTENTION_KINDS] = { 0 };
    for (int i = 0; i < all->count; i++)
        used[all->attention[i].by]++;
    if (has_hopper)
        rt_note("attention: %s computes %d of %d (--no-hopper: none)", kinds[RT_BY_HOPPER].name, used[RT_BY_HOPPER],
                all->count);
    if (has_cudnn)
        rt_note("attention: cuDNN %zu.%zu computes %d of %d (--no-cudnn: none)", all->version / 10000,
                all->version / 100 % 100, used[RT_BY_CUDNN], all->count);
}

/* On all ranks, or on none. */
static bool find_hopper(Rt *rt, struct RtGpuAttentions *all)
{
    bool any = false;
    const bool everywhere = rt_comm_max(rt, all->encode ? 0 : 1) == 0;
    for (int i = 0; i < all->count; i++) {
        if (!everywhere)
            all->attention[i].hopper = NULL;
        any = any || all->attention[i].hopper;
    }
    return any;
}

void rt_gpu_attentions_choose(Rt *rt)
{
    struct RtGpuAttentions *all = rt->gpu->attentions;
    if (!all)
        return;
    const bool has_hopper = find_hopper(rt, all), is_cudnn_there = rt_comm_max(rt, -(double)all->version) < 0;
    const int64_t most_workspace = is_cudnn_there ? rt_gpu_free_memory(rt) : 0;
    const bool has_cudnn = most_workspace > 0;
    if (!has_hopper && !has_cudnn)
        return;
    char *folder = rt_cache_folder(rt->gpu->options.kernel_cache);
    RtAttentionKind *chosen = rt_allocate(all->count, sizeof *chosen);
    int tried = 0, better = 0;
    RtCacheLock lock = rt_cache_lock(folder, "attentions");
    for (int i = 0; i < all->count; i++)
        chosen[i] = choose(rt, folder, &all->attention[i], most_workspace, &tried);
    rt_cache_unlock(&lock);
    if (rt->ranks > 1)
        rt_gpu_agree(rt, all->version, chosen, (int64_t)sizeof *chosen * all->count);
    use(rt, chosen, most_workspace);
    for (int i = 0; i < all->count; i++)
        better += chosen[i] != RT_BY_KERNELS;
    if (tried || better)
        say(rt, has_hopper, has_cudnn);
    free(chosen);
    free(folder);
}
