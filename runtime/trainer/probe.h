/* probe.h -- `trainer --probe FILE`: measures the machine and writes it as a machine file (docs/plan.md), by the same
 * functions that a step calls: of products, attention, kernels and messages.
 *
 *   probe.c            the program of the measurements, in place of the model's; time
 *   probe_compute.c    products, attention, copies, launches
 *   probe_messages.c   messages by kind, size and number of ranks
 *   probe_write.c      the file
 */
#ifndef MPC_RUNTIME_PROBE_H
#define MPC_RUNTIME_PROBE_H

#include "device.h"
#include "store/output.h"

enum { RT_CURVE_POINTS = 32, RT_PROBED_PRECISIONS = 4, RT_PROBE_ROUNDS = 2 };

struct RtProbe;

typedef struct {
    int count;
    double x[RT_CURVE_POINTS], y[RT_CURVE_POINTS];
} RtCurve;

typedef void RtProbed(struct RtProbe *probe, const void *context);

typedef struct {
    RtProbed *run;
    int64_t number; /* of what `run` is measured on */
    int round;      /* in which it was measured last */
    int count;      /* of rounds */
    double seconds; /* of all of them */
} RtTimed;

typedef struct RtProbe {
    Rt *rt;
    const char *model; /* its name */
    double seconds;    /* of one measurement, about */
    double longest;    /* of a call that is measured: larger products and messages are left out */
    int round;         /* all is measured in each, from 1 */
    int ntimed;        /* measurements so far */
    RtTimed *timed;
    int64_t step_bytes;                 /* memory of the model's step, of which the arena may have a part; on a GPU 0 */
    int64_t calls;                      /* so far, of what has other places at each */
    int local_ranks;                    /* of each machine */
    RtOutput *output;                   /* of rank 0; NULL: another rank, or not the last round */
    double flops[RT_PROBED_PRECISIONS]; /* of the best product in each: f32, bf16, f16, e4m3 */
} RtProbe;

/* --- probe.c ---------------------------------------------------------------------------------------- */

/* Puts the program of the measurements, for so many seconds, in place of the model's: all ranks call it, before the
 * device is open. */
void rt_probe_prepare(Rt *rt, double seconds);

/* Measures for about so many seconds and writes the file: all ranks call it.  model: its name, and the bytes of its
 * arena. */
void rt_probe(Rt *rt, const char *model, int64_t model_bytes, const char *path, double seconds);

/* Seconds of one call of `run` on the slowest rank: a lower quartile, after first calls; all ranks call it. */
double rt_probe_time(RtProbe *probe, RtProbed *run, const void *context);

void rt_probe_sort(double number[], int count); /* the smallest first */

/* The mean of the rounds so far, which are seconds apart, since what disturbs a machine for a while disturbs its steps,
 * too.  Measured once a round for each `number` of a `run`. */
double rt_probe_mean(RtProbe *probe, RtProbed *run, int64_t number, const void *context);

/* --- probe_compute.c -------------------------------------------------------------------------------- */

void rt_probe_create(Rt *rt); /* the products, as RtProgram.create */
void rt_probe_compute(RtProbe *probe);
int rt_probe_largest(const RtProbe *probe, RtType type, double seconds); /* a product: it takes at most so long */
void rt_probe_product(RtProbe *probe, int number);

/* --- probe_messages.c ------------------------------------------------------------------------------- */

/* The axes and collectives of the program. */
void rt_probe_mesh(RtProgram *program, int machines, int local_ranks, int64_t bytes);
void rt_probe_messages(RtProbe *probe);

/* --- probe_write.c ---------------------------------------------------------------------------------- */

void rt_probe_words(const RtProbe *probe, const char *key, const char *words);
void rt_probe_number(const RtProbe *probe, const char *key, double number, const char *unit);
void rt_probe_curve(const RtProbe *probe, const char *key, const RtCurve *curve, const char *x, const char *y);

void rt_curve_add(RtCurve *curve, double x, double y); /* dropped where there is no room for it */

#endif
