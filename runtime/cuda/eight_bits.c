/* eight_bits.c -- products of numbers of 8 bits, through cuBLASLt (Hopper; CUDA 12.9 and later).
 *
 * Operands of `block` are bf16 numbers, of which each block of terms is numbers of e4m3 times a power of two, or, if
 * they are `unrounded`, will be.  Before a product, a kernel writes both operands as such numbers and scales
 * (encode.cuh), so results are those of the product of the rounded numbers in 16 bits, but for the order of sums.
 * cuBLASLt takes a scale for each line of a block, or, for the operand of `squares`, one for 128 lines, which is
 * usually faster: two ways to compute the same.
 *
 * Which products are computed so: eight_choose.c. */
#include "eight_bits.h"

#include <stdlib.h>

enum { UNIT = 16 }; /* sizes are multiples of it, and so are addresses and steps between columns, in bytes */

/* --- Description ---------------------------------------------------------------------------- */

static RtEncoding encoding_of(const RtProductShape *s, bool of_a)
{
    return of_a ? (RtEncoding){ s->m, s->k, s->a.row, s->a.column } : (RtEncoding){ s->n, s->k, s->b.column, s->b.row };
}

static bool is_by_terms(const RtEncoding *e) { return e->term == 1; }

static bool may_be_encoded(const RtEncoding *e)
{
    const int64_t step = is_by_terms(e) ? e->line : e->term;
    return (is_by_terms(e) || e->line == 1) && e->lines % UNIT == 0 && step * 2 % UNIT == 0;
}

static bool may_be_eight(const Product *p)
{
    const RtProductShape *s = &p->shape;
    const RtEncoding a = encoding_of(s, true), b = encoding_of(s, false);
    const int64_t step = p->swapped ? s->c.row : s->c.column;
    return s->block == RT_ENCODE_BLOCK && !s->counted && !s->sums && s->batch == 1 && s->a.type == RT_BF16 &&
           s->b.type == RT_BF16 && s->c.type != RT_F16 && may_be_encoded(&a) && may_be_encoded(&b) &&
           step * (s->c.type == RT_F32 ? 4 : 2) % UNIT == 0;
}

/* In columns of terms; false if this version of cuBLASLt does not know such numbers. */
static bool describe_operand(Rt *rt, Description *d, int number, RtEncoding encoding, bool in_squares, bool by_squares)
{
    static const cublasLtMatmulDescAttributes_t modes[] = { CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
                                                            CUBLASLT_MATMUL_DESC_B_SCALE_MODE };
    static const char *const kernels[][2] = { { "rt_encode_by_lines", "rt_encode_by_terms" },
                                              { "rt_encode_square_lines_by_lines", "rt_encode_square_lines_by_terms" },
                                              { "rt_encode_squares_by_lines", "rt_encode_squares_by_terms" } };
    const struct RtGpuProducts *all = rt->gpu->products;
    const int32_t mode =
        by_squares ? CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F : CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    const int64_t blocks = encoding.terms / RT_ENCODE_BLOCK,
                  scales =
                      by_squares ? encoding.lines / RT_ENCODE_BLOCK * RT_ENCODE_ROW(blocks) : encoding.lines * blocks;
    EncodedOperand *operand = &d->operand[number];
    operand->encoding = encoding;
    operand->in_squares = in_squares;
    operand->kernel = rt_gpu_kernel(rt, kernels[in_squares + by_squares][is_by_terms(&encoding)]);
    operand->codes = d->bytes;
    operand->scales = operand->codes + rt_gpu_aligned(encoding.lines * encoding.terms);
    d->bytes = operand->scales + rt_gpu_aligned(scales * (int64_t)sizeof(float));
    return all->cublasLtMatrixLayoutCreate(&operand->layout, CUDA_R_8F_E4M3, (uint64_t)encoding.terms,
                                           (uint64_t)encoding.lines, encoding.terms) == CUBLAS_STATUS_SUCCESS &&
           rt_product_set(all, &d->request, modes[number], &mode, sizeof mode);
}

static bool describe(Rt *rt, const Product *p, Way way, Description *d)
{
    const struct RtGpuProducts *all = rt->gpu->products;
    const cublasOperation_t operation[] = { CUBLAS_OP_T, CUBLAS_OP_N };
    const bool squares[] = { p->shape.squares == (p->swapped ? RT_SQUARES_B : RT_SQUARES_A),
                             p->shape.squares == (p->swapped ? RT_SQUARES_A : RT_SQUARES_B) };
    const bool by_squares = way == BY_SQUARES;
    return all->cublasLtMatmulDescCreate(&d->request.description, CUBLAS_COMPUTE_32F, CUDA_R_32F) ==
               CUBLAS_STATUS_SUCCESS &&
           rt_product_set(all, &d->request, CUBLASLT_MATMUL_DESC_TRANSA, &operation[A], sizeof *operation) &&
           rt_product_set(all, &d->request, CUBLASLT_MATMUL_DESC_TRANSB, &operation[B], sizeof *operation) &&
           describe_operand(rt, d, A, encoding_of(&p->shape, !p->swapped), squares[A], squares[A] && by_squares) &&
           describe_operand(rt, d, B, encoding_of(&p->shape, p->swapped), squares[B], squares[B] && by_squares);
}

static void forget(const struct RtGpuProducts *all, Description *d)
{
    for (int i = 0; i < 2; i++)
        if (d->operand[i].layout)
            all->cublasLtMatrixLayoutDestroy(d->operand[i].layout);
    if (d->request.description)
        all->cublasLtMatmulDescDestroy(d->request.description);
    *d = (Description){ 0 };
}

void rt_eight_create(Rt *rt, Product *p)
{
    if (rt->gpu->options.no_fp8 || !may_be_eight(p))
        return;
    p->eight = rt_allocate(1, sizeof *p->eight);
    bool any = false;
    for (Way way = p->shape.squares ? BY_SQUARES : BY_LINES; way < N_WAYS; way++) {
        const bool is_known = describe(rt, p, way, &p->eight->by[way]);
        if (!is_known)
            forget(rt->gpu->products, &p->eight->by[way]);
        any |= is_known;
    }
    if (!any)
        rt_eight_free(rt->gpu->products, p);
}

void rt_eight_free(const struct RtGpuProducts *all, Product *p)
{
    for (Way way = 0; way < N_WAYS && p->eight; way++)
        forget(all, &p->eight->by[way]);
    free(p->eight);
    p->eight = NULL;
}

/* --- Running -------------------------------------------------------------------------------- */

bool rt_eight_is_used(const Product *p, const Pointers *at)
{
    const uintptr_t all =
        (uintptr_t)at->a | (uintptr_t)at->b | (uintptr_t)at->to | (uintptr_t)at->c | (uintptr_t)at->before;
    const bool is_used = p->eight && p->eight->is_used;
    if (is_used && p->shape.unrounded && all % UNIT)
        rt_fail("internal: product %lld x %lld x %lld rounds operands whose addresses are no multiples of %d",
                (long long)p->shape.m, (long long)p->shape.n, (long long)p->shape.k, UNIT);
    return is_used && all % UNIT == 0;
}

bool rt_product_in_8(const Rt *rt, int id)
{
    const Product *p = &rt->gpu->products->product[id];
    return p->eight && p->eight->is_used;
}

static void encode(Rt *rt, const EncodedOperand *operand, const void *x)
{
    const RtEncoding *e = &operand->encoding;
    const bool by_terms = is_by_terms(e), by_warps = by_terms && !operand->in_squares;
    const int64_t lines = operand->in_squares ? RT_ENCODE_BLOCK : RT_ENCODE_LINES, blocks = e->terms / RT_ENCODE_BLOCK,
                  step = by_terms ? e->line : e->term,
                  count = by_warps ? (e->lines * blocks + RT_ENCODE_WARPS - 1) / RT_ENCODE_WARPS
                                   : (e->lines + lines - 1) / lines * blocks;
    const void *codes = rt->gpu->encode_space + operand->codes, *scales = rt->gpu->encode_space + operand->scales;
    void *arguments[] = { (void *)&x,        (void *)&codes,    (void *)&scales,
                          (void *)&e->lines, (void *)&e->terms, (void *)&step };
    rt_gpu_check(rt,
                 cudaLaunchKernel((const void *)operand->kernel, (dim3){ (unsigned)count, 1, 1 },
                                  (dim3){ 32 * RT_ENCODE_WARPS, 1, 1 }, arguments,
                                  by_terms ? 0 : (size_t)lines * RT_ENCODE_PITCH * sizeof(uint16_t), rt->gpu->compute),
                 "write numbers of 8 bits");
}

void rt_eight_encode(Rt *rt, const Product *p, const Pointers *at)
{
    const Description *d = &p->eight->by[p->eight->way];
    encode(rt, &d->operand[A], p->swapped ? at->b : at->a);
    encode(rt, &d->operand[B], p->swapped ? at->a : at->b);
}

cublasStatus_t rt_eight_run(Rt *rt, const Product *p, const Pointers *at)
{
    const struct RtGpuProducts *all = rt->gpu->products;
    const EightBits *eight = p->eight;
    const Description *d = &eight->by[eight->way];
    const float one = 1, zero = 0;
    rt_eight_encode(rt, p, at);
    return all->cublasLtMatmul(all->handle, d->request.description, &one, rt->gpu->encode_space + d->operand[A].codes,
                               d->operand[A].layout, rt->gpu->encode_space + d->operand[B].codes, d->operand[B].layout,
                               p->shape.accumulate ? &one : &zero, at->to ? at->to : at->c, p->layout[C], at->c,
                               p->layout[C], &eight->algorithm, rt->gpu->product_space, WORKSPACE, rt->gpu->compute);
}

bool rt_eight_point(Rt *rt, Description *d)
{
    bool good = true;
    for (int i = 0; i < 2; i++) {
        const void *scales = rt->gpu->encode_space + d->operand[i].scales;
        good =
            good && rt_product_set(rt->gpu->products, &d->request,
                                   i == A ? CUBLASLT_MATMUL_DESC_A_SCALE_POINTER : CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
                                   &scales, sizeof scales);
    }
    return good;
}
