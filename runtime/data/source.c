/* source.c -- reads a value of --data, and lists folders. */
#include "source.h"

#include "state.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <sys/stat.h>

static bool is_folder(const char *path)
{
    struct stat info;
    return !stat(path, &info) && S_ISDIR(info.st_mode);
}

static bool exists(const char *path)
{
    struct stat info;
    return !stat(path, &info);
}

/* The ':' before a weight; NULL: there is none.  A file of the whole name is that file. */
static const char *weight_in(const char *given)
{
    const char *colon = strrchr(given, ':');
    return colon && colon[1] && colon[1 + strspn(colon + 1, "0123456789.eE+-")] == '\0' && !exists(given) ? colon
                                                                                                          : NULL;
}

static double weight_of(const char *text, const char *given, const char *option)
{
    char *end;
    const double weight = strtod(text, &end);
    if (*end || !(weight > 0) || !isfinite(weight))
        rt_end(RT_EXIT_USAGE, "%s %s: its weight must be a number above 0, as in FILE:0.3", option, given);
    return weight;
}

/* --- Folders -------------------------------------------------------------------------------- */

static const char *ending_of(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot : "";
}

/* Megatron's F.idx beside F.bin is read with that. */
static bool is_index(const char *folder, const char *name)
{
    const int stem = (int)(ending_of(name) - name);
    if (strcmp(ending_of(name), ".idx"))
        return false;
    char *tokens = rt_text("%s/%.*s.bin", folder, stem, name);
    const bool is = exists(tokens);
    free(tokens);
    return is;
}

/* A folder with a text beside its tokens is more likely a mistake than meant. */
static void check_kinds(const RtSource *source, const char *option)
{
    if (source->files == 0)
        rt_fail("%s %s: the folder has no files", option, source->name);
    for (int i = 0; i < source->files; i++) {
        if (is_folder(source->file[i]))
            rt_fail("%s %s: it has a folder inside, %s: give each folder by itself", option, source->name,
                    source->file[i]);
        if (strcmp(ending_of(source->file[i]), ending_of(source->file[0])))
            rt_fail("%s %s: the files of a folder must be of one kind, but it has %s and %s; move one of them, or give "
                    "the files by themselves",
                    option, source->name, source->file[0], source->file[i]);
    }
}

static void list_folder(RtSource *source, const char *option)
{
    DIR *folder = opendir(source->name);
    if (!folder)
        rt_fail("%s %s: cannot open the folder: %s", option, source->name, strerror(errno));
    int room = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] == '.' || is_index(source->name, entry->d_name))
            continue;
        if (source->files == room) {
            char **grown = rt_allocate(room = room ? 2 * room : 16, sizeof *grown);
            for (int i = 0; i < source->files; i++)
                grown[i] = source->file[i];
            free(source->file);
            source->file = grown;
        }
        const size_t length = strlen(source->name);
        source->file[source->files++] =
            rt_text("%s%s%s", source->name, source->name[length - 1] == '/' ? "" : "/", entry->d_name);
    }
    closedir(folder);
    if (source->files) /* else there is no array */
        qsort(source->file, (size_t)source->files, sizeof *source->file, rt_compare_texts);
    check_kinds(source, option);
}

/* --- A source ------------------------------------------------------------------------------- */

RtSource rt_source_of(const char *given, const char *option)
{
    const char *colon = weight_in(given);
    RtSource source = { .name = colon ? rt_text("%.*s", (int)(colon - given), given) : rt_text("%s", given) };
    source.weight = colon ? weight_of(colon + 1, given, option) : 0;
    if (is_folder(source.name)) {
        list_folder(&source, option);
    } else {
        source.file = rt_allocate(1, sizeof *source.file);
        source.file[source.files++] = rt_text("%s", source.name);
    }
    return source;
}

void rt_source_free(RtSource *source)
{
    for (int i = 0; i < source->files; i++)
        free(source->file[i]);
    free(source->file);
    free(source->name);
}
