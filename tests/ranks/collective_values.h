/* collective_values.h -- the meaning of collectives: the element of any tensor of any rank, and its place there, from
 * the description in rt.h, independent of the runtime's exchange.c. */
#ifndef MPC_COLLECTIVE_VALUES_H
#define MPC_COLLECTIVE_VALUES_H

#include "convert.h"
#include "rt.h"

#include <string.h>

enum { MAX_PIECES = 3 };

typedef struct {
    RtPiece piece[MAX_PIECES];
    int n;                                           /* ranks in the group */
    int own;                                         /* which one this is */
    unsigned char *in[MAX_PIECES], *out[MAX_PIECES]; /* between canaries; the same where in_place */
    int64_t sent;                                    /* expected bytes sent */
    bool in_place;
} Case;

/* --- Contents of tensors ---------------------------------------------------------------------------- */

static int64_t bytes_of(RtType type) { return type == RT_BOOL ? 1 : type == RT_F32 || type == RT_I32 ? 4 : 2; }

static uint32_t hash(int64_t a, int64_t b, int64_t c)
{
    uint64_t x =
        (uint64_t)a * 0x9E3779B97F4A7C15u + (uint64_t)b * 0xC2B2AE3D27D4EB4Fu + (uint64_t)c * 0x165667B19E3779F9u;
    x ^= x >> 31;
    x *= 0xD6E8FEB86659FD93u;
    return (uint32_t)(x >> 32);
}

/* Element `at` of the tensor that rank `source` has (source -1: the one tensor that is gathered), in f32 or i32. */
static float float_at(int number, int source, int64_t at, bool maximum)
{
    uint32_t bits = hash(number, source, at);
    if (maximum && bits % 61 == 0)
        return rt_float_of_bits(0x7FC00000);                /* a NaN, which must be preserved */
    float scale = rt_float_of_bits((118 + bits % 8) << 23); /* 2^-9 to 2^-2: sums depend on their order */
    return scale * ((float)(bits >> 8) / (1 << 24) - 0.5f);
}

static int32_t integer_at(int number, int source, int64_t at) { return (int32_t)hash(number, source, at) >> 8; }

static uint32_t bits_of(RtType type, float value)
{
    return type == RT_F32    ? rt_bits_of_float(value)
           : type == RT_BF16 ? rt_bf16_of_float(value)
                             : rt_f16_of_float(value);
}

static float rounded(RtType type, float value)
{
    uint32_t bits = bits_of(type, value);
    return type == RT_F32    ? value
           : type == RT_BF16 ? rt_float_of_bf16((uint16_t)bits)
                             : rt_float_of_f16((uint16_t)bits);
}

/* Rows of zeros, of each rank its own. */
static bool is_gap(const RtCollective *c, int number, int source, int64_t at)
{
    return c->gaps && hash(number, source, at / 5 + 99991) % 4;
}

static uint32_t bits_at(const RtCollective *c, int number, int source, int64_t at)
{
    if (is_gap(c, number, source, at))
        return 0;
    if (c->type == RT_I32 || c->type == RT_BOOL)
        return c->type == RT_BOOL ? hash(number, source, at) & 1 : (uint32_t)integer_at(number, source, at);
    return bits_of(c->type, float_at(number, source, at, c->maximum));
}

/* Over the ranks of a group, in their order. */
static uint32_t reduced(const RtCollective *c, const Case *k, int number, int64_t at, bool backwards)
{
    int64_t whole = 0;
    uint32_t any = 0;
    float sum = 0;
    for (int i = 0; i < k->n; i++) {
        int q = backwards ? k->n - 1 - i : i;
        if (c->type == RT_BOOL) {
            any |= bits_at(c, number, q, at);
            continue;
        }
        const bool gap = is_gap(c, number, q, at);
        int32_t integer = gap ? 0 : integer_at(number, q, at);
        float value = c->type == RT_I32 || gap ? 0 : rounded(c->type, float_at(number, q, at, c->maximum));
        if (c->maximum) {
            whole = i == 0 || integer > whole ? integer : whole;
            sum = i == 0 || value > sum || value != value ? value : sum;
        } else {
            whole += integer;
            sum = i == 0 ? value : sum + value;
        }
    }
    if (c->type == RT_BOOL)
        return any;
    return c->type == RT_I32 ? (uint32_t)(int32_t)whole : bits_of(c->type, sum);
}

/* --- Where elements are ----------------------------------------------------------------------------- */

/* The number in the whole dim of element i of the `length` that rank q of n holds. */
static int64_t place_of(int zigzag, int n, int q, int64_t length, int64_t i)
{
    if (!zigzag)
        return q * length + i;
    const int64_t piece = length / zigzag;
    int64_t row = i / piece, column = row % 2 ? n - 1 - q : q; /* forth and back */
    return (row * n + column) * piece + i % piece;
}

/* A tensor [outer, a, middle, b, inner] of which one rank holds all, or its part of a or of b. */
typedef struct {
    int64_t size[5];
    bool split_a, split_b;
    int zigzag;
} Shape;

static int64_t count_of(const Shape *s) { return s->size[0] * s->size[1] * s->size[2] * s->size[3] * s->size[4]; }

/* The number in the whole tensor of element i of the part of rank q. */
static int64_t whole_index(const Shape *s, int n, int q, int64_t i)
{
    int64_t x[5], size[5];
    for (int d = 4; d >= 0; d--) {
        x[d] = i % s->size[d];
        i /= s->size[d];
        size[d] = s->size[d];
    }
    int split = s->split_a ? 1 : s->split_b ? 3 : -1;
    if (split >= 0) {
        x[split] = place_of(s->zigzag, n, q, s->size[split], x[split]);
        size[split] *= n;
    }
    return (((x[0] * size[1] + x[1]) * size[2] + x[2]) * size[3] + x[3]) * size[4] + x[4];
}

static Shape shape_of(const RtCollective *c, const RtPiece *p, int n, bool after)
{
    Shape s = { .size = { p->outer, p->block, 1, 1, 1 } };
    if (c->kind == RT_ALL_GATHER || c->kind == RT_REDUCE_SCATTER) {
        s.split_a = after == (c->kind == RT_REDUCE_SCATTER);
        s.zigzag = p->zigzag ? 2 : 0;
        s.size[1] *= s.split_a ? 1 : n;
    }
    s.split_a |= c->kind == RT_ROTATE;
    if (c->kind != RT_ALL_TO_ALL)
        return s;
    int64_t gathered = after ? n * p->block : p->block, split = after ? p->cut : n * p->cut;
    s.split_a = p->gathers_first != after;
    s.split_b = !s.split_a;
    s.zigzag = (after ? p->zigzag_cut : p->zigzag) ? 2 : 0;
    s.size[1] = p->gathers_first ? gathered : split;
    s.size[2] = p->middle;
    s.size[3] = p->gathers_first ? split : gathered;
    s.size[4] = p->inner;
    return s;
}

static bool reduces(const RtCollective *c) { return c->kind == RT_ALL_REDUCE || c->kind == RT_REDUCE_SCATTER; }

#endif
