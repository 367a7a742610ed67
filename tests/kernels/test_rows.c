/* test_rows.c -- rope, take and scatter_add against their definitions, with strides, types, and 1 to 3 threads. */
#include "check.h"

/* Runs `statement` with 1, 2 and 3 threads on a marked `array`; all must write the same bits. */
#define SAME_BITS(array, bytes, mark, statement)                                                                       \
    do {                                                                                                               \
        void *first_ = allocate(bytes);                                                                                \
        for (int threads_ = 1; threads_ <= 3; threads_++) {                                                            \
            omp_set_num_threads(threads_);                                                                             \
            mark;                                                                                                      \
            statement;                                                                                                 \
            if (threads_ == 1)                                                                                         \
                memcpy(first_, array, (size_t)(bytes));                                                                \
            check(memcmp(first_, array, (size_t)(bytes)) == 0, "%s: other bits with %d threads", #statement,           \
                  threads_);                                                                                           \
        }                                                                                                              \
        free(first_);                                                                                                  \
    } while (0)

static void check_rope(RtType type, bool interleaved, bool inverse, int64_t feature)
{
    enum { OUTER = 2, SEQ = 5, MIDDLE = 3 };
    const int64_t pad = 3, row = feature + pad;
    RtRope s = { .outer = OUTER,
                 .seq = SEQ,
                 .middle = MIDDLE,
                 .feature = feature,
                 .type = type,
                 .base = 10000,
                 .stretch = 4,
                 .interleaved = interleaved,
                 .inverse = inverse,
                 .part = { .first = 100 } };
    s.x.middle = row, s.x.seq = MIDDLE * row, s.x.outer = SEQ * MIDDLE * row;
    s.y.seq = row, s.y.middle = SEQ * row, s.y.outer = SEQ * MIDDLE * row; /* another order */
    const int64_t count = OUTER * SEQ * MIDDLE * row, bytes = count * type_bytes(type);
    void *x = random_array(count, type), *y = allocate(bytes);
    SAME_BITS(y, bytes, memset(y, 0x5A, (size_t)bytes), rt_rope(x, RT_NO_POSITION, y, s));
    for (int64_t o = 0; o < OUTER; o++)
        for (int64_t t = 0; t < SEQ; t++)
            for (int64_t m = 0; m < MIDDLE; m++) {
                const int64_t from = o * s.x.outer + t * s.x.seq + m * s.x.middle;
                const int64_t to = o * s.y.outer + t * s.y.seq + m * s.y.middle;
                for (int64_t i = 0; i < feature / 2; i++) {
                    const int64_t first = interleaved ? 2 * i : i, second = interleaved ? 2 * i + 1 : i + feature / 2;
                    const double angle = (double)(100 + t) / 4 / pow(10000, 2.0 * (double)i / (double)feature);
                    const double a = get(x, from + first, type), b = get(x, from + second, type);
                    const double sine = inverse ? -sin(angle) : sin(angle);
                    /* three roundings, of numbers below 1 */
                    check(is_close(get(y, to + first, type), a * cos(angle) - b * sine, 0x1p-22, type) &&
                              is_close(get(y, to + second, type), a * sine + b * cos(angle), 0x1p-22, type),
                          "rope %s feature %lld: pair %lld", type_name[type], (long long)feature, (long long)i);
                }
                for (int64_t i = feature; i < row; i++)
                    check(is_marked(y, to + i, type), "rope writes behind a row");
            }
    free(x);
    free(y);
}

/* Positions of each sequence, or of each head: the same as a rotation of each row by itself. */
static void check_positions(bool of_heads)
{
    enum { OUTER = 2, SEQ = 5, MIDDLE = 3, FEATURE = 8, COUNT = OUTER * SEQ * MIDDLE * FEATURE };
    RtRope s = {
        .outer = OUTER, .seq = SEQ, .middle = MIDDLE, .feature = FEATURE, .base = 100, .stretch = 1, .type = RT_F32
    };
    s.x.middle = s.y.middle = FEATURE, s.x.seq = s.y.seq = MIDDLE * FEATURE;
    s.x.outer = s.y.outer = SEQ * MIDDLE * FEATURE;
    s.position.outer = SEQ * MIDDLE, s.position.seq = MIDDLE, s.position.middle = of_heads;
    int32_t position[OUTER * SEQ * MIDDLE];
    for (int i = 0; i < OUTER * SEQ * MIDDLE; i++)
        position[i] = (int32_t)pick(40) - 20;
    float *x = random_array(COUNT, RT_F32), *y = allocate(COUNT * 4), *want = allocate(COUNT * 4);
    SAME_BITS(y, COUNT * 4, memset(y, 0x5A, COUNT * 4), rt_rope(x, position, y, s));
    for (int64_t row = 0; row < OUTER * SEQ * MIDDLE; row++) {
        RtRope alone = {
            .outer = 1, .seq = 1, .middle = 1, .feature = FEATURE, .base = 100, .stretch = 1, .type = RT_F32
        };
        alone.part.first = position[of_heads ? row : row / MIDDLE * MIDDLE];
        alone.part.jump_from = 1;
        rt_rope(x + row * FEATURE, RT_NO_POSITION, want + row * FEATURE, alone);
    }
    for (int64_t i = 0; i < COUNT; i++)
        check(y[i] == want[i], "rope by positions: element %lld is %g, not %g", (long long)i, (double)y[i],
              (double)want[i]);
    free(x);
    free(y);
    free(want);
}

/* Against sums of all elements up to each one, by brute force; of integers, the same bits. */
static void check_cumulative(RtType type, bool is_max, bool exclusive, bool reverse)
{
    enum { OUTER = 2, MIDDLE = 3, COUNT = 70, ROW = OUTER * MIDDLE };
    RtCumulative s = { OUTER,  MIDDLE,    COUNT,  { MIDDLE, 1, ROW }, { MIDDLE * COUNT, COUNT, 1 }, type,
                       is_max, exclusive, reverse };
    const bool is_whole = type == RT_I32;
    void *x = is_whole ? malloc(ROW * COUNT * 4) : random_array(ROW * COUNT, type);
    for (int i = 0; is_whole && i < ROW * COUNT; i++)
        ((int32_t *)x)[i] = (int32_t)pick(2000) - 1000;
    void *y = allocate(ROW * COUNT * 4);
    SAME_BITS(y, ROW * COUNT * 4, memset(y, 0x5A, ROW * COUNT * 4), rt_cumulative(x, y, s));
    for (int row = 0; row < ROW; row++)
        for (int i = 0; i < COUNT; i++) {
            double want = is_max ? INT32_MIN : 0;
            for (int j = 0; j < COUNT; j++) {
                const int at = j * ROW + row, before = reverse ? j - i : i - j;
                const double one = is_whole ? ((int32_t *)x)[at] : get(x, at, type);
                if (before >= exclusive)
                    want = is_max ? fmax(want, one) : want + one;
            }
            const int at = row * COUNT + i;
            const double got = is_whole ? ((int32_t *)y)[at] : ((float *)y)[at];
            check(fabs(got - want) <= (is_whole ? 0 : COUNT * COUNT * 0x1p-24), "cumulative %s%s%s: %g, not %g",
                  is_max ? "max" : "sum", exclusive ? " exclusive" : "", reverse ? " reverse" : "", got, want);
        }
    free(x);
    free(y);
}

enum { PRE = 2, SHARED = 3, ROWS = 90, COUNT = 200 };

/* Rows of a table for each of the shared elements; or of one table, whose index lies together. */
static RtGather take_shape(RtType table, RtType picked, int64_t post, bool shares)
{
    RtGather s = { .pre = PRE, .shared = shares ? SHARED : 1, .rows = ROWS, .count = COUNT, .post = post };
    s.table_type = table, s.picked_type = picked;
    s.table.row = post + 1, s.table.shared = ROWS * s.table.row + 3, s.table.pre = s.shared * s.table.shared + 7;
    s.picked.row = post + 2, s.picked.shared = COUNT * s.picked.row + 2, s.picked.pre = s.shared * s.picked.shared + 5;
    s.index = (RtGatherStride){ 0, 1, s.shared };
    return s;
}

static void pick_indices(int32_t *index, bool stray)
{
    for (int i = 0; i < SHARED * COUNT; i++)
        index[i] = (int32_t)(pick(3) ? pick(ROWS) : 5); /* many times 5 */
    if (stray)
        index[3] = -1, index[4] = ROWS;
}

static void check_take(RtType table_type, RtType picked_type, int64_t post, bool shares)
{
    const RtGather s = take_shape(table_type, picked_type, post, shares);
    int32_t index[SHARED * COUNT];
    pick_indices(index, true);
    void *table = random_array(PRE * s.table.pre, table_type);
    const int64_t bytes = PRE * s.picked.pre * type_bytes(picked_type);
    void *picked = allocate(bytes);
    SAME_BITS(picked, bytes, memset(picked, 0x5A, (size_t)bytes), rt_gather(table, index, picked, s));
    for (int64_t p = 0; p < PRE; p++)
        for (int64_t n = 0; n < s.shared * COUNT; n++)
            for (int64_t i = 0; i < s.picked.row; i++) {
                const int64_t h = n % s.shared, to = rt_gather_at(p, h, n / s.shared, s.picked) + i;
                const bool known = index[n] >= 0 && index[n] < ROWS;
                const double want = known ? get(table, rt_gather_at(p, h, index[n], s.table) + i, table_type) : 0;
                check(i < post ? is_close(get(picked, to, picked_type), want, 0, picked_type)
                               : is_marked(picked, to, picked_type),
                      "take %s to %s, post %lld: [%lld, %lld, %lld]", type_name[table_type], type_name[picked_type],
                      (long long)post, (long long)p, (long long)n, (long long)i);
            }
    free(table);
    free(picked);
}

enum { NO_SUM, IN_PLACE, ELSEWHERE };

static void check_scatter_add(RtType table_type, RtType picked_type, int64_t post, int sum, bool shares)
{
    RtGather s = take_shape(table_type, picked_type, post, shares);
    s.sum = s.table;
    int32_t index[SHARED * COUNT];
    pick_indices(index, true);
    void *picked = random_array(PRE * s.picked.pre, picked_type), *before = random_array(PRE * s.table.pre, table_type);
    const int64_t bytes = PRE * s.table.pre * type_bytes(table_type);
    void *table = allocate(bytes);
    SAME_BITS(table, bytes, memcpy(table, before, (size_t)bytes),
              rt_scatter_add(picked, index,
                             sum == NO_SUM     ? NULL
                             : sum == IN_PLACE ? table
                                               : before,
                             table, s));
    for (int64_t p = 0; p < PRE; p++)
        for (int64_t v = 0; v < s.shared * ROWS; v++)
            for (int64_t i = 0; i < s.table.row; i++) {
                const int64_t h = v % s.shared, at = rt_gather_at(p, h, v / s.shared, s.table) + i;
                double want = sum != NO_SUM || i >= post ? get(before, at, table_type) : 0, magnitude = fabs(want);
                int64_t terms = 0;
                for (int64_t n = 0; n < COUNT && i < post; n++)
                    if (index[n * s.shared + h] == v / s.shared) {
                        const double x = get(picked, rt_gather_at(p, h, n, s.picked) + i, picked_type);
                        want += x;
                        magnitude += fabs(x);
                        terms++;
                    }
                /* the running sum is rounded to the table's type each time */
                check(is_close(get(table, at, table_type), want,
                               (double)terms * 1.01 * rounding[table_type] * magnitude, table_type),
                      "scatter_add %s to %s, post %lld: [%lld, %lld, %lld]", type_name[picked_type],
                      type_name[table_type], (long long)post, (long long)p, (long long)v, (long long)i);
            }
    free(picked);
    free(before);
    free(table);
}

int main(void)
{
    for (int type = 0; type < 3; type++)
        for (int flags = 0; flags < 4; flags++)
            for (int64_t feature = 2; feature <= 66; feature += 16)
                check_rope(float_types[type], flags & 1, flags & 2, feature);
    check_positions(false);
    check_positions(true);
    for (int flags = 0; flags < 8; flags++) {
        check_cumulative(RT_I32, flags & 1, flags & 2, flags & 4);
        for (int type = 0; type < 3 && !(flags & 1); type++)
            check_cumulative(float_types[type], false, flags & 2, flags & 4);
    }
    static const int64_t posts[] = { 1, 5, 64, 515 };
    for (int i = 0; i < 4; i++)
        for (int table = 0; table < 3; table++)
            for (int picked = 0; picked < 3; picked++) {
                for (int shares = 0; shares < 2; shares++) {
                    check_take(float_types[table], float_types[picked], posts[i], shares);
                    for (int sum = NO_SUM; sum <= ELSEWHERE; sum++)
                        check_scatter_add(float_types[table], float_types[picked], posts[i], sum, shares);
                }
            }
    return report("rows");
}
