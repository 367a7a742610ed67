/* encode.cuh -- encodes an operand of a product in 8 bits: e4m3 numbers, and for each block of a line's terms a power
 * of two as their scale.
 *
 * Operands are bf16 numbers, rounded here as quantize.c rounds them, which keeps what it has rounded already.  In
 * memory terms lie next to each other, in codes [line, term].  Scales are as cuBLASLt wants them: [block, line],
 * [square, block] where 128 lines share one, with rows of a multiple of four numbers, or also [block, line] for these.
 */
#ifndef MPC_CUDA_ENCODE_CUH
#define MPC_CUDA_ENCODE_CUH

#include "element.cuh"
#include "encode.h"
#include "reduce.cuh"

#include "../kernels/narrow.h"

typedef RtPack<rt_bf16, 4> RtFour; /* of a line: those that a lane encodes */

RT_INLINE float rt_largest(const RtFour &own)
{
    float size = 0;
#pragma unroll
    for (int e = 0; e < 4; e++)
        size = fmaxf(size, fabsf(rt_value(own[e])));
    return size;
}

/* One block of a line, by a warp. */
RT_INLINE void rt_write_codes(const RtFour &own, float scale, int64_t line, int64_t block, uint8_t *codes,
                              const RtEncoding &s)
{
    RtPack<uint8_t, 4> bits;
#pragma unroll
    for (int e = 0; e < 4; e++)
        bits[e] = rt_e4m3_of_float(rt_round_e4m3(rt_value(own[e]) * scale));
    rt_store_pack(codes + line * s.terms + block * RT_ENCODE_BLOCK + 4 * (threadIdx.x % 32), bits);
}

/* One block of a line that has a scale of its own, by a warp. */
RT_INLINE void rt_encode_block(const RtFour &own, int64_t line, int64_t block, uint8_t *codes, float *scales,
                               const RtEncoding &s)
{
    const float scale = rt_scale_e4m3(rt_warp<RtMax>(rt_largest(own)));
    rt_write_codes(own, scale, line, block, codes, s);
    if (threadIdx.x % 32 == 0)
        scales[block * s.lines + line] = 1 / scale;
}

/* Turns lines from `first` on, up to 64, of one block of terms in shared memory: a line of `tile` is a line. */
RT_INLINE void rt_turn_lines(const rt_bf16 *x, int64_t first, int64_t block, rt_bf16 *tile, const RtEncoding &s)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int t = warp; t < RT_ENCODE_BLOCK && first + 2 * lane < s.lines; t += RT_ENCODE_WARPS) {
        const rt_bf16 *from = x + (block * RT_ENCODE_BLOCK + t) * s.term + first + 2 * lane;
        const RtPack<rt_bf16, 2> two = rt_load_pack<2>(from);
        tile[2 * lane * RT_ENCODE_PITCH + t] = two[0];
        tile[(2 * lane + 1) * RT_ENCODE_PITCH + t] = two[1];
    }
}

RT_INLINE RtFour rt_from_tile(const rt_bf16 *tile, int line)
{
    const rt_bf16 *from = tile + line * RT_ENCODE_PITCH + 4 * (threadIdx.x % 32);
    return { { rt_load_pack<2>(from).two[0], rt_load_pack<2>(from + 2).two[0] } };
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
    const int lines = (int)rt_least<int64_t>(RT_ENCODE_LINES, s.lines - first);
    rt_turn_lines(x, first, block, tile, s);
    __syncthreads();
    for (int line = threadIdx.x / 32; line < lines; line += RT_ENCODE_WARPS)
        rt_encode_block(rt_from_tile(tile, line), first + line, block, codes, scales, s);
}

/* A square of 128 lines and one block of terms, by a block of threads; lines or terms lie next to each other. OF_LINES:
 * the scale of the square is written for each of its lines. */
template <bool BY_TERMS, bool OF_LINES>
RT_INLINE void rt_encode_square(const rt_bf16 *x, uint8_t *codes, float *scales, const RtEncoding &s)
{
    enum { OWN = RT_ENCODE_BLOCK / RT_ENCODE_WARPS }; /* lines of a warp */
    RT_DYNAMIC_SHARED(memory);                        /* of lines: RT_ENCODE_BLOCK * RT_ENCODE_PITCH elements */
    __shared__ float sizes[RT_ENCODE_WARPS];
    rt_bf16 *tile = reinterpret_cast<rt_bf16 *>(memory);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t blocks = s.terms / RT_ENCODE_BLOCK, block = blockIdx.x % blocks, square = blockIdx.x / blocks,
                  first = square * RT_ENCODE_BLOCK;
    if (!BY_TERMS) {
        for (int line = 0; line < RT_ENCODE_BLOCK; line += RT_ENCODE_LINES)
            rt_turn_lines(x, first + line, block, tile + line * RT_ENCODE_PITCH, s);
        __syncthreads();
    }
    RtFour own[OWN];
    float size = 0;
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        const int line = warp + i * RT_ENCODE_WARPS;
        own[i] = BY_TERMS ? rt_load_pack<4>(x + (first + line) * s.line + block * RT_ENCODE_BLOCK + 4 * lane)
                          : rt_from_tile(tile, line);
        size = fmaxf(size, rt_largest(own[i]));
    }
    size = rt_warp<RtMax>(size);
    if (lane == 0)
        sizes[warp] = size;
    __syncthreads();
    const float scale = rt_scale_e4m3(rt_warps<RtMax, RT_ENCODE_WARPS>(sizes, 0.0f));
#pragma unroll
    for (int i = 0; i < OWN; i++)
        rt_write_codes(own[i], scale, first + warp + i * RT_ENCODE_WARPS, block, codes, s);
    if (OF_LINES && threadIdx.x < RT_ENCODE_BLOCK)
        scales[block * s.lines + first + threadIdx.x] = 1 / scale;
    if (!OF_LINES && threadIdx.x == 0)
        scales[square * RT_ENCODE_ROW(blocks) + block] = 1 / scale;
}

#endif
