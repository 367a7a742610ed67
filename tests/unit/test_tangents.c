/* test_tangents.c -- the interpreter's forward mode against finite differences, for every op that has a derivative.
 *
 * All float operands have random tangents; (f(x + h u) - f(x - h u)) / 2h must be the tangents of f's results.
 * --verify-passes checks gradients by forward mode; this checks forward mode, by values only.
 */
#include "op_cases.h"

#include <math.h>

/* These occur only in gradients, or are made behind them, so their derivative is never needed. */
static bool only_in_gradients(OpKind kind)
{
    return kind == OP_gelu_slope || kind == OP_gelu_tanh_slope || kind == OP_attend_grad ||
           kind == OP_attend_bias_grad || kind == OP_lse_add || kind == OP_lse_share || kind == OP_collect ||
           kind == OP_dot_e4m3;
}

static int tested;

static void run(Text *t, const Func *f, const Tensor args[], Tensor results[], const Tangents *tangents)
{
    if (!interpret_with(t->m, f, args, results, &(RunOptions){ .tangents = tangents }))
        fail_msg("%s", said(t));
}

/* The results for operands moved by h along their directions. */
static void run_moved(Text *t, const Func *f, const Tensor args[], const Tensor ways[], double h, Tensor results[])
{
    Tensor moved[MOST_OPERANDS];
    for (int i = 0; i < f->params.count; i++) {
        moved[i] = new_tensor(&args[i].type);
        for (int64_t k = 0; k < element_count(&args[i].type); k++)
            moved[i].data[k] = args[i].data[k] + (ways[i].data ? h * ways[i].data[k] : 0);
    }
    run(t, f, moved, results, NULL);
    free_tensors(moved, f->params.count);
}

/* The log-sum-exp of no keys is minus infinity on both sides. */
static double slope_between(double up, double down, double h) { return up == down ? 0 : (up - down) / (2 * h); }

static void check_func(Text *t, const Func *f, const Tensor args[], const char *what)
{
    const double h = 1e-6;
    Tensor ways[MOST_OPERANDS] = { 0 }, y[3], dy[3], up[3], down[3];
    const int n = f->params.count, nresults = f->results.count;
    for (int i = 0; i < n; i++)
        if (is_float(args[i].type.dtype))
            ways[i] = random_tensor((const char[]){ (char)('p' + i), 0 }, &args[i].type, -1, 1);
    run(t, f, args, y, &(Tangents){ .args = ways, .results = dy });
    run_moved(t, f, args, ways, h, up);
    run_moved(t, f, args, ways, -h, down);
    for (int i = 0; i < nresults; i++) {
        Tensor still = new_tensor(&y[i].type);
        for (int64_t k = 0; k < element_count(&y[i].type); k++)
            up[i].data[k] = slope_between(up[i].data[k], down[i].data[k], h);
        Difference d = tensor_difference(&up[i], dy[i].data ? &dy[i] : &still, 0);
        if (!(d.by < 1e-7))
            fail_msg("%s: result %d moves by %.9g, but by differences %.9g", what, i + 1, d.b, d.a);
        tested += dy[i].data != NULL;
        free_tensors(&still, 1);
    }
    free_tensors(ways, n);
    free_tensors(y, nresults);
    free_tensors(dy, nresults);
    free_tensors(up, nresults);
    free_tensors(down, nresults);
}

static void test_case(const Case *c)
{
    if (op_table[c->kind].family == COLLECTIVE) /* of programs before they are sharded */
        return;
    Trial t = begin_trial(c, "module @m { batch batch }");
    Op *op;
    Func *f = make_func(&t, c, "f", &op);
    Tensor args[MOST_OPERANDS];
    if (!f)
        fail_msg("%s: %s", op_table[c->kind].name, said(t.text));
    if (!only_in_gradients(c->kind) && c->kind != OP_stop_gradient && is_float(result(op)->type.dtype)) {
        random_operands(&t, c, args);
        check_func(t.text, f, args, op_table[c->kind].name);
        free_tensors(args, t.operands);
    }
    free_text(t.text);
}

static void test_every_op(void **state)
{
    each_case(test_case);
    assert_true(tested > 50);
    print_message("%d derivatives agree with finite differences\n", tested);
}

/* A loop that carries, slices, stacks and shares, around a call; stop_gradient has tangent 0. */
static void test_loops(void **state)
{
    Text *t =
        good_text("module @m {\n"
                  "  func @f(%x: f32[i:3], %w: f32[n:4, i:3], %g: f32[]) {\n"
                  "    %y, %all = loop %x, %w, %g {dims=[n:4], callee=body, carried=1} : f32[i:3], f32[n:4, i:3]\n"
                  "    return %y, %all\n"
                  "  }\n"
                  "  func @body(%x: f32[i:3], %w: f32[i:3], %g: f32[]) {\n"
                  "    %u = call %x, %w {callee=mix} : f32[i:3]\n"
                  "    %v = mul %u, %g : f32[i:3]\n"
                  "    return %v, %u\n"
                  "  }\n"
                  "  func @mix(%x: f32[i:3], %w: f32[i:3]) {\n"
                  "    %s = mul %x, %w : f32[i:3]\n"
                  "    %t = tanh %s : f32[i:3]\n"
                  "    %y = add %t, %x : f32[i:3]\n"
                  "    return %y\n"
                  "  }\n"
                  "}\n");
    Tensor args[3];
    for (int i = 0; i < 3; i++)
        args[i] = random_tensor((const char[]){ (char)('a' + i), 0 }, &t->m->funcs->params.at[i]->type, -1, 1);
    check_func(t, t->m->funcs, args, "loop");
    free_tensors(args, 3);
    free_text(t);
}

/* The tangent of the result for one operand of four elements with tangents 1, 2, 3, 4. */
static void check_kink(const char *op, const double *x, const double *expected, int count)
{
    char text[256];
    snprintf(text, sizeof text, "module @m { func @f(%%x: f32[i:4]) { %s return %%y } }", op);
    Text *t = good_text(text);
    const Func *f = t->m->funcs;
    Tensor arg = new_tensor(&f->params.at[0]->type), way = new_tensor(&arg.type), y, dy;
    memcpy(arg.data, x, 4 * sizeof *x);
    memcpy(way.data, ((double[]){ 1, 2, 3, 4 }), 4 * sizeof *x);
    run(t, f, &arg, &y, &(Tangents){ .args = &way, .results = &dy });
    for (int i = 0; i < count; i++)
        if (dy.data ? dy.data[i] != expected[i] : expected[i] != 0)
            fail_msg("%s: element %d moves by %g, not %g", op, i, dy.data ? dy.data[i] : 0, expected[i]);
    free_tensors((Tensor[]){ arg, way, y, dy }, 4);
    free_text(t);
}

/* The conventions of the language where there is no derivative. */
static void test_kinks(void **state)
{
    const double x[4] = { 0, 3, -1, 3 };
    check_kink("%y = max %x {over=i} : f32[]", x, (double[]){ 3 }, 1);
    check_kink("%y = min %x {over=i} : f32[]", x, (double[]){ 3 }, 1);
    check_kink("%y = relu %x : f32[i:4]", x, (double[]){ 0, 2, 0, 4 }, 4);
    check_kink("%y = abs %x : f32[i:4]", x, (double[]){ 0, 2, -3, 4 }, 4);
    check_kink("%y = sign %x : f32[i:4]", x, (double[]){ 0, 0, 0, 0 }, 4);
    check_kink("%y = stop_gradient %x : f32[i:4]", x, (double[]){ 0, 0, 0, 0 }, 4);
    check_kink("%0 = constant {value=3} : f32[] %y = maximum %x, %0 : f32[i:4]", x, (double[]){ 0, 1, 0, 2 }, 4);
    check_kink("%0 = constant : f32[] %y = minimum %x, %0 : f32[i:4]", x, (double[]){ 0.5, 0, 3, 0 }, 4);
}

/* Where exp overflows, functions are straight lines. */
static void test_far_out(void **state)
{
    static const char *const flat[] = { "tanh", "sigmoid" }, *const bent[] = { "softplus", "silu", "gelu",
                                                                               "gelu_tanh" };
    const double x[4] = { -1e4, -800, 800, 1e4 };
    char op[64];
    for (int i = 0; i < 2; i++) {
        snprintf(op, sizeof op, "%%y = %s %%x : f32[i:4]", flat[i]);
        check_kink(op, x, (double[]){ 0, 0, 0, 0 }, 4);
    }
    for (int i = 0; i < 4; i++) {
        snprintf(op, sizeof op, "%%y = %s %%x : f32[i:4]", bent[i]);
        check_kink(op, x, (double[]){ 0, 0, 3, 4 }, 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_op),
        cmocka_unit_test(test_loops),
        cmocka_unit_test(test_kinks),
        cmocka_unit_test(test_far_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
