/* npy.c -- a file of numpy.save: "\x93NUMPY", version, the length of a header, the header, the numbers.
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
    WIDE = 2, /* from this version on, a u32 length */
    LAST_VERSION = 3
};

bool rt_npy_is(const RtArray *array) { return array->bytes > LENGTH + 4 && !memcmp(array->map, magic, MAGIC); }

static _Noreturn void refuse(const RtArray *array, const char *why)
{
    rt_fail("%s %s: a NumPy array %s", array->option, array->path, why);
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

static void take_type(RtArray *array, const char *descr)
{
    static const RtNumberName names[] = {
        { "'|u1'", DATA_U8, "NumPy, uint8" },    { "'|i1'", DATA_I8, "NumPy, int8" },
        { "'<u2'", DATA_U16, "NumPy, uint16" },  { "'<i2'", DATA_I16, "NumPy, int16" },
        { "'<u4'", DATA_U32, "NumPy, uint32" },  { "'<i4'", DATA_I32, "NumPy, int32" },
        { "'<u8'", DATA_U64, "NumPy, uint64" },  { "'<i8'", DATA_I64, "NumPy, int64" },
        { "'|b1'", DATA_BOOL, "NumPy, bool" },   { "'<f2'", DATA_F16, "NumPy, float16" },
        { "'<f4'", DATA_F32, "NumPy, float32" }, { "'<f8'", DATA_F64, "NumPy, float64" },
    };
    const size_t length = strcspn(descr, ",}");
    if (!rt_number_take(array, names, sizeof names / sizeof *names, descr, length))
        refuse(array, rt_text("of %.*s; save little-endian integers or floating-point numbers, such as x.astype('<f4')",
                              (int)length, descr));
}

/* "(1000,)", "(8, 3)" */
static void take_shape(RtArray *array, const char *shape)
{
    const char *at = shape + 1;
    array->count = 1;
    for (array->rank = 0; *shape == '(' && *at && *at != ')' && array->rank < RT_DATA_RANK; array->rank++) {
        char *end;
        const int64_t size = strtoll(at, &end, 10);
        if (end == at || size < 0 || (size > 0 && array->count > INT64_MAX / size))
            break;
        array->count *= array->size[array->rank] = size;
        at = end + strspn(end, ", ");
    }
    if (*shape != '(' || *at != ')' || array->rank == 0)
        refuse(array, rt_text("of shape %.*s), where 1 to %d dims are needed", (int)strcspn(shape, ")}\n"), shape,
                              RT_DATA_RANK));
}

void rt_npy_take(RtArray *array)
{
    uint32_t length = 0;
    int width = array->bytes > VERSION && array->map[VERSION] >= WIDE ? 4 : 2;
    if (!rt_npy_is(array))
        refuse(array, "it is not: it does not begin with \\x93NUMPY");
    memcpy(&length, array->map + LENGTH, (size_t)width);
    if (array->map[VERSION] < 1 || array->map[VERSION] > LAST_VERSION)
        refuse(array, rt_text("of version %u: save it again", (unsigned char)array->map[VERSION]));
    int64_t begin = LENGTH + width + (int64_t)length;
    if (begin > array->bytes)
        refuse(array, "that is cut short in its header: save it again");
    char *header = rt_text("%.*s", (int)length, array->map + LENGTH + width);
    take_type(array, value_of(header, "descr"));
    take_shape(array, value_of(header, "shape"));
    if (array->rank > 1 && !strncmp(value_of(header, "fortran_order"), "True", 4))
        refuse(array, "in Fortran's order: save np.ascontiguousarray(x)");
    free(header);
    int bytes = rt_number_bytes(array->type);
    array->first = array->map + begin;
    if (array->count > (array->bytes - begin) / bytes || array->bytes - begin != array->count * bytes)
        refuse(array, rt_text("of %lld numbers in a file of %lld bytes: it is cut short or damaged",
                              (long long)array->count, (long long)array->bytes));
}

void rt_npy_take_tokens(RtArray *array)
{
    rt_npy_take(array);
    if (array->rank == 1 && !rt_number_is_real(array->type) && array->type != DATA_BOOL)
        return;
    refuse(array, rt_text("(%s) of %d dims; save one row of integers: np.save(path, tokens.ravel().astype('<u2'))",
                          array->format, array->rank));
}

/* Numbers behind it are at a multiple of 64 bytes, as numpy.save has them. */
char *rt_npy_head(RtType type, int rank, const int64_t size[], int64_t *bytes)
{
    enum { UNIT = 64, BEFORE = LENGTH + 2 };
    const char *const descr = type == RT_BOOL ? "|b1" : type == RT_I32 ? "<i4" : "<f4";
    char *text = rt_text("{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (int d = 0; d < rank; d++)
        rt_append(&text, "%lld,%s", (long long)size[d], d + 1 < rank ? " " : "");
    rt_append(&text, "), }");
    const size_t length = strlen(text);
    *bytes = ((int64_t)length + BEFORE + UNIT) / UNIT * UNIT; /* at least the end of a line follows */
    char *head = rt_allocate(*bytes, 1);
    memset(head, ' ', (size_t)*bytes);
    memcpy(head, magic, MAGIC);
    head[VERSION] = 1, head[VERSION + 1] = 0;
    head[LENGTH] = (char)((*bytes - BEFORE) & 0xFF), head[LENGTH + 1] = (char)((*bytes - BEFORE) >> 8);
    memcpy(head + BEFORE, text, length);
    head[*bytes - 1] = '\n';
    free(text);
    return head;
}
