/* shape.h -- the shape arguments of model-independent kernels, in C and in CUDA: sizes and strides, in elements. */
#ifndef MPC_KERNELS_SHAPE_H
#define MPC_KERNELS_SHAPE_H

#include "../types.h"

/* table [pre, shared, rows, post], picked [pre, shared, count, post], index [shared, count]; post is contiguous. */
typedef struct {
    int64_t pre, shared, row; /* strides; row: of rows or count */
} RtGatherStride;

typedef struct {
    int64_t pre, shared, rows, count, post;
    RtGatherStride table, picked, index, sum; /* sum: of rows that rt_scatter_add goes on with */
    RtType table_type, picked_type;
    RtPart part;  /* of the rows: a rank may hold a part of the table */
    int64_t size; /* of the dim, over all ranks: the bound of indices */
    const char *dim, *where;
} RtGather;

#define RT_NO_SUM ((const float *)0)

RT_INLINE int64_t rt_gather_at(int64_t p, int64_t h, int64_t n, const RtGatherStride s)
{
    return p * s.pre + h * s.shared + n * s.row;
}

/* Where this rank's part has an element of the whole dim; negative or too large if another rank holds it. */
RT_INLINE int64_t rt_own_element(const RtPart part, int64_t index)
{
    const int64_t own = rt_elements_before(part, index, INT64_MAX);
    return rt_position(part, own) == index ? own : -1;
}

/* The table's row of an index. */
RT_INLINE int64_t rt_gather_row_of(int64_t index, const RtGather s) { return rt_own_element(s.part, index); }

/* x is [outer, inner] rows of `count` elements, y rows of the `choices` largest ones. */
typedef struct {
    int64_t outer, inner, count, choices;
    struct {
        int64_t outer, inner, element; /* strides */
    } x, y;
    RtType type;
} RtTopK;

/* Is number a, at i, ahead of b, at j?  NaN first, then the larger one, then the first. */
RT_INLINE bool rt_is_ahead(float a, int64_t i, float b, int64_t j)
{
    const bool a_is_nan = a != a, b_is_nan = b != b;
    if (a_is_nan || b_is_nan)
        return a_is_nan && (!b_is_nan || i < j);
    return a > b || (a == b && i < j);
}

/* Queues of `count` experts' numbers each, contiguous; strides of queues. */
typedef struct {
    int64_t groups, count, experts;
    int64_t chosen, place;
    const char *dim, *where; /* of an index out of range */
} RtQueueShape;

/* Rows by token, [groups, outer, inner], and rows by slot, [groups, experts, slots]: each of `post` contiguous
 * elements.  The index of outer and inner dims of the first are `chosen` and `place`, which have `added` more of them
 * where rows are summed. */
typedef struct {
    int64_t group, outer, inner; /* strides; 0 of dims that it lacks */
} RtRouteStride;

typedef struct {
    int64_t groups, outer, inner, post;
    RtRouteStride token, chosen, place;
    int64_t experts, slots;
    struct {
        int64_t group, expert, slot;
    } table;
    RtPart expert, slot; /* of those of all ranks */
    RtType type;
    int64_t added;
    struct {
        int64_t chosen, place, weight;
    } step; /* between those that are added */
    RtRouteStride weight;
} RtRoute;

/* No weights of rows: a constant, like RT_NO_SEGMENT. */
#define RT_NO_WEIGHT ((const float *)0)

/* Where the row of a group begins by slot; -1: another rank has it, or it is dropped. */
RT_INLINE int64_t rt_route_row(int64_t chosen, int64_t place, const RtRoute s)
{
    const int64_t expert = rt_own_element(s.expert, chosen), slot = rt_own_element(s.slot, place);
    if (chosen < 0 || place < 0 || expert < 0 || expert >= s.experts || slot < 0 || slot >= s.slots)
        return -1;
    return expert * s.table.expert + slot * s.table.slot;
}

/* x and y are [outer, seq, middle, feature]; strides count elements, feature's is 1. */
typedef struct {
    int64_t outer, seq, middle, feature;
    struct {
        int64_t outer, seq, middle;
    } x, position, y; /* position has no feature */
    RtType type;
    bool interleaved, inverse; /* pairs (2i, 2i + 1), not (i, i + feature / 2); by the negative angle */
    double base, stretch;      /* positions are divided by this */
    RtPart part;               /* of seq */
} RtRope;

/* The positions of rotations by place: a constant, like RT_NO_SEGMENT. */
#define RT_NO_POSITION ((const int32_t *)0)

/* Rows with the same angles: the same place, or with positions of their own. */
RT_INLINE int64_t rt_rope_rows(const RtRope s)
{
    return (s.position.outer ? s.outer : 1) * s.seq * (s.position.middle ? s.middle : 1);
}

RT_INLINE int64_t rt_rope_row_of(int64_t o, int64_t t, int64_t m, const RtRope s)
{
    const int64_t row = (s.position.outer ? o * s.seq : 0) + t;
    return s.position.middle ? row * s.middle + m : row;
}

/* x and y are [outer, middle, count]: sums, or maxima, along count. */
typedef struct {
    int64_t outer, middle, count;
    struct {
        int64_t outer, middle, row;
    } x, y;
    RtType type; /* of x: i32 gives i32, others f32 */
    bool is_max, exclusive, reverse;
} RtCumulative;

/* Attention; letters as in attend.h. */
typedef struct {
    int64_t batch, row, head, group; /* strides; row: of a query or a key; k and v have no group */
} RtAttendStride;

typedef struct {
    int64_t batch, row, head, group, key; /* the same of a bias: of queries and of keys; 0 of dims that it lacks */
} RtAttendPlane;

typedef struct {
    int64_t batch, queries, keys, heads, group, feature;
    RtAttendStride q, k, v, y, share, lse, dy, dq, dk, dv; /* the last four: of the gradients */
    RtAttendPlane bias, dbias;
    RtAttendStride sinks;
    RtAttendStride query_segment, key_segment;
    RtType type;                 /* of all but lse */
    bool causal;                 /* query i sees keys up to i */
    int64_t window;              /* w: keys from i - w + 1 on, and to i + w - 1; 0: all */
    RtPart query_part, key_part; /* of the whole sequence */
    float scale, softcap;        /* c, of c tanh(score / c); 0: none */
    bool has_bias;
} RtAttend;

/* The segments of queries or keys, of attention without them: a constant, so that no code is left for them. */
#define RT_NO_SEGMENT ((const int32_t *)0)

/* The bias or the sinks of attention without them. */
#define RT_NO_LOGITS ((const float *)0)

/* Those of one head. */
RT_INLINE const float *rt_bias_of(const float *bias, int64_t b, int64_t h, int64_t g, const RtAttend s)
{
    return s.has_bias ? bias + b * s.bias.batch + h * s.bias.head + g * s.bias.group : bias;
}

RT_INLINE float rt_sink_of(const float *sinks, int64_t b, int64_t h, int64_t g, const RtAttend s)
{
    return sinks[b * s.sinks.batch + h * s.sinks.head + g * s.sinks.group];
}

/* The global position of a query. */
RT_INLINE int64_t rt_attend_position(int64_t query, const RtAttend s) { return rt_position(s.query_part, query); }

RT_INLINE int64_t rt_attend_key_position(int64_t key, const RtAttend s) { return rt_position(s.key_part, key); }

/* Are scores more than scaled products? */
RT_INLINE bool rt_attend_shapes(const RtAttend s) { return s.softcap != 0 || s.has_bias; }

RT_INLINE bool rt_attend_sees(int64_t query, int64_t key, const RtAttend s)
{
    const int64_t ahead = rt_attend_key_position(key, s) - rt_attend_position(query, s);
    if (s.causal && ahead > 0)
        return false;
    return s.window == 0 || (ahead < s.window && -ahead < s.window);
}

#endif
