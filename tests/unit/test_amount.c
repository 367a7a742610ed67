/* test_amount.c -- amounts in words. */
#include "amount.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_units(void **state)
{
    (void)state;
    Arena arena = { 0 };
    static const struct {
        double amount;
        const char *bytes, *flops;
    } cases[] = {
        { 0, "0 B", "0 FLOP" },
        { 999, "999 B", "999 FLOP" },
        { 1000, "1.00 kB", "1.00 kFLOP" },
        { 29570, "29.57 kB", "29.57 kFLOP" },
        { 999499, "999.50 kB", "999.50 kFLOP" },
        { 999500, "1.00 MB", "1.00 MFLOP" },
        { 1.5e8, "150.00 MB", "150.00 MFLOP" },
        { 4.52e10, "45.20 GB", "45.20 GFLOP" },
        { 1.6e14, "160.00 TB", "160.00 TFLOP" },
        { 2.5e15, "2.50 PB", "2.50 PFLOP" },
        { 7e21, "7000.00 EB", "7000.00 EFLOP" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_string_equal(bytes_text(&arena, cases[i].amount), cases[i].bytes);
        assert_string_equal(flops_text(&arena, cases[i].amount), cases[i].flops);
    }
    arena_free(&arena);
}

static void test_plurals(void **state)
{
    (void)state;
    Arena arena = { 0 };
    assert_string_equal(counted(&arena, 0, "rank"), "0 ranks");
    assert_string_equal(counted(&arena, 1, "rank"), "1 rank");
    assert_string_equal(counted(&arena, 1, "micro-batch"), "1 micro-batch");
    assert_string_equal(counted(&arena, 2, "micro-batch"), "2 micro-batches");
    assert_string_equal(counted(&arena, 124439808, "parameter"), "124,439,808 parameters");
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_units), cmocka_unit_test(test_plurals) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
