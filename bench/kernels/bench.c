/* bench.c -- GFLOP/s of the runtime's products and attention, in the shapes of GPT-2 124M on 1024 tokens.
 *
 *     bench [WORD]      only lines that contain WORD
 *
 * A line: type, what, the best GFLOP/s of many runs, and that as a share of the machine's best product.
 * OMP_NUM_THREADS=1 gives steadier numbers where other programs run.
 */
#include "kernels/element.h"

#include "device.h"
#include "kernels/attend_bias.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 1024, EMBED = 768, FF = 3072, VOCAB = 50257, PADDED = 50304 };

static const char *wanted = "";
static char *memory[4];
static const RtProgram fp32 = { .precision = "fp32" }, bf16 = { .precision = "bf16" };
static double peak[2]; /* f32, bf16 */

static bool is_wanted(RtType type, const char *name)
{
    char line[128];
    snprintf(line, sizeof line, "%s %s", type == RT_F32 ? "f32" : "bf16", name);
    return strstr(line, wanted) != NULL;
}

static void report(RtType type, const char *name, double flops, double seconds)
{
    printf("%-4s  %-34s %8.1f  %5.0f%%\n", type == RT_F32 ? "f32" : "bf16", name, flops / seconds * 1e-9,
           100 * flops / seconds / peak[type == RT_BF16]);
    fflush(stdout);
}

/* Best time of `statement`, which runs for at least half a second. */
#define BEST_OF(seconds, statement)                                                                                    \
    double seconds = 1e9;                                                                                              \
    for (double start_ = rt_seconds(), iteration_ = 0; iteration_ < 3 || rt_seconds() - start_ < 0.5; iteration_++) {  \
        const double before_ = rt_seconds();                                                                           \
        statement;                                                                                                     \
        const double time_ = rt_seconds() - before_;                                                                   \
        seconds = time_ < seconds ? time_ : seconds;                                                                   \
    }

static void bench_product(const char *name, RtProductShape s)
{
    if (!is_wanted(s.a.type, name))
        return;
    Rt rt = { .program = &fp32 };
    s.batch = 1;
    rt_product_create(&rt, 0, s);
    BEST_OF(seconds, rt_product(&rt, 0, memory[0], memory[1], memory[2]))
    report(s.a.type, name, 2.0 * (double)s.m * (double)s.n * (double)s.k, seconds);
    rt_products_free(&rt);
}

/* Forward Y = X W, then dX = dY W^T and dW += X^T dY in f32; W is [inner, outer], or that transposed. */
static void bench_weight(RtType t, const char *name, int64_t inner, int64_t outer, int64_t stride, bool turned)
{
    char line[128];
    const int64_t row = turned ? 1 : stride, column = turned ? inner : 1;
    snprintf(line, sizeof line, "%s: Y = X W", name);
    bench_product(line, (RtProductShape){ .m = TOKENS,
                                          .n = outer,
                                          .k = inner,
                                          .a = { t, inner, 1, 0 },
                                          .b = { t, row, column, 0 },
                                          .c = { t, stride, 1, 0 } });
    snprintf(line, sizeof line, "%s: dX = dY W^T", name);
    bench_product(line, (RtProductShape){ .m = TOKENS,
                                          .n = inner,
                                          .k = outer,
                                          .a = { t, stride, 1, 0 },
                                          .b = { t, column, row, 0 },
                                          .c = { t, inner, 1, 0 } });
    snprintf(line, sizeof line, "%s: dW += X^T dY", name);
    bench_product(line, (RtProductShape){ .m = inner,
                                          .n = outer,
                                          .k = TOKENS,
                                          .a = { t, 1, inner, 0 },
                                          .b = { t, stride, 1, 0 },
                                          .c = { RT_F32, row, column, 0 },
                                          .accumulate = true });
}

/* Counted as published: a causal query sees half of the keys; forward 4 flops a pair and feature, backward 10. */
static void bench_attend(RtType type, int64_t batch, int64_t length, bool causal)
{
    enum { HEADS = 12, FEATURE = EMBED / HEADS };
    const RtAttendStride x = { length * EMBED, EMBED, FEATURE, 0 };
    const RtAttend s = { .batch = batch,
                         .queries = length,
                         .keys = length,
                         .heads = HEADS,
                         .group = 1,
                         .feature = FEATURE,
                         .q = x,
                         .k = x,
                         .v = x,
                         .y = x,
                         .lse = { length * HEADS, HEADS, 1, 0 },
                         .dy = x,
                         .dq = x,
                         .dk = x,
                         .dv = x,
                         .type = type,
                         .causal = causal,
                         .scale = 0.125f };
    char *m = memory[0], *n = memory[1], *out = memory[2], *scratch = memory[3], forward[48], backward[64];
    const int64_t step = batch * length * EMBED * 4;
    float *lse = (float *)(void *)(n + 3 * step);
    const double pairs = (double)(batch * HEADS * length * length) / (causal ? 2 : 1);
    snprintf(forward, sizeof forward, "attend %lld x %lld%s", (long long)batch, (long long)length,
             causal ? " causal" : "");
    snprintf(backward, sizeof backward, "attend_grad%s", forward + strlen("attend"));
    if (is_wanted(type, forward)) {
        BEST_OF(seconds, rt_attend(m, m + step, m + 2 * step, NULL, NULL, NULL, NULL, n, lse, s))
        report(type, forward, pairs * 4 * FEATURE, seconds);
    }
    if (is_wanted(type, backward)) {
        rt_attend(m, m + step, m + 2 * step, NULL, NULL, NULL, NULL, n, lse, s);
        BEST_OF(seconds, rt_attend_grad(m, m + step, m + 2 * step, n, lse, n + step, NULL, NULL, NULL, out, out + step,
                                        out + 2 * step, scratch, s))
        report(type, backward, pairs * 10 * FEATURE, seconds);
    }
}

static void fill(void)
{
    for (int i = 0; i < 4; i++) {
        const int64_t count = (int64_t)PADDED * TOKENS; /* floats; as bf16 the same bytes are small numbers too */
        memory[i] = aligned_alloc(64, (size_t)count * 4);
        if (!memory[i])
            exit(1);
#pragma omp parallel for
        for (int64_t j = 0; j < count * 2; j++)
            ((uint16_t *)(void *)memory[i])[j] = (uint16_t)(0x3C00 + (j * 40503 >> 7 & 0x1FF));
    }
}

int main(int argc, char **argv)
{
    wanted = argc > 1 ? argv[1] : "";
    fill();
    Rt a = { .program = &fp32 }, b = { .program = &bf16 };
    peak[0] = rt_product_peak(&a, 1);
    peak[1] = rt_product_peak(&b, 1);
    printf("%d threads; best product: f32 %.1f, bf16 %.1f GFLOP/s\n", omp_get_max_threads(), peak[0] * 1e-9,
           peak[1] * 1e-9);
    for (int i = 0; i < 2; i++) {
        const RtType t = i ? RT_BF16 : RT_F32;
        bench_weight(t, "attention out", EMBED, EMBED, EMBED, false);
        bench_weight(t, "qkv", EMBED, 3 * EMBED, 3 * EMBED, false);
        bench_weight(t, "mlp up", EMBED, FF, FF, false);
        bench_weight(t, "mlp down", FF, EMBED, EMBED, false);
        bench_weight(t, "logits", EMBED, VOCAB, PADDED, true);
    }
    for (int i = 0; i < 8; i++)
        bench_attend(i & 4 ? RT_BF16 : RT_F32, i & 1 ? 1 : 4, i & 1 ? 1024 : 256, i & 2);
    for (int i = 0; i < 4; i++)
        free(memory[i]);
    return 0;
}
