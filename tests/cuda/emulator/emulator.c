/* emulator.c -- threads, warps and blocks: each thread runs until it has to wait, on a stack that it has until its end.
 * The next one begins on the stack of one that has ended: threads that never wait all run on one, without a switch. */
#include "emulator.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { STACK = 256 * 1024, STAGGER = 448, MAX_REPORTS = 8, MAX_WARPS = EMULATOR_MAX_THREADS / EMULATOR_WARP };

typedef enum { RUNNABLE, AT_BARRIER, IN_WARP, ASLEEP, DONE, STATES } State;

typedef void *Continuation[5]; /* of the compiler's setjmp; libc's takes several times as long */

typedef struct {
    char *memory;
    bool is_begun; /* it runs run_threads, and goes on at `at` */
    Continuation at;
} Stack;

typedef struct {
    State state;
    Stack *stack; /* NULL: it has not begun */
} Thread;         /* small: the scheduler looks at all of them again and again */

typedef struct {
    uint32_t arrived, mask, meetings, barriers;
    EmulatorTogether *operation;
    void *mine[EMULATOR_WARP];
} Warp;

static struct {
    const char *name;
    EmulatorKernel *kernel;
    void **arguments;
    int narguments, threads, thread;
    int64_t blocks, block, launch;
    uint32_t barriers;
    bool any[2]; /* of barriers that ask whether any thread says yes: even and odd ones */
    int faults;
    bool is_running, is_over; /* over: after a fault that nothing can follow */
    char *dynamic_shared;
    int64_t dynamic_bytes;
    int count[STATES]; /* of the block's threads */
    Thread of[EMULATOR_MAX_THREADS];
    Warp warp[MAX_WARPS];
    Continuation scheduler;
    EmulatorPlace place;
} now;

static Stack stacks[EMULATOR_MAX_THREADS], *idle[EMULATOR_MAX_THREADS]; /* of no thread: the last is used first */
static int nstacks, nidle;

/* --- Faults ------------------------------------------------------------------------------------ */

static void leave(State state);

void emulator_fault(bool is_fatal, const char *format, ...)
{
    if (now.faults++ < MAX_REPORTS) {
        va_list arguments;
        va_start(arguments, format);
        fprintf(stderr, "  %s, block %" PRId64 ", thread %d: ", now.name, now.block, now.thread);
        vfprintf(stderr, format, arguments);
        fputc('\n', stderr);
        va_end(arguments);
    }
    if (is_fatal && now.is_running) {
        now.is_over = true;
        leave(DONE);
    }
}

/* --- Threads and their stacks ------------------------------------------------------------------ */

const EmulatorPlace *emulator_place(void)
{
    if (!now.is_running)
        return NULL;
    const Warp *warp = &now.warp[now.thread / EMULATOR_WARP];
    now.place.thread = now.block * now.threads + now.thread;
    now.place.in_block = now.thread;
    now.place.epoch = emulator_epoch(now.thread);
    now.place.warp = now.thread / EMULATOR_WARP;
    now.place.block = now.block;
    now.place.barriers = now.barriers;
    now.place.warp_barriers = warp->barriers;
    now.place.warp_meetings = warp->meetings;
    now.place.stack = now.of[now.thread].stack->memory;
    now.place.stack_end = now.place.stack + STACK;
    return &now.place;
}

/* A function of its own, since the compiler expects no jump in the function that calls its setjmp. */
static _Noreturn __attribute__((noinline)) void go_on(Continuation at) { __builtin_longjmp(at, 1); }

static void set_state(Thread *thread, State state)
{
    now.count[thread->state]--;
    now.count[state]++;
    thread->state = state;
}

static void wake_all(State from)
{
    for (int i = 0; i < now.threads && now.count[from]; i++)
        if (now.of[i].state == from)
            set_state(&now.of[i], RUNNABLE);
}

static int runnable_of(int from, int end)
{
    while (from < end && now.of[from].state != RUNNABLE)
        from++;
    return from < end ? from : -1;
}

/* The next thread that can run, -1 if there is none: one of the same warp, whose stacks the cache still has, before
 * others behind it. */
static int next_thread(void)
{
    const int first = now.thread / EMULATOR_WARP * EMULATOR_WARP;
    const int end = first + EMULATOR_WARP < now.threads ? first + EMULATOR_WARP : now.threads;
    if (now.is_over)
        return -1;
    int next = runnable_of(now.thread + 1, end);
    if (next < 0)
        next = runnable_of(first, now.thread);
    return next < 0 ? runnable_of(end, now.threads) : next;
}

/* At once where the next thread goes on, which saves the way through the scheduler; the scheduler, if there is none or
 * its stack has to be begun. */
static void **next_place(void)
{
    const int next = next_thread();
    if (next < 0)
        return now.scheduler;
    Thread *thread = &now.of[next];
    if (!thread->stack && nidle > 0 && idle[nidle - 1]->is_begun)
        thread->stack = idle[--nidle];
    if (!thread->stack)
        return now.scheduler;
    now.thread = next;
    return thread->stack->at;
}

/* To other threads, until one of them or the scheduler comes back. */
static void leave(State state)
{
    Thread *thread = &now.of[now.thread];
    set_state(thread, state);
    if (__builtin_setjmp(thread->stack->at) == 0)
        go_on(next_place());
}

/* The thread has ended.  On its stack the next one begins, if that is to run now; if not, any later one may.  A
 * function of its own, as for go_on. */
static __attribute__((noinline)) void end_thread(void)
{
    Stack *stack = now.of[now.thread].stack;
    set_state(&now.of[now.thread], DONE);
    const int next = next_thread();
    if (next >= 0 && !now.of[next].stack) {
        now.thread = next;
        now.of[next].stack = stack;
        return;
    }
    idle[nidle++] = stack;
    if (__builtin_setjmp(stack->at) == 0)
        go_on(next_place());
}

/* One thread after the other, of all blocks and kernels: a stack is made once, since that takes system calls. */
static _Noreturn void run_threads(void)
{
    void *arguments[EMULATOR_MAX_ARGUMENTS]; /* on the stack, where a kernel may read: of this launch */
    for (int64_t launch = 0;;) {
        if (launch != now.launch)
            memcpy(arguments, now.arguments, (size_t)now.narguments * sizeof *arguments);
        launch = now.launch;
        now.kernel(arguments);
        end_thread();
    }
}

static Stack *new_stack(void)
{
    Stack *stack = &stacks[nstacks++];
    stack->memory = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack->memory == MAP_FAILED)
        abort();
    return stack;
}

static void begin(Stack *stack)
{
    /* Not all at the same place of a page, where they would share few lines of the cache. */
    const size_t below = (size_t)(stack - stacks) * STAGGER % (STACK / 8);
    ucontext_t start;
    getcontext(&start);
    start.uc_stack.ss_sp = stack->memory;
    start.uc_stack.ss_size = STACK - below / 16 * 16;
    start.uc_link = NULL;
    makecontext(&start, run_threads, 0);
    stack->is_begun = true;
    setcontext(&start);
}

static void resume(int number)
{
    Thread *thread = &now.of[number];
    if (!thread->stack)
        thread->stack = nidle > 0 ? idle[--nidle] : new_stack();
    now.thread = number;
    now.is_running = true;
    if (__builtin_setjmp(now.scheduler) == 0) {
        if (thread->stack->is_begun)
            go_on(thread->stack->at);
        begin(thread->stack);
    }
    now.is_running = false;
}

/* After a fault that nothing can follow, stacks may have been left within a kernel. */
static void begin_all_again(void)
{
    for (nidle = 0; nidle < nstacks; nidle++) {
        stacks[nidle].is_begun = false;
        idle[nidle] = &stacks[nidle];
    }
}

/* --- Blocks ------------------------------------------------------------------------------------ */

static void release_barrier(void)
{
    wake_all(AT_BARRIER);
    now.barriers++;
    now.any[now.barriers % 2] = false; /* for the next: the answer of the one before has been read by all */
}

static bool step(void)
{
    bool any = false;
    for (int i = 0; i < now.threads && !now.is_over; i++)
        if (now.of[i].state == RUNNABLE) {
            resume(i);
            i = now.thread; /* most of those in between have run */
            any = true;
        }
    return any;
}

static void run_block(void)
{
    for (int i = 0; i < now.threads; i++)
        now.of[i] = (Thread){ RUNNABLE, NULL };
    memset(now.count, 0, sizeof now.count);
    now.count[RUNNABLE] = now.threads;
    memset(now.warp, 0, (size_t)(now.threads + EMULATOR_WARP - 1) / EMULATOR_WARP * sizeof *now.warp);
    now.barriers = 0;
    now.any[0] = now.any[1] = false;
    while (!now.is_over && now.count[DONE] < now.threads) {
        bool any = step();
        int waiting = now.count[AT_BARRIER];
        if (waiting && waiting + now.count[DONE] == now.threads)
            release_barrier();
        else if (!any && !now.is_over && !emulator_bring_a_box()) {
            emulator_fault(
                false,
                "nothing goes on: %d threads wait at a barrier, %d for others of their warp, %d at a barrier "
                "in memory or with a number",
                waiting, now.count[IN_WARP], now.count[ASLEEP]);
            now.is_over = true;
        }
    }
    if (!now.is_over) {
        emulator_check_barriers();
        emulator_check_boxes();
        emulator_check_groups();
    }
}

bool emulator_launch(const char *name, EmulatorKernel *kernel, void **arguments, int count, int64_t blocks, int threads,
                     int64_t dynamic_shared)
{
    if (threads < 1 || threads > EMULATOR_MAX_THREADS || count > EMULATOR_MAX_ARGUMENTS || blocks < 1) {
        fprintf(stderr, "  %s cannot be launched with %" PRId64 " blocks of %d threads and %d arguments\n", name,
                blocks, threads, count);
        return false;
    }
    now.name = name, now.kernel = kernel, now.arguments = arguments, now.narguments = count;
    now.blocks = blocks, now.threads = threads, now.faults = 0, now.is_over = false;
    now.launch++;
    now.dynamic_bytes = dynamic_shared;
    now.dynamic_shared = dynamic_shared ? aligned_alloc(128, (size_t)(dynamic_shared + 127) / 128 * 128) : NULL;
    emulator_new_launch();
    for (now.block = 0; now.block < blocks && !now.is_over; now.block++) {
        emulator_new_block(now.dynamic_shared, dynamic_shared);
        emulator_new_clocks();
        emulator_new_barriers();
        emulator_new_boxes();
        emulator_new_groups();
        run_block();
    }
    if (now.dynamic_shared)
        emulator_drop_shared(now.dynamic_shared);
    free(now.dynamic_shared);
    if (now.is_over)
        begin_all_again();
    return now.faults == 0;
}

/* --- What kernels ask --------------------------------------------------------------------------- */

unsigned emulator_thread_index(void) { return (unsigned)now.thread; }
unsigned emulator_block_index(void) { return (unsigned)now.block; }
unsigned emulator_block_size(void) { return (unsigned)now.threads; }
unsigned emulator_grid_size(void) { return (unsigned)now.blocks; }
void *emulator_dynamic_shared(void) { return now.dynamic_shared; }

/* No multiple of more than 128, as it may be on a machine. */
enum { WINDOW = 1024 + 3 * 128 };

uint32_t emulator_shared_address(const void *at)
{
    const int64_t offset = (const char *)at - now.dynamic_shared;
    if (offset < 0 || offset > now.dynamic_bytes)
        emulator_fault(true, "takes the address of what is not in dynamic shared memory");
    return WINDOW + (uint32_t)offset;
}

void *emulator_shared_at(uint32_t address, int64_t bytes)
{
    const int64_t offset = (int64_t)address - WINDOW;
    if (offset < 0 || offset + bytes > now.dynamic_bytes)
        emulator_fault(true, "uses %" PRId64 " bytes at %u, outside of dynamic shared memory", bytes, address);
    return now.dynamic_shared + offset;
}

void emulator_barrier(void) { leave(AT_BARRIER); }

int emulator_barrier_or(int predicate)
{
    const int side = now.barriers % 2;
    now.any[side] |= predicate != 0;
    leave(AT_BARRIER);
    return now.any[side];
}

void emulator_sleep(void) { leave(ASLEEP); }

void emulator_wake(void) { wake_all(ASLEEP); }

void emulator_together(EmulatorTogether *operation, uint32_t mask, void *mine, bool is_barrier)
{
    const int lane = now.thread % EMULATOR_WARP, first = now.thread - lane;
    Warp *warp = &now.warp[now.thread / EMULATOR_WARP];
    if (!(mask >> lane & 1))
        emulator_fault(true, "is not in the mask %08x of an operation of its warp", mask);
    if (warp->arrived == 0)
        warp->mask = mask, warp->operation = operation;
    else if (warp->mask != mask || warp->operation != operation)
        emulator_fault(true, "does another operation than the rest of its warp, or with another mask");
    warp->mine[lane] = mine;
    warp->arrived |= 1u << lane;
    if (warp->arrived != mask) {
        leave(IN_WARP);
        return;
    }
    if (operation)
        operation(warp->mine, mask);
    if (is_barrier)
        emulator_clocks_meet(first, mask);
    warp->arrived = 0;
    warp->meetings++;
    warp->barriers += is_barrier;
    for (int i = 0; i < EMULATOR_WARP; i++)
        if (mask >> i & 1 && i != lane)
            set_state(&now.of[first + i], RUNNABLE);
}
