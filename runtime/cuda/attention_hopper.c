/* attention_hopper.c -- attention by the program's kernel for Hopper, on a GPU that has it: its tensor maps, its
 * launch.
 *
 * Maps contain addresses. They are made for each launch; a graph keeps them, as arguments. */
#include "attention.h"

#include "gpu.h"
#include "hopper.h"

#include <string.h>

/* The driver is not linked.  Without the function, which it has had since CUDA 12.0, the kernel is not used. */
static PFN_cuTensorMapEncodeTiled_v12000 find_encode(void)
{
    enum { SINCE = 12000 };
    void *found = NULL;
    PFN_cuTensorMapEncodeTiled_v12000 encode = NULL;
    enum cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, SINCE, cudaEnableDefault, &result) !=
            cudaSuccess ||
        result != cudaDriverEntryPointSuccess)
        return NULL;
    memcpy(&encode, &found, sizeof encode);
    return encode;
}

bool rt_attention_open_hopper(Rt *rt, struct RtGpuAttentions *all)
{
    all->encode = rt_gpu_is_hopper(rt->gpu) && !rt->gpu->options.no_hopper ? find_encode() : NULL;
    for (int i = 0; i < all->count && all->encode; i++) {
        const RtKernelLaunch *launch = &all->attention[i].shape->hopper;
        if (!launch->name)
            continue;
        all->attention[i].hopper = rt_gpu_kernel(rt, launch->name);
        rt_gpu_check(rt,
                     cudaKernelSetAttributeForDevice(all->attention[i].hopper,
                                                     cudaFuncAttributeMaxDynamicSharedMemorySize, (int)launch->shared,
                                                     rt->gpu->number),
                     "load the attention kernel for Hopper");
    }
    return all->encode != NULL;
}

/* Of dims [features, rows, heads, sequences], the first contiguous; false if the driver refuses. */
static bool make_map(const struct RtGpuAttentions *all, const RtAttentionShape *s, const RtHeads *at, int64_t rows,
                     int64_t heads, int box_rows, const void *from, CUtensorMap *map)
{
    enum { DIMS = 4, BYTES = 2 };
    const int64_t sizes[DIMS] = { s->feature, rows, heads, s->batch };
    const int64_t strides[DIMS] = { 1, at->row, at->head, at->batch };
    const cuuint32_t box[DIMS] = { RT_HOPPER_BOX, (cuuint32_t)box_rows, 1, 1 }, each[DIMS] = { 1, 1, 1, 1 };
    cuuint64_t size[DIMS], stride[DIMS - 1];
    for (int i = 0; i < DIMS; i++) {
        size[i] = (cuuint64_t)sizes[i];
        if (i > 0) /* of a dim of one element any will do, but 0 may not */
            stride[i - 1] = (cuuint64_t)((sizes[i] > 1 ? strides[i] : s->feature) * BYTES);
    }
    return all->encode(map, s->type == RT_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                       DIMS, (void *)(uintptr_t)from, size, stride, box, each, CU_TENSOR_MAP_INTERLEAVE_NONE,
                       CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                       CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool rt_attention_by_hopper(Rt *rt, const RtAttention *attention, const void *const operands[])
{
    const struct RtGpuAttentions *all = rt->gpu->attentions;
    const RtAttentionShape *s = attention->shape;
    const RtKernelLaunch *launch = &s->hopper;
    const int keys = RT_HOPPER_KEYS(s->feature);
    CUtensorMap q, k, v;
    const void *y = operands[RT_ATTEND_Y - 1], *sums = operands[RT_ATTEND_SUM - 1];
    void *arguments[] = { &q, &k, &v, &y, &sums };
    return make_map(all, s, &s->q, s->queries, s->heads, RT_HOPPER_ROWS, operands[RT_ATTEND_Q - 1], &q) &&
           make_map(all, s, &s->k, s->keys, s->key_heads, keys, operands[RT_ATTEND_K - 1], &k) &&
           make_map(all, s, &s->v, s->keys, s->key_heads, keys, operands[RT_ATTEND_V - 1], &v) &&
           cudaLaunchKernel((const void *)attention->hopper, (dim3){ (unsigned)launch->blocks, 1, 1 },
                            (dim3){ (unsigned)launch->threads, 1, 1 }, arguments, (size_t)launch->shared,
                            rt->gpu->compute) == cudaSuccess;
}
