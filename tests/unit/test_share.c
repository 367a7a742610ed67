/* test_share.c -- copies of several repeats on the stages of a pipeline: the best cut, against all cuts. */
#include "layout/stage_shares.h"
#include "stages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MOST_COPIES = 9, TRIALS = 300 };

/* The least largest sum of consecutive ranges, one for each stage, by trying all of them. */
static double best_of_all(const double *flops, int count, int stages)
{
    double best = 1e300, own = 0;
    if (stages == 0)
        return count == 0 ? 0 : best;
    for (int first = 1; first <= count; first++) {
        own += flops[first - 1];
        const double rest = best_of_all(flops + first, count - first, stages - 1);
        const double most = own > rest ? own : rest;
        best = most < best ? most : best;
    }
    return best;
}

static void check_share(const double *flops, int count, int stages)
{
    Arena arena = { 0 };
    int64_t stage[MOST_COPIES], at = 0;
    double most = 0;
    share_copies(&arena, flops, count, stages, stage);
    for (int i = 0; i < stages; i++) {
        double own = 0;
        assert_true(stage[i] >= 1);
        for (const int64_t end = at + stage[i]; at < end && at < count; at++)
            own += flops[at];
        most = own > most ? own : most;
    }
    assert_int_equal(at, count);
    assert_true(most <= best_of_all(flops, count, stages) * (1 + 1e-9));
    arena_free(&arena);
}

static void test_best(void **state)
{
    (void)state;
    srand(1);
    for (int trial = 0; trial < TRIALS; trial++) {
        const int count = 1 + rand() % MOST_COPIES, stages = 1 + rand() % count;
        double flops[MOST_COPIES];
        for (int i = 0; i < count; i++)
            flops[i] = rand() % 5 ? 1 + rand() % 7 : 1e12;
        check_share(flops, count, stages);
    }
}

static void test_even(void **state)
{
    (void)state;
    Arena arena = { 0 };
    double flops[10];
    int64_t stage[4];
    for (int i = 0; i < 10; i++)
        flops[i] = 1e9;
    share_copies(&arena, flops, 10, 4, stage);
    for (int i = 0; i < 4; i++)
        assert_in_range(stage[i], 2, 3);
    arena_free(&arena);
}

/* Each repeat begins where the one before ends, and the parts are what the stages have. */
static void test_parts(void **state)
{
    (void)state;
    static const int64_t copies[] = { 3, 4, 1 }, stage[] = { 3, 1, 3, 1 };
    static const int64_t expected[3][4] = { { 3, -1, -1, -1 }, { 0, 1, 3, -1 }, { -1, -1, 0, 1 } };
    int64_t part[3][MAX_SET_RANKS];
    cut_repeats(copies, 3, stage, part);
    for (int repeat = 0; repeat < 3; repeat++)
        for (int i = 0; i < 4; i++)
            assert_int_equal(part[repeat][i], expected[repeat][i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_best), cmocka_unit_test(test_even),
                                        cmocka_unit_test(test_parts) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
