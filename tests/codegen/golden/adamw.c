#include "runtime/rt.h"

#include "runtime/kernels/kernels.h"

static inline void *at(char *frame, int64_t offset) { return frame + offset; }

/* h.wq, gpt2.mdl:24:9: mul, add, square, pow, sub, div, sqrt
 * w: f32[rows:61, embed:128]
 * m: f32[rows:61, embed:128]
 * v: f32[rows:61, embed:128]
 * g: f32[rows:61, embed:128]
 * lr: f32[]
 * pos_step: f32[]
 * scale: f32[]
 * w_new, result: f32[rows:61, embed:128]
 * m_new, result: f32[rows:61, embed:128]
 * v_new, result: f32[rows:61, embed:128]
 */
static void adamw_0(const float *w, const float *m, const float *v, const float *restrict g, const float *restrict lr,
                    const float *restrict pos_step, const float *restrict scale, float *w_new, float *m_new,
                    float *v_new)
{
    const float lr_value = lr[0];
    const float pos_step_value = pos_step[0];
    const float scale_value = scale[0];
    const float pow = powf(0.9f, pos_step_value);
    const float sub = 1.0f - pow;
    const float pow_2 = powf(0.95f, pos_step_value);
    const float sub_2 = 1.0f - pow_2;
#pragma omp simd
    for (int64_t i = 0; i < 7808; i++) {
        const float w_i = w[i];
        const float v_i = v[i];
        const float gs = g[i] * scale_value;
        const float mul = m[i] * 0.9f;
        const float mul_2 = gs * 0.1f;
        const float m_new_i = mul + mul_2;
        const float square = v_i * v_i;
        const float mul_3 = square * 0.95f;
        const float square_2 = gs * gs;
        const float mul_4 = square_2 * 0.05f;
        const float v_new_i = mul_3 + mul_4;
        const float div = m_new_i / sub;
        const float div_2 = v_new_i / sub_2;
        const float sqrt = sqrtf(div_2);
        const float add = sqrt + 1e-08f;
        const float div_3 = div / add;
        const float mul_5 = w_i * 0.1f;
        const float add_2 = div_3 + mul_5;
        const float mul_6 = add_2 * lr_value;
        const float w_new_i = w_i - mul_6;
        w_new[i] = w_new_i;
        m_new[i] = m_new_i;
        v_new[i] = v_new_i;
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
    adamw_0(at(frame, 0), at(frame, 31232), at(frame, 62464), at(frame, 93696), at(frame, 124928), at(frame, 124992),
            at(frame, 125056), at(frame, 0), at(frame, 31232), at(frame, 62464));
    (void)rt;
    (void)scratch;
}
