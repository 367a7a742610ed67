/* machine.h -- a machine as the time of a step sees it: a text that people read and write, and the laws of single
 * things on it.
 *
 *   machine.def        the lines that a machine file may have
 *   machine_read.c     reads such a text
 *   machine_shipped.c  those that mpc has: machines/
 *   machine_law.c      seconds of a product, of attention, of a kernel, of a message
 *
 *   # a comment
 *   name                H100 SXM5 80 GB, 8 in a DGX H100
 *   ranks on a machine  8                                     data sheet  DGX H100 user guide
 *   flops bf16          989.4 TFLOP/s                         data sheet  H100 tensor core GPU
 *   products bf16       39GFLOP:64.8% 116GFLOP:72.8%
 *                       1.1TFLOP:84.4%                        measured    bench/results/2026-11-27-gpu-H100.md
 *
 * Columns are apart by two blanks or more: key, value, `measured`, `published` (measured by others) or `data sheet`,
 * and the source.  A line that begins with blanks continues the one before.  Between the points of a curve, and only
 * there, y is a power of x; before its first point and after its last one y is that of the point.
 *
 * The laws are pure functions.  None has a constant of its own: each number comes from the file. */
#ifndef MPC_MACHINE_H
#define MPC_MACHINE_H

#include "ir.h"
#include "near.h"

enum { MOST_POINTS = 64 }; /* of a curve */

typedef struct {
    double x, y;
} Point;

/* Where a number comes from. */
typedef enum { NOT_GIVEN, MEASURED, PUBLISHED, DATA_SHEET, ESTIMATE } Origin;

typedef struct {
    int count; /* of a line with one number: 1, and its y */
    Point *point;
    const char *text; /* of a line of words */
    Origin origin;
    const char *source; /* "bench/results/2026-11-27-gpu-H100.md" */
} MachineLine;

typedef enum {
#define LINE(id, key, x, y, must, meaning) LINE_##id,
#include "machine.def"
    N_LINES
} LineId;

typedef struct Machine {
    MachineLine line[N_LINES];
} Machine;

/* The machine that d->source describes; NULL after errors. */
const Machine *parse_machine(Arena *arena, Diags *d);

/* The text of a machine that mpc has, "h100"; NULL: none has that name, and near is offered those that there are. */
const char *shipped_machine(const char *name, NearMiss *near);
const char *shipped_machines(Arena *arena); /* "a100, gh200, h100, h200" */

/* --- Numbers of the file ------------------------------------------------------------------------- */

bool is_said(const Machine *machine, LineId line);
double machine_number(const Machine *machine, LineId line); /* of a line with one number that is given */

int64_t ranks_of_machine(const Machine *machine);
double machine_memory(const Machine *machine);  /* bytes that a rank may use */
double machine_overlap(const Machine *machine); /* of a message's time, what computation can use; 1: all of it */
double machine_overlap_of_send(const Machine *machine); /* the same of a message from one stage to the next */

/* FLOP/s of the best product in a precision: a DType, or E4M3 (cost.h).  Where the file says nothing of a precision, a
 * trainer there uses another: bf16 for e4m3 and f16, f32 for bf16. */
double machine_flops(const Machine *machine, int precision);

/* Bytes a second of a rank from or to a tier of memory; NAN: the file does not say. */
double machine_tier(const Machine *machine, Tier tier);

/* Does the file say how so many ranks are connected?  Several machines need `between`. */
bool connects(const Machine *machine, int64_t ranks);

/* --- Laws ------------------------------------------------------------------------------------------ */

/* `count` products of [m, k] by [k, n] in one call: by the larger of two times, those of its FLOPs at the share of the
 * peak that a call with so many has, and of its operands and result at copy bandwidth (the roofline: Williams et al.,
 * CACM 52(4), 2009); at least that of a launch. */
double product_seconds(const Machine *machine, int precision, int64_t m, int64_t n, int64_t k, int64_t count);

/* Those of so many FLOPs take at least as long, whatever their shapes. */
double product_least_seconds(const Machine *machine, int precision, double flops);

/* Attention of `flops` that are computed (a causal mask's others are not), at the rate of its width of heads, and of as
 * many keys as a square of queries by keys with as many scores has; at least a launch.  Where the file has no line of
 * attention, as one product of so many FLOPs. */
double attention_seconds(const Machine *machine, int precision, double flops, int64_t queries, int64_t keys,
                         int64_t features, bool backward);

/* Fused kernels, by the larger of two times: of their bytes at the bandwidth of copies of that size, and of their FLOPs
 * (op_work), which count where `elementwise` is given, as on processors; and their launches. */
double fused_seconds(const Machine *machine, double bytes, double flops, int launches);

/* Those that are bound by memory. */
double kernel_seconds(const Machine *machine, double bytes, int launches);

/* The ranks of a message: n in all, of which `on_one_machine`, r, share a machine; so N = n / r machines. */
typedef struct {
    int64_t ranks, on_one_machine;
} Group;

/* A message of a kind, as an op has it: OP_all_reduce, ...; `volume` as Traffic.volume (cost.h).  With s, the bytes
 * that a rank sends, and a, b the latencies within and between machines:
 *
 *   all_gather, reduce_scatter   a ring: (n - N) a + (N - 1) b and s = (n - 1) / n of the volume over the slowest link:
 *                                a rank's own within a machine; between machines r network cards carry one ring each,
 *                                so that a card has s / r
 *   all_reduce                   both of these: twice the steps; or a tree, where its latency is less:
 *                                2 ((r - 1) a + ceil(log2 N) b)
 *   all_to_all                   one step; (r - 1) / n of the volume within, (n - r) / n by the rank's own card
 *   send, rotate                 one step; all of the volume, by the card where a neighbour is on another machine
 *
 * What is left of a link's bandwidth with so many ranks, or machines, counts for all but the last.  These are NCCL's
 * (src/graph/tuning.cc); of rings and trees, Thakur et al., IJHPCA 19(1), 2005. */
double message_seconds(const Machine *machine, int kind, double volume, Group group);

#endif
