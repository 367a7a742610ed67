/* interp_attend.c -- the reference interpreter's attention, forward and backward, from the definition.
 *
 *   s_ij = cap(scale q_i . k_j) + b_ij where query i sees key j; cap(x) = c tanh(x / c), or x;
 *   p_ij = exp(s_ij) / (exp(sink) + sum_j exp(s_ij));  y_i = sum_j p_ij v_j;
 *   lse_i = log (exp(sink) + sum_j exp(s_ij))
 *
 * and from dy:  dv_j = sum_i p_ij dy_i;  ds_ij = p_ij (dy_i . v_j - dy_i . y_i);  db_ij = ds_ij;
 *   dq_i = sum_j cap'(..) scale ds_ij k_j;  dk_j = sum_i cap'(..) scale ds_ij q_i
 *
 * for each point of the dims that q has besides sequence and feature; k and v lack some of them.  With segments, query
 * i sees key j only if theirs are equal.
 */
#include "interp_shards.h"
#include "operands.h"

enum { /* D: gradients; in forward mode, tangents */
       Q = OPERAND_q,
       K = OPERAND_k,
       V = OPERAND_v,
       Y = OPERAND_y,
       LSE = OPERAND_lse,
       BIAS = OPERAND_bias,
       SINKS = OPERAND_sinks,
       SHARE = OPERAND_share,
       DY = OPERAND_dy,
       DQ = OPERAND_dq,
       DK = OPERAND_dk,
       DV = OPERAND_dv,
       DBIAS = OPERAND_dbias,
       OF_QUERY = OPERAND_query_segment,
       OF_KEY = OPERAND_key_segment,
       DLSE = N_OPERANDS,
       DSINKS,
       TENSORS
};

/* One rank's tensors, and the matrices at the present point. */
typedef struct {
    const Numbers *n;
    const Attrs *attrs;
    double scale, softcap;
    const Shard *shard[TENSORS];
    double *at[TENSORS];                   /* element (0, 0) of the matrix */
    int64_t row[TENSORS], column[TENSORS]; /* strides of sequence and feature; of a bias, of both sequences */
    int64_t queries, keys, features;
    const Tangents *tangents;               /* in forward mode */
    const int64_t *position, *key_position; /* in the whole sequence */
} Attention;

/* Does query i of this rank see the key? */
static bool is_visible(const Attention *x, int64_t i, int64_t key)
{
    const Attrs *attrs = x->attrs;
    int64_t back = x->position[i] - x->key_position[key];
    if (x->at[OF_KEY] && x->at[OF_QUERY][i * x->row[OF_QUERY]] != x->at[OF_KEY][key * x->row[OF_KEY]])
        return false;
    if (attrs->causal)
        return back >= 0 && (!attrs->window || back < attrs->window);
    return !attrs->window || (back < attrs->window && -back < attrs->window);
}

static double product(const Attention *x, int a, int64_t i, int b, int64_t j)
{
    double sum = 0;
    for (int64_t f = 0; f < x->features; f++)
        sum = x->n->multiply_add(sum, x->at[a][i * x->row[a] + f * x->column[a]],
                                 x->at[b][j * x->row[b] + f * x->column[b]]);
    return sum;
}

/* Row i of a += by times row j of b. */
static void accumulate(const Attention *x, int a, int64_t i, double by, int b, int64_t j)
{
    for (int64_t f = 0; f < x->features; f++) {
        double *sum = &x->at[a][i * x->row[a] + f * x->column[a]];
        *sum = x->n->multiply_add(*sum, by, x->at[b][j * x->row[b] + f * x->column[b]]);
    }
}

/* Element i, j of a bias, in which dims may be missing. */
static double *bias_at(const Attention *x, int tensor, int64_t i, int64_t j)
{
    return &x->at[tensor][i * x->row[tensor] + j * x->column[tensor]];
}

/* The score of query i and key j, which it sees, without a bias. */
static double capped_score(const Attention *x, int64_t i, int64_t j)
{
    const Numbers *n = x->n;
    const double scaled = n->map(OP_mul, x->scale, product(x, Q, i, K, j));
    if (!x->attrs->softcap)
        return scaled;
    return n->map(OP_mul, x->softcap, n->map(OP_tanh, n->map(OP_div, scaled, x->softcap), 0));
}

static double score_of(const Attention *x, int64_t i, int64_t j)
{
    const double score = capped_score(x, i, j);
    return x->at[BIAS] ? x->n->add(score, *bias_at(x, BIAS, i, j)) : score;
}

/* The derivative of the score by the product of query and key. */
static double slope_of(const Attention *x, int64_t i, int64_t j)
{
    const Numbers *n = x->n;
    if (!x->attrs->softcap)
        return x->scale;
    const double ratio = n->map(OP_div, capped_score(x, i, j), x->softcap);
    return n->map(OP_mul, x->scale, n->map(OP_sub, n->of(1), n->map(OP_mul, ratio, ratio)));
}

static double weight(const Attention *x, double score, double from)
{
    return x->n->map(OP_exp, x->n->map(OP_sub, score, from), 0);
}

static void attend_row(const Attention *x, int64_t i, double *score)
{
    const Numbers *n = x->n;
    double highest = x->at[SINKS] ? *x->at[SINKS] : -INFINITY, sum = 0;
    for (int64_t j = 0; j < x->keys; j++) {
        bool visible = is_visible(x, i, j);
        score[j] = visible ? score_of(x, i, j) : -INFINITY;
        highest = number_reduce(n, OP_max, F32, highest, score[j]);
    }
    highest = n->keeps_sums ? 0 : highest;
    sum = x->at[SINKS] ? weight(x, *x->at[SINKS], highest) : 0;
    for (int64_t j = 0; j < x->keys; j++)
        sum = n->add(sum, score[j] == -INFINITY ? 0 : weight(x, score[j], highest));
    x->at[LSE][i * x->row[LSE]] = n->keeps_sums ? sum : n->add(highest, n->map(OP_log, sum, 0));
    for (int64_t j = 0; j < x->keys; j++)
        if (score[j] != -INFINITY)
            accumulate(x, Y, i, n->map(OP_div, weight(x, score[j], highest), sum), V, j);
}

/* The share of a score in the row with this log-sum-exp; 0 in rows of padding, whose sum is 0. */
static double weight_in_row(const Attention *x, double score, double lse)
{
    const Numbers *n = x->n;
    if (!n->keeps_sums)
        return weight(x, score, lse);
    return lse == 0 ? 0 : n->map(OP_div, weight(x, score, 0), lse);
}

/* The gradient of a score; `p`: its weight, 0 for one of minus infinity, which a bias may give. */
static double score_gradient(const Attention *x, int64_t i, int64_t j, double dy_y, double *p)
{
    const Numbers *n = x->n;
    const double score = score_of(x, i, j);
    *p = score == -INFINITY ? 0 : weight_in_row(x, score, x->at[LSE][i * x->row[LSE]]);
    return n->map(OP_mul, *p, n->map(OP_sub, product(x, DY, i, V, j), dy_y));
}

static void attend_grad_row(const Attention *x, int64_t i, double *unused)
{
    double dy_y = product(x, DY, i, Y, i), p;
    for (int64_t j = 0; j < x->keys; j++) {
        if (!is_visible(x, i, j))
            continue;
        const double ds = score_gradient(x, i, j, dy_y, &p), slope = x->n->map(OP_mul, ds, slope_of(x, i, j));
        accumulate(x, DV, j, p, DY, i);
        accumulate(x, DQ, i, slope, K, j);
        accumulate(x, DK, j, slope, Q, i);
    }
}

static void attend_bias_row(const Attention *x, int64_t i, double *unused)
{
    double p;
    for (int64_t j = 0; j < x->keys; j++)
        if (is_visible(x, i, j)) {
            double *sum = bias_at(x, DBIAS, i, j);
            *sum = x->n->add(*sum, score_gradient(x, i, j, x->at[SHARE][i * x->row[SHARE]], &p));
        }
}

/* Forward mode:  ds_ij = cap'(..) scale (dq_i . k_j + q_i . dk_j) + db_ij;
 * dlse_i = exp(sink - lse_i) dsink + sum_j p_ij ds_ij;  dy_i = sum_j p_ij ((ds_ij - dlse_i) v_j + dv_j). */
static void attend_tangent_row(const Attention *x, int64_t i, double *ds)
{
    double lse = x->at[LSE][i * x->row[LSE]], *dlse = &x->at[DLSE][i * x->row[DLSE]];
    if (x->at[SINKS])
        *dlse = exp(*x->at[SINKS] - lse) * *x->at[DSINKS];
    for (int64_t j = 0; j < x->keys; j++) {
        const double score = is_visible(x, i, j) ? score_of(x, i, j) : -INFINITY;
        if (score == -INFINITY)
            continue;
        ds[j] = slope_of(x, i, j) * (product(x, DQ, i, K, j) + product(x, Q, i, DK, j));
        ds[j] += x->at[BIAS] ? *bias_at(x, DBIAS, i, j) : 0;
        *dlse += exp(score - lse) * ds[j];
    }
    *dlse *=
        perturbation(&x->tangents->shaking, 0, (uint64_t)(dlse - x->shard[DLSE]->data)); /* subtracted from ds below */
    for (int64_t j = 0; j < x->keys; j++) {
        const double score = is_visible(x, i, j) ? score_of(x, i, j) : -INFINITY;
        if (score == -INFINITY)
            continue;
        double p = exp(score - lse);
        accumulate(x, DY, i, p * (ds[j] - *dlse), V, j);
        accumulate(x, DY, i, p, DV, j);
    }
}

/* Calls the function for every row, with the existing tensors (the type of others is NULL). */
static void run_rank(Interp *in, const Op *op, const Sharded held[], int rank,
                     void (*run_row)(const Attention *, int64_t i, double *score))
{
    const Attrs *attrs = &op->attrs;
    Attention x = { .n = in->numbers,
                    .attrs = attrs,
                    .scale = in->numbers->of(attrs->scale),
                    .softcap = in->numbers->of(attrs->softcap),
                    .tangents = in->options->tangents };
    Walk w = { 0 };
    int walker[TENSORS];
    walk_rest(&w, &held[Q], rank, attrs->seq, attrs->feature);
    for (int t = 0; t < TENSORS; t++) {
        if (!held[t].type)
            continue;
        const Shard *shard = x.shard[t] = &held[t].shard[rank];
        const bool by_both = t == BIAS || t == DBIAS;
        int seq = find_dim(held[t].type, attrs->seq);
        int column = find_dim(held[t].type, by_both ? attrs->key : attrs->feature);
        seq = seq < 0 && !by_both ? find_dim(held[t].type, attrs->key) : seq;
        x.row[t] = seq < 0 ? 0 : shard->stride[seq];
        x.column[t] = column < 0 ? 0 : shard->stride[column];
        walker[t] = walk_tensor(&w, &held[t], rank);
    }
    int seq = find_dim(held[Q].type, attrs->seq), feature = find_dim(held[Q].type, attrs->feature);
    x.queries = x.shard[Q]->size[seq];
    x.features = x.shard[Q]->size[feature];
    int key = find_dim(held[K].type, attrs->key);
    x.keys = x.shard[K]->size[key];
    x.position = positions_of(in, &held[Q].type->dim[seq], rank);
    x.key_position = positions_of(in, &held[K].type->dim[key], rank);
    double *score = NEW_ARRAY(&in->arena, double, x.keys + 1);
    for (bool more = walk_begin(&w); more; more = walk_next(&w)) {
        for (int t = 0; t < TENSORS; t++)
            x.at[t] = held[t].type ? x.shard[t]->data + w.offset[walker[t]] : NULL;
        for (int64_t i = 0; i < x.queries; i++)
            run_row(&x, i, score);
    }
}

/* Are keys (but for blocks of them) and features whole, and the other dims of k and v split as in q? */
static bool is_attention(Interp *in, const Op *op, const Sharded *q, const Sharded *k)
{
    for (int i = 0; i < k->type->rank; i++) {
        const Dim *dim = &k->type->dim[i];
        bool own = dim->name == op->attrs.key || dim->name == op->attrs.feature;
        int at = find_dim(q->type, dim->name);
        if (own && dim->split.count && !(op->attrs.own && dim->name == op->attrs.key))
            return cannot_run(in, "'%s' is split", dim->name);
        if (!own && (at < 0 || !same_place(dim, &q->type->dim[at])))
            return cannot_run(in, "queries and keys split '%s' differently", dim->name);
    }
    return true;
}

static void hold_each(const Op *op, const Sharded args[], const Sharded y[], Sharded held[TENSORS])
{
    for (int i = 0; i < op->args.count + op->results.count; i++)
        held[operand_name(op, i)] = i < op->args.count ? args[i] : y[i - op->args.count];
}

/* --- Keys that pass by -------------------------------------------------------------------------- */

/* A tensor with all keys, for those that are split along the ring; its terms pend along it. */
static Sharded hold_all_keys(Interp *in, const Op *op, const Sharded *keys, Axes pending)
{
    Type *type = NEW(&in->arena, Type);
    *type = *keys->type;
    Dim *dim = &type->dim[find_dim(type, op->attrs.key)];
    dim->split = (Split){ 0 };
    dim->zigzag = 0;
    type->partial |= pending;
    return new_sharded(in, type);
}

/* Every rank of a ring sees all keys, so they are gathered. */
static bool gather_keys(Interp *in, const Op *op, Sharded *keys)
{
    if (!op->attrs.axis || !keys->type)
        return true;
    const Op gather = { .kind = OP_all_gather, .attrs = { .dim = op->attrs.key, .axis = op->attrs.axis } };
    const Sharded blocks = *keys;
    *keys = hold_all_keys(in, op, &blocks, 0);
    return keys->shard && run_collective(in, &gather, &blocks, keys);
}

/* The sum of the ranks' gradients of all keys, to where the keys are. */
static bool scatter_keys(Interp *in, const Op *op, const Sharded *all, Sharded *to)
{
    const Op scatter = { .kind = OP_reduce_scatter, .attrs = { .dim = op->attrs.key, .axis = op->attrs.axis } };
    return !op->attrs.axis || run_collective(in, &scatter, all, to);
}

/* The operands and results of an attention, with all keys on each rank. */
static bool hold_attention(Interp *in, const Op *op, const Sharded args[], Sharded y[], Sharded held[TENSORS])
{
    hold_each(op, args, y, held);
    return gather_keys(in, op, &held[K]) && gather_keys(in, op, &held[V]) && gather_keys(in, op, &held[OF_KEY]) &&
           is_attention(in, op, &held[Q], &held[K]) && is_attention(in, op, &held[Q], &held[V]);
}

bool run_attend(Interp *in, const Op *op, const Sharded args[], Sharded y[2])
{
    Sharded held[TENSORS] = { 0 };
    if (!hold_attention(in, op, args, y, held))
        return false;
    for (int rank = 0; rank < in->ranks; rank++)
        run_rank(in, op, held, rank, attend_row);
    return true;
}

bool run_attend_grad(Interp *in, const Op *op, const Sharded args[], Sharded y[3])
{
    Sharded held[TENSORS] = { 0 };
    if (!hold_attention(in, op, args, y, held))
        return false;
    for (int t = DK; op->attrs.axis && t <= DV; t++)
        held[t] = hold_all_keys(in, op, &held[t], op->attrs.axis);
    for (int rank = 0; rank < in->ranks; rank++)
        run_rank(in, op, held, rank, attend_grad_row);
    return scatter_keys(in, op, &held[DK], &y[1]) && scatter_keys(in, op, &held[DV], &y[2]);
}

bool run_attend_bias_grad(Interp *in, const Op *op, const Sharded args[], Sharded y[1])
{
    Sharded held[TENSORS] = { 0 };
    hold_each(op, args, y, held);
    if (!is_attention(in, op, &held[Q], &held[K]) || !is_attention(in, op, &held[Q], &held[V]))
        return false;
    for (int rank = 0; rank < in->ranks; rank++)
        run_rank(in, op, held, rank, attend_bias_row);
    return true;
}

bool run_attend_tangent(Interp *in, const Op *op, const Sharded args[], Sharded y[2])
{
    static const int tangent[][2] = { { Q, DQ }, { K, DK }, { V, DV }, { BIAS, DBIAS }, { SINKS, DSINKS } };
    Sharded held[TENSORS] = { 0 };
    hold_each(op, args, y, held);
    for (size_t i = 0; i < sizeof tangent / sizeof *tangent; i++)
        if (held[tangent[i][0]].type)
            held[tangent[i][1]] = tangent_of(in, &held[tangent[i][0]]);
    held[DY] = new_sharded(in, y[0].type);
    held[DLSE] = new_sharded(in, y[1].type);
    for (int rank = 0; rank < in->ranks; rank++)
        run_rank(in, op, held, rank, attend_tangent_row);
    y[0].tangent = held[DY].shard;
    y[1].tangent = held[DLSE].shard;
    return true;
}
