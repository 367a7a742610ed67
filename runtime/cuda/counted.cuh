/* counted.cuh -- products by expert that compute only filled rows, where most are empty.
 *
 * dispatch fills the rows of an expert from the first on, and makes the others zeros, which mostly remain zeros.  As
 * on processors (cpu/counted.c), a kernel looks for the last line that is not zeros, so nothing needs to be proved or
 * handed on.  It leaves the counts on the device, where the next kernel, with a block for each tile of the result,
 * reads them: the host waits for nothing.  Tiles without filled lines get zeros.
 *
 * C[m, n] = A[m, k] B[k, n] on tensor cores, sums in f32.  Tiles are of 128 x 128; those of A and B have 32 terms of
 * the sum, and three of them are on their way while one is multiplied.
 */
#ifndef MPC_CUDA_COUNTED_H
#define MPC_CUDA_COUNTED_H

#include "attend_tile.cuh"

enum RtCountedSize { RT_COUNTED_ROWS, RT_COUNTED_COLUMNS, RT_COUNTED_TERMS };

/* `line`: the stride of the dim whose elements are not contiguous. */
struct RtCountedMatrix {
    int64_t batch;
    int line;
};

struct RtCountedProduct {
    int m, n, k;
    RtCountedMatrix a, b, c;
};

/* Lines of contiguous elements. */
struct RtCountedLines {
    RtCountedMatrix of;
    int count, length;
};

constexpr int RT_COUNTED_TILE = 128, RT_COUNTED_DEPTH = 32, RT_COUNTED_STAGES = 4;
constexpr int RT_COUNTED_THREADS = 256, RT_COUNTED_BLOCKS = 32, RT_COUNTED_PARTS = 256;

/* --- Filled lines ---------------------------------------------------------------------------- */

/* filled[matrix, part] = the number of the last line, from 1 on, that is not zeros, of every 256th; a warp for each
 * part, 32 blocks for each matrix.  Lines are aligned to 16 bytes.  NaN is not zero. */
template <typename T> RT_INLINE void rt_count_filled(const T *from, int32_t *filled, const RtCountedLines s)
{
    const int matrix = blockIdx.x / RT_COUNTED_BLOCKS, part = blockIdx.x % RT_COUNTED_BLOCKS * 8 + threadIdx.x / 32;
    const T *lines = from + matrix * s.of.batch;
    int found = 0;
    for (int line = s.count - 1 - part; line >= 0 && !found; line -= RT_COUNTED_PARTS)
        for (int first = 0; first < s.length && !found; first += 256) {
            const int at = first + threadIdx.x % 32 * 8;
            RtPack<T, 8> pack = {};
            if (at < s.length)
                pack = rt_load_pack<8>(lines + (int64_t)line * s.of.line + at);
            const uint32_t any = (pack.two[0] | pack.two[1] | pack.two[2] | pack.two[3]) & 0x7FFF7FFFu;
            found = __any_sync(0xFFFFFFFFu, any != 0) ? line + 1 : 0;
        }
    if (threadIdx.x % 32 == 0)
        filled[matrix * RT_COUNTED_PARTS + part] = found;
}

/* Of a matrix, for all threads of a block. */
RT_INLINE int rt_filled_lines(const int32_t *filled, int matrix)
{
    __shared__ int parts[8];
    const int part = rt_warp<RtMax>((int)filled[matrix * RT_COUNTED_PARTS + threadIdx.x]);
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = part;
    __syncthreads();
    return rt_warps<RtMax, 8>(parts, 0);
}

/* --- Tiles ----------------------------------------------------------------------------------- */

/* BY_TERMS: lines are rows of A or columns of B, and contiguous elements are terms of the sum; else the other way.  16
 * more bytes per line keep the rows that ldmatrix reads at once in different banks. */
template <bool BY_TERMS> struct RtCountedTile {
    static constexpr int LINES = BY_TERMS ? RT_COUNTED_TILE : RT_COUNTED_DEPTH;
    static constexpr int LENGTH = BY_TERMS ? RT_COUNTED_DEPTH : RT_COUNTED_TILE;
    static constexpr int PITCH = LENGTH + 8, ELEMENTS = LINES * PITCH;
};

/* Starts to load the tile of rows of A, or columns of B, from `outer` on, and of terms from k on; zeros outside.  Sizes
 * of contiguous elements are multiples of 8. */
template <bool BY_TERMS, typename T>
RT_INLINE void rt_counted_load(T *tile, const T *from, int line, int outer, int outers, int k, int terms)
{
    using Tile = RtCountedTile<BY_TERMS>;
    constexpr int CHUNKS = Tile::LENGTH / 8;
    const int first = BY_TERMS ? outer : k, lines = BY_TERMS ? outers : terms;
    const int element = BY_TERMS ? k : outer, elements = BY_TERMS ? terms : outers;
#pragma unroll
    for (int i = threadIdx.x; i < Tile::LINES * CHUNKS; i += RT_COUNTED_THREADS) {
        const int row = i / CHUNKS, column = i % CHUNKS * 8;
        const bool is_there = first + row < lines && element + column < elements;
        const T *at = from + (is_there ? (int64_t)(first + row) * line + element + column : 0);
        rt_copy_async(tile + row * Tile::PITCH + column, at, is_there);
    }
}

/* The left operand from a tile whose lines are its columns: rows row ... row + 15, columns k ... k + 15. */
template <int PITCH, typename T> RT_INLINE void rt_left_of_columns(uint32_t (&a)[4], const T *tile, int row, int k)
{
    const int lane = threadIdx.x % 32;
    rt_load_matrices_turned(a, tile + (k + lane / 16 * 8 + lane % 8) * PITCH + row + lane / 8 % 2 * 8);
}

/* sum[64, 32] += rows of A's tile from `row` on times columns of B's from `column` on. */
template <bool A_BY_TERMS, bool B_BY_TERMS, typename T>
RT_INLINE void rt_counted_multiply(float (&sum)[4][4][4], const T *a, const T *b, int row, int column)
{
    constexpr int A_PITCH = RtCountedTile<A_BY_TERMS>::PITCH, B_PITCH = RtCountedTile<B_BY_TERMS>::PITCH;
#pragma unroll
    for (int k = 0; k < RT_COUNTED_DEPTH; k += 16) {
        uint32_t left[4][4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (A_BY_TERMS)
                rt_left<A_PITCH>(left[i], a, row + 16 * i, k);
            else
                rt_left_of_columns<A_PITCH>(left[i], a, row + 16 * i, k);
        }
#pragma unroll
        for (int n = 0; n < 4; n += 2) {
            uint32_t right[4];
            if (B_BY_TERMS)
                rt_right_of_rows<B_PITCH>(right, b, column + 8 * n, k);
            else
                rt_right<B_PITCH>(right, b, k, column + 8 * n);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                rt_mma(sum[i][n], left[i], right[0], right[1], T{});
                rt_mma(sum[i][n + 1], left[i], right[2], right[3], T{});
            }
        }
    }
}

/* Stores what a warp has, or adds it: C's rows are contiguous, and of even size. */
template <bool ADD, typename C>
RT_INLINE void rt_counted_store(const float (&sum)[4][4][4], C *c, int row, int column, const RtCountedProduct s)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const int m = row + 16 * i + 8 * half + lane / 4, at = column + 8 * n + lane % 4 * 2;
                if (m >= s.m || at >= s.n)
                    continue;
                C *to = c + (int64_t)m * s.c.line + at;
                RtPack<float, 2> pair = { { sum[i][n][2 * half], sum[i][n][2 * half + 1] } };
                if (ADD) {
                    const RtPack<C, 2> before = rt_load_pack<2>(to);
                    pair[0] += rt_value(before[0]);
                    pair[1] += rt_value(before[1]);
                }
                rt_store_some(to, pair, 2);
            }
}

/* --- Products -------------------------------------------------------------------------------- */

/* C = A B, or C += A B: a block for each tile of each matrix, those of one column of tiles in turn.  `filled`: of the
 * rows of A, of the columns of B, or of the terms of the sum. */
template <RtCountedSize COUNTED, bool A_BY_TERMS, bool B_BY_TERMS, bool ADD, typename T, typename C>
RT_INLINE void rt_counted_product(const T *a, const T *b, C *c, const int32_t *filled, const RtCountedProduct s)
{
    constexpr int A_ELEMENTS = RtCountedTile<A_BY_TERMS>::ELEMENTS;
    constexpr int STAGE = A_ELEMENTS + RtCountedTile<B_BY_TERMS>::ELEMENTS, AHEAD = RT_COUNTED_STAGES - 1;
    RT_DYNAMIC_SHARED(memory);
    T *tiles = reinterpret_cast<T *>(memory);
    const int by_rows = (s.m + RT_COUNTED_TILE - 1) / RT_COUNTED_TILE;
    const int by_columns = (s.n + RT_COUNTED_TILE - 1) / RT_COUNTED_TILE;
    const int matrix = blockIdx.x / (by_rows * by_columns), tile = blockIdx.x % (by_rows * by_columns);
    const int row = tile % by_rows * RT_COUNTED_TILE, column = tile / by_rows * RT_COUNTED_TILE;
    const int lines = rt_filled_lines(filled, matrix);
    const bool is_empty =
        (COUNTED == RT_COUNTED_ROWS && row >= lines) || (COUNTED == RT_COUNTED_COLUMNS && column >= lines);
    const int terms = is_empty ? 0 : COUNTED == RT_COUNTED_TERMS ? lines : s.k;
    const int steps = (terms + RT_COUNTED_DEPTH - 1) / RT_COUNTED_DEPTH;
    if (ADD && steps == 0)
        return;
    a += matrix * s.a.batch;
    b += matrix * s.b.batch;
    c += matrix * s.c.batch;
    const auto load = [&](int step) {
        T *to = tiles + step % RT_COUNTED_STAGES * STAGE;
        if (step < steps) {
            rt_counted_load<A_BY_TERMS>(to, a, s.a.line, row, s.m, step * RT_COUNTED_DEPTH, s.k);
            rt_counted_load<B_BY_TERMS>(to + A_ELEMENTS, b, s.b.line, column, s.n, step * RT_COUNTED_DEPTH, s.k);
        }
        rt_copy_commit();
    };
    const int warp = threadIdx.x / 32, warp_row = warp / 4 * 64, warp_column = warp % 4 * 32;
    float sum[4][4][4];
    rt_clear_pieces(sum);
    for (int step = 0; step < AHEAD; step++)
        load(step);
    for (int step = 0; step < steps; step++) {
        rt_copy_wait<AHEAD - 1>();
        __syncthreads(); /* this step's tiles are there, and those of the one before are free */
        load(step + AHEAD);
        const T *at = tiles + step % RT_COUNTED_STAGES * STAGE;
        rt_counted_multiply<A_BY_TERMS, B_BY_TERMS>(sum, at, at + A_ELEMENTS, warp_row, warp_column);
    }
    rt_counted_store<ADD>(sum, c, row + warp_row, column + warp_column, s);
}

#endif
