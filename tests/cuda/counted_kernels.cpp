/* counted_kernels.cpp -- the kernels of counted_cases.def, for test_counted.c: NAME_count and NAME_product.
 *
 * Matrices follow each other; lines are 8 elements apart, those of C two. */
#include "wrap.h"

#include "cuda/kernels.cuh"

typedef float rt_f32;

/* The stride of lines of `length` elements of 16 bits, or of C's. */
constexpr int line_of(int length, int gap) { return length + gap; }

constexpr RtCountedMatrix matrix_of(int lines, int length, int gap)
{
    return { (int64_t)lines * line_of(length, gap), line_of(length, gap) };
}

constexpr RtCountedProduct shape_of(bool a_by_terms, bool b_by_terms, int m, int n, int k)
{
    return { m,
             n,
             k,
             a_by_terms ? matrix_of(m, k, 8) : matrix_of(k, m, 8),
             b_by_terms ? matrix_of(n, k, 8) : matrix_of(k, n, 8),
             matrix_of(m, n, 2) };
}

/* Of the operand that is looked at: A's, if its lines are those that are counted. */
constexpr bool is_of_a(RtCountedSize counted, bool a_by_terms)
{
    return counted == RT_COUNTED_ROWS || (counted == RT_COUNTED_TERMS && !a_by_terms);
}

constexpr RtCountedLines lines_of(RtCountedSize counted, bool a_by_terms, RtCountedProduct s)
{
    const bool of_a = is_of_a(counted, a_by_terms);
    const int outer = of_a ? s.m : s.n;
    return { of_a ? s.a : s.b, counted == RT_COUNTED_TERMS ? s.k : outer, counted == RT_COUNTED_TERMS ? outer : s.k };
}

#define CASE(name, counted, a_by_terms, b_by_terms, add, type, result, m, n, k)                                        \
    extern "C" __global__ void name##_count_kernel(const rt_##type *a, const rt_##type *b, rt_##result *,              \
                                                   int32_t *filled)                                                    \
    {                                                                                                                  \
        constexpr RtCountedProduct shape = shape_of(a_by_terms, b_by_terms, m, n, k);                                  \
        rt_count_filled(is_of_a(RT_COUNTED_##counted, a_by_terms) ? a : b, filled,                                     \
                        lines_of(RT_COUNTED_##counted, a_by_terms, shape));                                            \
    }                                                                                                                  \
    extern "C" void name##_count_emulated(void **arguments) { emulator_call(name##_count_kernel, arguments); }                  \
    extern "C" __global__ void name##_product_kernel(const rt_##type *a, const rt_##type *b, rt_##result *c,           \
                                                     const int32_t *filled)                                            \
    {                                                                                                                  \
        constexpr RtCountedProduct shape = shape_of(a_by_terms, b_by_terms, m, n, k);                                  \
        rt_counted_product<RT_COUNTED_##counted, a_by_terms, b_by_terms, add>(a, b, c, filled, shape);                 \
    }                                                                                                                  \
    extern "C" void name##_product_emulated(void **arguments) { emulator_call(name##_product_kernel, arguments); }
#include "counted_cases.def"
#undef CASE

#include "sections.h"
