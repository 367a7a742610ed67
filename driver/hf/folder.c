/* folder.c -- opens a model folder: its configuration, its files of tensors, all tensors by name. */
#include "folder.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

/* --- Files ---------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* Names of files are untrusted: they stay in the folder. */
static bool read_index(Run *run, const char *path, cJSON *index, TextList *names)
{
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(index, "weight_map"), *entry;
    if (!cJSON_IsObject(map) || !map->child)
        return run_failed(run, "%s has no weight_map", path);
    const char **all = NEW_ARRAY(&run->arena, const char *, cJSON_GetArraySize(map));
    int count = 0;
    cJSON_ArrayForEach(entry, map)
    {
        const char *name = cJSON_GetStringValue(entry);
        if (!name || !*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            return run_failed(run, "%s: the weight_map does not name a file of the folder for '%s'", path,
                              entry->string);
        all[count++] = name;
    }
    qsort(all, (size_t)count, sizeof *all, by_text);
    names->at = NEW_ARRAY(&run->arena, const char *, count);
    for (int i = 0; i < count; i++)
        if (i == 0 || strcmp(all[i - 1], all[i]) != 0)
            names->at[names->count++] = arena_text(&run->arena, "%s", all[i]);
    return true;
}

bool is_index(const char *path)
{
    static const char suffix[] = ".safetensors.index.json";
    const size_t length = strlen(path), tail = strlen(suffix);
    return length > tail && strcmp(path + length - tail, suffix) == 0;
}

static bool open_names(Run *run, Folder *folder, const TextList *names)
{
    folder->file = NEW_ARRAY(&run->arena, TensorFile, names->count + 1);
    for (int i = 0; i < names->count; i++, folder->nfiles++)
        if (!open_tensors(run, &folder->file[i], path_in(&run->arena, folder->path, names->at[i]),
                          open_member(run, folder->path, names->at[i])))
            return false;
    return true;
}

bool open_indexed(Run *run, Folder *folder, const char *index)
{
    TextList names = { 0 };
    folder->index = read_member_json(run, folder->path, index);
    return folder->index && read_index(run, path_in(&run->arena, folder->path, index), folder->index, &names) &&
           open_names(run, folder, &names);
}

static bool open_files(Run *run, Folder *folder, bool may_lack_weights)
{
    static const char single[] = "model.safetensors", index[] = "model.safetensors.index.json";
    const char *name = single;
    if (has_member(run, folder->path, single))
        return open_names(run, folder, &(TextList){ .at = &name, .count = 1 });
    if (has_member(run, folder->path, index))
        return open_indexed(run, folder, index);
    return may_lack_weights ? open_names(run, folder, &(TextList){ 0 })
                            : run_failed(run,
                                         "%s has neither model.safetensors nor model.safetensors.index.json: give a "
                                         "folder that transformers' save_pretrained has written (it makes safetensors "
                                         "of older .bin files)",
                                         folder->path);
}

/* --- Tensors -------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp((*(StoredTensor *const *)a)->name, (*(StoredTensor *const *)b)->name);
}

bool sort_tensors(Run *run, Folder *folder)
{
    int room = folder->nlists;
    for (int i = 0; i < folder->nfiles; i++)
        room += folder->file[i].count;
    folder->tensor = NEW_ARRAY(&run->arena, StoredTensor *, room + 1);
    folder->count = 0;
    for (int i = 0; i < folder->nlists; i++)
        folder->tensor[folder->count++] = &folder->list[i];
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
    const StoredTensor wanted = { .name = name }, *key = &wanted;
    StoredTensor **found = bsearch(&key, folder->tensor, (size_t)folder->count, sizeof *folder->tensor, by_name);
    return found ? (int)(found - folder->tensor) : -1;
}

bool open_folder(Run *run, Folder *folder, const char *path, bool may_lack_weights)
{
    *folder = (Folder){ .path = path, .config = read_member_json(run, path, "config.json") };
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
    cJSON_Delete(folder->index);
    *folder = (Folder){ 0 };
}
