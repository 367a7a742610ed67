/* peak.c -- the speed of the machine's best product, which the trainer's utilisation is a share of. */
#include "device.h"
#include "product.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double measure(RtType type, int64_t size, double seconds)
{
    Rt own = { 0 };
    const RtProductShape shape = { .m = size,
                                   .n = size,
                                   .k = size,
                                   .batch = 1,
                                   .a = { type, size, 1, 0 },
                                   .b = { type, size, 1, 0 },
                                   .c = { type, size, 1, 0 } };
    char *memory = calloc((size_t)(size * size) * 3, 4);
    if (!memory) /* the run goes on without it */
        return NAN;
    double best = 0, start = rt_seconds();
    rt_product_create(&own, 0, shape);
    for (int turn = 0; turn < 3 || rt_seconds() - start < seconds; turn++) {
        const double before = rt_seconds();
        rt_product(&own, 0, memory, memory + size * size * 4, memory + size * size * 8);
        const double flops = 2.0 * (double)(size * size * size) / (rt_seconds() - before);
        best = flops > best ? flops : best;
    }
    rt_products_free(&own);
    free(memory);
    return best;
}

double rt_product_peak(Rt *rt, double seconds)
{
    const bool bf16 = rt_multiplies_bf16() && rt->program && strcmp(rt->program->precision, "bf16") == 0;
    const double small = measure(bf16 ? RT_BF16 : RT_F32, 768, seconds / 2);
    const double large = measure(bf16 ? RT_BF16 : RT_F32, 1536, seconds / 2);
    return fmax(small, large);
}
