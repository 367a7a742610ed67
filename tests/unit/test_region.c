/* test_region.c -- intersection of two boxes of bytes, against a map of their bytes. */
#include "verify/region.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BYTES = 4096, TRIES = 20000 };

static int64_t draw(int64_t low, int64_t high) { return low + rand() % (high - low + 1); }

/* Rows of rows, with gaps between them or without. */
static Region random_region(void)
{
    Region region = { .at = draw(0, 200), .width = draw(1, 8), .rank = (int)draw(0, 3) };
    int64_t span = region.width;
    for (int i = region.rank - 1; i >= 0; i--) {
        region.count[i] = draw(2, 5);
        region.stride[i] = span + draw(0, 2) * draw(0, 9);
        span = (region.count[i] - 1) * region.stride[i] + span;
    }
    return region;
}

static void mark(const Region *region, int dim, int64_t at, bool *map)
{
    for (int64_t i = 0; dim < region->rank && i < region->count[dim]; i++)
        mark(region, dim + 1, at + i * region->stride[dim], map);
    for (int64_t i = 0; dim == region->rank && i < region->width; i++)
        map[at + i] = true;
}

static void test_regions_meet(void **state)
{
    int met = 0;
    srand(1);
    for (int n = 0; n < TRIES; n++) {
        static bool map[2][BYTES];
        Region a = random_region(), b = random_region();
        if (n % 2 && a.rank && b.rank) /* rows of one pitch, side by side */
            b.stride[0] = a.stride[0] = a.stride[0] > b.stride[0] ? a.stride[0] : b.stride[0];
        memset(map, 0, sizeof map);
        mark(&a, 0, a.at, map[0]);
        mark(&b, 0, b.at, map[1]);
        bool meet = false;
        for (int i = 0; i < BYTES; i++)
            meet |= map[0][i] && map[1][i];
        if (regions_meet(&a, &b) != meet || regions_meet(&b, &a) != meet)
            fail_msg("try %d: boxes at %lld and %lld meet: %d", n, (long long)a.at, (long long)b.at, meet);
        met += meet;
    }
    assert_in_range(met, TRIES / 10, TRIES - TRIES / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_regions_meet) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
