/* interp_blocks.c -- the reference interpreter's rule for operands that are rounded in blocks: it rounds the named
 * source, and compares. */
#include "blocks.h"
#include "interp_shards.h"

/* The blocks of a shard: of squares and runs along some dims, of single elements along others. */
typedef struct {
    int rank;
    int64_t size[MAX_RANK], stride[MAX_RANK]; /* elements of a block along each dim, and from one block to the next */
    int64_t count;
} Blocks;

static Blocks blocks_of(const Op *dot, const Type *type, const Shard *shard)
{
    Blocks b = { .rank = type->rank, .count = 1 };
    for (int i = type->rank - 1; i >= 0; i--) {
        const Name name = type->dim[i].name;
        b.size[i] = name == dot->attrs.dim || name == dot->attrs.across ? E4M3_BLOCK : 1;
        b.stride[i] = b.count;
        b.count *= (shard->size[i] + b.size[i] - 1) / b.size[i];
    }
    return b;
}

/* The block of element `at` of a shard, which is row-major. */
static int64_t block_at(const Blocks *b, const Shard *shard, int64_t at)
{
    int64_t block = 0;
    for (int i = b->rank - 1; i >= 0; i--) {
        block += at % shard->size[i] / b->size[i] * b->stride[i];
        at /= shard->size[i];
    }
    return block;
}

static double rounded(const Numbers *n, double x, double scale)
{
    return n->map(OP_div, n->map(OP_round_e4m3, n->map(OP_mul, x, scale), 0), scale);
}

bool is_rounded_in_blocks(const Interp *in, const Op *dot, const Type *type, const Shard *x, const Shard *from)
{
    const Numbers *n = in->numbers;
    const Blocks b = blocks_of(dot, type, from);
    Arena arena = { 0 };
    double *scale = NEW_ARRAY(&arena, double, b.count + 1);
    for (int64_t i = 0; i < b.count; i++)
        scale[i] = number_start(OP_max, F32);
    for (int64_t i = 0; i < from->count; i++) {
        double *largest = &scale[block_at(&b, from, i)];
        *largest = number_reduce(n, OP_max, F32, *largest, n->map(OP_abs, from->data[i], 0));
    }
    for (int64_t i = 0; i < b.count; i++)
        scale[i] = n->map(OP_scale_e4m3, scale[i], 0);
    bool good = true;
    for (int64_t i = 0; i < from->count && good; i++) {
        const double expected = rounded(n, from->data[i], scale[block_at(&b, from, i)]);
        good = x->data[i] == expected || (isnan(x->data[i]) && isnan(expected));
    }
    arena_free(&arena);
    return good;
}
