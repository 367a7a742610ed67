/* object_cache.c -- the cache of compiled units: its folder, keys, and the eviction of objects. */
#define _XOPEN_SOURCE 700 /* for realpath */
#include "object_cache.h"
#include "unfinished.h"

#include "paths.h"

#include <openssl/evp.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- Digests ---------------------------------------------------------------------------------- */

/* SHA-256 of texts and the lengths of these, in hexadecimal. */
typedef struct {
    Arena *arena;
    EVP_MD_CTX *state;
} Digest;

static Digest begin_digest(Arena *arena)
{
    Digest digest = { arena, EVP_MD_CTX_new() };
    if (!digest.state || !EVP_DigestInit_ex(digest.state, EVP_sha256(), NULL))
        out_of_memory(sizeof digest);
    return digest;
}

static void add_text(Digest *digest, const char *text)
{
    const uint64_t length = strlen(text);
    EVP_DigestUpdate(digest->state, &length, sizeof length);
    EVP_DigestUpdate(digest->state, text, length);
}

static char *end_digest(Digest *digest)
{
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned count = 0;
    EVP_DigestFinal_ex(digest->state, bytes, &count);
    EVP_MD_CTX_free(digest->state);
    char *text = NEW_ARRAY(digest->arena, char, 2 * count + 1);
    for (unsigned i = 0; i < count; i++)
        sprintf(text + (size_t)2 * i, "%02x", bytes[i]);
    return text;
}

/* --- What all units depend on ----------------------------------------------------------------- */

static int is_header(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return dot && strcmp(dot, ".h") == 0;
}

static bool add_headers(Run *run, Digest *digest, const char *folder)
{
    struct dirent **names;
    const int count = scandir(folder, &names, is_header, alphasort);
    bool good = count > 0;
    for (int i = 0; i < count; i++) {
        const char *why;
        const Source *header = read_text(run, arena_text(&run->arena, "%s/%s", folder, names[i]->d_name), &why);
        add_text(digest, names[i]->d_name);
        add_text(digest, header ? header->text : "");
        good &= header != NULL;
        free(names[i]);
    }
    if (count >= 0)
        free(names);
    return good;
}

/* Compilers that are scripts may do anything. */
static bool is_script(const char *program)
{
    char head[2] = "";
    FILE *file = fopen(program, "rb");
    const bool is = !file || fread(head, 1, sizeof head, file) != sizeof head || memcmp(head, "#!", sizeof head) == 0;
    if (file)
        fclose(file);
    return is;
}

/* What `program --version` prints: of a compiler behind another name, ccache's for one, too. */
static const char *version_of(Arena *arena, const char *program)
{
    extern char **environ;
    enum { MOST = 4096 };
    char *text = NEW_ARRAY(arena, char, MOST + 1);
    const char *const argv[] = { program, "--version", NULL };
    int ends[2], status;
    pid_t pid;
    if (pipe(ends) != 0)
        return NULL;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    const bool started = posix_spawn(&pid, program, &actions, NULL, (char *const *)argv, environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    ssize_t length = 0, got;
    while (started && length < MOST && (got = read(ends[0], text + length, (size_t)(MOST - length))) > 0)
        length += got;
    close(ends[0]);
    while (started && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return started && length ? text : NULL;
}

static bool add_compiler(Run *run, Digest *digest, const char *name)
{
    struct stat file;
    const char *found = program_on_path(&run->arena, name);
    char *program = found ? realpath(found, NULL) : NULL;
    const char *version = program && !is_script(program) ? version_of(&run->arena, found) : NULL;
    const bool good = version && stat(program, &file) == 0;
    if (good) {
        add_text(digest, version);
        add_text(digest, arena_text(&run->arena, "%s %" PRId64 " %" PRId64 ".%09ld", program, (int64_t)file.st_size,
                                    (int64_t)file.st_mtim.tv_sec, file.st_mtim.tv_nsec));
    }
    free(program);
    return good;
}

/* Adds the lines of /proc/cpuinfo that identify the model of the first processor. */
static void add_processor(Digest *digest)
{
    static const char *const kinds[] = { "vendor_id",  "cpu family", "model",    "stepping",
                                         "cache size", "flags",      "Features", "CPU " };
    FILE *file = fopen("/proc/cpuinfo", "r");
    char *line = NULL;
    size_t room = 0;
    while (file && getline(&line, &room, file) > 0 && *line != '\n')
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            if (strncmp(line, kinds[i], strlen(kinds[i])) == 0)
                add_text(digest, line);
    free(line);
    if (file)
        fclose(file);
}

/* Adds the environment variables that change where gcc and clang look for headers and programs. */
static void add_environment(Digest *digest)
{
    static const char *const names[] = { "CPATH", "C_INCLUDE_PATH", "GCC_EXEC_PREFIX", "COMPILER_PATH" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        add_text(digest, value ? value : "");
    }
}

static char *context_of(Run *run, const Runtime *runtime)
{
    const char **command = unit_command(run, runtime, "", "");
    if (!command)
        return NULL;
    Digest digest = begin_digest(&run->arena);
    add_text(&digest, MPC_VERSION);
    for (int i = 0; command[i]; i++)
        add_text(&digest, command[i]);
    add_environment(&digest);
    add_processor(&digest);
    const bool good = add_compiler(run, &digest, command[0]) && add_headers(run, &digest, runtime->headers) &&
                      add_headers(run, &digest, arena_text(&run->arena, "%s/kernels", runtime->headers));
    char *context = end_digest(&digest);
    return good ? context : NULL;
}

/* --- The folder ------------------------------------------------------------------------------- */

static const char *folder_name(Run *run)
{
    const char *named = getenv("MPC_CACHE"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    return named && *named                      ? named
           : cache && *cache                    ? arena_text(&run->arena, "%s/mpc/objects", cache)
           : home && *home && strcmp(home, "/") ? arena_text(&run->arena, "%s/.cache/mpc/objects", home)
                                                : NULL;
}

/* What is in it becomes part of programs. */
static bool is_own(const char *folder)
{
    struct stat status;
    return stat(folder, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
           !(status.st_mode & (S_IWGRP | S_IWOTH)) && access(folder, W_OK) == 0;
}

ObjectCache open_object_cache(Run *run, const Runtime *runtime)
{
    const Options *o = run->options;
    const char *compiler = o->cc ? o->cc : getenv("CC"), *folder = folder_name(run);
    if (!folder)
        return (ObjectCache){ .why = "neither MPC_CACHE, XDG_CACHE_HOME nor HOME is set" };
    if (strcmp(folder, "no") == 0)
        return (ObjectCache){ .why = "MPC_CACHE=no" };
    if (o->cflags || (compiler && strpbrk(compiler, " \t\n")))
        return (ObjectCache){ .why = "flags of the compiler may depend on other files" };
    if (!make_folders(folder, true) || (mkdir(folder, 0700) != 0 && errno != EEXIST) || !is_own(folder))
        return (ObjectCache){ .why = arena_text(&run->arena, "%s is no folder that you alone can write", folder) };
    const char *context = context_of(run, runtime);
    return context ? (ObjectCache){ .folder = folder, .context = context }
                   : (ObjectCache){ .why = "what the compiler depends on is not known: it is a script" };
}

const char *cached_path(Run *run, const ObjectCache *cache, const char *text)
{
    if (!cache->folder)
        return NULL;
    Digest digest = begin_digest(&run->arena);
    add_text(&digest, cache->context);
    add_text(&digest, text);
    return arena_text(&run->arena, "%s/%s.o", cache->folder, end_digest(&digest));
}

bool is_cached(const char *path) { return path && utimensat(AT_FDCWD, path, NULL, 0) == 0; }

/* --- Eviction --------------------------------------------------------------------------------- */

enum { MOST_BYTES = 512 << 20 }; /* objects of some thousand models */

typedef struct {
    const char *path;
    struct timespec used;
    int64_t bytes;
} Entry;

static int by_use(const void *a, const void *b)
{
    const struct timespec *x = &((const Entry *)a)->used, *y = &((const Entry *)b)->used;
    return x->tv_sec != y->tv_sec ? (x->tv_sec > y->tv_sec) - (x->tv_sec < y->tv_sec)
                                  : (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

static int is_object(const struct dirent *entry) { return strstr(entry->d_name, ".o") != NULL; }

static void evict_objects(Run *run, const char *folder)
{
    struct dirent **names;
    const int count = scandir(folder, &names, is_object, NULL);
    if (count <= 0)
        return;
    Entry *entry = NEW_ARRAY(&run->arena, Entry, count);
    int64_t total = 0;
    for (int i = 0; i < count; i++) {
        struct stat status;
        entry[i].path = arena_text(&run->arena, "%s/%s", folder, names[i]->d_name);
        if (lstat(entry[i].path, &status) == 0) {
            entry[i].used = status.st_mtim;
            total += entry[i].bytes = status.st_size;
        }
        free(names[i]);
    }
    free(names);
    if (total <= MOST_BYTES)
        return;
    qsort(entry, (size_t)count, sizeof *entry, by_use);
    for (int i = 0; i < count && total > MOST_BYTES / 4 * 3; i++) {
        unlink(entry[i].path);
        total -= entry[i].bytes;
    }
}

/* --- Storing ---------------------------------------------------------------------------------- */

static bool copy_bytes(int from, int to)
{
    char bytes[65536];
    ssize_t got;
    while ((got = read(from, bytes, sizeof bytes)) > 0)
        if (write(to, bytes, (size_t)got) != got)
            return false;
    return got == 0;
}

/* Readers see a whole object or none, even if the machine fails. */
void store_object(Run *run, const ObjectCache *cache, const char *path, const char *object)
{
    const char *aside = arena_text(&run->arena, "%s.%ld", path, (long)getpid());
    note_unfinished(aside);
    const int from = open(object, O_RDONLY | O_CLOEXEC);
    const int to = from < 0 ? -1 : open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const bool good = to >= 0 && copy_bytes(from, to) && fsync(to) == 0 && rename(aside, path) == 0;
    if (to >= 0) {
        close(to);
        if (!good)
            unlink(aside);
    }
    if (from >= 0)
        close(from);
    forget_unfinished(aside);
    if (good)
        evict_objects(run, cache->folder);
}
