/* test_autodiff.c -- the gradients of a whole training step against finite differences of the model.
 *
 * The model has the difficult cases of autodiff: nested loops, a scan, a weight used in two places, a weight and a mask
 * key shared by all iterations, dropout, attention, a divisor that depends on the data, two micro-batches.  With plain
 * gradient descent of rate 1, a step gives w - gradient.
 */
#include "ir_test.h"

#include <math.h>

void pass_autodiff(Module *m);

/* What @h scans. */
static const char SCAN_TEXT[] =
    "  func @h.scan(%s: f32[batch:2, ff:6], %row: f32[batch:2, embed:4], %w: f32[embed:4, ff:6]) {\n"
    "    %0 = dot %row, %w {over=embed} : f32[batch:2, ff:6]\n"
    "    %1 = add %0, %s : f32[batch:2, ff:6]\n"
    "    %2 = tanh %1 : f32[batch:2, ff:6]\n"
    "    return %2, %2\n"
    "  }\n";

#define X "f32[batch:2, seq:4, embed:4]"
static const char MODEL_TEXT[] =
    "module @t {\n"
    "  batch batch\n"
    "  train {optimizer=sgd, lr=1, batch=%d, microbatch=2, recompute=none}\n"
    "  input %%tokens : i32[batch:2, seq:4] shift(0) vocab(5)\n"
    "  input %%labels : i32[batch:2, seq:4] of(%%tokens) shift(1) vocab(5)\n"
    "  param %%wte wte : f32[vocab:5, embed:4] = normal(1, 0)\n"
    "  param %%h.w h.*.w : f32[h.copy:2, embed:4, ff:6] = normal(1, 0)\n"
    "  param %%h.in.v h.*.in.*.v : f32[h.copy:2, in.copy:3, embed:4] = normal(1, 0)\n"
    "  param %%g g : f32[embed:4] = normal(1, 0)\n"
    "  func model @t(%%tokens: i32[batch:2, seq:4], %%labels: i32[batch:2, seq:4], %%key: i32[] as key, %%origin: "
    "i32[] as origin,\n"
    "      %%total.0: f32[] as total(0), %%wte: f32[vocab:5, embed:4], %%h.w: f32[h.copy:2, embed:4, ff:6],\n"
    "      %%h.in.v: f32[h.copy:2, in.copy:3, embed:4], %%g: f32[embed:4]) {\n"
    "    %%x = gather %%wte, %%tokens {dim=vocab} : " X "\n"
    "    %%i = iota {dims=[h.copy:2]} : i32[h.copy:2]\n"
    "    %%keys = fold_key %%key, %%i : i32[h.copy:2]\n"
    "    %%y = loop %%x, %%h.w, %%h.in.v, %%keys, %%origin, %%g {dims=[h.copy:2], callee=h, carried=1} : " X "\n"
    "    %%logits = dot %%y, %%wte {over=embed} : f32[batch:2, seq:4, vocab:5]\n"
    "    %%top = max %%logits {over=vocab} : f32[batch:2, seq:4]\n"
    "    %%stop = stop_gradient %%top : f32[batch:2, seq:4]\n"
    "    %%low = sub %%logits, %%stop : f32[batch:2, seq:4, vocab:5]\n"
    "    %%exp = exp %%low : f32[batch:2, seq:4, vocab:5]\n"
    "    %%sum = sum %%exp {over=vocab} : f32[batch:2, seq:4]\n"
    "    %%log = log %%sum : f32[batch:2, seq:4]\n"
    "    %%v = iota {dims=[vocab:5]} : i32[vocab:5]\n"
    "    %%is = eq %%labels, %%v : bool[batch:2, seq:4, vocab:5]\n"
    "    %%0 = constant : f32[]\n"
    "    %%at = where %%is, %%low, %%0 : f32[batch:2, seq:4, vocab:5]\n"
    "    %%own = sum %%at {over=vocab} : f32[batch:2, seq:4]\n"
    "    %%ce = sub %%log, %%own : f32[batch:2, seq:4]\n"
    "    %%ignore = constant {dtype=i32, value=2} : i32[]\n"
    "    %%counts = ne %%labels, %%ignore : bool[batch:2, seq:4]\n"
    "    %%kept = where %%counts, %%ce, %%0 : f32[batch:2, seq:4]\n"
    "    %%all = sum %%kept {over=batch+seq} : f32[]\n"
    "    %%loss = div %%all, %%total.0 : f32[]\n"
    "    return %%loss\n"
    "  }\n"
    "  func totals @totals(%%labels: i32[batch:2, seq:4]) {\n"
    "    %%ignore = constant {dtype=i32, value=2} : i32[]\n"
    "    %%counts = ne %%labels, %%ignore : bool[batch:2, seq:4]\n"
    "    %%numbers = cast %%counts {dtype=f32} : f32[batch:2, seq:4]\n"
    "    %%total = sum %%numbers {over=batch+seq} : f32[]\n"
    "    return %%total\n"
    "  }\n"
    "  func @h(%%x: " X
    ", %%w: f32[embed:4, ff:6], %%v: f32[in.copy:3, embed:4], %%key: i32[] as key, %%origin: i32[] as origin,\n"
    "      %%g: f32[embed:4]) {\n"
    "    %%in = loop %%x, %%v, %%g {dims=[in.copy:3], callee=h.in, carried=1} : " X "\n"
    "    %%rows = reorder %%in {order=seq+batch+embed} : f32[seq:4, batch:2, embed:4]\n"
    "    %%none = constant : f32[]\n"
    "    %%zeros = broadcast %%none {dims=[batch:2, ff:6]} : f32[batch:2, ff:6]\n"
    "    %%last, %%states = loop %%zeros, %%rows, %%w {dims=[seq:4], callee=h.scan, carried=1, scan=true, "
    "reverse=true} : "
    "f32[batch:2, ff:6], f32[seq:4, batch:2, ff:6]\n"
    "    %%back = dot %%states, %%w {over=ff} : f32[seq:4, batch:2, embed:4]\n"
    "    %%mixed = add %%in, %%back : " X "\n"
    "    %%k = rename %%mixed {dim=seq, to=key} : f32[batch:2, key:4, embed:4]\n"
    "    %%y, %%lse = attend %%mixed, %%k, %%k {seq=seq, key=key, feature=embed, causal=true, scale=0.5} : " X
    ", f32[batch:2, seq:4]\n"
    "    %%up = dot %%y, %%w {over=embed} : f32[batch:2, seq:4, ff:6]\n"
    "    %%act = gelu %%up : f32[batch:2, seq:4, ff:6]\n"
    "    %%drop = dropout %%act, %%key, %%origin {rate=0.25, instance=1} : f32[batch:2, seq:4, ff:6]\n"
    "    %%down = dot %%drop, %%w {over=ff} : " X "\n"
    "    %%out = add %%down, %%x : " X "\n"
    "    return %%out\n"
    "  }\n"
    "%s"
    "  func @h.in(%%x: " X ", %%v: f32[embed:4], %%g: f32[embed:4]) {\n"
    "    %%0 = mul %%x, %%v : " X "\n"
    "    %%1 = tanh %%0 : " X "\n"
    "    %%2 = mul %%1, %%g : " X "\n"
    "    %%3 = add %%2, %%x : " X "\n"
    "    return %%3\n"
    "  }\n"
    "}\n";

enum { KEY = 77, TENSORS = 12 };

static Text *read_model(int batch)
{
    static char text[sizeof MODEL_TEXT + sizeof SCAN_TEXT];
    snprintf(text, sizeof text, MODEL_TEXT, batch, SCAN_TEXT);
    return good_text(text);
}

static bool named(const Value *value, const char *name) { return strcmp(value->name, name) == 0; }

/* Tokens are of the whole step: micro-batch `micro` takes its share. */
static Tensor tokens_of(const Value *value, int micro)
{
    Tensor part = new_tensor(&value->type);
    int64_t count = element_count(&value->type);
    Type whole = { .dtype = I32, .rank = 1, .dim = { { .size = 16 } } };
    Tensor all = random_tensor(value->name, &whole, 0, 5);
    memcpy(part.data, all.data + micro * count, (size_t)count * sizeof(double));
    free_tensors(&all, 1);
    return part;
}

static double count_labels(const Func *model, int micros)
{
    double total = 0;
    for (int micro = 0; micro < micros; micro++) {
        Tensor labels = tokens_of(model->params.at[1], micro);
        for (int i = 0; i < 8; i++)
            total += labels.data[i] != 2;
        free_tensors(&labels, 1);
    }
    return total;
}

/* The loss of the whole batch, with element `at` of parameter `p` changed by `h`. */
static double loss(Text *t, int micros, int p, int64_t at, double h)
{
    const Func *f = func_with_role(t->m, MODEL);
    double sum = 0, total = count_labels(f, micros);
    for (int micro = 0; micro < micros; micro++) {
        Tensor args[TENSORS], out;
        for (int i = 0; i < f->params.count; i++) {
            const Value *value = f->params.at[i];
            args[i] = i < 2 ? tokens_of(value, micro) : random_tensor(value->name, &value->type, -1, 1);
            if (i == p)
                args[i].data[at] += h;
            if (named(value, "key") || named(value, "origin") || named(value, "total.0"))
                args[i].data[0] = named(value, "key") ? KEY : named(value, "origin") ? 2 * micro : total;
        }
        if (!interpret(t->m, f, args, &out))
            fail_msg("%s", said(t));
        sum += out.data[0];
        free_tensors(args, f->params.count);
        free_tensors(&out, 1);
    }
    return sum;
}

/* Runs one step; results in the order of @step. */
static void run_step(Text *t, Tensor results[])
{
    const Func *f = func_with_role(t->m, STEP);
    Tensor args[TENSORS];
    for (int i = 0; i < f->params.count; i++) {
        const Value *value = f->params.at[i];
        args[i] = i < 2 ? tokens_of(value, 0) : random_tensor(value->name, &value->type, -1, 1);
        if (named(value, "key") || named(value, "lr") || named(value, "step"))
            args[i].data[0] = named(value, "key") ? KEY : named(value, "lr");
    }
    if (!interpret(t->m, f, args, results))
        fail_msg("%s", said(t));
    free_tensors(args, f->params.count);
}

static void check_gradients(int micros)
{
    const double h = 1e-5;
    Text *t = read_model(2 * micros), *u = read_model(2 * micros);
    pass_autodiff(u->m);
    if (!verify_module(u->m))
        fail_msg("%s", said(u));
    const Func *model = func_with_role(t->m, MODEL), *step = func_with_role(u->m, STEP);
    Tensor after[TENSORS];
    run_step(u, after);
    assert_true(fabs(after[0].data[0] - loss(t, micros, -1, 0, 0)) < 1e-12);
    double squares = 0;
    int checked = 0;
    for (int p = 5; p < model->params.count; p++, checked++) {
        const Value *value = model->params.at[p];
        Tensor numeric = new_tensor(&value->type), built = random_tensor(value->name, &value->type, -1, 1);
        int result = step->results.count - (model->params.count - p);
        for (int64_t i = 0; i < element_count(&value->type); i++) {
            numeric.data[i] = (loss(t, micros, p, i, h) - loss(t, micros, p, i, -h)) / (2 * h);
            built.data[i] -= after[result].data[i];
            squares += built.data[i] * built.data[i];
        }
        Difference d = tensor_difference(&numeric, &built, 0);
        if (!(d.by < 1e-6))
            fail_msg("gradient of %s is off by %g: %.9g, but by differences %.9g", value->name, d.by, d.b, d.a);
        free_tensors((Tensor[]){ numeric, built }, 2);
    }
    assert_int_equal(checked, 4);
    assert_true(fabs(after[1].data[0] - sqrt(squares)) < 1e-9);
    free_tensors(after, step->results.count);
    free_text(t);
    free_text(u);
}

static void test_one_micro_batch(void **state) { check_gradients(1); }
static void test_two_micro_batches(void **state) { check_gradients(2); }

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_one_micro_batch),
                                        cmocka_unit_test(test_two_micro_batches) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
