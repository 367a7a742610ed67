/* output.c -- writes a file under another name and renames it, so that a full disk, a signal or a power failure leaves
 * the old file intact.
 *
 * What fills the buffer goes past the kernel's cache of pages (O_DIRECT), where the file system allows it: copying a
 * checkpoint there takes processors from the training beside it for longer than all else of writing, and puts out what
 * others need in memory.  So whole pages of the buffer are whole pages of the file.  What is large and lies right goes
 * from where it is, without the buffer. */
#include "output.h"

#include "partial.h"
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    BUFFER_BYTES = 4 << 20,
    PAGE = 4096,
    WORTH_IT = 256 << 10
}; /* bytes; a write past the cache waits for the disk */

/* The directory of `path`; owned by the caller. */
static char *directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return rt_text(".");
    return slash == path ? rt_text("/") : rt_text("%.*s", (int)(slash - path), path);
}

char *rt_output_target(const char *path)
{
    enum { MOST = 40 }; /* the kernel's limit, for cycles of links */
    char *target = rt_text("%s", path), link[PATH_MAX];
    for (int i = 0; i < MOST; i++) {
        ssize_t length = readlink(target, link, sizeof link - 1);
        if (length < 0)
            break;
        link[length] = '\0';
        char *directory = directory_of(target), *next = rt_text("%s/%s", directory, link);
        free(target);
        target = *link == '/' ? rt_text("%s", link) : rt_text("%s", next);
        free(directory);
        free(next);
    }
    return target;
}

char *rt_output_partial(const char *path)
{
    char *target = rt_output_target(path), *partial = rt_text("%s.tmp", target);
    free(target);
    return partial;
}

int rt_output_create(const char *path, const char *option, bool truncate)
{
    char *partial = rt_output_partial(path);
    struct stat info;
    const bool is_there = !stat(path, &info);
    const mode_t mode = is_there ? info.st_mode : 0;
    if (is_there && !S_ISREG(mode))
        rt_fail("%s %s: it is %s, not a file that can be replaced; give another name", option, path,
                S_ISDIR(mode) ? "a directory" : "a device or a pipe");
    int file = rt_partial_open(partial, truncate), cause = errno;
    if (file < 0 && !lstat(partial, &info) && !S_ISREG(info.st_mode))
        rt_fail("%s %s: it is written as %s first, which is there and is not a file; remove that, or give another name",
                option, path, partial);
    if (file < 0)
        rt_fail("%s %s: cannot write %s: %s; give a place in an existing, writable directory", option, path, partial,
                strerror(cause));
    if (is_there)
        fchmod(file, mode & 0777); /* who may read the old file may read the new one, and nobody else */
    free(partial);
    return file;
}

void rt_output_check_room(const char *path, const char *option, int64_t bytes, int64_t most_bytes, int64_t checkpoints)
{
    char *target = rt_output_target(path), *directory = directory_of(target);
    struct statvfs space;
    struct rlimit most;
    if (!getrlimit(RLIMIT_FSIZE, &most) && most.rlim_cur != RLIM_INFINITY && most.rlim_cur < (rlim_t)most_bytes)
        rt_fail("%s %s: it will need %s, but a file may have %s at most here; raise the limit (ulimit -f)", option,
                path, rt_bytes_text((double)most_bytes).text, rt_bytes_text((double)most.rlim_cur).text);
    const double needed = (double)bytes * (double)checkpoints;
    if (!statvfs(directory, &space) && (double)space.f_bavail * (double)space.f_frsize < needed)
        rt_fail("%s %s: it will need %s, but only %s are free there; free some space or give another path", option,
                path, rt_bytes_text(needed).text, rt_bytes_text((double)space.f_bavail * (double)space.f_frsize).text);
    free(directory);
    free(target);
}

void rt_output_check(const char *path, const char *option)
{
    char *partial = rt_output_partial(path);
    close(rt_output_create(path, option, true));
    unlink(partial);
    free(partial);
}

void rt_output_require(const RtOutput *output)
{
    struct stat info;
    if (!output->error)
        return;
    unlink(output->partial);
    rt_fail("%s %s: cannot write it: %s; %s. Free some space or give another path", output->option, output->path,
            strerror(output->error),
            stat(output->path, &info) ? "no file was left" : "the file there before is intact");
}

/* The first error counts. */
static void note_error(RtOutput *output)
{
    if (!output->error)
        output->error = errno;
}

static char *new_buffer(void)
{
    char *buffer = aligned_alloc(PAGE, BUFFER_BYTES);
    if (!buffer)
        rt_fail("out of memory: cannot allocate %d bytes for what is written to a file", BUFFER_BYTES);
    return buffer;
}

RtOutput rt_output_open(const char *path, const char *option)
{
    RtOutput output = {
        .path = path, .option = option, .target = rt_output_target(path), .partial = rt_output_partial(path)
    };
    output.file = rt_output_create(path, option, true);
    output.buffer = new_buffer();
    return output;
}

/* False: the file system has no such writes. */
static bool pass_cache(const RtOutput *output, bool passes)
{
    const int flags = fcntl(output->file, F_GETFL);
    return flags >= 0 && !fcntl(output->file, F_SETFL, passes ? flags | O_DIRECT : flags & ~O_DIRECT);
}

static void write_part(RtOutput *output, int64_t from, int64_t to)
{
    while (from < to && !output->error) {
        ssize_t wrote = write(output->file, output->buffer + from, (size_t)(to - from));
        if (wrote < 0 && errno != EINTR)
            note_error(output);
        if (wrote > 0)
            from += wrote;
    }
}

/* Whole pages.  Returns how many bytes it has written: an error, or less than a page, is left to write_part, which says
 * why. */
static int64_t write_past_cache(const RtOutput *output, const char *from, int64_t bytes)
{
    int64_t done = 0;
    if (output->error || !pass_cache(output, true))
        return 0;
    for (ssize_t wrote = PAGE; done < bytes && wrote > 0 && wrote % PAGE == 0;) {
        wrote = write(output->file, from + done, (size_t)(bytes - done));
        done += wrote > 0 ? wrote : 0;
    }
    pass_cache(output, false);
    return done;
}

/* The next byte is this one of the file. */
static void place(RtOutput *output, int64_t at)
{
    output->begun = output->used = at % PAGE;
    output->at = at - output->begun;
}

static void flush(RtOutput *output)
{
    const int64_t first_page = (output->begun + PAGE - 1) / PAGE * PAGE, last_page = output->used / PAGE * PAGE;
    int64_t from = output->begun;
    if (last_page - first_page >= WORTH_IT) {
        write_part(output, from, first_page);
        from = first_page + write_past_cache(output, output->buffer + first_page, last_page - first_page);
    }
    write_part(output, from, output->used);
    place(output, output->at + output->used);
}

static void add(RtOutput *output, const char *from, int64_t bytes)
{
    while (bytes > 0) {
        int64_t room = BUFFER_BYTES - output->used, part = bytes < room ? bytes : room;
        memcpy(output->buffer + output->used, from, (size_t)part);
        output->used += part;
        from += part;
        bytes -= part;
        if (output->used == BUFFER_BYTES)
            flush(output);
    }
}

/* Writes whole pages from where they are, if they are many and lie as a disk wants it; the rest of the page that the
 * file has come to goes before them.  Returns how many bytes it has taken. */
static int64_t write_straight(RtOutput *output, const char *from, int64_t bytes)
{
    enum { SECTOR = 512 };
    const int64_t rest = (PAGE - output->used % PAGE) % PAGE, pages = (bytes - rest) / PAGE * PAGE;
    if (pages < WORTH_IT || ((uintptr_t)from + (uintptr_t)rest) % SECTOR)
        return 0;
    add(output, from, rest);
    flush(output);
    const int64_t wrote = write_past_cache(output, from + rest, pages);
    place(output, output->at + wrote);
    return rest + wrote;
}

void rt_output_write(RtOutput *output, const void *data, int64_t bytes)
{
    const int64_t straight = write_straight(output, data, bytes);
    add(output, (const char *)data + straight, bytes - straight);
}

void rt_output_settle(const char *path)
{
    char *directory = directory_of(path);
    int file = open(directory, O_RDONLY);
    if (file >= 0) {
        fsync(file); /* ignores errors: some file systems do not support it and do not need it */
        close(file);
    }
    free(directory);
}

RtOutput rt_output_join(const char *path, const char *option)
{
    RtOutput output = {
        .path = path, .option = option, .target = rt_output_target(path), .partial = rt_output_partial(path)
    };
    output.file = open(output.partial, O_WRONLY | O_CLOEXEC);
    if (output.file < 0)
        rt_fail("%s %s: cannot write %s: %s; all ranks need the same file system there", option, path, output.partial,
                strerror(errno));
    output.buffer = new_buffer();
    return output;
}

RtOutput rt_output_beside(const char *path, bool is_new)
{
    RtOutput output = { .path = path };
    output.file = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | (is_new ? O_CREAT | O_EXCL : 0), 0666);
    if (output.file < 0)
        note_error(&output);
    output.buffer = new_buffer();
    return output;
}

void rt_output_reserve(RtOutput *output, int64_t bytes)
{
    if (!output->error && fallocate(output->file, 0, 0, bytes) && errno != EOPNOTSUPP && errno != ENOSYS)
        note_error(output);
}

void rt_output_seek(RtOutput *output, int64_t at)
{
    if (at == output->at + output->used)
        return;
    flush(output);
    if (lseek(output->file, at, SEEK_SET) < 0)
        note_error(output);
    place(output, at);
}

void rt_output_finish(RtOutput *output)
{
    flush(output);
    if (fsync(output->file))
        note_error(output);
    if (close(output->file))
        note_error(output);
    output->file = -1;
    free(output->buffer);
    output->buffer = NULL;
}

void rt_output_discard(RtOutput *output) { unlink(output->partial); }

void rt_output_leave(RtOutput *output)
{
    free(output->partial);
    free(output->target);
}

void rt_output_replace(RtOutput *output)
{
    if (output->file >= 0)
        rt_output_finish(output);
    if (!output->error && rename(output->partial, output->target))
        note_error(output);
    if (!output->error)
        rt_output_settle(output->target);
}

void rt_output_commit(RtOutput *output)
{
    rt_output_replace(output);
    rt_output_require(output);
    rt_output_leave(output);
}
