/* weights.c -- reads and writes indices of safetensors files, whose contents are untrusted, too. */
#include "weights.h"

#include "map.h"
#include "output.h"
#include "state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <sys/stat.h>
#include <unistd.h>

bool rt_is_index(const char *path)
{
    const size_t length = strlen(path), tail = strlen(RT_INDEX_SUFFIX);
    return length > tail && !strcmp(path + length - tail, RT_INDEX_SUFFIX);
}

/* --- The files of an index ---------------------------------------------------------------------- */

/* Names stay in the folder. */
static bool is_name(const char *name)
{
    return name && *name && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..");
}

char **rt_index_files(const cJSON *index, int *count)
{
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(index, "weight_map"), *entry;
    *count = 0;
    if (!cJSON_IsObject(map) || !map->child)
        return NULL;
    char **files = rt_allocate(cJSON_GetArraySize(map), sizeof *files);
    cJSON_ArrayForEach(entry, map)
    {
        if (!is_name(cJSON_GetStringValue(entry))) {
            free(files);
            return NULL;
        }
        files[(*count)++] = entry->valuestring;
    }
    const int entries = *count;
    qsort(files, (size_t)entries, sizeof *files, rt_compare_texts);
    *count = 0;
    for (int i = 0; i < entries; i++)
        if (*count == 0 || strcmp(files[*count - 1], files[i]))
            files[(*count)++] = rt_text("%s", files[i]);
    return files;
}

void rt_index_files_free(char **files, int count)
{
    for (int i = 0; i < count; i++)
        free(files[i]);
    free(files);
}

/* --- Reading ------------------------------------------------------------------------------------ */

static const char *text_in(const RtSafetensors *file, const char *key)
{
    const char *text = rt_safetensors_metadata(file, key);
    return text ? text : "";
}

static const char *name_of(const RtSafetensors *shard_file)
{
    const char *slash = strrchr(shard_file->path, '/');
    return slash ? slash + 1 : shard_file->path;
}

/* A file of the trainer says of which step it is; one of another program need not. */
static bool check_step(RtSafetensors *index, const RtSafetensors *shard_file)
{
    const char *here = text_in(index, "step"), *there = text_in(shard_file, "step");
    return !*here || !strcmp(here, there) ||
           rt_safetensors_refuse(index, rt_text("it is of step %s, and %s of %s%s", here, name_of(shard_file),
                                                *there ? "step " : "no step", there));
}

static bool look_at_part(RtSafetensors *index, const char *folder, const char *name)
{
    char *path = rt_text("%s%s", folder, name);
    struct stat info;
    const bool is_there = !access(path, R_OK) && !stat(path, &info);
    const char *why = strerror(errno);
    if (!is_there || info.st_size == 0) {
        free(path);
        return rt_safetensors_refuse(index, is_there ? rt_text("it names %s, which is empty", name)
                                                     : rt_text("it names %s, which cannot be read: %s", name, why));
    }
    RtSafetensors *shard_file = &index->shard_file[index->shard_files++];
    *shard_file = rt_safetensors_look(path, index->option);
    return shard_file->fault ? rt_safetensors_refuse(index, rt_text("%s: %s", name, shard_file->fault))
                             : check_step(index, shard_file);
}

static bool look_at_parts(RtSafetensors *index)
{
    char *target = rt_output_target(index->path), *slash = strrchr(target, '/');
    int count;
    char **files = rt_index_files(index->header, &count);
    bool good =
        files || rt_safetensors_refuse(index, rt_text("its weight_map does not name a file beside it for each tensor"));
    *(slash ? slash + 1 : target) = '\0';
    index->shard_file = rt_allocate(count + 1, sizeof *index->shard_file);
    for (int i = 0; i < count && good; i++)
        good = look_at_part(index, target, files[i]);
    rt_index_files_free(files, count);
    free(target);
    return good;
}

static bool take_tensors(RtSafetensors *index)
{
    int room = 0;
    for (int i = 0; i < index->shard_files; i++)
        room += index->shard_file[i].count;
    index->tensors = rt_allocate(room, sizeof *index->tensors);
    for (int i = 0; i < index->shard_files; index->count += index->shard_file[i++].count)
        memcpy(index->tensors + index->count, index->shard_file[i].tensors,
               (size_t)index->shard_file[i].count * sizeof *index->tensors);
    return rt_safetensors_sort(index);
}

static int compare_to_file(const void *name, const void *shard_file) { return strcmp(name, name_of(shard_file)); }

/* Each tensor is in the file that the index names, and there are no more than it has. */
static bool check_map(RtSafetensors *index)
{
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(index->header, "weight_map"), *entry;
    int entries = 0;
    cJSON_ArrayForEach(entry, map)
    {
        const RtSafetensors *shard_file = bsearch(entry->valuestring, index->shard_file, (size_t)index->shard_files,
                                                  sizeof *index->shard_file, compare_to_file);
        if (!rt_safetensors_find(shard_file, entry->string))
            return rt_safetensors_refuse(
                index, rt_text("tensor '%s' is not in %s, which it names for it", entry->string, name_of(shard_file)));
        entries++;
    }
    return entries == index->count ||
           rt_safetensors_refuse(index, rt_text("its files have %d tensors, and it has %d", index->count, entries));
}

static void check_whole(const RtSafetensors *file)
{
    const char *part = rt_safetensors_metadata(file, "part");
    if (part && !strcmp(text_in(file, "format"), "mpc"))
        rt_fail("%s %s: it is file %s of a checkpoint in several; give the index of them, NAME.safetensors.index.json",
                file->option, file->path, part);
}

RtSafetensors rt_weights_look(const char *path, const char *option)
{
    if (!rt_is_index(path))
        return rt_safetensors_look(path, option);
    RtSafetensors index = { .path = path, .option = option };
    index.map = rt_map_file(path, option, &index.bytes);
    index.header = rt_json_object(index.map, index.bytes);
    index.metadata = cJSON_GetObjectItemCaseSensitive(index.header, "metadata");
    if (!index.header)
        rt_safetensors_refuse(&index, rt_text("it is not a JSON object"));
    else if (look_at_parts(&index) && take_tensors(&index))
        check_map(&index);
    return index;
}

RtSafetensors rt_weights_open(const char *path, const char *option)
{
    if (!rt_is_index(path)) {
        const RtSafetensors file = rt_safetensors_open(path, option);
        check_whole(&file);
        return file;
    }
    const RtSafetensors index = rt_weights_look(path, option);
    if (index.fault)
        rt_fail("%s %s: %s; give a complete checkpoint: the index and all files that it names, side by side", option,
                path, index.fault);
    return index;
}

void rt_weights_close(RtSafetensors *weights)
{
    for (int i = 0; i < weights->shard_files; i++) {
        free((void *)(uintptr_t)weights->shard_file[i].path);
        rt_safetensors_close(&weights->shard_file[i]);
    }
    free(weights->shard_file);
    rt_safetensors_close(weights);
}

/* --- Writing ------------------------------------------------------------------------------------ */

char *rt_index_text(const RtView *views, int count, const char *const *files, const char *const *metadata)
{
    cJSON *index = cJSON_CreateObject(), *pairs = cJSON_AddObjectToObject(index, "metadata");
    int64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += 4 * views[i].count;
    cJSON_AddNumberToObject(pairs, "total_size", (double)bytes);
    for (; *metadata; metadata += 2)
        cJSON_AddStringToObject(pairs, metadata[0], metadata[1]);
    cJSON *map = cJSON_AddObjectToObject(index, "weight_map");
    for (int i = 0; i < count; i++)
        cJSON_AddStringToObject(map, views[i].name, files[i]);
    char *json = cJSON_Print(index), *text = json ? rt_text("%s\n", json) : NULL;
    if (!text)
        rt_fail("out of memory: cannot make the index of a checkpoint");
    cJSON_free(json);
    cJSON_Delete(index);
    return text;
}
