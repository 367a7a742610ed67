/* state.h -- what the files of the runtime share about one running trainer.  Generated code sees
 * `Rt` only as a name (rt.h). */
#ifndef MPC_RUNTIME_STATE_H
#define MPC_RUNTIME_STATE_H

#include "rt.h"

struct RtProducts; /* product.c: the products that the program registered */
struct RtTrace;    /* trace.c: NULL where nobody traces */

struct Rt {
    const RtProgram *program;
    char *arena; /* program->arena_bytes, 2 MB-aligned */
    struct RtProducts *products;
    struct RtTrace *trace;
    int threads; /* as set for OpenMP */
};

/* --- product.c ---------------------------------------------------------------------------- */

void rt_products_free(Rt *rt);                    /* also before any product was made */
int64_t rt_products_workspace_bytes(const Rt *rt); /* memory of the products outside the arena */
double rt_product_peak(Rt *rt, double seconds);   /* flops/s of this machine's best f32 or bf16 product, measured */

/* --- error.c ------------------------------------------------------------------------------ */

/* Ends the trainer: one line "NAME: error: MESSAGE" on stderr, exit status RT_EXIT_ERROR. */
_Noreturn void rt_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* One line "NAME: MESSAGE" on stderr. */
void rt_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Exit statuses of a trainer, documented in docs/trainer.md. */
enum { RT_EXIT_OK = 0, RT_EXIT_ERROR = 1, RT_EXIT_USAGE = 2, RT_EXIT_DIVERGED = 3, RT_EXIT_SIGNAL = 128 };

#endif
