/* member.c -- the files of a folder.  Its names and links are untrusted: what is read may be published by mpc export.
 */
#include "member.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *path_in(Arena *arena, const char *folder, const char *name)
{
    const size_t length = strlen(folder);
    return arena_text(arena, "%s%s%s", folder, length && folder[length - 1] == '/' ? "" : "/", name);
}

bool has_member(Run *run, const char *folder, const char *name)
{
    struct stat status;
    return lstat(path_in(&run->arena, folder, name), &status) == 0;
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static void add_member(Arena *arena, TextList *names, const char *name)
{
    GROW(arena, names->at, names->count, names->room);
    names->at[names->count++] = arena_text(arena, "%s", name);
}

/* What is given instead of a folder is often the name of a model, or a file in the folder. */
static bool folder_failed(Run *run, const char *folder)
{
    const char *why = strerror(errno), *slash = strrchr(folder, '/');
    if (errno == ENOENT)
        return run_failed(run, "there is no folder %s: 'hf download OWNER/NAME --local-dir DIR' fetches one", folder);
    if (errno == ENOTDIR)
        return run_failed(run, "%s is a file: give the folder that it is in, %s", folder,
                          slash ? arena_text(&run->arena, "%.*s", (int)(slash - folder), folder) : ".");
    return run_failed(run, "cannot read the folder %s: %s", folder, why);
}

bool list_members(Run *run, const char *folder, TextList *names)
{
    DIR *dir = opendir(folder);
    *names = (TextList){ 0 };
    if (!dir)
        return folder_failed(run, folder);
    for (const struct dirent *entry; (entry = readdir(dir));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            add_member(&run->arena, names, entry->d_name);
    closedir(dir);
    if (names->count)
        qsort(names->at, (size_t)names->count, sizeof *names->at, by_text);
    return true;
}

/* --- Hugging Face's cache -------------------------------------------------------------------- */

/* models--OWNER--NAME/snapshots/REVISION, whatever the folder is called on the command line. */
static bool is_snapshot(Run *run, int folder)
{
    char path[PATH_MAX];
    const ssize_t length = readlink(arena_text(&run->arena, "/proc/self/fd/%d", folder), path, sizeof path - 1);
    if (length <= 0)
        return false;
    path[length] = '\0';
    *strrchr(path, '/') = '\0';
    const char *slash = strrchr(path, '/');
    return slash && strcmp(slash, "/snapshots") == 0;
}

/* The HASH of "../../blobs/HASH", which is one of git or SHA-256; NULL: another link. */
static const char *blob_of(const char *target)
{
    static const char blobs[] = "../../blobs/";
    const char *hash = target + strlen(blobs);
    if (strncmp(target, blobs, strlen(blobs)) != 0)
        return NULL;
    const size_t length = strspn(hash, "0123456789abcdef");
    return hash[length] == '\0' && (length == 40 || length == 64) ? hash : NULL;
}

static int open_blob(int folder, const char *hash)
{
    const int blobs = openat(folder, "../../blobs", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (blobs < 0)
        return -1;
    const int file = openat(blobs, hash, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const int reason = errno;
    close(blobs);
    errno = reason;
    return file;
}

/* --- Any file -------------------------------------------------------------------------------- */

static int refuse_link(Run *run, const char *path, const char *target)
{
    run_failed(
        run,
        "%s is a link to %s: a folder's links are not followed, since what they point to may be anybody's: put a "
        "copy of the file in its place",
        path, target);
    return -1;
}

/* What is a link in the folder. */
static int open_link(Run *run, const char *folder, int fd, const char *name)
{
    char target[PATH_MAX];
    const char *path = path_in(&run->arena, folder, name);
    const ssize_t length = readlinkat(fd, name, target, sizeof target - 1);
    if (length < 0) {
        run_failed(run, "cannot read %s: %s", path, strerror(errno));
        return -1;
    }
    target[length] = '\0';
    const char *hash = is_snapshot(run, fd) ? blob_of(target) : NULL;
    if (!hash)
        return refuse_link(run, path, target);
    const int file = open_blob(fd, hash);
    if (file < 0)
        run_failed(run, "cannot read %s, a link to %s: %s: download it again", path, target, strerror(errno));
    return file;
}

static int open_in(Run *run, const char *folder, int fd, const char *name)
{
    const char *path = path_in(&run->arena, folder, name);
    struct stat status;
    int file = openat(fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0 && errno == ELOOP) {
        file = open_link(run, folder, fd, name);
        if (file < 0)
            return -1;
    }
    if (file < 0 || fstat(file, &status) != 0) {
        run_failed(run, "cannot read %s: %s", path, strerror(errno));
    } else if (!S_ISREG(status.st_mode)) {
        run_failed(run, "cannot read %s: it is a %s, and must be a plain file", path,
                   S_ISDIR(status.st_mode)    ? "folder"
                   : S_ISFIFO(status.st_mode) ? "pipe"
                                              : "device");
        close(file);
    } else {
        return file;
    }
    return -1;
}

int open_member(Run *run, const char *folder, const char *name)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        folder_failed(run, folder);
        return -1;
    }
    const int file = open_in(run, folder, fd, name);
    close(fd);
    return file;
}
