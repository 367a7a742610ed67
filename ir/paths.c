#include "paths.h"

#include "arena.h"

#include <errno.h>

bool is_same_file(const char *path, const struct stat *file)
{
    struct stat other;
    return S_ISREG(file->st_mode) && stat(path, &other) == 0 && other.st_dev == file->st_dev &&
           other.st_ino == file->st_ino;
}

/* An existing file of that name is an error. */
static bool make_folder(const char *path)
{
    struct stat status;
    if (mkdir(path, 0777) == 0)
        return true;
    int reason = errno;
    bool is_folder = reason == EEXIST && stat(path, &status) == 0 && S_ISDIR(status.st_mode);
    errno = reason;
    return is_folder;
}

bool make_folders(const char *path, bool only_above)
{
    Arena arena = { 0 };
    char *text = arena_text(&arena, "%s", path);
    bool good = true;
    for (char *at = text; good && *at; at++) {
        if (*at != '/' || at == text)
            continue;
        *at = '\0';
        good = make_folder(text);
        *at = '/';
    }
    good = good && (only_above || make_folder(text));
    int reason = errno;
    arena_free(&arena);
    errno = reason;
    return good;
}
