/* new_folder.c -- writes a folder beside its place, then exchanges it with the one that is there. */
#define _GNU_SOURCE /* renameat2 */
#include "new_folder.h"

#include "member.h"
#include "unfinished.h"

#include "paths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- The old folder -------------------------------------------------------------------------- */

static bool is_among(const TextList *names, const char *name)
{
    for (int i = 0; i < names->count; i++)
        if (strcmp(names->at[i], name) == 0)
            return true;
    return false;
}

static bool ends_with(const char *name, const char *ending)
{
    const size_t length = strlen(name), tail = strlen(ending);
    return length >= tail && strcmp(name + length - tail, ending) == 0;
}

/* from_pretrained might read them instead of the new weights. */
static bool is_weights(const char *name)
{
    return ends_with(name, ".safetensors") || ends_with(name, ".safetensors.index.json") || ends_with(name, ".bin") ||
           ends_with(name, ".bin.index.json");
}

static bool is_folder(Run *run, const char *path, const char *name)
{
    struct stat status;
    return lstat(path_in(&run->arena, path, name), &status) == 0 && S_ISDIR(status.st_mode);
}

/* What of the old folder is kept. */
static bool sort_old(Run *run, NewFolder *folder)
{
    TextList old;
    if (!list_members(run, folder->path, &old))
        return false;
    if (old.count && !run->options->overwrite)
        return run_failed(run, "the folder %s is already there: give another name, or --overwrite", folder->path);
    folder->kept.at = NEW_ARRAY(&run->arena, const char *, old.count + 1);
    for (int i = 0; i < old.count; i++) {
        const bool is_replaced = is_among(&folder->written, old.at[i]);
        if (is_replaced && is_folder(run, folder->path, old.at[i]))
            return run_failed(run, "cannot replace %s: it is a folder: give another name",
                              path_in(&run->arena, folder->path, old.at[i]));
        if (!is_replaced && is_weights(old.at[i]))
            return run_failed(run, "%s would be left beside the new weights, and read instead of them: remove it first",
                              path_in(&run->arena, folder->path, old.at[i]));
        if (!is_replaced)
            folder->kept.at[folder->kept.count++] = old.at[i];
    }
    return true;
}

/* --- The new folder -------------------------------------------------------------------------- */

/* Without slashes at its end; of a link, where it leads. */
static const char *place_of(Run *run, const char *path)
{
    char *real = realpath(path, NULL);
    const char *place = arena_text(&run->arena, "%s", real ? real : path);
    free(real);
    size_t length = strlen(place);
    while (length > 1 && place[length - 1] == '/')
        length--;
    return arena_text(&run->arena, "%.*s", (int)length, place);
}

/* A shell would be left in a folder that is removed. */
static bool is_current(const struct stat *status)
{
    struct stat current;
    return stat(".", &current) == 0 && current.st_ino == status->st_ino && current.st_dev == status->st_dev;
}

static void note_all(Run *run, const NewFolder *folder)
{
    note_unfinished(folder->aside);
    for (int i = 0; i < folder->written.count; i++)
        note_unfinished(path_in(&run->arena, folder->aside, folder->written.at[i]));
}

static void forget_all(const NewFolder *folder)
{
    Arena arena = { 0 };
    for (int i = 0; i < folder->written.count; i++)
        forget_unfinished(path_in(&arena, folder->aside, folder->written.at[i]));
    forget_unfinished(folder->aside);
    arena_free(&arena);
}

bool begin_folder(Run *run, NewFolder *folder, const char *path, TextList written)
{
    struct stat status;
    *folder = (NewFolder){ .path = place_of(run, path), .written = written };
    folder->replaces = lstat(folder->path, &status) == 0;
    if (folder->replaces && !S_ISDIR(status.st_mode))
        return run_failed(run, "cannot make the folder %s: a file has that name", path);
    if (folder->replaces && is_current(&status))
        return run_failed(run, "cannot replace %s: it is the current folder: give another name", path);
    if (folder->replaces && !sort_old(run, folder))
        return false;
    char *aside = arena_text(&run->arena, "%s.XXXXXX", folder->path);
    if (!make_folders(folder->path, true) || !mkdtemp(aside))
        return run_failed(run, "cannot make a folder beside %s: %s", path, strerror(errno));
    folder->aside = aside;
    note_all(run, folder);
    const mode_t mask = umask(0);
    umask(mask);
    if (chmod(aside, folder->replaces ? status.st_mode & 07777 : 0777 & ~mask) == 0)
        return true;
    run_failed(run, "cannot set the permissions of %s: %s", aside, strerror(errno));
    drop_folder(folder);
    return false;
}

static void remove_written(const NewFolder *folder)
{
    Arena arena = { 0 };
    for (int i = 0; i < folder->written.count; i++)
        unlink(path_in(&arena, folder->aside, folder->written.at[i]));
    arena_free(&arena);
    rmdir(folder->aside);
}

void drop_folder(NewFolder *folder)
{
    remove_written(folder);
    forget_all(folder);
}

/* File systems that cannot exchange two names: there is a moment without the folder. */
static bool exchange_in_turn(Run *run, const NewFolder *folder)
{
    const char *between = arena_text(&run->arena, "%s.old", folder->aside);
    if (rename(folder->path, between) != 0)
        return false;
    if (rename(folder->aside, folder->path) == 0)
        return rename(between, folder->aside) == 0;
    const int reason = errno;
    rename(between, folder->path);
    errno = reason;
    return false;
}

static bool take_place(Run *run, const NewFolder *folder)
{
    if (!folder->replaces)
        return rename(folder->aside, folder->path) == 0;
    return renameat2(AT_FDCWD, folder->aside, AT_FDCWD, folder->path, RENAME_EXCHANGE) == 0 ||
           ((errno == EINVAL || errno == ENOSYS) && exchange_in_turn(run, folder));
}

/* The old folder is now `aside`. */
static bool move_kept(Run *run, const NewFolder *folder)
{
    for (int i = 0; i < folder->kept.count; i++) {
        const char *name = folder->kept.at[i], *from = path_in(&run->arena, folder->aside, name);
        if (rename(from, path_in(&run->arena, folder->path, name)) != 0)
            return run_failed(run, "cannot move %s into %s: %s: the new folder is complete, and this is left", from,
                              folder->path, strerror(errno));
        printf("  kept %s\n", visible_text(&run->arena, path_in(&run->arena, folder->path, name)));
    }
    return true;
}

bool end_folder(Run *run, NewFolder *folder)
{
    forget_all(folder); /* once names are exchanged, `aside` is the old folder, which nothing may remove */
    if (!take_place(run, folder)) {
        run_failed(run, "cannot put the new folder in the place of %s: %s", folder->path, strerror(errno));
        remove_written(folder);
        return false;
    }
    if (folder->replaces) {
        if (!move_kept(run, folder))
            return false;
        remove_written(folder);
    }
    return true;
}
