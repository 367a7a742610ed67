#include "runtime/rt.h"

#include "runtime/kernels/kernels.h"

static inline void *at(char *frame, int64_t offset) { return frame + offset; }

/* loss, gpt2.mdl:44:5: max, sub, exp, sum, log, add, iota, eq, where, ne
 * logits: f32[batch:2, seq:9, vocab:5003~5120]
 * labels: i32[batch:2, seq:9]
 * scale: f32[]
 * lse, result: f32[batch:2, seq:9]
 * v15, result: f32[]
 */
static void ce_0(const float *restrict logits, const int32_t *restrict labels, const float *restrict scale,
                 float *restrict lse, float *restrict v15)
{
    (void)scale;
    float v15_parts[2];
#pragma omp parallel for
    for (int64_t block = 0; block < 2; block++) {
        float v15_sum = 0.0f;
        for (int64_t row = block * 18 / 2; row < (block + 1) * 18 / 2; row++) {
            const int32_t labels_row = labels[row];
            const bool v13 = labels_row != (-1);
            float v1 = -INFINITY;
            float v10 = 0.0f;
#pragma omp simd reduction(+ : v10) reduction(max : v1)
            for (int64_t vocab = 0; vocab < 5003; vocab++) {
                const float logits_i = logits[row * 5120 + vocab];
                const int32_t v6 = vocab;
                const bool v7 = labels_row == v6;
                const float v9 = v7 ? logits_i : 0.0f;
                v1 = logits_i > v1 ? logits_i : v1;
                v10 += v9;
            }
            float v4 = 0.0f;
#pragma omp simd reduction(+ : v4)
            for (int64_t vocab = 0; vocab < 5003; vocab++) {
                const float v2 = logits[row * 5120 + vocab] - v1;
                const float v3 = expf(v2);
                v4 += v3;
            }
            const float v5 = logf(v4);
            const float lse_row = v5 + v1;
            const float v11 = lse_row - v10;
            const float v14 = v13 ? v11 : 0.0f;
            v15_sum += v14;
            lse[row] = lse_row;
        }
        v15_parts[block] = v15_sum;
    }
    float v15_sum = 0.0f;
    for (int64_t block = 0; block < 2; block++) {
        v15_sum += v15_parts[block];
    }
    v15[0] = v15_sum;
}

/* loss, gpt2.mdl:44:5: sub, exp, iota, eq, where, ne, mul
 * logits: f32[batch:2, seq:9, vocab:5003~5120]
 * labels: i32[batch:2, seq:9]
 * lse: f32[batch:2, seq:9]
 * scale: f32[]
 * dlogits, result: f32[batch:2, seq:9, vocab:5003~5120]
 */
static void ce_bwd_1(const float *logits, const int32_t *restrict labels, const float *restrict lse,
                     const float *restrict scale, float *dlogits)
{
    const float scale_value = scale[0];
#pragma omp parallel for
    for (int64_t row = 0; row < 18; row++) {
        const int32_t labels_i = labels[row];
        const float lse_i = lse[row];
        const bool v13 = labels_i != (-1);
        const float v14 = v13 ? scale_value : 0.0f;
#pragma omp simd
        for (int64_t vocab = 0; vocab < 5003; vocab++) {
            const float v1 = logits[row * 5120 + vocab] - lse_i;
            const float v2 = expf(v1);
            const int32_t v6 = vocab;
            const bool v7 = labels_i == v6;
            const float v9 = v7 ? 1.0f : 0.0f;
            const float v10 = v2 - v9;
            const float dlogits_i = v10 * v14;
            dlogits[row * 5120 + vocab] = dlogits_i;
        }
    }
}

void create(Rt *rt);
void create(Rt *rt)
{
    (void)rt;
    (void)at;
}

void run(Rt *rt, char *frame, float *scratch);
void run(Rt *rt, char *frame, float *scratch)
{
    ce_0(at(frame, 0), at(frame, 368640), at(frame, 368768), at(frame, 368832), at(frame, 368960));
    ce_bwd_1(at(frame, 0), at(frame, 368640), at(frame, 368832), at(frame, 368768), at(frame, 0));
    (void)rt;
    (void)scratch;
}
