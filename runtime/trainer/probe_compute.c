/* probe_compute.c -- --probe: products, attention, copies and launches. */
#include "mesh/slots.h"
#include "probe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Places ------------------------------------------------------------------------------------------- */

/* An op of a step reads what the one before it has made; but its weights and what it writes were last used a
 * micro-batch or a step ago, and are in no cache if much memory has been used since.  So these have other places at
 * each call, and the first ones again when as much memory has been used as a step has. */

enum { PLACE = 256 }; /* a multiple of it is a place for an operand */

/* The number of the next of the places that so many bytes hold. */
static int64_t next_place(RtProbe *probe, int64_t all, int64_t bytes)
{
    return all < bytes ? 0 : probe->calls++ % (all / bytes);
}

/* --- Products ------------------------------------------------------------------------------------------- */

/* Of each size: one of squares; one of many rows, as a forward product of many tokens has; one of many terms, as the
 * gradient of a weight has; and one of many columns, as a forward product of few tokens has.  A size has 8 times the
 * FLOPs of the one before. */
enum { SIZES = 12, SHAPES = 4, LEAST_SIDE = 16, SQUARE = 4 };
static const struct {
    int m, n, k; /* in parts of which a square has SQUARE */
    bool is_transposed;
} shapes[SHAPES] = { { 4, 4, 4, false }, { 64, 1, 1, false }, { 1, 1, 64, true }, { 2, 16, 2, false } };

typedef struct {
    int number, precision, size;
    RtProductShape shape;
    double flops;
} ProbedProduct;

/* The first ones are those of RtType. */
static const struct {
    const char *key;
    RtType type;
    int block;         /* neighbours with a scale of 8 bits */
    const char *needs; /* the precision of a program that is measured in it; NULL: of any */
} precisions[RT_PROBED_PRECISIONS] = { { "f32", RT_F32, 0, NULL },
                                       { "bf16", RT_BF16, 0, NULL },
                                       { "f16", RT_F16, 0, "fp16" },
                                       { "e4m3", RT_BF16, 128, "fp8" } };

static RtProductShape shape_of(int precision, int size, int form)
{
    const int64_t part = ((int64_t)LEAST_SIDE << size) / SQUARE;
    const int64_t m = part * shapes[form].m, n = part * shapes[form].n, k = part * shapes[form].k;
    const bool is_transposed = shapes[form].is_transposed;
    const RtType type = precisions[precision].type;
    return (RtProductShape){ .m = m,
                             .n = n,
                             .k = k,
                             .batch = 1,
                             .block = precisions[precision].block,
                             .a = { type, is_transposed ? 1 : k, is_transposed ? m : 1, 0 },
                             .b = { type, n, 1, 0 },
                             .c = { type, n, 1, 0 } };
}

static int64_t bytes_of(const RtProductShape *s, int operand)
{
    const int64_t elements = operand == 0 ? s->m * s->k : operand == 1 ? s->k * s->n : s->m * s->n;
    return (elements * rt_type_bytes(s->a.type) + PLACE - 1) / PLACE * PLACE;
}

/* Product `number` of those that are measured; false: there are fewer. */
static bool find_product(const Rt *rt, int number, ProbedProduct *found)
{
    int left = number;
    for (int p = 0; p < RT_PROBED_PRECISIONS; p++)
        for (int i = 0;
             i < SIZES * SHAPES && (!precisions[p].needs || !strcmp(precisions[p].needs, rt->program->precision));
             i++) {
            const RtProductShape s = shape_of(p, i / SHAPES, i % SHAPES);
            const bool is_whole = !s.block || (s.k % s.block == 0 && s.m % s.block == 0 && s.n % s.block == 0);
            if (!is_whole || bytes_of(&s, 0) + bytes_of(&s, 1) + bytes_of(&s, 2) > rt->program->arena_bytes)
                continue;
            if (left-- == 0) {
                *found = (ProbedProduct){ number, p, i / SHAPES, s, 2.0 * (double)s.m * (double)s.n * (double)s.k };
                return true;
            }
        }
    return false;
}

void rt_probe_create(Rt *rt)
{
    ProbedProduct product;
    for (int i = 0; find_product(rt, i, &product); i++)
        rt_product_create(rt, i, product.shape);
}

/* The second operand is a weight.  Results are in another half of the memory, so that none becomes an operand. */
static void run_product(RtProbe *probe, const void *context)
{
    const ProbedProduct *product = context;
    const RtProductShape *s = &product->shape;
    const int64_t rest = rt_arena_bytes(probe->rt) - bytes_of(s, 0), b = bytes_of(s, 1), c = bytes_of(s, 2);
    const int64_t half = (probe->step_bytes < rest ? probe->step_bytes : rest) / (2 * PLACE) * PLACE;
    const int64_t larger = b > c ? b : c, place = next_place(probe, half, larger);
    char *all = probe->rt->arena, *results = all + (larger > half ? b : half);
    rt_product(probe->rt, product->number, all + rest, all + place * b, results + place * c);
}

void rt_probe_product(RtProbe *probe, int number)
{
    ProbedProduct product;
    if (find_product(probe->rt, number, &product))
        run_product(probe, &product);
}

int rt_probe_largest(const RtProbe *probe, RtType type, double seconds)
{
    ProbedProduct product;
    int largest = 0;
    for (int i = 0; find_product(probe->rt, i, &product) && product.precision <= (int)type; i++)
        if (product.precision == (int)type && product.flops < seconds * probe->flops[type])
            largest = i;
    return largest;
}

/* FLOPs and seconds of the products of one size, from number *at on, which goes to the next size. */
static void measure_size(RtProbe *probe, int *at, double *flops, double *seconds)
{
    ProbedProduct product, first;
    find_product(probe->rt, *at, &first);
    int count = 0;
    *flops = *seconds = 0;
    for (; find_product(probe->rt, *at, &product) && product.size == first.size && product.precision == first.precision;
         ++*at, count++) {
        *flops += product.flops;
        *seconds += rt_probe_mean(probe, run_product, product.number, &product);
    }
    *flops /= count;
    *seconds /= count;
}

/* A larger product takes no less time than a smaller one; the peak is that of the best one. */
static void write_products(RtProbe *probe, int precision, const double *flops, const double *seconds, int count)
{
    RtCurve curve = { 0 };
    double peak = 0, least[SIZES];
    char *key;
    for (int i = 0; i < count; i++) {
        least[i] = fmax(seconds[i], i ? least[i - 1] : 0);
        peak = fmax(peak, flops[i] / least[i]);
    }
    for (int i = 0; i < count; i++)
        rt_curve_add(&curve, flops[i], flops[i] / least[i] / peak);
    rt_probe_number(probe, key = rt_text("flops %s", precisions[precision].key), peak, "FLOP/s");
    free(key);
    rt_probe_curve(probe, key = rt_text("products %s", precisions[precision].key), &curve, "FLOP", "%");
    free(key);
    probe->flops[precision] = peak;
}

/* The sizes of each precision, up to one that takes too long. */
static void measure_products(RtProbe *probe)
{
    ProbedProduct product;
    for (int at = 0; find_product(probe->rt, at, &product);) {
        const int precision = product.precision;
        double flops[SIZES], seconds[SIZES];
        int count = 0;
        while (find_product(probe->rt, at, &product) && product.precision == precision) {
            if (count && 8 * seconds[count - 1] > probe->longest)
                at++;
            else {
                measure_size(probe, &at, &flops[count], &seconds[count]);
                count++;
            }
        }
        write_products(probe, precision, flops, seconds, count);
    }
}

/* The share of its speed that a product has when it has run for a while: a GPU that is hot, or draws all the power that
 * it may, is clocked down.  A processor's clock follows the same work at once. */
static void measure_sustained(RtProbe *probe)
{
    enum { TURNS = 40 };
    const double longest = probe->seconds / 4;
    const int number = rt_probe_largest(probe, RT_BF16, longest);
    ProbedProduct product;
    if (!probe->rt->program->code || !find_product(probe->rt, number, &product))
        return;
    const double first = rt_probe_time(probe, run_product, &product);
    double last = first;
    for (int turn = 0; turn < TURNS; turn++)
        last = rt_probe_time(probe, run_product, &product);
    rt_probe_number(probe, "sustained", fmin(first / last, 1), "%");
}

/* --- Attention -------------------------------------------------------------------------------------------- */

static void run_attention(RtProbe *probe, const void *context)
{
    const int number = *(const int *)context;
    RtProbedAttention of;
    rt_probe_attention(probe->rt, number, &of);
    rt_probe_attend(probe->rt, number, probe->rt->arena + next_place(probe, probe->step_bytes, of.bytes) * of.bytes);
}

/* The key of the line for attention of a kind; widths of heads between those that a file has are left out. */
static char *attention_key(const RtProbedAttention *of)
{
    const bool is_known = of->features == 32 || of->features == 64 || of->features == 128 || of->features == 256;
    return is_known ? rt_text("attention %s %s %lld", of->is_gradient ? "backward" : "forward",
                              of->type == RT_F32 ? "f32" : "bf16", (long long)of->features)
                    : NULL;
}

static bool is_same_line(const RtProbedAttention *a, const RtProbedAttention *b)
{
    return a->type == b->type && a->is_gradient == b->is_gradient && a->features == b->features;
}

static bool has_point(const RtCurve *curve, double x)
{
    for (int i = 0; i < curve->count; i++)
        if (curve->x[i] == x)
            return true;
    return false;
}

static void sort_points(RtCurve *curve)
{
    for (int i = 1; i < curve->count; i++)
        for (int k = i; k > 0 && curve->x[k] < curve->x[k - 1]; k--) {
            const double x = curve->x[k], y = curve->y[k];
            curve->x[k] = curve->x[k - 1], curve->y[k] = curve->y[k - 1];
            curve->x[k - 1] = x, curve->y[k - 1] = y;
        }
}

/* All attention of the kind of number `first`. */
static void measure_line(RtProbe *probe, int first)
{
    RtProbedAttention of, other;
    RtCurve curve = { 0 };
    rt_probe_attention(probe->rt, first, &of);
    rt_probe_fill(probe->rt, probe->rt->arena, probe->step_bytes); /* gradients of other lines are where operands are */
    char *key = attention_key(&of);
    for (int i = first; key && rt_probe_attention(probe->rt, i, &other); i++)
        if (is_same_line(&of, &other) && other.bytes <= probe->rt->program->arena_bytes &&
            !has_point(&curve, (double)other.keys))
            rt_curve_add(&curve, (double)other.keys, other.flops / rt_probe_mean(probe, run_attention, i, &i));
    sort_points(&curve);
    if (key)
        rt_probe_curve(probe, key, &curve, "", "FLOP/s");
    free(key);
}

static void measure_attention(RtProbe *probe)
{
    RtProbedAttention of, before;
    for (int i = 0; rt_probe_attention(probe->rt, i, &of); i++) {
        bool is_first = true;
        for (int k = 0; k < i && is_first; k++)
            is_first = rt_probe_attention(probe->rt, k, &before) && !is_same_line(&of, &before);
        if (is_first)
            measure_line(probe, i);
    }
}

/* --- Memory -------------------------------------------------------------------------------------------------- */

/* Of what the copy before it has written. */
static void run_copy(RtProbe *probe, const void *context)
{
    const int64_t bytes = *(const int64_t *)context, held = probe->step_bytes / bytes;
    const int64_t places = held > 2 ? held : 2, from = probe->calls++ % places;
    char *all = probe->rt->arena;
    rt_probe_copy(probe->rt, all + (from + 1) % places * bytes, all + from * bytes, bytes);
}

static void run_fused(RtProbe *probe, const void *context)
{
    rt_probe_fused(probe->rt, probe->rt->arena, *(const int64_t *)context);
}

static void run_launch(RtProbe *probe, const void *context) { rt_probe_launch(probe->rt, probe->rt->arena); }

/* Of bytes read and written, without the launch; at each size no less time than at the next smaller one.  Returns the
 * bandwidth of the largest copy. */
static double measure_copies(RtProbe *probe, double launch)
{
    enum { LEAST = 16 << 10, STEP = 4 };
    RtCurve curve = { 0 };
    double least = 0, seconds = 0;
    for (int64_t bytes = LEAST; 2 * bytes <= rt_arena_bytes(probe->rt) && seconds * STEP < probe->longest;
         bytes *= STEP) {
        seconds = rt_probe_mean(probe, run_copy, bytes, &bytes);
        least = fmax(least, fmax(seconds - launch, seconds / STEP));
        rt_curve_add(&curve, 2.0 * (double)bytes, 2.0 * (double)bytes / least);
    }
    rt_probe_curve(probe, "copy", &curve, "B", "B/s");
    return curve.y[curve.count - 1];
}

/* In a processor's cache arithmetic counts.  What a GPU's kernel of large arrays moves is a share of copies. */
static void measure_fused(RtProbe *probe, double bandwidth, double launch)
{
    const int64_t cached = 3 << 20, all = rt_arena_bytes(probe->rt);
    const RtProbedKernel small = rt_probe_fused(probe->rt, probe->rt->arena, cached);
    const double seconds = rt_probe_mean(probe, run_fused, cached, &cached);
    if (!probe->rt->program->code) {
        rt_probe_number(probe, "elementwise", small.flops / seconds, "FLOP/s");
    } else if (seconds * (double)(all / cached) < probe->longest) {
        const RtProbedKernel large = rt_probe_fused(probe->rt, probe->rt->arena, all);
        const double moving = rt_probe_mean(probe, run_fused, all, &all) - launch;
        if (large.moved > small.moved) /* else it does not fit */
            rt_probe_number(probe, "kernels", fmin(large.moved / moving / bandwidth, 1), "%");
    }
}

static void measure_memory(RtProbe *probe)
{
    const double launch = rt_probe_mean(probe, run_launch, 0, NULL), bandwidth = measure_copies(probe, launch);
    measure_fused(probe, bandwidth, launch);
    rt_probe_number(probe, "launch", launch, "s");
}

/* Each begins with plain numbers: functions of what is infinite take longer. */
void rt_probe_compute(RtProbe *probe)
{
    void (*const measure[])(RtProbe *) = { measure_products, measure_sustained, measure_attention, measure_memory };
    for (size_t i = 0; i < sizeof measure / sizeof *measure; i++) {
        rt_probe_fill(probe->rt, probe->rt->arena, rt_arena_bytes(probe->rt));
        measure[i](probe);
    }
}
