/* foreign.c -- refuses files that are not the tokens that their name says: containers, told by how they begin, and
 * integers of more bytes than they would be read with, told by their upper bytes. */
#include "data.h"
#include "state.h"

#include <string.h>

/* --- Containers -------------------------------------------------------------------------------- */

/* The length of a header, and the header, which is JSON. */
static bool is_safetensors(const RtArray *array)
{
    int64_t length;
    if (array->bytes < 10 || memcmp(array->map + 8, "{\"", 2))
        return false;
    memcpy(&length, array->map, sizeof length);
    return length > 1 && length <= array->bytes - 8 && strchr("} ", array->map[8 + length - 1]); /* padded */
}

/* A stream of Arrow messages, which Hugging Face's datasets are stored as: a mark, and the length of the schema. */
static bool is_arrow_stream(const RtArray *array)
{
    int32_t length;
    if (array->bytes < 8 || memcmp(array->map, "\xFF\xFF\xFF\xFF", 4))
        return false;
    memcpy(&length, array->map + 4, sizeof length);
    return length > 0 && length % 8 == 0 && length <= array->bytes - 8;
}

/* The bytes by which a format is told.  Those that occur in a text are longer than the format's own mark, by what
 * follows it in each file. */
typedef struct {
    const char *bytes;
    int count, at;
    const char *name, *remedy;
} Mark;

#define MARK(bytes, at, name, remedy)                                                                                  \
    {                                                                                                                  \
        bytes, sizeof(bytes) - 1, at, name, remedy                                                                     \
    }

static const char unpack[] = "unpack it first", write_tokens[] = "write its tokens to a .u16, .u32 or .npy file first",
                  write_text[] = "write it as UTF-8 first (iconv -f UTF-16 -t UTF-8)";

static const Mark marks[] = {
    MARK("\x1F\x8B\x08", 0, "gzip", unpack),
    MARK("PK\3\4", 0, "zip (of NumPy's .npz or torch.save, say)", unpack),
    MARK("\x28\xB5\x2F\xFD", 0, "zstd", unpack),
    MARK("\xFD\x37zXZ", 0, "xz", unpack),
    MARK("BZh", 0, "bzip2", unpack),
    MARK("\x04\x22\x4D\x18", 0, "lz4", unpack),
    MARK("\xFF\x06\0\0sNaPpY", 0, "snappy", unpack),
    MARK("7z\xBC\xAF\x27\x1C", 0, "7z", unpack),
    MARK("Rar!\x1A\x07", 0, "rar", unpack),
    MARK("ustar", 257, "tar", unpack),
    MARK("PAR1", 0, "Parquet", write_tokens),
    MARK("ARROW1\0\0", 0, "Arrow", write_tokens),
    MARK("Obj\1", 0, "Avro", write_tokens),
    MARK("ORC\x0A", 0, "ORC", write_tokens),
    MARK("ORC\x08", 0, "ORC", write_tokens),
    MARK("\x89HDF", 0, "HDF5", write_tokens),
    MARK("SQLite format 3\0", 0, "SQLite", write_tokens),
    MARK("\x80\x02\x8A\x0A", 0, "pickle (of torch.save, say)", write_tokens),
    MARK("\x80\x04\x95", 0, "pickle", write_tokens),
    MARK("\x80\x05\x95", 0, "pickle", write_tokens),
    MARK("GGUF\1\0\0\0", 0, "GGUF", "it holds weights, not tokens: give another file"),
    MARK("GGUF\2\0\0\0", 0, "GGUF", "it holds weights, not tokens: give another file"),
    MARK("GGUF\3\0\0\0", 0, "GGUF", "it holds weights, not tokens: give another file"),
    MARK("version https://git-lfs.github.com/spec/", 0, "a pointer of Git LFS", "fetch the file itself (git lfs pull)"),
};

/* Of files whose bytes would be tokens: of others they may be the first token. */
static const Mark text_marks[] = {
    MARK("\xFF\xFE", 0, "UTF-16", write_text),
    MARK("\xFE\xFF", 0, "UTF-16", write_text),
    MARK("\0\0\xFE\xFF", 0, "UTF-32", "write it as UTF-8 first (iconv -f UTF-32 -t UTF-8)"),
    MARK("%PDF-", 0, "PDF", "write its text to a file first"),
};

static void refuse_marked(const RtArray *array, const Mark *mark, const Mark *end)
{
    for (; mark < end; mark++)
        if (array->bytes >= mark->at + mark->count && !memcmp(array->map + mark->at, mark->bytes, (size_t)mark->count))
            rt_fail("%s %s: it begins as %s does: %s, or give its format with --data-format", array->option,
                    array->path, mark->name, mark->remedy);
}

void rt_refuse_containers(const RtArray *array, bool takes_bytes)
{
    if (is_safetensors(array))
        rt_fail("%s %s: it begins as safetensors does: give %s INPUT=FILE if its tensors are records, write its tokens "
                "to a .u16, .u32 or .npy file, or give its format with --data-format",
                array->option, array->path, array->option);
    if (is_arrow_stream(array))
        rt_fail("%s %s: it begins as a stream of Arrow does: %s, or give its format with --data-format", array->option,
                array->path, write_tokens);
    refuse_marked(array, marks, marks + sizeof marks / sizeof *marks);
    if (takes_bytes)
        refuse_marked(array, text_marks, text_marks + sizeof text_marks / sizeof *text_marks);
}

/* --- Wider integers ------------------------------------------------------------------------------ */

/* Numbers of `width` bytes, as which a file would be read, and of `wide` bytes, as which it may have been written. */
typedef struct {
    int width, wide;
    uint64_t limit;     /* what a token of the vocabulary has above `width` bytes is less than this */
    int64_t looked_at;  /* numbers of `wide` bytes */
    int64_t small_high; /* of these, with less than `limit` above `width` bytes */
    int64_t large_low;  /* of these, with more in those bytes */
    int different;      /* of large_low, told apart by their last bits */
    bool seen[256];
} Evidence;

static void look_at(Evidence *evidence, const char *at)
{
    uint64_t number = 0;
    memcpy(&number, at, (size_t)evidence->wide);
    const uint64_t high = number >> 8 * evidence->width, low = number & ((1ULL << 8 * evidence->width) - 1);
    evidence->looked_at++;
    evidence->small_high += high < evidence->limit;
    if (low < evidence->limit)
        return;
    evidence->large_low++;
    evidence->different += !evidence->seen[low % 256];
    evidence->seen[low % 256] = true;
}

/* Looks at some places all over the file, which may have terabytes. */
static Evidence gather(const RtArray *array, int width, int wide, int64_t vocab)
{
    enum { PLACES = 64, EACH = 64 };
    Evidence evidence = { .width = width, .wide = wide, .limit = 1 };
    if (vocab > 0)
        evidence.limit = ((uint64_t)(vocab - 1) >> 8 * width) + 1;
    const int64_t numbers = array->bytes / wide, places = numbers < EACH * PLACES ? 1 : PLACES;
    const int64_t each = places == 1 ? numbers : EACH;
    for (int64_t place = 0; place < places; place++)
        for (int64_t i = 0; i < each; i++)
            look_at(&evidence, array->map + (numbers / places * place + i) * wide);
    return evidence;
}

/* Of tokens written with more bytes than they are read with, every second number is the upper part of a token: 0, or
 * what a large vocabulary has there.  One in a hundred may be a mark such as -1.  The numbers between them are tokens,
 * not all of them padding.  Tokens of the smaller width are never so at every second place. */
static bool is_wider(const RtArray *array, int width, int wide, int64_t vocab)
{
    enum { LEAST = 16, DIFFERENT = 3 };
    const Evidence e = gather(array, width, wide, vocab);
    return array->bytes % wide == 0 && e.looked_at >= LEAST && e.different >= DIFFERENT &&
           100 * e.small_high >= 99 * e.looked_at && 4 * e.large_low >= e.looked_at;
}

void rt_refuse_wider(const RtArray *array, int64_t vocab)
{
    static const struct {
        int bytes;
        const char *name, *remedy;
    } wider[] = {
        { 8, "int64 tokens", "write them with numpy.save as .npy" },
        { 4, "uint32 tokens", "give --data-format u32" },
        { 2, "uint16 tokens or UTF-16", "give --data-format u16, or write the text as UTF-8" },
    };
    const int width = rt_number_bytes(array->type);
    for (unsigned i = 0; i < sizeof wider / sizeof *wider && wider[i].bytes > width; i++)
        if (is_wider(array, width, wider[i].bytes, vocab))
            rt_fail("%s %s: by its name it has %s tokens, but its content is that of %s: %s (or, if it is as its name "
                    "says, --data-format %s)",
                    array->option, array->path, array->format, wider[i].name, wider[i].remedy,
                    width == 1   ? "bytes"
                    : width == 2 ? "u16"
                                 : "u32");
}
