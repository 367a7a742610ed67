/* sizes.c -- see sizes.h. */
#include "sizes.h"

#include <string.h>

static int64_t checked_product(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

int64_t checked_sum(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

int64_t tensor_count(const Param *param)
{
    int64_t count = 1;
    int dim = 0;
    for (const char *star = strchr(param->path, '*'); star && dim < param->type.rank; star = strchr(star + 1, '*'))
        count = checked_product(count, param->type.dim[dim++].size);
    return count;
}

int64_t checked_bytes(const Module *m, const Type *type)
{
    int64_t bytes = dtype_bytes(type->dtype);
    for (int i = 0; i < type->rank; i++)
        bytes = checked_product(bytes, local_size(m, &type->dim[i]));
    return bytes;
}
