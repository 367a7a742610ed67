/* interp_number.c -- pointwise ops on one element, and random numbers. */
#include "interp_number.h"

#include "interp.h"

static const double SQRT_1_2 = 0.70710678118654752440, SQRT_2_PI = 0.79788456080286535588; /* sqrt(1/2), sqrt(2/pi) */
static const double DENSITY = 0.39894228040143267794;                                      /* 1 / sqrt(2 pi) */
static const double CUBIC = 0.044715; /* of the tanh approximation of gelu */

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double normal_cdf(double x) { return 0.5 * (1 + erf(x * SQRT_1_2)); }

static double gelu_tanh(double x) { return 0.5 * x * (1 + tanh(SQRT_2_PI * (x + CUBIC * x * x * x))); }

static double gelu_tanh_slope(double x)
{
    double t = tanh(SQRT_2_PI * (x + CUBIC * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * SQRT_2_PI * (1 + 3 * CUBIC * x * x);
}

static double sign(double x) { return (x > 0) - (x < 0); }

static double wrap(int64_t x) { return (double)(int32_t)(uint32_t)(uint64_t)x; }

/* Of 32-bit integers, two's complement; NaN if the result is not an integer. */
static double map_integer(OpKind kind, double a, double b, double c)
{
    if (!number_fits(I32, a) || !number_fits(I32, b) || !number_fits(I32, c))
        return NAN;
    int64_t x = (int64_t)a, y = (int64_t)b;
    switch (kind) {
    case OP_add:
        return wrap(x + y);
    case OP_sub:
        return wrap(x - y);
    case OP_mul:
        return wrap(x * y);
    case OP_div:
        return y ? wrap(x / y) : 0;
    case OP_neg:
        return wrap(-x);
    case OP_abs:
        return wrap(x < 0 ? -x : x);
    case OP_square:
        return wrap(x * x);
    case OP_fold_key:
        return (double)(int32_t)fold_key((uint32_t)x, (uint32_t)y);
    case OP_pow: {
        int64_t power = 1;
        for (int64_t i = 0; i < y && y <= 64; i++)
            power = (int64_t)wrap(power * x);
        return y >= 0 && y <= 64 ? (double)power : NAN;
    }
    case OP_maximum:
        return fmax(a, b);
    case OP_minimum:
        return fmin(a, b);
    case OP_sign:
        return sign(a);
    case OP_relu:
        return fmax(a, 0);
    default:
        return NAN;
    }
}

static double lse_add(double a, double b)
{
    const double most = fmax(a, b);
    return most == -INFINITY ? most : most + log(exp(a - most) + exp(b - most));
}

/* Reals do not round, but what a scale has not brought into the range is lost: it shows a scale that is of other
 * numbers. */
static double in_e4m3(double a)
{
    const double most = 448, rounding = 1e-6;
    return fabs(a) <= most * (1 + rounding) || !isfinite(a) ? a : NAN;
}

/* The power of two 2^e for which a 2^e is above 224 and at most 448, where f32 has it. */
static double scale_e4m3(double a)
{
    const int largest = 126;
    if (a == 0 || !isfinite(a))
        return a == 0 ? ldexp(1, largest) : 1;
    const int exponent = ilogb(a), e = 8 - exponent - (ldexp(fabs(a), -exponent) > 1.75);
    return ldexp(1, e < largest ? e : largest);
}

static double map_real(OpKind kind, double a, double b)
{
    switch (kind) {
    case OP_add:
        return a + b;
    case OP_sub:
        return a - b;
    case OP_mul:
        return a * b;
    case OP_div:
        return a / b;
    case OP_pow:
        return pow(a, b);
    case OP_maximum:
        return fmax(a, b);
    case OP_minimum:
        return fmin(a, b);
    case OP_round_bf16: /* reals do not round */
    case OP_round_f16:
        return a;
    case OP_round_e4m3:
        return in_e4m3(a);
    case OP_neg:
        return -a;
    case OP_abs:
        return fabs(a);
    case OP_sign:
        return sign(a);
    case OP_square:
        return a * a;
    case OP_sqrt:
        return sqrt(a);
    case OP_rsqrt:
        return 1 / sqrt(a);
    case OP_exp:
        return exp(a);
    case OP_expm1:
        return expm1(a);
    case OP_log:
        return log(a);
    case OP_sin:
        return sin(a);
    case OP_cos:
        return cos(a);
    case OP_tanh:
        return tanh(a);
    case OP_sigmoid:
        return sigmoid(a);
    case OP_relu:
        return fmax(a, 0);
    case OP_silu:
        return a * sigmoid(a);
    case OP_softplus:
        return fmax(a, 0) + log1p(exp(-fabs(a)));
    case OP_gelu:
        return a * normal_cdf(a);
    case OP_gelu_slope:
        return normal_cdf(a) + a * DENSITY * exp(-0.5 * a * a);
    case OP_gelu_tanh:
        return gelu_tanh(a);
    case OP_gelu_tanh_slope:
        return gelu_tanh_slope(a);
    case OP_scale_e4m3:
        return scale_e4m3(a);
    case OP_lse_add:
        return lse_add(a, b);
    case OP_lse_share:
        return a == -INFINITY ? 0 : exp(a - b);
    default:
        return NAN;
    }
}

static double same(double x) { return x; }
static bool is_less_real(double a, double b) { return a < b; }
static double add_real(double a, double b) { return a + b; }
static double multiply_add_real(double sum, double a, double b) { return sum + a * b; }
static double scattered_real(double u) { return 2 * u - 1; }

/* Rounds to `bits` of mantissa; below 2^least numbers are evenly spaced, from `infinite` on the result is infinite.
 */
static double to_nearest(double x, int bits, int least, double infinite)
{
    if (x == 0 || !isfinite(x))
        return x;
    int exponent = ilogb(x) < least ? least : ilogb(x);
    double unit = ldexp(1, exponent - (bits - 1)), near = rint(x / unit) * unit;
    return fabs(near) < infinite ? near : copysign(INFINITY, x);
}

/* Larger numbers become the largest one. */
static double to_e4m3(double x)
{
    const double most = 448, near = to_nearest(x, 4, -6, INFINITY);
    return isfinite(x) && fabs(near) > most ? copysign(most, x) : near;
}

static double map_rounding(OpKind kind, double a, double b)
{
    return kind == OP_round_bf16   ? to_nearest(a, 8, -126, 0x1p128)
           : kind == OP_round_f16  ? to_nearest(a, 11, -14, 0x1p16)
           : kind == OP_round_e4m3 ? to_e4m3(a)
                                   : map_real(kind, a, b);
}

MAP_ROW(map_reals, map_real)
MAP_ROW(map_roundings, map_rounding)
MULTIPLY_ADD_ROW(multiply_add_reals, multiply_add_real)

/* Sums of the same terms in another order may differ. */
#define REALS(map_of_one, map_of_row)                                                                                  \
    {                                                                                                                  \
        .of = same, .to_real = same, .map = map_of_one, .is_less = is_less_real, .add = add_real,                      \
        .multiply_add = multiply_add_real, .map_row = map_of_row, .multiply_add_row = multiply_add_reals,              \
        .scattered = scattered_real, .tolerance = 1e-12                                                                \
    }
const Numbers reals = REALS(map_real, map_reals), rounding_reals = REALS(map_rounding, map_roundings);

/* Rounds toward zero; numbers out of range become the nearest i32, NaN of reals becomes 0. (In a field, a number
 * that is not whole stays unknown.) */
static double whole_number(const Numbers *n, double x)
{
    if (isnan(x))
        return n->to_real == same ? 0 : NAN;
    return trunc(x < INT32_MIN ? INT32_MIN : x > INT32_MAX ? INT32_MAX : x);
}

static double cast_number(const Numbers *n, DType dtype, DType from, double a)
{
    if (dtype == BOOL)
        return a != 0;
    if (is_float(dtype))
        return is_float(from) ? a : n->of(a);
    return whole_number(n, is_float(from) ? n->to_real(a) : a);
}

static bool compare(const Numbers *n, OpKind kind, DType from, double a, double b)
{
    bool less = is_float(from) ? n->is_less(a, b) : a < b, more = is_float(from) ? n->is_less(b, a) : b < a;
    switch (kind) {
    case OP_lt:
        return less;
    case OP_le:
        return less || a == b;
    case OP_gt:
        return more;
    case OP_ge:
        return more || a == b;
    default:
        return (kind == OP_eq) == (a == b);
    }
}

/* Ops that do not calculate with floats; false: any other one. */
static bool map_otherwise(const Numbers *n, OpKind kind, DType dtype, DType from, double a, double b, double c,
                          double *y)
{
    if (op_table[kind].traits & COMPARES)
        return *y = compare(n, kind, from, a, b), true;
    switch (kind) {
    case OP_where:
        return *y = a != 0 ? b : c, true;
    case OP_stop_gradient:
    case OP_broadcast:
    case OP_reorder:
        return *y = a, true;
    case OP_cast:
        return *y = cast_number(n, dtype, from, a), true;
    default:
        return dtype == I32 ? (*y = map_integer(kind, a, b, c), true) : false;
    }
}

double number_map(const Numbers *n, OpKind kind, DType dtype, DType from, double a, double b, double c)
{
    double y;
    return map_otherwise(n, kind, dtype, from, a, b, c, &y) ? y : n->map(kind, a, b);
}

void number_map_row(const Numbers *n, OpKind kind, DType dtype, DType from, Row y, const Row x[3], int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!map_otherwise(n, kind, dtype, from, x[0].at[i * x[0].step], x[1].at[i * x[1].step], x[2].at[i * x[2].step],
                           &y.at[i * y.step])) {
            n->map_row(kind, y, x[0], x[1], count); /* so do all */
            return;
        }
}

bool number_fits(DType dtype, double x)
{
    if (dtype == I32)
        return x >= INT32_MIN && x <= INT32_MAX && x == trunc(x);
    return dtype != BOOL || x == 0 || x == 1;
}

double number_start(OpKind reduction, DType dtype)
{
    if (reduction == OP_max)
        return dtype == I32 ? INT32_MIN : dtype == BOOL ? 0 : -INFINITY;
    if (reduction == OP_min)
        return dtype == I32 ? INT32_MAX : dtype == BOOL ? 1 : INFINITY;
    return 0;
}

void philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4])
{
    uint32_t k0 = key[0], k1 = key[1];
    for (int i = 0; i < 4; i++)
        out[i] = counter[i];
    for (int round = 0; round < 10; round++) {
        uint64_t p = (uint64_t)0xD2511F53u * out[0], q = (uint64_t)0xCD9E8D57u * out[2];
        uint32_t x1 = out[1], x3 = out[3];
        out[0] = (uint32_t)(q >> 32) ^ x1 ^ k0;
        out[1] = (uint32_t)q;
        out[2] = (uint32_t)(p >> 32) ^ x3 ^ k1;
        out[3] = (uint32_t)p;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

uint32_t fold_key(uint32_t key, uint32_t i)
{
    uint32_t out[4];
    philox((uint32_t[]){ key, 0x6b657973u /* "keys" */ }, (uint32_t[]){ i, 0, 1, 0 }, out);
    return out[0];
}

bool is_dropped(uint32_t key, uint32_t instance, uint64_t index, double rate)
{
    uint32_t out[4];
    philox((uint32_t[]){ key, instance }, (uint32_t[]){ (uint32_t)index, (uint32_t)(index >> 32), 0, 0 }, out);
    return (double)(out[0] >> 8) / 16777216.0 < rate;
}

double hashed_number(uint64_t seed, uint64_t index) /* splitmix64 */
{
    uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

uint64_t hash_of_text(const char *text)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}
