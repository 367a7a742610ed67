/* interp_exact.c -- the reference interpreter modulo a prime.
 *
 * Sums and products of residues are exact and independent of order, so that a program and its distributed form are
 * equal, not only close: a missing, doubled or misplaced sum, a sum in place of a mean, another random number cannot
 * hide in a tolerance.  Functions that are not polynomials are uninterpreted: a keyed hash of its operand, so that
 * equal operands give equal results, and different operands different results except with probability 2^-50.  Its
 * derivative is another uninterpreted function: whether a gradient is that of its function is checked with reals.  (Wu
 * et al., "Mirage", arXiv 2405.05751, compares kernels like this; there exp keeps its algebra, which no pass here
 * uses.)
 *
 *   real constants      exactly the fraction that a double is: m 2^e
 *   division            by the modular inverse; 1 / sqrt(x) is rsqrt(x)
 *   order               that of a hash, so that equal comparisons have equal results; but of
 *                       maximum(x, 1) and minimum(x, 1) the result is x, so that clipping always shows
 *   log-sum-exp         its sum of exponentials, which stands for it in lse_add and lse_share
 *   +-infinity          represent themselves and the largest floats: masked elements have no
 *                       weight
 *   cast to i32         of integers below 2^31 only: others cannot be modelled
 */
#include "interp_number.h"

#include <float.h>

/* The largest prime below 2^50: a residue is an integer double, and the quotient of a product fits into one. */
#define PRIME ((UINT64_C(1) << 50) - 27)

/* Only for numbers that are not negative: the processor converts to signed numbers alone. */
static uint64_t whole(double x) { return (uint64_t)(int64_t)x; }

static double sum_of(double a, double b)
{
    if (!isfinite(a) || !isfinite(b))
        return a + b;
    double sum = a + b;
    return sum >= (double)PRIME ? sum - (double)PRIME : sum;
}

static double opposite(double a) { return a == 0 || !isfinite(a) ? -a + 0 : (double)PRIME - a; }

/* The quotient of doubles has an error below 1, so the remainder has an error below the prime. */
static double product_of(double a, double b)
{
    if (!isfinite(a) || !isfinite(b))
        return a * b;
    uint64_t quotient = whole(a * b * (1.0 / (double)PRIME)); /* within 2: faster than a division */
    int64_t left = (int64_t)(whole(a) * whole(b) - quotient * PRIME);
    while (left < 0)
        left += (int64_t)PRIME;
    while (left >= (int64_t)PRIME)
        left -= (int64_t)PRIME;
    return (double)left;
}

static double power_of(double a, uint64_t exponent)
{
    double power = 1;
    for (; exponent; exponent >>= 1) {
        if (exponent & 1)
            power = product_of(power, a);
        a = product_of(a, a);
    }
    return power;
}

/* By Euclid's algorithm, in which `of_next` a is `next` modulo the prime; 0 has no inverse. */
static double inverse_of(double a)
{
    if (a == 0 || !isfinite(a))
        return 1 / a;
    int64_t last = (int64_t)PRIME, next = (int64_t)a, of_last = 0, of_next = 1;
    while (next) {
        const int64_t quotient = last / next, left = last - quotient * next, of_left = of_last - quotient * of_next;
        last = next, next = left;
        of_last = of_next, of_next = of_left;
    }
    return (double)(of_last < 0 ? of_last + (int64_t)PRIME : of_last);
}

static uint64_t mixed(uint64_t z) /* splitmix64, one to one */
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* An uninterpreted function for each kind; never 0, so that division by it is defined. */
static double unknown(OpKind kind, double a)
{
    uint64_t hash = mixed(mixed(whole(a) + 0x9E3779B97F4A7C15u) + (uint64_t)kind);
    return (double)(1 + hash % (PRIME - 1));
}

static double exponential(double a) { return isinf(a) ? exp(a) : unknown(OP_exp, a); }

/* --- Order ------------------------------------------------------------------------------------------ */

static bool is_less(double a, double b)
{
    if (!isfinite(a) || !isfinite(b))
        return (isfinite(a) ? 0 : a) < (isfinite(b) ? 0 : b);
    return mixed(whole(a)) < mixed(whole(b));
}

static double larger_of(double a, double b) { return is_less(a, b) ? b : a; }
static double smaller_of(double a, double b) { return is_less(b, a) ? b : a; }

static double but_one(double a, double b, double chosen) { return a == 1 ? b : b == 1 ? a : chosen; }

static double sign_of(double a) { return a == 0 ? 0 : is_less(a, 0) ? opposite(1) : 1; }

/* --- The table ---------------------------------------------------------------------------------------- */

static double of_real(double x)
{
    int exponent;
    if (fabs(x) >= FLT_MAX)
        return x < 0 ? -INFINITY : INFINITY;
    if (fabs(x) < (double)PRIME && x == rint(x))
        return x < 0 ? opposite(-x) : x + 0;                /* without the sign of zero */
    double mantissa = ldexp(frexp(fabs(x), &exponent), 53); /* whole */
    exponent -= 53;
    const double half = (double)((PRIME + 1) / 2);
    double scale = exponent < 0 ? power_of(half, (uint64_t)-exponent) : power_of(2, (uint64_t)exponent);
    double residue = product_of((double)(whole(mantissa) % PRIME), scale);
    return x < 0 ? opposite(residue) : residue;
}

static double to_real(double x)
{
    const double most = 2147483648.0;
    return x < most ? x : x >= (double)PRIME - most && isfinite(x) ? x - (double)PRIME : NAN;
}

static double power(double a, double b)
{
    return b == 2              ? product_of(a, a)
           : b == 1            ? a
           : b == of_real(0.5) ? unknown(OP_sqrt, a)
                               : unknown(OP_pow, sum_of(a, unknown(OP_pow, b)));
}

static double map_residue(OpKind kind, double a, double b)
{
    switch (kind) {
    case OP_add:
        return sum_of(a, b);
    case OP_sub:
        return sum_of(a, opposite(b));
    case OP_mul:
        return product_of(a, b);
    case OP_div:
        return product_of(a, inverse_of(b));
    case OP_pow:
        return power(a, b);
    case OP_maximum:
        return but_one(a, b, larger_of(a, b));
    case OP_minimum:
        return but_one(a, b, smaller_of(a, b));
    case OP_round_bf16:
    case OP_round_f16:
    case OP_round_e4m3:
        return a;
    case OP_neg:
        return opposite(a);
    case OP_abs:
        return product_of(a, sign_of(a));
    case OP_sign:
        return sign_of(a);
    case OP_square:
        return product_of(a, a);
    case OP_rsqrt:
        return inverse_of(unknown(OP_sqrt, a));
    case OP_exp:
        return exponential(a);
    case OP_lse_add: /* of sums of exponentials */
        return sum_of(a, b);
    case OP_lse_share:
        return a == 0 ? 0 : product_of(a, inverse_of(b));
    case OP_relu:
        return larger_of(a, 0);
    default:
        return isfinite(a) ? unknown(kind, a) : NAN;
    }
}

static double multiply_add(double sum, double a, double b) { return sum_of(sum, product_of(a, b)); }

MAP_ROW(map_residues, map_residue)
MULTIPLY_ADD_ROW(multiply_add_row, multiply_add)

static double scattered(double u) { return floor(u * (double)PRIME); }

const Numbers residues = { .of = of_real,
                           .to_real = to_real,
                           .map = map_residue,
                           .is_less = is_less,
                           .add = sum_of,
                           .multiply_add = multiply_add,
                           .map_row = map_residues,
                           .multiply_add_row = multiply_add_row,
                           .scattered = scattered,
                           .keeps_sums = true,
                           .tolerance = 0 };
