/* device.h -- the interface of the runtime to the device.
 *
 * There are two, and a trainer links one: this processor (processor.c, product.c, collective.c, in libmpcrt.a) or a GPU
 * (cuda/, in libmpcrt_cuda.a).  Offsets are bytes in the arena.  Work that a function queues on the device is visible
 * as completed before the next of these functions returns. */
#ifndef MPC_RUNTIME_DEVICE_H
#define MPC_RUNTIME_DEVICE_H

#include "state.h"

/* Of the trainer's options, those that are a GPU's alone. */
typedef struct {
    const char *kernel_cache; /* NULL: where caches are */
    bool no_graph, share_gpu;
} RtDeviceOptions;

/* Finds the device and takes what it needs of it, the arena zeroed.  Ends the trainer with planned and available bytes
 * where the arena does not fit. */
void rt_device_open(Rt *rt, RtDeviceOptions options);
void rt_device_close(Rt *rt);

/* --- Memory --------------------------------------------------------------------------------- */

void rt_zero(Rt *rt, int64_t offset, int64_t bytes);
void rt_download(const Rt *rt, void *to, int64_t offset, int64_t bytes);

/* Where to write what is to lie in the arena when a function of the program runs next.  The same memory for the same
 * offset, with what was last written there. */
void *rt_stage(Rt *rt, int64_t offset, int64_t bytes);

/* Bytes of the arena as memory of the processor, until they are closed. */
char *rt_window_open(const Rt *rt, int64_t offset, int64_t bytes);
void rt_window_close(const Rt *rt, char *window, int64_t offset, int64_t bytes, bool is_changed);

/* --- Functions ------------------------------------------------------------------------------ */

/* Runs it to its end, on what was staged. */
void rt_run(Rt *rt, const RtFunction *f);

/* A moment of the computation: seconds, as rt_seconds counts, once the function has come to its end. */
double rt_mark(Rt *rt);
double rt_time_of_mark(Rt *rt, double mark);

/* --- Products: see rt.h ------------------------------------------------------------------------ */

void rt_products_free(Rt *rt);                     /* also before any product was made */
int64_t rt_products_workspace_bytes(const Rt *rt); /* memory of the products outside the arena */
double
rt_product_peak(Rt *rt,
                double seconds); /* flops/s of the device's best f32 or bf16 product, NAN: no memory to measure */

/* --- Collectives: see rt.h --------------------------------------------------------------------- */

void rt_collectives_open(Rt *rt); /* all ranks call it, with the device open */
void rt_collectives_close(Rt *rt);
int64_t rt_collectives_workspace_bytes(const Rt *rt);

#endif
