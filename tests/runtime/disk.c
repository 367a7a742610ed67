/* disk.c -- random transfers between memory and the file of offloaded tensors, compared with a copy in memory.
 *
 *   disk FOLDER SEED COUNT      says what differs first, and ends with status 1 */
#include "far/disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 9 << 20, BEGIN = 12288, GUARD = 8192, NOTHING = 0x5a };

static uint64_t state;

static int64_t below(int64_t limit)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)limit);
}

/* Small, of the size of a few blocks, or larger than a buffer. */
static int64_t some_bytes(void)
{
    static const int64_t most[] = { 64, 600, 5000, 70000, BYTES };
    const int64_t bytes = 1 + below(most[below(5)]);
    return below(3) ? bytes : (bytes + 4095) / 4096 * 4096;
}

static int64_t some_multiple(int64_t limit)
{
    static const int64_t unit[] = { 1, 4, 64, 512, 4096 };
    const int64_t at = below(limit);
    return at - at % unit[below(5)];
}

static bool is_untouched(const char *from, const char *to)
{
    while (from < to && *from == NOTHING)
        from++;
    return from == to;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    const RtProgram program = { .name = "disk", .far_begin = BEGIN, .far_bytes = BYTES };
    struct RtFar far = { 0 };
    Rt rt = { .program = &program, .far = &far };
    far.disk = rt_disk_open(&rt, argv[1]);
    state = strtoull(argv[2], NULL, 10);
    const int64_t room = BYTES + 2 * GUARD;
    char *file = calloc(1, BYTES), *memory = aligned_alloc(4096, (size_t)room);
    for (int i = 0; i < atoi(argv[3]); i++) {
        int64_t bytes = some_bytes();
        bytes = bytes < BYTES ? bytes : BYTES;
        const int64_t at = some_multiple(BYTES - bytes + 1), what = below(7);
        char *tensor = memory + some_multiple(GUARD);
        memset(memory, NOTHING, (size_t)room);
        if (what == 0) {
            rt_disk_zero(&rt, BEGIN + at, bytes);
            memset(file + at, 0, (size_t)bytes);
        } else if (what < 4) {
            for (int64_t j = 0; j < bytes; j++)
                tensor[j] = (char)(j * 7 + (j >> 9) + i);
            rt_disk_write(&rt, BEGIN + at, tensor, bytes, what & 1);
            memcpy(file + at, tensor, (size_t)bytes);
        } else {
            rt_disk_read(&rt, tensor, BEGIN + at, bytes, what & 1);
            if (memcmp(tensor, file + at, (size_t)bytes) || !is_untouched(memory, tensor) ||
                !is_untouched(tensor + bytes, memory + room)) {
                printf("transfer %d: %lld bytes from %lld to %p\n", i, (long long)bytes, (long long)at, (void *)tensor);
                return 1;
            }
        }
    }
    rt_disk_read(&rt, memory, BEGIN, BYTES, false);
    if (memcmp(memory, file, BYTES)) {
        printf("the whole file\n");
        return 1;
    }
    rt_disk_close(far.disk);
    free(file);
    free(memory);
    return 0;
}
