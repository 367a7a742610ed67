/* safetensors.c -- reads and writes the header of a safetensors file
 * (https://huggingface.co/docs/safetensors, section Format). */
#include "safetensors.h"

#include "map.h"
#include "state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

enum { MAX_HEADER_BYTES = 100 << 20 }; /* the limit of the format's own library */

/* --- Reading -------------------------------------------------------------------------------- */

bool rt_safetensors_refuse(RtSafetensors *file, char *why)
{
    if (file->fault)
        free(why);
    else
        file->fault = why;
    return false;
}

static int64_t element_bits(const char *dtype)
{
    static const struct {
        const char *name;
        int bits;
    } types[] = { { "F64", 64 }, { "F32", 32 }, { "F16", 16 }, { "BF16", 16 }, { "I64", 64 },
                  { "I32", 32 }, { "I16", 16 }, { "I8", 8 },   { "U64", 64 },  { "U32", 32 },
                  { "U16", 16 }, { "U8", 8 },   { "BOOL", 8 } };
    for (unsigned i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(dtype, types[i].name))
            return types[i].bits;
    return 0;
}

/* An integer that a double represents exactly, as in JSON; else -1. */
static int64_t whole_number(const cJSON *item)
{
    bool is = cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble <= 0x1p53 &&
              item->valuedouble == floor(item->valuedouble);
    return is ? (int64_t)item->valuedouble : -1;
}

static bool read_entry(RtSafetensors *file, const cJSON *entry, const char *tensors, int64_t tensors_bytes,
                       RtStored *stored)
{
    *stored = (RtStored){ .name = entry->string };
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(entry, "dtype");
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(entry, "shape");
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
    if (!cJSON_IsString(dtype) || !cJSON_IsArray(shape) || cJSON_GetArraySize(offsets) != 2)
        return rt_safetensors_refuse(file, rt_text("tensor '%s' lacks dtype, shape or data_offsets", stored->name));
    stored->dtype = dtype->valuestring;
    stored->begin = whole_number(cJSON_GetArrayItem(offsets, 0));
    stored->end = whole_number(cJSON_GetArrayItem(offsets, 1));
    if (stored->begin < 0 || stored->end < stored->begin || stored->end > tensors_bytes)
        return rt_safetensors_refuse(file, rt_text("tensor '%s' is not within the %lld bytes of the file", stored->name,
                                                   (long long)file->bytes));
    if (cJSON_GetArraySize(shape) > RT_MAX_RANK)
        return rt_safetensors_refuse(file, rt_text("tensor '%s' has more than %d dims", stored->name, RT_MAX_RANK));

    double bits = (double)element_bits(stored->dtype);
    const cJSON *size;
    cJSON_ArrayForEach(size, shape)
    {
        stored->size[stored->rank] = whole_number(size);
        bits *= (double)stored->size[stored->rank++];
    }
    stored->data = tensors + stored->begin;
    return bits == 8.0 * (double)(stored->end - stored->begin) ||
           rt_safetensors_refuse(file, rt_text("the shape and dtype %s of tensor '%s' do not make its %lld bytes",
                                               stored->dtype, stored->name, (long long)(stored->end - stored->begin)));
}

static int by_place(const void *a, const void *b)
{
    const RtStored *x = a, *y = b;
    return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin) : (x->end > y->end) - (x->end < y->end);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const RtStored *)a)->name, ((const RtStored *)b)->name);
}

/* Every byte belongs to exactly one tensor: detects truncated or padded files. */
static bool check_places(RtSafetensors *file, int64_t tensors_bytes)
{
    qsort(file->tensors, (size_t)file->count, sizeof *file->tensors, by_place);
    int64_t at = 0;
    for (int i = 0; i < file->count; i++) {
        if (file->tensors[i].begin != at)
            return rt_safetensors_refuse(file, rt_text("tensor '%s' begins at byte %lld of the tensors, not at %lld",
                                                       file->tensors[i].name, (long long)file->tensors[i].begin,
                                                       (long long)at));
        at = file->tensors[i].end;
    }
    return at == tensors_bytes ||
           rt_safetensors_refuse(file, rt_text("its tensors end at byte %lld, but %lld bytes follow the header",
                                               (long long)at, (long long)tensors_bytes));
}

bool rt_safetensors_sort(RtSafetensors *file)
{
    qsort(file->tensors, (size_t)file->count, sizeof *file->tensors, by_name);
    for (int i = 1; i < file->count; i++)
        if (!strcmp(file->tensors[i - 1].name, file->tensors[i].name))
            return rt_safetensors_refuse(file, rt_text("tensor '%s' occurs twice", file->tensors[i].name));
    return true;
}

cJSON *rt_json_object(const char *text, int64_t bytes)
{
    cJSON *json = cJSON_ParseWithLength(text, (size_t)bytes);
    if (cJSON_IsObject(json))
        return json;
    cJSON_Delete(json);
    return NULL;
}

/* The JSON of the header; the tensors follow it. */
static bool read_header(RtSafetensors *file, int64_t *header_bytes)
{
    uint64_t length = 0;
    if (file->bytes >= 8)
        memcpy(&length, file->map, 8);
    if (file->bytes < 8 || length > MAX_HEADER_BYTES || (int64_t)length > file->bytes - 8)
        return rt_safetensors_refuse(
            file, rt_text("its first 8 bytes say that %llu bytes of header follow, but it has %lld in all",
                          (unsigned long long)length, (long long)file->bytes));
    *header_bytes = 8 + (int64_t)length;
    file->header = rt_json_object(file->map + 8, (int64_t)length);
    file->metadata = cJSON_GetObjectItemCaseSensitive(file->header, "__metadata__");
    return file->header || rt_safetensors_refuse(file, rt_text("its header is not a JSON object"));
}

static bool read_entries(RtSafetensors *file, int64_t header_bytes)
{
    file->tensors = rt_allocate(cJSON_GetArraySize(file->header), sizeof *file->tensors);
    const cJSON *entry;
    cJSON_ArrayForEach(entry, file->header)
    {
        if (strcmp(entry->string, "__metadata__") &&
            !read_entry(file, entry, file->map + header_bytes, file->bytes - header_bytes,
                        &file->tensors[file->count++]))
            return false;
    }
    return true;
}

RtSafetensors rt_safetensors_look(const char *path, const char *option)
{
    RtSafetensors file = { .path = path, .option = option };
    file.map = rt_map_file(path, option, &file.bytes);
    int64_t header_bytes = 0;
    if (read_header(&file, &header_bytes) && read_entries(&file, header_bytes) &&
        check_places(&file, file.bytes - header_bytes))
        rt_safetensors_sort(&file);
    return file;
}

RtSafetensors rt_safetensors_open(const char *path, const char *option)
{
    const RtSafetensors file = rt_safetensors_look(path, option);
    if (file.fault)
        rt_fail("%s %s: %s; it is not a complete safetensors file: give another, or copy it again", option, path,
                file.fault);
    return file;
}

void rt_safetensors_close(RtSafetensors *file)
{
    free(file->fault);
    free(file->tensors);
    cJSON_Delete(file->header);
    rt_unmap_file(file->map, file->bytes);
}

const RtStored *rt_safetensors_find(const RtSafetensors *file, const char *name)
{
    RtStored wanted = { .name = name };
    return bsearch(&wanted, file->tensors, (size_t)file->count, sizeof *file->tensors, by_name);
}

const char *rt_safetensors_metadata(const RtSafetensors *file, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(file->metadata, key));
}

/* --- Writing -------------------------------------------------------------------------------- */

static cJSON *entry_of(const RtView *view, int64_t begin)
{
    cJSON *entry = cJSON_CreateObject(), *shape = cJSON_CreateArray(), *offsets = cJSON_CreateArray();
    for (int d = 0; d < view->rank; d++)
        cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)view->whole[d]));
    cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)begin));
    cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)(begin + 4 * view->count)));
    cJSON_AddStringToObject(entry, "dtype", rt_view_file_type(view) == RT_I32 ? "I32" : "F32");
    cJSON_AddItemToObject(entry, "shape", shape);
    cJSON_AddItemToObject(entry, "data_offsets", offsets);
    return entry;
}

char *rt_safetensors_header(const RtView *views, int count, const char *const *metadata, int64_t *bytes)
{
    cJSON *header = cJSON_CreateObject(), *pairs = cJSON_AddObjectToObject(header, "__metadata__");
    for (; *metadata; metadata += 2)
        cJSON_AddStringToObject(pairs, metadata[0], metadata[1]);
    int64_t begin = 0;
    for (int i = 0; i < count; begin += 4 * views[i].count, i++)
        cJSON_AddItemToObject(header, views[i].name, entry_of(&views[i], begin));
    char *json = cJSON_PrintUnformatted(header);
    if (!json)
        rt_fail("out of memory: cannot make the header of a checkpoint");

    enum { PAGE = 4096 };
    const uint64_t whole = (strlen(json) + 8 + PAGE - 1) / PAGE * PAGE, length = whole - 8;
    char *result = rt_allocate((int64_t)whole, 1);
    memset(result, ' ', whole); /* so that tensors begin at a page, and are written from where they are (output.c) */
    memcpy(result, &length, 8);
    memcpy(result + 8, json, strlen(json));
    *bytes = (int64_t)whole;
    cJSON_free(json);
    cJSON_Delete(header);
    return result;
}
