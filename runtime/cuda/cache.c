/* cache.c -- cache of compiled kernels, and of choices among cuBLASLt's, on disk: keyed by a hash of all that they
 * depend on.
 *
 * A file is written under a temporary name and renamed, so that readers see a whole file or none; it starts with a hash
 * of the rest, so that a damaged file is ignored. */
#include "gpu.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD = 24 }; /* "mpc" and 16 digits */

/* FNV-1a of 64 bits (RFC 9923). */
static uint64_t hash_of(const char *data, size_t bytes)
{
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ (unsigned char)data[i]) * 1099511628211u;
    return hash;
}

/* FNV-1a of 64 bits, twice with different initial values: 128 bits. */
char *rt_cache_key(int count, const char *const texts[], const char *suffix)
{
    uint64_t hash[2] = { 14695981039346656037u, 1469598103934665603u };
    for (int i = 0; i < count; i++)
        for (const char *at = texts[i]; *at; at++)
            for (int k = 0; k < 2; k++)
                hash[k] = (hash[k] ^ (unsigned char)*at) * 1099511628211u;
    return rt_text("%016llx%016llx.%s", (unsigned long long)hash[0], (unsigned long long)hash[1], suffix);
}

static void write_head(char head[HEAD + 1], const void *data, size_t bytes)
{
    snprintf(head, HEAD + 1, "mpc 1 %016llx \n", (unsigned long long)hash_of(data, bytes));
}

static bool make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        bool good = mkdir(path, 0777) == 0 || errno == EEXIST;
        *slash = '/';
        if (!good)
            return false;
    }
    return mkdir(path, 0777) == 0 || errno == EEXIST;
}

char *rt_cache_folder(const char *option)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char *folder = option                               ? rt_text("%s", option)
                   : cache && *cache                    ? rt_text("%s/mpc", cache)
                   : home && *home && strcmp(home, "/") ? rt_text("%s/.cache/mpc", home)
                                                        : NULL;
    if (!folder)
        rt_fail("no folder for compiled kernels: neither XDG_CACHE_HOME nor HOME is set: give --kernel-cache DIR");
    if (!make_folders(folder) || access(folder, W_OK))
        rt_fail("cannot keep compiled kernels in %s: %s; give --kernel-cache DIR, a folder that can be written", folder,
                strerror(errno));
    return folder;
}

void *rt_cache_find(const char *folder, const char *key, size_t *bytes)
{
    char *path = rt_text("%s/%s", folder, key), head[HEAD + 1], expected[HEAD + 1];
    FILE *file = fopen(path, "rb");
    free(path);
    struct stat status;
    char *data = NULL;
    if (file && fstat(fileno(file), &status) == 0 && status.st_size > HEAD) {
        *bytes = (size_t)status.st_size - HEAD;
        data = rt_allocate((int64_t)*bytes, 1);
        bool whole = fread(head, 1, HEAD, file) == HEAD && fread(data, 1, *bytes, file) == *bytes;
        write_head(expected, data, *bytes);
        if (!whole || memcmp(head, expected, HEAD) != 0) {
            free(data);
            data = NULL;
        }
    }
    if (file)
        fclose(file);
    return data;
}

void rt_cache_keep(const char *folder, const char *key, const void *data, size_t bytes)
{
    char *path = rt_text("%s/%s", folder, key), *aside = rt_text("%s.%ld", path, (long)getpid());
    char head[HEAD + 1];
    write_head(head, data, bytes);
    FILE *file = fopen(aside, "wb");
    bool written = file && fwrite(head, 1, HEAD, file) == HEAD && fwrite(data, 1, bytes, file) == bytes;
    if (file && fclose(file) != 0)
        written = false;
    if (!written || rename(aside, path) != 0) {
        int reason = errno;
        unlink(aside);
        rt_fail("cannot keep compiled kernels in %s: %s; give --kernel-cache DIR, a folder that can be written", folder,
                strerror(reason));
    }
    free(aside);
    free(path);
}

RtCacheLock rt_cache_lock(const char *folder, const char *key)
{
    RtCacheLock lock = { .path = rt_text("%s/%s.lock", folder, key) };
    lock.file = open(lock.path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock.file >= 0)
        flock(lock.file, LOCK_EX);
    return lock;
}

void rt_cache_unlock(RtCacheLock *lock)
{
    unlink(lock->path); /* waiting processes hold the file open */
    if (lock->file >= 0)
        close(lock->file);
    free(lock->path);
}
