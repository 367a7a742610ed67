/* emulator_group.c -- products of warpgroups (wgmma), by each of the four warps for its 16 rows.
 *
 * A product is computed when its warp waits for it; until then its accumulators are NaN, and may not be changed.
 * Matrices in shared memory are found by the bits of their descriptors: swizzled by 128 bytes, the only kind here. */
#include "emulator.h"

#include "convert.h"

#include <string.h>

enum {
    WARPS = EMULATOR_MAX_THREADS / EMULATOR_WARP,
    WARPS_OF_GROUP = 4,
    MAX_PRODUCTS = 128,
    MAX_SUMS = 16,
    WIDEST = 128, /* columns of a product */
    OWN = WIDEST / 2,
    ROWS = 16, /* of a warp */
    TERMS = 16,
    SPAN = 128, /* bytes of a row */
    PIECE = 8   /* elements that stay together */
};

static const uint32_t PENDING = 0x7FC0DEAD; /* a NaN */

/* What the accumulators of all lanes will be. */
typedef struct {
    float *c[EMULATOR_WARP]; /* NULL: unused */
    int columns, uses;       /* of pending products */
    float value[EMULATOR_WARP][OWN];
} Sum;

typedef struct {
    Sum *sum;
    uint32_t a[EMULATOR_WARP][4];
    uint64_t left, right;
    int columns;
    bool is_bf16, has_a, is_turned, adds;
} Product;

static struct {
    int count, groups;
    int group_end[MAX_PRODUCTS];
    Product product[MAX_PRODUCTS];
    Sum sum[MAX_SUMS];
    bool is_fenced;
    uint64_t done; /* a hash of all products: of each warp of a group the same */
} warps[WARPS];

void emulator_new_groups(void)
{
    for (int i = 0; i * EMULATOR_WARP < (int)emulator_block_size(); i++) {
        const bool is_used = warps[i].done != 0;
        warps[i].count = warps[i].groups = 0;
        warps[i].is_fenced = false;
        warps[i].done = 0;
        for (int k = 0; k < MAX_SUMS && is_used; k++)
            warps[i].sum[k].c[0] = NULL;
    }
}

void emulator_check_groups(void)
{
    for (int i = 0; i < (int)emulator_block_size() / EMULATOR_WARP; i++) {
        if (warps[i].count)
            emulator_fault(false, "warp %d ends with %d products pending", i, warps[i].count);
        if (warps[i].done != warps[i / WARPS_OF_GROUP * WARPS_OF_GROUP].done)
            emulator_fault(false, "warps %d and %d, of one warpgroup, have other products",
                           i / WARPS_OF_GROUP * WARPS_OF_GROUP, i);
    }
}

static int own_warp(void) { return (int)emulator_thread_index() / EMULATOR_WARP; }

/* --- Matrices in shared memory ------------------------------------------------------------------ */

typedef struct {
    uint32_t begin, across, down; /* bytes */
} Matrix;

static Matrix matrix_of(uint64_t bits, bool is_turned)
{
    const Matrix m = { (uint32_t)(bits & 0x3FFF) << 4, (uint32_t)(bits >> 16 & 0x3FFF) << 4,
                       (uint32_t)(bits >> 32 & 0x3FFF) << 4 };
    if (bits >> 62 != 1 || (bits >> 49 & 7) != 0)
        emulator_fault(true, "has a product of a matrix that is not swizzled by 128 bytes: %016llx", (long long)bits);
    if (m.begin >> 7 & 7)
        emulator_fault(true, "has a product of a matrix whose rows do not begin on a boundary of 1024 bytes, but at %u",
                       m.begin);
    if (m.begin % SPAN + (is_turned ? SPAN : TERMS * 2) > SPAN)
        emulator_fault(true, "has a product of a matrix that begins in the middle of a row, at %u", m.begin);
    return m;
}

/* PIECE neighbours at an address before the swizzle. */
static void load(uint32_t address, bool is_bf16, float to[PIECE])
{
    const uint16_t *from = emulator_shared_at(address ^ (address >> 7 & 7) << 4, PIECE * 2);
    emulator_touch_async(from, PIECE * 2, false);
    for (int i = 0; i < PIECE; i++)
        to[i] = is_bf16 ? rt_float_of_bf16(from[i]) : rt_float_of_f16(from[i]);
}

/* Row `row` of a matrix by rows along the terms. */
static void load_row(const Matrix *m, int row, bool is_bf16, float to[TERMS])
{
    for (int k = 0; k < TERMS; k += PIECE)
        load(m->begin + (uint32_t)row / 8 * m->down + (uint32_t)row % 8 * SPAN + (uint32_t)k * 2, is_bf16, to + k);
}

/* Column pieces of a matrix with a row for each term. */
static void load_columns(const Matrix *m, int column, bool is_bf16, float to[PIECE][TERMS])
{
    const uint32_t span = SPAN / 2, at = (uint32_t)column;
    for (uint32_t k = 0; k < TERMS; k++) {
        float piece[PIECE];
        load(m->begin + at / span * m->across + at % span * 2 + k / 8 * m->down + k % 8 * SPAN, is_bf16, piece);
        for (int i = 0; i < PIECE; i++)
            to[i][k] = piece[i];
    }
}

/* The fragments of a warp: as of mma.m16n8k16. */
static void left_of_lanes(const Product *p, float a[ROWS][TERMS])
{
    for (int lane = 0; lane < EMULATOR_WARP; lane++)
        for (int i = 0; i < 8; i++) {
            const uint32_t two = p->a[lane][i / 2];
            const uint16_t bits = (uint16_t)(i % 2 ? two >> 16 : two);
            a[lane / 4 + (i / 2 % 2) * 8][lane % 4 * 2 + i % 2 + i / 4 * 8] =
                p->is_bf16 ? rt_float_of_bf16(bits) : rt_float_of_f16(bits);
        }
}

/* Of accumulator i / EMULATOR_WARP of lane i % EMULATOR_WARP. */
static int row_of(int i) { return i % EMULATOR_WARP / 4 + i / EMULATOR_WARP / 2 % 2 * 8; }
static int column_of(int i) { return i / EMULATOR_WARP / 4 * 8 + i % EMULATOR_WARP % 4 * 2 + i / EMULATOR_WARP % 2; }

static void compute(const Product *p, int warp)
{
    float a[ROWS][TERMS], b[WIDEST][TERMS];
    const Matrix left = p->has_a ? (Matrix){ 0 } : matrix_of(p->left, false), right = matrix_of(p->right, p->is_turned);
    if (p->has_a)
        left_of_lanes(p, a);
    for (int i = 0; i < ROWS && !p->has_a; i++)
        load_row(&left, warp % WARPS_OF_GROUP * ROWS + i, p->is_bf16, a[i]);
    for (int n = 0; n < p->columns; n += PIECE)
        if (p->is_turned)
            load_columns(&right, n, p->is_bf16, b + n);
        else
            for (int i = n; i < n + PIECE; i++)
                load_row(&right, i, p->is_bf16, b[i]);
    double turned[TERMS][WIDEST], sum[ROWS][WIDEST];
    for (int k = 0; k < TERMS; k++)
        for (int column = 0; column < p->columns; column++)
            turned[k][column] = b[column][k];
    for (int i = 0; i < EMULATOR_WARP * p->columns / 2; i++)
        sum[row_of(i)][column_of(i)] = p->adds ? p->sum->value[i % EMULATOR_WARP][i / EMULATOR_WARP] : 0;
    for (int row = 0; row < ROWS; row++)
        for (int k = 0; k < TERMS; k++)
            for (int column = 0; column < p->columns; column++)
                sum[row][column] += a[row][k] * turned[k][column];
    for (int i = 0; i < EMULATOR_WARP * p->columns / 2; i++)
        p->sum->value[i % EMULATOR_WARP][i / EMULATOR_WARP] = (float)sum[row_of(i)][column_of(i)];
}

/* --- Products ------------------------------------------------------------------------------------ */

static bool is_pending(const Sum *sum)
{
    bool all = true;
    for (int lane = 0; lane < EMULATOR_WARP; lane++)
        for (int i = 0; i < sum->columns / 2; i++) {
            uint32_t bits;
            memcpy(&bits, &sum->c[lane][i], sizeof bits);
            all = all && bits == PENDING;
        }
    return all;
}

static void take(Sum *sum, int columns, void *const of_lane[EMULATOR_WARP]);

typedef struct {
    float *c;
    const uint32_t *a;
    Product product;
} Request;

static Sum *sum_at(int warp, void *const of_lane[EMULATOR_WARP], int columns)
{
    float *first = ((const Request *)of_lane[0])->c;
    Sum *unused = NULL;
    for (int i = 0; i < MAX_SUMS; i++) {
        Sum *sum = &warps[warp].sum[i];
        if (sum->c[0] == first)
            return sum;
        unused = sum->c[0] ? unused : sum;
    }
    if (!warps[warp].is_fenced)
        emulator_fault(true, "begins a product with registers that may have changed, without a fence of products");
    if (!unused)
        emulator_fault(true, "has products of more than %d accumulators pending", MAX_SUMS);
    take(unused, columns, of_lane);
    return unused;
}

static void take(Sum *sum, int columns, void *const of_lane[EMULATOR_WARP])
{
    sum->columns = columns;
    sum->uses = 0;
    for (int lane = 0; lane < EMULATOR_WARP; lane++) {
        sum->c[lane] = ((const Request *)of_lane[lane])->c;
        memcpy(sum->value[lane], sum->c[lane], (size_t)columns / 2 * sizeof(float));
        for (int i = 0; i < columns / 2; i++)
            memcpy(&sum->c[lane][i], &PENDING, sizeof PENDING);
    }
}

static uint64_t mixed(uint64_t hash, uint64_t x) { return (hash ^ x) * 1099511628211u; }

static void begin(void *const of_lane[EMULATOR_WARP], uint32_t mask)
{
    const int warp = own_warp();
    const Request *first = of_lane[0];
    if (warps[warp].count == MAX_PRODUCTS)
        emulator_fault(true, "has more than %d products pending", MAX_PRODUCTS);
    Product *p = &warps[warp].product[warps[warp].count++];
    *p = first->product;
    p->sum = sum_at(warp, of_lane, p->columns);
    if (p->sum->columns != p->columns || !is_pending(p->sum))
        emulator_fault(true, "changes accumulators of a product that is pending");
    p->sum->uses++;
    for (int lane = 0; lane < EMULATOR_WARP; lane++) {
        const Request *r = of_lane[lane];
        if (r->product.left != p->left || r->product.right != p->right || r->product.adds != p->adds)
            emulator_fault(true, "has another product than the rest of its warp");
        if (r->a)
            memcpy(p->a[lane], r->a, sizeof p->a[lane]);
    }
    warps[warp].done = mixed(mixed(mixed(warps[warp].done, p->left), p->right), (uint64_t)p->columns);
}

void emulator_group_product(float *c, int columns, int is_bf16, const uint32_t *a, uint64_t left, uint64_t right,
                            int is_turned, int adds)
{
    Request r = { c,
                  a,
                  { .left = left,
                    .right = right,
                    .columns = columns,
                    .is_bf16 = is_bf16,
                    .has_a = a != NULL,
                    .is_turned = is_turned,
                    .adds = adds } };
    emulator_together(begin, 0xFFFFFFFFu, &r, false);
}

static void fence(void *const of_lane[EMULATOR_WARP], uint32_t mask) { warps[own_warp()].is_fenced = true; }
void emulator_group_fence(void) { emulator_together(fence, 0xFFFFFFFFu, NULL, false); }

static void commit(void *const of_lane[EMULATOR_WARP], uint32_t mask)
{
    const int warp = own_warp();
    if (warps[warp].groups == MAX_PRODUCTS)
        emulator_fault(true, "has more than %d groups of products", MAX_PRODUCTS);
    warps[warp].group_end[warps[warp].groups++] = warps[warp].count;
}
void emulator_group_commit(void) { emulator_together(commit, 0xFFFFFFFFu, NULL, false); }

static void give_back(Sum *sum)
{
    if (--sum->uses > 0)
        return;
    if (!is_pending(sum))
        emulator_fault(true, "has changed accumulators of a product that is pending");
    for (int lane = 0; lane < EMULATOR_WARP; lane++)
        memcpy(sum->c[lane], sum->value[lane], (size_t)sum->columns / 2 * sizeof(float));
    sum->c[0] = NULL;
}

static void wait(void *const of_lane[EMULATOR_WARP], uint32_t mask)
{
    const int warp = own_warp(), done = warps[warp].groups - *(const int *)of_lane[0];
    warps[warp].is_fenced = false;
    if (done <= 0)
        return;
    const int end = warps[warp].group_end[done - 1];
    for (int i = 0; i < end; i++) {
        compute(&warps[warp].product[i], warp);
        give_back(warps[warp].product[i].sum);
    }
    warps[warp].count -= end;
    memmove(warps[warp].product, warps[warp].product + end, (size_t)warps[warp].count * sizeof(Product));
    warps[warp].groups -= done;
    for (int i = 0; i < warps[warp].groups; i++)
        warps[warp].group_end[i] = warps[warp].group_end[i + done] - end;
    emulator_clocks_meet(warp * EMULATOR_WARP, mask); /* all lanes know of the reads, which are the warp's */
}

void emulator_group_wait(int latest) { emulator_together(wait, 0xFFFFFFFFu, &latest, false); }
