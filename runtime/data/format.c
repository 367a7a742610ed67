/* format.c -- detects the format of a data file, and finds its tokens.
 *
 *   bytes      each byte a token
 *   u16, u32   little-endian, no header (nanoGPT's .bin is u16)
 *   llmc       256 int32: magic, version, count of tokens; then the tokens
 *   megatron   F.bin: tokens; F.idx: "MMIDIDX\0\0", u64 version, u8 type, u64 sequences, u64 documents,
 *              then for each sequence its length (i32), then for each its offset in F.bin (i64)
 *   npy        NumPy's arrays (npy.c)
 */
#include "data.h"
#include "state.h"
#include "store/map.h"

#include <stdlib.h>
#include <string.h>

#include <sys/stat.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the formats are little-endian");

enum {
    LLMC_HEADER_BYTES = 256 * 4,
    LLMC_GPT2 = 20240520,   /* version 1: uint16 */
    LLMC_LLAMA3 = 20240801, /* version 2 and later: uint32 */
    MEGATRON_HEADER_BYTES = 9 + 8 + 1 + 8 + 8
};

static const char megatron_magic[9] = "MMIDIDX\0"; /* including the final 0 */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && !strcmp(text + length - tail, end);
}

static int64_t read_i64(const char *at)
{
    int64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static int32_t read_i32(const char *at)
{
    int32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* --- Plain tokens --------------------------------------------------------------------------- */

static void take_plain(RtArray *array, RtNumberType type, const char *format)
{
    array->type = type;
    array->format = format;
    array->first = array->map;
    array->count = array->bytes / rt_number_bytes(type);
    if (array->bytes % rt_number_bytes(type))
        rt_fail("%s %s: %lld bytes are not a whole number of %s tokens; is it complete, and of this format? "
                "(--data-format says which)",
                array->option, array->path, (long long)array->bytes, format);
}

static void take_bytes(RtArray *array) { take_plain(array, DATA_U8, "bytes"); }
static void take_u16(RtArray *array) { take_plain(array, DATA_U16, "uint16"); }
static void take_u32(RtArray *array) { take_plain(array, DATA_U32, "uint32"); }

/* --- llm.c ---------------------------------------------------------------------------------- */

static bool is_llmc(const RtArray *array)
{
    if (array->bytes < LLMC_HEADER_BYTES)
        return false;
    int32_t magic = read_i32(array->map);
    return magic == LLMC_GPT2 || magic == LLMC_LLAMA3;
}

static void take_llmc(RtArray *array)
{
    if (!is_llmc(array))
        rt_fail("%s %s: not an llm.c file: it does not begin with the magic number %d or %d", array->option,
                array->path, LLMC_GPT2, LLMC_LLAMA3);
    int32_t magic = read_i32(array->map), version = read_i32(array->map + 4), count = read_i32(array->map + 8);
    if (magic == LLMC_GPT2 ? version != 1 : version < 2)
        rt_fail("%s %s: llm.c file with magic number %d and unknown version %d; write it again with llm.c's scripts",
                array->option, array->path, magic, version);
    array->type = magic == LLMC_GPT2 ? DATA_U16 : DATA_U32;
    array->format = magic == LLMC_GPT2 ? "llm.c, uint16" : "llm.c, uint32";
    array->first = array->map + LLMC_HEADER_BYTES;
    array->count = count;
    int64_t expected = LLMC_HEADER_BYTES + (int64_t)count * rt_number_bytes(array->type);
    if (count < 0 || expected != array->bytes)
        rt_fail("%s %s: its header says %d tokens, which is a file of %lld bytes, but it has %lld; "
                "it is truncated or damaged: fetch it again",
                array->option, array->path, count, (long long)expected, (long long)array->bytes);
}

/* --- Megatron ------------------------------------------------------------------------------- */

/* The index beside "F.bin": "F.idx". */
static char *index_path(const char *path)
{
    int length = (int)strlen(path);
    return rt_text("%.*s.idx", ends_with(path, ".bin") ? length - 4 : length, path);
}

/* An index file next to the tokens determines the format. */
static bool has_index(const RtArray *array)
{
    char *path = index_path(array->path);
    struct stat info;
    bool has = ends_with(array->path, ".bin") && !stat(path, &info);
    free(path);
    return has;
}

/* Checks that the sequences are contiguous in F.bin, so that it is one stream of tokens. */
static void check_megatron_sequences(const RtArray *array, const char *path, const char *lengths, int64_t count)
{
    const char *offsets = lengths + 4 * count;
    int64_t expected = 0;
    for (int64_t i = 0; i < count; i++) {
        if (read_i64(offsets + 8 * i) != expected)
            rt_fail("%s %s: sequence %lld begins at byte %lld of the .bin, not at %lld where the one before ends; "
                    "write the pair again with Megatron's preprocess_data.py",
                    array->option, path, (long long)i, (long long)read_i64(offsets + 8 * i), (long long)expected);
        expected += (int64_t)read_i32(lengths + 4 * i) * rt_number_bytes(array->type);
    }
    if (expected != array->bytes)
        rt_fail("%s %s: the sequences of its index end at byte %lld, but it has %lld bytes; it is truncated, or the "
                "two files are not of one pair",
                array->option, array->path, (long long)expected, (long long)array->bytes);
}

static void take_megatron(RtArray *array)
{
    static const struct {
        RtNumberType type;
        const char *format; /* NULL: not integers */
    } types[] = { [1] = { DATA_U8, "Megatron, uint8" },
                  [2] = { DATA_I8, "Megatron, int8" },
                  [3] = { DATA_I16, "Megatron, int16" },
                  [4] = { DATA_I32, "Megatron, int32" },
                  [5] = { DATA_I64, "Megatron, int64" },
                  [6] = { DATA_U8, NULL },
                  [7] = { DATA_U8, NULL },
                  [8] = { DATA_U16, "Megatron, uint16" } };
    char *path = index_path(array->path);
    int64_t bytes;
    const char *map = rt_map_file(path, array->option, &bytes);
    if (bytes < MEGATRON_HEADER_BYTES || memcmp(map, megatron_magic, sizeof megatron_magic))
        rt_fail("%s %s: not a Megatron index: it does not begin with MMIDIDX; it is damaged: fetch it again (or, if it "
                "is not of %s, give the format of that with --data-format)",
                array->option, path, array->path);
    int64_t version = read_i64(map + 9), count = read_i64(map + 18), documents = read_i64(map + 26);
    unsigned code = (unsigned char)map[17];
    if (version != 1 || code >= sizeof types / sizeof *types || !types[code].format)
        rt_fail("%s %s: Megatron index of version %lld with tokens of type %u; version 1 and an integer type (1 to 5, "
                "8) can be read",
                array->option, path, (long long)version, code);
    array->type = types[code].type;
    array->format = types[code].format;
    if (count < 0 || documents < 0 || count > bytes / 12 || documents > bytes / 8 ||
        MEGATRON_HEADER_BYTES + 12 * count + 8 * documents != bytes)
        rt_fail("%s %s: it is truncated or damaged: %lld sequences and %lld documents do not make %lld bytes",
                array->option, path, (long long)count, (long long)documents, (long long)bytes);
    check_megatron_sequences(array, path, map + MEGATRON_HEADER_BYTES, count);
    rt_unmap_file(map, bytes);
    free(path);
    array->first = array->map;
    array->count = array->bytes / rt_number_bytes(array->type);
}

/* --- Which ---------------------------------------------------------------------------------- */

typedef void Take(RtArray *array);

static Take *format_of_file(const RtArray *array)
{
    if (rt_npy_is(array))
        return rt_npy_take_tokens;
    if (ends_with(array->path, ".u16"))
        return take_u16;
    if (ends_with(array->path, ".u32"))
        return take_u32;
    if (!ends_with(array->path, ".bin"))
        return take_bytes;
    return has_index(array) ? take_megatron : is_llmc(array) ? take_llmc : take_u16;
}

static void recognise(RtArray *array, const char *format, int64_t vocab)
{
    enum { BYTES = 256 };
    static const struct {
        const char *name;
        Take *take;
    } formats[] = {
        { "bytes", take_bytes }, { "u16", take_u16 },           { "u32", take_u32 },
        { "llmc", take_llmc },   { "megatron", take_megatron }, { "npy", rt_npy_take_tokens },
    };
    Take *take = format ? NULL : format_of_file(array);
    if (!format && take != rt_npy_take_tokens)
        rt_refuse_containers(array, take == take_bytes);
    for (unsigned i = 0; format && i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(format, formats[i].name))
            take = formats[i].take;
    if (!format && take == take_bytes && vocab > BYTES)
        rt_fail("%s %s: by its name each byte is a token, but the model has %lld tokens: tokenize it first "
                "(packaging/tokens.py writes .u16), or give --data-format bytes if bytes are meant",
                array->option, array->path, (long long)vocab);
    take(array);
    if (!format && array->first == array->map && take != take_megatron && take != rt_npy_take_tokens) /* no header */
        rt_refuse_wider(array, vocab);
}

RtArray rt_tokens_open(const char *path, const char *option, const char *format, int64_t vocab)
{
    RtArray array = { .path = path, .option = option };
    array.map = rt_map_file(path, option, &array.bytes);
    recognise(&array, format, vocab);
    array.rank = 1;
    array.size[0] = array.count;
    return array;
}
