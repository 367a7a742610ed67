/* interp_number.h -- all arithmetic of the reference interpreter on elements of tensors.
 *
 * Elements are doubles: floats of any width without rounding, i32 and bool as integers.  The rest of the interpreter
 * uses only these functions, the positions of elements, and addition.
 */
#ifndef MPC_INTERP_NUMBER_H
#define MPC_INTERP_NUMBER_H

#include "ir.h"

#include <math.h>

/* Elements that lie in equal steps. */
typedef struct {
    double *at;
    int64_t step;
} Row;

/* The representation of floats: reals, reals with the program's own rounding, or residues modulo a prime
 * (interp_exact.c).  Nothing else differs between runs. */
typedef struct {
    double (*of)(double real);   /* of a constant of the program */
    double (*to_real)(double x); /* NaN if it represents no integer */
    double (*map)(OpKind kind, double a, double b);
    bool (*is_less)(double a, double b);
    double (*add)(double a, double b);
    double (*multiply_add)(double sum, double a, double b);
    /* The same of rows: most of all arithmetic, so that a call for each element would take longer than it. */
    void (*map_row)(OpKind kind, Row y, Row a, Row b, int64_t count);
    void (*multiply_add_row)(Row sum, Row a, Row b, int64_t count);
    double (*scattered)(double u); /* an arbitrary number, from one in [0, 1) */
    bool keeps_sums;               /* a log-sum-exp is represented by its sum: exp has no algebra */
    double tolerance;              /* permitted relative difference of replicated shards */
} Numbers;

extern const Numbers reals, rounding_reals, residues;

/* One element of a pointwise op with a result of `dtype`, whose first operand is of `from`.  NaN where an integer op is
 * undefined. */
double number_map(const Numbers *n, OpKind kind, DType dtype, DType from, double a, double b, double c);

/* A row of them; operands that there are not are rows, too, of any number. */
void number_map_row(const Numbers *n, OpKind kind, DType dtype, DType from, Row y, const Row x[3], int64_t count);

/* Is it a value of the dtype? */
bool number_fits(DType dtype, double x);

/* The neutral element of a reduction. */
double number_start(OpKind reduction, DType dtype);

/* acc + x, max(acc, x) or min(acc, x). */
static inline double number_reduce(const Numbers *n, OpKind reduction, DType dtype, double acc, double x)
{
    if (reduction == OP_max || reduction == OP_min) {
        bool less = is_float(dtype) ? n->is_less(acc, x) : acc < x;
        return isnan(acc) || (less == (reduction == OP_max) && acc != x && !isnan(x)) ? x : acc;
    }
    return dtype == I32 ? number_map(n, OP_add, I32, I32, acc, x, 0) : n->add(acc, x);
}

/* The reduction of the terms of a partial tensor. */
static inline OpKind pending(const Type *type) { return type->by == BY_MAX ? OP_max : OP_sum; }

/* acc + a b */
static inline double number_product(const Numbers *n, DType dtype, double acc, double a, double b)
{
    return dtype == I32 ? number_map(n, OP_add, I32, I32, acc, number_map(n, OP_mul, I32, I32, a, b, 0), 0)
                        : n->multiply_add(acc, a, b);
}

static inline void number_product_row(const Numbers *n, DType dtype, Row acc, Row a, Row b, int64_t count)
{
    if (dtype != I32)
        n->multiply_add_row(acc, a, b, count);
    for (int64_t i = 0; i < count && dtype == I32; i++)
        acc.at[i * acc.step] = number_product(n, I32, acc.at[i * acc.step], a.at[i * a.step], b.at[i * b.step]);
}

/* The functions of rows, from those of elements. */
#define MAP_ROW(name, map_of_one)                                                                                      \
    static void name(OpKind kind, Row y, Row a, Row b, int64_t count)                                                  \
    {                                                                                                                  \
        for (; count > 0; count--, y.at += y.step, a.at += a.step, b.at += b.step)                                     \
            *y.at = map_of_one(kind, *a.at, *b.at);                                                                    \
    }
#define MULTIPLY_ADD_ROW(name, multiply_add_of_one)                                                                    \
    static void name(Row sum, Row a, Row b, int64_t count)                                                             \
    {                                                                                                                  \
        for (; count > 0; count--, sum.at += sum.step, a.at += a.step, b.at += b.step)                                 \
            *sum.at = multiply_add_of_one(*sum.at, *a.at, *b.at);                                                      \
    }

uint32_t fold_key(uint32_t key, uint32_t i);

/* Is the element of that index dropped? */
bool is_dropped(uint32_t key, uint32_t instance, uint64_t index, double rate);

/* A number in [0, 1) that depends on both. */
double hashed_number(uint64_t seed, uint64_t index);
uint64_t hash_of_text(const char *text);

#endif
