/* emulator_barrier.c -- barriers in shared memory (mbarrier) and with numbers (barrier.cta), and the registers that
 * warps exchange. */
#include "emulator.h"

#include <inttypes.h>
#include <stdlib.h>

enum { MAX_IN_MEMORY = 64, NUMBERS = 16, MAX_WARPS = EMULATOR_MAX_THREADS / EMULATOR_WARP, MOST_REGISTERS = 65536 };

/* What arrives in a phase is known to those that wait for its end. */
typedef struct {
    uint64_t *at;
    int arrivals, awaited;
    int64_t bytes; /* expected, and not yet there; below 0: they came first */
    uint32_t phase;
    EmulatorClock now, over;
} InMemory;

static InMemory in_memory[MAX_IN_MEMORY];
static int count_in_memory;

typedef struct {
    int threads, arrived;
    uint32_t phase, of_thread[EMULATOR_MAX_THREADS]; /* 1 + the last phase in which it arrived */
    EmulatorClock now, over;
} Numbered;

static Numbered numbered[NUMBERS];
static bool is_numbered_used;
static int registers[MAX_WARPS]; /* of each thread; 0: those of the launch */

void emulator_new_barriers(void)
{
    count_in_memory = 0;
    for (int i = 0; i < NUMBERS && is_numbered_used; i++)
        numbered[i] = (Numbered){ .threads = 0 };
    for (int i = 0; i < MAX_WARPS; i++)
        registers[i] = 0;
    is_numbered_used = false;
}

/* --- In memory -------------------------------------------------------------------------------- */

static InMemory *find(uint64_t *at)
{
    for (int i = 0; i < count_in_memory; i++)
        if (in_memory[i].at == at)
            return &in_memory[i];
    emulator_fault(true, "there is no barrier where it waits or arrives");
    abort();
}

void emulator_mbarrier_init(uint64_t *barrier, int arrivals)
{
    if (count_in_memory == MAX_IN_MEMORY || arrivals < 1)
        emulator_fault(true, "makes a barrier of %d arrivals, number %d", arrivals, count_in_memory);
    emulator_on_boundary(barrier, sizeof *barrier);
    emulator_touch(barrier, sizeof *barrier, true);
    in_memory[count_in_memory++] = (InMemory){ .at = barrier, .arrivals = arrivals, .awaited = arrivals };
}

static void end_phase(InMemory *b)
{
    if (b->awaited > 0 || b->bytes != 0)
        return;
    b->phase++;
    b->awaited = b->arrivals;
    b->over = b->now;
    b->now = (EmulatorClock){ { 0 } };
    emulator_wake();
}

void emulator_mbarrier_arrive(uint64_t *barrier, int bytes)
{
    InMemory *b = find(barrier);
    emulator_touch(barrier, sizeof *barrier, false);
    if (b->awaited == 0)
        emulator_fault(true, "arrives at a barrier in memory where all have arrived");
    emulator_clock_give(&b->now);
    b->bytes += bytes;
    b->awaited--;
    end_phase(b);
}

void emulator_mbarrier_wait(uint64_t *barrier, int parity)
{
    InMemory *b = find(barrier);
    emulator_touch(barrier, sizeof *barrier, false);
    if (parity != 0 && parity != 1)
        emulator_fault(true, "waits for phase %d", parity);
    while ((int)(b->phase % 2) == parity)
        emulator_sleep();
    emulator_clock_take(&b->over);
}

void emulator_bytes_come(uint64_t *barrier, int64_t bytes, const EmulatorClock *clock)
{
    InMemory *b = find(barrier);
    emulator_clock_add(&b->now, clock);
    b->bytes -= bytes;
    end_phase(b);
}

/* --- With numbers ----------------------------------------------------------------------------- */

static void nothing(void *const of_lane[EMULATOR_WARP], uint32_t mask) {}

void emulator_barrier_number(int number, int threads, int is_waiting)
{
    if (number < 1 || number >= NUMBERS || threads % EMULATOR_WARP)
        emulator_fault(true, "meets %d threads at barrier %d", threads, number);
    emulator_together(nothing, 0xFFFFFFFFu, NULL, false);
    Numbered *b = &numbered[number];
    is_numbered_used = true;
    const uint32_t phase = b->phase, own = emulator_thread_index();
    if (b->arrived && b->threads != threads)
        emulator_fault(true, "meets %d threads at barrier %d, where others meet %d", threads, number, b->threads);
    if (b->of_thread[own] == phase + 1)
        emulator_fault(true, "arrives at barrier %d, where it has arrived and not all others", number);
    b->threads = threads;
    b->of_thread[own] = phase + 1;
    emulator_clock_give(&b->now);
    if (++b->arrived == threads) {
        b->phase++;
        b->arrived = 0;
        b->over = b->now;
        b->now = (EmulatorClock){ { 0 } };
        emulator_wake();
    }
    while (is_waiting && b->phase == phase)
        emulator_sleep();
    if (is_waiting)
        emulator_clock_take(&b->over);
}

/* --- Registers -------------------------------------------------------------------------------- */

static int of_launch(void) { return MOST_REGISTERS / (int)emulator_block_size() / 8 * 8; }

void emulator_set_registers(int count, int is_more)
{
    const int warp = (int)emulator_thread_index() / EMULATOR_WARP,
              before = registers[warp] ? registers[warp] : of_launch();
    emulator_together(nothing, 0xFFFFFFFFu, NULL, false);
    if (count % 8 || count < 24 || count > 256 ||
        (emulator_thread_index() % EMULATOR_WARP == 0 && (count > before) != is_more))
        emulator_fault(true, "sets %d registers, of %d", count, before);
    registers[warp] = count;
}

static void check_registers(void)
{
    const int warps = (int)emulator_block_size() / EMULATOR_WARP;
    int all = 0;
    for (int i = 0; i < warps; i++) {
        if (registers[i] != registers[i / 4 * 4])
            emulator_fault(false, "warps %d and %d, of one warpgroup, have other numbers of registers", i / 4 * 4, i);
        all += registers[i] ? registers[i] : of_launch();
    }
    if (all > of_launch() * warps)
        emulator_fault(false, "warps wait for registers for ever: %d for %d warps, of %d", all, warps,
                       of_launch() * warps);
}

void emulator_check_barriers(void)
{
    for (int i = 0; i < count_in_memory; i++)
        if (in_memory[i].bytes)
            emulator_fault(false, "the block ends with %" PRId64 " bytes expected", in_memory[i].bytes);
    for (int i = 0; i < NUMBERS; i++)
        if (is_numbered_used && numbered[i].arrived)
            emulator_fault(false, "the block ends with %d threads at barrier %d", numbered[i].arrived, i);
    check_registers();
}
