/* emulator_warp.c -- operations of a whole warp, and asynchronous copies. */
#include "emulator.h"

#include "convert.h"

#include <stdlib.h>
#include <string.h>

/* --- Barriers, shuffles, votes ------------------------------------------------------------------ */

static void nothing(void *const of_lane[EMULATOR_WARP], uint32_t mask) {}
void emulator_barrier_warp(uint32_t mask) { emulator_together(nothing, mask, NULL, true); }

typedef struct {
    uint64_t mine, taken;
    int source;
} Shuffle;

static void shuffle(void *const of_lane[EMULATOR_WARP], uint32_t mask)
{
    for (int i = 0; i < EMULATOR_WARP; i++) {
        if (!(mask >> i & 1))
            continue;
        Shuffle *s = of_lane[i];
        if (mask >> (s->source & 31) & 1)
            s->taken = ((Shuffle *)of_lane[s->source & 31])->mine;
        else
            emulator_fault(false, "lane %d takes from lane %d, which is not there", i, s->source);
    }
}

uint64_t emulator_shuffle(uint32_t mask, uint64_t bits, int source)
{
    Shuffle s = { bits, 0, source };
    emulator_together(shuffle, mask, &s, false);
    return s.taken;
}

/* Lanes run one after the other, so the operation is atomic. */
int emulator_exchange(int *at, int value)
{
    int before = *at;
    *at = value;
    return before;
}

typedef struct {
    bool mine;
    uint32_t all;
} Ballot;

static void ballot(void *const of_lane[EMULATOR_WARP], uint32_t mask)
{
    uint32_t all = 0;
    for (int i = 0; i < EMULATOR_WARP; i++)
        all |= mask >> i & 1 && ((Ballot *)of_lane[i])->mine ? 1u << i : 0;
    for (int i = 0; i < EMULATOR_WARP; i++)
        if (mask >> i & 1)
            ((Ballot *)of_lane[i])->all = all;
}

uint32_t emulator_ballot(uint32_t mask, int predicate)
{
    Ballot b = { predicate != 0, 0 };
    emulator_together(ballot, mask, &b, false);
    return b.all;
}

/* --- Tensor cores --------------------------------------------------------------------------------- */

typedef struct {
    float *c;
    const uint32_t *a;
    uint32_t b[2];
    bool is_bf16;
} Mma;

static float half_of(uint32_t two, int which, bool is_bf16)
{
    const uint16_t bits = (uint16_t)(which ? two >> 16 : two);
    return is_bf16 ? rt_float_of_bf16(bits) : rt_float_of_f16(bits);
}

/* The layout is that of the PTX manual, mma.m16n8k16; sums in double, rounded once. */
static void mma(void *const of_lane[EMULATOR_WARP], uint32_t mask)
{
    double a[16][16], b[16][8];
    for (int lane = 0; lane < EMULATOR_WARP; lane++) {
        const Mma *m = of_lane[lane];
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 8; i++)
            a[g + (i / 2 % 2) * 8][2 * t + i % 2 + i / 4 * 8] = half_of(m->a[i / 2], i % 2, m->is_bf16);
        for (int i = 0; i < 4; i++)
            b[2 * t + i % 2 + i / 2 * 8][g] = half_of(m->b[i / 2], i % 2, m->is_bf16);
    }
    double sum[16][8] = { { 0 } };
    for (int lane = 0; lane < EMULATOR_WARP; lane++)
        for (int i = 0; i < 4; i++)
            sum[lane / 4 + i / 2 * 8][2 * (lane % 4) + i % 2] = ((Mma *)of_lane[lane])->c[i];
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < 16; k++)
            for (int column = 0; column < 8; column++)
                sum[row][column] += a[row][k] * b[k][column];
    for (int lane = 0; lane < EMULATOR_WARP; lane++)
        for (int i = 0; i < 4; i++)
            ((Mma *)of_lane[lane])->c[i] = (float)sum[lane / 4 + i / 2 * 8][2 * (lane % 4) + i % 2];
}

void emulator_mma(float *c, const uint32_t *a, uint32_t b0, uint32_t b1, int is_bf16)
{
    Mma m = { c, a, { b0, b1 }, is_bf16 };
    emulator_together(mma, 0xFFFFFFFFu, &m, false);
}

typedef struct {
    uint32_t *to;
    const uint16_t *row;
    bool is_turned;
} Load;

static void load(void *const of_lane[EMULATOR_WARP], uint32_t mask)
{
    for (int lane = 0; lane < EMULATOR_WARP; lane++) {
        const Load *l = of_lane[lane];
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; i++) {
            uint32_t half[2];
            for (int e = 0; e < 2; e++) {
                const int row = l->is_turned ? 2 * t + e : g, column = l->is_turned ? g : 2 * t + e;
                half[e] = ((const Load *)of_lane[8 * i + row])->row[column];
            }
            l->to[i] = half[1] << 16 | half[0];
        }
    }
}

void emulator_load_matrices(uint32_t *to, const void *row, int is_turned)
{
    emulator_on_boundary(row, 16);
    emulator_touch(row, 16, false);
    Load l = { to, row, is_turned };
    emulator_together(load, 0xFFFFFFFFu, &l, false);
}

/* --- Asynchronous copies ------------------------------------------------------------------------- */

enum { MAX_COPIES = 1024 };

typedef struct {
    void *to;
    const void *from;
    bool is_there;
} Copy;

/* Of each thread of the block: copies that it has begun, in groups. */
static struct {
    int64_t thread; /* counted over all blocks: another block's are over */
    int count, committed, ngroups;
    int group_end[MAX_COPIES];
    Copy copy[MAX_COPIES];
} copies[EMULATOR_MAX_THREADS];

static int copies_of_thread(void)
{
    const int i = (int)emulator_thread_index();
    if (copies[i].thread != emulator_place()->thread + 1) {
        copies[i].thread = emulator_place()->thread + 1;
        copies[i].count = copies[i].committed = copies[i].ngroups = 0;
    }
    return i;
}

/* Until the thread waits, the destination is uninitialised. */
void emulator_copy_async(void *shared, const void *from, int is_there)
{
    const int i = copies_of_thread();
    emulator_on_boundary(shared, 16);
    if (is_there)
        emulator_on_boundary(from, 16);
    if (copies[i].count == MAX_COPIES)
        abort();
    emulator_take_away(shared, 16);
    copies[i].copy[copies[i].count++] = (Copy){ shared, from, is_there };
}

void emulator_copy_commit(void)
{
    const int i = copies_of_thread();
    if (copies[i].ngroups == MAX_COPIES)
        abort();
    copies[i].group_end[copies[i].ngroups++] = copies[i].count;
}

void emulator_copy_wait(int latest)
{
    const int i = copies_of_thread(), done = copies[i].ngroups - latest;
    if (done <= 0)
        return;
    const int end = copies[i].group_end[done - 1];
    for (int j = 0; j < end; j++) {
        const Copy *c = &copies[i].copy[j];
        if (c->is_there)
            emulator_touch(c->from, 16, false);
        emulator_touch(c->to, 16, true);
        if (c->is_there)
            memcpy(c->to, c->from, 16);
        else
            memset(c->to, 0, 16);
    }
    memmove(copies[i].copy, copies[i].copy + end, (size_t)(copies[i].count - end) * sizeof(Copy));
    copies[i].count -= end;
    for (int j = done; j < copies[i].ngroups; j++)
        copies[i].group_end[j - done] = copies[i].group_end[j] - end;
    copies[i].ngroups -= done;
}
