/* resize.c -- a vocabulary of another size than the folder's: new tokens begin as the mean of the old ones, so that
 * their logits are those of an average token, not of noise; of a smaller one the last tokens are left out. */
#include "line.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int resized_dim(const Binding *b, const Param *param)
{
    for (int d = repeats_around(param); d < param->type.rank && b->resize.dim; d++)
        if (strcmp(param->type.dim[d].name, b->resize.dim) == 0)
            return d;
    return -1;
}

static int64_t kept_rows(const Binding *b)
{
    return b->resize.old < b->resize.wanted ? b->resize.old : b->resize.wanted;
}

static bool product_has(const Product *product, const char *dim)
{
    for (int i = 0; i < product->count; i++)
        if (product->item[i].kind == OF_DIM && strcmp(product->item[i].dim, dim) == 0)
            return true;
    return false;
}

static bool line_has(const MapLine *line, const char *dim)
{
    for (int i = 0; i < line->naxes; i++) {
        const Axis *axis = &line->axis[i];
        if (product_has(&axis->around, dim))
            return true;
        for (int k = 0; k < axis->count; k++)
            if (product_has(&axis->part[k], dim))
                return true;
    }
    return false;
}

int64_t kept_of_tensor(const Binding *b, const MapLine *line, int64_t count)
{
    return b->resize.dim && line_has(line, b->resize.dim) ? count / b->resize.old * kept_rows(b) : count;
}

int64_t kept_of_copy(const Binding *b, const ParamCopy *copy)
{
    return resized_dim(b, copy->param) < 0 ? copy->count : copy->count / b->resize.wanted * kept_rows(b);
}

/* One block [wanted, inside]: its last rows. */
static void fill_block(const Resize *resize, int64_t inside, float *block)
{
    for (int64_t i = 0; i < inside; i++) {
        double sum = 0;
        for (int64_t row = 0; row < resize->old; row++)
            sum += (double)block[row * inside + i];
        for (int64_t row = resize->old; row < resize->wanted; row++)
            block[row * inside + i] = (float)(sum / (double)resize->old);
    }
}

void fill_resized(const Binding *b, const ParamCopy *copy, char *elements)
{
    const int d = resized_dim(b, copy->param);
    if (d < 0 || b->resize.wanted <= b->resize.old)
        return;
    int64_t inside = 1;
    for (int i = d - repeats_around(copy->param) + 1; i < copy->rank; i++)
        inside *= copy->size[i];
    const int64_t block = b->resize.wanted * inside;
    float *numbers = malloc((size_t)copy->count * sizeof *numbers);
    if (!numbers)
        out_of_memory((size_t)copy->count * sizeof *numbers);
    convert_floats(copy->dtype, elements, "F32", numbers, copy->count);
    for (int64_t begin = 0; begin < copy->count; begin += block)
        fill_block(&b->resize, inside, numbers + begin);
    convert_floats("F32", numbers, copy->dtype, elements, copy->count);
    free(numbers);
}

void note_resize(const Binding *b)
{
    const Resize *resize = &b->resize;
    const char *names = "";
    const Param *last = NULL;
    if (!resize->dim)
        return;
    for (int i = 0; i < b->ncopies; last = b->copy[i++].param)
        if (resized_dim(b, b->copy[i].param) >= 0 && b->copy[i].param != last)
            names = arena_text(&b->run->arena, "%s%s'%s'", names, *names ? ", " : "", b->copy[i].param->path);
    if (resize->wanted > resize->old)
        fprintf(stderr,
                "note: %s is %" PRId64 " in the folder and %" PRId64 " here: %" PRId64
                " new rows of %s begin as the mean of the old ones\n",
                resize->dim, resize->old, resize->wanted, resize->wanted - resize->old, names);
    else if (resize->wanted < resize->old)
        fprintf(stderr,
                "note: %s is %" PRId64 " in the folder and %" PRId64 " here: the last %" PRId64
                " rows of %s are left out\n",
                resize->dim, resize->old, resize->wanted, resize->old - resize->wanted, names);
}
