/* emulator_order.c -- what threads of a block know of each other's accesses, by barriers that not all of them share:
 * clocks (Lamport, https://doi.org/10.1145/359545.359563) with an epoch of each thread (Mattern 1989).
 *
 * Barriers of the whole block, and within a warp, are counted instead (emulator_memory.c): most kernels have no others.
 */
#include "emulator.h"

#include <string.h>

static EmulatorClock known[EMULATOR_MAX_THREADS]; /* of[own]: the present epoch */
static uint32_t fences[EMULATOR_MAX_THREADS];
static bool is_used;

void emulator_new_clocks(void)
{
    memset(fences, 0, emulator_block_size() * sizeof *fences);
    is_used = false;
}

/* Nothing is known in a block, and each thread is in epoch 1, until clocks are used: where memory is checked. */
static void begin(void)
{
    if (!emulator_checks_memory())
        return;
    for (unsigned i = 0; i < emulator_block_size() && !is_used; i++) {
        memset(&known[i], 0, sizeof known[i]);
        known[i].of[i] = 1;
    }
    is_used = true;
}

void emulator_clock_add(EmulatorClock *to, const EmulatorClock *from)
{
    for (unsigned i = 0; i < emulator_block_size() && is_used; i++)
        to->of[i] = from->of[i] > to->of[i] ? from->of[i] : to->of[i];
}

void emulator_clock_give(EmulatorClock *to)
{
    const unsigned own = emulator_thread_index();
    begin();
    if (!is_used)
        return;
    emulator_clock_add(to, &known[own]);
    known[own].of[own]++;
}

void emulator_clock_take(const EmulatorClock *from)
{
    begin();
    emulator_clock_add(&known[emulator_thread_index()], from);
}

void emulator_clocks_meet(int first, uint32_t mask)
{
    if (!is_used)
        return;
    EmulatorClock all = { { 0 } };
    for (int i = 0; i < EMULATOR_WARP; i++)
        if (mask >> i & 1)
            emulator_clock_add(&all, &known[first + i]);
    for (int i = 0; i < EMULATOR_WARP; i++)
        if (mask >> i & 1) {
            known[first + i] = all;
            known[first + i].of[first + i]++;
        }
}

uint32_t emulator_epoch(int thread) { return is_used ? known[thread].of[thread] : 1; }

bool emulator_knows(int thread, int other, uint32_t epoch) { return is_used && known[thread].of[other] >= epoch; }

uint32_t emulator_fences(int thread) { return fences[thread]; }

void emulator_fence_async(void) { fences[emulator_thread_index()]++; }
