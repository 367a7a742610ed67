/* shards.c -- see shards.h. */
#include "shards.h"

#include "state.h"
#include "weights.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <unistd.h>

static int folder_length(const char *target)
{
    const char *slash = strrchr(target, '/');
    return slash ? (int)(slash + 1 - target) : 0;
}

/* The length of the path without its suffix. */
static int stem_length(const char *target) { return (int)(strlen(target) - strlen(RT_INDEX_SUFFIX)); }

/* --- Names -------------------------------------------------------------------------------------- */

char *rt_shard_path(const char *target, int64_t step, int generation, int number, int count)
{
    char *path = rt_text("%.*s.step%lld", stem_length(target), target, (long long)step);
    if (generation)
        rt_append(&path, ".%d", generation);
    rt_append(&path, "-%05d-of-%05d.safetensors", number + 1, count);
    return path;
}

/* A number at *at, behind which *at is then. */
static bool read_number(const char **at, long long *number)
{
    char *end;
    *number = strtoll(*at, &end, 10);
    const bool is = **at >= '0' && **at <= '9';
    *at = end;
    return is;
}

static bool read_text(const char **at, const char *text)
{
    const bool is = !strncmp(*at, text, strlen(text));
    *at += is ? strlen(text) : 0;
    return is;
}

/* Is it the name of a file of this target?  Then of which step and generation. */
static bool read_name(const char *target, const char *name, long long *step, long long *generation)
{
    const char *base = target + folder_length(target), *at = name;
    char *stem = rt_text("%.*s.step", stem_length(base), base);
    const bool begins = read_text(&at, stem);
    long long number, count;
    free(stem);
    *generation = 0;
    return begins && read_number(&at, step) && (!read_text(&at, ".") || read_number(&at, generation)) &&
           read_text(&at, "-") && read_number(&at, &number) && read_text(&at, "-of-") && read_number(&at, &count) &&
           !strcmp(at, ".safetensors");
}

static DIR *open_folder(const char *target)
{
    char *folder = rt_text("%.*s", folder_length(target), target);
    DIR *names = opendir(*folder ? folder : ".");
    free(folder);
    return names;
}

static bool has_generation(const char *target, int64_t step, int generation)
{
    bool has = false;
    DIR *names = open_folder(target);
    for (struct dirent *entry; names && !has && (entry = readdir(names));) {
        long long of, number;
        has = read_name(target, entry->d_name, &of, &number) && of == step && number == generation;
    }
    if (names)
        closedir(names);
    return has;
}

int rt_shards_generation(const char *target, int64_t step)
{
    int generation = 0;
    while (has_generation(target, step, generation))
        generation++;
    return generation;
}

/* --- Files that no index names ------------------------------------------------------------------ */

typedef struct {
    char **name;
    int count, room;
} Names;

static void add(Names *names, const char *name)
{
    if (names->count == names->room) {
        const int room = 2 * names->room + 64;
        char **grown = rt_allocate(room, sizeof *grown);
        for (int i = 0; i < names->count; i++)
            grown[i] = names->name[i];
        free(names->name);
        names->name = grown;
        names->room = room;
    }
    names->name[names->count++] = rt_text("%s", name);
}

static void free_names(Names *names) { rt_index_files_free(names->name, names->count); }

/* The contents of a file, ended by 0; owned by the caller; NULL: it cannot be read. */
static char *read_all(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    const long bytes = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
    char *text = bytes >= 0 ? rt_allocate(bytes + 1, 1) : NULL;
    rewind(file);
    const bool is_read = text && fread(text, 1, (size_t)bytes, file) == (size_t)bytes;
    fclose(file);
    if (is_read)
        return text;
    free(text);
    return NULL;
}

/* Adds the files of an index; false if it cannot be read. */
static bool add_named(Names *named, const char *path)
{
    char *text = read_all(path);
    cJSON *index = text ? rt_json_object(text, (int64_t)strlen(text)) : NULL;
    int count;
    char **files = rt_index_files(index, &count);
    for (int i = 0; i < count; i++)
        add(named, files[i]);
    rt_index_files_free(files, count);
    cJSON_Delete(index);
    free(text);
    return files != NULL;
}

/* Lists the files of this target in its folder, and what the indices name there; false if one cannot be read. */
static bool list(const char *target, Names *found, Names *named)
{
    bool is_complete = true;
    DIR *names = open_folder(target);
    for (struct dirent *entry; names && (entry = readdir(names));) {
        long long step, generation;
        char *path = rt_text("%.*s%s", folder_length(target), target, entry->d_name);
        if (rt_is_index(path))
            is_complete &= add_named(named, path);
        else if (read_name(target, entry->d_name, &step, &generation))
            add(found, entry->d_name);
        free(path);
    }
    if (names)
        closedir(names);
    return is_complete;
}

void rt_shards_sweep(const char *target)
{
    Names found = { 0 }, named = { 0 };
    const bool is_complete = list(target, &found, &named);
    if (named.count)
        qsort(named.name, (size_t)named.count, sizeof *named.name, rt_compare_texts);
    for (int i = 0; i < found.count && is_complete; i++) {
        if (named.count &&
            bsearch(&found.name[i], named.name, (size_t)named.count, sizeof *named.name, rt_compare_texts))
            continue;
        char *path = rt_text("%.*s%s", folder_length(target), target, found.name[i]);
        unlink(path);
        free(path);
    }
    free_names(&found);
    free_names(&named);
}
