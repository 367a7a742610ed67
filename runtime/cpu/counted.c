/* counted.c -- products by expert, without the rows that no token fills.
 *
 * dispatch fills the rows of an expert from the first on, and makes the others zeros; what is computed from rows of
 * zeros mostly is zeros again, and so are their gradients.  So of each matrix the last lines that are zeros are found
 * by looking, which costs little beside a product, and nothing needs to be proved or handed on: where a line is not
 * zeros, it is computed.  The rest is rounded up to a sixteenth of all, for each of which there is a product.
 */
#include "device.h"
#include "product.h"

#include <stdlib.h>
#include <string.h>

enum { PARTS = 16 };

struct RtCountedProduct {
    RtProductShape shape;
    RtOneProduct *part[PARTS]; /* of one matrix, with so many sixteenths of the counted size, and one more */
    int64_t *filled;           /* of each matrix: the number of lines */
};

/* Vectors of an operand along the counted size, with contiguous elements. */
typedef struct {
    const char *at;
    RtType type;
    int64_t batch, line, length; /* strides in elements; elements of a line */
} Lines;

static int64_t type_bytes(RtType type) { return type == RT_F32 ? 4 : 2; }

static int64_t *counted_size(RtProductShape *s)
{
    return s->counted == RT_COUNTED_M ? &s->m : s->counted == RT_COUNTED_N ? &s->n : &s->k;
}

static int64_t size_of_part(int64_t size, int part) { return (size * (part + 1) + PARTS - 1) / PARTS; }

RtCountedProduct *rt_counted_product(Rt *rt, RtProductShape shape)
{
    RtCountedProduct *p = rt_allocate(1, sizeof *p);
    p->shape = shape;
    p->filled = rt_allocate(shape.batch, sizeof *p->filled);
    for (int i = 0; i < PARTS; i++) {
        RtProductShape one = shape;
        *counted_size(&one) = size_of_part(*counted_size(&shape), i);
        one.counted = RT_NOT_COUNTED;
        one.batch = 1;
        one.a.batch = one.b.batch = one.c.batch = 0;
        p->part[i] = rt_one_product(rt, one);
    }
    return p;
}

void rt_counted_product_free(RtCountedProduct *p)
{
    for (int i = 0; i < PARTS; i++)
        rt_one_product_free(p->part[i]);
    free(p->filled);
    free(p);
}

/* --- Filled lines -------------------------------------------------------------------------- */

static Lines lines_of(const RtProductShape *s, const char *a, const char *b)
{
    if (s->counted == RT_COUNTED_M)
        return (Lines){ a, s->a.type, s->a.batch, s->a.row, s->k };
    if (s->counted == RT_COUNTED_N)
        return (Lines){ b, s->b.type, s->b.batch, s->b.column, s->k };
    if (s->a.row == 1)
        return (Lines){ a, s->a.type, s->a.batch, s->a.column, s->m };
    return (Lines){ b, s->b.type, s->b.batch, s->b.row, s->n };
}

/* Zeros of either sign; NaN is not zero. */
static bool is_zero(const Lines *lines, int64_t element)
{
    uint32_t any = 0;
    if (lines->type == RT_F32) {
        const uint32_t *bits = (const uint32_t *)(const void *)lines->at + element;
        for (int64_t i = 0; i < lines->length; i++)
            any |= bits[i] << 1;
    } else {
        const uint16_t *bits = (const uint16_t *)(const void *)lines->at + element;
        for (int64_t i = 0; i < lines->length; i++)
            any |= (uint32_t)bits[i] << 17;
    }
    return any == 0;
}

static void count_filled(const RtCountedProduct *p, const Lines *lines)
{
    RtProductShape s = p->shape;
    const int64_t size = *counted_size(&s);
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < s.batch; i++) {
        int64_t filled = size;
        while (filled > 0 && is_zero(lines, i * lines->batch + (filled - 1) * lines->line))
            filled--;
        p->filled[i] = filled;
    }
}

/* --- Running ------------------------------------------------------------------------------- */

/* Zeros a part of C, whose stride of rows or of columns is 1. */
static void zero(char *c, const RtProductShape *s, int64_t row, int64_t column)
{
    const bool by_columns = s->c.column != 1;
    const int64_t lines = by_columns ? s->n - column : s->m - row, length = by_columns ? s->m - row : s->n - column;
    const int64_t stride = by_columns ? s->c.column : s->c.row, bytes = type_bytes(s->c.type);
    c += (row * s->c.row + column * s->c.column) * bytes;
#pragma omp parallel for
    for (int64_t i = 0; i < lines; i++)
        memset(c + i * stride * bytes, 0, (size_t)(length * bytes));
}

static void run_matrix(Rt *rt, const RtCountedProduct *p, int64_t filled, const char *a, const char *b, char *c)
{
    RtProductShape s = p->shape;
    const int64_t size = *counted_size(&s);
    const int part = filled ? (int)((filled - 1) * PARTS / size) : -1; /* the first with so many lines */
    const int64_t done = size_of_part(size, part);
    if (filled)
        rt_one_product_run(rt, p->part[part], a, b, NULL, c);
    if (s.accumulate || (s.counted == RT_COUNTED_K && filled))
        return;
    zero(c, &s, s.counted == RT_COUNTED_M ? done : 0, s.counted == RT_COUNTED_N ? done : 0);
}

void rt_counted_product_run(Rt *rt, const RtCountedProduct *p, const void *a, const void *b, void *c)
{
    const RtProductShape *s = &p->shape;
    const Lines lines = lines_of(s, a, b);
    count_filled(p, &lines);
    for (int64_t i = 0; i < s->batch; i++)
        run_matrix(rt, p, p->filled[i], (const char *)a + i * s->a.batch * type_bytes(s->a.type),
                   (const char *)b + i * s->b.batch * type_bytes(s->b.type),
                   (char *)c + i * s->c.batch * type_bytes(s->c.type));
}
