/* emulator.h -- runs CUDA kernels on a processor and checks their memory accesses.
 *
 * A kernel is compiled as C++ with emulator/machine.cuh and -fsanitize=thread, so that each access to memory calls one
 * of emulator_memory.c's functions (gcc's own library for that is not linked).  Each thread of a block is a fiber;
 * fibers switch at barriers and at operations of a warp; blocks run one after another.
 *
 * Detects accesses outside of the operands; reads of uninitialised memory and shared memory; misaligned accesses; data
 * races of threads without a barrier in between; barriers and operations of a warp that not all threads reach.
 *
 * What only Hopper has: emulator_order.c (which thread knows of what another did), emulator_barrier.c (barriers in
 * memory and with numbers), emulator_box.c (tensor maps and copies), emulator_group.c (products of warpgroups).  Copies
 * come, and products are computed, as late as permitted, and their rules are checked: see tests/cuda/bad_hopper.cpp.
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

/* A tensor map (CUtensorMap), as cuTensorMapEncodeTiled makes it of elements of 16 bits, swizzled by 128 bytes, and
 * zeros outside: false for what it refuses.  Strides are in bytes, from the second dim on. */
enum { EMULATOR_MAP_BYTES = 128, EMULATOR_MAX_DIMS = 5 };
bool emulator_make_map(void *map, int dims, const void *base, const uint64_t size[], const uint64_t stride[],
                       const uint32_t box[]);

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

/* How often the last launch has read each byte of what it has read of that memory: the mean. */
double emulator_times_read(void);

/* --- For kernels ---------------------------------------------------------------------------- */

#define EMULATOR_SAME __attribute__((const)) /* of a thread, all the time */
EMULATOR_SAME unsigned emulator_thread_index(void);
EMULATOR_SAME unsigned emulator_block_index(void);
EMULATOR_SAME unsigned emulator_block_size(void);
EMULATOR_SAME unsigned emulator_grid_size(void);
EMULATOR_SAME void *emulator_dynamic_shared(void);
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

uint32_t emulator_shared_address(const void *at);
void emulator_fence_async(void);
void emulator_mbarrier_init(uint64_t *barrier, int arrivals);
void emulator_mbarrier_arrive(uint64_t *barrier, int bytes);
void emulator_mbarrier_wait(uint64_t *barrier, int parity);
void emulator_barrier_number(int number, int threads, int is_waiting);
void emulator_copy_box(void *shared, const void *map, uint64_t *barrier, const int at[4]);
void emulator_set_registers(int count, int is_more);
void emulator_group_fence(void);
void emulator_group_commit(void);
void emulator_group_wait(int latest);
/* c: of the thread; a: NULL for one in shared memory; turned: b is by rows of columns. */
void emulator_group_product(float *c, int columns, int is_bf16, const uint32_t *a, uint64_t left, uint64_t right,
                            int is_turned, int adds);

#ifdef __cplusplus
}
#endif

/* --- Between the emulator's files ------------------------------------------------------------- */

/* The position of the present thread in the order of accesses. */
typedef struct {
    int64_t thread; /* counted over all blocks */
    int in_block;   /* the same in its block */
    int warp;
    int64_t block;
    uint32_t barriers, warp_barriers, warp_meetings, epoch;
    const char *stack, *stack_end;
} EmulatorPlace;

const EmulatorPlace *emulator_place(void); /* NULL outside of kernels */
void emulator_fault(bool is_fatal, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Records an access by the present thread; emulator_forget: invalidates the contents. */
void emulator_touch(const void *at, int64_t bytes, bool is_write);
void emulator_take_away(void *at, int64_t bytes);
bool emulator_checks_memory(void);

/* The same by a copy of a box or a product of a warpgroup, which the present thread has begun: without a fence they do
 * not see what was stored. */
void emulator_touch_async(const void *at, int64_t bytes, bool is_write);
void emulator_set_there(void *at, int64_t bytes, bool is_there); /* is what was written valid? */

/* Waits until all lanes of the warp are here with the same operation, does it once for all, and goes on.  `mine`
 * lies on the stack. */
typedef void EmulatorTogether(void *const of_lane[EMULATOR_WARP], uint32_t mask);
void emulator_together(EmulatorTogether *operation, uint32_t mask, void *mine, bool is_barrier);

/* Waits until another thread has done something that may end the wait. */
void emulator_sleep(void);
void emulator_wake(void);

/* The memory at an address of shared memory. */
void *emulator_shared_at(uint32_t address, int64_t bytes);

/* Per thread of a block, up to which of its epochs a thread's accesses are known.  A thread that arrives somewhere
 * gives what it knows, and begins a new epoch; one that has waited takes it. */
typedef struct {
    uint32_t of[EMULATOR_MAX_THREADS];
} EmulatorClock;
void emulator_clock_give(EmulatorClock *to);
void emulator_clock_take(const EmulatorClock *from);
void emulator_clock_add(EmulatorClock *to, const EmulatorClock *from);
void emulator_clocks_meet(int first, uint32_t mask); /* lanes of the warp of thread `first` */
uint32_t emulator_epoch(int thread);
bool emulator_knows(int thread, int other, uint32_t epoch);
uint32_t emulator_fences(int thread); /* of the asynchronous proxy */
void emulator_new_clocks(void);

void emulator_new_barriers(void);
void emulator_check_barriers(void); /* at the end of a block */
void emulator_bytes_come(uint64_t *barrier, int64_t bytes, const EmulatorClock *clock);
bool emulator_bring_a_box(void); /* false if none is under way */
void emulator_new_boxes(void);
void emulator_check_boxes(void);
void emulator_new_groups(void);
void emulator_check_groups(void);

void emulator_new_launch(void);
void emulator_new_block(void *dynamic_shared, int64_t bytes);
void emulator_drop_shared(void *dynamic_shared);

#endif
