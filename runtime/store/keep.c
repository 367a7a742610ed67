/* keep.c -- names of kept checkpoints.  The newest checkpoint is always the file of --save; with --keep or --keep-best
 * it has a second name, a hard link.  So a kept checkpoint is written once, the file of --save is always there, and a
 * crash at any point leaves the previous links intact. */
#include "keep.h"

#include "output.h"
#include "state.h"
#include "weights.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/stat.h>
#include <unistd.h>

/* A file that this run has written. */
struct RtKept {
    char *name;
    struct stat info;
};

/* The length of the path without its suffix. */
static int stem_of(const char *path)
{
    static const char *const suffixes[] = { ".safetensors", RT_INDEX_SUFFIX };
    const size_t length = strlen(path);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        const size_t tail = strlen(suffixes[i]);
        if (length > tail && !strcmp(path + length - tail, suffixes[i]))
            return (int)(length - tail);
    }
    return (int)length;
}

/* "gpt2.step100.safetensors", and of an index "gpt2.step100.safetensors.index.json" */
static char *name_at(const char *path, int64_t step)
{
    return rt_text("%.*s.step%lld%s", stem_of(path), path, (long long)step, path + stem_of(path));
}

/* The step in the name of a file beside `base`; -1: it has another name. */
static int64_t step_in(const char *base, const char *name)
{
    const int stem = stem_of(base);
    const char *digits = name + stem + strlen(".step");
    if (strncmp(name, base, (size_t)stem) || strncmp(name + stem, ".step", strlen(".step")))
        return -1;
    const size_t length = strspn(digits, "0123456789");
    return length > 0 && !strcmp(digits + length, base + stem) ? strtoll(digits, NULL, 10) : -1;
}

static bool is_saved(RtSavedSteps steps, int64_t step)
{
    return step > steps.begun_at && step <= steps.last && step % steps.every == 0;
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* With a / at its end, or ".": owned by the caller. */
static char *folder_of(const char *path)
{
    const int length = (int)(base_of(path) - path);
    return length ? rt_text("%.*s", length, path) : rt_text(".");
}

/* Of the names that the run will need, one that a file has; NULL: none.  Owned by the caller. */
static char *taken_name(const char *target, RtSavedSteps steps)
{
    char *directory = folder_of(target), *taken = NULL;
    DIR *files = opendir(directory);
    for (struct dirent *file; files && !taken && (file = readdir(files));)
        if (is_saved(steps, step_in(base_of(target), file->d_name)))
            taken = rt_text("%s", file->d_name);
    if (files)
        closedir(files);
    free(directory);
    return taken;
}

bool rt_keep_needs(const char *path, const char *other, RtSavedSteps steps)
{
    char *target = rt_output_target(path), *file = rt_output_target(other);
    char *folder = folder_of(target), *folder_of_file = folder_of(file);
    struct stat a, b;
    const bool needs = is_saved(steps, step_in(base_of(target), base_of(file))) && !stat(folder, &a) &&
                       !stat(folder_of_file, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    free(folder_of_file);
    free(folder);
    free(file);
    free(target);
    return needs;
}

/* Links the checkpoint, or before the first one the partial that its lock has made. */
void rt_keep_check_links(const char *path, const char *option)
{
    char *target = rt_output_target(path), *partial = rt_output_partial(path), *trial = rt_text("%s.link", partial);
    unlink(trial); /* of a run that was killed here */
    if (link(target, trial) && (errno != ENOENT || link(partial, trial)))
        rt_fail("%s: cannot make a hard link to %s: %s; give a --save on a file system that has them, or leave %s out",
                option, path, strerror(errno), option);
    unlink(trial);
    free(trial);
    free(partial);
    free(target);
}

static int by_step(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

int64_t *rt_keep_list(const char *path, int *count)
{
    enum { FIRST_ROOM = 16 };
    char *target = rt_output_target(path), *folder = folder_of(target);
    int64_t *steps = rt_allocate(FIRST_ROOM, sizeof *steps), room = FIRST_ROOM;
    DIR *files = opendir(folder);
    *count = 0;
    for (struct dirent *file; files && (file = readdir(files));) {
        const int64_t step = step_in(base_of(target), file->d_name);
        if (step < 0)
            continue;
        if (*count == room) {
            int64_t *grown = rt_allocate(2 * room, sizeof *grown);
            memcpy(grown, steps, (size_t)room * sizeof *grown);
            free(steps);
            steps = grown;
            room *= 2;
        }
        steps[(*count)++] = step;
    }
    if (files)
        closedir(files);
    free(folder);
    free(target);
    qsort(steps, (size_t)*count, sizeof *steps, by_step);
    return steps;
}

char *rt_keep_name(const char *path, int64_t step)
{
    char *target = rt_output_target(path), *name = name_at(target, step);
    free(target);
    return name;
}

RtKeep rt_keep_open(const char *path, int64_t count, RtSavedSteps steps, bool may_replace)
{
    RtKeep keep = { .path = path, .target = rt_output_target(path), .count = count, .may_replace = may_replace };
    char *taken = may_replace ? NULL : taken_name(keep.target, steps);
    if (taken)
        rt_fail("--keep %lld: %s exists beside %s, and this run will need that name; move it, give another --save, or "
                "give --overwrite",
                (long long)count, taken, path);
    rt_keep_check_links(path, "--keep");
    keep.newest = rt_allocate(count, sizeof *keep.newest);
    return keep;
}

void rt_keep_close(RtKeep *keep)
{
    for (int64_t i = 0; i < keep->count && i < keep->written; i++)
        free(keep->newest[i].name);
    free(keep->newest);
    free(keep->target);
}

void rt_keep_adopt(RtKeep *keep, RtSavedSteps steps)
{
    int count, newest = 0;
    int64_t *at = rt_keep_list(keep->path, &count), *adopted = rt_allocate(keep->count, sizeof *adopted);
    for (int i = 0; i < count && newest < keep->count; i++)
        if (at[i] > 0 && at[i] <= steps.begun_at && at[i] % steps.every == 0)
            adopted[newest++] = at[i];
    while (newest-- > 0) {
        struct RtKept old = { .name = name_at(keep->target, adopted[newest]) };
        if (lstat(old.name, &old.info))
            free(old.name);
        else
            keep->newest[keep->written++] = old;
    }
    free(adopted);
    free(at);
}

/* Is the file of that name the one that was written?  A later one may have the same inode. */
static bool is_unchanged(const struct RtKept *kept)
{
    struct stat now;
    return !lstat(kept->name, &now) && now.st_dev == kept->info.st_dev && now.st_ino == kept->info.st_ino &&
           now.st_size == kept->info.st_size && now.st_mtim.tv_sec == kept->info.st_mtim.tv_sec &&
           now.st_mtim.tv_nsec == kept->info.st_mtim.tv_nsec;
}

/* Puts a link in the place of what has that name. */
static void replace_link(const char *target, const char *name, const char *option, const char *path)
{
    char *aside = rt_text("%s.link", name);
    unlink(aside); /* of a run that was killed here */
    if (link(target, aside) || rename(aside, name))
        rt_fail("%s: cannot make %s: %s; the checkpoint is %s", option, name, strerror(errno), path);
    unlink(aside); /* rename leaves it where both were one file */
    free(aside);
}

static bool link_to(const RtKeep *keep, const char *name)
{
    if (!link(keep->target, name))
        return true;
    if (errno != EEXIST)
        rt_fail("--keep: cannot make %s: %s; the checkpoint is %s", name, strerror(errno), keep->path);
    if (keep->may_replace)
        replace_link(keep->target, name, "--keep", keep->path);
    return keep->may_replace;
}

char *rt_keep_add(RtKeep *keep, int64_t step)
{
    struct RtKept new = { .name = name_at(keep->target, step) };
    if (!link_to(keep, new.name)) {
        free(new.name);
        return NULL;
    }
    rt_output_settle(new.name);
    if (lstat(new.name, &new.info))
        new.info = (struct stat){ 0 }; /* removed at once by another: nothing of that name is the run's */
    struct RtKept *oldest = &keep->newest[keep->written % keep->count];
    if (keep->written++ >= keep->count) {
        if (is_unchanged(oldest))
            unlink(oldest->name);
        free(oldest->name);
    }
    *oldest = new;
    return rt_text("%s", new.name);
}

char *rt_keep_best_name(const char *path)
{
    char *target = rt_output_target(path);
    char *name = rt_text("%.*s.best%s", stem_of(target), target, target + stem_of(target));
    free(target);
    return name;
}

void rt_keep_best(const char *path, const char *best)
{
    char *target = rt_output_target(path);
    replace_link(target, best, "--keep-best", path);
    rt_output_settle(best);
    free(target);
}
