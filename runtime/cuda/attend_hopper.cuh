/* attend_hopper.cuh -- softmax(scale q k^T) v on Hopper (sm_90a), for bf16 and f16: what attend.cuh computes, without
 * bias, cap, sinks and segments, by products of warpgroups and copies of boxes (Shah et al., "FlashAttention-3", arXiv
 * 2407.08608, algorithm 2).
 *
 * A block has 128 queries of one head, in two warpgroups of 64; a third one has a thread that copies keys and values,
 * ahead of their use, and gives its registers to the others.  Within a group, the products of the next keys run while
 * the softmax of the last ones is computed; and the two groups take turns, so that one has products while the other has
 * its softmax.
 *
 * Features are in boxes of 64 (128 bytes), as many as D needs: what is beyond D is zeros.
 *
 * Letters: as in kernels/attend.h.
 */
#ifndef MPC_CUDA_ATTEND_HOPPER_H
#define MPC_CUDA_ATTEND_HOPPER_H

#include <machine_hopper.cuh>

#include "attend.cuh"
#include "hopper.h"

/* Slots for tiles: that of keys and that of values follow each other. */
template <int D> struct RtHopperTiles {
    static constexpr int GROUPS = 2, ROWS = RT_HOPPER_ROWS, QUERIES = GROUPS * ROWS;
    static constexpr int GROUP = 128, THREADS = (GROUPS + 1) * GROUP, USERS = GROUPS * GROUP;
    static constexpr int BOX = RT_HOPPER_BOX, BOXES = (D + BOX - 1) / BOX, WIDE = BOX * BOXES;
    static constexpr int KEYS = RT_HOPPER_KEYS(D), STAGES = 2, SLOTS = 2 * STAGES;
    static constexpr int OWN = ROWS * (WIDE + 8); /* elements of a group's queries, and later of its results */
    static constexpr int TILE = KEYS * WIDE;      /* elements of keys, or of values */
    static constexpr int BOUNDARY = 1024;         /* of tiles, in bytes */
    static constexpr int BYTES = BOUNDARY + (GROUPS * OWN + SLOTS * TILE) * 2 + (1 + 2 * SLOTS) * 8;
    /* Registers of a thread: of all together 168, since there are 384 threads. */
    static constexpr int LOADER_REGISTERS = 40, USER_REGISTERS = 232;
};

template <typename T> constexpr bool rt_is_bf16 = false;
template <> constexpr bool rt_is_bf16<rt_bf16> = true;

/* Shared memory.  A slot is `there` when its tile is, and `used` when all warps have read it. */
template <int D, typename T> struct RtHopperShared {
    T *queries, *tiles;
    uint64_t *queries_there, *there, *used;
};

template <int D, typename T> RT_INLINE RtHopperShared<D, T> rt_hopper_shared(unsigned char *memory)
{
    using Tiles = RtHopperTiles<D>;
    const uint32_t beyond = rt_shared_address(memory) % Tiles::BOUNDARY;
    T *queries = reinterpret_cast<T *>(memory + (beyond ? Tiles::BOUNDARY - beyond : 0));
    T *tiles = queries + Tiles::GROUPS * Tiles::OWN;
    uint64_t *barriers = reinterpret_cast<uint64_t *>(tiles + Tiles::SLOTS * Tiles::TILE);
    return { queries, tiles, barriers, barriers + 1, barriers + 1 + Tiles::SLOTS };
}

/* What a block computes: tile `query` of one head. */
struct RtHopperBlock {
    int query, b, h, g;
};

template <int D> RT_INLINE RtHopperBlock rt_hopper_block(const RtAttend s)
{
    constexpr int QUERIES = RtHopperTiles<D>::QUERIES;
    const int tiles = (int)((s.queries + QUERIES - 1) / QUERIES), head = blockIdx.x / tiles;
    return { (tiles - 1 - (int)(blockIdx.x % tiles)) * QUERIES, /* causal: blocks with most keys are first */
             head / (int)(s.heads * s.group), head / (int)s.group % (int)s.heads, head % (int)s.group };
}

/* The next tile of keys that some query of the block sees.  The compiler would unroll loops over all of them. */
template <int D> RT_INLINE int rt_hopper_next(int query, int key, const RtAttend s)
{
    using Tiles = RtHopperTiles<D>;
    return rt_attend_next<Tiles::QUERIES, Tiles::KEYS>(query, rt_unknown(key), (int)s.keys, RtSegments{}, RtRange{}, s);
}

/* --- The thread that copies -------------------------------------------------------------------- */

/* `rows` rows from `row` on, of one head; to the boxes of a tile. */
template <int D, typename T>
RT_INLINE void rt_hopper_copy(T *tile, int rows, const RtTensorMap &map, uint64_t *there, int row, int head, int b)
{
    using Tiles = RtHopperTiles<D>;
#pragma unroll
    for (int box = 0; box < Tiles::BOXES; box++)
        rt_copy_box(tile + box * rows * Tiles::BOX, map, there, box * Tiles::BOX, row, head, b);
}

template <int D, typename T>
RT_INLINE void rt_hopper_load(const RtHopperShared<D, T> at, const RtTensorMap &q, const RtTensorMap &k,
                              const RtTensorMap &v, const RtHopperBlock block, const RtAttend s)
{
    using Tiles = RtHopperTiles<D>;
    rt_mbarrier_arrive_expecting(at.queries_there, Tiles::QUERIES * Tiles::WIDE * 2);
    for (int group = 0; group < Tiles::GROUPS; group++)
        rt_hopper_copy<D>(at.queries + group * Tiles::OWN, Tiles::ROWS, q, at.queries_there,
                          block.query + group * Tiles::ROWS, block.h * (int)s.group + block.g, block.b);
    int turn = 0;
    for (int key = rt_hopper_next<D>(block.query, 0, s); key < s.keys;
         key = rt_hopper_next<D>(block.query, key + Tiles::KEYS, s), turn++)
        for (int i = 0; i < 2; i++) {
            const int slot = turn % Tiles::STAGES * 2 + i, use = turn / Tiles::STAGES;
            if (use > 0)
                rt_mbarrier_wait(at.used + slot, (use - 1) % 2);
            rt_mbarrier_arrive_expecting(at.there + slot, Tiles::TILE * 2);
            rt_hopper_copy<D>(at.tiles + slot * Tiles::TILE, Tiles::KEYS, i ? v : k, at.there + slot, key, block.h,
                              block.b);
        }
}

/* --- Products ----------------------------------------------------------------------------------- */

/* Describes a matrix in shared memory for products of warpgroups: where it begins, and its distances in bytes, between
 * the first and the second 128 bytes of a row (of matrices with a row for each term), and between groups of eight rows.
 * Swizzled by 128 bytes. */
RT_INLINE uint64_t rt_matrix(const void *shared, int across, int down)
{
    const uint64_t is_swizzled = 1;
    return (uint64_t)((rt_shared_address(shared) & 0x3FFFF) >> 4) | (uint64_t)(across >> 4) << 16 |
           (uint64_t)(down >> 4) << 32 | is_swizzled << 62;
}

/* --- The groups that compute -------------------------------------------------------------------- */

/* Begins score = queries keys^T. */
template <int D, int N, typename T>
RT_INLINE void rt_hopper_scores(float (&score)[N][4], const T *queries, const T *keys)
{
    using Tiles = RtHopperTiles<D>;
    constexpr int STEPS = Tiles::BOX / 16, EIGHT_ROWS = 8 * Tiles::BOX * 2;
#pragma unroll
    for (int k = 0; k < (D + 15) / 16; k++) {
        const int box = k / STEPS, column = k % STEPS * 16;
        rt_product_begin<Tiles::KEYS, rt_is_bf16<T>>(
            score, rt_matrix(queries + box * Tiles::ROWS * Tiles::BOX + column, 0, EIGHT_ROWS),
            rt_matrix(keys + box * Tiles::KEYS * Tiles::BOX + column, 0, EIGHT_ROWS), k > 0);
    }
}

/* Begins sum += weights values, two boxes of features at once, or the last one. */
template <int D, int FROM = 0, int N, int K, typename T>
RT_INLINE void rt_hopper_sums(float (&sum)[N][4], const uint32_t (&weight)[K][4], const T *values)
{
    using Tiles = RtHopperTiles<D>;
    constexpr int COLUMNS = Tiles::BOXES - FROM > 1 ? 128 : 64;
    constexpr int EIGHT_ROWS = 8 * Tiles::BOX * 2, NEXT_BOX = Tiles::KEYS * Tiles::BOX * 2;
#pragma unroll
    for (int k = 0; k < K; k++)
        rt_product_turned_begin<COLUMNS, rt_is_bf16<T>, FROM * Tiles::BOX / 8>(
            sum, weight[k],
            rt_matrix(values + FROM * Tiles::KEYS * Tiles::BOX + 16 * k * Tiles::BOX, NEXT_BOX, EIGHT_ROWS));
    if constexpr (FROM + 2 < Tiles::BOXES)
        rt_hopper_sums<D, FROM + 2>(sum, weight, values);
}

/* The groups take turns: group 1 lets group 0 begin. */
template <int D> RT_INLINE void rt_hopper_wait_turn(int group) { rt_barrier_wait(1 + group, RtHopperTiles<D>::USERS); }
template <int D> RT_INLINE void rt_hopper_pass_turn(int group)
{
    rt_barrier_arrive(1 + (group ^ 1), RtHopperTiles<D>::USERS);
}

/* A warp has read a slot. */
RT_INLINE void rt_hopper_leave(uint64_t *used)
{
    if (threadIdx.x % 32 == 0)
        rt_mbarrier_arrive(used);
}

/* Sets scores to minus infinity if a query does not see a key, or if the key does not exist.  Sequences are whole, so
 * that places are positions, and each query sees keys from one place to another: rt_attend_mask would need registers
 * for comparisons of 64 bits. */
template <int N> RT_INLINE void rt_hopper_mask(float (&score)[1][N][4], int query, int key, const RtAttend s)
{
    const int lane = threadIdx.x % 32, column = key + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = query + lane / 4 + 8 * half;
        const int seen = s.causal ? row + 1 : s.window ? row + (int)s.window : (int)s.keys;
        const int from = (s.window ? row - (int)s.window + 1 : 0) - column, end = rt_least(seen, (int)s.keys) - column;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                if (8 * n + e < from || 8 * n + e >= end)
                    score[0][n][2 * half + e] = -INFINITY;
    }
}

template <int N, int K, typename T>
RT_INLINE void rt_hopper_pack(uint32_t (&weight)[K][4], const float (&score)[1][N][4], T type)
{
#pragma unroll
    for (int k = 0; k < K; k++)
        rt_left_of(weight[k], score[0][2 * k], score[0][2 * k + 1], type);
}

/* The first slot of a turn, that of keys, and the parity of its phase. */
template <int D> RT_INLINE int rt_hopper_slot(int turn) { return turn % RtHopperTiles<D>::STAGES * 2; }
template <int D> RT_INLINE int rt_hopper_parity(int turn) { return turn / RtHopperTiles<D>::STAGES % 2; }

/* Begins the scores of a turn when its keys are there and it is the group's turn. */
template <int D, int N, typename T>
RT_INLINE void rt_hopper_begin_scores(float (&score)[N][4], const T *own, const RtHopperShared<D, T> at, int turn,
                                      int group)
{
    const int slot = rt_hopper_slot<D>(turn);
    rt_mbarrier_wait(at.there + slot, rt_hopper_parity<D>(turn));
    rt_hopper_wait_turn<D>(group);
    rt_products_pin(score);
    rt_products_fence();
    rt_hopper_scores<D>(score, own, at.tiles + slot * RtHopperTiles<D>::TILE);
    rt_products_commit();
}

/* Begins to add the values of a turn when they are there. */
template <int D, int N, int K, typename T>
RT_INLINE void rt_hopper_begin_sums(float (&sum)[N][4], uint32_t (&weight)[K][4], const RtHopperShared<D, T> at,
                                    int turn)
{
    const int slot = rt_hopper_slot<D>(turn) + 1;
    rt_mbarrier_wait(at.there + slot, rt_hopper_parity<D>(turn));
    rt_products_pin(sum);
    rt_products_pin(weight);
    rt_products_fence();
    rt_hopper_sums<D>(sum, weight, at.tiles + slot * RtHopperTiles<D>::TILE);
    rt_products_commit();
}

/* Writes the group's y, by way of the memory of its queries, and lse. */
template <int D, typename T, int N>
RT_INLINE void rt_hopper_finish(float (&sum)[1][N][4], float (&most)[1][2], float (&total)[1][2], T *own, T *y,
                                float *lse, int group, int query, const RtHopperBlock block, const RtAttend s)
{
    using Tiles = RtHopperTiles<D>;
    const int meeting = 3 + group, thread = threadIdx.x % Tiles::GROUP;
    rt_barrier_wait(meeting, Tiles::GROUP); /* all of the group have read the queries */
    float *to_lse = lse + block.b * s.lse.batch + block.h * s.lse.head + block.g * s.lse.group;
    rt_attend_finish<D>(sum, most, total, own, thread / 32 * 16, to_lse, query, rt_scale2(s), s);
    rt_barrier_wait(meeting, Tiles::GROUP);
    rt_tile_store<D, Tiles::ROWS, Tiles::GROUP, true>(own, rt_head_of(y, s.y, block.b, block.h, block.g), s.y.row,
                                                      query, (int)s.queries, thread);
}

template <int D, typename T>
RT_INLINE void rt_hopper_attend(const RtHopperShared<D, T> at, T *y, float *lse, const RtHopperBlock block,
                                const RtAttend s)
{
    using Tiles = RtHopperTiles<D>;
    constexpr int KEYS = Tiles::KEYS, ROWS = Tiles::ROWS;
    const int group = __shfl_sync(0xFFFFFFFFu, (int)threadIdx.x / Tiles::GROUP, 0);
    const int query = block.query + group * ROWS, row = threadIdx.x % Tiles::GROUP / 32 * 16;
    T *const own = at.queries + group * Tiles::OWN;
    float sum[1][Tiles::WIDE / 8][4], score[1][KEYS / 8][4], most[1][2], total[1][2], kept[1][2];
    uint32_t weight[KEYS / 16][4];
    rt_clear_pieces(sum);
    rt_clear_pieces(score);
    most[0][0] = most[0][1] = -INFINITY, total[0][0] = total[0][1] = 0;

    /* Scores of the tile from `key` on become weights. */
    const auto weigh = [&](int key) {
        if (key + KEYS > s.keys || !rt_sees_all(rt_ahead(query, ROWS, key, KEYS, s), s))
            rt_hopper_mask(score, query + row, key, s);
        rt_attend_weigh(score, most, total, kept, rt_scale2(s));
    };

    int key = rt_hopper_next<D>(block.query, 0, s);
    rt_mbarrier_wait(at.queries_there, 0);
    if (key < s.keys) {
        int next = rt_hopper_next<D>(block.query, key + KEYS, s), turn = 0;
        if (group == 1)
            rt_hopper_pass_turn<D>(group);
        rt_hopper_begin_scores<D>(score[0], own, at, turn, group);
        if (group == 0 || next < s.keys)
            rt_hopper_pass_turn<D>(group);
        rt_products_wait<0>();
        rt_products_pin(score[0]);
        rt_hopper_leave(at.used);
        weigh(key);
        rt_hopper_pack(weight, score, T{});
        while (next < s.keys) {
            key = next;
            next = rt_hopper_next<D>(block.query, key + KEYS, s);
            rt_hopper_begin_scores<D>(score[0], own, at, turn + 1, group);
            rt_hopper_begin_sums<D>(sum[0], weight, at, turn);
            if (group == 0 || next < s.keys)
                rt_hopper_pass_turn<D>(group);
            rt_products_wait<1>(); /* for the scores */
            rt_products_pin(score[0]);
            rt_hopper_leave(at.used + rt_hopper_slot<D>(turn + 1));
            weigh(key);
            rt_products_wait<0>();
            rt_products_pin(sum[0]);
            rt_products_pin(weight);
            rt_hopper_leave(at.used + rt_hopper_slot<D>(turn) + 1);
            rt_hopper_pack(weight, score, T{});
            rt_attend_rescale(sum, kept);
            turn++;
        }
        rt_hopper_begin_sums<D>(sum[0], weight, at, turn);
        rt_products_wait<0>();
        rt_products_pin(sum[0]);
    }
    rt_hopper_finish<D>(sum, most, total, own, y, lse, group, query, block, s);
}

/* --- The kernel ---------------------------------------------------------------------------------- */

/* The arguments are those of rt_attend; there is no bias, no sinks, no segments. */
template <int D, typename T>
RT_INLINE void rt_attend_hopper(const RtTensorMap &q, const RtTensorMap &k, const RtTensorMap &v, const float *,
                                const float *, const int32_t *, const int32_t *, T *y, float *lse, const RtAttend s)
{
    using Tiles = RtHopperTiles<D>;
    RT_DYNAMIC_SHARED(memory);
    const RtHopperShared<D, T> at = rt_hopper_shared<D, T>(memory);
    const RtHopperBlock block = rt_hopper_block<D>(s);
    if (threadIdx.x == 0) {
        rt_mbarrier_init(at.queries_there, 1);
        for (int i = 0; i < Tiles::SLOTS; i++) {
            rt_mbarrier_init(at.there + i, 1);
            rt_mbarrier_init(at.used + i, Tiles::USERS / 32);
        }
        rt_fence_async();
    }
    __syncthreads();
    if (__shfl_sync(0xFFFFFFFFu, (int)threadIdx.x / Tiles::GROUP, 0) == Tiles::GROUPS) {
        rt_fewer_registers<Tiles::LOADER_REGISTERS>();
        if (threadIdx.x == Tiles::USERS)
            rt_hopper_load<D, T>(at, q, k, v, block, s);
    } else {
        rt_more_registers<Tiles::USER_REGISTERS>();
        rt_hopper_attend<D, T>(at, y, lse, block, s);
    }
}

#endif
