/* disk.c -- tensors in a file, which is read and written directly, without the system's cache.
 *
 * Direct transfers are of whole pages, from and to memory that begins at a page: they go through a buffer.  Of a page
 * that is written in part, the rest is read first; so tensors in one page may be written one after the other. */
#include "disk.h"

#include "space.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/statvfs.h>
#include <sys/vfs.h>

enum { PAGE = 4096, AT_ONCE = RT_FAR_BUFFER_BYTES, TMPFS = 0x01021994 };

struct RtDisk {
    int file;
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
        if (posix_memalign((void **)&disk->buffer[i], PAGE, AT_ONCE))
            rt_fail("out of memory: %d buffers of %s for offloaded tensors", RT_FAR_BUFFERS,
                    rt_bytes_text(AT_ONCE).text);
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

/* Pages of the file that have the next bytes from `at` on, as many as the buffer has. */
typedef struct {
    int64_t begin, bytes; /* whole pages */
    int64_t skip, count;  /* in there: where the bytes begin, and how many */
} Pages;

static Pages pages_with(int64_t at, int64_t bytes)
{
    const int64_t begin = at / PAGE * PAGE, most = begin + AT_ONCE, end = at + bytes < most ? at + bytes : most;
    return (Pages){ begin, (end - begin + PAGE - 1) / PAGE * PAGE, at - begin, end - at };
}

static int64_t in_file(const Rt *rt, int64_t offset) { return offset - rt->program->far_begin; }

void rt_disk_read(const Rt *rt, void *to, int64_t offset, int64_t bytes, bool ahead)
{
    const struct RtDisk *disk = rt->far->disk;
    char *buffer = disk->buffer[!ahead];
    for (int64_t done = 0; done < bytes;) {
        const Pages pages = pages_with(in_file(rt, offset) + done, bytes - done);
        transfer(disk, buffer, pages.begin, pages.bytes, false);
        memcpy((char *)to + done, buffer + pages.skip, (size_t)pages.count);
        done += pages.count;
    }
}

/* What is in the first and the last page and is not written. */
static void read_edges(const struct RtDisk *disk, char *buffer, const Pages *pages)
{
    const int64_t last = pages->bytes - PAGE;
    if (pages->skip)
        transfer(disk, buffer, pages->begin, PAGE, false);
    if ((pages->skip + pages->count) % PAGE && (last > 0 || !pages->skip))
        transfer(disk, buffer + last, pages->begin + last, PAGE, false);
}

void rt_disk_write(const Rt *rt, int64_t offset, const void *from, int64_t bytes, bool ahead)
{
    const struct RtDisk *disk = rt->far->disk;
    char *buffer = disk->buffer[!ahead];
    for (int64_t done = 0; done < bytes;) {
        const Pages pages = pages_with(in_file(rt, offset) + done, bytes - done);
        read_edges(disk, buffer, &pages);
        if (from)
            memcpy(buffer + pages.skip, (const char *)from + done, (size_t)pages.count);
        else
            memset(buffer + pages.skip, 0, (size_t)pages.count);
        transfer(disk, buffer, pages.begin, pages.bytes, true);
        done += pages.count;
    }
}

void rt_disk_zero(const Rt *rt, int64_t offset, int64_t bytes) { rt_disk_write(rt, offset, NULL, bytes, false); }

char *rt_disk_window_open(const Rt *rt, int64_t offset, int64_t bytes)
{
    char *window = rt_allocate(bytes, 1);
    rt_disk_read(rt, window, offset, bytes, false);
    return window;
}

void rt_disk_window_close(const Rt *rt, char *window, int64_t offset, int64_t bytes, bool is_changed)
{
    if (is_changed)
        rt_disk_write(rt, offset, window, bytes, false);
    free(window);
}
