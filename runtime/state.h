/* state.h -- the state of a running trainer, shared by the files of the runtime.  Generated code sees `Rt` only as a
 * name (rt.h). */
#ifndef MPC_RUNTIME_STATE_H
#define MPC_RUNTIME_STATE_H

#include "rt.h"

#include <stdatomic.h>

struct RtProducts;    /* product.c: the products that the program registered */
struct RtTrace;       /* trace.c: NULL where nobody traces */
struct RtMesh;        /* comm.c: NULL in a program of one rank */
struct RtCollectives; /* collective.c: the same */
struct RtGpu;         /* cuda/: NULL where the processor is the device */

/* What collectives have done since the start. */
typedef struct {
    int64_t calls, sent_bytes; /* bytes that this rank has sent to others */
    double seconds;            /* that they took; on a GPU NAN, and so is `waited` */
    double waited;             /* of these, that the computation stood still for */
} RtTraffic;

struct Rt {
    const RtProgram *program;
    char *arena; /* program->arena_bytes of the device, 2 MB-aligned; for the processor to touch only if it is the
                    device */
    struct RtProducts *products;
    struct RtTrace *trace;
    int threads;                              /* as set for OpenMP */
    int rank, ranks, local_rank, local_ranks; /* local: on the same machine */
    struct RtMesh *mesh;
    struct RtCollectives *collectives;
    struct RtGpu *gpu;
    RtTraffic *traffic; /* of each collective of the program */
    struct {
        const RtCollective *of; /* what the messages at hand are of; NULL: a meeting between steps */
        atomic_bool is_awaited; /* does the computation stand still meanwhile? */
        double timeout;
    } waiting;
};

/* --- error.c ------------------------------------------------------------------------------ */

/* Exit statuses of a trainer; after a signal RT_EXIT_SIGNAL + its number. */
enum { RT_EXIT_OK = 0, RT_EXIT_ERROR = 1, RT_EXIT_USAGE = 2, RT_EXIT_DIVERGED = 3, RT_EXIT_SIGNAL = 128 };

/* From here on messages are those of one among several ranks: notes are rank 0's alone, errors name the rank and end
 * all. */
void rt_error_ranks(const Rt *rt);

/* Ends the trainer: one line "error: MESSAGE" on stderr; rt_fail with RT_EXIT_ERROR. */
_Noreturn void rt_end(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void rt_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* One line on stderr. */
void rt_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- small things that several files use -------------------------------------------------- */

void *rt_allocate(int64_t count, int64_t size); /* zeroed; ends the trainer instead of returning NULL */
char *rt_text(const char *format, ...) __attribute__((format(printf, 1, 2))); /* a new string, the caller's */
void rt_append(char **text, const char *format, ...) __attribute__((format(printf, 2, 3))); /* to such a one */
double rt_seconds(void); /* since some moment before the start; never goes back */

typedef struct {
    char text[16];
} RtBytesText;

RtBytesText rt_bytes_text(double bytes); /* "1.53 GB" */

#endif
