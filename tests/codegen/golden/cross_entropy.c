#include "runtime/rt.h"

#include "runtime/kernels/kernels.h"

static inline void *at(char *frame, int64_t offset) { return frame + offset; }

/* loss, gpt2.mdl:44:5: max, sub, exp, sum, log, add, iota, eq, where, ne
 * logits: f32[batch:2, seq:9, vocab:5003~5120]
 * labels: i32[batch:2, seq:9]
 * scale: f32[]
 * lse, result: f32[batch:2, seq:9]
 * y, result: f32[]
 */
static void ce_0(const float *restrict logits, const int32_t *restrict labels, const float *restrict scale,
                 float *restrict lse, float *restrict y)
{
    (void)scale;
    float y_parts[2];
#pragma omp parallel for
    for (int64_t block = 0; block < 2; block++) {
        float y_sum = 0.0f;
        for (int64_t row = block * 18 / 2; row < (block + 1) * 18 / 2; row++) {
            const int32_t labels_row = labels[row];
            const bool ne = labels_row != (-1);
            float max = -INFINITY;
            float sum_2 = 0.0f;
            for (int64_t begin = 0; begin < 5003; begin += 1024) {
                const int64_t end = begin + 1024 < 5003 ? begin + 1024 : 5003;
#pragma omp simd reduction(+ : sum_2) reduction(max : max)
                for (int64_t vocab = begin; vocab < end; vocab++) {
                    const float logits_i = logits[row * 5120 + vocab];
                    const int32_t iota = vocab;
                    const bool eq = labels_row == iota;
                    const float where = eq ? logits_i : 0.0f;
                    max = logits_i > max ? logits_i : max;
                    sum_2 += where;
                }
            }
            float sum = 0.0f;
            for (int64_t begin = 0; begin < 5003; begin += 1024) {
                const int64_t end = begin + 1024 < 5003 ? begin + 1024 : 5003;
#pragma omp simd reduction(+ : sum)
                for (int64_t vocab = begin; vocab < end; vocab++) {
                    const float sub = logits[row * 5120 + vocab] - max;
                    const float exp = expf(sub);
                    sum += exp;
                }
            }
            const float log = logf(sum);
            const float lse_row = log + max;
            const float sub_2 = lse_row - sum_2;
            const float where_2 = ne ? sub_2 : 0.0f;
            y_sum += where_2;
            lse[row] = lse_row;
        }
        y_parts[block] = y_sum;
    }
    float y_sum = 0.0f;
    for (int64_t block = 0; block < 2; block++) {
        y_sum += y_parts[block];
    }
    y[0] = y_sum;
}

/* loss, gpt2.mdl:44:5: sub, exp, iota, eq, where, ne, mul
 * logits: f32[batch:2, seq:9, vocab:5003~5120]
 * labels: i32[batch:2, seq:9]
 * lse: f32[batch:2, seq:9]
 * scale: f32[]
 * y, result: f32[batch:2, seq:9, vocab:5003~5120]
 */
static void ce_bwd_1(const float *logits, const int32_t *restrict labels, const float *restrict lse,
                     const float *restrict scale, float *y)
{
    const float scale_value = scale[0];
#pragma omp parallel for
    for (int64_t row = 0; row < 18; row++) {
        const int32_t labels_i = labels[row];
        const float lse_i = lse[row];
        const bool ne = labels_i != (-1);
        const float where_2 = ne ? scale_value : 0.0f;
#pragma omp simd
        for (int64_t vocab = 0; vocab < 5003; vocab++) {
            const float sub = logits[row * 5120 + vocab] - lse_i;
            const float exp = expf(sub);
            const int32_t iota = vocab;
            const bool eq = labels_i == iota;
            const float where = eq ? 1.0f : 0.0f;
            const float sub_2 = exp - where;
            const float y_i = sub_2 * where_2;
            y[row * 5120 + vocab] = y_i;
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
