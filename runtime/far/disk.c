/* disk.c -- tensors in a file, which is read and written directly, without the system's cache.
 *
 * Direct transfers are of whole blocks, from and to memory at certain addresses.  Of a tensor, the blocks that it fills
 * are transferred where it is, if it is at such an address; the rest goes through a buffer.  Of a block that is written
 * in part, the rest is read first; so tensors in one block may be written one after the other. */
#include "disk.h"

#include "space.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/statvfs.h>
#include <sys/vfs.h>

enum { PAGE = 4096, SECTOR = 512, CACHE_LINE = 64, AT_ONCE = RT_FAR_BUFFER_BYTES, TMPFS = 0x01021994 };

struct RtDisk {
    int file;
    int64_t block, alignment;     /* bytes: of what is transferred, and of addresses in memory */
    char *buffer[RT_FAR_BUFFERS]; /* of those ahead, of all others; aligned */
};

/* --- The file ------------------------------------------------------------------------------------------- */

static _Noreturn void refuse(const char *folder, const char *what, int error)
{
    rt_fail("cannot %s a file for offloaded tensors in '%s': %s; --offload-folder names another folder", what, folder,
            strerror(error));
}

/* A file that only this process can open. */
static int open_unnamed(const char *folder)
{
    char *path = rt_text("%s/mpc-offload-XXXXXX", folder);
    const int file = mkostemp(path, O_CLOEXEC);
    if (file < 0)
        refuse(folder, "create", errno);
    if (unlink(path))
        refuse(folder, "unlink", errno);
    free(path);
    return file;
}

/* Room now, rather than an error in the middle of a step. */
static void reserve(int file, const char *folder, int64_t bytes)
{
    struct statvfs room;
    const int error = posix_fallocate(file, 0, bytes);
    if (!error)
        return;
    if (error != ENOSPC || fstatvfs(file, &room))
        refuse(folder, "make room for", error);
    rt_fail("offloaded tensors need %s of disk in '%s', where %s are free; --offload-folder names another folder",
            rt_bytes_text((double)bytes).text, folder,
            rt_bytes_text((double)room.f_bavail * (double)room.f_frsize).text);
}

static void note_memory(int file, const char *folder)
{
    struct statfs system;
    if (fstatfs(file, &system) == 0 && system.f_type == TMPFS)
        rt_note("note: '%s' is in memory, which offloaded tensors take there; --offload-folder names another folder",
                folder);
}

/* All of it, whatever the system does at once. */
static void transfer(const struct RtDisk *disk, char *data, int64_t at, int64_t bytes, bool writes)
{
    while (bytes > 0) {
        const ssize_t done =
            writes ? pwrite(disk->file, data, (size_t)bytes, at) : pread(disk->file, data, (size_t)bytes, at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            rt_fail("offloaded tensors: cannot %s %s of the file: %s", writes ? "write" : "read",
                    rt_bytes_text((double)bytes).text, done < 0 ? strerror(errno) : "it has been cut off");
        data += done;
        at += done;
        bytes -= done;
    }
}

/* Which blocks and addresses direct transfers may have depends on the device: a read tells, of a page that has been
 * written, since others are read without the device.  Whole pages are always right. */
static void find_units(struct RtDisk *disk)
{
    char *memory = disk->buffer[0];
    memset(memory, 0, PAGE);
    transfer(disk, memory, 0, PAGE, true);
    disk->block = pread(disk->file, memory, SECTOR, SECTOR) == SECTOR ? SECTOR : PAGE;
    disk->alignment = CACHE_LINE;
    while (disk->alignment < PAGE && pread(disk->file, memory + disk->alignment, PAGE, 0) != PAGE)
        disk->alignment *= 2;
}

static void *whole_pages(int64_t bytes)
{
    void *memory;
    if (posix_memalign(&memory, PAGE, (size_t)bytes))
        rt_fail("out of memory: a buffer of %s for offloaded tensors", rt_bytes_text((double)bytes).text);
    return memory;
}

/* Not all file systems transfer directly; those that do not are read and written by the system's cache. */
struct RtDisk *rt_disk_open(const Rt *rt, const char *folder)
{
    const RtProgram *program = rt->program;
    struct RtDisk *disk = rt_allocate(1, sizeof *disk);
    folder = folder ? folder : program->far_folder ? program->far_folder : ".";
    disk->file = open_unnamed(folder);
    reserve(disk->file, folder, program->far_bytes);
    note_memory(disk->file, folder);
    (void)fcntl(disk->file, F_SETFL, O_DIRECT);
    for (int i = 0; i < RT_FAR_BUFFERS; i++)
        disk->buffer[i] = whole_pages(AT_ONCE);
    find_units(disk);
    return disk;
}

void rt_disk_close(struct RtDisk *disk)
{
    close(disk->file);
    for (int i = 0; i < RT_FAR_BUFFERS; i++)
        free(disk->buffer[i]);
    free(disk);
}

/* --- Transfers -------------------------------------------------------------------------------------------- */

/* Blocks of the file that have the next bytes from `at` on, as many as the buffer has. */
typedef struct {
    int64_t begin, bytes; /* whole blocks */
    int64_t skip, count;  /* in there: where the bytes begin, and how many */
} Blocks;

static Blocks blocks_with(const struct RtDisk *disk, int64_t at, int64_t bytes)
{
    const int64_t block = disk->block, begin = at / block * block, most = begin + AT_ONCE;
    const int64_t end = at + bytes < most ? at + bytes : most;
    return (Blocks){ begin, (end - begin + block - 1) / block * block, at - begin, end - at };
}

static void read_by_buffer(const struct RtDisk *disk, char *buffer, char *to, int64_t at, int64_t bytes)
{
    for (int64_t done = 0; done < bytes;) {
        const Blocks blocks = blocks_with(disk, at + done, bytes - done);
        transfer(disk, buffer, blocks.begin, blocks.bytes, false);
        memcpy(to + done, buffer + blocks.skip, (size_t)blocks.count);
        done += blocks.count;
    }
}

/* What is in the first and the last block and is not written. */
static void read_edges(const struct RtDisk *disk, char *buffer, const Blocks *blocks)
{
    const int64_t block = disk->block, last = blocks->bytes - block;
    if (blocks->skip)
        transfer(disk, buffer, blocks->begin, block, false);
    if ((blocks->skip + blocks->count) % block && (last > 0 || !blocks->skip))
        transfer(disk, buffer + last, blocks->begin + last, block, false);
}

/* `from`: NULL writes zeros. */
static void write_by_buffer(const struct RtDisk *disk, char *buffer, const char *from, int64_t at, int64_t bytes)
{
    for (int64_t done = 0; done < bytes;) {
        const Blocks blocks = blocks_with(disk, at + done, bytes - done);
        read_edges(disk, buffer, &blocks);
        if (from)
            memcpy(buffer + blocks.skip, from + done, (size_t)blocks.count);
        else
            memset(buffer + blocks.skip, 0, (size_t)blocks.count);
        transfer(disk, buffer, blocks.begin, blocks.bytes, true);
        done += blocks.count;
    }
}

/* The bytes of a tensor before the first block that it fills, in these blocks, and behind them. */
typedef struct {
    int64_t before, direct, behind;
} Parts;

static Parts parts_of(const struct RtDisk *disk, const void *tensor, int64_t at, int64_t bytes)
{
    const int64_t block = disk->block, before = (at + block - 1) / block * block - at;
    const int64_t end = (at + bytes) / block * block - at;
    if (end <= before || ((uintptr_t)tensor + (uintptr_t)before) % (uintptr_t)disk->alignment)
        return (Parts){ .before = bytes };
    return (Parts){ before, end - before, bytes - end };
}

static int64_t in_file(const Rt *rt, int64_t offset) { return offset - rt->program->far_begin; }

void rt_disk_read(const Rt *rt, void *to, int64_t offset, int64_t bytes, bool ahead)
{
    const struct RtDisk *disk = rt->far->disk;
    const int64_t at = in_file(rt, offset);
    const Parts parts = parts_of(disk, to, at, bytes);
    const int64_t end = parts.before + parts.direct;
    read_by_buffer(disk, disk->buffer[!ahead], to, at, parts.before);
    transfer(disk, (char *)to + parts.before, at + parts.before, parts.direct, false);
    read_by_buffer(disk, disk->buffer[!ahead], (char *)to + end, at + end, parts.behind);
}

void rt_disk_write(const Rt *rt, int64_t offset, const void *from, int64_t bytes, bool ahead)
{
    const struct RtDisk *disk = rt->far->disk;
    const int64_t at = in_file(rt, offset);
    const Parts parts = parts_of(disk, from, at, bytes);
    const int64_t end = parts.before + parts.direct;
    write_by_buffer(disk, disk->buffer[!ahead], from, at, parts.before);
    transfer(disk, (char *)from + parts.before, at + parts.before, parts.direct, true);
    write_by_buffer(disk, disk->buffer[!ahead], (const char *)from + end, at + end, parts.behind);
}

void rt_disk_zero(const Rt *rt, int64_t offset, int64_t bytes)
{
    write_by_buffer(rt->far->disk, rt->far->disk->buffer[1], NULL, in_file(rt, offset), bytes);
}

char *rt_disk_window_open(const Rt *rt, int64_t offset, int64_t bytes)
{
    char *window = whole_pages(bytes);
    rt_disk_read(rt, window, offset, bytes, false);
    return window;
}

void rt_disk_window_close(const Rt *rt, char *window, int64_t offset, int64_t bytes, bool is_changed)
{
    if (is_changed)
        rt_disk_write(rt, offset, window, bytes, false);
    free(window);
}
