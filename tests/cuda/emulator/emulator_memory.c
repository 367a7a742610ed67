/* emulator_memory.c -- memory accesses of kernels: the functions that -fsanitize=thread calls at each access.
 *
 * For each byte of the device's memory and of shared memory a Shadow records whether it has been written, and its last
 * writer and readers.  Two accesses of one byte by different threads, one of them a write, must have a barrier between
 * them, or know of each other by barriers of Hopper (emulator_order.c); within a warp, a write and a later read
 * __syncwarp, and a read and a later write any operation that the warp does together.
 */
#include "emulator.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Small: each byte has three. */
typedef struct {
    int32_t thread, block;
    uint32_t barriers, warp_barriers, warp_meetings, epoch;
    uint32_t stamp;       /* the launch, or for shared memory the block, in which it happened */
    uint32_t fences : 31; /* of the asynchronous proxy that the thread had before */
    uint32_t is_async : 1;
} Access;

typedef struct {
    bool is_allowed, is_written;
    uint32_t written_stamp; /* shared memory: only what this block has written counts */
    Access write, read[2];
} Shadow;

typedef struct {
    const char *name;
    char *base;
    int64_t bytes;
    bool is_shared, is_constant;
    Shadow *shadow; /* NULL: constants */
} Memory;

enum { MAX_MEMORIES = 16 };

static Memory memories[MAX_MEMORIES];
static int nmemories;
static uint32_t launch_stamp, block_stamp;
static int64_t bytes_moved, bytes_read, bytes_read_once;
static bool is_skipped;

void emulator_skip_memory(void) { is_skipped = true; }
bool emulator_checks_memory(void) { return !is_skipped; }

/* --- Memories --------------------------------------------------------------------------------- */

static Memory *add(const char *name, void *base, int64_t bytes)
{
    if (nmemories == MAX_MEMORIES)
        abort();
    Memory *memory = &memories[nmemories++];
    *memory = (Memory){ .name = name, .base = base, .bytes = bytes };
    return memory;
}

static Shadow *new_shadow(int64_t bytes)
{
    Shadow *shadow = calloc((size_t)bytes + 1, sizeof *shadow);
    if (!shadow)
        abort();
    return shadow;
}

void emulator_add_memory(const char *name, void *base, int64_t bytes)
{
    add(name, base, bytes)->shadow = new_shadow(bytes);
}

void emulator_add_constants(void *base, int64_t bytes) { add("constants", base, bytes)->is_constant = true; }

static Memory *find(const void *at)
{
    for (int i = 0; i < nmemories; i++)
        if ((const char *)at >= memories[i].base && (const char *)at < memories[i].base + memories[i].bytes)
            return &memories[i];
    return NULL;
}

void emulator_allow(void *from, int64_t bytes, bool is_written)
{
    Memory *memory = find(from);
    if (!memory || (char *)from + bytes > memory->base + memory->bytes)
        abort();
    for (int64_t i = 0; i < bytes; i++) {
        Shadow *shadow = &memory->shadow[(char *)from - memory->base + i];
        shadow->is_allowed = true;
        shadow->is_written |= is_written;
    }
}

bool emulator_is_written(const void *at)
{
    const Memory *memory = find(at);
    return memory && memory->shadow && memory->shadow[(const char *)at - memory->base].is_written;
}

void emulator_forget_memory(void)
{
    for (int i = 0; i < nmemories; i++)
        free(memories[i].shadow);
    nmemories = 0;
}

void emulator_set_shared(void *base, int64_t bytes)
{
    Memory *memory = add("shared memory", base, bytes);
    memory->shadow = new_shadow(bytes);
    memory->is_shared = true;
}

void emulator_new_launch(void)
{
    launch_stamp++;
    bytes_moved = bytes_read = bytes_read_once = 0;
}

int64_t emulator_bytes_moved(void) { return bytes_moved; }
double emulator_times_read(void) { return bytes_read_once ? (double)bytes_read / (double)bytes_read_once : 0; }

void emulator_new_block(void *dynamic_shared, int64_t bytes)
{
    block_stamp++;
    if (bytes && !is_skipped && !find(dynamic_shared))
        emulator_set_shared(dynamic_shared, bytes);
}

void emulator_drop_shared(void *dynamic_shared)
{
    if (is_skipped)
        return;
    Memory *memory = find(dynamic_shared);
    free(memory->shadow);
    *memory = memories[--nmemories];
}

/* --- Accesses --------------------------------------------------------------------------------- */

static bool is_ordered(const Access *earlier, const EmulatorPlace *now, bool write_then_read_or_write)
{
    if (earlier->thread == now->thread)
        return true;
    if (earlier->block != now->block)
        return false;
    if (earlier->barriers < now->barriers)
        return true;
    const int in_block = now->in_block + (int)(earlier->thread - now->thread);
    if (emulator_knows(now->in_block, in_block, earlier->epoch))
        return true;
    if (in_block / EMULATOR_WARP != now->warp)
        return false;
    return write_then_read_or_write ? earlier->warp_barriers < now->warp_barriers
                                    : earlier->warp_meetings < now->warp_meetings;
}

static Access access_now(const EmulatorPlace *now, uint32_t stamp, bool is_async)
{
    return (Access){ .thread = (int32_t)now->thread,
                     .block = (int32_t)now->block,
                     .barriers = now->barriers,
                     .warp_barriers = now->warp_barriers,
                     .warp_meetings = now->warp_meetings,
                     .epoch = now->epoch,
                     .stamp = stamp,
                     .fences = emulator_fences(now->in_block),
                     .is_async = is_async };
}

/* Was it stored, and is no fence behind that? */
static bool is_unseen(const Access *write, const EmulatorPlace *now, uint32_t stamp)
{
    return write->stamp == stamp && !write->is_async &&
           emulator_fences(now->in_block + (int)(write->thread - now->thread)) <= write->fences;
}

static void race(const Memory *memory, int64_t at, const Access *other, const char *what, const char *did)
{
    emulator_fault(false, "%s byte %" PRId64 " of %s, which thread %d of all has %s with no barrier between", what, at,
                   memory->name, other->thread, did);
}

static bool note_read(Memory *memory, int64_t at, const EmulatorPlace *now, uint32_t stamp, bool is_async)
{
    Shadow *s = &memory->shadow[at];
    bool is_written = memory->is_shared ? s->written_stamp == block_stamp : s->is_written;
    if (!is_written) {
        emulator_fault(false, "reads byte %" PRId64 " of %s, which nobody has written", at, memory->name);
        return false;
    }
    if (s->write.stamp == stamp && !is_ordered(&s->write, now, true)) {
        race(memory, at, &s->write, "reads", "written");
        return false;
    }
    const bool is_first = !memory->is_shared && s->read[0].stamp != stamp;
    bytes_moved += is_first, bytes_read_once += is_first, bytes_read += !memory->is_shared;
    /* The last reader, and the last one that is another. */
    if (s->read[0].stamp == stamp && s->read[0].thread != now->thread)
        s->read[1] = s->read[0];
    s->read[0] = access_now(now, stamp, is_async);
    return true;
}

static bool note_write(Memory *memory, int64_t at, const EmulatorPlace *now, uint32_t stamp, bool is_async)
{
    Shadow *s = &memory->shadow[at];
    if (s->write.stamp == stamp && !is_ordered(&s->write, now, true)) {
        race(memory, at, &s->write, "writes", "written");
        return false;
    }
    for (int i = 0; i < 2; i++)
        if (s->read[i].stamp == stamp && !is_ordered(&s->read[i], now, false)) {
            race(memory, at, &s->read[i], "writes", "read");
            return false;
        }
    bytes_moved += !memory->is_shared && s->write.stamp != stamp;
    s->write = access_now(now, stamp, is_async);
    s->is_written = true;
    s->written_stamp = block_stamp;
    return true;
}

/* gcc may take an access of 16 bytes apart, so that the accesses alone do not tell. */
void emulator_on_boundary(const void *at, size_t bytes)
{
    if ((uintptr_t)at % bytes)
        emulator_fault(false, "loads or stores %zu bytes at an address that is no multiple of that", bytes);
}

static void touch(const void *address, int64_t bytes, bool is_write, bool is_async)
{
    const EmulatorPlace *now = is_skipped ? NULL : emulator_place();
    const char *from = address;
    if (!now || (from >= now->stack && from < now->stack_end))
        return;
    const char *what = is_write ? "writes" : "reads";
    Memory *memory = find(from);
    if (!memory || from + bytes > memory->base + memory->bytes) {
        emulator_fault(true, "%s %" PRId64 " bytes outside of all memory", what, bytes);
        return;
    }
    if (memory->is_constant) {
        if (is_write)
            emulator_fault(true, "writes constants");
        return;
    }
    const uint32_t stamp = memory->is_shared ? block_stamp : launch_stamp;
    for (int64_t i = from - memory->base; i < from - memory->base + bytes; i++) {
        if (!memory->is_shared && !memory->shadow[i].is_allowed) {
            emulator_fault(false, "%s byte %" PRId64 " of %s, which belongs to no operand", what, i, memory->name);
            return;
        }
        if (is_async && memory->is_shared && is_unseen(&memory->shadow[i].write, now, stamp)) {
            emulator_fault(false, "a product or a copy %s byte %" PRId64 " of %s, stored without a fence behind it",
                           what, i, memory->name);
            return;
        }
        if (!(is_write ? note_write : note_read)(memory, i, now, stamp, is_async))
            return;
    }
}

void emulator_touch(const void *at, int64_t bytes, bool is_write) { touch(at, bytes, is_write, false); }
void emulator_touch_async(const void *at, int64_t bytes, bool is_write) { touch(at, bytes, is_write, true); }

void emulator_store_global(void *to, const void *from, size_t bytes)
{
    const Memory *memory = is_skipped ? NULL : find(to);
    if (memory && memory->is_shared)
        emulator_fault(true, "stores to shared memory as if it were global");
    emulator_on_boundary(to, bytes);
    emulator_touch(to, (int64_t)bytes, true);
    memcpy(to, from, bytes);
}

void emulator_set_there(void *at, int64_t bytes, bool is_there)
{
    Memory *memory = is_skipped ? NULL : find(at);
    for (int64_t i = 0; memory && i < bytes; i++)
        memory->shadow[(char *)at - memory->base + i].written_stamp = is_there ? block_stamp : 0;
}

void emulator_take_away(void *at, int64_t bytes)
{
    emulator_touch(at, bytes, true);
    emulator_set_there(at, bytes, false);
}

/* --- Functions called by gcc ------------------------------------------------------------------- */

#define ACCESS(bytes)                                                                                                  \
    void __tsan_read##bytes(void *at);                                                                                 \
    void __tsan_write##bytes(void *at);                                                                                \
    void __tsan_unaligned_read##bytes(void *at);                                                                       \
    void __tsan_unaligned_write##bytes(void *at);                                                                      \
    void __tsan_read##bytes(void *at) { emulator_touch(at, bytes, false); }                                            \
    void __tsan_write##bytes(void *at) { emulator_touch(at, bytes, true); }                                            \
    void __tsan_unaligned_read##bytes(void *at) { emulator_touch(at, bytes, false); }                                  \
    void __tsan_unaligned_write##bytes(void *at) { emulator_touch(at, bytes, true); }

ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

void __tsan_read_range(void *at, long bytes);
void __tsan_write_range(void *at, long bytes);
void __tsan_init(void);
void __tsan_func_entry(void *at);
void __tsan_func_exit(void);
void __tsan_read_range(void *at, long bytes) { emulator_touch(at, bytes, false); }
void __tsan_write_range(void *at, long bytes) { emulator_touch(at, bytes, true); }
void __tsan_init(void) {}
void __tsan_func_entry(void *at) {}
void __tsan_func_exit(void) {}
