/* peak.c -- the speed of the GPU's best product, which the trainer's utilisation is a share of.
 *
 * It is measured at the start.  A measurement far from what the GPU's data sheet says is not believed: the GPU was busy
 * or slowed down, or its clock says other things than the processor's. */
#include "gpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Dense products by data sheets, in Tflop/s: f32 without TF32, and bf16 or f16 with sums in f32.  Names with more words
 * stand first. */
static const struct {
    const char *name;
    double f32, halves;
} sheets[] = {
    { "B200", 75, 2250 },     { "GH200", 67, 990 },    { "H200 NVL", 60, 835 }, { "H200", 67, 989 },
    { "H100 PCIe", 51, 756 }, { "H100 NVL", 60, 835 }, { "H100", 67, 989 },     { "H800 PCIe", 51, 756 },
    { "H800", 67, 989 },      { "H20", 44, 148 },      { "A100", 19.5, 312 },   { "A800", 19.5, 312 },
    { "A40", 37.4, 149.7 },   { "A30", 10.3, 165 },    { "A10", 31.2, 125 },    { "L40S", 91.6, 362 },
    { "L40", 90.5, 181 },     { "L4", 30.3, 121 },
};

static bool is_word(const char *in, const char *word)
{
    const char *at = strstr(in, word), *end = at ? at + strlen(word) : NULL;
    return at && (at == in || at[-1] == ' ') && (*end == '\0' || *end == ' ' || *end == '-');
}

void rt_gpu_find_sheet(struct RtGpu *gpu, const char *model)
{
    for (size_t i = 0; i < sizeof sheets / sizeof *sheets; i++)
        if (is_word(model, sheets[i].name)) {
            gpu->sheet[0] = 1e12 * sheets[i].f32;
            gpu->sheet[1] = 1e12 * sheets[i].halves;
            return;
        }
}

void rt_gpu_fill(Rt *rt, char *memory, int64_t bytes)
{
    enum { SOME = 1 << 16 };
    uint16_t *some = rt_allocate(SOME, sizeof *some);
    uint32_t random = 1;
    for (int i = 0; i < SOME; i++) {
        random = random * 1664525u + 1013904223u; /* D. E. Knuth's */
        some[i] = (uint16_t)(0x3F00 | (random >> 16 & 0x807F));
    }
    int64_t done = bytes < SOME * 2 ? bytes : SOME * 2;
    rt_gpu_check(rt, cudaMemcpyAsync(memory, some, (size_t)done, cudaMemcpyHostToDevice, rt->gpu->compute),
                 "copy to its memory");
    for (int64_t next; done < bytes; done += next) {
        next = done < bytes - done ? done : bytes - done;
        rt_gpu_check(rt,
                     cudaMemcpyAsync(memory + done, memory, (size_t)next, cudaMemcpyDeviceToDevice, rt->gpu->compute),
                     "copy in its memory");
    }
    rt_gpu_check(rt, cudaStreamSynchronize(rt->gpu->compute), "copy in its memory");
    free(some);
}

typedef struct {
    int id;
    int64_t size, bytes; /* of a matrix */
    char *memory;
} Square;

/* Seconds of one of AT_ONCE products, one behind the other: the processor's waiting counts less. */
static double time_of(Rt *rt, const Square *s)
{
    enum { AT_ONCE = 4 };
    double before = rt_seconds();
    for (int i = 0; i < AT_ONCE; i++)
        rt_product(rt, s->id, s->memory, s->memory + s->bytes, s->memory + 2 * s->bytes);
    rt_gpu_check(rt, cudaStreamSynchronize(rt->gpu->compute), "multiply");
    return (rt_seconds() - before) / AT_ONCE;
}

/* Seconds of the fastest, after a first one, which loads cuBLASLt's kernel. */
static double measure(Rt *rt, const Square *s, RtType type, double seconds)
{
    const RtProductShape shape = { .m = s->size,
                                   .n = s->size,
                                   .k = s->size,
                                   .batch = 1,
                                   .a = { type, s->size, 1, 0 },
                                   .b = { type, s->size, 1, 0 },
                                   .c = { type, s->size, 1, 0 } };
    rt_product_create(rt, s->id, shape);
    time_of(rt, s);
    double best = INFINITY, start = rt_seconds();
    for (int iteration = 0; iteration < 3 || rt_seconds() - start < seconds; iteration++)
        best = fmin(best, time_of(rt, s));
    return best;
}

/* Measures increasing sizes, while the next one is fast enough and fits into free memory. */
static double measured_peak(Rt *rt, RtType type, double seconds, int64_t *size)
{
    enum { LEAST = 128, MOST = 8192 };
    double best = 0, time = 0;
    int id = rt_gpu_products_count(rt);
    for (int64_t next = LEAST; next <= MOST && 8 * time < seconds / 4; next *= 2) {
        Square square = { id++, next, next * next * (type == RT_F32 ? 4 : 2), NULL };
        void *memory;
        if (cudaMalloc(&memory, (size_t)(3 * square.bytes)) != cudaSuccess)
            break;
        square.memory = memory;
        rt_gpu_fill(rt, memory, 3 * square.bytes);
        time = measure(rt, &square, type, next == MOST ? seconds : 0);
        rt_gpu_check(rt, cudaFree(memory), "free memory");
        double flops = 2.0 * (double)(next * next * next) / time;
        if (flops > best) {
            best = flops;
            *size = next;
        }
    }
    return best > 0 ? best : NAN;
}

double rt_product_peak(Rt *rt, double seconds)
{
    const double least_share = 0.5, most_share = 1.1;
    const bool is_f32 = strcmp(rt->program->precision, "fp32") == 0;
    const char *type = is_f32 ? "f32" : "bf16";
    int64_t size = 0;
    double peak = measured_peak(rt, is_f32 ? RT_F32 : RT_BF16, seconds, &size), sheet = rt->gpu->sheet[!is_f32];
    if (isnan(peak))
        return peak;
    const bool is_believed = sheet == 0 || (peak > least_share * sheet && peak < most_share * sheet);
    char *by_sheet = sheet > 0 ? rt_text(", by the data sheet %.4g", sheet / 1e12) : rt_text("%s", "");
    rt_note("best product: %.4g Tflop/s in %s, %lld x %lld%s; mfu is of what %s", peak / 1e12, type, (long long)size,
            (long long)size, by_sheet, is_believed ? "was measured" : "the data sheet says");
    free(by_sheet);
    return is_believed ? peak : sheet;
}
