/* trainer.c -- trains the model chars, written by mpc 0.1.0 from examples/chars.mdl.
 *
 *   kernels     loops over tensors; shapes and strides are constants
 *   products    of matrices, done by the runtime's library
 *   functions   run_step, run_eval, run_predict; a layer is a function that they call in a loop
 *   program     the tables by which the runtime feeds, saves and explains all this
 *
 * All memory is one arena. A tensor is an offset in it, or in the frame of a layer; mpc has seen to it that
 * tensors that are alive at one time do not share memory. At each pointer stands the shape: [batch 8, seq 1024].
 */
#include "rt.h"

#include "kernels/kernels.h"

#include <string.h>
/* --- Kernels --- */

/* x, chars.mdl:48:13: gather
 * table: f32[vocab:256, embed:128]
 * index: i32[batch:16, seq:128]
 * picked, result: f32[batch:16, seq:128, embed:128]
 */
static void kernel_x_gather(const float *table, const int32_t *index, float *picked)
{
    const RtGather shape = {
        .pre = 1,
        .rows = 256,
        .count = 2048,
        .post = 128,
        .table = { 0, 128 },
        .picked = { 0, 128 },
        .table_type = RT_F32,
        .picked_type = RT_F32,
        .size = 256,
        .dim = "vocab",
        .where = "chars.mdl:48:13",
    };
    rt_gather(table, index, picked, shape);
}

/* x, chars.mdl:48:29: add
 * x: f32[batch:16, seq:128, embed:128]
 * wpe: f32[seq:128, embed:128]
 * y, result: f32[batch:16, seq:128, embed:128]
 */
static void kernel_x_3(const float *x, const float *restrict wpe, float *y)
{
#pragma omp parallel for
    for (int64_t batch = 0; batch < 16; batch++) {
#pragma omp simd
        for (int64_t i = 0; i < 16384; i++) {
            const float y_i = x[batch * 16384 + i] + wpe[i];
            y[batch * 16384 + i] = y_i;
        }
    }
}

/* h.ln_1, chars.mdl:16:12: sum, mul, sub, square, add, rsqrt
 * x: f32[batch:16, seq:128, embed:128]
 * gain: f32[embed:128]
 * bias: f32[embed:128]
 * y, result: f32[batch:16, seq:128, embed:128]
 * y_2, result: f32[batch:16, seq:128]
 * y_3, result: f32[batch:16, seq:128, embed:128]
 */
static void kernel_h_ln_1(const float *x, const float *restrict gain, const float *restrict bias, float *y,
                          float *restrict y_2, float *y_3)
{
#pragma omp parallel for
    for (int64_t row = 0; row < 2048; row++) {
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t embed = 0; embed < 128; embed++) {
            sum += x[row * 128 + embed];
        }
        const float mul = sum * 0.0078125f;
        float y_2_row = 0.0f;
#pragma omp simd reduction(+ : y_2_row)
        for (int64_t embed = 0; embed < 128; embed++) {
            const float y_i = x[row * 128 + embed] - mul;
            const float square = y_i * y_i;
            y_2_row += square;
        }
        const float mul_2 = y_2_row * 0.0078125f;
        const float add = mul_2 + 1e-05f;
        const float rsqrt = 1.0f / sqrtf(add);
#pragma omp simd
        for (int64_t embed = 0; embed < 128; embed++) {
            const float y_i = x[row * 128 + embed] - mul;
            const float mul_3 = y_i * rsqrt;
            const float mul_4 = mul_3 * gain[embed];
            const float y_3_i = mul_4 + bias[embed];
            y[row * 128 + embed] = y_i;
            y_3[row * 128 + embed] = y_3_i;
        }
        y_2[row] = y_2_row;
    }
}

/* h.attn, chars.mdl:25:16: attend
 * q: f32[batch:16, seq:128, heads:4, head:32]
 * k: f32[batch:16, seq.key:128, heads:4, head:32]
 * v: f32[batch:16, seq.key:128, heads:4, head:32]
 * y, result: f32[batch:16, seq:128, heads:4, head:32]
 * lse, result: f32[batch:16, seq:128, heads:4]
 */
static void kernel_h_attn_attend(const float *q, const float *k, const float *v, float *y, float *lse)
{
    const RtAttend shape = {
        .batch = 16,
        .queries = 128,
        .keys = 128,
        .heads = 4,
        .group = 1,
        .feature = 32,
        .q = { 49152, 384, 32, 0 },
        .k = { 49152, 384, 32, 0 },
        .v = { 49152, 384, 32, 0 },
        .y = { 16384, 128, 32, 0 },
        .lse = { 512, 4, 1, 0 },
        .type = RT_F32,
        .causal = true,
        .window = 0,
        .scale = 0.176776695f,
    };
    rt_attend(q, k, v, RT_NO_LOGITS, RT_NO_LOGITS, RT_NO_SEGMENT, RT_NO_SEGMENT, y, lse, shape);
}

/* h.x, chars.mdl:37:11: add, sum, mul, sub, square, rsqrt
 * x: f32[batch:16, seq:128, embed:128]
 * x_2: f32[batch:16, seq:128, embed:128]
 * gain: f32[embed:128]
 * bias: f32[embed:128]
 * y, result: f32[batch:16, seq:128, embed:128]
 * y_2, result: f32[batch:16, seq:128, embed:128]
 * y_3, result: f32[batch:16, seq:128]
 * y_4, result: f32[batch:16, seq:128, embed:128]
 */
static void kernel_h_x(const float *x, const float *x_2, const float *restrict gain, const float *restrict bias,
                       float *y, float *y_2, float *restrict y_3, float *y_4)
{
#pragma omp parallel for
    for (int64_t row = 0; row < 2048; row++) {
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t embed = 0; embed < 128; embed++) {
            const float y_i = x[row * 128 + embed] + x_2[row * 128 + embed];
            sum += y_i;
        }
        const float mul = sum * 0.0078125f;
        float y_3_row = 0.0f;
#pragma omp simd reduction(+ : y_3_row)
        for (int64_t embed = 0; embed < 128; embed++) {
            const float y_i = x[row * 128 + embed] + x_2[row * 128 + embed];
            const float y_2_i = y_i - mul;
            const float square = y_2_i * y_2_i;
            y_3_row += square;
        }
        const float mul_2 = y_3_row * 0.0078125f;
        const float add = mul_2 + 1e-05f;
        const float rsqrt = 1.0f / sqrtf(add);
#pragma omp simd
        for (int64_t embed = 0; embed < 128; embed++) {
            const float y_i = x[row * 128 + embed] + x_2[row * 128 + embed];
            const float y_2_i = y_i - mul;
            const float mul_3 = y_2_i * rsqrt;
            const float mul_4 = mul_3 * gain[embed];
            const float y_4_i = mul_4 + bias[embed];
            y[row * 128 + embed] = y_i;
            y_2[row * 128 + embed] = y_2_i;
            y_4[row * 128 + embed] = y_4_i;
        }
        y_3[row] = y_3_row;
    }
}

/* h.mlp, chars.mdl:33:16: gelu_tanh
 * x: f32[batch:16, seq:128, ff:512]
 * y, result: f32[batch:16, seq:128, ff:512]
 */
static void kernel_h_mlp_2(const float *x, float *y)
{
#pragma omp parallel for
    for (int64_t begin = 0; begin < 1048576; begin += 4096) {
        const int64_t end = begin + 4096 < 1048576 ? begin + 4096 : 1048576;
#pragma omp simd
        for (int64_t i = begin; i < end; i++) {
            const float y_i = rt_gelu_tanh(x[i]);
            y[i] = y_i;
        }
    }
}

/* h.mlp, chars.mdl:33:67: add
 * x: f32[batch:16, seq:128, embed:128]
 * b_down: f32[embed:128]
 * x_2: f32[batch:16, seq:128, embed:128]
 * y, result: f32[batch:16, seq:128, embed:128]
 */
static void kernel_h_mlp_4(const float *restrict x, const float *restrict b_down, const float *restrict x_2,
                           float *restrict y)
{
#pragma omp parallel for
    for (int64_t row = 0; row < 2048; row++) {
#pragma omp simd
        for (int64_t embed = 0; embed < 128; embed++) {
            const float add = x[row * 128 + embed] + b_down[embed];
            const float y_i = x_2[row * 128 + embed] + add;
            y[row * 128 + embed] = y_i;
        }
    }
}

/* ln_f, chars.mdl:16:12: sum, mul, sub, square, add, rsqrt
 * x: f32[batch:16, seq:128, embed:128]
 * gain: f32[embed:128]
 * bias: f32[embed:128]
 * y, result: f32[batch:16, seq:128, embed:128]
 * y_2, result: f32[batch:16, seq:128]
 * y_3, result: f32[batch:16, seq:128, embed:128]
 * y_4, result: f32[batch:16, seq:128, embed:128]
 * y_5, result: f32[batch:16, seq:128]
 * y_6, result: f32[batch:16, seq:128, embed:128]
 */
static void kernel_ln_f_3(const float *x, const float *restrict gain, const float *restrict bias, float *y,
                          float *restrict y_2, float *restrict y_3, float *restrict y_4, float *restrict y_5,
                          float *restrict y_6)
{
#pragma omp parallel for
    for (int64_t row = 0; row < 2048; row++) {
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t embed = 0; embed < 128; embed++) {
            sum += x[row * 128 + embed];
        }
        const float mul = sum * 0.0078125f;
        float sum_2 = 0.0f;
#pragma omp simd reduction(+ : sum_2)
        for (int64_t embed = 0; embed < 128; embed++) {
            const float y_i = x[row * 128 + embed] - mul;
            const float square = y_i * y_i;
            const float y_6_i = 2.0f * y_i;
            sum_2 += square;
            y_6[row * 128 + embed] = y_6_i;
        }
        const float mul_2 = sum_2 * 0.0078125f;
        const float add = mul_2 + 1e-05f;
        const float y_2_row = 1.0f / sqrtf(add);
        const float mul_4 = y_2_row * y_2_row;
        const float y_5_row = mul_4 * y_2_row;
#pragma omp simd
        for (int64_t embed = 0; embed < 128; embed++) {
            const float y_i = x[row * 128 + embed] - mul;
            const float y_3_i = y_i * y_2_row;
            const float mul_3 = y_3_i * gain[embed];
            const float y_4_i = mul_3 + bias[embed];
            y[row * 128 + embed] = y_i;
            y_3[row * 128 + embed] = y_3_i;
            y_4[row * 128 + embed] = y_4_i;
        }
        y_2[row] = y_2_row;
        y_5[row] = y_5_row;
    }
}

/* loss, chars.mdl:51:15: neg
 * y, result: f32[]
 */
static void kernel_loss_3(float *restrict y)
{
    const float y_value = -0.00048828125f;
    y[0] = y_value;
}

/* loss, chars.mdl:51:15: max, stop_gradient, sub, exp, sum, log, iota, eq, where, div, mul, add
 * x: f32[batch:16, seq:128, vocab:256]
 * labels: i32[batch:16, seq:128]
 * x_2: f32[]
 * y, result: f32[]
 * y_2, result: f32[batch:16, seq:128, vocab:256]
 */
static void kernel_loss_4(const float *x, const int32_t *restrict labels, const float *restrict x_2, float *restrict y,
                          float *y_2)
{
    const float x_2_value = x_2[0];
    float y_parts[16];
#pragma omp parallel for
    for (int64_t block = 0; block < 16; block++) {
        float y_sum = 0.0f;
        for (int64_t row = block * 2048 / 16; row < (block + 1) * 2048 / 16; row++) {
            float exp_stored[256];
            const int32_t labels_row = labels[row];
            float max = -INFINITY;
#pragma omp simd reduction(max : max)
            for (int64_t vocab = 0; vocab < 256; vocab++) {
                const float x_i = x[row * 256 + vocab];
                max = x_i > max ? x_i : max;
            }
            float sum = 0.0f;
            float sum_2 = 0.0f;
#pragma omp simd reduction(+ : sum, sum_2)
            for (int64_t vocab = 0; vocab < 256; vocab++) {
                const float sub = x[row * 256 + vocab] - max;
                const float exp = expf(sub);
                const int32_t iota = vocab;
                const bool eq = labels_row == iota;
                const float where = eq ? sub : 0.0f;
                sum += exp;
                sum_2 += where;
                exp_stored[vocab] = exp;
            }
            const float log = logf(sum);
            const float sub_2 = log - sum_2;
            const float div = 0.00048828125f / sum;
#pragma omp simd
            for (int64_t vocab = 0; vocab < 256; vocab++) {
                const int32_t iota = vocab;
                const bool eq = labels_row == iota;
                const float where_2 = eq ? x_2_value : 0.0f;
                const float mul = div * exp_stored[vocab];
                const float y_2_i = where_2 + mul;
                y_2[row * 256 + vocab] = y_2_i;
            }
            y_sum += sub_2;
        }
        y_parts[block] = y_sum;
    }
    float y_sum = 0.0f;
    for (int64_t block = 0; block < 16; block++) {
        y_sum += y_parts[block];
    }
    y[0] = y_sum;
}

/* loss, chars.mdl:51:10: mul
 * x: f32[]
 * y, result: f32[]
 */
static void kernel_loss_5(const float *x, float *y)
{
    const float x_value = x[0];
    const float y_value = x_value * 0.00048828125f;
    y[0] = y_value;
}

/* ln_f, chars.mdl:16:39: sum, mul, add, neg
 * x: f32[batch:16, seq:128, embed:128]
 * gain: f32[embed:128]
 * x_2: f32[batch:16, seq:128, embed:128]
 * x_3: f32[batch:16, seq:128]
 * x_4: f32[batch:16, seq:128, embed:128]
 * x_5: f32[batch:16, seq:128]
 * x_6: f32[batch:16, seq:128, embed:128]
 * y, result: f32[embed:128]
 * y_2, result: f32[embed:128]
 * y_3, result: f32[batch:16, seq:128, embed:128]
 */
static void kernel_ln_f_4(const float *restrict x, const float *restrict gain, const float *restrict x_2,
                          const float *restrict x_3, const float *x_4, const float *restrict x_5,
                          const float *restrict x_6, float *restrict y, float *restrict y_2, float *y_3,
                          float *restrict scratch)
{
    float *const y_parts = scratch;
    float *const y_2_parts = scratch + 1024;
#pragma omp parallel for
    for (int64_t block = 0; block < 8; block++) {
        float *const y_sum = y_parts + block * 128;
        for (int64_t i = 0; i < 128; i++) {
            y_sum[i] = 0.0f;
        }
        float *const y_2_sum = y_2_parts + block * 128;
        for (int64_t i = 0; i < 128; i++) {
            y_2_sum[i] = 0.0f;
        }
        for (int64_t row = block * 2048 / 8; row < (block + 1) * 2048 / 8; row++) {
            float add_stored[128];
            const float x_3_row = x_3[row];
            const float x_5_row = x_5[row];
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (int64_t embed = 0; embed < 128; embed++) {
                const float x_i = x[row * 128 + embed];
                const float mul = x_i * gain[embed];
                const float mul_2 = x_i * x_2[row * 128 + embed];
                const float mul_4 = mul * x_4[row * 128 + embed];
                sum += mul_4;
                y_sum[embed] += x_i;
                y_2_sum[embed] += mul_2;
            }
            const float mul_5 = sum * (-0.5f);
            const float mul_6 = mul_5 * x_5_row;
            const float mul_7 = mul_6 * 0.0078125f;
            float sum_2 = 0.0f;
#pragma omp simd reduction(+ : sum_2)
            for (int64_t embed = 0; embed < 128; embed++) {
                const float mul = x[row * 128 + embed] * gain[embed];
                const float mul_3 = mul * x_3_row;
                const float mul_8 = mul_7 * x_6[row * 128 + embed];
                const float add = mul_3 + mul_8;
                const float neg = -add;
                sum_2 += neg;
                add_stored[embed] = add;
            }
            const float mul_9 = sum_2 * 0.0078125f;
#pragma omp simd
            for (int64_t embed = 0; embed < 128; embed++) {
                const float y_3_i = add_stored[embed] + mul_9;
                y_3[row * 128 + embed] = y_3_i;
            }
        }
    }
    for (int64_t embed = 0; embed < 128; embed++) {
        float y_sum = 0.0f;
        for (int64_t block = 0; block < 8; block++) {
            y_sum += y_parts[block * 128 + embed];
        }
        y[embed] = y_sum;
    }
    for (int64_t embed = 0; embed < 128; embed++) {
        float y_2_sum = 0.0f;
        for (int64_t block = 0; block < 8; block++) {
            y_2_sum += y_2_parts[block * 128 + embed];
        }
        y_2[embed] = y_2_sum;
    }
}

/* h.mlp, chars.mdl:33:16: gelu_tanh_slope, mul, sum
 * x: f32[batch:16, seq:128, ff:512]
 * x_2: f32[batch:16, seq:128, ff:512]
 * y, result: f32[batch:16, seq:128, ff:512]
 * y_2, result: f32[ff:512]
 */
static void kernel_h_mlp_12(const float *restrict x, const float *restrict x_2, float *restrict y, float *restrict y_2,
                            float *restrict scratch)
{
    float *const y_2_parts = scratch;
#pragma omp parallel for
    for (int64_t block = 0; block < 32; block++) {
        float *const y_2_sum = y_2_parts + block * 512;
        for (int64_t i = 0; i < 512; i++) {
            y_2_sum[i] = 0.0f;
        }
        for (int64_t row = block * 2048 / 32; row < (block + 1) * 2048 / 32; row++) {
#pragma omp simd
            for (int64_t ff = 0; ff < 512; ff++) {
                const float gelu_tanh_slope = rt_gelu_tanh_slope(x[row * 512 + ff]);
                const float y_i = x_2[row * 512 + ff] * gelu_tanh_slope;
                y_2_sum[ff] += y_i;
                y[row * 512 + ff] = y_i;
            }
        }
    }
    for (int64_t ff = 0; ff < 512; ff++) {
        float y_2_sum = 0.0f;
        for (int64_t block = 0; block < 32; block++) {
            y_2_sum += y_2_parts[block * 512 + ff];
        }
        y_2[ff] = y_2_sum;
    }
}

/* h.mlp, chars.mdl:33:67: sum, mul, add, rsqrt, neg
 * x: f32[batch:16, seq:128, embed:128]
 * x_2: f32[batch:16, seq:128, embed:128]
 * gain: f32[embed:128]
 * x_3: f32[batch:16, seq:128]
 * x_4: f32[batch:16, seq:128, embed:128]
 * y, result: f32[embed:128]
 * y_2, result: f32[embed:128]
 * y_3, result: f32[embed:128]
 * y_4, result: f32[batch:16, seq:128, embed:128]
 */
static void kernel_h_mlp_14(const float *restrict x, const float *restrict x_2, const float *gain,
                            const float *restrict x_3, const float *restrict x_4, float *y, float *y_2, float *y_3,
                            float *restrict y_4, float *restrict scratch)
{
    float *const y_parts = scratch;
    float *const y_2_parts = scratch + 1024;
    float *const y_3_parts = scratch + 2048;
#pragma omp parallel for
    for (int64_t block = 0; block < 8; block++) {
        float *const y_sum = y_parts + block * 128;
        for (int64_t i = 0; i < 128; i++) {
            y_sum[i] = 0.0f;
        }
        float *const y_2_sum = y_2_parts + block * 128;
        for (int64_t i = 0; i < 128; i++) {
            y_2_sum[i] = 0.0f;
        }
        float *const y_3_sum = y_3_parts + block * 128;
        for (int64_t i = 0; i < 128; i++) {
            y_3_sum[i] = 0.0f;
        }
        for (int64_t row = block * 2048 / 8; row < (block + 1) * 2048 / 8; row++) {
            float add_2_stored[128];
            const float x_3_row = x_3[row];
            const float mul_2 = x_3_row * 0.0078125f;
            const float add = mul_2 + 1e-05f;
            const float rsqrt = 1.0f / sqrtf(add);
            const float mul_8 = rsqrt * rsqrt;
            const float mul_9 = mul_8 * rsqrt;
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (int64_t embed = 0; embed < 128; embed++) {
                const float x_2_i = x_2[row * 128 + embed];
                const float x_4_i = x_4[row * 128 + embed];
                const float mul = x_2_i * gain[embed];
                const float mul_3 = x_4_i * rsqrt;
                const float mul_4 = x_2_i * mul_3;
                const float mul_6 = mul * x_4_i;
                sum += mul_6;
                y_sum[embed] += x[row * 128 + embed];
                y_2_sum[embed] += x_2_i;
                y_3_sum[embed] += mul_4;
            }
            const float mul_7 = sum * (-0.5f);
            const float mul_10 = mul_7 * mul_9;
            const float mul_11 = mul_10 * 0.0078125f;
            float sum_2 = 0.0f;
#pragma omp simd reduction(+ : sum_2)
            for (int64_t embed = 0; embed < 128; embed++) {
                const float mul = x_2[row * 128 + embed] * gain[embed];
                const float mul_5 = mul * rsqrt;
                const float mul_12 = 2.0f * x_4[row * 128 + embed];
                const float mul_13 = mul_11 * mul_12;
                const float add_2 = mul_5 + mul_13;
                const float neg = -add_2;
                sum_2 += neg;
                add_2_stored[embed] = add_2;
            }
            const float mul_14 = sum_2 * 0.0078125f;
#pragma omp simd
            for (int64_t embed = 0; embed < 128; embed++) {
                const float add_3 = x[row * 128 + embed] + add_2_stored[embed];
                const float y_4_i = add_3 + mul_14;
                y_4[row * 128 + embed] = y_4_i;
            }
        }
    }
    for (int64_t embed = 0; embed < 128; embed++) {
        float y_sum = 0.0f;
        for (int64_t block = 0; block < 8; block++) {
            y_sum += y_parts[block * 128 + embed];
        }
        y[embed] = y_sum;
    }
    for (int64_t embed = 0; embed < 128; embed++) {
        float y_2_sum = 0.0f;
        for (int64_t block = 0; block < 8; block++) {
            y_2_sum += y_2_parts[block * 128 + embed];
        }
        y_2[embed] = y_2_sum;
    }
    for (int64_t embed = 0; embed < 128; embed++) {
        float y_3_sum = 0.0f;
        for (int64_t block = 0; block < 8; block++) {
            y_3_sum += y_3_parts[block * 128 + embed];
        }
        y_3[embed] = y_3_sum;
    }
}

/* h.attn, chars.mdl:25:16: attend_grad
 * q: f32[batch:16, seq:128, heads:4, head:32]
 * k: f32[batch:16, seq.key:128, heads:4, head:32]
 * v: f32[batch:16, seq.key:128, heads:4, head:32]
 * y: f32[batch:16, seq:128, heads:4, head:32]
 * lse: f32[batch:16, seq:128, heads:4]
 * dy: f32[batch:16, seq:128, heads:4, head:32]
 * dq, result: f32[batch:16, seq:128, heads:4, head:32]
 * dk, result: f32[batch:16, seq.key:128, heads:4, head:32]
 * dv, result: f32[batch:16, seq.key:128, heads:4, head:32]
 */
static void kernel_h_attn_attend_grad(const float *q, const float *k, const float *v, const float *y, const float *lse,
                                      const float *dy, float *dq, float *dk, float *dv, float *scratch)
{
    const RtAttend shape = {
        .batch = 16,
        .queries = 128,
        .keys = 128,
        .heads = 4,
        .group = 1,
        .feature = 32,
        .q = { 49152, 384, 32, 0 },
        .k = { 49152, 384, 32, 0 },
        .v = { 49152, 384, 32, 0 },
        .y = { 16384, 128, 32, 0 },
        .lse = { 512, 4, 1, 0 },
        .dy = { 16384, 128, 32, 0 },
        .dq = { 16384, 128, 32, 0 },
        .dk = { 16384, 128, 32, 0 },
        .dv = { 16384, 128, 32, 0 },
        .type = RT_F32,
        .causal = true,
        .window = 0,
        .scale = 0.176776695f,
    };
    rt_attend_grad(q, k, v, y, lse, dy, RT_NO_LOGITS, RT_NO_SEGMENT, RT_NO_SEGMENT, dq, dk, dv, scratch, shape);
}

/* h.attn.k, chars.mdl:23:9: add, sum, mul, rsqrt, neg
 * x: f32[batch:16, seq:128, embed:128]
 * x_2: f32[batch:16, seq:128, embed:128]
 * x_3: f32[batch:16, seq:128, embed:128]
 * gain: f32[embed:128]
 * x_4: f32[batch:16, seq:128]
 * x_5: f32[batch:16, seq:128, embed:128]
 * x_6: f32[batch:16, seq:128, embed:128]
 * y, result: f32[embed:128]
 * y_2, result: f32[embed:128]
 * y_3, result: f32[batch:16, seq:128, embed:128]
 */
static void kernel_h_attn_k_3(const float *restrict x, const float *restrict x_2, const float *restrict x_3,
                              const float *gain, const float *restrict x_4, const float *x_5, const float *restrict x_6,
                              float *y, float *y_2, float *y_3, float *restrict scratch)
{
    float *const y_parts = scratch;
    float *const y_2_parts = scratch + 1024;
#pragma omp parallel for
    for (int64_t block = 0; block < 8; block++) {
        float *const y_sum = y_parts + block * 128;
        for (int64_t i = 0; i < 128; i++) {
            y_sum[i] = 0.0f;
        }
        float *const y_2_sum = y_2_parts + block * 128;
        for (int64_t i = 0; i < 128; i++) {
            y_2_sum[i] = 0.0f;
        }
        for (int64_t row = block * 2048 / 8; row < (block + 1) * 2048 / 8; row++) {
            float mul_stored[128];
            float add_4_stored[128];
            const float x_4_row = x_4[row];
            const float mul_2 = x_4_row * 0.0078125f;
            const float add_3 = mul_2 + 1e-05f;
            const float rsqrt = 1.0f / sqrtf(add_3);
            const float mul_8 = rsqrt * rsqrt;
            const float mul_9 = mul_8 * rsqrt;
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (int64_t embed = 0; embed < 128; embed++) {
                const float x_5_i = x_5[row * 128 + embed];
                const float add = x[row * 128 + embed] + x_2[row * 128 + embed];
                const float add_2 = add + x_3[row * 128 + embed];
                const float mul = add_2 * gain[embed];
                const float mul_3 = x_5_i * rsqrt;
                const float mul_4 = add_2 * mul_3;
                const float mul_6 = mul * x_5_i;
                sum += mul_6;
                mul_stored[embed] = mul;
                y_sum[embed] += add_2;
                y_2_sum[embed] += mul_4;
            }
            const float mul_7 = sum * (-0.5f);
            const float mul_10 = mul_7 * mul_9;
            const float mul_11 = mul_10 * 0.0078125f;
            float sum_2 = 0.0f;
#pragma omp simd reduction(+ : sum_2)
            for (int64_t embed = 0; embed < 128; embed++) {
                const float mul_5 = mul_stored[embed] * rsqrt;
                const float mul_12 = 2.0f * x_5[row * 128 + embed];
                const float mul_13 = mul_11 * mul_12;
                const float add_4 = mul_5 + mul_13;
                const float neg = -add_4;
                sum_2 += neg;
                add_4_stored[embed] = add_4;
            }
            const float mul_14 = sum_2 * 0.0078125f;
#pragma omp simd
            for (int64_t embed = 0; embed < 128; embed++) {
                const float add_5 = x_6[row * 128 + embed] + add_4_stored[embed];
                const float y_3_i = add_5 + mul_14;
                y_3[row * 128 + embed] = y_3_i;
            }
        }
    }
    for (int64_t embed = 0; embed < 128; embed++) {
        float y_sum = 0.0f;
        for (int64_t block = 0; block < 8; block++) {
            y_sum += y_parts[block * 128 + embed];
        }
        y[embed] = y_sum;
    }
    for (int64_t embed = 0; embed < 128; embed++) {
        float y_2_sum = 0.0f;
        for (int64_t block = 0; block < 8; block++) {
            y_2_sum += y_2_parts[block * 128 + embed];
        }
        y_2[embed] = y_2_sum;
    }
}

/* x, chars.mdl:48:29: sum
 * x: f32[batch:16, seq:128, embed:128]
 * y, result: f32[seq:128, embed:128]
 */
static void kernel_x_4(const float *restrict x, float *restrict y)
{
#pragma omp parallel for
    for (int64_t seq = 0; seq < 128; seq++) {
        float y_sum[128];
        for (int64_t i = 0; i < 128; i++) {
            y_sum[i] = 0.0f;
        }
        for (int64_t batch = 0; batch < 16; batch++) {
#pragma omp simd
            for (int64_t embed = 0; embed < 128; embed++) {
                y_sum[embed] += x[seq * 128 + batch * 16384 + embed];
            }
        }
        for (int64_t embed = 0; embed < 128; embed++) {
            y[seq * 128 + embed] = y_sum[embed];
        }
    }
}

/* x, chars.mdl:48:13: scatter_add
 * picked: f32[batch:16, seq:128, embed:128]
 * index: i32[batch:16, seq:128]
 * table, result: f32[vocab:256, embed:128]
 */
static void kernel_x_scatter_add(const float *picked, const int32_t *index, float *table)
{
    const RtGather shape = {
        .pre = 1,
        .rows = 256,
        .count = 2048,
        .post = 128,
        .table = { 0, 128 },
        .picked = { 0, 128 },
        .table_type = RT_F32,
        .picked_type = RT_F32,
    };
    rt_scatter_add(picked, index, table, shape);
}

/* x, chars.mdl:48:13: add, square, sum
 * x: f32[vocab:256, embed:128]
 * x_2: f32[vocab:256, embed:128]
 * y, result: f32[vocab:256, embed:128]
 * y_2, result: f32[]
 */
static void kernel_x_5(const float *x, const float *restrict x_2, float *y, float *restrict y_2)
{
    float y_2_sum = 0.0f;
#pragma omp simd reduction(+ : y_2_sum)
    for (int64_t i = 0; i < 32768; i++) {
        const float y_i = x[i] + x_2[i];
        const float square = y_i * y_i;
        y_2_sum += square;
        y[i] = y_i;
    }
    y_2[0] = y_2_sum;
}

/* wpe: square, sum
 * x: f32[seq:128, embed:128]
 * y, result: f32[]
 */
static void kernel_wpe(const float *restrict x, float *restrict y)
{
    float y_sum = 0.0f;
#pragma omp simd reduction(+ : y_sum)
    for (int64_t i = 0; i < 16384; i++) {
        const float x_i = x[i];
        const float square = x_i * x_i;
        y_sum += square;
    }
    y[0] = y_sum;
}

/* h.ln_1.gain: square, sum
 * x: f32[h.copy:4, embed:128]
 * y, result: f32[]
 */
static void kernel_h_ln_1_gain(const float *restrict x, float *restrict y)
{
    float y_sum = 0.0f;
#pragma omp simd reduction(+ : y_sum)
    for (int64_t i = 0; i < 512; i++) {
        const float x_i = x[i];
        const float square = x_i * x_i;
        y_sum += square;
    }
    y[0] = y_sum;
}

/* h.attn.wq: square, sum
 * x: f32[h.copy:4, embed:128, heads:4, head:32]
 * y, result: f32[]
 */
static void kernel_h_attn_wq(const float *restrict x, float *restrict y)
{
    float y_parts[2];
#pragma omp parallel for
    for (int64_t block = 0; block < 2; block++) {
        float y_sum = 0.0f;
#pragma omp simd reduction(+ : y_sum)
        for (int64_t i = block * 65536 / 2; i < (block + 1) * 65536 / 2; i++) {
            const float x_i = x[i];
            const float square = x_i * x_i;
            y_sum += square;
        }
        y_parts[block] = y_sum;
    }
    float y_sum = 0.0f;
    for (int64_t block = 0; block < 2; block++) {
        y_sum += y_parts[block];
    }
    y[0] = y_sum;
}

/* h.mlp.w_up: square, sum
 * x: f32[h.copy:4, embed:128, ff:512]
 * y, result: f32[]
 */
static void kernel_h_mlp_w_up(const float *restrict x, float *restrict y)
{
    float y_parts[8];
#pragma omp parallel for
    for (int64_t block = 0; block < 8; block++) {
        float y_sum = 0.0f;
#pragma omp simd reduction(+ : y_sum)
        for (int64_t i = block * 262144 / 8; i < (block + 1) * 262144 / 8; i++) {
            const float x_i = x[i];
            const float square = x_i * x_i;
            y_sum += square;
        }
        y_parts[block] = y_sum;
    }
    float y_sum = 0.0f;
    for (int64_t block = 0; block < 8; block++) {
        y_sum += y_parts[block];
    }
    y[0] = y_sum;
}

/* h.mlp.b_up: square, sum
 * x: f32[h.copy:4, ff:512]
 * y, result: f32[]
 */
static void kernel_h_mlp_b_up(const float *restrict x, float *restrict y)
{
    float y_sum = 0.0f;
#pragma omp simd reduction(+ : y_sum)
    for (int64_t i = 0; i < 2048; i++) {
        const float x_i = x[i];
        const float square = x_i * x_i;
        y_sum += square;
    }
    y[0] = y_sum;
}

/* ln_f.gain: square, sum
 * x: f32[embed:128]
 * y, result: f32[]
 */
static void kernel_ln_f_gain(const float *restrict x, float *restrict y)
{
    float y_sum = 0.0f;
#pragma omp simd reduction(+ : y_sum)
    for (int64_t embed = 0; embed < 128; embed++) {
        const float x_i = x[embed];
        const float square = x_i * x_i;
        y_sum += square;
    }
    y[0] = y_sum;
}

/* wpe: add, sqrt, div, minimum
 * x: f32[]
 * x_2: f32[]
 * x_3: f32[]
 * x_4: f32[]
 * x_5: f32[]
 * x_6: f32[]
 * x_7: f32[]
 * x_8: f32[]
 * x_9: f32[]
 * x_10: f32[]
 * x_11: f32[]
 * x_12: f32[]
 * x_13: f32[]
 * x_14: f32[]
 * x_15: f32[]
 * x_16: f32[]
 * grad_norm, result: f32[]
 * y, result: f32[]
 */
static void kernel_wpe_2(const float *x, const float *x_2, const float *restrict x_3, const float *restrict x_4,
                         const float *restrict x_5, const float *restrict x_6, const float *restrict x_7,
                         const float *restrict x_8, const float *restrict x_9, const float *restrict x_10,
                         const float *restrict x_11, const float *restrict x_12, const float *restrict x_13,
                         const float *restrict x_14, const float *restrict x_15, const float *restrict x_16,
                         float *grad_norm, float *y)
{
    const float x_value = x[0];
    const float x_2_value = x_2[0];
    const float x_3_value = x_3[0];
    const float x_4_value = x_4[0];
    const float x_5_value = x_5[0];
    const float x_6_value = x_6[0];
    const float x_7_value = x_7[0];
    const float x_8_value = x_8[0];
    const float x_9_value = x_9[0];
    const float x_10_value = x_10[0];
    const float x_11_value = x_11[0];
    const float x_12_value = x_12[0];
    const float x_13_value = x_13[0];
    const float x_14_value = x_14[0];
    const float x_15_value = x_15[0];
    const float x_16_value = x_16[0];
    const float add = x_value + x_2_value;
    const float add_2 = add + x_3_value;
    const float add_3 = add_2 + x_4_value;
    const float add_4 = add_3 + x_5_value;
    const float add_5 = add_4 + x_6_value;
    const float add_6 = add_5 + x_7_value;
    const float add_7 = add_6 + x_8_value;
    const float add_8 = add_7 + x_9_value;
    const float add_9 = add_8 + x_10_value;
    const float add_10 = add_9 + x_11_value;
    const float add_11 = add_10 + x_12_value;
    const float add_12 = add_11 + x_13_value;
    const float add_13 = add_12 + x_14_value;
    const float add_14 = add_13 + x_15_value;
    const float add_15 = add_14 + x_16_value;
    const float grad_norm_value = sqrtf(add_15);
    const float add_16 = grad_norm_value + 1e-06f;
    const float div = 1.0f / add_16;
    const float y_value = div < 1.0f ? div : 1.0f;
    grad_norm[0] = grad_norm_value;
    y[0] = y_value;
}

/* grad_norm: cast, add, mul, expm1, neg, div, sqrt
 * step: i32[]
 * lr: f32[]
 * y, result: f32[]
 * y_2, result: f32[]
 */
static void kernel_grad_norm(const int32_t *restrict step, const float *restrict lr, float *restrict y,
                             float *restrict y_2)
{
    const int32_t step_value = step[0];
    const float lr_value = lr[0];
    const float cast = step_value;
    const float add = cast + 1.0f;
    const float mul = add * (-0.105360516f);
    const float expm1 = expm1f(mul);
    const float neg = -expm1;
    const float y_value = lr_value / neg;
    const float mul_2 = add * (-0.010050336f);
    const float expm1_2 = expm1f(mul_2);
    const float neg_2 = -expm1_2;
    const float y_2_value = sqrtf(neg_2);
    y[0] = y_value;
    y_2[0] = y_2_value;
}

/* wte, chars.mdl:45:11: mul, sub
 * x: f32[]
 * y, result: f32[]
 */
static void kernel_wte(const float *restrict x, float *restrict y)
{
    const float x_value = x[0];
    const float mul = x_value * 0.1f;
    const float y_value = 1.0f - mul;
    y[0] = y_value;
}

/* wte, chars.mdl:45:11: mul, add, square, sqrt, div, sub
 * x: f32[vocab:256, embed:128]
 * x_2: f32[]
 * m: f32[vocab:256, embed:128]
 * v: f32[vocab:256, embed:128]
 * param: f32[vocab:256, embed:128]
 * x_3: f32[]
 * x_4: f32[]
 * x_5: f32[]
 * m_new, result: f32[vocab:256, embed:128]
 * v_new, result: f32[vocab:256, embed:128]
 * param_new, result: f32[vocab:256, embed:128]
 */
static void kernel_wte_2(const float *restrict x, const float *restrict x_2, const float *m, const float *v,
                         const float *param, const float *restrict x_3, const float *restrict x_4,
                         const float *restrict x_5, float *m_new, float *v_new, float *param_new)
{
    const float x_2_value = x_2[0];
    const float x_3_value = x_3[0];
    const float x_4_value = x_4[0];
    const float x_5_value = x_5[0];
#pragma omp parallel for
    for (int64_t begin = 0; begin < 32768; begin += 4096) {
        const int64_t end = begin + 4096 < 32768 ? begin + 4096 : 32768;
#pragma omp simd
        for (int64_t i = begin; i < end; i++) {
            const float mul = x[i] * x_2_value;
            const float mul_2 = m[i] * 0.9f;
            const float mul_3 = mul * 0.1f;
            const float m_new_i = mul_2 + mul_3;
            const float mul_4 = v[i] * 0.99f;
            const float square = mul * mul;
            const float mul_5 = square * 0.01f;
            const float v_new_i = mul_4 + mul_5;
            const float mul_6 = param[i] * x_3_value;
            const float sqrt = sqrtf(v_new_i);
            const float div = sqrt / x_4_value;
            const float add = div + 1e-08f;
            const float div_2 = m_new_i / add;
            const float mul_7 = x_5_value * div_2;
            const float param_new_i = mul_6 - mul_7;
            m_new[i] = m_new_i;
            v_new[i] = v_new_i;
            param_new[i] = param_new_i;
        }
    }
}

/* wpe, chars.mdl:46:11: mul, add, square, sqrt, div, sub
 * x: f32[seq:128, embed:128]
 * x_2: f32[]
 * m: f32[seq:128, embed:128]
 * v: f32[seq:128, embed:128]
 * param: f32[seq:128, embed:128]
 * x_3: f32[]
 * x_4: f32[]
 * x_5: f32[]
 * m_new, result: f32[seq:128, embed:128]
 * v_new, result: f32[seq:128, embed:128]
 * param_new, result: f32[seq:128, embed:128]
 */
static void kernel_wpe_3(const float *restrict x, const float *restrict x_2, const float *m, const float *v,
                         const float *param, const float *restrict x_3, const float *restrict x_4,
                         const float *restrict x_5, float *m_new, float *v_new, float *param_new)
{
    const float x_2_value = x_2[0];
    const float x_3_value = x_3[0];
    const float x_4_value = x_4[0];
    const float x_5_value = x_5[0];
#pragma omp parallel for
    for (int64_t begin = 0; begin < 16384; begin += 4096) {
        const int64_t end = begin + 4096 < 16384 ? begin + 4096 : 16384;
#pragma omp simd
        for (int64_t i = begin; i < end; i++) {
            const float mul = x[i] * x_2_value;
            const float mul_2 = m[i] * 0.9f;
            const float mul_3 = mul * 0.1f;
            const float m_new_i = mul_2 + mul_3;
            const float mul_4 = v[i] * 0.99f;
            const float square = mul * mul;
            const float mul_5 = square * 0.01f;
            const float v_new_i = mul_4 + mul_5;
            const float mul_6 = param[i] * x_3_value;
            const float sqrt = sqrtf(v_new_i);
            const float div = sqrt / x_4_value;
            const float add = div + 1e-08f;
            const float div_2 = m_new_i / add;
            const float mul_7 = x_5_value * div_2;
            const float param_new_i = mul_6 - mul_7;
            m_new[i] = m_new_i;
            v_new[i] = v_new_i;
            param_new[i] = param_new_i;
        }
    }
}

/* h.ln_1.gain, chars.mdl:14:11: mul, add, square, sqrt, div, sub
 * x: f32[h.copy:4, embed:128]
 * x_2: f32[]
 * m: f32[h.copy:4, embed:128]
 * v: f32[h.copy:4, embed:128]
 * x_3: f32[]
 * x_4: f32[]
 * param: f32[h.copy:4, embed:128]
 * m_new, result: f32[h.copy:4, embed:128]
 * v_new, result: f32[h.copy:4, embed:128]
 * param_new, result: f32[h.copy:4, embed:128]
 */
static void kernel_h_ln_1_gain_2(const float *restrict x, const float *restrict x_2, const float *m, const float *v,
                                 const float *restrict x_3, const float *restrict x_4, const float *param, float *m_new,
                                 float *v_new, float *param_new)
{
    const float x_2_value = x_2[0];
    const float x_3_value = x_3[0];
    const float x_4_value = x_4[0];
#pragma omp simd
    for (int64_t i = 0; i < 512; i++) {
        const float mul = x[i] * x_2_value;
        const float mul_2 = m[i] * 0.9f;
        const float mul_3 = mul * 0.1f;
        const float m_new_i = mul_2 + mul_3;
        const float mul_4 = v[i] * 0.99f;
        const float square = mul * mul;
        const float mul_5 = square * 0.01f;
        const float v_new_i = mul_4 + mul_5;
        const float sqrt = sqrtf(v_new_i);
        const float div = sqrt / x_3_value;
        const float add = div + 1e-08f;
        const float div_2 = m_new_i / add;
        const float mul_6 = x_4_value * div_2;
        const float param_new_i = param[i] - mul_6;
        m_new[i] = m_new_i;
        v_new[i] = v_new_i;
        param_new[i] = param_new_i;
    }
}

/* h.attn.wq, chars.mdl:20:11: mul, add, square, sqrt, div, sub
 * x: f32[h.copy:4, embed:128, heads:4, head:32]
 * x_2: f32[]
 * m: f32[h.copy:4, embed:128, heads:4, head:32]
 * v: f32[h.copy:4, embed:128, heads:4, head:32]
 * param: f32[h.copy:4, embed:128, heads:4, head:32]
 * x_3: f32[]
 * x_4: f32[]
 * x_5: f32[]
 * m_new, result: f32[h.copy:4, embed:128, heads:4, head:32]
 * v_new, result: f32[h.copy:4, embed:128, heads:4, head:32]
 * param_new, result: f32[h.copy:4, embed:128, heads:4, head:32]
 */
static void kernel_h_attn_wq_2(const float *restrict x, const float *restrict x_2, const float *m, const float *v,
                               const float *param, const float *restrict x_3, const float *restrict x_4,
                               const float *restrict x_5, float *m_new, float *v_new, float *param_new)
{
    const float x_2_value = x_2[0];
    const float x_3_value = x_3[0];
    const float x_4_value = x_4[0];
    const float x_5_value = x_5[0];
#pragma omp parallel for
    for (int64_t row = 0; row < 512; row++) {
#pragma omp simd
        for (int64_t i = 0; i < 128; i++) {
            const float mul = x[row * 128 + i] * x_2_value;
            const float mul_2 = m[row * 128 + i] * 0.9f;
            const float mul_3 = mul * 0.1f;
            const float m_new_i = mul_2 + mul_3;
            const float mul_4 = v[row * 128 + i] * 0.99f;
            const float square = mul * mul;
            const float mul_5 = square * 0.01f;
            const float v_new_i = mul_4 + mul_5;
            const float mul_6 = param[row * 384 + i] * x_3_value;
            const float sqrt = sqrtf(v_new_i);
            const float div = sqrt / x_4_value;
            const float add = div + 1e-08f;
            const float div_2 = m_new_i / add;
            const float mul_7 = x_5_value * div_2;
            const float param_new_i = mul_6 - mul_7;
            m_new[row * 128 + i] = m_new_i;
            v_new[row * 128 + i] = v_new_i;
            param_new[row * 384 + i] = param_new_i;
        }
    }
}

/* h.attn.wo, chars.mdl:21:11: mul, add, square, sqrt, div, sub
 * x: f32[h.copy:4, heads:4, head:32, embed:128]
 * x_2: f32[]
 * m: f32[h.copy:4, heads:4, head:32, embed:128]
 * v: f32[h.copy:4, heads:4, head:32, embed:128]
 * param: f32[h.copy:4, heads:4, head:32, embed:128]
 * x_3: f32[]
 * x_4: f32[]
 * x_5: f32[]
 * m_new, result: f32[h.copy:4, heads:4, head:32, embed:128]
 * v_new, result: f32[h.copy:4, heads:4, head:32, embed:128]
 * param_new, result: f32[h.copy:4, heads:4, head:32, embed:128]
 */
static void kernel_h_attn_wo_2(const float *restrict x, const float *restrict x_2, const float *m, const float *v,
                               const float *param, const float *restrict x_3, const float *restrict x_4,
                               const float *restrict x_5, float *m_new, float *v_new, float *param_new)
{
    const float x_2_value = x_2[0];
    const float x_3_value = x_3[0];
    const float x_4_value = x_4[0];
    const float x_5_value = x_5[0];
#pragma omp parallel for
    for (int64_t begin = 0; begin < 65536; begin += 4096) {
        const int64_t end = begin + 4096 < 65536 ? begin + 4096 : 65536;
#pragma omp simd
        for (int64_t i = begin; i < end; i++) {
            const float mul = x[i] * x_2_value;
            const float mul_2 = m[i] * 0.9f;
            const float mul_3 = mul * 0.1f;
            const float m_new_i = mul_2 + mul_3;
            const float mul_4 = v[i] * 0.99f;
            const float square = mul * mul;
            const float mul_5 = square * 0.01f;
            const float v_new_i = mul_4 + mul_5;
            const float mul_6 = param[i] * x_3_value;
            const float sqrt = sqrtf(v_new_i);
            const float div = sqrt / x_4_value;
            const float add = div + 1e-08f;
            const float div_2 = m_new_i / add;
            const float mul_7 = x_5_value * div_2;
            const float param_new_i = mul_6 - mul_7;
            m_new[i] = m_new_i;
            v_new[i] = v_new_i;
            param_new[i] = param_new_i;
        }
    }
}

/* h.mlp.w_up, chars.mdl:29:11: mul, add, square, sqrt, div, sub
 * x: f32[h.copy:4, embed:128, ff:512]
 * x_2: f32[]
 * m: f32[h.copy:4, embed:128, ff:512]
 * v: f32[h.copy:4, embed:128, ff:512]
 * param: f32[h.copy:4, embed:128, ff:512]
 * x_3: f32[]
 * x_4: f32[]
 * x_5: f32[]
 * m_new, result: f32[h.copy:4, embed:128, ff:512]
 * v_new, result: f32[h.copy:4, embed:128, ff:512]
 * param_new, result: f32[h.copy:4, embed:128, ff:512]
 */
static void kernel_h_mlp_w_up_2(const float *restrict x, const float *restrict x_2, const float *m, const float *v,
                                const float *param, const float *restrict x_3, const float *restrict x_4,
                                const float *restrict x_5, float *m_new, float *v_new, float *param_new)
{
    const float x_2_value = x_2[0];
    const float x_3_value = x_3[0];
    const float x_4_value = x_4[0];
    const float x_5_value = x_5[0];
#pragma omp parallel for
    for (int64_t begin = 0; begin < 262144; begin += 4096) {
        const int64_t end = begin + 4096 < 262144 ? begin + 4096 : 262144;
#pragma omp simd
        for (int64_t i = begin; i < end; i++) {
            const float mul = x[i] * x_2_value;
            const float mul_2 = m[i] * 0.9f;
            const float mul_3 = mul * 0.1f;
            const float m_new_i = mul_2 + mul_3;
            const float mul_4 = v[i] * 0.99f;
            const float square = mul * mul;
            const float mul_5 = square * 0.01f;
            const float v_new_i = mul_4 + mul_5;
            const float mul_6 = param[i] * x_3_value;
            const float sqrt = sqrtf(v_new_i);
            const float div = sqrt / x_4_value;
            const float add = div + 1e-08f;
            const float div_2 = m_new_i / add;
            const float mul_7 = x_5_value * div_2;
            const float param_new_i = mul_6 - mul_7;
            m_new[i] = m_new_i;
            v_new[i] = v_new_i;
            param_new[i] = param_new_i;
        }
    }
}

/* h.mlp.b_up, chars.mdl:30:11: mul, add, square, sqrt, div, sub
 * x: f32[h.copy:4, ff:512]
 * x_2: f32[]
 * m: f32[h.copy:4, ff:512]
 * v: f32[h.copy:4, ff:512]
 * x_3: f32[]
 * x_4: f32[]
 * param: f32[h.copy:4, ff:512]
 * m_new, result: f32[h.copy:4, ff:512]
 * v_new, result: f32[h.copy:4, ff:512]
 * param_new, result: f32[h.copy:4, ff:512]
 */
static void kernel_h_mlp_b_up_2(const float *restrict x, const float *restrict x_2, const float *m, const float *v,
                                const float *restrict x_3, const float *restrict x_4, const float *param, float *m_new,
                                float *v_new, float *param_new)
{
    const float x_2_value = x_2[0];
    const float x_3_value = x_3[0];
    const float x_4_value = x_4[0];
#pragma omp simd
    for (int64_t i = 0; i < 2048; i++) {
        const float mul = x[i] * x_2_value;
        const float mul_2 = m[i] * 0.9f;
        const float mul_3 = mul * 0.1f;
        const float m_new_i = mul_2 + mul_3;
        const float mul_4 = v[i] * 0.99f;
        const float square = mul * mul;
        const float mul_5 = square * 0.01f;
        const float v_new_i = mul_4 + mul_5;
        const float sqrt = sqrtf(v_new_i);
        const float div = sqrt / x_3_value;
        const float add = div + 1e-08f;
        const float div_2 = m_new_i / add;
        const float mul_6 = x_4_value * div_2;
        const float param_new_i = param[i] - mul_6;
        m_new[i] = m_new_i;
        v_new[i] = v_new_i;
        param_new[i] = param_new_i;
    }
}

/* ln_f.gain, chars.mdl:14:11: mul, add, square, sqrt, div, sub
 * x: f32[embed:128]
 * x_2: f32[]
 * m: f32[embed:128]
 * v: f32[embed:128]
 * x_3: f32[]
 * x_4: f32[]
 * param: f32[embed:128]
 * m_new, result: f32[embed:128]
 * v_new, result: f32[embed:128]
 * param_new, result: f32[embed:128]
 */
static void kernel_ln_f_gain_2(const float *restrict x, const float *restrict x_2, const float *m, const float *v,
                               const float *restrict x_3, const float *restrict x_4, const float *param, float *m_new,
                               float *v_new, float *param_new)
{
    const float x_2_value = x_2[0];
    const float x_3_value = x_3[0];
    const float x_4_value = x_4[0];
#pragma omp simd
    for (int64_t embed = 0; embed < 128; embed++) {
        const float mul = x[embed] * x_2_value;
        const float mul_2 = m[embed] * 0.9f;
        const float mul_3 = mul * 0.1f;
        const float m_new_i = mul_2 + mul_3;
        const float mul_4 = v[embed] * 0.99f;
        const float square = mul * mul;
        const float mul_5 = square * 0.01f;
        const float v_new_i = mul_4 + mul_5;
        const float sqrt = sqrtf(v_new_i);
        const float div = sqrt / x_3_value;
        const float add = div + 1e-08f;
        const float div_2 = m_new_i / add;
        const float mul_6 = x_4_value * div_2;
        const float param_new_i = param[embed] - mul_6;
        m_new[embed] = m_new_i;
        v_new[embed] = v_new_i;
        param_new[embed] = param_new_i;
    }
}

/* h.ln_1, chars.mdl:16:12: sum, mul, sub, square, add, rsqrt
 * x: f32[batch:16, seq:128, embed:128]
 * gain: f32[embed:128]
 * bias: f32[embed:128]
 * y, result: f32[batch:16, seq:128, embed:128]
 */
static void kernel_h_ln_1_2(const float *restrict x, const float *restrict gain, const float *restrict bias,
                            float *restrict y)
{
#pragma omp parallel for
    for (int64_t row = 0; row < 2048; row++) {
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t embed = 0; embed < 128; embed++) {
            sum += x[row * 128 + embed];
        }
        const float mul = sum * 0.0078125f;
        float sum_2 = 0.0f;
#pragma omp simd reduction(+ : sum_2)
        for (int64_t embed = 0; embed < 128; embed++) {
            const float sub = x[row * 128 + embed] - mul;
            const float square = sub * sub;
            sum_2 += square;
        }
        const float mul_2 = sum_2 * 0.0078125f;
        const float add = mul_2 + 1e-05f;
        const float rsqrt = 1.0f / sqrtf(add);
#pragma omp simd
        for (int64_t embed = 0; embed < 128; embed++) {
            const float sub = x[row * 128 + embed] - mul;
            const float mul_3 = sub * rsqrt;
            const float mul_4 = mul_3 * gain[embed];
            const float y_i = mul_4 + bias[embed];
            y[row * 128 + embed] = y_i;
        }
    }
}

/* h.x, chars.mdl:37:11: add, sum, mul, sub, square, rsqrt
 * x: f32[batch:16, seq:128, embed:128]
 * x_2: f32[batch:16, seq:128, embed:128]
 * gain: f32[embed:128]
 * bias: f32[embed:128]
 * y, result: f32[batch:16, seq:128, embed:128]
 * y_2, result: f32[batch:16, seq:128, embed:128]
 */
static void kernel_h_x_2(const float *restrict x, const float *x_2, const float *restrict gain,
                         const float *restrict bias, float *y, float *restrict y_2)
{
#pragma omp parallel for
    for (int64_t row = 0; row < 2048; row++) {
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t embed = 0; embed < 128; embed++) {
            const float y_i = x[row * 128 + embed] + x_2[row * 128 + embed];
            sum += y_i;
        }
        const float mul = sum * 0.0078125f;
        float sum_2 = 0.0f;
#pragma omp simd reduction(+ : sum_2)
        for (int64_t embed = 0; embed < 128; embed++) {
            const float y_i = x[row * 128 + embed] + x_2[row * 128 + embed];
            const float sub = y_i - mul;
            const float square = sub * sub;
            sum_2 += square;
        }
        const float mul_2 = sum_2 * 0.0078125f;
        const float add = mul_2 + 1e-05f;
        const float rsqrt = 1.0f / sqrtf(add);
#pragma omp simd
        for (int64_t embed = 0; embed < 128; embed++) {
            const float y_i = x[row * 128 + embed] + x_2[row * 128 + embed];
            const float sub = y_i - mul;
            const float mul_3 = sub * rsqrt;
            const float mul_4 = mul_3 * gain[embed];
            const float y_2_i = mul_4 + bias[embed];
            y[row * 128 + embed] = y_i;
            y_2[row * 128 + embed] = y_2_i;
        }
    }
}

/* ln_f, chars.mdl:16:12: sum, mul, sub, square, add, rsqrt
 * x: f32[batch:16, seq:128, embed:128]
 * gain: f32[embed:128]
 * bias: f32[embed:128]
 * y, result: f32[batch:16, seq:128, embed:128]
 */
static void kernel_ln_f(const float *x, const float *restrict gain, const float *restrict bias, float *y)
{
#pragma omp parallel for
    for (int64_t row = 0; row < 2048; row++) {
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t embed = 0; embed < 128; embed++) {
            sum += x[row * 128 + embed];
        }
        const float mul = sum * 0.0078125f;
        float sum_2 = 0.0f;
#pragma omp simd reduction(+ : sum_2)
        for (int64_t embed = 0; embed < 128; embed++) {
            const float sub = x[row * 128 + embed] - mul;
            const float square = sub * sub;
            sum_2 += square;
        }
        const float mul_2 = sum_2 * 0.0078125f;
        const float add = mul_2 + 1e-05f;
        const float rsqrt = 1.0f / sqrtf(add);
#pragma omp simd
        for (int64_t embed = 0; embed < 128; embed++) {
            const float sub = x[row * 128 + embed] - mul;
            const float mul_3 = sub * rsqrt;
            const float mul_4 = mul_3 * gain[embed];
            const float y_i = mul_4 + bias[embed];
            y[row * 128 + embed] = y_i;
        }
    }
}

/* loss, chars.mdl:51:15: max, stop_gradient, sub, exp, sum, log, iota, eq, where
 * logits: f32[batch:16, seq:128, vocab:256]
 * labels: i32[batch:16, seq:128]
 * y, result: f32[]
 */
static void kernel_loss(const float *restrict logits, const int32_t *restrict labels, float *restrict y)
{
    float y_parts[16];
#pragma omp parallel for
    for (int64_t block = 0; block < 16; block++) {
        float y_sum = 0.0f;
        for (int64_t row = block * 2048 / 16; row < (block + 1) * 2048 / 16; row++) {
            const int32_t labels_row = labels[row];
            float max = -INFINITY;
#pragma omp simd reduction(max : max)
            for (int64_t vocab = 0; vocab < 256; vocab++) {
                const float logits_i = logits[row * 256 + vocab];
                max = logits_i > max ? logits_i : max;
            }
            float sum = 0.0f;
            float sum_2 = 0.0f;
#pragma omp simd reduction(+ : sum, sum_2)
            for (int64_t vocab = 0; vocab < 256; vocab++) {
                const float sub = logits[row * 256 + vocab] - max;
                const float exp = expf(sub);
                const int32_t iota = vocab;
                const bool eq = labels_row == iota;
                const float where = eq ? sub : 0.0f;
                sum += exp;
                sum_2 += where;
            }
            const float log = logf(sum);
            const float sub_2 = log - sum_2;
            y_sum += sub_2;
        }
        y_parts[block] = y_sum;
    }
    float y_sum = 0.0f;
    for (int64_t block = 0; block < 16; block++) {
        y_sum += y_parts[block];
    }
    y[0] = y_sum;
}

/* x, chars.mdl:48:13: gather
 * table: f32[vocab:256, embed:128]
 * index: i32[batch:1, seq:128]
 * picked, result: f32[batch:1, seq:128, embed:128]
 */
static void kernel_x_gather_2(const float *table, const int32_t *index, float *picked)
{
    const RtGather shape = {
        .pre = 1,
        .rows = 256,
        .count = 128,
        .post = 128,
        .table = { 0, 128 },
        .picked = { 0, 128 },
        .table_type = RT_F32,
        .picked_type = RT_F32,
        .size = 256,
        .dim = "vocab",
        .where = "chars.mdl:48:13",
    };
    rt_gather(table, index, picked, shape);
}

/* x, chars.mdl:48:29: add
 * x: f32[batch:1, seq:128, embed:128]
 * wpe: f32[seq:128, embed:128]
 * y, result: f32[batch:1, seq:128, embed:128]
 */
static void kernel_x_2(const float *x, const float *restrict wpe, float *y)
{
#pragma omp parallel for
    for (int64_t begin = 0; begin < 16384; begin += 4096) {
        const int64_t end = begin + 4096 < 16384 ? begin + 4096 : 16384;
#pragma omp simd
        for (int64_t i = begin; i < end; i++) {
            const float y_i = x[i] + wpe[i];
            y[i] = y_i;
        }
    }
}

/* h.ln_1, chars.mdl:16:12: sum, mul, sub, square, add, rsqrt
 * x: f32[batch:1, seq:128, embed:128]
 * gain: f32[embed:128]
 * bias: f32[embed:128]
 * y, result: f32[batch:1, seq:128, embed:128]
 */
static void kernel_h_ln_1_3(const float *restrict x, const float *restrict gain, const float *restrict bias,
                            float *restrict y)
{
#pragma omp parallel for
    for (int64_t seq = 0; seq < 128; seq++) {
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t embed = 0; embed < 128; embed++) {
            sum += x[seq * 128 + embed];
        }
        const float mul = sum * 0.0078125f;
        float sum_2 = 0.0f;
#pragma omp simd reduction(+ : sum_2)
        for (int64_t embed = 0; embed < 128; embed++) {
            const float sub = x[seq * 128 + embed] - mul;
            const float square = sub * sub;
            sum_2 += square;
        }
        const float mul_2 = sum_2 * 0.0078125f;
        const float add = mul_2 + 1e-05f;
        const float rsqrt = 1.0f / sqrtf(add);
#pragma omp simd
        for (int64_t embed = 0; embed < 128; embed++) {
            const float sub = x[seq * 128 + embed] - mul;
            const float mul_3 = sub * rsqrt;
            const float mul_4 = mul_3 * gain[embed];
            const float y_i = mul_4 + bias[embed];
            y[seq * 128 + embed] = y_i;
        }
    }
}

/* h.attn, chars.mdl:25:16: attend
 * q: f32[batch:1, seq:128, heads:4, head:32]
 * k: f32[batch:1, seq.key:128, heads:4, head:32]
 * v: f32[batch:1, seq.key:128, heads:4, head:32]
 * y, result: f32[batch:1, seq:128, heads:4, head:32]
 * lse, result: f32[batch:1, seq:128, heads:4]
 */
static void kernel_h_attn_attend_2(const float *q, const float *k, const float *v, float *y, float *lse)
{
    const RtAttend shape = {
        .batch = 4,
        .queries = 128,
        .keys = 128,
        .heads = 1,
        .group = 1,
        .feature = 32,
        .q = { 32, 384, 0, 0 },
        .k = { 32, 384, 0, 0 },
        .v = { 32, 384, 0, 0 },
        .y = { 32, 128, 0, 0 },
        .lse = { 1, 4, 0, 0 },
        .type = RT_F32,
        .causal = true,
        .window = 0,
        .scale = 0.176776695f,
    };
    rt_attend(q, k, v, RT_NO_LOGITS, RT_NO_LOGITS, RT_NO_SEGMENT, RT_NO_SEGMENT, y, lse, shape);
}

/* h.x, chars.mdl:37:11: add, sum, mul, sub, square, rsqrt
 * x: f32[batch:1, seq:128, embed:128]
 * x_2: f32[batch:1, seq:128, embed:128]
 * gain: f32[embed:128]
 * bias: f32[embed:128]
 * y, result: f32[batch:1, seq:128, embed:128]
 * y_2, result: f32[batch:1, seq:128, embed:128]
 */
static void kernel_h_x_3(const float *restrict x, const float *x_2, const float *restrict gain,
                         const float *restrict bias, float *y, float *restrict y_2)
{
#pragma omp parallel for
    for (int64_t seq = 0; seq < 128; seq++) {
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t embed = 0; embed < 128; embed++) {
            const float y_i = x[seq * 128 + embed] + x_2[seq * 128 + embed];
            sum += y_i;
        }
        const float mul = sum * 0.0078125f;
        float sum_2 = 0.0f;
#pragma omp simd reduction(+ : sum_2)
        for (int64_t embed = 0; embed < 128; embed++) {
            const float y_i = x[seq * 128 + embed] + x_2[seq * 128 + embed];
            const float sub = y_i - mul;
            const float square = sub * sub;
            sum_2 += square;
        }
        const float mul_2 = sum_2 * 0.0078125f;
        const float add = mul_2 + 1e-05f;
        const float rsqrt = 1.0f / sqrtf(add);
#pragma omp simd
        for (int64_t embed = 0; embed < 128; embed++) {
            const float y_i = x[seq * 128 + embed] + x_2[seq * 128 + embed];
            const float sub = y_i - mul;
            const float mul_3 = sub * rsqrt;
            const float mul_4 = mul_3 * gain[embed];
            const float y_2_i = mul_4 + bias[embed];
            y[seq * 128 + embed] = y_i;
            y_2[seq * 128 + embed] = y_2_i;
        }
    }
}

/* h.mlp, chars.mdl:33:67: add
 * x: f32[batch:1, seq:128, embed:128]
 * b_down: f32[embed:128]
 * x_2: f32[batch:1, seq:128, embed:128]
 * y, result: f32[batch:1, seq:128, embed:128]
 */
static void kernel_h_mlp_10(const float *restrict x, const float *restrict b_down, const float *restrict x_2,
                            float *restrict y)
{
#pragma omp parallel for
    for (int64_t seq = 0; seq < 128; seq++) {
#pragma omp simd
        for (int64_t embed = 0; embed < 128; embed++) {
            const float add = x[seq * 128 + embed] + b_down[embed];
            const float y_i = x_2[seq * 128 + embed] + add;
            y[seq * 128 + embed] = y_i;
        }
    }
}

/* ln_f, chars.mdl:16:12: sum, mul, sub, square, add, rsqrt
 * x: f32[batch:1, seq:128, embed:128]
 * gain: f32[embed:128]
 * bias: f32[embed:128]
 * y, result: f32[batch:1, seq:128, embed:128]
 */
static void kernel_ln_f_2(const float *x, const float *restrict gain, const float *restrict bias, float *y)
{
#pragma omp parallel for
    for (int64_t seq = 0; seq < 128; seq++) {
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t embed = 0; embed < 128; embed++) {
            sum += x[seq * 128 + embed];
        }
        const float mul = sum * 0.0078125f;
        float sum_2 = 0.0f;
#pragma omp simd reduction(+ : sum_2)
        for (int64_t embed = 0; embed < 128; embed++) {
            const float sub = x[seq * 128 + embed] - mul;
            const float square = sub * sub;
            sum_2 += square;
        }
        const float mul_2 = sum_2 * 0.0078125f;
        const float add = mul_2 + 1e-05f;
        const float rsqrt = 1.0f / sqrtf(add);
#pragma omp simd
        for (int64_t embed = 0; embed < 128; embed++) {
            const float sub = x[seq * 128 + embed] - mul;
            const float mul_3 = sub * rsqrt;
            const float mul_4 = mul_3 * gain[embed];
            const float y_i = mul_4 + bias[embed];
            y[seq * 128 + embed] = y_i;
        }
    }
}

/* --- Products --- */

/* clang-format off */
static const RtProductShape products[] = {
    { .m = 2048, .n = 384, .k = 128, .batch = 1, .a = { RT_F32, 128, 1, 0 }, .b = { RT_F32, 384, 1, 0 },
      .c = { RT_F32, 384, 1, 0 } },
    { .m = 2048, .n = 128, .k = 128, .batch = 1, .a = { RT_F32, 128, 1, 0 }, .b = { RT_F32, 128, 1, 0 },
      .c = { RT_F32, 128, 1, 0 } },
    { .m = 2048, .n = 512, .k = 128, .batch = 1, .a = { RT_F32, 128, 1, 0 }, .b = { RT_F32, 512, 1, 0 },
      .c = { RT_F32, 512, 1, 0 }, .has_bias = true },
    { .m = 2048, .n = 128, .k = 512, .batch = 1, .a = { RT_F32, 512, 1, 0 }, .b = { RT_F32, 128, 1, 0 },
      .c = { RT_F32, 128, 1, 0 } },
    { .m = 2048, .n = 256, .k = 128, .batch = 1, .a = { RT_F32, 128, 1, 0 }, .b = { RT_F32, 1, 128, 0 },
      .c = { RT_F32, 256, 1, 0 } },
    { .m = 2048, .n = 128, .k = 256, .batch = 1, .a = { RT_F32, 256, 1, 0 }, .b = { RT_F32, 128, 1, 0 },
      .c = { RT_F32, 128, 1, 0 } },
    { .m = 256, .n = 128, .k = 2048, .batch = 1, .a = { RT_F32, 1, 256, 0 }, .b = { RT_F32, 128, 1, 0 },
      .c = { RT_F32, 128, 1, 0 } },
    { .m = 2048, .n = 512, .k = 128, .batch = 1, .a = { RT_F32, 128, 1, 0 }, .b = { RT_F32, 1, 128, 0 },
      .c = { RT_F32, 512, 1, 0 } },
    { .m = 2048, .n = 128, .k = 512, .batch = 1, .a = { RT_F32, 512, 1, 0 }, .b = { RT_F32, 1, 512, 0 },
      .c = { RT_F32, 128, 1, 0 } },
    { .m = 128, .n = 512, .k = 2048, .batch = 1, .a = { RT_F32, 1, 128, 0 }, .b = { RT_F32, 512, 1, 0 },
      .c = { RT_F32, 1, 128, 0 } },
    { .m = 512, .n = 128, .k = 2048, .batch = 1, .a = { RT_F32, 1, 512, 0 }, .b = { RT_F32, 128, 1, 0 },
      .c = { RT_F32, 1, 512, 0 } },
    { .m = 2048, .n = 128, .k = 128, .batch = 1, .a = { RT_F32, 128, 1, 0 }, .b = { RT_F32, 1, 128, 0 },
      .c = { RT_F32, 128, 1, 0 } },
    { .m = 128, .n = 128, .k = 2048, .batch = 1, .a = { RT_F32, 1, 128, 0 }, .b = { RT_F32, 128, 1, 0 },
      .c = { RT_F32, 1, 128, 0 } },
    { .m = 2048, .n = 128, .k = 128, .batch = 1, .a = { RT_F32, 128, 1, 0 }, .b = { RT_F32, 1, 384, 0 },
      .c = { RT_F32, 128, 1, 0 } },
    { .m = 2048, .n = 512, .k = 128, .batch = 1, .a = { RT_F32, 128, 1, 0 }, .b = { RT_F32, 512, 1, 0 },
      .c = { RT_F32, 512, 1, 0 }, .has_bias = true, .activation = RT_GELU_TANH },
    { .m = 128, .n = 384, .k = 128, .batch = 1, .a = { RT_F32, 128, 1, 0 }, .b = { RT_F32, 384, 1, 0 },
      .c = { RT_F32, 384, 1, 0 } },
    { .m = 128, .n = 128, .k = 128, .batch = 1, .a = { RT_F32, 128, 1, 0 }, .b = { RT_F32, 128, 1, 0 },
      .c = { RT_F32, 128, 1, 0 } },
    { .m = 128, .n = 512, .k = 128, .batch = 1, .a = { RT_F32, 128, 1, 0 }, .b = { RT_F32, 512, 1, 0 },
      .c = { RT_F32, 512, 1, 0 }, .has_bias = true, .activation = RT_GELU_TANH },
    { .m = 128, .n = 128, .k = 512, .batch = 1, .a = { RT_F32, 512, 1, 0 }, .b = { RT_F32, 128, 1, 0 },
      .c = { RT_F32, 128, 1, 0 } },
    { .m = 128, .n = 256, .k = 128, .batch = 1, .a = { RT_F32, 128, 1, 0 }, .b = { RT_F32, 1, 128, 0 },
      .c = { RT_F32, 256, 1, 0 } },
};
/* clang-format on */

static void create_products(Rt *rt)
{
    for (int i = 0; i < 20; i++)
        rt_product_create(rt, i, products[i]);
}

/* --- Functions --- */

/* One iteration of @h.fwd; its frame takes 2.10 MB. */
static void run_h_fwd(Rt *rt, char *frame, const float *x, const float *h_ln_1_gain, const float *h_ln_1_bias,
                      const float *h_attn_wq, const float *h_attn_wo, const float *h_ln_2_gain,
                      const float *h_ln_2_bias, const float *h_mlp_w_up, const float *h_mlp_b_up,
                      const float *h_mlp_w_down, const float *h_mlp_b_down, float *h_mlp, float *h_mlp_2,
                      float *h_mlp_3, float *h_x, float *h_x_2, float *h_attn, float *attn_q, float *h_attn_2,
                      float *h_ln_1, float *h_ln_1_2, float *h_x_3, float *h_ln_1_3)
{
    /* h.ln_1, chars.mdl:16:12 */
    RT_RUN(rt, 2, kernel_h_ln_1(x, h_ln_1_gain, h_ln_1_bias, h_ln_1_2, h_ln_1_3, h_ln_1));

    /* h.attn.q, chars.mdl:22:9 */
    RT_RUN(rt, 3, rt_product(rt, 0, h_ln_1, h_attn_wq, attn_q));

    /* h.attn, chars.mdl:25:16 */
    float *attn_k = attn_q + 128; /* [batch 16, seq 128, heads 4, head 32] */
    float *attn_v = attn_q + 256; /* [batch 16, seq 128, heads 4, head 32] */
    RT_RUN(rt, 4, kernel_h_attn_attend(attn_q, attn_k, attn_v, h_attn, h_attn_2));

    /* h.attn, chars.mdl:25:12 */
    float *h_attn_3 = (float *)frame; /* [batch 16, seq 128, embed 128] */
    RT_RUN(rt, 5, rt_product(rt, 1, h_attn, h_attn_wo, h_attn_3));

    /* h.x, chars.mdl:37:11 */
    float *h_x_4 = (float *)frame; /* [batch 16, seq 128, embed 128] */
    RT_RUN(rt, 6, kernel_h_x(x, h_attn_3, h_ln_2_gain, h_ln_2_bias, h_x_4, h_x_2, h_x_3, h_x));

    /* h.mlp, chars.mdl:33:26 */
    RT_RUN(rt, 7, rt_product_with(rt, 2, h_x, h_mlp_w_up, h_mlp_b_up, NULL, h_mlp_3));

    /* h.mlp, chars.mdl:33:16 */
    RT_RUN(rt, 8, kernel_h_mlp_2(h_mlp_3, h_mlp_2));

    /* h.mlp, chars.mdl:33:12 */
    float *h_mlp_4 = (float *)(frame + 1048576); /* [batch 16, seq 128, embed 128] */
    RT_RUN(rt, 9, rt_product(rt, 3, h_mlp_2, h_mlp_w_down, h_mlp_4));

    /* h.mlp, chars.mdl:33:67 */
    RT_RUN(rt, 10, kernel_h_mlp_4(h_mlp_4, h_mlp_b_down, h_x_4, h_mlp));
}

/* One iteration of @h.bwd; its frame takes 8.45 MB. */
static void run_h_bwd(Rt *rt, char *frame, const float *d_45, const float *h_mlp, const float *h_mlp_2,
                      const float *h_x, const float *h_x_2, const float *h_attn, const float *attn_q,
                      const float *h_attn_2, const float *h_ln_1, const float *h_ln_1_2, const float *h_mlp_w_down,
                      const float *h_mlp_w_up, const float *h_ln_2_gain, const float *h_attn_wo, const float *h_attn_wv,
                      const float *h_ln_1_gain, const float *h_x_3, const float *h_ln_1_3, float *h_attn_k,
                      float *h_attn_k_2, float *h_attn_k_3, float *h_attn_q, float *h_attn_k_4, float *h_attn_v,
                      float *h_attn_3, float *h_mlp_3, float *h_mlp_4, float *h_mlp_5, float *h_mlp_6, float *h_mlp_7,
                      float *h_mlp_8)
{
    /* h.mlp, chars.mdl:33:12 */
    float *h_mlp_9 = (float *)frame; /* [batch 16, seq 128, ff 512] */
    RT_RUN(rt, 19, rt_product(rt, 7, d_45, h_mlp_w_down, h_mlp_9));

    /* h.mlp, chars.mdl:33:16 */
    float *h_mlp_10 = (float *)(frame + 4194304); /* [batch 16, seq 128, ff 512] */
    RT_RUN(rt, 20, kernel_h_mlp_12(h_mlp_2, h_mlp_9, h_mlp_10, h_mlp_6, (float *)(frame + 8388608)));

    /* h.mlp, chars.mdl:33:26 */
    float *h_mlp_11 = (float *)frame; /* [batch 16, seq 128, embed 128] */
    RT_RUN(rt, 21, rt_product(rt, 8, h_mlp_10, h_mlp_w_up, h_mlp_11));

    /* h.mlp, chars.mdl:33:67 */
    float *h_mlp_12 = (float *)(frame + 1048576); /* [batch 16, seq 128, embed 128] */
    RT_RUN(rt, 22,
           kernel_h_mlp_14(d_45, h_mlp_11, h_ln_2_gain, h_x_3, h_x_2, h_mlp_8, h_mlp_4, h_mlp_3, h_mlp_12,
                           (float *)(frame + 2097152)));

    /* h.mlp, chars.mdl:33:12 */
    RT_RUN(rt, 23, rt_product(rt, 9, d_45, h_mlp, h_mlp_7));

    /* h.mlp, chars.mdl:33:26 */
    RT_RUN(rt, 24, rt_product(rt, 10, h_mlp_10, h_x, h_mlp_5));

    /* h.attn, chars.mdl:25:12 */
    float *h_attn_4 = (float *)frame; /* [batch 16, seq 128, heads 4, head 32] */
    RT_RUN(rt, 25, rt_product(rt, 11, h_mlp_12, h_attn_wo, h_attn_4));
    RT_RUN(rt, 26, rt_product(rt, 12, h_mlp_12, h_attn, h_attn_3));

    /* h.attn, chars.mdl:25:16 */
    const float *attn_k = attn_q + 128;           /* [batch 16, seq 128, heads 4, head 32] */
    const float *attn_v = attn_q + 256;           /* [batch 16, seq 128, heads 4, head 32] */
    float *h_attn_5 = (float *)(frame + 5242880); /* [batch 16, seq 128, heads 4, head 32] */
    float *h_attn_6 = (float *)(frame + 4194304); /* [batch 16, seq.key 128, heads 4, head 32] */
    float *h_attn_7 = (float *)(frame + 3145728); /* [batch 16, seq.key 128, heads 4, head 32] */
    RT_RUN(rt, 27,
           kernel_h_attn_attend_grad(attn_q, attn_k, attn_v, h_attn, h_attn_2, h_attn_4, h_attn_5, h_attn_6, h_attn_7,
                                     (float *)(frame + 2097152)));

    /* h.attn.v, chars.mdl:24:9 */
    float *h_attn_v_2 = (float *)frame; /* [batch 16, seq 128, embed 128] */
    RT_RUN(rt, 28, rt_product(rt, 13, h_attn_7, h_attn_wv, h_attn_v_2));
    RT_RUN(rt, 29, rt_product(rt, 12, h_attn_7, h_ln_1, h_attn_v));

    /* h.attn.k, chars.mdl:23:9 */
    const float *h_attn_wk = h_attn_wv + -128;      /* [embed 128, heads 4, head 32] */
    float *h_attn_k_5 = (float *)(frame + 2097152); /* [batch 16, seq 128, embed 128] */
    RT_RUN(rt, 30, rt_product(rt, 13, h_attn_6, h_attn_wk, h_attn_k_5));
    RT_RUN(rt, 31, rt_product(rt, 12, h_attn_6, h_ln_1, h_attn_k_4));

    /* h.attn.q, chars.mdl:22:9 */
    const float *h_attn_wq = h_attn_wv + -256;      /* [embed 128, heads 4, head 32] */
    float *h_attn_q_2 = (float *)(frame + 3145728); /* [batch 16, seq 128, embed 128] */
    RT_RUN(rt, 32, rt_product(rt, 13, h_attn_5, h_attn_wq, h_attn_q_2));

    /* h.attn.k, chars.mdl:23:9 */
    RT_RUN(rt, 33,
           kernel_h_attn_k_3(h_attn_v_2, h_attn_k_5, h_attn_q_2, h_ln_1_gain, h_ln_1_3, h_ln_1_2, h_mlp_12, h_attn_k_3,
                             h_attn_k_2, h_attn_k, (float *)(frame + 4194304)));

    /* h.attn.q, chars.mdl:22:9 */
    RT_RUN(rt, 34, rt_product(rt, 12, h_attn_5, h_ln_1, h_attn_q));
}

/* One training step, on inputs, scalars and state in the arena. */
static void run_step(Rt *rt, char *arena)
{
    /* x, chars.mdl:48:13 */
    float *wte = (float *)arena;                     /* [vocab 256, embed 128] */
    int32_t *tokens = (int32_t *)(arena + 10085376); /* [batch 16, seq 128] */
    float *x = (float *)(arena + 59401856);          /* [batch 16, seq 128, embed 128] */
    RT_RUN(rt, 0, kernel_x_gather(wte, tokens, x));

    /* x, chars.mdl:48:29 */
    float *wpe = (float *)(arena + 131072);   /* [seq 128, embed 128] */
    float *x_2 = (float *)(arena + 59401856); /* [batch 16, seq 128, embed 128] */
    RT_RUN(rt, 1, kernel_x_3(x, wpe, x_2));

    /* h, chars.mdl:49:5: @h.fwd, 4 times */
    float *h = (float *)(arena + 86730368);           /* [batch 16, seq 128, embed 128] */
    float *h_ln_1_gain = (float *)(arena + 196608);   /* [h.copy 4, embed 128] */
    float *h_ln_1_bias = (float *)(arena + 198656);   /* [h.copy 4, embed 128] */
    float *h_attn_wq = (float *)(arena + 200704);     /* [h.copy 4, embed 128, heads 4, head 32] */
    float *h_attn_wo = (float *)(arena + 987136);     /* [h.copy 4, heads 4, head 32, embed 128] */
    float *h_ln_2_gain = (float *)(arena + 1249280);  /* [h.copy 4, embed 128] */
    float *h_ln_2_bias = (float *)(arena + 1251328);  /* [h.copy 4, embed 128] */
    float *h_mlp_w_up = (float *)(arena + 1253376);   /* [h.copy 4, embed 128, ff 512] */
    float *h_mlp_b_up = (float *)(arena + 2301952);   /* [h.copy 4, ff 512] */
    float *h_mlp_w_down = (float *)(arena + 2310144); /* [h.copy 4, ff 512, embed 128] */
    float *h_mlp_b_down = (float *)(arena + 3358720); /* [h.copy 4, embed 128] */
    float *h_2 = (float *)(arena + 26896000);         /* [h.copy 4, batch 16, seq 128, ff 512] */
    float *h_3 = (float *)(arena + 10118784);         /* [h.copy 4, batch 16, seq 128, ff 512] */
    float *h_4 = (float *)(arena + 82536064);         /* [h.copy 4, batch 16, seq 128, embed 128] */
    float *h_5 = (float *)(arena + 78341760);         /* [h.copy 4, batch 16, seq 128, embed 128] */
    float *h_6 = (float *)(arena + 74147456);         /* [h.copy 4, batch 16, seq 128, heads 4, head 32] */
    float *h_7 = (float *)(arena + 43673216);         /* [h.copy 4, batch 16, seq 128, heads 4, head 32] */
    float *h_8 = (float *)(arena + 91973248);         /* [h.copy 4, batch 16, seq 128, heads 4] */
    float *h_9 = (float *)(arena + 69953152);         /* [h.copy 4, batch 16, seq 128, embed 128] */
    float *h_10 = (float *)(arena + 65758848);        /* [h.copy 4, batch 16, seq 128, embed 128] */
    float *h_11 = (float *)(arena + 92268160);        /* [h.copy 4, batch 16, seq 128] */
    float *h_12 = (float *)(arena + 92235392);        /* [h.copy 4, batch 16, seq 128] */
    const float *x_3 = x_2;
    for (int64_t h_copy = 0; h_copy < 4; h_copy++) {
        RT_ITERATION(rt, "h.copy", h_copy);
        float *x_3_next = (3 - h_copy) % 2 ? (float *)(arena + 58353280) : h;
        run_h_fwd(rt, arena + 56256128, x_3, h_ln_1_gain + h_copy * 128, h_ln_1_bias + h_copy * 128,
                  h_attn_wq + h_copy * 49152, h_attn_wo + h_copy * 16384, h_ln_2_gain + h_copy * 128,
                  h_ln_2_bias + h_copy * 128, h_mlp_w_up + h_copy * 65536, h_mlp_b_up + h_copy * 512,
                  h_mlp_w_down + h_copy * 65536, h_mlp_b_down + h_copy * 128, x_3_next, h_2 + h_copy * 1048576,
                  h_3 + h_copy * 1048576, h_4 + h_copy * 262144, h_5 + h_copy * 262144, h_6 + h_copy * 262144,
                  h_7 + h_copy * 786432, h_8 + h_copy * 8192, h_9 + h_copy * 262144, h_10 + h_copy * 262144,
                  h_11 + h_copy * 2048, h_12 + h_copy * 2048);
        x_3 = x_3_next;
    }
    RT_ITERATION(rt, "h.copy", -1);

    /* ln_f, chars.mdl:16:12 */
    float *ln_f_gain = (float *)(arena + 3360768); /* [embed 128] */
    float *ln_f_bias = (float *)(arena + 3361280); /* [embed 128] */
    float *ln_f = (float *)(arena + 86730368);     /* [batch 16, seq 128, embed 128] */
    float *ln_f_2 = (float *)(arena + 62555776);   /* [batch 16, seq 128] */
    float *ln_f_3 = (float *)(arena + 60450432);   /* [batch 16, seq 128, embed 128] */
    float *ln_f_4 = (float *)(arena + 58353280);   /* [batch 16, seq 128, embed 128] */
    float *ln_f_5 = (float *)(arena + 62547584);   /* [batch 16, seq 128] */
    float *ln_f_6 = (float *)(arena + 59401856);   /* [batch 16, seq 128, embed 128] */
    RT_RUN(rt, 11, kernel_ln_f_3(h, ln_f_gain, ln_f_bias, ln_f, ln_f_2, ln_f_3, ln_f_4, ln_f_5, ln_f_6));

    /* logits, chars.mdl:50:14 */
    float *logits = (float *)(arena + 56256128); /* [batch 16, seq 128, vocab 256] */
    RT_RUN(rt, 12, rt_product(rt, 4, ln_f_4, wte, logits));

    /* loss, chars.mdl:51:15 */
    float *loss = (float *)(arena + 61499008); /* [] */
    RT_RUN(rt, 13, kernel_loss_3(loss));
    int32_t *labels = (int32_t *)(arena + 10093568); /* [batch 16, seq 128] */
    float *loss_2 = (float *)(arena + 92320384);     /* [] */
    float *loss_3 = (float *)(arena + 56256128);     /* [batch 16, seq 128, vocab 256] */
    RT_RUN(rt, 14, kernel_loss_4(logits, labels, loss, loss_2, loss_3));

    /* loss, chars.mdl:51:10 */
    float *loss_4 = (float *)(arena + 92320384); /* [] */
    RT_RUN(rt, 15, kernel_loss_5(loss_2, loss_4));

    /* logits, chars.mdl:50:14 */
    float *logits_2 = (float *)(arena + 61499008); /* [batch 16, seq 128, embed 128] */
    RT_RUN(rt, 16, rt_product(rt, 5, loss_3, wte, logits_2));
    float *logits_3 = (float *)(arena + 92104320); /* [vocab 256, embed 128] */
    RT_RUN(rt, 17, rt_product(rt, 6, loss_3, ln_f_4, logits_3));

    /* ln_f, chars.mdl:16:39 */
    float *ln_f_7 = (float *)(arena + 92319872); /* [embed 128] */
    float *ln_f_8 = (float *)(arena + 92319360); /* [embed 128] */
    float *ln_f_9 = (float *)(arena + 86730368); /* [batch 16, seq 128, embed 128] */
    RT_RUN(rt, 18,
           kernel_ln_f_4(logits_2, ln_f_gain, ln_f_3, ln_f_2, ln_f, ln_f_5, ln_f_6, ln_f_7, ln_f_8, ln_f_9,
                         (float *)(arena + 56256128)));

    /* h, chars.mdl:49:5: @h.bwd, 4 times, from the last to the first */
    float *h_13 = (float *)(arena + 87778944);    /* [batch 16, seq 128, embed 128] */
    float *h_attn_wv = (float *)(arena + 201728); /* [h.copy 4, embed 128, heads 4, head 32] */
    float *h_14 = (float *)(arena + 92309120);    /* [h.copy 4, embed 128] */
    float *h_15 = (float *)(arena + 92311168);    /* [h.copy 4, embed 128] */
    float *h_16 = (float *)(arena + 90924672);    /* [h.copy 4, embed 128, heads 4, head 32] */
    float *h_17 = (float *)(arena + 91186816);    /* [h.copy 4, embed 128, heads 4, head 32] */
    float *h_18 = (float *)(arena + 91448960);    /* [h.copy 4, embed 128, heads 4, head 32] */
    float *h_19 = (float *)(arena + 91711104);    /* [h.copy 4, heads 4, head 32, embed 128] */
    float *h_20 = (float *)(arena + 92313216);    /* [h.copy 4, embed 128] */
    float *h_21 = (float *)(arena + 92315264);    /* [h.copy 4, embed 128] */
    float *h_22 = (float *)(arena + 88827520);    /* [h.copy 4, embed 128, ff 512] */
    float *h_23 = (float *)(arena + 92300928);    /* [h.copy 4, ff 512] */
    float *h_24 = (float *)(arena + 89876096);    /* [h.copy 4, ff 512, embed 128] */
    float *h_25 = (float *)(arena + 92317312);    /* [h.copy 4, embed 128] */
    const float *d_45 = ln_f_9;
    for (int64_t h_copy_2 = 3; h_copy_2 >= 0; h_copy_2--) {
        RT_ITERATION(rt, "h.copy", h_copy_2);
        float *d_45_next = h_copy_2 % 2 ? (float *)(arena + 64710272) : h_13;
        run_h_bwd(rt, arena + 56256128, d_45, h_2 + h_copy_2 * 1048576, h_3 + h_copy_2 * 1048576,
                  h_4 + h_copy_2 * 262144, h_5 + h_copy_2 * 262144, h_6 + h_copy_2 * 262144, h_7 + h_copy_2 * 786432,
                  h_8 + h_copy_2 * 8192, h_9 + h_copy_2 * 262144, h_10 + h_copy_2 * 262144,
                  h_mlp_w_down + h_copy_2 * 65536, h_mlp_w_up + h_copy_2 * 65536, h_ln_2_gain + h_copy_2 * 128,
                  h_attn_wo + h_copy_2 * 16384, h_attn_wv + h_copy_2 * 49152, h_ln_1_gain + h_copy_2 * 128,
                  h_11 + h_copy_2 * 2048, h_12 + h_copy_2 * 2048, d_45_next, h_14 + h_copy_2 * 128,
                  h_15 + h_copy_2 * 128, h_16 + h_copy_2 * 16384, h_17 + h_copy_2 * 16384, h_18 + h_copy_2 * 16384,
                  h_19 + h_copy_2 * 16384, h_20 + h_copy_2 * 128, h_21 + h_copy_2 * 128, h_22 + h_copy_2 * 65536,
                  h_23 + h_copy_2 * 512, h_24 + h_copy_2 * 65536, h_25 + h_copy_2 * 128);
        d_45 = d_45_next;
    }
    RT_ITERATION(rt, "h.copy", -1);

    /* x, chars.mdl:48:29 */
    float *x_4 = (float *)(arena + 10249856); /* [seq 128, embed 128] */
    RT_RUN(rt, 35, kernel_x_4(h_13, x_4));

    /* x, chars.mdl:48:13 */
    float *x_5 = (float *)(arena + 10118784); /* [vocab 256, embed 128] */
    RT_RUN(rt, 36, kernel_x_scatter_add(h_13, tokens, x_5));
    float *x_6 = (float *)(arena + 92104320); /* [vocab 256, embed 128] */
    float *x_7 = (float *)(arena + 10315392); /* [] */
    RT_RUN(rt, 37, kernel_x_5(logits_3, x_5, x_6, x_7));

    /* wpe */
    float *wpe_2 = (float *)(arena + 10118784); /* [] */
    RT_RUN(rt, 38, kernel_wpe(x_4, wpe_2));

    /* h.ln_1.gain */
    float *h_ln_1_gain_2 = (float *)(arena + 10118848); /* [] */
    RT_RUN(rt, 39, kernel_h_ln_1_gain(h_14, h_ln_1_gain_2));

    /* h.ln_1.bias */
    float *h_ln_1_bias_2 = (float *)(arena + 10118912); /* [] */
    RT_RUN(rt, 40, kernel_h_ln_1_gain(h_15, h_ln_1_bias_2));

    /* h.attn.wq */
    float *h_attn_wq_2 = (float *)(arena + 10118976); /* [] */
    RT_RUN(rt, 41, kernel_h_attn_wq(h_16, h_attn_wq_2));

    /* h.attn.wk */
    float *h_attn_wk = (float *)(arena + 10119040); /* [] */
    RT_RUN(rt, 42, kernel_h_attn_wq(h_17, h_attn_wk));

    /* h.attn.wv */
    float *h_attn_wv_2 = (float *)(arena + 10119104); /* [] */
    RT_RUN(rt, 43, kernel_h_attn_wq(h_18, h_attn_wv_2));

    /* h.attn.wo */
    float *h_attn_wo_2 = (float *)(arena + 10119168); /* [] */
    RT_RUN(rt, 44, kernel_h_attn_wq(h_19, h_attn_wo_2));

    /* h.ln_2.gain */
    float *h_ln_2_gain_2 = (float *)(arena + 10119232); /* [] */
    RT_RUN(rt, 45, kernel_h_ln_1_gain(h_20, h_ln_2_gain_2));

    /* h.ln_2.bias */
    float *h_ln_2_bias_2 = (float *)(arena + 10119296); /* [] */
    RT_RUN(rt, 46, kernel_h_ln_1_gain(h_21, h_ln_2_bias_2));

    /* h.mlp.w_up */
    float *h_mlp_w_up_2 = (float *)(arena + 10119360); /* [] */
    RT_RUN(rt, 47, kernel_h_mlp_w_up(h_22, h_mlp_w_up_2));

    /* h.mlp.b_up */
    float *h_mlp_b_up_2 = (float *)(arena + 10119424); /* [] */
    RT_RUN(rt, 48, kernel_h_mlp_b_up(h_23, h_mlp_b_up_2));

    /* h.mlp.w_down */
    float *h_mlp_w_down_2 = (float *)(arena + 10119488); /* [] */
    RT_RUN(rt, 49, kernel_h_mlp_w_up(h_24, h_mlp_w_down_2));

    /* h.mlp.b_down */
    float *h_mlp_b_down_2 = (float *)(arena + 10119552); /* [] */
    RT_RUN(rt, 50, kernel_h_ln_1_gain(h_25, h_mlp_b_down_2));

    /* ln_f.gain */
    float *ln_f_gain_2 = (float *)(arena + 10119616); /* [] */
    RT_RUN(rt, 51, kernel_ln_f_gain(ln_f_8, ln_f_gain_2));

    /* ln_f.bias */
    float *ln_f_bias_2 = (float *)(arena + 10119680); /* [] */
    RT_RUN(rt, 52, kernel_ln_f_gain(ln_f_7, ln_f_bias_2));

    /* wpe */
    float *grad_norm = (float *)(arena + 10315392); /* [] */
    float *wpe_3 = (float *)(arena + 10118784);     /* [] */
    RT_RUN(rt, 53,
           kernel_wpe_2(x_7, wpe_2, h_ln_1_gain_2, h_ln_1_bias_2, h_attn_wq_2, h_attn_wk, h_attn_wv_2, h_attn_wo_2,
                        h_ln_2_gain_2, h_ln_2_bias_2, h_mlp_w_up_2, h_mlp_b_up_2, h_mlp_w_down_2, h_mlp_b_down_2,
                        ln_f_gain_2, ln_f_bias_2, grad_norm, wpe_3));

    /* grad_norm */
    int32_t *step = (int32_t *)(arena + 10101760);    /* [] */
    float *lr = (float *)(arena + 10101824);          /* [] */
    float *grad_norm_2 = (float *)(arena + 10118912); /* [] */
    float *grad_norm_3 = (float *)(arena + 10118848); /* [] */
    RT_RUN(rt, 54, kernel_grad_norm(step, lr, grad_norm_2, grad_norm_3));

    /* wte, chars.mdl:45:11 */
    float *wte_2 = (float *)(arena + 10118976); /* [] */
    RT_RUN(rt, 55, kernel_wte(lr, wte_2));
    float *m_wte = (float *)(arena + 3361792); /* [vocab 256, embed 128] */
    float *v_wte = (float *)(arena + 6723584); /* [vocab 256, embed 128] */
    float *wte_3 = (float *)(arena + 3361792); /* [vocab 256, embed 128] */
    float *wte_4 = (float *)(arena + 6723584); /* [vocab 256, embed 128] */
    float *wte_5 = (float *)arena;             /* [vocab 256, embed 128] */
    RT_RUN(rt, 56, kernel_wte_2(x_6, wpe_3, m_wte, v_wte, wte, wte_2, grad_norm_3, grad_norm_2, wte_3, wte_4, wte_5));

    /* wpe, chars.mdl:46:11 */
    float *m_wpe = (float *)(arena + 3492864); /* [seq 128, embed 128] */
    float *v_wpe = (float *)(arena + 6854656); /* [seq 128, embed 128] */
    float *wpe_4 = (float *)(arena + 3492864); /* [seq 128, embed 128] */
    float *wpe_5 = (float *)(arena + 6854656); /* [seq 128, embed 128] */
    float *wpe_6 = (float *)(arena + 131072);  /* [seq 128, embed 128] */
    RT_RUN(rt, 57, kernel_wpe_3(x_4, wpe_3, m_wpe, v_wpe, wpe, wte_2, grad_norm_3, grad_norm_2, wpe_4, wpe_5, wpe_6));

    /* h.ln_1.gain, chars.mdl:14:11 */
    float *m_h_ln_1_gain = (float *)(arena + 3558400); /* [h.copy 4, embed 128] */
    float *v_h_ln_1_gain = (float *)(arena + 6920192); /* [h.copy 4, embed 128] */
    float *h_ln_1_gain_3 = (float *)(arena + 3558400); /* [h.copy 4, embed 128] */
    float *h_ln_1_gain_4 = (float *)(arena + 6920192); /* [h.copy 4, embed 128] */
    float *h_ln_1_gain_5 = (float *)(arena + 196608);  /* [h.copy 4, embed 128] */
    RT_RUN(rt, 58,
           kernel_h_ln_1_gain_2(h_14, wpe_3, m_h_ln_1_gain, v_h_ln_1_gain, grad_norm_3, grad_norm_2, h_ln_1_gain,
                                h_ln_1_gain_3, h_ln_1_gain_4, h_ln_1_gain_5));

    /* h.ln_1.bias, chars.mdl:15:11 */
    float *m_h_ln_1_bias = (float *)(arena + 3560448); /* [h.copy 4, embed 128] */
    float *v_h_ln_1_bias = (float *)(arena + 6922240); /* [h.copy 4, embed 128] */
    float *h_ln_1_bias_3 = (float *)(arena + 3560448); /* [h.copy 4, embed 128] */
    float *h_ln_1_bias_4 = (float *)(arena + 6922240); /* [h.copy 4, embed 128] */
    float *h_ln_1_bias_5 = (float *)(arena + 198656);  /* [h.copy 4, embed 128] */
    RT_RUN(rt, 59,
           kernel_h_ln_1_gain_2(h_15, wpe_3, m_h_ln_1_bias, v_h_ln_1_bias, grad_norm_3, grad_norm_2, h_ln_1_bias,
                                h_ln_1_bias_3, h_ln_1_bias_4, h_ln_1_bias_5));

    /* h.attn.wq, chars.mdl:20:11 */
    float *m_h_attn_wq = (float *)(arena + 3562496); /* [h.copy 4, embed 128, heads 4, head 32] */
    float *v_h_attn_wq = (float *)(arena + 6924288); /* [h.copy 4, embed 128, heads 4, head 32] */
    float *h_attn_wq_3 = (float *)(arena + 3562496); /* [h.copy 4, embed 128, heads 4, head 32] */
    float *h_attn_wq_4 = (float *)(arena + 6924288); /* [h.copy 4, embed 128, heads 4, head 32] */
    float *h_attn_wq_5 = (float *)(arena + 200704);  /* [h.copy 4, embed 128, heads 4, head 32] */
    RT_RUN(rt, 60,
           kernel_h_attn_wq_2(h_16, wpe_3, m_h_attn_wq, v_h_attn_wq, h_attn_wq, wte_2, grad_norm_3, grad_norm_2,
                              h_attn_wq_3, h_attn_wq_4, h_attn_wq_5));

    /* h.attn.wk, chars.mdl:20:15 */
    float *m_h_attn_wk = (float *)(arena + 3824640); /* [h.copy 4, embed 128, heads 4, head 32] */
    float *v_h_attn_wk = (float *)(arena + 7186432); /* [h.copy 4, embed 128, heads 4, head 32] */
    float *h_attn_wk_2 = (float *)(arena + 201216);  /* [h.copy 4, embed 128, heads 4, head 32] */
    float *h_attn_wk_3 = (float *)(arena + 3824640); /* [h.copy 4, embed 128, heads 4, head 32] */
    float *h_attn_wk_4 = (float *)(arena + 7186432); /* [h.copy 4, embed 128, heads 4, head 32] */
    float *h_attn_wk_5 = (float *)(arena + 201216);  /* [h.copy 4, embed 128, heads 4, head 32] */
    RT_RUN(rt, 61,
           kernel_h_attn_wq_2(h_17, wpe_3, m_h_attn_wk, v_h_attn_wk, h_attn_wk_2, wte_2, grad_norm_3, grad_norm_2,
                              h_attn_wk_3, h_attn_wk_4, h_attn_wk_5));

    /* h.attn.wv, chars.mdl:20:19 */
    float *m_h_attn_wv = (float *)(arena + 4086784); /* [h.copy 4, embed 128, heads 4, head 32] */
    float *v_h_attn_wv = (float *)(arena + 7448576); /* [h.copy 4, embed 128, heads 4, head 32] */
    float *h_attn_wv_3 = (float *)(arena + 4086784); /* [h.copy 4, embed 128, heads 4, head 32] */
    float *h_attn_wv_4 = (float *)(arena + 7448576); /* [h.copy 4, embed 128, heads 4, head 32] */
    float *h_attn_wv_5 = (float *)(arena + 201728);  /* [h.copy 4, embed 128, heads 4, head 32] */
    RT_RUN(rt, 62,
           kernel_h_attn_wq_2(h_18, wpe_3, m_h_attn_wv, v_h_attn_wv, h_attn_wv, wte_2, grad_norm_3, grad_norm_2,
                              h_attn_wv_3, h_attn_wv_4, h_attn_wv_5));

    /* h.attn.wo, chars.mdl:21:11 */
    float *m_h_attn_wo = (float *)(arena + 4348928); /* [h.copy 4, heads 4, head 32, embed 128] */
    float *v_h_attn_wo = (float *)(arena + 7710720); /* [h.copy 4, heads 4, head 32, embed 128] */
    float *h_attn_wo_3 = (float *)(arena + 4348928); /* [h.copy 4, heads 4, head 32, embed 128] */
    float *h_attn_wo_4 = (float *)(arena + 7710720); /* [h.copy 4, heads 4, head 32, embed 128] */
    float *h_attn_wo_5 = (float *)(arena + 987136);  /* [h.copy 4, heads 4, head 32, embed 128] */
    RT_RUN(rt, 63,
           kernel_h_attn_wo_2(h_19, wpe_3, m_h_attn_wo, v_h_attn_wo, h_attn_wo, wte_2, grad_norm_3, grad_norm_2,
                              h_attn_wo_3, h_attn_wo_4, h_attn_wo_5));

    /* h.ln_2.gain, chars.mdl:14:11 */
    float *m_h_ln_2_gain = (float *)(arena + 4611072); /* [h.copy 4, embed 128] */
    float *v_h_ln_2_gain = (float *)(arena + 7972864); /* [h.copy 4, embed 128] */
    float *h_ln_2_gain_3 = (float *)(arena + 4611072); /* [h.copy 4, embed 128] */
    float *h_ln_2_gain_4 = (float *)(arena + 7972864); /* [h.copy 4, embed 128] */
    float *h_ln_2_gain_5 = (float *)(arena + 1249280); /* [h.copy 4, embed 128] */
    RT_RUN(rt, 64,
           kernel_h_ln_1_gain_2(h_20, wpe_3, m_h_ln_2_gain, v_h_ln_2_gain, grad_norm_3, grad_norm_2, h_ln_2_gain,
                                h_ln_2_gain_3, h_ln_2_gain_4, h_ln_2_gain_5));

    /* h.ln_2.bias, chars.mdl:15:11 */
    float *m_h_ln_2_bias = (float *)(arena + 4613120); /* [h.copy 4, embed 128] */
    float *v_h_ln_2_bias = (float *)(arena + 7974912); /* [h.copy 4, embed 128] */
    float *h_ln_2_bias_3 = (float *)(arena + 4613120); /* [h.copy 4, embed 128] */
    float *h_ln_2_bias_4 = (float *)(arena + 7974912); /* [h.copy 4, embed 128] */
    float *h_ln_2_bias_5 = (float *)(arena + 1251328); /* [h.copy 4, embed 128] */
    RT_RUN(rt, 65,
           kernel_h_ln_1_gain_2(h_21, wpe_3, m_h_ln_2_bias, v_h_ln_2_bias, grad_norm_3, grad_norm_2, h_ln_2_bias,
                                h_ln_2_bias_3, h_ln_2_bias_4, h_ln_2_bias_5));

    /* h.mlp.w_up, chars.mdl:29:11 */
    float *m_h_mlp_w_up = (float *)(arena + 4615168); /* [h.copy 4, embed 128, ff 512] */
    float *v_h_mlp_w_up = (float *)(arena + 7976960); /* [h.copy 4, embed 128, ff 512] */
    float *h_mlp_w_up_3 = (float *)(arena + 4615168); /* [h.copy 4, embed 128, ff 512] */
    float *h_mlp_w_up_4 = (float *)(arena + 7976960); /* [h.copy 4, embed 128, ff 512] */
    float *h_mlp_w_up_5 = (float *)(arena + 1253376); /* [h.copy 4, embed 128, ff 512] */
    RT_RUN(rt, 66,
           kernel_h_mlp_w_up_2(h_22, wpe_3, m_h_mlp_w_up, v_h_mlp_w_up, h_mlp_w_up, wte_2, grad_norm_3, grad_norm_2,
                               h_mlp_w_up_3, h_mlp_w_up_4, h_mlp_w_up_5));

    /* h.mlp.b_up, chars.mdl:30:11 */
    float *m_h_mlp_b_up = (float *)(arena + 5663744); /* [h.copy 4, ff 512] */
    float *v_h_mlp_b_up = (float *)(arena + 9025536); /* [h.copy 4, ff 512] */
    float *h_mlp_b_up_3 = (float *)(arena + 5663744); /* [h.copy 4, ff 512] */
    float *h_mlp_b_up_4 = (float *)(arena + 9025536); /* [h.copy 4, ff 512] */
    float *h_mlp_b_up_5 = (float *)(arena + 2301952); /* [h.copy 4, ff 512] */
    RT_RUN(rt, 67,
           kernel_h_mlp_b_up_2(h_23, wpe_3, m_h_mlp_b_up, v_h_mlp_b_up, grad_norm_3, grad_norm_2, h_mlp_b_up,
                               h_mlp_b_up_3, h_mlp_b_up_4, h_mlp_b_up_5));

    /* h.mlp.w_down, chars.mdl:31:11 */
    float *m_h_mlp_w_down = (float *)(arena + 5671936); /* [h.copy 4, ff 512, embed 128] */
    float *v_h_mlp_w_down = (float *)(arena + 9033728); /* [h.copy 4, ff 512, embed 128] */
    float *h_mlp_w_down_3 = (float *)(arena + 5671936); /* [h.copy 4, ff 512, embed 128] */
    float *h_mlp_w_down_4 = (float *)(arena + 9033728); /* [h.copy 4, ff 512, embed 128] */
    float *h_mlp_w_down_5 = (float *)(arena + 2310144); /* [h.copy 4, ff 512, embed 128] */
    RT_RUN(rt, 68,
           kernel_h_mlp_w_up_2(h_24, wpe_3, m_h_mlp_w_down, v_h_mlp_w_down, h_mlp_w_down, wte_2, grad_norm_3,
                               grad_norm_2, h_mlp_w_down_3, h_mlp_w_down_4, h_mlp_w_down_5));

    /* h.mlp.b_down, chars.mdl:32:11 */
    float *m_h_mlp_b_down = (float *)(arena + 6720512);  /* [h.copy 4, embed 128] */
    float *v_h_mlp_b_down = (float *)(arena + 10082304); /* [h.copy 4, embed 128] */
    float *h_mlp_b_down_3 = (float *)(arena + 6720512);  /* [h.copy 4, embed 128] */
    float *h_mlp_b_down_4 = (float *)(arena + 10082304); /* [h.copy 4, embed 128] */
    float *h_mlp_b_down_5 = (float *)(arena + 3358720);  /* [h.copy 4, embed 128] */
    RT_RUN(rt, 69,
           kernel_h_ln_1_gain_2(h_25, wpe_3, m_h_mlp_b_down, v_h_mlp_b_down, grad_norm_3, grad_norm_2, h_mlp_b_down,
                                h_mlp_b_down_3, h_mlp_b_down_4, h_mlp_b_down_5));

    /* ln_f.gain, chars.mdl:14:11 */
    float *m_ln_f_gain = (float *)(arena + 6722560);  /* [embed 128] */
    float *v_ln_f_gain = (float *)(arena + 10084352); /* [embed 128] */
    float *ln_f_gain_3 = (float *)(arena + 6722560);  /* [embed 128] */
    float *ln_f_gain_4 = (float *)(arena + 10084352); /* [embed 128] */
    float *ln_f_gain_5 = (float *)(arena + 3360768);  /* [embed 128] */
    RT_RUN(rt, 70,
           kernel_ln_f_gain_2(ln_f_8, wpe_3, m_ln_f_gain, v_ln_f_gain, grad_norm_3, grad_norm_2, ln_f_gain, ln_f_gain_3,
                              ln_f_gain_4, ln_f_gain_5));

    /* ln_f.bias, chars.mdl:15:11 */
    float *m_ln_f_bias = (float *)(arena + 6723072);  /* [embed 128] */
    float *v_ln_f_bias = (float *)(arena + 10084864); /* [embed 128] */
    float *ln_f_bias_3 = (float *)(arena + 6723072);  /* [embed 128] */
    float *ln_f_bias_4 = (float *)(arena + 10084864); /* [embed 128] */
    float *ln_f_bias_5 = (float *)(arena + 3361280);  /* [embed 128] */
    RT_RUN(rt, 71,
           kernel_ln_f_gain_2(ln_f_7, wpe_3, m_ln_f_bias, v_ln_f_bias, grad_norm_3, grad_norm_2, ln_f_bias, ln_f_bias_3,
                              ln_f_bias_4, ln_f_bias_5));
}

/* One iteration of @eval.h; its frame takes 6.29 MB. */
static void run_eval_h(Rt *rt, char *frame, const float *x, const float *h_ln_1_gain, const float *h_ln_1_bias,
                       const float *h_attn_wq, const float *h_attn_wo, const float *h_ln_2_gain,
                       const float *h_ln_2_bias, const float *h_mlp_w_up, const float *h_mlp_b_up,
                       const float *h_mlp_w_down, const float *h_mlp_b_down, float *h_mlp)
{
    /* h.ln_1, chars.mdl:16:12 */
    float *h_ln_1 = (float *)(frame + 3145728); /* [batch 16, seq 128, embed 128] */
    RT_RUN(rt, 74, kernel_h_ln_1_2(x, h_ln_1_gain, h_ln_1_bias, h_ln_1));

    /* h.attn.q, chars.mdl:22:9 */
    float *attn_q = (float *)frame; /* [batch 16, seq 128, heads 4, head 32] */
    RT_RUN(rt, 75, rt_product(rt, 0, h_ln_1, h_attn_wq, attn_q));

    /* h.attn, chars.mdl:25:16 */
    float *attn_k = (float *)(frame + 512);       /* [batch 16, seq 128, heads 4, head 32] */
    float *attn_v = (float *)(frame + 1024);      /* [batch 16, seq 128, heads 4, head 32] */
    float *h_attn = (float *)(frame + 3145728);   /* [batch 16, seq 128, heads 4, head 32] */
    float *h_attn_2 = (float *)(frame + 4194304); /* [batch 16, seq 128, heads 4] */
    RT_RUN(rt, 76, kernel_h_attn_attend(attn_q, attn_k, attn_v, h_attn, h_attn_2));

    /* h.attn, chars.mdl:25:12 */
    float *h_attn_3 = (float *)(frame + 4194304); /* [batch 16, seq 128, embed 128] */
    RT_RUN(rt, 77, rt_product(rt, 1, h_attn, h_attn_wo, h_attn_3));

    /* h.x, chars.mdl:37:11 */
    float *h_x = (float *)(frame + 4194304);   /* [batch 16, seq 128, embed 128] */
    float *h_x_2 = (float *)(frame + 5242880); /* [batch 16, seq 128, embed 128] */
    RT_RUN(rt, 78, kernel_h_x_2(x, h_attn_3, h_ln_2_gain, h_ln_2_bias, h_x, h_x_2));

    /* h.mlp, chars.mdl:33:26 */
    float *h_mlp_2 = (float *)frame; /* [batch 16, seq 128, ff 512] */
    RT_RUN(rt, 79, rt_product_with(rt, 14, h_x_2, h_mlp_w_up, h_mlp_b_up, NULL, h_mlp_2));

    /* h.mlp, chars.mdl:33:12 */
    float *h_mlp_3 = (float *)(frame + 5242880); /* [batch 16, seq 128, embed 128] */
    RT_RUN(rt, 80, rt_product(rt, 3, h_mlp_2, h_mlp_w_down, h_mlp_3));

    /* h.mlp, chars.mdl:33:67 */
    RT_RUN(rt, 81, kernel_h_mlp_4(h_mlp_3, h_mlp_b_down, h_x, h_mlp));
}

/* The loss of one batch, without dropout. */
static void run_eval(Rt *rt, char *arena)
{
    /* x, chars.mdl:48:13 */
    float *wte = (float *)arena;                     /* [vocab 256, embed 128] */
    int32_t *tokens = (int32_t *)(arena + 10101888); /* [batch 16, seq 128] */
    float *x = (float *)(arena + 17458816);          /* [batch 16, seq 128, embed 128] */
    RT_RUN(rt, 72, kernel_x_gather(wte, tokens, x));

    /* x, chars.mdl:48:29 */
    float *wpe = (float *)(arena + 131072);   /* [seq 128, embed 128] */
    float *x_2 = (float *)(arena + 17458816); /* [batch 16, seq 128, embed 128] */
    RT_RUN(rt, 73, kernel_x_3(x, wpe, x_2));

    /* h, chars.mdl:49:5: @eval.h, 4 times */
    float *h = (float *)(arena + 18507392);           /* [batch 16, seq 128, embed 128] */
    float *h_ln_1_gain = (float *)(arena + 196608);   /* [h.copy 4, embed 128] */
    float *h_ln_1_bias = (float *)(arena + 198656);   /* [h.copy 4, embed 128] */
    float *h_attn_wq = (float *)(arena + 200704);     /* [h.copy 4, embed 128, heads 4, head 32] */
    float *h_attn_wo = (float *)(arena + 987136);     /* [h.copy 4, heads 4, head 32, embed 128] */
    float *h_ln_2_gain = (float *)(arena + 1249280);  /* [h.copy 4, embed 128] */
    float *h_ln_2_bias = (float *)(arena + 1251328);  /* [h.copy 4, embed 128] */
    float *h_mlp_w_up = (float *)(arena + 1253376);   /* [h.copy 4, embed 128, ff 512] */
    float *h_mlp_b_up = (float *)(arena + 2301952);   /* [h.copy 4, ff 512] */
    float *h_mlp_w_down = (float *)(arena + 2310144); /* [h.copy 4, ff 512, embed 128] */
    float *h_mlp_b_down = (float *)(arena + 3358720); /* [h.copy 4, embed 128] */
    const float *x_3 = x_2;
    for (int64_t h_copy = 0; h_copy < 4; h_copy++) {
        RT_ITERATION(rt, "h.copy", h_copy);
        float *x_3_next = (3 - h_copy) % 2 ? (float *)(arena + 16410240) : h;
        run_eval_h(rt, arena + 10118784, x_3, h_ln_1_gain + h_copy * 128, h_ln_1_bias + h_copy * 128,
                   h_attn_wq + h_copy * 49152, h_attn_wo + h_copy * 16384, h_ln_2_gain + h_copy * 128,
                   h_ln_2_bias + h_copy * 128, h_mlp_w_up + h_copy * 65536, h_mlp_b_up + h_copy * 512,
                   h_mlp_w_down + h_copy * 65536, h_mlp_b_down + h_copy * 128, x_3_next);
        x_3 = x_3_next;
    }
    RT_ITERATION(rt, "h.copy", -1);

    /* ln_f, chars.mdl:16:12 */
    float *ln_f_gain = (float *)(arena + 3360768); /* [embed 128] */
    float *ln_f_bias = (float *)(arena + 3361280); /* [embed 128] */
    float *ln_f = (float *)(arena + 18507392);     /* [batch 16, seq 128, embed 128] */
    RT_RUN(rt, 82, kernel_ln_f(h, ln_f_gain, ln_f_bias, ln_f));

    /* logits, chars.mdl:50:14 */
    float *logits = (float *)(arena + 10118784); /* [batch 16, seq 128, vocab 256] */
    RT_RUN(rt, 83, rt_product(rt, 4, ln_f, wte, logits));

    /* loss, chars.mdl:51:15 */
    int32_t *labels = (int32_t *)(arena + 10110080); /* [batch 16, seq 128] */
    float *loss = (float *)(arena + 12215936);       /* [] */
    RT_RUN(rt, 84, kernel_loss(logits, labels, loss));

    /* loss, chars.mdl:51:10 */
    float *loss_2 = (float *)(arena + 12215936); /* [] */
    RT_RUN(rt, 85, kernel_loss_5(loss, loss_2));
}

/* One iteration of @predict.h; its frame takes 0.39 MB. */
static void run_predict_h(Rt *rt, char *frame, const float *x, const float *h_ln_1_gain, const float *h_ln_1_bias,
                          const float *h_attn_wq, const float *h_attn_wo, const float *h_ln_2_gain,
                          const float *h_ln_2_bias, const float *h_mlp_w_up, const float *h_mlp_b_up,
                          const float *h_mlp_w_down, const float *h_mlp_b_down, float *h_mlp)
{
    /* h.ln_1, chars.mdl:16:12 */
    float *h_ln_1 = (float *)(frame + 196608); /* [batch 1, seq 128, embed 128] */
    RT_RUN(rt, 88, kernel_h_ln_1_3(x, h_ln_1_gain, h_ln_1_bias, h_ln_1));

    /* h.attn.q, chars.mdl:22:9 */
    float *attn_q = (float *)frame; /* [batch 1, seq 128, heads 4, head 32] */
    RT_RUN(rt, 89, rt_product(rt, 15, h_ln_1, h_attn_wq, attn_q));

    /* h.attn, chars.mdl:25:16 */
    float *attn_k = (float *)(frame + 512);      /* [batch 1, seq 128, heads 4, head 32] */
    float *attn_v = (float *)(frame + 1024);     /* [batch 1, seq 128, heads 4, head 32] */
    float *h_attn = (float *)(frame + 196608);   /* [batch 1, seq 128, heads 4, head 32] */
    float *h_attn_2 = (float *)(frame + 262144); /* [batch 1, seq 128, heads 4] */
    RT_RUN(rt, 90, kernel_h_attn_attend_2(attn_q, attn_k, attn_v, h_attn, h_attn_2));

    /* h.attn, chars.mdl:25:12 */
    float *h_attn_3 = (float *)(frame + 262144); /* [batch 1, seq 128, embed 128] */
    RT_RUN(rt, 91, rt_product(rt, 16, h_attn, h_attn_wo, h_attn_3));

    /* h.x, chars.mdl:37:11 */
    float *h_x = (float *)(frame + 262144);   /* [batch 1, seq 128, embed 128] */
    float *h_x_2 = (float *)(frame + 327680); /* [batch 1, seq 128, embed 128] */
    RT_RUN(rt, 92, kernel_h_x_3(x, h_attn_3, h_ln_2_gain, h_ln_2_bias, h_x, h_x_2));

    /* h.mlp, chars.mdl:33:26 */
    float *h_mlp_2 = (float *)frame; /* [batch 1, seq 128, ff 512] */
    RT_RUN(rt, 93, rt_product_with(rt, 17, h_x_2, h_mlp_w_up, h_mlp_b_up, NULL, h_mlp_2));

    /* h.mlp, chars.mdl:33:12 */
    float *h_mlp_3 = (float *)(frame + 327680); /* [batch 1, seq 128, embed 128] */
    RT_RUN(rt, 94, rt_product(rt, 18, h_mlp_2, h_mlp_w_down, h_mlp_3));

    /* h.mlp, chars.mdl:33:67 */
    RT_RUN(rt, 95, kernel_h_mlp_10(h_mlp_3, h_mlp_b_down, h_x, h_mlp));
}

/* The logits of one sequence, without dropout. */
static void run_predict(Rt *rt, char *arena)
{
    /* x, chars.mdl:48:13 */
    float *wte = (float *)arena;                     /* [vocab 256, embed 128] */
    int32_t *tokens = (int32_t *)(arena + 10118272); /* [batch 1, seq 128] */
    float *x = (float *)(arena + 10577536);          /* [batch 1, seq 128, embed 128] */
    RT_RUN(rt, 86, kernel_x_gather_2(wte, tokens, x));

    /* x, chars.mdl:48:29 */
    float *wpe = (float *)(arena + 131072);   /* [seq 128, embed 128] */
    float *x_2 = (float *)(arena + 10577536); /* [batch 1, seq 128, embed 128] */
    RT_RUN(rt, 87, kernel_x_2(x, wpe, x_2));

    /* h, chars.mdl:49:5: @predict.h, 4 times */
    float *h = (float *)(arena + 10643072);           /* [batch 1, seq 128, embed 128] */
    float *h_ln_1_gain = (float *)(arena + 196608);   /* [h.copy 4, embed 128] */
    float *h_ln_1_bias = (float *)(arena + 198656);   /* [h.copy 4, embed 128] */
    float *h_attn_wq = (float *)(arena + 200704);     /* [h.copy 4, embed 128, heads 4, head 32] */
    float *h_attn_wo = (float *)(arena + 987136);     /* [h.copy 4, heads 4, head 32, embed 128] */
    float *h_ln_2_gain = (float *)(arena + 1249280);  /* [h.copy 4, embed 128] */
    float *h_ln_2_bias = (float *)(arena + 1251328);  /* [h.copy 4, embed 128] */
    float *h_mlp_w_up = (float *)(arena + 1253376);   /* [h.copy 4, embed 128, ff 512] */
    float *h_mlp_b_up = (float *)(arena + 2301952);   /* [h.copy 4, ff 512] */
    float *h_mlp_w_down = (float *)(arena + 2310144); /* [h.copy 4, ff 512, embed 128] */
    float *h_mlp_b_down = (float *)(arena + 3358720); /* [h.copy 4, embed 128] */
    const float *x_3 = x_2;
    for (int64_t h_copy = 0; h_copy < 4; h_copy++) {
        RT_ITERATION(rt, "h.copy", h_copy);
        float *x_3_next = (3 - h_copy) % 2 ? (float *)(arena + 10512000) : h;
        run_predict_h(rt, arena + 10118784, x_3, h_ln_1_gain + h_copy * 128, h_ln_1_bias + h_copy * 128,
                      h_attn_wq + h_copy * 49152, h_attn_wo + h_copy * 16384, h_ln_2_gain + h_copy * 128,
                      h_ln_2_bias + h_copy * 128, h_mlp_w_up + h_copy * 65536, h_mlp_b_up + h_copy * 512,
                      h_mlp_w_down + h_copy * 65536, h_mlp_b_down + h_copy * 128, x_3_next);
        x_3 = x_3_next;
    }
    RT_ITERATION(rt, "h.copy", -1);

    /* ln_f, chars.mdl:16:12 */
    float *ln_f_gain = (float *)(arena + 3360768); /* [embed 128] */
    float *ln_f_bias = (float *)(arena + 3361280); /* [embed 128] */
    float *ln_f = (float *)(arena + 10643072);     /* [batch 1, seq 128, embed 128] */
    RT_RUN(rt, 96, kernel_ln_f_2(h, ln_f_gain, ln_f_bias, ln_f));

    /* logits, chars.mdl:50:14 */
    float *logits = (float *)(arena + 10118784); /* [batch 1, seq 128, vocab 256] */
    RT_RUN(rt, 97, rt_product(rt, 19, ln_f, wte, logits));
}

/* --- Program --- */

/* clang-format off */
static const RtTensor tensors[] = {
    { .name = "wte", .type = RT_F32, .rank = 2, .copies = 0, .dim = { "vocab", "embed" }, .size = { 256, 128 },
      .padded = { 256, 128 }, .stride = { 128, 1 }, .offset = 0, .stored_bytes = 131072,
      .init = { RT_NORMAL, 0.05, 0 } },
    { .name = "wpe", .type = RT_F32, .rank = 2, .copies = 0, .dim = { "seq", "embed" }, .size = { 128, 128 },
      .padded = { 128, 128 }, .stride = { 128, 1 }, .offset = 131072, .stored_bytes = 65536,
      .init = { RT_NORMAL, 0.05, 0 } },
    { .name = "h.*.ln_1.gain", .type = RT_F32, .rank = 2, .copies = 1, .dim = { "h.copy", "embed" }, .size = { 4, 128 },
      .padded = { 4, 128 }, .stride = { 128, 1 }, .offset = 196608, .stored_bytes = 2048, .init = { RT_ONES, 0, 0 } },
    { .name = "h.*.ln_1.bias", .type = RT_F32, .rank = 2, .copies = 1, .dim = { "h.copy", "embed" }, .size = { 4, 128 },
      .padded = { 4, 128 }, .stride = { 128, 1 }, .offset = 198656, .stored_bytes = 2048, .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.attn.wq", .type = RT_F32, .rank = 4, .copies = 1, .dim = { "h.copy", "embed", "heads", "head" },
      .size = { 4, 128, 4, 32 }, .padded = { 4, 128, 4, 32 }, .stride = { 49152, 384, 32, 1 }, .offset = 200704,
      .stored_bytes = 785408, .init = { RT_NORMAL, 0.05, 0 } },
    { .name = "h.*.attn.wk", .type = RT_F32, .rank = 4, .copies = 1, .dim = { "h.copy", "embed", "heads", "head" },
      .size = { 4, 128, 4, 32 }, .padded = { 4, 128, 4, 32 }, .stride = { 49152, 384, 32, 1 }, .offset = 201216,
      .stored_bytes = 785408, .init = { RT_NORMAL, 0.05, 0 } },
    { .name = "h.*.attn.wv", .type = RT_F32, .rank = 4, .copies = 1, .dim = { "h.copy", "embed", "heads", "head" },
      .size = { 4, 128, 4, 32 }, .padded = { 4, 128, 4, 32 }, .stride = { 49152, 384, 32, 1 }, .offset = 201728,
      .stored_bytes = 785408, .init = { RT_NORMAL, 0.05, 0 } },
    { .name = "h.*.attn.wo", .type = RT_F32, .rank = 4, .copies = 1, .dim = { "h.copy", "heads", "head", "embed" },
      .size = { 4, 4, 32, 128 }, .padded = { 4, 4, 32, 128 }, .stride = { 16384, 4096, 128, 1 }, .offset = 987136,
      .stored_bytes = 262144, .init = { RT_NORMAL, 0.017677669529663688, 0 } },
    { .name = "h.*.ln_2.gain", .type = RT_F32, .rank = 2, .copies = 1, .dim = { "h.copy", "embed" }, .size = { 4, 128 },
      .padded = { 4, 128 }, .stride = { 128, 1 }, .offset = 1249280, .stored_bytes = 2048, .init = { RT_ONES, 0, 0 } },
    { .name = "h.*.ln_2.bias", .type = RT_F32, .rank = 2, .copies = 1, .dim = { "h.copy", "embed" }, .size = { 4, 128 },
      .padded = { 4, 128 }, .stride = { 128, 1 }, .offset = 1251328, .stored_bytes = 2048, .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.mlp.w_up", .type = RT_F32, .rank = 3, .copies = 1, .dim = { "h.copy", "embed", "ff" },
      .size = { 4, 128, 512 }, .padded = { 4, 128, 512 }, .stride = { 65536, 512, 1 }, .offset = 1253376,
      .stored_bytes = 1048576, .init = { RT_NORMAL, 0.05, 0 } },
    { .name = "h.*.mlp.b_up", .type = RT_F32, .rank = 2, .copies = 1, .dim = { "h.copy", "ff" }, .size = { 4, 512 },
      .padded = { 4, 512 }, .stride = { 512, 1 }, .offset = 2301952, .stored_bytes = 8192, .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.mlp.w_down", .type = RT_F32, .rank = 3, .copies = 1, .dim = { "h.copy", "ff", "embed" },
      .size = { 4, 512, 128 }, .padded = { 4, 512, 128 }, .stride = { 65536, 128, 1 }, .offset = 2310144,
      .stored_bytes = 1048576, .init = { RT_NORMAL, 0.017677669529663688, 0 } },
    { .name = "h.*.mlp.b_down", .type = RT_F32, .rank = 2, .copies = 1, .dim = { "h.copy", "embed" },
      .size = { 4, 128 }, .padded = { 4, 128 }, .stride = { 128, 1 }, .offset = 3358720, .stored_bytes = 2048,
      .init = { RT_ZEROS, 0, 0 } },
    { .name = "ln_f.gain", .type = RT_F32, .rank = 1, .copies = 0, .dim = { "embed" }, .size = { 128 },
      .padded = { 128 }, .stride = { 1 }, .offset = 3360768, .stored_bytes = 512, .init = { RT_ONES, 0, 0 } },
    { .name = "ln_f.bias", .type = RT_F32, .rank = 1, .copies = 0, .dim = { "embed" }, .size = { 128 },
      .padded = { 128 }, .stride = { 1 }, .offset = 3361280, .stored_bytes = 512, .init = { RT_ZEROS, 0, 0 } },
    { .name = "wte", .state = "m", .type = RT_F32, .rank = 2, .copies = 0, .dim = { "vocab", "embed" },
      .size = { 256, 128 }, .padded = { 256, 128 }, .stride = { 128, 1 }, .offset = 3361792, .stored_bytes = 131072,
      .init = { RT_ZEROS, 0, 0 } },
    { .name = "wpe", .state = "m", .type = RT_F32, .rank = 2, .copies = 0, .dim = { "seq", "embed" },
      .size = { 128, 128 }, .padded = { 128, 128 }, .stride = { 128, 1 }, .offset = 3492864, .stored_bytes = 65536,
      .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.ln_1.gain", .state = "m", .type = RT_F32, .rank = 2, .copies = 1, .dim = { "h.copy", "embed" },
      .size = { 4, 128 }, .padded = { 4, 128 }, .stride = { 128, 1 }, .offset = 3558400, .stored_bytes = 2048,
      .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.ln_1.bias", .state = "m", .type = RT_F32, .rank = 2, .copies = 1, .dim = { "h.copy", "embed" },
      .size = { 4, 128 }, .padded = { 4, 128 }, .stride = { 128, 1 }, .offset = 3560448, .stored_bytes = 2048,
      .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.attn.wq", .state = "m", .type = RT_F32, .rank = 4, .copies = 1,
      .dim = { "h.copy", "embed", "heads", "head" }, .size = { 4, 128, 4, 32 }, .padded = { 4, 128, 4, 32 },
      .stride = { 16384, 128, 32, 1 }, .offset = 3562496, .stored_bytes = 262144, .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.attn.wk", .state = "m", .type = RT_F32, .rank = 4, .copies = 1,
      .dim = { "h.copy", "embed", "heads", "head" }, .size = { 4, 128, 4, 32 }, .padded = { 4, 128, 4, 32 },
      .stride = { 16384, 128, 32, 1 }, .offset = 3824640, .stored_bytes = 262144, .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.attn.wv", .state = "m", .type = RT_F32, .rank = 4, .copies = 1,
      .dim = { "h.copy", "embed", "heads", "head" }, .size = { 4, 128, 4, 32 }, .padded = { 4, 128, 4, 32 },
      .stride = { 16384, 128, 32, 1 }, .offset = 4086784, .stored_bytes = 262144, .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.attn.wo", .state = "m", .type = RT_F32, .rank = 4, .copies = 1,
      .dim = { "h.copy", "heads", "head", "embed" }, .size = { 4, 4, 32, 128 }, .padded = { 4, 4, 32, 128 },
      .stride = { 16384, 4096, 128, 1 }, .offset = 4348928, .stored_bytes = 262144, .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.ln_2.gain", .state = "m", .type = RT_F32, .rank = 2, .copies = 1, .dim = { "h.copy", "embed" },
      .size = { 4, 128 }, .padded = { 4, 128 }, .stride = { 128, 1 }, .offset = 4611072, .stored_bytes = 2048,
      .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.ln_2.bias", .state = "m", .type = RT_F32, .rank = 2, .copies = 1, .dim = { "h.copy", "embed" },
      .size = { 4, 128 }, .padded = { 4, 128 }, .stride = { 128, 1 }, .offset = 4613120, .stored_bytes = 2048,
      .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.mlp.w_up", .state = "m", .type = RT_F32, .rank = 3, .copies = 1, .dim = { "h.copy", "embed", "ff" },
      .size = { 4, 128, 512 }, .padded = { 4, 128, 512 }, .stride = { 65536, 512, 1 }, .offset = 4615168,
      .stored_bytes = 1048576, .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.mlp.b_up", .state = "m", .type = RT_F32, .rank = 2, .copies = 1, .dim = { "h.copy", "ff" },
      .size = { 4, 512 }, .padded = { 4, 512 }, .stride = { 512, 1 }, .offset = 5663744, .stored_bytes = 8192,
      .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.mlp.w_down", .state = "m", .type = RT_F32, .rank = 3, .copies = 1,
      .dim = { "h.copy", "ff", "embed" }, .size = { 4, 512, 128 }, .padded = { 4, 512, 128 },
      .stride = { 65536, 128, 1 }, .offset = 5671936, .stored_bytes = 1048576, .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.mlp.b_down", .state = "m", .type = RT_F32, .rank = 2, .copies = 1, .dim = { "h.copy", "embed" },
      .size = { 4, 128 }, .padded = { 4, 128 }, .stride = { 128, 1 }, .offset = 6720512, .stored_bytes = 2048,
      .init = { RT_ZEROS, 0, 0 } },
    { .name = "ln_f.gain", .state = "m", .type = RT_F32, .rank = 1, .copies = 0, .dim = { "embed" }, .size = { 128 },
      .padded = { 128 }, .stride = { 1 }, .offset = 6722560, .stored_bytes = 512, .init = { RT_ZEROS, 0, 0 } },
    { .name = "ln_f.bias", .state = "m", .type = RT_F32, .rank = 1, .copies = 0, .dim = { "embed" }, .size = { 128 },
      .padded = { 128 }, .stride = { 1 }, .offset = 6723072, .stored_bytes = 512, .init = { RT_ZEROS, 0, 0 } },
    { .name = "wte", .state = "v", .type = RT_F32, .rank = 2, .copies = 0, .dim = { "vocab", "embed" },
      .size = { 256, 128 }, .padded = { 256, 128 }, .stride = { 128, 1 }, .offset = 6723584, .stored_bytes = 131072,
      .init = { RT_ZEROS, 0, 0 } },
    { .name = "wpe", .state = "v", .type = RT_F32, .rank = 2, .copies = 0, .dim = { "seq", "embed" },
      .size = { 128, 128 }, .padded = { 128, 128 }, .stride = { 128, 1 }, .offset = 6854656, .stored_bytes = 65536,
      .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.ln_1.gain", .state = "v", .type = RT_F32, .rank = 2, .copies = 1, .dim = { "h.copy", "embed" },
      .size = { 4, 128 }, .padded = { 4, 128 }, .stride = { 128, 1 }, .offset = 6920192, .stored_bytes = 2048,
      .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.ln_1.bias", .state = "v", .type = RT_F32, .rank = 2, .copies = 1, .dim = { "h.copy", "embed" },
      .size = { 4, 128 }, .padded = { 4, 128 }, .stride = { 128, 1 }, .offset = 6922240, .stored_bytes = 2048,
      .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.attn.wq", .state = "v", .type = RT_F32, .rank = 4, .copies = 1,
      .dim = { "h.copy", "embed", "heads", "head" }, .size = { 4, 128, 4, 32 }, .padded = { 4, 128, 4, 32 },
      .stride = { 16384, 128, 32, 1 }, .offset = 6924288, .stored_bytes = 262144, .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.attn.wk", .state = "v", .type = RT_F32, .rank = 4, .copies = 1,
      .dim = { "h.copy", "embed", "heads", "head" }, .size = { 4, 128, 4, 32 }, .padded = { 4, 128, 4, 32 },
      .stride = { 16384, 128, 32, 1 }, .offset = 7186432, .stored_bytes = 262144, .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.attn.wv", .state = "v", .type = RT_F32, .rank = 4, .copies = 1,
      .dim = { "h.copy", "embed", "heads", "head" }, .size = { 4, 128, 4, 32 }, .padded = { 4, 128, 4, 32 },
      .stride = { 16384, 128, 32, 1 }, .offset = 7448576, .stored_bytes = 262144, .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.attn.wo", .state = "v", .type = RT_F32, .rank = 4, .copies = 1,
      .dim = { "h.copy", "heads", "head", "embed" }, .size = { 4, 4, 32, 128 }, .padded = { 4, 4, 32, 128 },
      .stride = { 16384, 4096, 128, 1 }, .offset = 7710720, .stored_bytes = 262144, .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.ln_2.gain", .state = "v", .type = RT_F32, .rank = 2, .copies = 1, .dim = { "h.copy", "embed" },
      .size = { 4, 128 }, .padded = { 4, 128 }, .stride = { 128, 1 }, .offset = 7972864, .stored_bytes = 2048,
      .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.ln_2.bias", .state = "v", .type = RT_F32, .rank = 2, .copies = 1, .dim = { "h.copy", "embed" },
      .size = { 4, 128 }, .padded = { 4, 128 }, .stride = { 128, 1 }, .offset = 7974912, .stored_bytes = 2048,
      .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.mlp.w_up", .state = "v", .type = RT_F32, .rank = 3, .copies = 1, .dim = { "h.copy", "embed", "ff" },
      .size = { 4, 128, 512 }, .padded = { 4, 128, 512 }, .stride = { 65536, 512, 1 }, .offset = 7976960,
      .stored_bytes = 1048576, .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.mlp.b_up", .state = "v", .type = RT_F32, .rank = 2, .copies = 1, .dim = { "h.copy", "ff" },
      .size = { 4, 512 }, .padded = { 4, 512 }, .stride = { 512, 1 }, .offset = 9025536, .stored_bytes = 8192,
      .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.mlp.w_down", .state = "v", .type = RT_F32, .rank = 3, .copies = 1,
      .dim = { "h.copy", "ff", "embed" }, .size = { 4, 512, 128 }, .padded = { 4, 512, 128 },
      .stride = { 65536, 128, 1 }, .offset = 9033728, .stored_bytes = 1048576, .init = { RT_ZEROS, 0, 0 } },
    { .name = "h.*.mlp.b_down", .state = "v", .type = RT_F32, .rank = 2, .copies = 1, .dim = { "h.copy", "embed" },
      .size = { 4, 128 }, .padded = { 4, 128 }, .stride = { 128, 1 }, .offset = 10082304, .stored_bytes = 2048,
      .init = { RT_ZEROS, 0, 0 } },
    { .name = "ln_f.gain", .state = "v", .type = RT_F32, .rank = 1, .copies = 0, .dim = { "embed" }, .size = { 128 },
      .padded = { 128 }, .stride = { 1 }, .offset = 10084352, .stored_bytes = 512, .init = { RT_ZEROS, 0, 0 } },
    { .name = "ln_f.bias", .state = "v", .type = RT_F32, .rank = 1, .copies = 0, .dim = { "embed" }, .size = { 128 },
      .padded = { 128 }, .stride = { 1 }, .offset = 10084864, .stored_bytes = 512, .init = { RT_ZEROS, 0, 0 } },
};
/* clang-format on */

static const RtKernel kernels[] = {
    { "x", "chars.mdl:48:13", "gather", 0, 2105344 },
    { "x", "chars.mdl:48:29", "fused", 262144, 2162688 },
    { "h.ln_1", "chars.mdl:16:12", "fused", 1849344, 3154944 },
    { "h.attn.q", "chars.mdl:22:9", "product", 201326592, 4390912 },
    { "h.attn", "chars.mdl:25:16", "attend", 134217728, 4227072 },
    { "h.attn", "chars.mdl:25:12", "product", 67108864, 2162688 },
    { "h.x", "chars.mdl:37:11", "fused", 2111488, 5252096 },
    { "h.mlp", "chars.mdl:33:26", "product", 269484032, 5507072 },
    { "h.mlp", "chars.mdl:33:16", "fused", 12582912, 8388608 },
    { "h.mlp", "chars.mdl:33:12", "product", 268435456, 5505024 },
    { "h.mlp", "chars.mdl:33:67", "fused", 524288, 3.14624e+06 },
    { "ln_f", "chars.mdl:16:12", "fused", 2115584, 5260288 },
    { "logits", "chars.mdl:50:14", "product", 134217728, 3.2768e+06 },
    { "loss", "chars.mdl:51:15", "fused", 1, 4 },
    { "loss", "chars.mdl:51:15", "fused", 8935424, 4202504 },
    { "loss", "chars.mdl:51:10", "fused", 1, 8 },
    { "logits", "chars.mdl:50:14", "product", 134217728, 3.2768e+06 },
    { "logits", "chars.mdl:50:14", "product", 134217728, 3.2768e+06 },
    { "ln_f", "chars.mdl:16:39", "fused", 3.15392e+06, 5.2608e+06 },
    { "h.mlp", "chars.mdl:33:12", "product", 268435456, 5505024 },
    { "h.mlp", "chars.mdl:33:16", "fused", 18874368, 1.258496e+07 },
    { "h.mlp", "chars.mdl:33:26", "product", 268435456, 5505024 },
    { "h.mlp", "chars.mdl:33:67", "fused", 4.21888e+06, 4204544 },
    { "h.mlp", "chars.mdl:33:12", "product", 268435456, 5505024 },
    { "h.mlp", "chars.mdl:33:26", "product", 268435456, 5505024 },
    { "h.attn", "chars.mdl:25:12", "product", 67108864, 2162688 },
    { "h.attn", "chars.mdl:25:12", "product", 67108864, 2162688 },
    { "h.attn", "chars.mdl:25:16", "attend_grad", 3.3554432e+08, 8421376 },
    { "h.attn.v", "chars.mdl:24:9", "product", 67108864, 2162688 },
    { "h.attn.v", "chars.mdl:24:9", "product", 67108864, 2162688 },
    { "h.attn.k", "chars.mdl:23:9", "product", 67108864, 2162688 },
    { "h.attn.k", "chars.mdl:23:9", "product", 67108864, 2162688 },
    { "h.attn.q", "chars.mdl:22:9", "product", 67108864, 2162688 },
    { "h.attn.k", "chars.mdl:23:9", "fused", 4481024, 6301184 },
    { "h.attn.q", "chars.mdl:22:9", "product", 67108864, 2162688 },
    { "x", "chars.mdl:48:29", "fused", 262144, 1114112 },
    { "x", "chars.mdl:48:13", "scatter_add", 262144, 2105344 },
    { "x", "chars.mdl:48:13", "fused", 98304, 3.9322e+05 },
    { "wpe", "", "fused", 32768, 6.554e+04 },
    { "h.ln_1.gain", "", "fused", 1024, 2052 },
    { "h.ln_1.bias", "", "fused", 1024, 2052 },
    { "h.attn.wq", "", "fused", 131072, 262148 },
    { "h.attn.wk", "", "fused", 131072, 262148 },
    { "h.attn.wv", "", "fused", 131072, 262148 },
    { "h.attn.wo", "", "fused", 131072, 262148 },
    { "h.ln_2.gain", "", "fused", 1024, 2052 },
    { "h.ln_2.bias", "", "fused", 1024, 2052 },
    { "h.mlp.w_up", "", "fused", 524288, 1.04858e+06 },
    { "h.mlp.b_up", "", "fused", 4096, 8196 },
    { "h.mlp.w_down", "", "fused", 524288, 1.04858e+06 },
    { "h.mlp.b_down", "", "fused", 1024, 2052 },
    { "ln_f.gain", "", "fused", 256, 516 },
    { "ln_f.bias", "", "fused", 256, 516 },
    { "wpe", "", "fused", 22, 72 },
    { "grad_norm", "", "fused", 26, 16 },
    { "wte", "chars.mdl:45:11", "fused", 2, 8 },
    { "wte", "chars.mdl:45:11", "update", 589824, 9.1752e+05 },
    { "wpe", "chars.mdl:46:11", "update", 294912, 458768 },
    { "h.ln_1.gain", "chars.mdl:14:11", "update", 8704, 14348 },
    { "h.ln_1.bias", "chars.mdl:15:11", "update", 8704, 14348 },
    { "h.attn.wq", "chars.mdl:20:11", "update", 1179648, 1835024 },
    { "h.attn.wk", "chars.mdl:20:15", "update", 1179648, 1835024 },
    { "h.attn.wv", "chars.mdl:20:19", "update", 1179648, 1835024 },
    { "h.attn.wo", "chars.mdl:21:11", "update", 1179648, 1835024 },
    { "h.ln_2.gain", "chars.mdl:14:11", "update", 8704, 14348 },
    { "h.ln_2.bias", "chars.mdl:15:11", "update", 8704, 14348 },
    { "h.mlp.w_up", "chars.mdl:29:11", "update", 4718592, 7340048 },
    { "h.mlp.b_up", "chars.mdl:30:11", "update", 34816, 57356 },
    { "h.mlp.w_down", "chars.mdl:31:11", "update", 4718592, 7340048 },
    { "h.mlp.b_down", "chars.mdl:32:11", "update", 8704, 14348 },
    { "ln_f.gain", "chars.mdl:14:11", "update", 2176, 3596 },
    { "ln_f.bias", "chars.mdl:15:11", "update", 2176, 3596 },
    { "x", "chars.mdl:48:13", "gather", 0, 2105344 },
    { "x", "chars.mdl:48:29", "fused", 262144, 2162688 },
    { "h.ln_1", "chars.mdl:16:12", "fused", 1849344, 2098176 },
    { "h.attn.q", "chars.mdl:22:9", "product", 201326592, 4390912 },
    { "h.attn", "chars.mdl:25:16", "attend", 134217728, 4227072 },
    { "h.attn", "chars.mdl:25:12", "product", 67108864, 2162688 },
    { "h.x", "chars.mdl:37:11", "fused", 2111488, 4195328 },
    { "h.mlp", "chars.mdl:33:26", "product", 282066944, 5507072 },
    { "h.mlp", "chars.mdl:33:12", "product", 268435456, 5505024 },
    { "h.mlp", "chars.mdl:33:67", "fused", 524288, 3.14624e+06 },
    { "ln_f", "chars.mdl:16:12", "fused", 1849344, 2098176 },
    { "logits", "chars.mdl:50:14", "product", 134217728, 3.2768e+06 },
    { "loss", "chars.mdl:51:15", "fused", 7360512, 2105348 },
    { "loss", "chars.mdl:51:10", "fused", 1, 8 },
    { "x", "chars.mdl:48:13", "gather", 0, 131584 },
    { "x", "chars.mdl:48:29", "fused", 16384, 196608 },
    { "h.ln_1", "chars.mdl:16:12", "fused", 115584, 132096 },
    { "h.attn.q", "chars.mdl:22:9", "product", 12582912, 458752 },
    { "h.attn", "chars.mdl:25:16", "attend", 8388608, 264192 },
    { "h.attn", "chars.mdl:25:12", "product", 4194304, 196608 },
    { "h.x", "chars.mdl:37:11", "fused", 131968, 263168 },
    { "h.mlp", "chars.mdl:33:26", "product", 17629184, 591872 },
    { "h.mlp", "chars.mdl:33:12", "product", 16777216, 589824 },
    { "h.mlp", "chars.mdl:33:67", "fused", 32768, 1.9712e+05 },
    { "ln_f", "chars.mdl:16:12", "fused", 115584, 132096 },
    { "logits", "chars.mdl:50:14", "product", 8388608, 3.2768e+05 },
};

static const RtInput step_inputs[] = {
    {
        .name = "tokens",
        .of = "tokens",
        .type = RT_I32,
        .offset = 10085376,
        .shift = 0,
        .vocab = 256,
        .dim[0] = { .size = 128, .padded = 128 },
        .rank = 1,
    },
    {
        .name = "labels",
        .of = "tokens",
        .type = RT_I32,
        .offset = 10093568,
        .shift = 1,
        .vocab = 256,
        .dim[0] = { .size = 128, .padded = 128 },
        .rank = 1,
    },
};

static const RtInput eval_inputs[] = {
    {
        .name = "tokens",
        .of = "tokens",
        .type = RT_I32,
        .offset = 10101888,
        .shift = 0,
        .vocab = 256,
        .dim[0] = { .size = 128, .padded = 128 },
        .rank = 1,
    },
    {
        .name = "labels",
        .of = "tokens",
        .type = RT_I32,
        .offset = 10110080,
        .shift = 1,
        .vocab = 256,
        .dim[0] = { .size = 128, .padded = 128 },
        .rank = 1,
    },
};

static const RtInput predict_inputs[] = {
    {
        .name = "tokens",
        .of = "tokens",
        .type = RT_I32,
        .offset = 10118272,
        .shift = 0,
        .vocab = 256,
        .dim[0] = { .size = 128, .padded = 128 },
        .rank = 1,
    },
};

/* clang-format off */
static const char plan[] =
    "{\"mpc\":\"0.1.0\",\"model\":{\"name\":\"chars\",\"source\":\"examples/chars.mdl\",\"pa"
    "rameters\":840448,\"tensors\":52},\"options\":[{\"name\":\"--output\",\"value\":\"x\""
    ",\"from\":\"command line\"},{\"name\":\"--define\",\"value\":\"\",\"from\":\"default\"},"
    "{\"name\":\"--set\",\"value\":\"\",\"from\":\"default\"},{\"name\":\"--mesh\",\"value\":\"\""
    ",\"from\":\"default\"},{\"name\":\"--zero\",\"value\":\"\",\"from\":\"default\"},{\"name\""
    ":\"--recompute\",\"value\":\"\",\"from\":\"default\"},{\"name\":\"--schedule\",\"value\""
    ":\"\",\"from\":\"default\"},{\"name\":\"--stages\",\"value\":\"\",\"from\":\"default\"},{\""
    "name\":\"--chunks\",\"value\":\"\",\"from\":\"default\"},{\"name\":\"--target\",\"value\""
    ":\"c\",\"from\":\"default\"},{\"name\":\"--comm\",\"value\":\"mpi\",\"from\":\"default\"},"
    "{\"name\":\"--nvrtc\",\"value\":\"\",\"from\":\"default\"},{\"name\":\"--dump-ir\",\"valu"
    "e\":\"\",\"from\":\"default\"},{\"name\":\"--compile-to\",\"value\":\"\",\"from\":\"defaul"
    "t\"},{\"name\":\"--compile-from\",\"value\":\"\",\"from\":\"default\"},{\"name\":\"--ver"
    "ify-passes\",\"value\":\"false\",\"from\":\"default\"},{\"name\":\"--remarks\",\"value"
    "\":\"\",\"from\":\"default\"},{\"name\":\"--time\",\"value\":\"false\",\"from\":\"default\""
    "},{\"name\":\"--no-cc\",\"value\":\"false\",\"from\":\"default\"},{\"name\":\"--cc\",\"va"
    "lue\":\"cc\",\"from\":\"default\"},{\"name\":\"--cflags\",\"value\":\"\",\"from\":\"defaul"
    "t\"},{\"name\":\"--verbose\",\"value\":\"false\",\"from\":\"default\"}],\"settings\":[{"
    "\"name\":\"const.layers\",\"value\":\"4\",\"unit\":\"\",\"from\":\"chars.mdl:3:7\"},{\"na"
    "me\":\"dim.seq\",\"value\":\"128\",\"unit\":\"elements\",\"from\":\"chars.mdl:6:5\"},{\""
    "name\":\"dim.vocab\",\"value\":\"256\",\"unit\":\"elements\",\"from\":\"chars.mdl:7:5\""
    "},{\"name\":\"dim.embed\",\"value\":\"128\",\"unit\":\"elements\",\"from\":\"chars.mdl:"
    "8:5\"},{\"name\":\"dim.heads\",\"value\":\"4\",\"unit\":\"elements\",\"from\":\"chars.md"
    "l:9:5\"},{\"name\":\"dim.head\",\"value\":\"32\",\"unit\":\"elements\",\"from\":\"chars."
    "mdl:10:5\"},{\"name\":\"dim.ff\",\"value\":\"512\",\"unit\":\"elements\",\"from\":\"char"
    "s.mdl:11:5\"},{\"name\":\"parallel.shard.dp\",\"value\":\"batch\",\"unit\":\"\",\"from"
    "\":\"chars.mdl:65:5\"},{\"name\":\"parallel.shard.tp\",\"value\":\"heads, ff, voca"
    "b else seq\",\"unit\":\"\",\"from\":\"chars.mdl:66:5\"},{\"name\":\"parallel.zero\",\""
    "value\":\"1\",\"unit\":\"\",\"from\":\"chars.mdl:67:5\"},{\"name\":\"parallel.zero.ove"
    "r\",\"value\":\"dp\",\"unit\":\"\",\"from\":\"chars.mdl:67:17\"},{\"name\":\"parallel.re"
    "compute\",\"value\":\"none\",\"unit\":\"\",\"from\":\"chars.mdl:68:15\"},{\"name\":\"tra"
    "in.optimizer\",\"value\":\"adamw\",\"unit\":\"\",\"from\":\"chars.mdl:55:5\"},{\"name\""
    ":\"train.optimizer.lr\",\"value\":\"0.002\",\"unit\":\"\",\"from\":\"chars.mdl:55:24\""
    "},{\"name\":\"train.optimizer.beta1\",\"value\":\"0.9\",\"unit\":\"\",\"from\":\"chars."
    "mdl:55:35\"},{\"name\":\"train.optimizer.beta2\",\"value\":\"0.99\",\"unit\":\"\",\"fr"
    "om\":\"chars.mdl:55:48\"},{\"name\":\"train.optimizer.eps\",\"value\":\"1e-08\",\"un"
    "it\":\"\",\"from\":\"default\"},{\"name\":\"train.optimizer.weight_decay\",\"value\":"
    "\"0.1\",\"unit\":\"\",\"from\":\"chars.mdl:55:62\"},{\"name\":\"train.schedule\",\"valu"
    "e\":\"cosine\",\"unit\":\"\",\"from\":\"chars.mdl:56:5\"},{\"name\":\"train.schedule.w"
    "armup\",\"value\":\"40\",\"unit\":\"steps\",\"from\":\"chars.mdl:56:25\"},{\"name\":\"tr"
    "ain.schedule.steps\",\"value\":\"1000\",\"unit\":\"steps\",\"from\":\"chars.mdl:56:3"
    "8\"},{\"name\":\"train.schedule.min_lr\",\"value\":\"0.0002\",\"unit\":\"\",\"from\":\"c"
    "hars.mdl:56:52\"},{\"name\":\"train.clip\",\"value\":\"1\",\"unit\":\"\",\"from\":\"char"
    "s.mdl:57:5\"},{\"name\":\"train.clip_value\",\"value\":\"0\",\"unit\":\"\",\"from\":\"de"
    "fault\"},{\"name\":\"train.ema\",\"value\":\"0\",\"unit\":\"\",\"from\":\"default\"},{\"na"
    "me\":\"train.skip_spikes\",\"value\":\"0\",\"unit\":\"\",\"from\":\"default\"},{\"name\":"
    "\"train.seed\",\"value\":\"1337\",\"unit\":\"\",\"from\":\"chars.mdl:60:5\"},{\"name\":\""
    "train.precision\",\"value\":\"fp32\",\"unit\":\"\",\"from\":\"chars.mdl:59:5\"},{\"nam"
    "e\":\"train.batch\",\"value\":\"16\",\"unit\":\"sequences\",\"from\":\"chars.mdl:58:5\""
    "},{\"name\":\"train.microbatch\",\"value\":\"16\",\"unit\":\"sequences\",\"from\":\"def"
    "ault\"},{\"name\":\"parallel.mesh.dp\",\"value\":\"1\",\"unit\":\"ranks\",\"from\":\"cha"
    "rs.mdl:64:11\"},{\"name\":\"parallel.mesh.tp\",\"value\":\"1\",\"unit\":\"ranks\",\"fr"
    "om\":\"chars.mdl:64:19\"}],\"mesh\":{\"ranks\":1,\"axes\":{}},\"memory\":{\"unit\":\"b"
    "ytes\",\"arena\":92320448,\"classes\":{\"master weights\":0,\"weights\":3361792,\""
    "gradients\":3296256,\"optimizer state\":6723584,\"inputs\":33288,\"activations"
    "\":67305472,\"workspace\":11599876},\"unused\":180,\"messages\":0,\"kinds\":[{\"na"
    "me\":\"all\",\"arena\":92320448,\"weights\":3361792,\"gradients\":3296256,\"optimi"
    "zer\":6723584,\"slots\":0,\"rest\":78938816,\"messages\":0}],\"peak\":{\"op\":\"h.ml"
    "p\",\"where\":\"chars.mdl:33:16\",\"function\":\"h.bwd\",\"step\":92320268,\"eval\":1"
    "9555848,\"predict\":10708488}},\"work\":{\"flops_per_step\":11676942336,\"flops"
    "_convention\":\"3 x (products and attention of the forward pass), causal a"
    "ttention as full; recomputation not counted\",\"micro_batches_per_step\":1,"
    "\"sequences_per_step\":16,\"tokens_per_step\":2048},\"files\":{\"source\":\"train"
    "er.c\",\"plan\":\"plan.json\",\"program\":\"trainer\"}}";
/* clang-format on */

static const RtProgram program = {
    .name = "chars",
    .source = "examples/chars.mdl",
    .tensors = tensors,
    .ntensors = sizeof tensors / sizeof *tensors,
    .kernels = kernels,
    .nkernels = sizeof kernels / sizeof *kernels,
    .arena_bytes = 92320448,
    .state_bytes = 10085376,
    .flops_per_step = 11676942336,
    .tokens_per_step = 2048,
    .vocab = 256,
    .schedule = { RT_COSINE, .lr = 0.002, .min_lr = 0.0002, .warmup = 40, .steps = 1000, .decay = 0 },
    .seed = 1337,
    .precision = "fp32",
    .is_causal_lm = true,
    .step = {
        .run = run_step,
        .inputs = step_inputs,
        .ninputs = 2,
        .kinds = NULL,
        .scalars = {
            .step = 10101760,
            .lr = 10101824,
            .key = -1,
            .loss = 92320384,
            .grad_norm = 10315392,
            .loss_scale = -1,
            .skipped_steps = -1,
        },
        .micro = 1,
        .batch = 16,
        .seq = 128,
        .logits = -1,
        .logits_stride = 0,
    },
    .eval = {
        .run = run_eval,
        .inputs = eval_inputs,
        .ninputs = 2,
        .kinds = NULL,
        .scalars = {
            .step = -1,
            .lr = -1,
            .key = -1,
            .loss = 12215936,
            .grad_norm = -1,
            .loss_scale = -1,
            .skipped_steps = -1,
        },
        .micro = 1,
        .batch = 16,
        .seq = 128,
        .logits = -1,
        .logits_stride = 0,
    },
    .predict = {
        .run = run_predict,
        .inputs = predict_inputs,
        .ninputs = 1,
        .kinds = NULL,
        .scalars = {
            .step = -1,
            .lr = -1,
            .key = -1,
            .loss = -1,
            .grad_norm = -1,
            .loss_scale = -1,
            .skipped_steps = -1,
        },
        .micro = 1,
        .batch = 1,
        .seq = 128,
        .logits = 10118784,
        .logits_stride = 256,
    },
    .create = create_products,
    .plan = plan,
};

int main(int argc, char **argv) { return rt_main(argc, argv, &program); }
