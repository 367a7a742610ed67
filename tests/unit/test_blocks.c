/* test_blocks.c -- the interpreter's dot_e4m3: the dot of two operands that are others rounded in blocks, by an
 * independent rule; NaN where they are not. */
#include "ir_test.h"

#include <math.h>

enum { TERMS = 256, COLUMNS = 128, BLOCK = 128 };

static const char program[] =
    "module @m { func @f(%a: bf16[j:256], %b: bf16[j:256, k:128], %x: bf16[j:256], %y: bf16[j:256, k:128]) {"
    "  %c = dot_e4m3 %a, %b, %x, %y {over=j, dim=j, fp8=rounded, across=k} : bf16[k:128] return %c } }";

typedef struct {
    double a[TERMS], b[TERMS * COLUMNS], x[TERMS], y[TERMS * COLUMNS];
} Operands;

/* Three bits of fraction, exponents from -6 on, of numbers that a power of two brings to at most 448. */
static double rounded(double x, double largest)
{
    const double scale = exp2(floor(log2(448 / largest))), scaled = x * scale;
    const double unit = exp2(fmax(floor(log2(fabs(scaled) + 1e-300)), -6) - 3);
    return rint(scaled / unit) * unit / scale;
}

/* Rounds a block of numbers that are `step` apart, each with `width` neighbours. */
static void round_block(double *to, const double *from, int step, int width)
{
    double largest = 0;
    for (int i = 0; i < BLOCK; i++)
        for (int k = 0; k < width; k++)
            largest = fmax(largest, fabs(from[i * step + k]));
    for (int i = 0; i < BLOCK; i++)
        for (int k = 0; k < width; k++)
            to[i * step + k] = rounded(from[i * step + k], largest);
}

/* Numbers of 8 bits of very different sizes, and what they are rounded to: x in runs, y in squares. */
static Operands *new_operands(void)
{
    Operands *o = calloc(1, sizeof *o);
    assert_non_null(o);
    srand(7);
    for (int i = 0; i < TERMS; i++)
        o->x[i] = ldexp(rand() % 255 - 127, -(rand() % 20));
    for (int i = 0; i < TERMS * COLUMNS; i++)
        o->y[i] = ldexp(rand() % 255 - 127, -(rand() % 20) - i % 2 * 12);
    for (int block = 0; block < TERMS; block += BLOCK) {
        round_block(&o->a[block], &o->x[block], 1, 1);
        round_block(&o->b[block * COLUMNS], &o->y[block * COLUMNS], COLUMNS, COLUMNS);
    }
    return o;
}

/* Is the result that of a and b?  Else it must be no number at all. */
static bool is_dot(Operands *o, bool rounds)
{
    Text *t = good_text(program);
    const Func *f = find_func(t->m, intern_text(t->m, "f"));
    double *const given[] = { o->a, o->b, o->x, o->y };
    Tensor args[4], y;
    for (int i = 0; i < 4; i++) {
        args[i] = new_tensor(&f->params.at[i]->type);
        memcpy(args[i].data, given[i], (size_t)element_count(&args[i].type) * sizeof(double));
    }
    if (!interpret_with(t->m, f, args, &y, &(RunOptions){ .rounds = rounds }))
        fail_msg("%s", said(t));
    const bool is_number = !isnan(y.data[0]);
    for (int k = 0; k < COLUMNS; k++) {
        double sum = 0;
        for (int j = 0; j < TERMS; j++)
            sum += o->a[j] * o->b[j * COLUMNS + k];
        assert_true(is_number ? fabs(y.data[k] - sum) <= 1e-9 * (1 + fabs(sum)) : isnan(y.data[k]));
    }
    free_tensors(args, 4);
    free_tensors(&y, 1);
    free_text(t);
    return is_number;
}

static void test_rounded_in_blocks(void **state)
{
    Operands *o = new_operands();
    assert_true(is_dot(o, true));
    o->a[200] += ldexp(1, -40); /* it is another number */
    assert_false(is_dot(o, true));
    free(o);
}

static void test_rounded_otherwise(void **state)
{
    Operands *o = new_operands();
    for (int block = 0; block < TERMS; block += BLOCK)
        for (int k = 0; k < COLUMNS; k++) /* runs, not squares */
            round_block(&o->b[block * COLUMNS + k], &o->y[block * COLUMNS + k], COLUMNS, 1);
    assert_false(is_dot(o, true));
    free(o);
}

static void test_reals(void **state)
{
    Operands *o = new_operands();
    assert_false(is_dot(o, false)); /* which do not round */
    memcpy(o->a, o->x, sizeof o->a);
    memcpy(o->b, o->y, sizeof o->b);
    assert_true(is_dot(o, false));
    o->x[3] = -o->x[3] + 1;
    assert_false(is_dot(o, false));
    free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rounded_in_blocks),
                                        cmocka_unit_test(test_rounded_otherwise), cmocka_unit_test(test_reals) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
