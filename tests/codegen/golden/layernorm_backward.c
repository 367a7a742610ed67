#include "runtime/rt.h"

#include "runtime/kernels/kernels.h"

static inline void *at(char *frame, int64_t offset) { return frame + offset; }

/* h.ln_1, gpt2.mdl:24:9: sub, mul, sum
 * x: f32[batch:8, seq:128, embed:96]
 * mean: f32[batch:8, seq:128]
 * rstd: f32[batch:8, seq:128]
 * gain: f32[embed:96]
 * dy: f32[batch:8, seq:128, embed:96]
 * dx, result: f32[batch:8, seq:128, embed:96]
 * dgain, result: f32[embed:96]
 * dbias, result: f32[embed:96]
 */
static void ln_bwd_0(const float *restrict x, const float *restrict mean, const float *restrict rstd,
                     const float *restrict gain, const float *restrict dy, float *restrict dx, float *restrict dgain,
                     float *restrict dbias, float *restrict scratch)
{
    float *const dgain_parts = scratch;
    float *const dbias_parts = scratch + 288;
#pragma omp parallel for
    for (int64_t block = 0; block < 3; block++) {
        float *const dgain_sum = dgain_parts + block * 96;
        for (int64_t i = 0; i < 96; i++) {
            dgain_sum[i] = 0.0f;
        }
        float *const dbias_sum = dbias_parts + block * 96;
        for (int64_t i = 0; i < 96; i++) {
            dbias_sum[i] = 0.0f;
        }
        for (int64_t row = block * 1024 / 3; row < (block + 1) * 1024 / 3; row++) {
            const float mean_row = mean[row];
            const float rstd_row = rstd[row];
            float sum = 0.0f;
            float sum_2 = 0.0f;
#pragma omp simd reduction(+ : sum, sum_2)
            for (int64_t embed = 0; embed < 96; embed++) {
                const float dy_i = dy[row * 96 + embed];
                const float sub = x[row * 96 + embed] - mean_row;
                const float xhat = sub * rstd_row;
                const float mul = dy_i * xhat;
                const float g = dy_i * gain[embed];
                const float mul_3 = g * xhat;
                sum += g;
                sum_2 += mul_3;
                dgain_sum[embed] += mul;
                dbias_sum[embed] += dy_i;
            }
            const float mul_2 = sum * 0.010416667f;
            const float mul_4 = sum_2 * 0.010416667f;
#pragma omp simd
            for (int64_t embed = 0; embed < 96; embed++) {
                const float sub = x[row * 96 + embed] - mean_row;
                const float xhat = sub * rstd_row;
                const float g = dy[row * 96 + embed] * gain[embed];
                const float mul_5 = xhat * mul_4;
                const float sub_2 = g - mul_2;
                const float sub_3 = sub_2 - mul_5;
                const float dx_i = sub_3 * rstd_row;
                dx[row * 96 + embed] = dx_i;
            }
        }
    }
    for (int64_t embed = 0; embed < 96; embed++) {
        float dgain_sum = 0.0f;
        for (int64_t block = 0; block < 3; block++) {
            dgain_sum += dgain_parts[block * 96 + embed];
        }
        dgain[embed] = dgain_sum;
    }
    for (int64_t embed = 0; embed < 96; embed++) {
        float dbias_sum = 0.0f;
        for (int64_t block = 0; block < 3; block++) {
            dbias_sum += dbias_parts[block * 96 + embed];
        }
        dbias[embed] = dbias_sum;
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
    ln_bwd_0(at(frame, 0), at(frame, 393216), at(frame, 397312), at(frame, 401408), at(frame, 401792),
             at(frame, 795008), at(frame, 1188224), at(frame, 1188608), scratch);
    (void)rt;
    (void)scratch;
}
