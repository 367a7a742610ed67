/* encode.cuh -- an operand of a product in 8 bits: of each block of a line's terms the numbers of e4m3, and the power
 * of two that they are times.
 *
 * Operands are bf16 numbers that quantize.c has rounded in this way, so nothing is lost.  In memory terms lie next to
 * each other, in codes [line, term]; scales are [block, line], as cuBLASLt wants them.
 */
#ifndef MPC_CUDA_ENCODE_CUH
#define MPC_CUDA_ENCODE_CUH

#include "element.cuh"
#include "encode.h"
#include "reduce.cuh"

#include "../kernels/narrow.h"

/* One block, by a warp: four terms each. */
RT_INLINE void rt_encode_block(const RtPack<rt_bf16, 4> &own, int64_t line, int64_t block, uint8_t *codes,
                               float *scales, const RtEncoding &s)
{
    const int lane = threadIdx.x % 32;
    float size = 0;
#pragma unroll
    for (int e = 0; e < 4; e++)
        size = fmaxf(size, fabsf(rt_value(own[e])));
    const float scale = rt_scale_e4m3(rt_warp<RtMax>(size));
    RtPack<uint8_t, 4> bits;
#pragma unroll
    for (int e = 0; e < 4; e++)
        bits[e] = rt_e4m3_of_float(rt_round_e4m3(rt_value(own[e]) * scale));
    rt_store_pack(codes + line * s.terms + block * RT_ENCODE_BLOCK + 4 * lane, bits);
    if (lane == 0)
        scales[block * s.lines + line] = 1 / scale;
}

/* Terms lie next to each other: a warp for each block. */
RT_INLINE void rt_encode_terms(const rt_bf16 *x, uint8_t *codes, float *scales, const RtEncoding &s)
{
    const int64_t blocks = s.terms / RT_ENCODE_BLOCK, item = (int64_t)blockIdx.x * RT_ENCODE_WARPS + threadIdx.x / 32;
    if (item >= s.lines * blocks)
        return;
    const int64_t line = item / blocks, block = item % blocks;
    const rt_bf16 *own = x + line * s.line + block * RT_ENCODE_BLOCK + threadIdx.x % 32 * 4;
    rt_encode_block(rt_load_pack<4>(own), line, block, codes, scales, s);
}

/* Lines lie next to each other: a tile of 64 lines and one block of terms is turned in shared memory. */
RT_INLINE void rt_encode_lines(const rt_bf16 *x, uint8_t *codes, float *scales, const RtEncoding &s)
{
    RT_DYNAMIC_SHARED(memory); /* RT_ENCODE_LINES * RT_ENCODE_PITCH elements */
    rt_bf16 *tile = reinterpret_cast<rt_bf16 *>(memory);
    const int64_t blocks = s.terms / RT_ENCODE_BLOCK, block = blockIdx.x % blocks,
                  first = blockIdx.x / blocks * RT_ENCODE_LINES;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, lines = (int)rt_least<int64_t>(64, s.lines - first);
    for (int t = warp; t < RT_ENCODE_BLOCK && 2 * lane < lines; t += RT_ENCODE_WARPS) {
        const rt_bf16 *from = x + (block * RT_ENCODE_BLOCK + t) * s.term + first + 2 * lane;
        const RtPack<rt_bf16, 2> two = rt_load_pack<2>(from);
        tile[2 * lane * RT_ENCODE_PITCH + t] = two[0];
        tile[(2 * lane + 1) * RT_ENCODE_PITCH + t] = two[1];
    }
    __syncthreads();
    for (int line = warp; line < lines; line += RT_ENCODE_WARPS) {
        const rt_bf16 *from = tile + line * RT_ENCODE_PITCH + 4 * lane;
        const RtPack<rt_bf16, 4> own = { { rt_load_pack<2>(from).two[0], rt_load_pack<2>(from + 2).two[0] } };
        rt_encode_block(own, first + line, block, codes, scales, s);
    }
}

#endif
