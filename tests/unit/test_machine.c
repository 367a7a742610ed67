/* test_machine.c -- the laws of single things on a machine, against arithmetic by hand and measurements; and the
 * machines that mpc has.  Messages about bad files: tests/error/machine_*. */
#include "cost/cost.h"
#include "cost/machine.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const char plain[] = "name                       round numbers\n"
                            "ranks on a machine         4                         data sheet  none\n"
                            "memory                     16 GB                     data sheet  none\n"
                            "memory taken               1 GB                      data sheet  none\n"
                            "flops f32                  1 TFLOP/s                 data sheet  none\n"
                            "flops bf16                 4 TFLOP/s                 data sheet  none\n"
                            "products f32               1GFLOP:50%                data sheet  none\n"
                            "products bf16              1GFLOP:20% 100GFLOP:80%   data sheet  none\n"
                            "sustained                  50 %                      data sheet  none\n"
                            "attention forward bf16 64  100:1TFLOP/s 400:2TFLOP/s\n"
                            "                           data sheet  in two lines\n"
                            "attention forward bf16 256  100:4TFLOP/s             data sheet  none\n"
                            "attention backward bf16 64  100:500GFLOP/s           data sheet  none\n"
                            "copy                       1kB:100GB/s 100kB:10GB/s  data sheet  none\n"
                            "kernels                    50 %                      data sheet  none\n"
                            "elementwise                1 GFLOP/s                 data sheet  none\n"
                            "launch                     1 us                      data sheet  none\n"
                            "message                    10 us                     data sheet  none\n"
                            "latency within             1 us                      data sheet  none\n"
                            "latency between            5 us                      data sheet  none\n"
                            "within                     1MB:100GB/s               data sheet  none\n"
                            "within all_reduce          1MB:200GB/s               data sheet  none\n"
                            "ranks within               2:100% 4:50%              data sheet  none\n"
                            "between                    1MB:10GB/s                data sheet  none\n"
                            "machines between           2:100% 8:25%              data sheet  none\n";

static const Machine *read_text(Arena *arena, const char *text)
{
    Source *source = NEW(arena, Source);
    *source = (Source){ "test.machine", text, (int)strlen(text) };
    Diags diags = { .arena = arena, .source = source, .out = stderr };
    const Machine *machine = parse_machine(arena, &diags);
    assert_non_null(machine);
    return machine;
}

#define NEAR(actual, expected) assert_true(fabs((actual) - (expected)) <= 1e-9 * fabs(expected))

static void test_numbers(void **state)
{
    Arena arena = { 0 };
    const Machine *m = read_text(&arena, plain);
    assert_int_equal(ranks_of_machine(m), 4);
    NEAR(machine_memory(m), 15e9);
    NEAR(machine_overlap(m), 1.0);
    NEAR(machine_flops(m, BF16), 4e12);
    NEAR(machine_flops(m, E4M3), 4e12); /* by bf16, and so f16 */
    NEAR(machine_flops(m, F16), 4e12);
    assert_string_equal(m->line[LINE_name].text, "round numbers");
    assert_string_equal(m->line[LINE_attention_forward_64].source, "in two lines");
    assert_int_equal(m->line[LINE_attention_forward_64].origin, DATA_SHEET);
    assert_true(connects(m, 1) && connects(m, 4) && connects(m, 8));
    arena_free(&arena);
}

static void test_products(void **state)
{
    Arena arena = { 0 };
    const Machine *m = read_text(&arena, plain);
    NEAR(product_seconds(m, BF16, 1000, 500, 1000, 1), 1e9 / (4e12 * 0.2 * 0.5));
    NEAR(product_seconds(m, BF16, 1000, 1000, 500, 100), 1e11 / (4e12 * 0.8 * 0.5)); /* a call's FLOPs: all matrices' */
    NEAR(product_seconds(m, BF16, 1000, 5000, 1000, 1),
         1e10 / (4e12 * 0.4 * 0.5)); /* half way between, in logarithms */
    NEAR(product_seconds(m, F32, 1000, 500, 1000, 1), 1e9 / (1e12 * 0.5 * 0.5));
    NEAR(product_seconds(m, F32, 1, 1000000, 1, 1), 4 * 2000001 / 10e9); /* one number of two operands each: memory */
    NEAR(product_seconds(m, BF16, 8, 8, 8, 1), 1e-6);                    /* a launch */
    arena_free(&arena);
}

static void test_attention(void **state)
{
    Arena arena = { 0 };
    const Machine *m = read_text(&arena, plain);
    NEAR(attention_seconds(m, BF16, 1e12, 400, 400, 64, false), 0.5);
    NEAR(attention_seconds(m, BF16, 1e12, 50, 200, 64, false), 1.0);   /* as many scores as 100 by 100 */
    NEAR(attention_seconds(m, BF16, 1e12, 100, 100, 128, false), 0.5); /* 64: 1, 256: 4, between them 2 TFLOP/s */
    NEAR(attention_seconds(m, BF16, 1e12, 100, 100, 512, false), 0.25);
    NEAR(attention_seconds(m, E4M3, 1e12, 100, 100, 64, true), 2.0);
    NEAR(attention_seconds(m, F32, 1e12, 100, 100, 64, true), 8.0); /* by the ratio of peaks */
    NEAR(attention_seconds(m, BF16, 1, 1, 1, 64, true), 1e-6);
    arena_free(&arena);
}

static void test_kernels(void **state)
{
    Arena arena = { 0 };
    const Machine *m = read_text(&arena, plain);
    NEAR(kernel_seconds(m, 1e9, 1), 0.2 + 1e-6);
    NEAR(kernel_seconds(m, 2e3, 2), 2e3 / (100e9 * 0.5) + 2e-6); /* of two kernels, each of 1 kB */
    NEAR(kernel_seconds(m, 0, 3), 3e-6);
    NEAR(fused_seconds(m, 1e9, 1e8, 1), 0.2 + 1e-6);
    NEAR(fused_seconds(m, 1e9, 3e8, 1), 0.3 + 1e-6);
    arena_free(&arena);
}

static double message(const Machine *m, int kind, double volume, int64_t ranks, int64_t on_one)
{
    return message_seconds(m, kind, volume, (Group){ ranks, on_one });
}

static void test_messages(void **state)
{
    Arena arena = { 0 };
    const Machine *m = read_text(&arena, plain);
    const double start = 10e-6, us = 1e-6, GB = 1e9;
    NEAR(message(m, OP_all_gather, GB, 2, 2), start + 1 * us + 0.5 * GB / 100e9);
    NEAR(message(m, OP_reduce_scatter, GB, 4, 4), start + 3 * us + 0.75 * GB / 50e9); /* half is left of four ranks */
    NEAR(message(m, OP_all_reduce, 2 * GB, 2, 2), start + 2 * us + GB / 200e9);
    /* two machines, four ranks each: four cards; within, each rank sends as much at 50 GB/s */
    NEAR(message(m, OP_all_gather, GB, 8, 4), start + 6 * us + 5 * us + 0.875 * GB / (4 * 10e9));
    NEAR(message(m, OP_all_gather, GB, 8, 1), start + 7 * 5 * us + 0.875 * GB / (10e9 * 0.25));
    /* of 8 machines a tree is 2 * 3 steps deep, a ring has 14 */
    NEAR(message(m, OP_all_reduce, 2 * GB, 8, 1), start + 6 * 5 * us + 2 * 0.875 * GB / (10e9 * 0.25));
    /* 4 of 8 parts go to the other machine, by the rank's own card; 3 of 8 within */
    NEAR(message(m, OP_all_to_all, GB, 8, 4), start + 5 * us + 0.5 * GB / 10e9);
    NEAR(message(m, OP_all_to_all, GB, 4, 4), start + 1 * us + 0.75 * GB / 50e9);
    /* and where cards are a thousand times as fast */
    char *text = arena_text(&arena, "%s", plain), *card = strstr(text, "1MB:10GB/s");
    card[strlen("1MB:10")] = 'T';
    NEAR(message(read_text(&arena, text), OP_all_to_all, GB, 8, 4), start + 5 * us + 0.375 * GB / 50e9);
    NEAR(message(m, OP_send, GB, 2, 2), start + 1 * us + GB / 100e9);
    NEAR(message(m, OP_rotate, GB, 2, 1), start + 5 * us + GB / 10e9);
    assert_true(message(m, OP_all_gather, GB, 1, 1) == 0);
    arena_free(&arena);
}

/* --- The machines that mpc has ----------------------------------------------------------------------------- */

static const Machine *shipped(Arena *arena, const char *name)
{
    NearMiss near = { .name = name };
    const char *text = shipped_machine(name, &near);
    assert_non_null(text);
    return read_text(arena, text);
}

/* More work takes no less time. */
static void test_monotone(void **state)
{
    static const char *const names[] = { "a100", "h100", "h200" };
    static const int kinds[] = { OP_all_reduce, OP_all_gather, OP_reduce_scatter, OP_all_to_all, OP_send, OP_rotate };
    Arena arena = { 0 };
    for (int i = 0; i < 3; i++) {
        const Machine *m = shipped(&arena, names[i]);
        double product = 0, attention = 0, kernel = 0;
        for (int64_t n = 16; n <= 1 << 15; n += n / 4) {
            const double next[] = { product_seconds(m, BF16, n, n, n, 1), kernel_seconds(m, (double)(n * n), 1),
                                    attention_seconds(m, BF16, 4e3 * (double)(n * n), n, n, 128, true) };
            assert_true(next[0] >= product && next[1] >= kernel && next[2] >= attention);
            product = next[0], kernel = next[1], attention = next[2];
        }
        for (int k = 0; k < 6; k++)
            for (int64_t ranks = 2; ranks <= 4096; ranks *= 2) {
                const int64_t inside = ranks < 8 ? ranks : 8;
                double last = 0;
                for (double volume = 1024; volume < 1e11; volume *= 4) {
                    const double seconds = message(m, kinds[k], volume, ranks, inside);
                    assert_true(seconds > last && isfinite(seconds));
                    assert_true(volume < 1e9 || message(m, kinds[k], volume, ranks, 1) >= seconds);
                    last = seconds;
                }
            }
    }
    NearMiss near = { .name = "h10" };
    assert_null(shipped_machine("h10", &near));
    assert_string_equal(near.best, "h100");
    arena_free(&arena);
}

/* Plain products of bench/results/2026-11-27-gpu-H100.md, the best kernel of each, in us, and attention, alone: without
 * what they lose within a program. */
static void test_measured(void **state)
{
    static const struct {
        int64_t m, n, k;
        double us;
    } rows[] = { { 8192, 8192, 8192, 1316.7 }, { 768, 32768, 50304, 3038.8 }, { 2304, 32768, 768, 154.9 },
                 { 768, 32768, 768, 58.1 },    { 768, 768, 32768, 63.1 },     { 768, 32768, 3072, 214.3 },
                 { 768, 3072, 32768, 202.6 },  { 1600, 16384, 6400, 418.5 },  { 14336, 8192, 4096, 1251.8 },
                 { 4096, 8192, 14336, 1298.9 } };
    Arena arena = { 0 };
    const Machine *m = shipped(&arena, "h100");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const double alone =
            product_seconds(m, BF16, rows[i].m, rows[i].n, rows[i].k, 1) * machine_number(m, LINE_sustained);
        assert_true(fabs(1e6 * alone / rows[i].us - 1) < 0.15);
    }
    /* Of 8 and 16 bits a trainer takes the faster: "1 of 19 in 8 bits" of Llama 8B, the product to ff */
    assert_true(product_seconds(m, E4M3, 1024, 1024, 4096, 1) == product_seconds(m, BF16, 1024, 1024, 4096, 1));
    assert_true(product_seconds(m, E4M3, 8192, 14336, 4096, 1) < product_seconds(m, BF16, 8192, 14336, 4096, 1));
    /* 32 x 12 heads of 64, causal, 1024 by 1024: by cuDNN 0.155 ms, the gradient 0.640 */
    const double flops = 4.0 * 32 * 12 * 1024 * 1024 * 64 / 2;
    const double lost = machine_number(m, LINE_attention_sustained);
    assert_true(fabs(lost * attention_seconds(m, BF16, flops, 1024, 1024, 64, false) / 0.155e-3 - 1) < 0.02);
    assert_true(fabs(lost * attention_seconds(m, BF16, 2.5 * flops, 1024, 1024, 64, true) / 0.640e-3 - 1) < 0.02);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_numbers),   cmocka_unit_test(test_products),
                                        cmocka_unit_test(test_attention), cmocka_unit_test(test_kernels),
                                        cmocka_unit_test(test_messages),  cmocka_unit_test(test_monotone),
                                        cmocka_unit_test(test_measured) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
