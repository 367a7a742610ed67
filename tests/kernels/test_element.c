/* test_element.c -- conversions of every value, functions over vectors, dropout's bits. */
#include "check.h"

static bool same_float(float a, float b) { return isnan(a) ? isnan(b) : rt_bits_of_float(a) == rt_bits_of_float(b); }

static void check_conversions(void)
{
    static uint16_t all[65536], again[65536];
    static float wide[65536];
    for (int i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    rt_load_row(all, 0, 65536, RT_F16, wide);
    for (int i = 0; i < 65536; i++)
        check(same_float(wide[i], rt_float_of_f16(all[i])), "f16 %04x becomes %g", i, (double)wide[i]);
    rt_store_row(again, 0, 65536, RT_F16, wide);
    for (int i = 0; i < 65536; i++)
        check(isnan(wide[i]) ? (again[i] & 0x7FFF) > 0x7C00 : again[i] == all[i], "f16 %04x comes back %04x", i,
              again[i]);
    rt_load_row(all, 0, 65536, RT_BF16, wide);
    rt_store_row(again, 0, 65536, RT_BF16, wide);
    for (int i = 0; i < 65536; i++)
        check(isnan(wide[i]) ? (again[i] & 0x7FFF) > 0x7F80 : again[i] == all[i], "bf16 %04x comes back %04x", i,
              again[i]);
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += 4099) {
        const float x = rt_float_of_bits((uint32_t)bits);
        const bool f16 = isnan(x) ? (rt_store_f16(x) & 0x7FFF) > 0x7C00 : rt_store_f16(x) == rt_f16_of_float(x);
        const bool bf16 = isnan(x) ? (rt_store_bf16(x) & 0x7FFF) > 0x7F80 : rt_store_bf16(x) == rt_bf16_of_float(x);
        check(f16 && bf16, "%08llx: f16 %04x, bf16 %04x", (unsigned long long)bits, rt_store_f16(x), rt_store_bf16(x));
    }
    /* halves round to the even neighbour, computed by hand */
    check(rt_store_bf16(rt_float_of_bits(0x3F808000)) == 0x3F80 &&
              rt_store_bf16(rt_float_of_bits(0x3F818000)) == 0x3F82,
          "bf16 rounds halves wrong");
    check(rt_store_f16(2049.0f) == 0x6800 && rt_store_f16(2051.0f) == 0x6802 && rt_store_f16(65520.0f) == 0x7C00 &&
              rt_store_f16(0x1p-24f) == 1 && rt_store_f16(0x1p-25f) == 0,
          "f16 rounds wrong");
}

/* The number that seven bits stand for, as the format is published. */
static double e4m3_of_bits(int bits)
{
    const int exponent = bits >> 3, fraction = bits & 7;
    return exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
}

/* The nearest of all numbers; of two, the one whose last bit is 0. */
static double nearest_e4m3(double x)
{
    const int largest = 0x7E;
    int best = 0;
    for (int bits = 1; bits <= largest; bits++) {
        const double distance = fabs(e4m3_of_bits(bits) - fabs(x)), least = fabs(e4m3_of_bits(best) - fabs(x));
        if (distance < least || (distance == least && bits % 2 == 0))
            best = bits;
    }
    return copysign(e4m3_of_bits(best), x);
}

static void check_e4m3(void)
{
    for (int bits = 0; bits < 0x7F; bits++) {
        const double x = e4m3_of_bits(bits), half = (x + e4m3_of_bits(bits + 1)) / 2;
        check((double)rt_round_e4m3((float)x) == x && (double)rt_round_e4m3((float)-x) == -x, "e4m3 %02x is not kept",
              bits);
        check(rt_e4m3_of_float((float)x) == bits && rt_e4m3_of_float((float)-x) == (bits | 0x80),
              "the bits of e4m3 %02x are %02x", bits, rt_e4m3_of_float((float)x));
        for (double y = half * (1 - 0x1p-20); y <= half * (1 + 0x1p-20) && half < 448; y += half * 0x1p-20)
            check((double)rt_round_e4m3((float)y) == nearest_e4m3(y), "e4m3 of %.9g is %g", y,
                  (double)rt_round_e4m3((float)y));
    }
    for (int i = 0; i < 100000; i++) {
        const float x = (float)ldexp(uniform(), (int)pick(22) - 12);
        check((double)rt_round_e4m3(x) == nearest_e4m3((double)x), "e4m3 of %.9g is %g", (double)x,
              (double)rt_round_e4m3(x));
    }
    check(rt_round_e4m3(449) == 448 && rt_round_e4m3(-1e30f) == -448 && isinf(rt_round_e4m3(INFINITY)) &&
              isnan(rt_round_e4m3(NAN)) && rt_e4m3_of_float(INFINITY) == 0x7F && rt_e4m3_of_float(-NAN) == 0xFF,
          "e4m3 far out");
    for (uint64_t bits = 1; bits < 0x7F800000; bits += 4099) {
        const float x = rt_float_of_bits((uint32_t)bits), scale = rt_scale_e4m3(x);
        const double scaled = (double)x * (double)scale;
        check(scaled <= 448 && (scaled > 224 || scale == 0x1p126f) && (rt_bits_of_float(scale) & 0x7FFFFF) == 0,
              "scale of %g is %g", (double)x, (double)scale);
    }
    check(rt_scale_e4m3(448) == 1 && rt_scale_e4m3(449) == 0.5f && rt_scale_e4m3(224) == 2 &&
              rt_scale_e4m3(0) == 0x1p126f,
          "scales by hand");
}

enum { COUNT = 4099 };

/* Loops as in generated code, with an odd tail; the bound is in units in the last place. */
#define CHECK_FUNCTION(call, exact, low, high, units)                                                                  \
    do {                                                                                                               \
        static float x[COUNT], y[COUNT];                                                                               \
        for (int i = 0; i < COUNT; i++)                                                                                \
            x[i] = (float)((low) + ((high) - (low)) * (uniform() + 1) / 2);                                            \
        _Pragma("omp simd") for (int i = 0; i < COUNT; i++) y[i] = call(x[i]);                                         \
        for (int i = 0; i < COUNT; i++) {                                                                              \
            const double want = exact((double)x[i]);                                                                   \
            check(fabs((double)y[i] - want) <= (units)*0x1p-23 * fabs(want) + 0x1p-126,                                \
                  #call "(%.9g) is %.9g, not %.9g", (double)x[i], (double)y[i], want);                                 \
        }                                                                                                              \
    } while (0)

static double gelu(double x) { return 0.5 * x * erfc(-x * sqrt(0.5)); }

static double gelu_tanh(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

static double softplus(double x) { return log1p(exp(x)); }

static double gelu_slope(double x)
{
    return 0.5 * erfc(-x * sqrt(0.5)) + x * exp(-0.5 * x * x) / sqrt(2 * 3.14159265358979323846);
}

static double gelu_tanh_slope(double x)
{
    const double c = sqrt(2 / 3.14159265358979323846), t = tanh(c * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}

/* Two terms of up to 1.2 that may cancel: the bound is absolute. */
static void check_slopes(void)
{
    for (int i = 0; i < COUNT; i++) {
        const float x = (float)(8 * uniform());
        check(fabs((double)rt_gelu_slope(x) - gelu_slope((double)x)) <= 8 * 0x1p-23, "slope of gelu at %g", (double)x);
        check(fabs((double)rt_gelu_tanh_slope(x) - gelu_tanh_slope((double)x)) <= 8 * 0x1p-23,
              "slope of gelu_tanh at %g", (double)x);
        /* to the left, 1 + erf cancels */
        check(fabs((double)rt_gelu(x) - gelu((double)x)) <= 4 * 0x1p-23 * fabs((double)x), "gelu at %g", (double)x);
        check(fabs((double)rt_gelu_tanh(x) - gelu_tanh((double)x)) <= 4 * 0x1p-23 * fabs((double)x), "gelu_tanh at %g",
              (double)x);
    }
    check(rt_gelu(1e30f) == 1e30f && rt_gelu_tanh(1e30f) == 1e30f && rt_gelu(-1e30f) == 0 && rt_gelu_tanh(-1e30f) == 0,
          "gelu far out");
    check(rt_gelu_slope(1e10f) == 1 && rt_gelu_tanh_slope(1e10f) == 1 && rt_gelu_slope(-1e10f) == 0 &&
              rt_gelu_tanh_slope(-1e10f) == 0,
          "slope of gelu far out");
    check(isnan(rt_gelu(NAN)) && isnan(rt_gelu_tanh(NAN)) && isnan(rt_exp_negative(NAN)), "NaN is lost");
}

static void check_functions(void)
{
    CHECK_FUNCTION(expf, exp, -87, 88, 4);
    CHECK_FUNCTION(logf, log, 1e-6, 100, 4);
    CHECK_FUNCTION(tanhf, tanh, -9, 9, 4);
    CHECK_FUNCTION(erff, erf, -4, 4, 4);
    CHECK_FUNCTION(rt_exp_negative, exp, -87, 0, 2);
    CHECK_FUNCTION(rt_gelu, gelu, -1, 4, 8);
    CHECK_FUNCTION(rt_gelu_tanh, gelu_tanh, -1, 4, 8);
    CHECK_FUNCTION(rt_softplus, softplus, -80, 80, 8);
    check(rt_softplus(-1e30f) == 0 && rt_softplus(1e30f) == 1e30f && isnan(rt_softplus(NAN)), "softplus far out");
    check(rt_exp_negative(-INFINITY) == 0 && rt_exp_negative(-1000) == 0 && rt_exp_negative(0) == 1,
          "rt_exp_negative at its ends");
    check_slopes();
}

/* Random123's published answers for Philox4x32-10 are in tests/runtime; here that the vector loop uses them. */
static void check_random(void)
{
    static uint8_t kept[COUNT];
    const int64_t first = (INT64_C(1) << 32) - 50;
    const float rate = 0.3f;
#pragma omp simd
    for (int i = 0; i < COUNT; i++)
        kept[i] = rt_keep(123, 456, first + i, rate);
    int count = 0;
    for (int i = 0; i < COUNT; i++) {
        const int64_t at = first + i;
        const uint32_t x = rt_philox(123, 456, (uint32_t)at, (uint32_t)(at >> 32), 0, 0).x[0];
        check(kept[i] == ((double)(x >> 8) / 16777216.0 >= (double)rate), "element %d", i);
        count += kept[i];
    }
    /* five standard deviations of a binomial */
    check(fabs(count - 0.7 * COUNT) < 5 * sqrt(COUNT * 0.21), "%d of %d kept", count, COUNT);
    /* kept where the number is the rate itself */
    const float number = (float)(rt_philox(1, 2, 3, 0, 0, 0).x[0] >> 8) * 0x1p-24f;
    check(rt_keep(1, 2, 3, number) && !rt_keep(1, 2, 3, number + 0x1p-24f), "at the rate");
    check(rt_keep(1, 2, 3, 0.0f) && rt_fold_key(7, 9) == rt_philox(7, 0x6b657973, 9, 0, 1, 0).x[0], "edges");
}

int main(void)
{
    check_conversions();
    check_e4m3();
    check_functions();
    check_random();
    return report("element");
}
