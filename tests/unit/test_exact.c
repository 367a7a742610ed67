/* test_exact.c -- residues modulo a prime: the field, uninterpreted functions, and equality of exact runs. */
#include "ir_test.h"

#include "interp/interp_number.h"

#include <math.h>

static double map(OpKind kind, double a, double b) { return residues.map(kind, a, b); }

/* Of fractions m / 2^k sums, differences and products are those of the reals, and quotients undo products. */
static void test_field(void **state)
{
    for (uint64_t i = 0; i < 2000; i++) {
        double x = round(hashed_number(1, i) * 4096 - 2048) / 64, y = round(hashed_number(2, i) * 4096 - 2048) / 32;
        double a = residues.of(x), b = residues.of(y), c = floor(hashed_number(3, i) * 1125899906842597.0);
        assert_true(map(OP_add, a, b) == residues.of(x + y));
        assert_true(map(OP_sub, a, b) == residues.of(x - y));
        assert_true(map(OP_mul, a, b) == residues.of(x * y));
        assert_true(map(OP_neg, a, 0) == residues.of(-x));
        assert_true(map(OP_square, a, 0) == residues.of(x * x));
        assert_true(residues.multiply_add(c, a, b) == map(OP_add, c, residues.of(x * y)));
        assert_true(map(OP_mul, map(OP_add, a, c), b) == map(OP_add, map(OP_mul, a, b), map(OP_mul, c, b)));
        assert_true(b == 0 || map(OP_mul, map(OP_div, c, b), b) == c);
    }
    assert_true(residues.of(1) == 1 && residues.of(0) == 0 && residues.of(-0.0) == 0);
    assert_true(map(OP_mul, residues.of(0.1), residues.of(10)) != 1); /* a double is not 1/10, and this shows it */
}

static void test_whole_numbers(void **state)
{
    for (int i = -5; i <= 5; i++)
        assert_true(residues.to_real(residues.of(i)) == i);
    assert_true(isnan(residues.to_real(residues.of(0.5))));
}

/* Expressions equal under `simplify` are equal. */
static void test_functions(void **state)
{
    for (uint64_t i = 0; i < 100; i++) {
        double a = floor(hashed_number(4, i) * 1e15), b = floor(hashed_number(5, i) * 1e15);
        assert_true(map(OP_pow, a, residues.of(2)) == map(OP_square, a, 0));
        assert_true(map(OP_pow, a, residues.of(0.5)) == map(OP_sqrt, a, 0));
        assert_true(map(OP_rsqrt, a, 0) == map(OP_div, 1, map(OP_sqrt, a, 0)));
        assert_true(map(OP_tanh, a, 0) == map(OP_tanh, a, 0) && map(OP_tanh, a, 0) != map(OP_tanh, b, 0));
        assert_true(map(OP_tanh, a, 0) != map(OP_exp, a, 0));
        assert_true(residues.is_less(a, b) != residues.is_less(b, a));
        assert_true(map(OP_minimum, a, 1) == a && map(OP_minimum, 1, a) == a && map(OP_maximum, a, 1) == a);
    }
    assert_true(map(OP_exp, residues.of(-INFINITY), 0) == 0);
    assert_true(residues.is_less(-INFINITY, 5) && residues.is_less(5, INFINITY));
}

/* @f on random residues for its parameters; its result's first element, or NaN if it cannot be run. */
static double run(const char *body)
{
    char text[2000];
    snprintf(text, sizeof text, "module @m { mesh dp=2 func @f(%%x: f32[i:8/dp], %%y: f32[i:8], %%n: f32[]) { %s } }",
             body);
    Text *t = good_text(text);
    const Func *f = find_func(t->m, intern_text(t->m, "f"));
    Tensor args[3], result;
    for (int i = 0; i < 3; i++) {
        args[i] = random_tensor(f->params.at[i]->name, &f->params.at[i]->type, -1, 1);
        make_exact(&args[i]);
    }
    bool good = interpret_with(t->m, f, args, &result, &(RunOptions){ .exact = true });
    double first = good ? result.data[0] : NAN;
    if (good)
        free_tensors(&result, 1);
    free_tensors(args, 3);
    free_text(t);
    return first;
}

#define SUM "%1 = square %x : f32[i:8/dp] %2 = sum %1 {over=i} : f32[] partial(dp) "

/* Equal for equivalent programs in any form; else different. */
static void test_runs(void **state)
{
    double sum = run(SUM "%3 = all_reduce %2 {axis=dp} : f32[] return %3");
    assert_true(sum == run("%0 = all_gather %x {axis=dp, dim=i} : f32[i:8] %1 = square %0 : f32[i:8]"
                           "%2 = sum %1 {over=i} : f32[] return %2"));
    assert_true(sum == run("%0 = all_gather %x {axis=dp, dim=i} : f32[i:8]"
                           "%1 = dot %0, %0 {over=i} : f32[] return %1"));
    assert_true(sum == run(SUM "return %2")); /* pending: what it denotes is the sum */
    assert_true(sum != run(SUM "%3 = all_reduce %2 {axis=dp} : f32[] %4 = add %3, %3 : f32[] return %4"));
    assert_true(sum != run(SUM "%3 = all_reduce %2 {axis=dp} : f32[] %c = constant {value=0.5} : f32[]"
                               "%4 = mul %3, %c : f32[] return %4"));
    double max = run("%1 = max %x {over=i} : f32[] partial_max(dp) %2 = all_reduce %1 {axis=dp} : f32[] return %2");
    assert_true(max == run("%0 = all_gather %x {axis=dp, dim=i} : f32[i:8] %1 = max %0 {over=i} : f32[] return %1"));
    assert_true(max == run("%0 = all_gather %x {axis=dp, dim=i} : f32[i:8] %1 = neg %0 : f32[i:8]"
                           "%2 = neg %1 : f32[i:8] %3 = max %2 {over=i} : f32[] return %3"));
    assert_true(isnan(run("%1 = cast %y {dtype=i32} : i32[i:8] return %1")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_field),
        cmocka_unit_test(test_whole_numbers),
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
