/* constants.c -- arithmetic on compile-time numbers.
 *
 * Integers are exact: a quotient that is not an integer, or a result that does not fit in 64 bits, is an error.  But
 * 1 / sqrt(embed) is a number for every embed, also where the root is an integer: who takes a root thinks of fractions.
 */
#include "lowering.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

Constant integer_constant(int64_t value) { return (Constant){ .integer = value, .value = (double)value }; }
Constant real_constant(double value) { return (Constant){ .real = true, .value = value }; }

const char *constant_text(Arena *arena, Constant c)
{
    const char *format = fabs(c.value) < 1e15 && c.value == floor(c.value) ? "%.1f" : "%.15g"; /* real 6: 6.0 */
    return c.real ? arena_text(arena, format, c.value) : arena_text(arena, "%" PRId64, c.integer);
}

typedef const char *Fold(Arena *arena, const Constant a[], Constant *result);

static const char *overflow(Arena *arena, const Constant a[], const char *op)
{
    return arena_text(arena, "%s %s %s does not fit in 64 bits", constant_text(arena, a[0]), op,
                      constant_text(arena, a[1]));
}

/* An operation that is `exact` on two integers and `op` on doubles. */
#define FOLD_EXACT(name, op, exact)                                                                                    \
    static const char *fold_##name(Arena *arena, const Constant a[], Constant *result)                                 \
    {                                                                                                                  \
        int64_t integer;                                                                                               \
        if (a[0].real || a[1].real)                                                                                    \
            *result = real_constant(a[0].value op a[1].value);                                                         \
        else if (exact(a[0].integer, a[1].integer, &integer))                                                          \
            return overflow(arena, a, #op);                                                                            \
        else                                                                                                           \
            *result = integer_constant(integer);                                                                       \
        return NULL;                                                                                                   \
    }
FOLD_EXACT(add, +, __builtin_add_overflow)
FOLD_EXACT(subtract, -, __builtin_sub_overflow)
FOLD_EXACT(multiply, *, __builtin_mul_overflow)

/* The nearest divisors of `a` below and above `b`. */
const char *division_help(Arena *arena, Constant a, Constant b)
{
    enum { FARTHEST = 100000 };
    if (a.real || b.real || b.integer <= 0 || a.integer <= 0)
        return NULL;
    int64_t below = b.integer, above = b.integer;
    while (a.integer % below != 0 && b.integer - below < FARTHEST)
        below--;
    while (above < a.integer && a.integer % above != 0 && above - b.integer < FARTHEST)
        above++;
    const char *fraction = arena_text(arena,
                                      "%" PRId64 ".0 / %" PRId64 " is a fraction, (%" PRId64 " - %" PRId64
                                      " %% %" PRId64 ") / %" PRId64 " rounds down",
                                      a.integer, b.integer, a.integer, a.integer, b.integer, b.integer);
    if (a.integer % below != 0 || above > a.integer || a.integer % above != 0)
        return fraction;
    return arena_text(arena, "%" PRId64 " divides by %" PRId64 " and by %" PRId64 "; %s", a.integer, below, above,
                      fraction);
}

static const char *fold_divide(Arena *arena, const Constant a[], Constant *result)
{
    if (a[1].value == 0)
        return arena_text(arena, "division of %s by zero", constant_text(arena, a[0]));
    if (a[0].real || a[1].real) {
        *result = real_constant(a[0].value / a[1].value);
        return NULL;
    }
    if (a[1].integer == -1)
        return fold_multiply(arena, a, result);
    if (a[0].integer % a[1].integer != 0 && (a[0].rooted || a[1].rooted)) {
        *result = real_constant(a[0].value / a[1].value);
        return NULL;
    }
    if (a[0].integer % a[1].integer != 0)
        return arena_text(arena, "%" PRId64 " / %" PRId64 " is not an integer: %" PRId64 " does not divide %" PRId64,
                          a[0].integer, a[1].integer, a[1].integer, a[0].integer);
    *result = integer_constant(a[0].integer / a[1].integer);
    return NULL;
}

static const char *fold_remainder(Arena *arena, const Constant a[], Constant *result)
{
    if (a[0].real || a[1].real)
        return "'%' takes two integers";
    if (a[1].integer == 0)
        return arena_text(arena, "division of %" PRId64 " by zero", a[0].integer);
    *result = integer_constant(a[1].integer == -1 ? 0 : a[0].integer % a[1].integer);
    return NULL;
}

static const char *fold_power(Arena *arena, const Constant a[], Constant *result)
{
    if (a[0].real || a[1].real || a[1].integer < 0) {
        *result = real_constant(pow(a[0].value, a[1].value));
        return NULL;
    }
    int64_t base = a[0].integer, power = 1;
    for (int64_t n = a[1].integer; n > 0 && power != 0 && !(power == 1 && base == 1); n--) {
        if (base == -1) {
            power = n % 2 ? -power : power;
            break;
        }
        if (__builtin_mul_overflow(power, base, &power))
            return overflow(arena, a, "^");
    }
    *result = integer_constant(power);
    return NULL;
}

static const char *fold_sqrt(Arena *arena, const Constant a[], Constant *result)
{
    if (a[0].value < 0)
        return arena_text(arena, "the square root of %s is not a number", constant_text(arena, a[0]));
    *result = real_constant(sqrt(a[0].value));
    if (!a[0].real && result->value == floor(result->value)) {
        *result = integer_constant((int64_t)result->value);
        result->rooted = true;
    }
    return NULL;
}

static const char *fold_log(Arena *arena, const Constant a[], Constant *result)
{
    if (a[0].value <= 0)
        return arena_text(arena, "the logarithm of %s is not a number", constant_text(arena, a[0]));
    *result = real_constant(log(a[0].value));
    return NULL;
}

/* Comparisons are 1 or 0. */
#define COMPARISON(name, sign)                                                                                         \
    static const char *fold_##name(Arena *arena, const Constant a[], Constant *result)                                 \
    {                                                                                                                  \
        *result = integer_constant(a[0].value sign a[1].value);                                                        \
        return NULL;                                                                                                   \
    }
COMPARISON(lt, <)
COMPARISON(le, <=)
COMPARISON(gt, >)
COMPARISON(ge, >=)
COMPARISON(eq, ==)
COMPARISON(ne, !=)

static const char *fold_minimum(Arena *arena, const Constant a[], Constant *result)
{
    *result = a[0].value < a[1].value ? a[0] : a[1];
    return NULL;
}

static const char *fold_maximum(Arena *arena, const Constant a[], Constant *result)
{
    *result = a[0].value > a[1].value ? a[0] : a[1];
    return NULL;
}

static const struct {
    const char *name;
    int args;
    Fold *fold;
} folds_of[] = {
    { "+", 2, fold_add },
    { "-", 2, fold_subtract },
    { "*", 2, fold_multiply },
    { "/", 2, fold_divide },
    { "^", 2, fold_power },
    { "%", 2, fold_remainder },
    { "minimum", 2, fold_minimum },
    { "maximum", 2, fold_maximum },
    { "sqrt", 1, fold_sqrt },
    { "log", 1, fold_log },
    { "<", 2, fold_lt },
    { "<=", 2, fold_le },
    { ">", 2, fold_gt },
    { ">=", 2, fold_ge },
    { "==", 2, fold_eq },
    { "!=", 2, fold_ne },
};
enum { N_FOLDS = sizeof folds_of / sizeof folds_of[0] };

static int find_fold(const char *name)
{
    int i = 0;
    while (i < N_FOLDS && strcmp(folds_of[i].name, name) != 0)
        i++;
    return i;
}

bool may_be_folded(const char *name) { return find_fold(name) < N_FOLDS; }

/* The error for a result that is NaN or infinite. */
static const char *no_number(Arena *arena, const char *op, int n, const Constant args[], Constant result)
{
    bool was_infinite = false;
    for (int i = 0; i < n; i++)
        was_infinite |= isinf(args[i].value);
    if (!isnan(result.value) && (was_infinite || !isinf(result.value)))
        return NULL;
    const char *what = isnan(result.value) ? "is not a number" : "is too large";
    return n == 2 ? arena_text(arena, "%s %s %s %s", constant_text(arena, args[0]), op, constant_text(arena, args[1]),
                               what)
                  : arena_text(arena, "%s of %s %s", op, constant_text(arena, args[0]), what);
}

const char *fold_constants(Arena *arena, const char *op, int n, const Constant args[], Constant *result)
{
    int i = find_fold(op);
    if (i < N_FOLDS && n == 1 && strcmp(op, "-") == 0) {
        const Constant from_zero[] = { integer_constant(0), args[0] };
        const char *overflows = args[0].real ? NULL : fold_subtract(arena, from_zero, result);
        *result = args[0].real ? real_constant(-args[0].value) : *result;
        result->rooted = args[0].rooted;
        return overflows;
    }
    if (i == N_FOLDS)
        return arena_text(arena, "'%s' is not allowed in a constant expression", op);
    if (n != folds_of[i].args)
        return arena_text(arena, "'%s' takes %d number%s, not %d", op, folds_of[i].args,
                          folds_of[i].args == 1 ? "" : "s", n);
    const char *problem = folds_of[i].fold(arena, args, result);
    for (int k = 0; k < n && !problem; k++)
        result->rooted |= args[k].rooted && !result->real;
    return problem ? problem : no_number(arena, op, n, args, *result);
}
