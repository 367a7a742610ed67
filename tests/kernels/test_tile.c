/* test_tile.c -- rt_tile_product against three loops, for all numbers of rows near its block sizes. */
#include "check.h"

enum { STRIDE = 7 * RT_LANES + 3, MOST_ROWS = 25, MOST_DEPTH = 33 };

typedef struct {
    int64_t rows, columns, depth, a_row, a_column;
    bool accumulate;
} Shape;

static void compare(const Shape *s, const float *a, const float *b, const float *before, const float *c, int64_t i,
                    int64_t j)
{
    double want = s->accumulate ? (double)before[i * STRIDE + j] : 0, magnitude = fabs(want);
    for (int64_t k = 0; k < s->depth; k++) {
        const double term = (double)a[i * s->a_row + k * s->a_column] * (double)b[k * STRIDE + j];
        want += term;
        magnitude += fabs(term);
    }
    /* each step rounds a product and a sum, of at most the magnitude */
    check(fabs((double)c[i * STRIDE + j] - want) <= (double)(s->depth + 1) * 0x1p-23 * magnitude,
          "%lld x %lld x %lld%s: [%lld, %lld] is %g, not %g", (long long)s->rows, (long long)s->columns,
          (long long)s->depth, s->accumulate ? " accumulate" : "", (long long)i, (long long)j,
          (double)c[i * STRIDE + j], want);
}

/* Arrays end at their last element, so that the address sanitizer detects reads after it. */
static void check_shape(const Shape s)
{
    const int64_t c_count = (s.rows - 1) * STRIDE + s.columns, guard = STRIDE;
    float *a = random_array((s.rows - 1) * s.a_row + (s.depth - 1) * s.a_column + 1, RT_F32);
    float *b = random_array((s.depth - 1) * STRIDE + s.columns, RT_F32);
    float *before = random_array(c_count + guard, RT_F32), *c = allocate((c_count + guard) * 4);
    memcpy(c, before, (size_t)(c_count + guard) * 4);
    rt_tile_product(s.rows, s.columns, s.depth, a, s.a_row, s.a_column, b, STRIDE, c, STRIDE, s.accumulate);
    for (int64_t at = 0; at < c_count + guard; at++)
        if (at < c_count && at % STRIDE < s.columns)
            compare(&s, a, b, before, c, at / STRIDE, at % STRIDE);
        else
            check(c[at] == before[at], "%lld x %lld: wrote element %lld", (long long)s.rows, (long long)s.columns,
                  (long long)at);
    free(a);
    free(b);
    free(before);
    free(c);
}

int main(void)
{
    for (int64_t rows = 1; rows <= MOST_ROWS; rows++)
        for (int64_t vectors = 1; vectors <= 7; vectors++)
            for (int64_t depth = 1; depth <= MOST_DEPTH; depth += 16)
                for (int flags = 0; flags < 4; flags++) {
                    Shape s = { .rows = rows, .columns = vectors * RT_LANES, .depth = depth, .accumulate = flags & 1 };
                    s.a_row = flags & 2 ? 1 : depth + 1;
                    s.a_column = flags & 2 ? rows + 1 : 1;
                    check_shape(s);
                }
    return report("tile");
}
