/* probe.c -- timings by --probe on a processor: kernels of the level of vectors that the trainer is compiled for, which
 * the program names. */
#include "device.h"
#include "kernels/library.h"

#include <string.h>

void rt_probe_fill(Rt *rt, char *memory, int64_t bytes)
{
    enum { SOME = 1 << 17 };
    uint32_t random = 1;
    int64_t done = bytes < SOME ? bytes : SOME;
    for (int64_t i = 0; i + 2 <= done; i += 2) {
        random = random * 1664525u + 1013904223u; /* D. E. Knuth's */
        const uint16_t number = (uint16_t)(0x3F00 | (random >> 16 & 0x807F));
        memcpy(memory + i, &number, sizeof number);
    }
    for (int64_t next; done < bytes; done += next) {
        next = done < bytes - done ? done : bytes - done;
        memcpy(memory + done, memory, (size_t)next);
    }
}

enum { ROW = 1024 }; /* elements */

void rt_probe_launch(Rt *rt, char *memory)
{
    float *rows = (float *)memory;
    rt->program->probe->copy(rows, rows + rt->threads, rt->threads, 1);
}

/* A few rows for each thread at least, as trainers have. */
static int64_t columns_of(const Rt *rt, int64_t elements)
{
    const int64_t columns = elements / (4 * (int64_t)rt->threads);
    return columns < 1 ? 1 : columns < ROW ? columns : ROW;
}

void rt_probe_copy(Rt *rt, char *to, const char *from, int64_t bytes)
{
    const int64_t elements = bytes / (int64_t)sizeof(float), columns = columns_of(rt, elements);
    rt->program->probe->copy((const float *)from, (float *)to, elements / columns, columns);
}

RtProbedKernel rt_probe_fused(Rt *rt, char *memory, int64_t bytes)
{
    const int64_t rows = bytes / (3 * ROW * (int64_t)sizeof(float)) - 1, elements = rows * ROW;
    float *x = (float *)memory, *bias = x + 3 * elements;
    rt->program->probe->activate(x, bias, x + elements, x + 2 * elements, rows, ROW);
    return (RtProbedKernel){ RT_PROBED_FLOPS * (double)elements, 3.0 * (double)elements * sizeof(float) };
}

const RtCode *rt_probe_code(const RtCode *code) { return code; }

/* --- Attention ------------------------------------------------------------------------------------- */

static const int widths[] = { 32, 64, 128, 256 }, lengths[] = { 64, 256, 1024 };
static const RtType types[] = { RT_F32, RT_BF16 };
enum { WIDTHS = 4, LENGTHS = 3, TYPES = 2, DIRECTIONS = 2 };

/* Causal, of sequences that have 1,024 tokens together; of two heads for each thread. */
static RtAttend shape_of(const Rt *rt, int i)
{
    const int64_t keys = lengths[i % LENGTHS], width = widths[i / LENGTHS % WIDTHS], batch = 1024 / keys;
    const int64_t heads = 2 * (int64_t)rt->threads;
    const RtAttendStride stride = { keys * heads * width, heads * width, width, 0 };
    return (RtAttend){ .batch = batch,
                       .queries = keys,
                       .keys = keys,
                       .heads = heads,
                       .group = 1,
                       .feature = width,
                       .q = stride,
                       .k = stride,
                       .v = stride,
                       .y = stride,
                       .dy = stride,
                       .dq = stride,
                       .dk = stride,
                       .dv = stride,
                       .lse = { heads * keys, 1, keys, 0 },
                       .type = types[i / (LENGTHS * WIDTHS) % TYPES],
                       .causal = true,
                       .scale = 1.0f / (float)width };
}

enum { TENSORS = 8 }; /* q, k, v, y and their gradients */

static int64_t tensor_bytes(const RtAttend *s) { return 4 * s->batch * s->keys * s->heads * s->feature; }

bool rt_probe_attention(const Rt *rt, int i, RtProbedAttention *what)
{
    const RtAttend s = shape_of(rt, i);
    const bool is_gradient = i >= LENGTHS * WIDTHS * TYPES;
    const double pairs = (double)s.keys * (double)(s.keys + 1) / 2 * (double)(s.batch * s.heads);
    *what = (RtProbedAttention){ .type = s.type,
                                 .is_gradient = is_gradient,
                                 .keys = s.keys,
                                 .features = s.feature,
                                 .bytes = (TENSORS + 2) * tensor_bytes(&s), /* log-sum-exps and scratch */
                                 .flops = (is_gradient ? 10 : 4) * pairs * (double)s.feature };
    return i < LENGTHS * WIDTHS * TYPES * DIRECTIONS;
}

void rt_probe_attend(Rt *rt, int i, char *memory)
{
    const RtProbeKernels *kernels = rt->program->probe;
    const RtAttend s = shape_of(rt, i);
    char *at[TENSORS + 2];
    for (int k = 0; k < TENSORS + 2; k++)
        at[k] = memory + k * tensor_bytes(&s);
    float *lse = (float *)at[TENSORS];
    if (i >= LENGTHS * WIDTHS * TYPES)
        kernels->attend_grad(at[0], at[1], at[2], at[3], lse, at[4], NULL, NULL, NULL, at[5], at[6], at[7],
                             at[TENSORS + 1], s);
    else
        kernels->attend(at[0], at[1], at[2], NULL, NULL, NULL, NULL, at[3], lse, s);
}

double rt_probe_memory(const Rt *rt) { return rt->share.memory; }
