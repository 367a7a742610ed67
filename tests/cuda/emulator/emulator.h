/* emulator.h -- runs CUDA kernels on a processor and checks their memory accesses.
 *
 * A kernel is compiled as C++ with emulator/machine.cuh and -fsanitize=thread, so that each access to memory calls one
 * of emulator_memory.c's functions (gcc's own library for that is not linked).  Each thread of a block is a fiber;
 * fibers switch at barriers and at operations of a warp; blocks run one after another.
 *
 * Detects accesses outside of the operands; reads of uninitialised memory and shared memory; misaligned accesses; data
 * races of threads without a barrier in between; barriers and operations of a warp that not all threads reach.
 */
#ifndef MPC_TESTS_EMULATOR_H
#define MPC_TESTS_EMULATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { EMULATOR_WARP = 32, EMULATOR_MAX_THREADS = 1024, EMULATOR_MAX_ARGUMENTS = 512 };

/* --- For tests ------------------------------------------------------------------------------ */

/* Memory of the device.  Nothing in it may be touched before emulator_allow. */
void emulator_add_memory(const char *name, void *base, int64_t bytes);
void emulator_add_constants(void *base, int64_t bytes); /* of the compiled kernels: may be read */
void emulator_allow(void *from, int64_t bytes, bool is_written);
bool emulator_is_written(const void *at);
void emulator_forget_memory(void);

/* Disables memory checks: for whole programs, whose kernels are compiled without -fsanitize=thread. */
void emulator_skip_memory(void);

/* The static shared memory of the compiled kernels. */
void emulator_set_shared(void *base, int64_t bytes);

/* A kernel, called with its arguments as an array. */
typedef void EmulatorKernel(void **arguments);

/* A library of compiled kernels: NULL after saying why there is none; one of its kernels, or NULL; its static shared
 * memory and constants, to be added after other memory. */
void *emulator_open(const char *path);
EmulatorKernel *emulator_kernel(void *library, const char *name);
void emulator_add_static_memory(void *library);

/* Runs all blocks; false, after a line on stderr for each of the first faults, if anything is wrong. */
bool emulator_launch(const char *name, EmulatorKernel *kernel, void **arguments, int count, int64_t blocks, int threads,
                     int64_t dynamic_shared);

/* Bytes of the device's memory, without shared memory, that the last launch has read or written, each once; -1:
 * unknown, on a GPU (tests/gpu/machine.c). */
int64_t emulator_bytes_moved(void);

/* --- For kernels ---------------------------------------------------------------------------- */

unsigned emulator_thread_index(void);
unsigned emulator_block_index(void);
unsigned emulator_block_size(void);
unsigned emulator_grid_size(void);
void *emulator_dynamic_shared(void);
void emulator_barrier(void);
int emulator_barrier_or(int predicate);
void emulator_barrier_warp(uint32_t mask);
void emulator_on_boundary(const void *at, size_t bytes);
void emulator_store_global(void *to, const void *from, size_t bytes);
uint64_t emulator_shuffle(uint32_t mask, uint64_t bits, int source);
uint32_t emulator_ballot(uint32_t mask, int predicate);
int emulator_exchange(int *at, int value);
void emulator_mma(float *c, const uint32_t *a, uint32_t b0, uint32_t b1, int is_bf16);
void emulator_load_matrices(uint32_t *to, const void *row, int is_turned);
void emulator_copy_async(void *shared, const void *from, int is_there);
void emulator_copy_commit(void);
void emulator_copy_wait(int latest);

#ifdef __cplusplus
}
#endif

/* --- Between the emulator's files ------------------------------------------------------------- */

/* The position of the present thread in the order of accesses. */
typedef struct {
    int64_t thread; /* counted over all blocks */
    int warp;       /* counted over all blocks */
    int64_t block;
    uint32_t barriers, warp_barriers, warp_meetings;
    const char *stack, *stack_end;
} EmulatorPlace;

const EmulatorPlace *emulator_place(void); /* NULL outside of kernels */
void emulator_fault(bool is_fatal, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Records an access by the present thread; emulator_forget: invalidates the contents. */
void emulator_touch(const void *at, int64_t bytes, bool is_write);
void emulator_take_away(void *at, int64_t bytes);

/* Waits until all lanes of the warp are here with the same operation, does it once for all, and goes on.  `mine`
 * lies on the stack. */
typedef void EmulatorTogether(void *const of_lane[EMULATOR_WARP], uint32_t mask);
void emulator_together(EmulatorTogether *operation, uint32_t mask, void *mine, bool is_barrier);

void emulator_new_launch(void);
void emulator_new_block(void *dynamic_shared, int64_t bytes);
void emulator_drop_shared(void *dynamic_shared);

#endif
