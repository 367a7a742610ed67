/* device.h -- an emulated GPU: replaces CUDA's libraries, so that a whole trainer for GPUs runs on a processor.
 *
 *   streams.c    streams and events: queues of work, which a scheduler runs as late as permitted;  graphs.c
 *   cudart.c     memory, copies, launches: in the place of libcudart_static.a
 *   nvrtc.c      libnvrtc.so: "compiles" kernels with g++ and the emulator's headers
 *   cublaslt.c   libcublasLt.so: products by loops
 *   cudnn.c      libcudnn.so.9: graphs, operation by operation
 *   nccl.c       libnccl.so: ranks are processes, and messages are files
 *
 * All work is done by the thread that waits for some of it, and only as much as necessary: other streams are delayed,
 * in an order drawn from $EMULATED_SEED.  So a missing wait leads to wrong results.  Memory of the device can be
 * touched only while that work is done: elsewhere it is a fault.
 *
 *   EMULATED_SEED=N           another order of streams
 *   EMULATED_IN_ORDER=1       streams in the order in which they were made: a later one waits for all before it
 *   EMULATED_GPUS=N           visible devices (1)
 *   EMULATED_FIRST=N          which GPU of the machine is number 0 (0)
 *   EMULATED_BYTES=N          memory of each (4 GB)
 *   EMULATED_ARCHITECTURE=N   compute capability (90), and bytes of shared memory of a block:
 *   EMULATED_SHARED=N         (232448)
 *   EMULATED_NAME=TEXT        the GPU's name ("emulated")
 *   EMULATED_MAPS=none        the driver cannot make tensor maps; wrong: it makes those of other rows
 *   EMULATED_SLOW_KERNELS=PATTERN  kernels whose names match take 1000 seconds longer, by events
 *   EMULATED_LOAD=N           milliseconds until a product's kernel is loaded (for more of products: cublaslt.c)
 *   EMULATED_LAZY=1           the first launch of a kernel waits for all that is queued, as CUDA's lazy loading may
 *   EMULATED_USED=FILE        for the most bytes that were allocated at one time
 *   EMULATED_NODES=FILE       for the nodes of the largest graph, and those of all
 *   EMULATED_WAITS=FILE       for how often the processor waited for new work of the first stream, after the
 *                             last allocation: products are timed before, more or fewer of them
 *   EMULATED_FORGET_WAIT=N    the Nth wait for an event of a stream is left out, as if the runtime had none
 *   EMULATED_STOP=N           hangs before the Nth operation of NCCL
 *   EMULATED_QUEUE=N          a launch waits while N pieces of work are in the queue of its stream
 *   EMULATED_NCCL=N           version of NCCL
 *   EMULATED_NCCL_BYTES=N     memory that NCCL takes for each rank that it connects (0)
 *   EMULATED_BREAK=N          NCCL reports an error from the Nth query on
 *   EMULATED_FIRST_PART=N     NCCL's sums begin with the part of the Nth rank of the group (0)
 *   EMULATED_SERIAL=1         one operation of NCCL at a time, of all communicators: that which was queued first
 *   EMULATED_SWAP=N           the Nth operation counts as queued after all others
 *   EMULATED_HELD_UP=FILE     for how many receives that waited had a send behind them that could have started
 *   EMULATED_ABORTED=FILE     gets a line for each communicator that is aborted
 *   EMULATED_MESSAGES=DIR     where messages between ranks lie (/dev/shm)
 */
#ifndef MPC_TESTS_DEVICE_H
#define MPC_TESTS_DEVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct CUstream_st EmulatedStream;

/* Does some of the work; true once all of it is done. */
typedef bool EmulatedWork(void *data);

/* Puts work into a stream's queue, with a copy of `data`. */
void emulated_enqueue(EmulatedStream *stream, EmulatedWork *work, const void *data, size_t bytes);

/* Does the first work of a stream, which has this data, keep such a work from starting? */
bool emulated_holds_up(const void *data, EmulatedWork *work, bool (*is_it)(const void *data));

/* Has nothing of this kind been queued before it, in any stream, that is not complete? */
bool emulated_is_next(const void *data, EmulatedWork *work);
void emulated_postpone(EmulatedStream *stream); /* its last work, as if all others had been queued before */

bool emulated_is_urgent(const EmulatedStream *stream); /* its kernels go before others */

void emulated_forget_waits(void); /* of the processor, until now */

/* Does the work needed to empty the stream; or, if it may stay late, a part of it: true if it is empty. */
void emulated_drain(EmulatedStream *stream);
bool emulated_advance(EmulatedStream *stream);

/* With EMULATED_LAZY: waits until all streams are empty. */
void emulated_load(void);

/* As the next events show: nobody waits for that time. */
void emulated_take_longer(double seconds);

/* Does a graph that has not been dropped contain this work, with data that begins with this pointer? */
bool emulated_is_recorded(EmulatedWork *work, const void *first);

/* The number in an environment variable, or `preset`. */
int64_t emulated_number(const char *name, int64_t preset);

/* One line on stderr, and the end with status 70: the trainer has done something invalid on a GPU. */
_Noreturn void emulated_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* cudart.c: may be touched from here on; no longer. */
void emulated_open_memory(void);
void emulated_close_memory(void);

/* cudart.c: a library takes so much of the GPU's memory, or gives it back; false: there is not so much. */
bool emulated_take(int64_t bytes);

#endif
