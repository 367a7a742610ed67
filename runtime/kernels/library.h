/* library.h -- kernels that are compiled when mpc is built, and linked into trainers.
 *
 * They take longer to compile than all else in a trainer, and no shape is a constant in them (kernels.h), so that
 * compiling them with a model gains nothing.  There is one object for each level of vectors.  A trainer calls that of
 * the processor that it is compiled for, not that of the processor that it runs on: all ranks compute the same numbers.
 * Each function is defined, and described, in the header that the line above it names.
 */
#ifndef MPC_KERNELS_LIBRARY_H
#define MPC_KERNELS_LIBRARY_H

#include "element.h"
#include "shape.h"

/* The level: of x86-64, as gcc counts, or what all processors of a kind have. */
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define RT_OF_LEVEL(name) name##_v4
#elif defined(__AVX2__) && defined(__FMA__) && defined(__BMI2__)
#define RT_OF_LEVEL(name) name##_v3
#else
#define RT_OF_LEVEL(name) name##_base
#endif

#define rt_attend RT_OF_LEVEL(rt_attend)
#define rt_attend_grad RT_OF_LEVEL(rt_attend_grad)
#define rt_attend_bias_grad RT_OF_LEVEL(rt_attend_bias_grad)
#define rt_rope RT_OF_LEVEL(rt_rope)
#define rt_gather RT_OF_LEVEL(rt_gather)
#define rt_scatter_add RT_OF_LEVEL(rt_scatter_add)
#define rt_cumulative RT_OF_LEVEL(rt_cumulative)
#define rt_top_k RT_OF_LEVEL(rt_top_k)
#define rt_place RT_OF_LEVEL(rt_place)
#define rt_dispatch RT_OF_LEVEL(rt_dispatch)
#define rt_combine RT_OF_LEVEL(rt_combine)
#define rt_collect RT_OF_LEVEL(rt_collect)
#define rt_probe_copy_rows RT_OF_LEVEL(rt_probe_copy_rows)
#define rt_probe_activate RT_OF_LEVEL(rt_probe_activate)

/* attend.h */
void rt_attend(const void *q, const void *k, const void *v, const float *bias, const float *sinks,
               const int32_t *query_segment, const int32_t *key_segment, void *y, float *lse, const RtAttend s);

/* attend_grad.h */
void rt_attend_grad(const void *q, const void *k, const void *v, const void *y, const float *lse, const void *dy,
                    const float *bias, const int32_t *query_segment, const int32_t *key_segment, void *dq, void *dk,
                    void *dv, void *scratch, const RtAttend s);

/* attend_bias.h */
void rt_attend_bias_grad(const void *q, const void *k, const void *v, const float *share, const float *lse,
                         const void *dy, const float *bias, const int32_t *query_segment, const int32_t *key_segment,
                         float *dbias, const RtAttend s);

/* rope.h */
void rt_rope(const void *x, const int32_t *position, void *y, const RtRope s);

/* gather.h */
void rt_gather(const void *table, const int32_t *index, void *picked, const RtGather s);
void rt_scatter_add(const void *picked, const int32_t *index, const void *sum, void *table, const RtGather s);

/* cumulative.h */
void rt_cumulative(const void *x, void *y, const RtCumulative s);

/* experts.h */
void rt_top_k(const void *x, int32_t *y, const RtTopK s);
void rt_place(const int32_t *chosen, int32_t *place, const RtQueueShape s);
void rt_dispatch(const void *x, const int32_t *chosen, const int32_t *place, void *y, const RtRoute s);
void rt_combine(const void *x, const int32_t *chosen, const int32_t *place, void *y, const RtRoute s);
void rt_collect(const void *x, const int32_t *chosen, const int32_t *place, const float *weight, float *y,
                const RtRoute s);

/* probe.h */
void rt_probe_copy_rows(const float *x, float *y, int64_t rows, int64_t columns);
void rt_probe_activate(const float *x, const float *bias, const float *residual, float *y, int64_t rows,
                       int64_t columns);

/* What --probe times on a processor: kernels of the level that the trainer is compiled for. */
struct RtProbeKernels {
    void (*attend)(const void *q, const void *k, const void *v, const float *bias, const float *sinks,
                   const int32_t *query_segment, const int32_t *key_segment, void *y, float *lse, const RtAttend s);
    void (*attend_grad)(const void *q, const void *k, const void *v, const void *y, const float *lse, const void *dy,
                        const float *bias, const int32_t *query_segment, const int32_t *key_segment, void *dq, void *dk,
                        void *dv, void *scratch, const RtAttend s);
    void (*copy)(const float *x, float *y, int64_t rows, int64_t columns);
    void (*activate)(const float *x, const float *bias, const float *residual, float *y, int64_t rows, int64_t columns);
};
#define RT_PROBE_KERNELS                                                                                               \
    {                                                                                                                  \
        rt_attend, rt_attend_grad, rt_probe_copy_rows, rt_probe_activate                                               \
    }

#endif
