/* tensors.c -- maps safetensors files, checks their headers, converts their numbers. */
#include "tensors.h"

#include "member.h"
#include "runtime/convert.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_HEADER_BYTES = 100 << 20 }; /* the limit of the format's own library */

/* --- Numbers -------------------------------------------------------------------------------- */

int width_of(const char *dtype)
{
    static const struct {
        const char *name;
        int width;
    } types[] = { { "F64", 8 },  { "F32", 4 }, { "F16", 2 },     { "BF16", 2 },   { "I64", 8 }, { "I32", 4 },
                  { "I16", 2 },  { "I8", 1 },  { "U64", 8 },     { "U32", 4 },    { "U16", 2 }, { "U8", 1 },
                  { "BOOL", 1 }, { "C64", 8 }, { "F8_E4M3", 1 }, { "F8_E5M2", 1 } };
    for (unsigned i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(dtype, types[i].name) == 0)
            return types[i].width;
    return 0;
}

bool is_parameter_dtype(const char *dtype)
{
    return strcmp(dtype, "F32") == 0 || strcmp(dtype, "BF16") == 0 || strcmp(dtype, "F16") == 0;
}

static float read_float(char type, const char *from, int64_t i)
{
    uint16_t half;
    float value;
    if (type == '3') {
        memcpy(&value, from + 4 * i, 4);
        return value;
    }
    memcpy(&half, from + 2 * i, 2);
    return type == 'B' ? rt_float_of_bf16(half) : rt_float_of_f16(half);
}

static void write_float(char type, char *to, int64_t i, float value)
{
    if (type == '3') {
        memcpy(to + 4 * i, &value, 4);
        return;
    }
    const uint16_t half = type == 'B' ? rt_bf16_of_float(value) : rt_f16_of_float(value);
    memcpy(to + 2 * i, &half, 2);
}

/* '3' of F32, 'B' of BF16, '1' of F16. */
static char letter_of(const char *dtype) { return dtype[0] == 'B' ? 'B' : dtype[1]; }

void convert_floats(const char *from_type, const void *from, const char *to_type, void *to, int64_t count)
{
    const char a = letter_of(from_type), b = letter_of(to_type);
    if (a == b) { /* also the bits of NaN */
        memcpy(to, from, (size_t)count * (a == '3' ? 4 : 2));
        return;
    }
    for (int64_t i = 0; i < count; i++)
        write_float(b, to, i, read_float(a, from, i));
}

/* The bits of an exponent, all of them set in nan and infinity. */
static bool is_finite_at(char type, const char *from, int64_t i)
{
    uint16_t half;
    uint32_t word;
    if (type == '3') {
        memcpy(&word, from + 4 * i, 4);
        return (word & 0x7F800000u) != 0x7F800000u;
    }
    const unsigned exponent = type == 'B' ? 0x7F80 : 0x7C00;
    memcpy(&half, from + 2 * i, 2);
    return (half & exponent) != exponent;
}

int64_t first_not_finite(const char *dtype, const void *numbers, int64_t count)
{
    enum { BLOCK = 4096 }; /* a loop without a way out is done by vectors */
    const char type = letter_of(dtype);
    for (int64_t begin = 0; begin < count; begin += BLOCK) {
        const int64_t end = begin + BLOCK < count ? begin + BLOCK : count;
        bool are_finite = true;
        for (int64_t i = begin; i < end; i++)
            are_finite &= is_finite_at(type, numbers, i);
        for (int64_t i = begin; i < end && !are_finite; i++)
            if (!is_finite_at(type, numbers, i))
                return i;
    }
    return -1;
}

bool check_finite(Run *run, const char *path, const StoredTensor *stored, const void *numbers)
{
    const int64_t at = first_not_finite(stored->dtype, numbers, stored->count);
    int64_t place[MAX_STORED_RANK], rest = at;
    if (at < 0)
        return true;
    for (int d = stored->rank - 1; d >= 0; d--) {
        place[d] = rest % stored->size[d];
        rest /= stored->size[d];
    }
    return run_failed(run,
                      "%s: tensor '%s' is %g at %s, as %s: weights must be finite; give a checkpoint from before the "
                      "training diverged, or download it again",
                      path, stored->name, (double)read_float(letter_of(stored->dtype), numbers, at),
                      sizes_text(&run->arena, stored->rank, place), stored->dtype);
}

cJSON *header_entry(const char *dtype, int rank, const int64_t *size, int64_t begin, int64_t end)
{
    cJSON *entry = cJSON_CreateObject();
    cJSON_AddStringToObject(entry, "dtype", dtype);
    cJSON *shape = cJSON_AddArrayToObject(entry, "shape"), *offsets = cJSON_AddArrayToObject(entry, "data_offsets");
    for (int d = 0; d < rank; d++)
        cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)size[d]));
    cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)begin));
    cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)end));
    return entry;
}

const char *header_text(Arena *arena, const cJSON *header, int64_t *bytes)
{
    char *json = cJSON_PrintUnformatted(header);
    const uint64_t length = (strlen(json) + 7) / 8 * 8;
    char *text = NEW_ARRAY(arena, char, length + 8);
    memset(text, ' ', length + 8);
    memcpy(text, &length, sizeof length);
    memcpy(text + sizeof length, json, strlen(json));
    cJSON_free(json);
    *bytes = (int64_t)length + 8;
    return text;
}

const char *sizes_text(Arena *arena, int rank, const int64_t *size)
{
    const char *text = "[";
    for (int d = 0; d < rank; d++)
        text = arena_text(arena, "%s%s%lld", text, d ? ", " : "", (long long)size[d]);
    return arena_text(arena, "%s]", text);
}

/* --- The header ----------------------------------------------------------------------------- */

static bool refuse(Run *run, const TensorFile *file, const char *why)
{
    return run_failed(run, "%s: %s; it is not a complete safetensors file: copy or download it again", file->path, why);
}

/* An integer that a double represents exactly, as in JSON; else -1. */
static int64_t whole_number(const cJSON *item)
{
    const bool is = cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble <= 0x1p53 &&
                    item->valuedouble == floor(item->valuedouble);
    return is ? (int64_t)item->valuedouble : -1;
}

/* Names are printed: they must not control the terminal. */
static bool is_printable(const char *name)
{
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        if (*c < ' ' || *c == 0x7F)
            return false;
    return *name;
}

static bool read_entry(Run *run, const TensorFile *file, const cJSON *entry, StoredTensor *stored)
{
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(entry, "dtype");
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(entry, "shape"), *size;
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
    *stored = (StoredTensor){ .name = entry->string, .dtype = cJSON_GetStringValue(dtype) };
    if (!is_printable(stored->name) || (stored->dtype && !is_printable(stored->dtype)))
        return refuse(run, file, "a name in its header is empty or has control characters");
    if (!stored->dtype || !cJSON_IsArray(shape) || cJSON_GetArraySize(offsets) != 2)
        return refuse(run, file,
                      arena_text(&run->arena, "tensor '%s' lacks dtype, shape or data_offsets", stored->name));
    stored->begin = whole_number(cJSON_GetArrayItem(offsets, 0));
    stored->end = whole_number(cJSON_GetArrayItem(offsets, 1));
    stored->width = width_of(stored->dtype);
    double bytes = stored->width;
    if (cJSON_GetArraySize(shape) > MAX_STORED_RANK || stored->width == 0)
        return run_failed(
            run, "%s: tensor '%s' has dtype %s and %d dims: mpc reads tensors of up to %d dims of known dtypes",
            file->path, stored->name, stored->dtype, cJSON_GetArraySize(shape), MAX_STORED_RANK);
    cJSON_ArrayForEach(size, shape)
    {
        stored->size[stored->rank] = whole_number(size);
        bytes *= (double)stored->size[stored->rank++];
    }
    if (stored->begin < 0 || stored->end > file->bytes - file->head || bytes != (double)(stored->end - stored->begin))
        return refuse(run, file,
                      arena_text(&run->arena, "the place of tensor '%s' does not fit its shape", stored->name));
    stored->count = (stored->end - stored->begin) / stored->width;
    stored->data = file->map + file->head + stored->begin;
    return true;
}

static int by_place(const void *a, const void *b)
{
    const StoredTensor *x = a, *y = b;
    return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin) : (x->end > y->end) - (x->end < y->end);
}

/* Every byte belongs to exactly one tensor: detects truncated or padded files. */
static bool check_places(Run *run, const TensorFile *file)
{
    int64_t at = 0;
    qsort(file->tensor, (size_t)file->count, sizeof *file->tensor, by_place);
    for (int i = 0; i < file->count; at = file->tensor[i++].end)
        if (file->tensor[i].begin != at)
            return refuse(
                run, file,
                arena_text(&run->arena, "tensor '%s' does not begin where the one before ends", file->tensor[i].name));
    return at == file->bytes - file->head || refuse(run, file, "bytes follow its last tensor");
}

static bool read_header(Run *run, TensorFile *file)
{
    uint64_t length = 0;
    if (file->bytes >= 8)
        memcpy(&length, file->map, 8);
    if (file->bytes < 8 || length > MAX_HEADER_BYTES || (int64_t)length > file->bytes - 8)
        return refuse(run, file, "it is shorter than its header");
    file->head = 8 + (int64_t)length;
    file->header = cJSON_ParseWithLength(file->map + 8, (size_t)length);
    if (!cJSON_IsObject(file->header))
        return refuse(run, file, "its header is not a JSON object");
    if (!check_keys(run, file->path, file->header))
        return false;
    file->tensor = NEW_ARRAY(&run->arena, StoredTensor, cJSON_GetArraySize(file->header) + 1);
    const cJSON *entry;
    cJSON_ArrayForEach(entry, file->header)
    {
        if (strcmp(entry->string, "__metadata__") != 0 && !read_entry(run, file, entry, &file->tensor[file->count++]))
            return false;
    }
    return check_places(run, file);
}

/* --- The file ------------------------------------------------------------------------------- */

static bool map_file(Run *run, TensorFile *file, int fd)
{
    if (fstat(fd, &file->status) != 0)
        return run_failed(run, "cannot read %s: %s", file->path, strerror(errno));
    file->bytes = S_ISREG(file->status.st_mode) ? file->status.st_size : 0;
    file->map = file->bytes ? mmap(NULL, (size_t)file->bytes, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    if (file->map == MAP_FAILED) {
        file->map = NULL;
        file->bytes = 0;
    }
    return file->map || refuse(run, file, "it is no file with contents");
}

bool open_tensors(Run *run, TensorFile *file, const char *path, int fd)
{
    *file = (TensorFile){ .path = path };
    if (fd < 0)
        return false;
    const bool is_mapped = map_file(run, file, fd);
    close(fd);
    if (is_mapped && read_header(run, file))
        return true;
    close_tensors(file);
    return false;
}

void close_tensors(TensorFile *file)
{
    cJSON_Delete(file->header);
    if (file->bytes)
        munmap((void *)(uintptr_t)file->map, (size_t)file->bytes);
    *file = (TensorFile){ 0 };
}
