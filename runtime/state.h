/* state.h -- the state of a running trainer, shared by the files of the runtime.  `Rt` is opaque for generated code
 * (rt.h). */
#ifndef MPC_RUNTIME_STATE_H
#define MPC_RUNTIME_STATE_H

#include "rt.h"

#include <stdatomic.h>

struct RtProducts;    /* product.c: the products that the program registered */
struct RtTrace;       /* trace.c: NULL: tracing is off */
struct RtMesh;        /* comm.c: NULL in a program of one rank */
struct RtCollectives; /* collective.c: the same */
struct RtGpu;         /* cuda/: NULL if the processor is the device */
struct RtCopies;

/* Statistics of a collective since the start. */
typedef struct {
    int64_t calls, sent_bytes; /* bytes sent by this rank to others */
    double seconds;            /* duration; on a GPU NAN, like `waited` */
    double waited;             /* of these, seconds that the computation waited */
} RtTraffic;

/* What of its machine a rank may use: mesh/share.c */
typedef struct {
    double processors, memory; /* bytes, at the start; not whole numbers */
} RtShareOfMachine;

struct Rt {
    const RtProgram *program;
    char *arena; /* rt_arena_bytes of the device, 2 MB-aligned; accessible to the processor only if it is the
                    device */
    struct RtProducts *products;
    struct RtTrace *trace;
    int threads;                              /* as set for OpenMP */
    int rank, ranks, local_rank, local_ranks; /* local: on the same machine */
    RtShareOfMachine share;
    struct RtMesh *mesh;
    struct RtCollectives *collectives;
    struct RtGpu *gpu;
    struct RtFar *far;       /* far/far.h: NULL: all tensors are on the device */
    struct RtCopies *copies; /* copies.c of the device: NULL: there are none */
    RtTraffic *traffic;      /* of each collective of the program */
    struct {
        struct RtUnderWay *first;  /* the messages under way, in the order of starts */
        void (*meanwhile)(Rt *rt); /* what is done while a collective waits; NULL: nothing */
        atomic_bool is_awaited;    /* does the computation wait for any? */
        double timeout;
        double looked, moved; /* when times were checked; when one was started or done */
        int turn;             /* rests since then */
    } waiting;                /* of wait.c */
    int64_t slot_period;      /* addresses that rt_slot has given are the same for micro-batches so far apart */
    atomic_int action, micro; /* in a pipeline: 'F', 'B' or 'W' of which micro-batch is next; 0: none */
};

/* --- memory.c: the arena of this kind of rank ----------------------------------------------- */

int64_t rt_own_place(const Rt *rt, int64_t offset); /* where it has the tensor, input or slot at that offset */
int64_t rt_place_in(const Rt *rt, const RtFunction *f, int64_t offset); /* and what a function has there */
int64_t rt_arena_bytes(const Rt *rt);
bool rt_places_differ_along(const Rt *rt, int axis); /* of a tensor, on ranks with different coordinates */
int64_t rt_state_bytes(const Rt *rt);                /* of these, for tensors that outlive a step */

/* " before F of micro-batch 3", in a pipeline; else "". */
const char *rt_action_text(const Rt *rt);

/* --- error.c ------------------------------------------------------------------------------ */

/* Exit statuses of a trainer; after a signal RT_EXIT_SIGNAL + its number. */
enum { RT_EXIT_OK = 0, RT_EXIT_ERROR = 1, RT_EXIT_USAGE = 2, RT_EXIT_DIVERGED = 3, RT_EXIT_SIGNAL = 128 };

/* From here on messages are for several ranks: only rank 0 prints notes, errors name the rank and end all ranks. */
void rt_error_ranks(const Rt *rt);

/* An error of several ranks ends this process without its exit handlers: what it still has to do. */
void rt_before_abort(void (*act)(void));

/* What an error of several ranks does before it ends them, in any thread, with the exit status. */
void rt_before_error(void (*act)(int status));

/* In a signal handler: ends this process, after rt_before_abort's act and a line on stderr, of the first rank. */
_Noreturn void rt_end_in_handler(int status, const char *line);

/* Ends the trainer: one line "error: MESSAGE" on stderr; rt_fail with RT_EXIT_ERROR. */
_Noreturn void rt_end(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void rt_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* One line on stderr. */
void rt_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- small shared functions --------------------------------------------------------------- */

void *rt_allocate(int64_t count, int64_t size); /* zeroed; ends the trainer if out of memory */
char *rt_text(const char *format, ...) __attribute__((format(printf, 1, 2))); /* a new string, owned by the caller */
int rt_compare_texts(const void *a, const void *b); /* elements of an array of strings, for qsort and bsearch */
void rt_append(char **text, const char *format, ...) __attribute__((format(printf, 2, 3))); /* to such a string */
double rt_seconds(void); /* since a moment before the start; monotonic */

typedef struct {
    char text[16];
} RtBytesText;

RtBytesText rt_bytes_text(double bytes); /* "1.53 GB" */

typedef struct {
    char text[64];
} RtCountText;

RtCountText rt_count_text(int64_t count, const char *noun); /* "1 sequence", "2 sequences" */

#endif
