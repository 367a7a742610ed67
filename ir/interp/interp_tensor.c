/* interp_tensor.c -- whole tensors: creation, random values, comparison. */
#include "interp.h"
#include "interp_number.h"

#include <stdlib.h>

Tensor new_tensor(const Type *type)
{
    Tensor tensor = { .type = *type, .data = calloc((size_t)element_count(type) + 1, sizeof(double)) };
    if (!tensor.data) {
        fprintf(stderr, "mpc: error: out of memory\n");
        exit(EXIT_FAILURE);
    }
    return tensor;
}

void free_tensors(Tensor tensors[], int count)
{
    for (int i = 0; i < count; i++) {
        free(tensors[i].data);
        tensors[i].data = NULL;
    }
}

Tensor random_tensor(const char *name, const Type *type, double low, double high)
{
    Tensor tensor = new_tensor(type);
    int64_t count = element_count(type);
    uint64_t seed = hash_of_text(name);
    for (int64_t i = 0; i < count; i++) {
        double u = hashed_number(seed, (uint64_t)i);
        double x = low + u * (high - low);
        tensor.data[i] = type->dtype == BOOL ? u < 0.5 : type->dtype == I32 ? floor(x) : x;
    }
    return tensor;
}

/* The index in b of element i of a; dims may be in another order. */
static int64_t same_element(const Type *a, const Type *b, int64_t i)
{
    int64_t at[MAX_RANK], j = 0;
    for (int d = a->rank - 1; d >= 0; d--) {
        at[d] = i % a->dim[d].size;
        i /= a->dim[d].size;
    }
    for (int d = 0; d < b->rank; d++)
        j = j * b->dim[d].size + at[find_dim(a, b->dim[d].name)];
    return j;
}

static bool have_same_dims(const Type *a, const Type *b)
{
    for (int d = 0; d < b->rank; d++) {
        int at = find_dim(a, b->dim[d].name);
        if (at < 0 || a->dim[at].size != b->dim[d].size)
            return false;
    }
    return a->rank == b->rank;
}

static double difference(double a, double b, double usual)
{
    if (a == b || (isnan(a) && isnan(b)))
        return 0;
    double off = fabs(a - b) / fmax(fmax(fabs(a), fabs(b)), usual);
    return isnan(off) ? INFINITY : off;
}

void make_exact(Tensor *tensor)
{
    for (int64_t i = 0; i < element_count(&tensor->type) && is_float(tensor->type.dtype); i++)
        tensor->data[i] = residues.of(tensor->data[i]);
}

double root_mean_square(const Tensor *tensor)
{
    int64_t count = element_count(&tensor->type);
    double squares = 0;
    for (int64_t i = 0; i < count; i++)
        squares += tensor->data[i] * tensor->data[i];
    return isfinite(squares) && count ? sqrt(squares / (double)count) : 0;
}

Difference tensor_difference(const Tensor *a, const Tensor *b, double noise)
{
    Difference worst = { .by = INFINITY, .at = -1 };
    if (!have_same_dims(&a->type, &b->type))
        return worst;
    int64_t count = element_count(&a->type);
    double usual = fmax(root_mean_square(a), noise);
    worst.by = 0;
    for (int64_t i = 0; i < count; i++) {
        double x = a->data[i], y = b->data[same_element(&a->type, &b->type, i)], off = difference(x, y, usual);
        if (worst.at < 0 || off > worst.by)
            worst = (Difference){ .by = off, .at = i, .a = x, .b = y };
    }
    return worst;
}
