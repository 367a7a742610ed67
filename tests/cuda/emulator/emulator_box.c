/* emulator_box.c -- tensor maps, and copies of boxes to shared memory by them: elements of 16 bits, swizzled by 128
 * bytes.
 *
 * Copies come when nothing else goes on, the last one first: a thread that does not wait for them does not see them. */
#include "emulator.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_COPIES = 64, BYTES = 2, SPAN = 128, PIECE = 16, WIDEST = 256 };

typedef struct {
    char mark[8];
    const char *base;
    uint64_t size[EMULATOR_MAX_DIMS], stride[EMULATOR_MAX_DIMS]; /* strides in bytes */
    uint32_t box[EMULATOR_MAX_DIMS - 1];
    int dims;
} Map;

_Static_assert(sizeof(Map) <= EMULATOR_MAP_BYTES, "as CUtensorMap");

typedef struct {
    Map map;
    uint32_t to;
    uint64_t *barrier;
    int at[4];
    EmulatorClock clock;
} Copy;

static Copy copies[MAX_COPIES];
static int count;

static const char mark[8] = "tensor";

bool emulator_make_map(void *map, int dims, const void *base, const uint64_t size[], const uint64_t stride[],
                       const uint32_t box[])
{
    Map m = { .base = base, .dims = dims };
    memcpy(m.mark, mark, sizeof mark);
    if (dims != 4 || (uintptr_t)base % PIECE || (uintptr_t)map % 64 || box[0] * BYTES > SPAN || box[0] * BYTES % PIECE)
        return false;
    for (int i = 0; i < dims; i++) {
        if (size[i] < 1 || size[i] > UINT64_C(1) << 32 || box[i] < 1 || box[i] > WIDEST)
            return false;
        if (i > 0 && (stride[i - 1] % PIECE || stride[i - 1] >= UINT64_C(1) << 40))
            return false;
        m.size[i] = size[i];
        m.stride[i] = i > 0 ? stride[i - 1] : BYTES;
        m.box[i] = box[i];
    }
    memset(map, 0, EMULATOR_MAP_BYTES);
    memcpy(map, &m, sizeof m);
    return true;
}

static int rows_of(const Map *m) { return (int)(m->box[1] * m->box[2] * m->box[3]); }

/* Where row `row` of the box begins, or NULL if it is outside; its elements that are inside are from `first` to before
 * `end`. */
static const char *row_of(const Copy *c, int row, int *first, int *end)
{
    const Map *m = &c->map;
    const int64_t begin = c->at[0];
    const char *from = m->base + begin * BYTES;
    for (int i = 1; i < m->dims; i++) {
        const int64_t at = c->at[i] + row % (int)m->box[i];
        row /= (int)m->box[i];
        if (at < 0 || at >= (int64_t)m->size[i])
            return NULL;
        from += at * (int64_t)m->stride[i];
    }
    *first = begin < 0 ? (int)-begin : 0;
    *end = begin + m->box[0] > (int64_t)m->size[0] ? (int)((int64_t)m->size[0] - begin) : (int)m->box[0];
    return *first < *end ? from : NULL;
}

/* Piece p of 16 bytes of row r of 128 bytes is at p ^ r % 8, by the address in shared memory. */
static uint32_t swizzled(uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

void emulator_copy_box(void *shared, const void *map, uint64_t *barrier, const int at[4])
{
    Copy *c = &copies[count];
    if (count++ == MAX_COPIES)
        abort();
    memcpy(&c->map, map, sizeof c->map);
    memcpy(c->at, at, sizeof c->at);
    c->to = emulator_shared_address(shared);
    c->barrier = barrier;
    c->clock = (EmulatorClock){ { 0 } };
    if (memcmp(c->map.mark, mark, sizeof mark) != 0)
        emulator_fault(true, "copies a box by what is no tensor map");
    if (c->to % SPAN || c->map.box[0] * BYTES != SPAN)
        emulator_fault(true, "copies a box of %u bytes a row to shared memory at %u", c->map.box[0] * BYTES, c->to);
    emulator_touch_async(barrier, sizeof *barrier, false);
    char *to = emulator_shared_at(c->to, (int64_t)rows_of(&c->map) * SPAN);
    for (int row = 0; row < rows_of(&c->map); row++) {
        int first, end;
        const char *from = row_of(c, row, &first, &end);
        if (from)
            emulator_touch_async(from + first * BYTES, (end - first) * BYTES, false);
        emulator_touch_async(to + row * SPAN, SPAN, true);
        emulator_set_there(to + row * SPAN, SPAN, false);
        memset(to + row * SPAN, 0xFF, SPAN);
    }
    emulator_clock_give(&c->clock);
}

bool emulator_bring_a_box(void)
{
    if (count == 0)
        return false;
    const Copy *c = &copies[--count];
    for (int row = 0; row < rows_of(&c->map); row++) {
        int first = 0, end = 0;
        const char *from = row_of(c, row, &first, &end);
        char whole[SPAN] = { 0 };
        if (from)
            memcpy(whole + first * BYTES, from + first * BYTES, (size_t)(end - first) * BYTES);
        for (int piece = 0; piece < SPAN; piece += PIECE)
            memcpy(emulator_shared_at(swizzled(c->to + (uint32_t)(row * SPAN + piece)), PIECE), whole + piece, PIECE);
    }
    const int64_t bytes = (int64_t)rows_of(&c->map) * SPAN;
    emulator_set_there(emulator_shared_at(c->to, bytes), bytes, true);
    emulator_bytes_come(c->barrier, bytes, &c->clock);
    return true;
}

void emulator_new_boxes(void) { count = 0; }

void emulator_check_boxes(void)
{
    if (count)
        emulator_fault(false, "the block ends, and %d copies of boxes have not come", count);
}
