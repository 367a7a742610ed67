/* probe.c -- measurements of --probe on a GPU: attention of the shapes that the program has. */
#include "attention.h"
#include "gpu.h"

#include <math.h>
#include <string.h>

void rt_probe_fill(Rt *rt, char *memory, int64_t bytes) { rt_gpu_fill(rt, memory, bytes); }

void rt_probe_launch(Rt *rt, char *memory) { rt_zero_bytes(rt, memory, 4); }

void rt_probe_copy(Rt *rt, char *to, const char *from, int64_t bytes) { rt_copy_bytes(rt, to, from, bytes); }

/* --- A fused kernel ------------------------------------------------------------------------------------ */

enum { THREADS = 256, PACK = 8, ROW = 4096, LAUNCHES = 2 };

static const char fused[] =
    "\n\n/* What --probe times: gelu of x and a bias, and a residual; 8 elements a thread, 4096 a row. */\n"
    "extern \"C\" __global__ void __launch_bounds__(256)\n"
    "    rt_probed_kernel(const rt_bf16 *__restrict__ x, const rt_bf16 *__restrict__ bias,\n"
    "                 const rt_bf16 *__restrict__ residual, rt_bf16 *__restrict__ y)\n"
    "{\n"
    "    const int item = (int)blockIdx.x * 256 + threadIdx.x;\n"
    "    const RtPack<rt_bf16, 8> x_pack = rt_load_pack<8>(x + item * 8);\n"
    "    const RtPack<rt_bf16, 8> bias_pack = rt_load_pack<8>(bias + item * 8 % 4096);\n"
    "    const RtPack<rt_bf16, 8> residual_pack = rt_load_pack<8>(residual + item * 8);\n"
    "    RtPack<float, 8> y_pack;\n"
    "#pragma unroll\n"
    "    for (int e = 0; e < 8; e++) {\n"
    "        const float sum = rt_load_bf16(x_pack[e]) + rt_load_bf16(bias_pack[e]);\n"
    "        y_pack[e] = rt_gelu_tanh(sum) + rt_load_bf16(residual_pack[e]);\n"
    "    }\n"
    "    rt_store_pack(y + item * 8, y_pack);\n"
    "}\n";

/* Blocks of its launches: a megabyte of each operand, which stays in the cache, and 128. */
static const int64_t blocks[LAUNCHES] = { 256, 32768 };

static int64_t elements_of(int launch) { return blocks[launch] * THREADS * PACK; }

const RtCode *rt_probe_code(const RtCode *code)
{
    RtCode *more = rt_allocate(1, sizeof *more);
    RtKernelLaunch *launches = rt_allocate(code->nlaunches + LAUNCHES, sizeof *launches);
    *more = *code;
    memcpy(launches, code->launches, (size_t)code->nlaunches * sizeof *launches);
    for (int i = 0; i < LAUNCHES; i++)
        launches[more->nlaunches++] = (RtKernelLaunch){
            .name = "rt_probed_kernel", .where = "--probe", .blocks = blocks[i], .threads = THREADS, .operands = 4
        };
    more->launches = launches;
    more->text = rt_text("%s%s", code->text, fused);
    return more;
}

RtProbedKernel rt_probe_fused(Rt *rt, char *memory, int64_t bytes)
{
    const int64_t element = sizeof(rt_bf16), least = (3 * elements_of(1) + ROW) * element;
    const int launch = bytes >= least;
    const int64_t elements = elements_of(launch);
    rt_bf16 *x = (rt_bf16 *)memory, *residual = x + elements, *y = residual + elements;
    RT_LAUNCH(rt, rt->program->code->nlaunches - LAUNCHES + launch, x, y + elements, residual, y);
    return (RtProbedKernel){ RT_PROBED_FLOPS * (double)elements, 3.0 * (double)(elements * element) };
}

/* --- Attention ----------------------------------------------------------------------------------------- */

/* Bytes of a tensor of so many rows in 16 bits, a multiple of what operands are aligned to. */
static int64_t extent(const RtAttentionShape *s, RtHeads of, int64_t rows, int64_t heads)
{
    enum { ALIGNMENT = 256 };
    const int64_t last = (s->batch - 1) * of.batch + (rows - 1) * of.row + (heads - 1) * of.head + s->feature;
    return (2 * last + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The operands of rt_attention one behind the other; the bytes of all of them. */
static int64_t place_operands(const RtAttentionShape *s, char *memory, const void *operand[])
{
    const RtHeads of_queries[] = { s->q, s->y, s->dy, s->dq }, of_keys[] = { s->k, s->v, s->dk, s->dv };
    int64_t queries[4], keys[4], at = 0;
    for (int i = 0; i < 4; i++) {
        queries[i] = extent(s, of_queries[i], s->queries, s->heads);
        keys[i] = extent(s, of_keys[i], s->keys, s->key_heads);
    }
    const int64_t lse = 4 * s->batch * s->heads * s->queries;
    const int64_t bytes[] = { queries[0], keys[0],    keys[1], queries[1], lse,
                              queries[2], queries[3], keys[2], keys[3],    lse };
    for (int i = 0; i < rt_attention_operands(s); i++) {
        operand[i] = memory + at;
        at += (bytes[i] + 255) / 256 * 256;
    }
    return at;
}

static double pairs_of(const RtAttentionShape *s)
{
    const double queries = (double)s->queries, keys = (double)s->keys;
    const double seen = s->window ? fmin((double)s->window, keys) : s->causal ? (keys + 1) / 2 : keys;
    return queries * seen * (double)(s->batch * s->heads);
}

bool rt_probe_attention(const Rt *rt, int i, RtProbedAttention *what)
{
    const RtCode *code = rt->program->code;
    const void *operand[RT_ATTEND_END];
    if (i >= code->nattentions)
        return false;
    const RtAttentionShape *s = &code->attentions[i];
    *what = (RtProbedAttention){ .type = s->type,
                                 .is_gradient = s->is_gradient,
                                 .keys = s->keys,
                                 .features = s->feature,
                                 .bytes = place_operands(s, NULL, operand),
                                 .flops = (s->is_gradient ? 10 : 4) * pairs_of(s) * (double)s->feature };
    return true;
}

void rt_probe_attend(Rt *rt, int i, char *memory)
{
    const void *operand[RT_ATTEND_END];
    place_operands(&rt->program->code->attentions[i], memory, operand);
    rt_attention(rt, i, operand);
}

double rt_probe_memory(const Rt *rt)
{
    size_t free_bytes = 0, total = 0;
    rt_gpu_check(rt, cudaMemGetInfo(&free_bytes, &total), "tell its memory");
    return (double)total;
}
