/* test_attend.c -- attention and its gradients against the definition in double; 1 to 3 threads.
 *
 * Tolerances: a score sums D products of numbers up to 1, with a random rounding error of about scale * D * 2^-24 at
 * most; a weight has the same relative error; a sum over keys that times the magnitude of its terms.  Bounds are 8
 * times this.  The gradient's reference uses y as stored, like the kernel.
 */
#include "check.h"

typedef struct {
    int64_t batch, heads, group, queries, keys, feature;
    bool causal;
    int64_t window, first_query, first_key;
    int64_t jump_from, jump, key_jump_from, key_jump; /* two pieces of a sequence each, in zig-zag */
    float softcap;
    int64_t begin, period, skip, key_skip; /* more pieces than two: see RtPart */
} Case;

static const Case cases[] = {
    { 1, 1, 1, 1, 1, 1, false, 0, 0, 0, 0, 0, 0, 0, 0 },
    { 2, 2, 3, 70, 70, 20, true, 0, 0, 0, 0, 0, 0, 0, 0 },
    { 2, 2, 1, 70, 70, 16, false, 0, 0, 0, 0, 0, 0, 0, 0 },
    { 1, 2, 1, 130, 130, 64, true, 0, 0, 0, 0, 0, 0, 0, 0 },
    { 1, 1, 1, 256, 256, 64, true, 0, 0, 0, 0, 0, 0, 0, 0 },
    { 1, 3, 1, 33, 200, 17, false, 0, 0, 0, 0, 0, 0, 0, 0 },
    { 1, 1, 2, 65, 129, 80, true, 0, 64, 0, 0, 0, 0, 0, 0 },
    { 1, 1, 2, 100, 100, 128, true, 5, 0, 0, 0, 0, 0, 0, 0 },
    { 1, 2, 1, 150, 150, 32, true, 70, 0, 0, 0, 0, 0, 0, 0 },
    { 1, 1, 1, 150, 150, 31, false, 1, 0, 0, 0, 0, 0, 0, 0 },
    { 1, 1, 1, 200, 200, 48, false, 70, 0, 0, 0, 0, 0, 0, 0 },
    { 1, 1, 1, 40, 100, 8, true, 0, 60, 0, 0, 0, 0, 0, 0 },
    { 1, 1, 1, 80, 80, 8, true, 0, 0, 32, 0, 0, 0, 0, 0 },
    { 1, 1, 1, 60, 90, 65, false, 33, 200, 150, 0, 0, 0, 0, 0 },
    { 1, 1, 1, 64, 64, 16, true, 0, 0, 1000, 0, 0, 0, 0, 0 },
    { 1, 1, 1, 96, 300, 24, true, 100, 204, 0, 0, 0, 0, 0, 0 },
    { 1, 1, 1, 70, 200, 16, true, 20, 300, 40, 0, 0, 0, 0, 0 },
    { 1, 2, 1, 41, 47, 64, false, 0, 0, 0, 0, 0, 0, 0, 0 },
    { 1, 1, 1, 190, 190, 8, true, 127, 0, 0, 0, 0, 0, 0, 0 },
    { 1, 1, 1, 190, 190, 8, false, 127, 0, 0, 0, 0, 0, 0, 0 },
    { 1, 1, 1, 200, 200, 16, true, 66, 0, 0, 0, 0, 0, 0, 0 },
    { 1, 1, 1, 70, 66, 256, true, 0, 0, 0, 0, 0, 0, 0, 0 },
    { 1, 1, 1, 20, 20, 100, false, 12, 0, 0, 0, 0, 0, 0, 0 },
    /* of 8 pieces: 1 and 6 see 2 and 5, 0 and 7, and themselves */
    { 1, 2, 2, 200, 200, 16, true, 0, 100, 200, 100, 400, 100, 200, 0 },
    { 1, 1, 1, 200, 200, 16, true, 0, 100, 0, 100, 400, 100, 600, 0 },
    { 1, 1, 1, 200, 200, 16, true, 0, 100, 100, 100, 400, 100, 400, 0 },
    { 1, 1, 1, 200, 200, 24, true, 60, 100, 200, 100, 400, 100, 200, 0 },
    { 1, 1, 1, 200, 200, 24, true, 150, 100, 0, 100, 400, 100, 600, 0 },
    { 1, 1, 1, 256, 256, 32, true, 130, 128, 256, 128, 512, 128, 256, 0 },
    { 1, 1, 1, 200, 200, 20, false, 90, 100, 200, 100, 400, 100, 200, 0 },
    { 1, 1, 1, 90, 140, 8, true, 33, 70, 10, 37, 90, 71, 60, 0 },
    { 1, 1, 2, 70, 130, 20, false, 0, 0, 0, 0, 0, 0, 0, 0.5f },
    /* of 8 pieces of 50: 1, 2, 5 and 6 see 0, 3, 4 and 7, the other way round, and all keys; the second half of 1, 2, 5
       and 6; of 24 pieces of 20, 1, 4, 7, 10, ... see 0, 5, 6, 11, ... */
    { 1, 2, 1, 200, 200, 16, true, 0, 50, 0, 50, 0, 50, 100, 0, 0, 100, 100, 100 },
    { 1, 1, 1, 200, 200, 16, true, 70, 0, 50, 50, 100, 50, 0, 0, 0, 100, 100, 100 },
    { 1, 1, 2, 200, 400, 16, false, 90, 50, 0, 50, 0, 400, 0, 0, 0, 100, 100, 300 },
    { 1, 1, 1, 100, 400, 16, true, 0, 150, 0, 50, 0, 400, 0, 0, 100, 100, 100, 300 },
    { 1, 1, 1, 30, 200, 16, true, 33, 65, 0, 50, 100, 50, 100, 0, 65, 100, 100, 100 },
    { 1, 1, 1, 160, 160, 24, true, 0, 20, 0, 20, 40, 20, 80, 0, 0, 40, 80, 80 },
    { 1, 1, 1, 160, 160, 24, false, 45, 20, 0, 20, 40, 20, 80, 0, 0, 40, 80, 80 },
    { 2, 2, 1, 100, 100, 33, true, 40, 0, 0, 0, 0, 0, 0, 50 },
};

enum { Q, K, V, Y, DY, DQ, DK, DV, TENSORS };

typedef struct {
    RtAttend s;
    void *at[TENSORS];
    int64_t count[TENSORS];
    float *lse;
    int64_t lse_count;
    int32_t *of_query, *of_key;          /* segments; NULL: none */
    float *bias, *dbias, *sinks, *share; /* the same */
    int64_t bias_count;
} Problem;

enum { WITHOUT, DOCUMENTS, MIXED, SEGMENTS };

/* Biases that lack no, some and most dims; in all but the first, some elements are minus infinity. */
enum { NO_BIAS, ALL_DIMS, BY_HEAD, BY_GROUP, BY_KEY, BIASES };

/* Documents follow each other, the same for all heads; or each row of each head has a segment of its own. */
static int32_t *make_segments(const Case *c, int kind, int64_t rows, RtAttendStride *stride)
{
    const int64_t heads = kind == MIXED ? c->heads : 1;
    int32_t *segment = malloc((size_t)(c->batch * rows * heads) * sizeof *segment);
    *stride = (RtAttendStride){ .batch = rows * heads, .row = heads, .head = kind == MIXED };
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t h = 0; h < heads; h++)
                segment[(b * rows + i) * heads + h] =
                    kind == MIXED ? (int32_t)pick(3) - 1 : (int32_t)((i + 9 * b) * (i + 9 * b) / 3000);
    return segment;
}

/* [batch, row, head, group, feature], or with rows inside of heads; padded. */
static RtAttendStride lay_out(int64_t batch, int64_t rows, int64_t heads, int64_t group, int64_t feature,
                              bool rows_first, int64_t *count)
{
    const int64_t inner = feature + 3, all = heads * group * inner;
    *count = batch * rows * all + batch;
    if (rows_first)
        return (RtAttendStride){ rows * all + 1, all, group * inner, inner };
    return (RtAttendStride){ rows * all + 1, inner, group * rows * inner, rows * inner };
}

static void make_bias(Problem *p, const Case *c, int kind)
{
    const bool by_row = kind != BY_KEY, by_batch = kind == ALL_DIMS || kind == BY_KEY;
    const bool by_head = kind == ALL_DIMS || kind == BY_HEAD, by_group = kind == ALL_DIMS || kind == BY_GROUP;
    RtAttendPlane *of = &p->s.bias;
    int64_t count = 1;
    of->row = by_row ? count : 0, count *= by_row ? c->queries : 1; /* keys are not contiguous */
    of->key = count, count *= c->keys;
    of->group = by_group ? count : 0, count *= by_group ? c->group : 1;
    of->head = by_head ? count : 0, count *= by_head ? c->heads : 1;
    of->batch = by_batch ? count : 0, count *= by_batch ? c->batch : 1;
    p->s.dbias = *of;
    p->s.has_bias = true;
    p->bias_count = count;
    p->bias = random_array(count, RT_F32);
    p->dbias = allocate(count * 4);
    for (int64_t i = 0; i < count; i++)
        if (kind != ALL_DIMS && pick(9) == 0)
            p->bias[i] = -INFINITY;
    p->s.sinks = (RtAttendStride){ .head = 1, .group = c->heads };
    if (kind == BY_HEAD || kind == BY_KEY)
        p->sinks = random_array(c->heads * c->group, RT_F32);
}

static Problem make_problem(const Case *c, RtType type, int segments, int bias)
{
    Problem p = { .s = { .batch = c->batch,
                         .queries = c->queries,
                         .keys = c->keys,
                         .heads = c->heads,
                         .group = c->group,
                         .feature = c->feature,
                         .type = type,
                         .causal = c->causal,
                         .window = c->window,
                         .query_part = { c->first_query, c->jump_from, c->jump, c->begin, c->period, c->skip },
                         .key_part = { c->first_key, c->key_jump_from, c->key_jump, 0, c->period, c->key_skip },
                         .scale = 1.5f / sqrtf((float)c->feature),
                         .softcap = c->softcap } };
    RtAttendStride *stride[TENSORS] = { &p.s.q, &p.s.k, &p.s.v, &p.s.y, &p.s.dy, &p.s.dq, &p.s.dk, &p.s.dv };
    for (int t = 0; t < TENSORS; t++) {
        const bool by_key = t == K || t == V || t == DK || t == DV;
        *stride[t] = lay_out(c->batch, by_key ? c->keys : c->queries, c->heads, by_key ? 1 : c->group, c->feature,
                             t % 2, &p.count[t]);
        p.at[t] = t <= V || t == DY ? random_array(p.count[t], type) : allocate(p.count[t] * type_bytes(type));
    }
    p.s.lse = lay_out(c->batch, c->queries, c->heads, c->group, 1, true, &p.lse_count);
    p.lse = allocate(p.lse_count * 4);
    p.s.share = p.s.lse;
    p.share = allocate(p.lse_count * 4);
    if (bias)
        make_bias(&p, c, bias);
    if (segments) {
        p.of_query = make_segments(c, segments, c->queries, &p.s.query_segment);
        p.of_key = make_segments(c, segments, c->keys, &p.s.key_segment);
    }
    return p;
}

static void free_problem(Problem *p)
{
    for (int t = 0; t < TENSORS; t++)
        free(p->at[t]);
    free(p->lse);
    free(p->share);
    free(p->bias);
    free(p->dbias);
    free(p->sinks);
    free(p->of_query);
    free(p->of_key);
}

/* --- Same bits ------------------------------------------------------------------------------ */

static void find_shares(Problem *p)
{
    const RtAttend *s = &p->s;
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t h = 0; h < s->heads; h++)
            for (int64_t g = 0; g < s->group; g++)
                for (int64_t i = 0; i < s->queries; i++) {
                    double sum = 0;
                    for (int64_t d = 0; d < s->feature; d++)
                        sum +=
                            get(p->at[DY], b * s->dy.batch + i * s->dy.row + h * s->dy.head + g * s->dy.group + d,
                                s->type) *
                            get(p->at[Y], b * s->y.batch + i * s->y.row + h * s->y.head + g * s->y.group + d, s->type);
                    p->share[b * s->share.batch + i * s->share.row + h * s->share.head + g * s->share.group] =
                        (float)sum;
                }
}

static void run_all(Problem *p)
{
    for (int t = 0; t < TENSORS; t++)
        if (t == Y || t >= DQ)
            memset(p->at[t], 0x5A, (size_t)(p->count[t] * type_bytes(p->s.type)));
    const int64_t scratch_bytes = rt_attend_grad_scratch(p->s);
    char *scratch = allocate(scratch_bytes + 64);
    rt_attend(p->at[Q], p->at[K], p->at[V], p->bias, p->sinks, p->of_query, p->of_key, p->at[Y], p->lse, p->s);
    rt_attend_grad(p->at[Q], p->at[K], p->at[V], p->at[Y], p->lse, p->at[DY], p->bias, p->of_query, p->of_key,
                   p->at[DQ], p->at[DK], p->at[DV], scratch, p->s);
    find_shares(p);
    if (p->bias)
        rt_attend_bias_grad(p->at[Q], p->at[K], p->at[V], p->share, p->lse, p->at[DY], p->bias, p->of_query, p->of_key,
                            p->dbias, p->s);
    for (int i = 0; i < 64; i++)
        check(scratch[scratch_bytes + i] == 0x5A, "wrote behind its scratch");
    free(scratch);
}

static void check_threads(Problem *p)
{
    void *first[TENSORS] = { 0 };
    for (int threads = 1; threads <= 3; threads++) {
        omp_set_num_threads(threads);
        run_all(p);
        for (int t = Y; t < TENSORS; t++) {
            const size_t bytes = (size_t)(p->count[t] * type_bytes(p->s.type));
            if (threads == 1)
                first[t] = memcpy(allocate((int64_t)bytes), p->at[t], bytes);
            check(memcmp(first[t], p->at[t], bytes) == 0, "tensor %d: other bits with %d threads", t, threads);
        }
    }
    for (int t = 0; t < TENSORS; t++)
        free(first[t]);
}

/* --- The definition ------------------------------------------------------------------------- */

typedef struct {
    const Problem *p;
    const RtAttendStride *of[TENSORS];
    int64_t b, h;
    double *want_dk, *want_dv, *key_weight; /* of this head, over its queries */
    double *want_dbias, *bias_error;        /* over all heads */
    double score_error;
} Head;

static double at(const Head *x, int tensor, int64_t g, int64_t row, int64_t d)
{
    const RtAttendStride *of = x->of[tensor];
    return get(x->p->at[tensor], x->b * of->batch + row * of->row + x->h * of->head + g * of->group + d, x->p->s.type);
}

static double dot(const Head *x, int a, int64_t a_group, int64_t i, int b, int64_t b_group, int64_t j)
{
    double sum = 0;
    for (int64_t d = 0; d < x->p->s.feature; d++)
        sum += at(x, a, a_group, i, d) * at(x, b, b_group, j, d);
    return sum;
}

static bool sees(const Head *x, int64_t i, int64_t j)
{
    const Problem *p = x->p;
    const RtAttend *s = &p->s;
    const RtAttendStride *q = &s->query_segment, *k = &s->key_segment;
    if (p->of_query && p->of_query[x->b * q->batch + i * q->row + x->h * q->head] !=
                           p->of_key[x->b * k->batch + j * k->row + x->h * k->head])
        return false;
    const int64_t query = rt_position(s->query_part, i), key = rt_position(s->key_part, j);
    if (s->causal)
        return key <= query && (!s->window || key > query - s->window);
    return !s->window || llabs(query - key) < s->window;
}

static void compare(const Head *x, int tensor, int64_t g, int64_t row, int64_t d, double want, double error)
{
    const RtAttend *s = &x->p->s;
    const double got = at(x, tensor, g, row, d);
    check(
        is_close(got, want, error, s->type),
        "%s %lld x %lld feature %lld%s window %lld: tensor %d, head %lld, row %lld, feature %lld is %g, not %g (%.1e)",
        type_name[s->type], (long long)s->queries, (long long)s->keys, (long long)s->feature,
        s->causal ? " causal" : "", (long long)s->window, tensor, (long long)x->h, (long long)row, (long long)d, got,
        want, error);
}

static double capped(const RtAttend *s, double score)
{
    return s->softcap > 0 ? (double)s->softcap * tanh(score / (double)s->softcap) : score;
}

/* The derivative of that by the product of query and key. */
static double slope_of(const Head *x, int64_t g, int64_t i, int64_t j)
{
    const RtAttend *s = &x->p->s;
    const double t = s->softcap > 0 ? tanh((double)s->scale * dot(x, Q, g, i, K, 0, j) / (double)s->softcap) : 0;
    return (double)s->scale * (1 - t * t);
}

static int64_t bias_at(const Head *x, int64_t g, int64_t i, int64_t j)
{
    const RtAttendPlane *of = &x->p->s.bias;
    return x->b * of->batch + i * of->row + x->h * of->head + g * of->group + j * of->key;
}

/* weight[j] of one query; false if it sees no key. */
static bool weigh(const Head *x, int64_t g, int64_t i, double *weight)
{
    const RtAttend *s = &x->p->s;
    const float sink = x->p->sinks ? x->p->sinks[x->h * s->sinks.head + g * s->sinks.group] : -INFINITY;
    double most = (double)sink, sum = 0;
    for (int64_t j = 0; j < s->keys; j++) {
        weight[j] = sees(x, i, j) ? capped(s, (double)s->scale * dot(x, Q, g, i, K, 0, j)) : -INFINITY;
        weight[j] += x->p->bias ? (double)x->p->bias[bias_at(x, g, i, j)] : 0;
        most = fmax(most, weight[j]);
    }
    sum = sink > -INFINITY ? exp((double)sink - most) : 0;
    for (int64_t j = 0; j < s->keys; j++)
        sum += weight[j] = most == -INFINITY ? 0 : exp(weight[j] - most);
    const float lse = x->p->lse[x->b * s->lse.batch + i * s->lse.row + x->h * s->lse.head + g * s->lse.group];
    const double want = most + log(sum);
    check(sum > 0 ? fabs((double)lse - want) <= x->score_error + 0x1p-23 * fabs(want) : lse == -INFINITY,
          "log-sum-exp %g, not %g", (double)lse, want);
    for (int64_t j = 0; j < s->keys && sum > 0; j++)
        weight[j] /= sum;
    return sum > 0;
}

static void check_query(Head *x, int64_t g, int64_t i, double *weight)
{
    const RtAttend *s = &x->p->s;
    weigh(x, g, i, weight);
    double *y = calloc((size_t)s->feature * 2, sizeof *y), *dq = y + s->feature;
    const double share = dot(x, DY, g, i, Y, g, i), error = x->score_error;
    double slope = 0; /* the maximum factor of a weight's error */
    for (int64_t j = 0; j < s->keys; j++) {
        if (weight[j] == 0)
            continue; /* all that follows has it as a factor */
        const double grown = dot(x, DY, g, i, V, 0, j) - share, dp = weight[j] * grown, ds = dp * slope_of(x, g, i, j);
        if (x->p->bias && !isinf(x->p->bias[bias_at(x, g, i, j)])) {
            x->want_dbias[bias_at(x, g, i, j)] += dp;
            x->bias_error[bias_at(x, g, i, j)] += weight[j] * (fabs(grown) + 1);
        }
        slope = fmax(slope, (fabs(grown) + 1) * (double)s->scale);
        x->key_weight[j] += weight[j] * (1 + (fabs(grown) + 1) * (double)s->scale);
        for (int64_t d = 0; d < s->feature; d++) {
            y[d] += weight[j] * at(x, V, 0, j, d);
            dq[d] += ds * at(x, K, 0, j, d);
            x->want_dk[j * s->feature + d] += ds * at(x, Q, g, i, d);
            x->want_dv[j * s->feature + d] += weight[j] * at(x, DY, g, i, d);
        }
    }
    for (int64_t d = 0; d < s->feature; d++) {
        compare(x, Y, g, i, d, y[d], error);
        compare(x, DQ, g, i, d, dq[d], error * slope);
    }
    free(y);
}

static void check_head(const Problem *p, int64_t b, int64_t h, double *want_dbias)
{
    const RtAttend *s = &p->s;
    const size_t size = (size_t)(s->keys * s->feature);
    double *numbers = calloc(2 * size + 2 * (size_t)s->keys, sizeof *numbers);
    Head x = { .p = p,
               .of = { &s->q, &s->k, &s->v, &s->y, &s->dy, &s->dq, &s->dk, &s->dv },
               .b = b,
               .h = h,
               .want_dk = numbers,
               .want_dv = numbers + size,
               .key_weight = numbers + 2 * size,
               .want_dbias = want_dbias,
               .bias_error = want_dbias + p->bias_count };
    x.score_error = 8 * 0x1p-24 * ((double)s->scale * (double)s->feature + 4);
    for (int64_t g = 0; g < s->group; g++)
        for (int64_t i = 0; i < s->queries; i++)
            check_query(&x, g, i, numbers + 2 * size + s->keys);
    for (int64_t j = 0; j < s->keys; j++)
        for (int64_t d = 0; d < s->feature; d++) {
            const double error = x.score_error * (x.key_weight[j] + 0.01);
            compare(&x, DK, 0, j, d, x.want_dk[j * s->feature + d], error);
            compare(&x, DV, 0, j, d, x.want_dv[j * s->feature + d], error);
        }
    free(numbers);
}

static void check_bias(const Problem *p, const double *want)
{
    const double *weight = want + p->bias_count;
    const double error =
        8 * 0x1p-24 * ((double)p->s.scale * (double)p->s.feature + 4) + (p->s.type == RT_F32 ? 0 : 0x1p-20);
    for (int64_t i = 0; i < p->bias_count; i++)
        check(fabs((double)p->dbias[i] - want[i]) <= error * (weight[i] + 0.01), "gradient of bias %lld is %g, not %g",
              (long long)i, (double)p->dbias[i], want[i]);
}

/* Checks that elements outside of a result keep their mark. */
static void check_marks(const Problem *p, int tensor, int64_t rows, int64_t group)
{
    int64_t marked = 0;
    for (int64_t i = 0; i < p->count[tensor]; i++)
        marked += is_marked(p->at[tensor], i, p->s.type);
    const int64_t own = p->s.batch * rows * p->s.heads * group * p->s.feature;
    /* a bf16 result may be the mark by chance, but not often */
    check(marked >= p->count[tensor] - own && marked <= p->count[tensor] - own + 2,
          "tensor %d: %lld of %lld elements left alone, not %lld", tensor, (long long)marked,
          (long long)p->count[tensor], (long long)(p->count[tensor] - own));
}

/* No rounding of a large score makes the weight of a lone key more than 1. */
static void check_large_scores(void)
{
    const float scale = 0.577f, share = 0;
    for (float raw = 1e3f; raw < 1e18f; raw *= 1.7f) {
        volatile float once = raw, lse = once * scale; /* rounded before it is subtracted */
        float score[RT_ATTEND_TILE] = { once }, gradient[RT_ATTEND_TILE] = { 0 };
        const float level = lse;
        rt_attend_grad_scores(score, gradient, &level, 1, &share, 1, 1, scale);
        check(score[0] >= 0 && score[0] <= 1, "a weight is %g where the score is %g", (double)score[0], (double)raw);
    }
}

static void check_case(const Case *c, RtType type, int segments, int bias)
{
    Problem p = make_problem(c, type, segments, bias);
    double *want_dbias = calloc(2 * (size_t)p.bias_count + 1, sizeof *want_dbias);
    check_threads(&p);
    for (int64_t b = 0; b < p.s.batch; b++)
        for (int64_t h = 0; h < p.s.heads; h++)
            check_head(&p, b, h, want_dbias);
    check_bias(&p, want_dbias);
    check_marks(&p, Y, p.s.queries, p.s.group);
    check_marks(&p, DQ, p.s.queries, p.s.group);
    check_marks(&p, DK, p.s.keys, 1);
    check_marks(&p, DV, p.s.keys, 1);
    free(want_dbias);
    free_problem(&p);
}

int main(void)
{
    const int count = sizeof cases / sizeof *cases;
    for (int i = 0; i < count; i++)
        for (int n = 0; n < 3 * SEGMENTS; n++)
            if (is_for_all() || (n / SEGMENTS + n + i) % SEGMENTS == 0) /* else each two of the three */
                check_case(&cases[i], float_types[n / SEGMENTS], n % SEGMENTS, NO_BIAS);
    for (int i = 0; i < count; i++)
        for (int bias = ALL_DIMS; bias < BIASES; bias++)
            check_case(&cases[i], float_types[(i + bias) % 3], i % SEGMENTS, bias);
    check_large_scores();
    return report("attend");
}
