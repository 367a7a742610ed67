/* npy.c -- tokens in a file of numpy.save: "\x93NUMPY", version, the length of a header, the header, the numbers.
 *
 * The header is a literal of Python: {'descr': '<u2', 'fortran_order': False, 'shape': (1000,), }. */
#include "data.h"
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char magic[] = "\x93NUMPY";

enum {
    MAGIC = sizeof magic - 1,
    VERSION = MAGIC,
    LENGTH = MAGIC + 2,
    WIDE = 2 /* from this version on, a u32 length */
};

bool rt_data_is_npy(const RtData *data) { return data->bytes > LENGTH + 4 && !memcmp(data->map, magic, MAGIC); }

static _Noreturn void refuse(const RtData *data, const char *why)
{
    rt_fail("%s %s: a NumPy array %s; save one row of integers: np.save(path, tokens.ravel().astype('<u2'))",
            data->option, data->path, why);
}

/* The text after 'key': in the header; "" if absent. */
static const char *value_of(const char *header, const char *key)
{
    char *quoted = rt_text("'%s':", key);
    const char *at = strstr(header, quoted);
    at = at ? at + strlen(quoted) : "";
    free(quoted);
    return at + strspn(at, " ");
}

static void take_type(RtData *data, const char *descr)
{
    static const struct {
        const char *descr;
        RtTokenType type;
        const char *format;
    } types[] = { { "'|u1'", RT_U8, "NumPy, uint8" },   { "'|i1'", RT_I8, "NumPy, int8" },
                  { "'<u2'", RT_U16, "NumPy, uint16" }, { "'<i2'", RT_I16, "NumPy, int16" },
                  { "'<u4'", RT_U32, "NumPy, uint32" }, { "'<i4'", RT_I32_TOKEN, "NumPy, int32" },
                  { "'<u8'", RT_I64, "NumPy, uint64" }, { "'<i8'", RT_I64, "NumPy, int64" } };
    for (unsigned i = 0; i < sizeof types / sizeof *types; i++)
        if (!strncmp(descr, types[i].descr, strlen(types[i].descr))) {
            data->type = types[i].type;
            data->format = types[i].format;
            return;
        }
    refuse(data, rt_text("of %.*s, which are not little-endian integers", (int)strcspn(descr, ",}"), descr));
}

/* "(1000,)" */
static void take_shape(RtData *data, const char *shape)
{
    long long count = -1;
    int end = 0;
    if (sscanf(shape, "(%lld,)%n", &count, &end) != 1 || end == 0 || count < 0)
        refuse(data, rt_text("of shape %.*s, where one dim is needed", (int)strcspn(shape, ")") + 1, shape));
    data->count = count;
}

void rt_data_take_npy(RtData *data)
{
    uint32_t length = 0;
    int width = data->bytes > VERSION && data->map[VERSION] >= WIDE ? 4 : 2;
    if (!rt_data_is_npy(data))
        refuse(data, "it is not: it does not begin with \\x93NUMPY");
    memcpy(&length, data->map + LENGTH, (size_t)width);
    int64_t begin = LENGTH + width + (int64_t)length;
    if (begin > data->bytes)
        refuse(data, "that is cut short in its header");
    char *header = rt_text("%.*s", (int)length, data->map + LENGTH + width);
    take_type(data, value_of(header, "descr"));
    take_shape(data, value_of(header, "shape"));
    free(header);
    int bytes = rt_token_bytes[data->type];
    data->tokens = data->map + begin;
    if (data->count > (data->bytes - begin) / bytes || data->bytes - begin != data->count * bytes)
        refuse(data, rt_text("of %lld numbers in a file of %lld bytes: it is cut short or damaged",
                             (long long)data->count, (long long)data->bytes));
}
