/* folder.c -- opens a model folder: its configuration, its files of tensors, all tensors by name. */
#include "folder.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *path_in(Arena *arena, const char *folder, const char *name)
{
    const size_t length = strlen(folder);
    return arena_text(arena, "%s%s%s", folder, length && folder[length - 1] == '/' ? "" : "/", name);
}

/* Python's json, and so transformers until version 4, writes Infinity, which JSON does not have. */
static const char *without_infinity(Arena *arena, const char *text)
{
    static const char name[] = "Infinity";
    const char *at = text, *before = "";
    bool is_quoted = false;
    for (const char *c = text; *c; c++)
        if (*c == '\\' && is_quoted && c[1])
            c++;
        else if (*c == '"')
            is_quoted = !is_quoted;
        else if (!is_quoted && strncmp(c, name, sizeof name - 1) == 0) {
            before = arena_text(arena, "%s%.*s%s", before, (int)(c - at), at, INFINITE);
            at = c += sizeof name - 1;
            c--;
        }
    return arena_text(arena, "%s%s", before, at);
}

static cJSON *read_json(Run *run, const char *path)
{
    const char *why;
    const Source *source = read_text(run, path, &why);
    if (!source) {
        run_failed(run, "cannot read %s: %s", path, why);
        return NULL;
    }
    cJSON *json = cJSON_ParseWithOpts(without_infinity(&run->arena, source->text), NULL, true);
    if (cJSON_IsObject(json))
        return json;
    cJSON_Delete(json);
    run_failed(run, "%s is not a JSON object", path);
    return NULL;
}

/* --- Files ---------------------------------------------------------------------------------- */

static bool has_file(const TextList *names, const char *name)
{
    for (int i = 0; i < names->count; i++)
        if (strcmp(names->at[i], name) == 0)
            return true;
    return false;
}

/* Names of files are untrusted: they stay in the folder. */
static bool read_index(Run *run, const char *path, cJSON *index, TextList *names)
{
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(index, "weight_map"), *entry;
    names->at = NEW_ARRAY(&run->arena, const char *, cJSON_GetArraySize(map) + 1);
    cJSON_ArrayForEach(entry, map)
    {
        const char *name = cJSON_GetStringValue(entry);
        if (!name || !*name || strchr(name, '/'))
            return run_failed(run, "%s: the weight_map does not name a file of the folder for '%s'", path,
                              entry->string);
        if (!has_file(names, name))
            names->at[names->count++] = arena_text(&run->arena, "%s", name);
    }
    return names->count > 0 || run_failed(run, "%s has no weight_map", path);
}

static bool list_files(Run *run, const Folder *folder, TextList *names, bool may_lack_weights)
{
    const char *single = path_in(&run->arena, folder->path, "model.safetensors");
    const char *index = path_in(&run->arena, folder->path, "model.safetensors.index.json");
    if (access(single, F_OK) == 0) {
        names->at = NEW_ARRAY(&run->arena, const char *, 1);
        names->at[names->count++] = "model.safetensors";
        return true;
    }
    if (access(index, F_OK) != 0)
        return may_lack_weights ||
               run_failed(run,
                          "%s has neither model.safetensors nor model.safetensors.index.json: give a folder that "
                          "transformers' save_pretrained has written (it makes safetensors of older .bin files)",
                          folder->path);
    cJSON *json = read_json(run, index);
    const bool good = json && read_index(run, index, json, names);
    cJSON_Delete(json);
    return good;
}

static bool open_files(Run *run, Folder *folder, bool may_lack_weights)
{
    TextList names = { 0 };
    if (!list_files(run, folder, &names, may_lack_weights))
        return false;
    folder->file = NEW_ARRAY(&run->arena, TensorFile, names.count + 1);
    for (int i = 0; i < names.count; i++, folder->nfiles++)
        if (!open_tensors(run, &folder->file[i], path_in(&run->arena, folder->path, names.at[i])))
            return false;
    return true;
}

/* --- Tensors -------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp((*(Stored *const *)a)->name, (*(Stored *const *)b)->name);
}

bool sort_tensors(Run *run, Folder *folder)
{
    int room = 0;
    for (int i = 0; i < folder->nfiles; i++)
        room += folder->file[i].count;
    folder->tensor = NEW_ARRAY(&run->arena, Stored *, room + 1);
    for (int i = 0; i < folder->nfiles; i++)
        for (int k = 0; k < folder->file[i].count; k++)
            folder->tensor[folder->count++] = &folder->file[i].tensor[k];
    qsort(folder->tensor, (size_t)folder->count, sizeof *folder->tensor, by_name);
    for (int i = 1; i < folder->count; i++)
        if (strcmp(folder->tensor[i - 1]->name, folder->tensor[i]->name) == 0)
            return run_failed(run, "%s: tensor '%s' occurs twice", folder->path, folder->tensor[i]->name);
    return true;
}

int find_stored(const Folder *folder, const char *name)
{
    const Stored wanted = { .name = name }, *key = &wanted;
    Stored **found = bsearch(&key, folder->tensor, (size_t)folder->count, sizeof *folder->tensor, by_name);
    return found ? (int)(found - folder->tensor) : -1;
}

bool open_folder(Run *run, Folder *folder, const char *path, bool may_lack_weights)
{
    *folder = (Folder){ .path = path, .config = read_json(run, path_in(&run->arena, path, "config.json")) };
    if (folder->config && open_files(run, folder, may_lack_weights) && sort_tensors(run, folder))
        return true;
    close_folder(folder);
    return false;
}

void close_folder(Folder *folder)
{
    for (int i = 0; i < folder->nfiles; i++)
        close_tensors(&folder->file[i]);
    cJSON_Delete(folder->config);
    *folder = (Folder){ 0 };
}
