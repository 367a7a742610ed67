#include "runtime/rt.h"

#include "runtime/kernels/kernels.h"

static inline void *at(char *frame, int64_t offset) { return frame + offset; }

/* A product that no library takes in this layout, at gpt2.mdl:20:5 */
static void sum_2_0(const float *restrict a, const float *restrict b, float *restrict c)
{
#pragma omp parallel for
    for (int64_t i_batch = 0; i_batch < 6; i_batch++) {
        for (int64_t i_embed = 0; i_embed < 10; i_embed++) {
            float sum = 0.0f;
            for (int64_t i_kv = 0; i_kv < 4; i_kv++) {
                const float x = a[i_batch * 8 + i_kv * 2];
                const float y = b[i_embed * 14 + i_kv];
                sum += x * y;
            }
            c[i_batch * 10 + i_embed] = sum;
        }
    }
}

void create(Rt *rt);
void create(Rt *rt)
{
    /* clang-format off */
    static const RtProductShape shape_0[] = {
        { .m = 6, .n = 10, .k = 14, .batch = 1, .a = { RT_F32, 14, 1, 0 }, .b = { RT_F32, 1, 14, 0 },
          .c = { RT_F32, 10, 1, 0 } }};
    /* clang-format on */

    rt_product_create(rt, 0, shape_0[0]);
    /* clang-format off */
    static const RtProductShape shape_4[] = {
        { .m = 6, .n = 10, .k = 4, .batch = 1, .a = { RT_F32, 4, 1, 0 }, .b = { RT_F32, 1, 14, 0 },
          .c = { RT_F32, 10, 1, 0 } }};
    /* clang-format on */

    rt_product_create(rt, 4, shape_4[0]);
    /* clang-format off */
    static const RtProductShape shape_5[] = {
        { .m = 6, .n = 10, .k = 10, .batch = 1, .a = { RT_F32, 14, 1, 0 }, .b = { RT_F32, 1, 14, 0 },
          .c = { RT_F32, 10, 1, 0 }, .accumulate = true }};
    /* clang-format on */

    rt_product_create(rt, 5, shape_5[0]);
    /* clang-format off */
    static const RtProductShape shape_9[] = {
        { .m = 6, .n = 10, .k = 10, .batch = 1, .a = { RT_F32, 14, 1, 0 }, .b = { RT_F32, 1, 14, 0 },
          .c = { RT_F32, 10, 1, 0 }, .accumulate = true }};
    /* clang-format on */

    rt_product_create(rt, 9, shape_9[0]);
    /* clang-format off */
    static const RtProductShape shape_12[] = {
        { .m = 6, .n = 10, .k = 4, .batch = 1, .a = { RT_F32, 14, 1, 0 }, .b = { RT_F32, 1, 14, 0 },
          .c = { RT_F32, 10, 1, 0 }, .accumulate = true }};
    /* clang-format on */

    rt_product_create(rt, 12, shape_12[0]);
    /* clang-format off */
    static const RtProductShape shape_13[] = {
        { .m = 6, .n = 10, .k = 4, .batch = 1, .a = { RT_F32, 4, 1, 0 }, .b = { RT_F32, 1, 14, 0 },
          .c = { RT_F32, 10, 1, 0 }, .accumulate = true }};
    /* clang-format on */

    rt_product_create(rt, 13, shape_13[0]);
    /* clang-format off */
    static const RtProductShape shape_16[] = {
        { .m = 6, .n = 10, .k = 8, .batch = 1, .a = { RT_F32, 14, 1, 0 }, .b = { RT_F32, 1, 14, 0 },
          .c = { RT_F32, 10, 1, 0 }, .accumulate = true }};
    /* clang-format on */

    rt_product_create(rt, 16, shape_16[0]);
    /* clang-format off */
    static const RtProductShape shape_20[] = {
        { .m = 6, .n = 10, .k = 4, .batch = 1, .a = { RT_BF16, 4, 1, 0 }, .b = { RT_BF16, 1, 4, 0 },
          .c = { RT_BF16, 10, 1, 0 } }};
    /* clang-format on */

    rt_product_create(rt, 20, shape_20[0]);
    /* clang-format off */
    static const RtProductShape shape_21[] = {
        { .m = 6, .n = 10, .k = 8, .batch = 1, .a = { RT_BF16, 8, 1, 0 }, .b = { RT_BF16, 1, 8, 0 },
          .c = { RT_BF16, 10, 1, 0 }, .accumulate = true }};
    /* clang-format on */

    rt_product_create(rt, 21, shape_21[0]);
    /* clang-format off */
    static const RtProductShape shape_24[] = {
        { .m = 4, .n = 10, .k = 6, .batch = 2, .a = { RT_F32, 1, 14, 4 }, .b = { RT_F32, 10, 1, 0 },
          .c = { RT_F32, 1, 4, 64 } }};
    /* clang-format on */

    rt_product_create(rt, 24, shape_24[0]);
    /* clang-format off */
    static const RtProductShape shape_28[] = {
        { .m = 8, .n = 10, .k = 6, .batch = 1, .a = { RT_F32, 1, 14, 0 }, .b = { RT_F32, 10, 1, 0 },
          .c = { RT_F32, 1, 8, 0 } }};
    /* clang-format on */

    rt_product_create(rt, 28, shape_28[0]);
    /* clang-format off */
    static const RtProductShape shape_32[] = {
        { .m = 8, .n = 4, .k = 10, .batch = 1, .a = { RT_F32, 10, 1, 0 }, .b = { RT_F32, 4, 1, 0 },
          .c = { RT_F32, 4, 1, 0 } }};
    /* clang-format on */

    rt_product_create(rt, 32, shape_32[0]);
    /* clang-format off */
    static const RtProductShape shape_36[] = {
        { .m = 4, .n = 4, .k = 10, .batch = 2, .a = { RT_F32, 10, 1, 40 }, .b = { RT_F32, 4, 1, 0 },
          .c = { RT_F32, 4, 1, 48 } }};
    /* clang-format on */

    rt_product_create(rt, 36, shape_36[0]);
    (void)rt;
    (void)at;
}

void run(Rt *rt, char *frame, float *scratch);
void run(Rt *rt, char *frame, float *scratch)
{
    rt_product(rt, 0, at(frame, 0), at(frame, 384), at(frame, 2880));
    rt_product(rt, 4, at(frame, 960), at(frame, 424), at(frame, 3136));
    rt_product(rt, 5, at(frame, 0), at(frame, 384), at(frame, 3136));
    sum_2_0(at(frame, 1088), at(frame, 424), at(frame, 3392));
    rt_product(rt, 9, at(frame, 0), at(frame, 384), at(frame, 3392));
    memcpy(at(frame, 3648), at(frame, 1344), 240);
    rt_product(rt, 12, at(frame, 40), at(frame, 424), at(frame, 3648));
    rt_product(rt, 13, at(frame, 960), at(frame, 408), at(frame, 3648));
    rt_product(rt, 16, at(frame, 24), at(frame, 408), at(frame, 1344));
    rt_product(rt, 20, at(frame, 2368), at(frame, 2432), at(frame, 3904));
    rt_product(rt, 21, at(frame, 2560), at(frame, 2688), at(frame, 3904));
    rt_product(rt, 24, at(frame, 24), at(frame, 1600), at(frame, 4096));
    rt_product(rt, 28, at(frame, 24), at(frame, 1600), at(frame, 4608));
    rt_product(rt, 32, at(frame, 1856), at(frame, 2176), at(frame, 4992));
    rt_product(rt, 36, at(frame, 1856), at(frame, 2176), at(frame, 5120));
    (void)rt;
    (void)scratch;
}
