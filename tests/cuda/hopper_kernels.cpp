/* hopper_kernels.cpp -- the kernels of hopper_cases.def, for test_hopper.c. */
#include "wrap.h"

#include "cuda/kernels.cuh"

/* Of a tensor [sequences, rows, heads, features], in rows of so many features. */
constexpr RtAttendStride strides_of(int rows, int row, int feature, int group)
{
    return { (int64_t)rows * row, row, (int64_t)feature * group, feature };
}

constexpr RtAttend shape_of(int feature, int batch, int queries, int keys, int heads, int group, bool is_packed,
                            bool causal, int window, float scale)
{
    const int row = heads * group * feature;
    RtAttend s = {};
    s.batch = batch, s.queries = queries, s.keys = keys, s.heads = heads, s.group = group, s.feature = feature;
    s.y = strides_of(queries, row, feature, group);
    s.lse = { (int64_t)heads * group * queries, 1, (int64_t)group * queries, queries };
    s.causal = causal, s.window = window, s.scale = scale;
    return s;
}

#define CASE(name, type, feature, ...)                                                                                 \
    extern "C" __global__ void name##_kernel(RT_TENSOR_MAP q,                                    \
                                             RT_TENSOR_MAP k,                                    \
                                             RT_TENSOR_MAP v, rt_##type *y, float *lse)          \
    {                                                                                                                  \
        constexpr RtAttend shape = shape_of(feature, __VA_ARGS__);                                                     \
        rt_attend_hopper<feature>(q, k, v, RT_NO_LOGITS, RT_NO_LOGITS, RT_NO_SEGMENT, RT_NO_SEGMENT, y, lse, shape);                                                             \
    }                                                                                                                  \
    extern "C" void name##_emulated(void **arguments) { emulator_call(name##_kernel, arguments); }                     \
    extern "C" const int name##_shared = RtHopperTiles<feature>::BYTES;
#include "hopper_cases.def"
#undef CASE

#include "sections.h"
