/* array.c -- the numbers of a mapped file, whatever their type. */
#include "convert.h"
#include "data.h"
#include "state.h"

#include <string.h>

bool rt_number_take(RtArray *array, const RtNumberName names[], int count, const char *word, size_t length)
{
    for (const RtNumberName *name = names; name < names + count; name++)
        if (strlen(name->word) == length && !memcmp(name->word, word, length)) {
            array->type = name->type;
            array->format = name->format;
            return true;
        }
    return false;
}

int rt_number_bytes(RtNumberType type)
{
    static const int bytes[] = {
        [DATA_U8] = 1,   [DATA_I8] = 1,  [DATA_U16] = 2, [DATA_I16] = 2,  [DATA_U32] = 4,
        [DATA_I32] = 4,  [DATA_I64] = 8, [DATA_U64] = 8, [DATA_BOOL] = 1, [DATA_F16] = 2,
        [DATA_BF16] = 2, [DATA_F32] = 4, [DATA_F64] = 8,
    };
    return bytes[type];
}

bool rt_number_is_real(RtNumberType type) { return type >= DATA_F16; }

/* Loads at any address: numbers need not be aligned. */
#define LOAD(type, convert)                                                                                            \
    do {                                                                                                               \
        type value;                                                                                                    \
        memcpy(&value, array->first + position * (int64_t)sizeof value, sizeof value);                                 \
        return convert(value);                                                                                         \
    } while (0)

static int64_t bounded(uint64_t value) { return value > INT64_MAX ? INT64_MAX : (int64_t)value; }

int64_t rt_integer_at(const RtArray *array, int64_t position)
{
    switch (array->type) {
    case DATA_U8:
    case DATA_BOOL:
        LOAD(uint8_t, );
    case DATA_I8:
        LOAD(int8_t, );
    case DATA_U16:
        LOAD(uint16_t, );
    case DATA_I16:
        LOAD(int16_t, );
    case DATA_U32:
        LOAD(uint32_t, );
    case DATA_I32:
        LOAD(int32_t, );
    case DATA_U64:
        LOAD(uint64_t, bounded);
    default:
        LOAD(int64_t, );
    }
}

char *rt_integer_text(const RtArray *array, int64_t position)
{
    uint64_t wide = 0;
    if (array->type == DATA_U64)
        memcpy(&wide, array->first + position * (int64_t)sizeof wide, sizeof wide);
    return wide > INT64_MAX ? rt_text("%llu", (unsigned long long)wide)
                            : rt_text("%lld", (long long)rt_integer_at(array, position));
}

double rt_real_at(const RtArray *array, int64_t position)
{
    switch (array->type) {
    case DATA_F16:
        LOAD(uint16_t, rt_float_of_f16);
    case DATA_BF16:
        LOAD(uint16_t, rt_float_of_bf16);
    case DATA_F32:
        LOAD(float, );
    case DATA_F64:
        LOAD(double, );
    case DATA_U64:
        LOAD(uint64_t, (double));
    default:
        return (double)rt_integer_at(array, position);
    }
}
