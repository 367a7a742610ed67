/* product_kernel.c -- chooses among oneDNN's kernels for a product, where its first one is not the fastest.
 *
 * oneDNN lists several implementations of a product, and takes the first that can run it: "brg", which multiplies
 * blocks of rows where they lie.  On Intel's processors with AVX-512 its other one, "gemm", which copies both operands
 * into blocks first, is faster for f32 (rows of 12 KiB meet in the same lines of the cache: 280 GFLOP/s instead of
 * 130), and for bf16 where A is transposed; the tiles of AMX are fastest in "brg" otherwise.  On AMD's the two are
 * within 8% of each other.  bench/kernels prints the figures of a machine.
 *
 * The choice depends on the processor alone and not on times: a run has the same bits again. */
#include "product.h"

#include "processor_has.h"

#include <string.h>

#ifdef __x86_64__
#include <cpuid.h>

static bool is_intel(void)
{
    unsigned highest, vendor[3] = { 0 };
    return __get_cpuid(0, &highest, &vendor[0], &vendor[2], &vendor[1]) && !memcmp(vendor, "GenuineIntel", 12);
}
#else
static bool is_intel(void) { return false; }
#endif

static bool is_intel_with_avx512(void)
{
    static enum { UNKNOWN, NO, YES } known; /* all threads find the same */
    if (known == UNKNOWN)
        known = is_intel() && rt_processor_has("avx512f") ? YES : NO;
    return known == YES;
}

const char *rt_product_kernel(RtType multiplied, bool is_transposed)
{
    return is_intel_with_avx512() && (multiplied == RT_F32 || is_transposed) ? "gemm" : "";
}

bool rt_product_needs_no_gaps(void) { return rt_processor_has("amx-bf16"); }

/* For AVX2 "gemm" reads B where it lies if A has few rows, a block of columns at a time.  Rows that are a multiple of
 * half a way of the first cache apart meet in one or two of its sets: 45 GFLOP/s instead of 80 to 90 with 32 to 320
 * rows of A and rows of B of 512, 1024, 1536, 2048 and 3072 elements, the copy counted; other rows lose up to 15% by
 * it. */
bool rt_product_is_faster_spaced(int64_t m, int64_t row)
{
    enum { LEAST = 32, COPIED_BY_ONEDNN = 384, ELEMENTS = 2048 / 4 };
    return m >= LEAST && m < COPIED_BY_ONEDNN && row % ELEMENTS == 0;
}
