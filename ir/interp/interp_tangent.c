/* interp_tangent.c -- the reference interpreter's forward mode: derivatives along one direction, together with the
 * values.
 *
 * Rules are derived from the definitions of the ops, by hand or by a complex step, independently of the gradients in
 * ops.def and vjp.c that they check.  (Squire and Trapp, Using complex variables to estimate derivatives of real
 * functions, SIAM Review 40, 1998: f'(x) = Im f(x + ih) / h, without cancellation, so to the last bits for a tiny h.)
 */
#include "interp_shards.h"

#include <complex.h>

/* --- Functions of one number ------------------------------------------------------------------------ */

static double complex sigmoid(double complex z) { return 1 / (1 + cexp(-z)); }

static double complex softplus(double complex z)
{
    return creal(z) > 0 ? z + clog(1 + cexp(-z)) : clog(1 + cexp(z)); /* exp does not overflow */
}

/* The tanh approximation of gelu; Hendrycks and Gimpel, arXiv 1606.08415, section 2. */
static double complex gelu_tanh(double complex z)
{
    return z / 2 * (1 + ctanh(sqrt(2 / acos(-1)) * (z + 0.044715 * z * z * z)));
}

static double complex analytic(OpKind kind, double complex z)
{
    switch (kind) {
    case OP_square:
        return z * z;
    case OP_exp:
    case OP_expm1: /* the same slope */
        return cexp(z);
    case OP_log:
        return clog(z);
    case OP_sin:
        return csin(z);
    case OP_cos:
        return ccos(z);
    case OP_tanh:
        return ctanh(z);
    case OP_sigmoid:
        return sigmoid(z);
    case OP_silu:
        return z * sigmoid(z);
    case OP_softplus:
        return softplus(z);
    case OP_gelu_tanh:
        return gelu_tanh(z);
    default:
        return NAN;
    }
}

/* Functions that saturate: gradients compute the slope as 1 - y^2 or the like, with the rounding error of 1. */
static bool saturates(OpKind kind)
{
    return kind == OP_tanh || kind == OP_sigmoid || kind == OP_expm1 || kind == OP_silu || kind == OP_gelu ||
           kind == OP_gelu_tanh;
}

/* The slope at x of a function whose value there is y. */
static double slope(OpKind kind, double x, double y)
{
    const double h = 1e-100, pi = acos(-1);
    switch (kind) {
    case OP_round_bf16:
    case OP_round_f16:
    case OP_round_e4m3:
        return 1;
    case OP_scale_e4m3:
        return 0;
    case OP_neg:
        return -1;
    case OP_abs:
        return (x > 0) - (x < 0);
    case OP_relu:
        return x > 0;
    case OP_sqrt:
        return 1 / (2 * y);
    case OP_rsqrt:
        return -y / (2 * x);
    case OP_gelu: /* x times the normal distribution: product rule */
        return (1 + erf(x / sqrt(2))) / 2 + x * exp(-x * x / 2) / sqrt(2 * pi);
    default:
        return cimag(analytic(kind, x + h * I)) / h;
    }
}

/* --- Pointwise ops --------------------------------------------------------------------------------------- */

/* a^b = exp(b log a); if log a is undefined, for an integer b, a^b = a a^(b - 1). */
static double tangent_of_power(double a, double b, double y, double da, double db)
{
    if (a > 0)
        return y * (db * log(a) + b * da / a);
    return db == 0 ? b * pow(a, b - 1) * da : NAN;
}

/* `chooses_b`: b is selected. */
static double of_chosen(bool ties, bool chooses_b, double da, double db)
{
    return ties ? (da + db) / 2 : chooses_b ? db : da;
}

static double tangent_at(OpKind kind, const double x[3], const double dx[3], double y)
{
    switch (kind) {
    case OP_add:
        return dx[0] + dx[1];
    case OP_sub:
        return dx[0] - dx[1];
    case OP_mul:
        return x[0] * dx[1] + dx[0] * x[1];
    case OP_div: /* y b = a */
        return (dx[0] - y * dx[1]) / x[1];
    case OP_pow:
        return tangent_of_power(x[0], x[1], y, dx[0], dx[1]);
    case OP_maximum:
        return of_chosen(x[0] == x[1], x[1] > x[0], dx[0], dx[1]);
    case OP_minimum:
        return of_chosen(x[0] == x[1], x[1] < x[0], dx[0], dx[1]);
    case OP_where:
        return x[0] != 0 ? dx[1] : dx[2];
    case OP_cast:
    case OP_broadcast:
    case OP_reorder:
        return dx[0];
    default:
        return dx[0] == 0 ? 0 : slope(kind, x[0], y) * dx[0];
    }
}

Sharded tangent_of(Interp *in, const Sharded *x)
{
    return x->tangent ? (Sharded){ .type = x->type, .shard = x->tangent } : new_sharded(in, x->type);
}

static void pointwise_tangent(Interp *in, const Op *op, const Sharded args[], const Sharded *y, const Sharded *dy)
{
    const int n = op->args.count;
    Sharded dx[3];
    for (int a = 0; a < n; a++)
        dx[a] = tangent_of(in, &args[a]);
    for (int rank = 0; rank < in->ranks; rank++) {
        Walk w = WALK(rank, y, NULL, y);
        for (int a = 0; a < n; a++)
            walk_tensor(&w, &args[a], rank);
        for (int a = 0; a < n; a++)
            walk_tensor(&w, &dx[a], rank);
        for (bool more = walk_begin(&w); more; more = walk_next(&w))
            for (int64_t i = 0; i < w.row; i++) {
                double x[3] = { 0 }, d[3] = { 0 };
                for (int a = 0; a < n; a++) {
                    x[a] = *element(&w, 1 + a, i);
                    d[a] = *element(&w, 1 + n + a, i);
                }
                int64_t at = w.offset[0] + i * w.step[0];
                dy->shard[rank].data[at] = tangent_at(op->kind, x, d, y->shard[rank].data[at]);
                if (saturates(op->kind))
                    dy->shard[rank].data[at] +=
                        (perturbation(&in->options->tangents->shaking, in->shaken, (uint64_t)at) - 1) * d[0];
            }
    }
}

/* --- Other ops --------------------------------------------------------------------------------------------- */

/* The tangent of a maximum is the mean of the tangents of the elements equal to it. */
static void extreme_tangent(Interp *in, const Sharded *x, const Sharded *y, const Sharded *dy)
{
    const Sharded count = new_sharded(in, y->type), moved = { .type = x->type, .shard = x->tangent };
    for (int rank = 0; rank < in->ranks; rank++) {
        Walk w = WALK(rank, x, NULL, x, &moved, y, dy, &count);
        for (bool more = walk_begin(&w); more; more = walk_next(&w))
            for (int64_t i = 0; i < w.row; i++)
                if (*element(&w, 0, i) == *element(&w, 2, i)) {
                    *element(&w, 3, i) += *element(&w, 1, i);
                    ++*element(&w, 4, i);
                }
        for (int64_t i = 0; i < dy->shard[rank].count; i++)
            dy->shard[rank].data[i] /= fmax(1, count.shard[rank].data[i]);
    }
}

/* Linear in each operand. */
static bool dot_tangent(Interp *in, const Op *op, const Sharded args[], Sharded *dy)
{
    const Sharded left[] = { tangent_of(in, &args[0]), args[1] }, right[] = { args[0], tangent_of(in, &args[1]) };
    return run_dot(in, op, left, dy) && run_dot(in, op, right, dy); /* accumulates into dy */
}

/* Linear in its first operand, in all of concat, in a sum that it goes on with: the op applied to tangents. */
static bool linear_tangent(Interp *in, const Op *op, const Sharded args[], Sharded *dy)
{
    static const bool is_linear[N_OPS] = {
        [OP_sum] = true,         [OP_dropout] = true, [OP_pad] = true,    [OP_concat] = true,   [OP_gather] = true,
        [OP_scatter_add] = true, [OP_rope] = true,    [OP_cumsum] = true, [OP_dispatch] = true, [OP_combine] = true,
        [OP_rename] = true,      [OP_slice] = true,   [OP_part] = true,   [OP_split] = true,    [OP_merge] = true
    };
    Sharded given[MAX_CONCAT] = { tangent_of(in, &args[0]) };
    for (int i = 1; i < op->args.count; i++)
        given[i] = op->kind == OP_concat || arg(op, i) == sum_before(op) ? tangent_of(in, &args[i]) : args[i];
    return is_linear[op->kind] ? run_op(in, op, given, dy) : cannot_run(in, "it has no derivative");
}

static bool find_tangent(Interp *in, const Op *op, const Sharded args[], const Sharded *y, Sharded *dy)
{
    switch (op->kind) {
    case OP_dropout:
        return linear_tangent(in, op, args, dy);
    case OP_dot:
        return dot_tangent(in, op, args, dy);
    case OP_max:
    case OP_min:
        extreme_tangent(in, &args[0], y, dy);
        return true;
    case OP_gelu_slope:
    case OP_gelu_tanh_slope: /* only stand in gradients, or behind them */
    case OP_lse_add:
    case OP_lse_share:
        return cannot_run(in, "it has no derivative");
    default:
        break;
    }
    if (info(op)->family != POINTWISE)
        return linear_tangent(in, op, args, dy);
    pointwise_tangent(in, op, args, y, dy);
    return true;
}

/* Operands that are not floats have no tangent, nor have results of steps and stop_gradient. */
bool run_tangent(Interp *in, const Op *op, const Sharded args[], Sharded results[])
{
    bool moves = false;
    for (int i = 0; i < op->args.count; i++)
        moves |= args[i].tangent != NULL;
    if (!moves || !is_float(results[0].type->dtype) || op->kind == OP_stop_gradient || op->kind == OP_sign)
        return true;
    if (op->kind == OP_attend) {
        bool good = run_attend_tangent(in, op, args, results);
        perturb(in, &in->options->tangents->shaking,
                &(Sharded){ .type = results[0].type, .shard = results[0].tangent });
        return good;
    }
    Sharded dy = new_sharded(in, results[0].type);
    if (!find_tangent(in, op, args, &results[0], &dy))
        return false;
    if (op->kind != OP_rename) /* which shares its operand's */
        perturb(in, &in->options->tangents->shaking, &dy);
    results[0].tangent = dy.shard;
    return true;
}
