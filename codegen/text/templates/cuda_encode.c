/* Operands of products in 8 bits, whose terms lie next to each other, or whose lines; in lines or squares of a scale. */
extern "C" __global__ void __launch_bounds__(256)
    rt_encode_by_terms(const rt_bf16 *x, uint8_t *codes, float *scales, int64_t lines, int64_t terms, int64_t line)
{
    rt_encode_terms(x, codes, scales, RtEncoding{ lines, terms, line, 1 });
}

extern "C" __global__ void __launch_bounds__(256)
    rt_encode_by_lines(const rt_bf16 *x, uint8_t *codes, float *scales, int64_t lines, int64_t terms, int64_t term)
{
    rt_encode_lines(x, codes, scales, RtEncoding{ lines, terms, 1, term });
}

extern "C" __global__ void __launch_bounds__(256)
    rt_encode_squares_by_terms(const rt_bf16 *x, uint8_t *codes, float *scales, int64_t lines, int64_t terms, int64_t line)
{
    rt_encode_square<true, false>(x, codes, scales, RtEncoding{ lines, terms, line, 1 });
}

extern "C" __global__ void __launch_bounds__(256)
    rt_encode_squares_by_lines(const rt_bf16 *x, uint8_t *codes, float *scales, int64_t lines, int64_t terms, int64_t term)
{
    rt_encode_square<false, false>(x, codes, scales, RtEncoding{ lines, terms, 1, term });
}

extern "C" __global__ void __launch_bounds__(256)
    rt_encode_square_lines_by_terms(const rt_bf16 *x, uint8_t *codes, float *scales, int64_t lines, int64_t terms, int64_t line)
{
    rt_encode_square<true, true>(x, codes, scales, RtEncoding{ lines, terms, line, 1 });
}

extern "C" __global__ void __launch_bounds__(256)
    rt_encode_square_lines_by_lines(const rt_bf16 *x, uint8_t *codes, float *scales, int64_t lines, int64_t terms, int64_t term)
{
    rt_encode_square<false, true>(x, codes, scales, RtEncoding{ lines, terms, 1, term });
}
