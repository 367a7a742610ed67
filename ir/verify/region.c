/* region.c -- boxes of bytes: tensors with interleaved rows overlap as spans, but share no byte. */
#include "region.h"

Region plain_region(int64_t at, int64_t bytes) { return (Region){ .at = at, .width = bytes }; }

/* Inserts a dim after those with wider strides. */
static void add_stride(Region *region, int64_t count, int64_t stride)
{
    int i = region->rank++;
    for (; i > 0 && region->stride[i - 1] < stride; i--) {
        region->count[i] = region->count[i - 1];
        region->stride[i] = region->stride[i - 1];
    }
    region->count[i] = count;
    region->stride[i] = stride;
}

/* Rows without gaps are one row. */
static void join_rows(Region *region)
{
    while (region->rank && region->stride[region->rank - 1] <= region->width) {
        region->rank--;
        region->width += (region->count[region->rank] - 1) * region->stride[region->rank];
    }
}

/* Dims from `from` on. */
static Region region_from(const Module *m, const Value *value, int64_t at, int from, bool padded)
{
    const Type *type = &value->type;
    const int64_t *stride = value->storage->stride, bytes = dtype_bytes(type->dtype);
    Region region = plain_region(at, bytes);
    for (int i = from; i < type->rank; i++) {
        const Dim *dim = &type->dim[i];
        int64_t size = padded || runs_over_padding(dim) ? local_size(m, dim) : dim->size;
        if (size > 1)
            add_stride(&region, size, stride[i] * bytes);
    }
    return region;
}

Region region_of(const Module *m, const Value *value, int64_t at, bool padded)
{
    Region region = region_from(m, value, at, 0, padded);
    join_rows(&region);
    return region;
}

Region stretch_of(const Module *m, const Value *value, int64_t at, int64_t first, int64_t count)
{
    int64_t stride = value->storage->stride[0] * dtype_bytes(value->type.dtype);
    if (count == 0)
        return plain_region(at, 0);
    Region region = region_from(m, value, at + first * stride, 1, false);
    if (count > 1)
        add_stride(&region, count, stride);
    join_rows(&region);
    return region;
}

static int64_t span(const Region *region)
{
    int64_t bytes = region->width;
    for (int i = 0; i < region->rank; i++)
        bytes += (region->count[i] - 1) * region->stride[i];
    return bytes;
}

int64_t region_end(const Region *region) { return region->at + span(region); }

/* One element of its widest dim. */
static Region row_of(const Region *region, int64_t number)
{
    Region row = { .at = region->at + number * region->stride[0], .width = region->width, .rank = region->rank - 1 };
    for (int i = 0; i < row.rank; i++) {
        row.count[i] = region->count[i + 1];
        row.stride[i] = region->stride[i + 1];
    }
    return row;
}

static int64_t at_least(int64_t x, int64_t low) { return x < low ? low : x; }
bool lies_apart(const Module *m, const Value *value)
{
    Region region = plain_region(0, 1);
    for (int i = 0; i < value->type.rank; i++) {
        const Dim *dim = &value->type.dim[i];
        int64_t size = runs_over_padding(dim) ? local_size(m, dim) : dim->size; /* a view has no padding of its own */
        if (size > 1)
            add_stride(&region, size, value->storage->stride[i]);
    }
    for (; region.rank; region = row_of(&region, 0)) {
        const Region row = row_of(&region, 0);
        if (span(&row) > region.stride[0])
            return false;
    }
    return true;
}

static int64_t at_most(int64_t x, int64_t high) { return x > high ? high : x; }
static int64_t quotient_down(int64_t a, int64_t b) { return a / b - (a % b < 0); }

/* Compares the rows of a that overlap the span of b, one by one; if both have the same pitch, only the first: where
 * rows do not exceed their pitch, all pairs at the same distance are alike. */
static bool rows_meet(const Region *a, const Region *b)
{
    const Region first = row_of(a, 0);
    const int64_t pitch = a->stride[0], wide = span(&first);
    int64_t from = at_least(quotient_down(b->at - a->at - wide, pitch) + 1, 0);
    int64_t to = at_most(quotient_down(region_end(b) - 1 - a->at, pitch), a->count[0] - 1);
    bool alike = b->rank && b->stride[0] == pitch && wide <= pitch;
    for (int64_t i = from; i <= to; i++) {
        Region row = row_of(a, i);
        if (regions_meet(b, &row))
            return true;
        if (alike && i >= from + 2 && i < to - 2)
            i = to - 3;
    }
    return false;
}

bool regions_meet(const Region *a, const Region *b)
{
    if (a->width == 0 || b->width == 0 || a->at >= region_end(b) || b->at >= region_end(a))
        return false;
    if (a->rank && (!b->rank || a->stride[0] >= b->stride[0]))
        return rows_meet(a, b);
    return b->rank ? rows_meet(b, a) : true;
}
