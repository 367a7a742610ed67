/* attention_graph.c -- attention and its gradient as graphs of cuDNN's operations, in the order that it knows as
 * attention (FlashAttention-2, https://arxiv.org/abs/2307.08691, section 3):
 *
 *   score = scale q k', -inf where a query does not see a key
 *   highest = max score    weight = exp(score - highest)    total = sum weight
 *   sum = highest + log total                               y = (weight / total) v
 *
 *   share = sum dy y       weight = exp(score - sum)
 *   dv = weight' dy        dscore = scale (dy v' - share) weight    dk = dscore' q    dq = dscore k
 */
#include "attention.h"

enum { QUERY_AXIS = 2, KEY_AXIS };

typedef struct {
    RtCudnnGraph *g;
    const RtAttentionShape *s;
    int type; /* of the operands */
    RtCudnnTensor q, turned_k, scale, one, lowest, window;
    int64_t scores[RT_CUDNN_DIMS], rows[RT_CUDNN_DIMS]; /* dims: of all scores, of one number for each query */
} Attention;

/* --- Operands ------------------------------------------------------------------------------- */

/* [batch, heads, rows, features], or with the last two exchanged.  A single head is as far from the next as it is long.
 */
static RtCudnnTensor operand(const Attention *a, int number, const RtHeads *at, bool of_keys, bool turned)
{
    const RtAttentionShape *s = a->s;
    const int64_t heads = of_keys ? s->key_heads : s->heads, rows = of_keys ? s->keys : s->queries;
    const int64_t dim[] = { s->batch, heads, turned ? s->feature : rows, turned ? rows : s->feature };
    const int64_t stride[] = { at->batch, heads > 1 ? at->head : s->feature, turned ? 1 : at->row,
                               turned ? at->row : 1 };
    return rt_cudnn_operand(a->g, number, a->type, dim, stride);
}

/* A number for each query, in memory. */
static RtCudnnTensor rows_in_memory(const Attention *a, int number)
{
    const int64_t stride[] = { a->s->heads * a->s->queries, a->s->queries, 1, 1 };
    return rt_cudnn_operand(a->g, number, RT_CUDNN_DATA_FLOAT, a->rows, stride);
}

static Attention begin(RtCudnnGraph *g, const RtAttentionShape *s)
{
    Attention a = { .g = g,
                    .s = s,
                    .type = s->type == RT_F16 ? RT_CUDNN_DATA_HALF : RT_CUDNN_DATA_BFLOAT16,
                    .scores = { s->batch, s->heads, s->queries, s->keys },
                    .rows = { s->batch, s->heads, s->queries, 1 } };
    a.q = operand(&a, RT_ATTEND_Q, &s->q, false, false);
    a.turned_k = operand(&a, RT_ATTEND_K, &s->k, true, true);
    a.scale = rt_cudnn_number(g, RT_ATTEND_SCALE);
    if (s->causal)
        a.lowest = rt_cudnn_number(g, RT_ATTEND_LOWEST);
    if (s->window)
        a.window = rt_cudnn_number(g, RT_ATTEND_WINDOW);
    if (s->is_gradient)
        a.one = rt_cudnn_number(g, RT_ATTEND_ONE);
    return a;
}

/* --- Scores --------------------------------------------------------------------------------- */

static RtCudnnTensor point(const Attention *a, int mode, RtCudnnTensor x, const RtCudnnTensor *b)
{
    return rt_cudnn_point(a->g, mode, RT_CUDNN_DATA_FLOAT, x, b);
}

static RtCudnnTensor scaled_scores(const Attention *a)
{
    const RtCudnnTensor product = rt_cudnn_value(a->g, RT_CUDNN_DATA_FLOAT, a->scores);
    rt_cudnn_matmul(a->g, a->q, a->turned_k, product);
    return point(a, RT_CUDNN_POINTWISE_MUL, product, &a->scale);
}

static RtCudnnTensor masked(const Attention *a, RtCudnnTensor score)
{
    RtCudnnGraph *g = a->g;
    if (a->s->causal) {
        const RtCudnnTensor query = rt_cudnn_index(g, QUERY_AXIS, score), key = rt_cudnn_index(g, KEY_AXIS, score);
        const RtCudnnTensor sees = rt_cudnn_point(g, RT_CUDNN_POINTWISE_CMP_GE, RT_CUDNN_DATA_BOOLEAN, query, &key);
        score = rt_cudnn_select(g, sees, score, a->lowest);
    }
    if (a->s->window) {
        const RtCudnnTensor query = rt_cudnn_index(g, QUERY_AXIS, score), key = rt_cudnn_index(g, KEY_AXIS, score);
        const RtCudnnTensor end = point(a, RT_CUDNN_POINTWISE_ADD, key, &a->window);
        const RtCudnnTensor sees = rt_cudnn_point(g, RT_CUDNN_POINTWISE_CMP_GT, RT_CUDNN_DATA_BOOLEAN, end, &query);
        score = rt_cudnn_select(g, sees, score, a->lowest);
    }
    return score;
}

/* --- Attention ------------------------------------------------------------------------------ */

static void describe_attention(const Attention *a)
{
    RtCudnnGraph *g = a->g;
    const RtCudnnTensor score = masked(a, scaled_scores(a));
    const RtCudnnTensor highest = rt_cudnn_value(g, RT_CUDNN_DATA_FLOAT, a->rows);
    rt_cudnn_reduce(g, RT_CUDNN_REDUCE_TENSOR_MAX, score, highest);
    const RtCudnnTensor below = point(a, RT_CUDNN_POINTWISE_SUB, score, &highest);
    const RtCudnnTensor weight = point(a, RT_CUDNN_POINTWISE_EXP, below, NULL);
    const RtCudnnTensor total = rt_cudnn_value(g, RT_CUDNN_DATA_FLOAT, a->rows);
    rt_cudnn_reduce(g, RT_CUDNN_REDUCE_TENSOR_ADD, weight, total);
    const RtCudnnTensor logarithm = point(a, RT_CUDNN_POINTWISE_LOG, total, NULL);
    rt_cudnn_point_to(g, RT_CUDNN_POINTWISE_ADD, highest, &logarithm, rows_in_memory(a, RT_ATTEND_SUM));
    const RtCudnnTensor share = rt_cudnn_point(g, RT_CUDNN_POINTWISE_DIV, a->type, weight, &total);
    const RtCudnnTensor v = operand(a, RT_ATTEND_V, &a->s->v, true, false);
    rt_cudnn_matmul(g, share, v, operand(a, RT_ATTEND_Y, &a->s->y, false, false));
}

/* --- Its gradient --------------------------------------------------------------------------- */

/* Writes a' b, [keys, features]: of key heads that several heads of queries share, the sum. */
static void write_for_keys(const Attention *a, RtCudnnTensor left, RtCudnnTensor right, int number, const RtHeads *at)
{
    const RtAttentionShape *s = a->s;
    const RtCudnnTensor turned = rt_cudnn_transpose(a->g, left, a->type), y = operand(a, number, at, true, false);
    if (s->heads == s->key_heads) {
        rt_cudnn_matmul(a->g, turned, right, y);
        return;
    }
    const int64_t dim[] = { s->batch, s->heads, s->keys, s->feature };
    const RtCudnnTensor of_all = rt_cudnn_value(a->g, a->type, dim);
    rt_cudnn_matmul(a->g, turned, right, of_all);
    rt_cudnn_reduce(a->g, RT_CUDNN_REDUCE_TENSOR_ADD, of_all, y);
}

/* dy . y of each query. */
static RtCudnnTensor share_of_rows(const Attention *a, RtCudnnTensor dy)
{
    const RtCudnnTensor y = operand(a, RT_ATTEND_Y, &a->s->y, false, false);
    const RtCudnnTensor both = point(a, RT_CUDNN_POINTWISE_MUL, dy, &y);
    const RtCudnnTensor sum = rt_cudnn_value(a->g, RT_CUDNN_DATA_FLOAT, a->rows);
    const RtCudnnTensor share = rows_in_memory(a, RT_ATTEND_SHARE);
    rt_cudnn_reduce(a->g, RT_CUDNN_REDUCE_TENSOR_ADD, both, sum);
    rt_cudnn_point_to(a->g, RT_CUDNN_POINTWISE_MUL, sum, &a->one, share);
    return share;
}

static void describe_gradient(const Attention *a)
{
    RtCudnnGraph *g = a->g;
    const RtAttentionShape *s = a->s;
    const RtCudnnTensor dy = operand(a, RT_ATTEND_DY, &s->dy, false, false), share = share_of_rows(a, dy);
    const RtCudnnTensor sum = rows_in_memory(a, RT_ATTEND_SUM);
    const RtCudnnTensor below = point(a, RT_CUDNN_POINTWISE_SUB, scaled_scores(a), &sum);
    const RtCudnnTensor weight = point(a, RT_CUDNN_POINTWISE_EXP, masked(a, below), NULL);
    write_for_keys(a, weight, dy, RT_ATTEND_DV, &s->dv);
    const RtCudnnTensor dweight = rt_cudnn_value(g, RT_CUDNN_DATA_FLOAT, a->scores);
    rt_cudnn_matmul(g, dy, operand(a, RT_ATTEND_V, &s->v, true, true), dweight);
    const RtCudnnTensor above = point(a, RT_CUDNN_POINTWISE_SUB, dweight, &share);
    const RtCudnnTensor product = point(a, RT_CUDNN_POINTWISE_MUL, above, &weight);
    const RtCudnnTensor dscore = point(a, RT_CUDNN_POINTWISE_MUL, product, &a->scale);
    write_for_keys(a, dscore, a->q, RT_ATTEND_DK, &s->dk);
    const RtCudnnTensor k = rt_cudnn_transpose(g, a->turned_k, RT_CUDNN_DATA_FLOAT);
    rt_cudnn_matmul(g, dscore, k, operand(a, RT_ATTEND_DQ, &s->dq, false, false));
}

void rt_attention_describe(RtCudnnGraph *g, const RtAttentionShape *s)
{
    const Attention a = begin(g, s);
    if (s->is_gradient)
        describe_gradient(&a);
    else
        describe_attention(&a);
}
