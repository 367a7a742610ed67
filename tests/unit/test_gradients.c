/* test_gradients.c -- the gradient of every op that has one, for every operand, against finite differences.
 *
 * The gradient that the op's row builds is run through the interpreter and compared with
 * (l(x + h) - l(x - h)) / 2h, where l is the results' sum, weighted at random.
 */
#include "op_cases.h"

#include <math.h>

/* Ops of floats without a gradient for any operand: they have steps instead of slopes, stop gradients, only occur in
 * gradients, or are made behind them.  For any other op, a missing gradient of a float is an error. */
static const OpKind flat[] = { OP_sign,        OP_stop_gradient,    OP_gelu_slope, OP_gelu_tanh_slope,
                               OP_attend_grad, OP_attend_bias_grad, OP_cummax,     OP_top_k,
                               OP_place,       OP_lse_add,          OP_lse_share,  OP_collect,
                               OP_scale_e4m3,  OP_dot_e4m3 };

static bool is_flat(OpKind kind)
{
    for (size_t i = 0; i < sizeof flat / sizeof *flat; i++)
        if (flat[i] == kind)
            return true;
    return false;
}

static int tested[N_OPS];

static int64_t index_in(const Type *type, const Type *space, int64_t at) /* -1: dims that the space lacks */
{
    int64_t place[MAX_RANK], index = 0;
    for (int d = space->rank - 1; d >= 0; d--) {
        place[d] = at % space->dim[d].size;
        at /= space->dim[d].size;
    }
    for (int d = 0; d < type->rank; d++) {
        int in = find_dim(space, type->dim[d].name);
        if (in < 0)
            return -1;
        index = index * type->dim[d].size + place[in];
    }
    return index;
}

/* A gradient may lack dims of its operand (it is the same along them) and have others (over which it is summed): fits
 * it to the operand.  False if it has dims that the op lacks, or a wrong dtype. */
static bool fit_gradient(const Tensor *gradient, const Type *operand, const Type *results, int nresults, Tensor *fitted)
{
    Type space = *operand;
    for (int i = 0; i < gradient->type.rank; i++) {
        const Dim *dim = &gradient->type.dim[i];
        bool known = false;
        for (int r = 0; r <= nresults; r++) {
            const Type *type = r < nresults ? &results[r] : operand;
            int at = find_dim(type, dim->name);
            known |= at >= 0 && type->dim[at].size == dim->size;
        }
        if (!known)
            return false;
        if (find_dim(&space, dim->name) < 0)
            space.dim[space.rank++] = *dim;
    }
    *fitted = new_tensor(operand);
    for (int64_t i = 0; i < element_count(&space); i++)
        fitted->data[index_in(operand, &space, i)] += gradient->data[index_in(&gradient->type, &space, i)];
    return is_float(gradient->type.dtype);
}

static double weighted_sum(Trial *t, const Func *f, const Tensor args[], const Tensor *weight)
{
    Tensor results[3];
    double sum = 0;
    if (!interpret(t->m, f, args, results))
        fail_msg("%s", said(t->text));
    for (int64_t i = 0; i < element_count(&weight->type); i++)
        sum += results[0].data[i] * weight->data[i];
    free_tensors(results, f->results.count);
    return sum;
}

static Tensor numeric_gradient(Trial *t, const Func *f, Tensor args[], int operand, const Tensor *weight)
{
    const double h = 1e-5;
    Tensor gradient = new_tensor(&args[operand].type);
    for (int64_t i = 0; i < element_count(&gradient.type); i++) {
        double *x = &args[operand].data[i], keep = *x;
        *x = keep + h;
        double up = weighted_sum(t, f, args, weight);
        *x = keep - h;
        gradient.data[i] = (up - weighted_sum(t, f, args, weight)) / (2 * h);
        *x = keep;
    }
    return gradient;
}

static void compare(Trial *t, const Case *c, int operand, const Tensor *numeric, const Tensor *built, const Op *op)
{
    Tensor fitted = { .data = NULL };
    Type results[3];
    for (int i = 0; i < op->results.count; i++)
        results[i] = op->results.at[i]->type;
    if (!fit_gradient(built, &t->type[operand], results, op->results.count, &fitted))
        fail_msg("%s %s: the gradient of operand %d is %s, which does not fit %s", op_table[c->kind].name,
                 c->attrs ? c->attrs : "", operand + 1, type_text(t->m, &built->type), c->operand[operand].type);
    Difference d = tensor_difference(numeric, &fitted, 0);
    if (!(d.by < 1e-6))
        fail_msg("%s %s: the gradient of operand %d is off by %g: %.9g, but by differences %.9g",
                 op_table[c->kind].name, c->attrs ? c->attrs : "", operand + 1, d.by, d.b, d.a);
    free_tensors(&fitted, 1);
}

/* Builds a function that computes the op and its gradients; dx[i] is NULL where there is none. */
static Func *gradient_func(Trial *t, const Case *c, Value *dx[])
{
    Op *op;
    Func *g = make_func(t, c, "gradient", &op);
    Builder b = { .module = t->m, .func = g };
    Value *dy[3] = { add_param(t->m, g, intern_text(t->m, "dy"), result(op)->type) };
    vjp_table[op->kind](&b, op, dy, dx);
    g->results.count = 0;
    for (int i = 0; i < t->operands; i++)
        if (dx[i])
            push_value(&t->m->arena, &g->results, dx[i]);
    if (!verify_module(t->m))
        fail_msg("the gradient of %s: %s", op_table[c->kind].name, said(t->text));
    return g;
}

static bool wants_gradient(const Case *c, const Trial *t, int operand)
{
    return is_float(t->type[operand].dtype) && !is_flat(c->kind);
}

static void test_case(const Case *c)
{
    if (op_table[c->kind].family == COLLECTIVE)
        return;
    Trial t = begin_trial(c, "module @m { batch batch }");
    Op *op;
    Func *f = make_func(&t, c, "f", &op);
    if (!f)
        fail_msg("%s: %s", op_table[c->kind].name, said(t.text));
    if (!is_float(result(op)->type.dtype)) { /* autodiff needs no gradient of integers */
        free_text(t.text);
        return;
    }
    Value *dx[MOST_OPERANDS] = { 0 };
    Func *g = gradient_func(&t, c, dx);
    Tensor args[MOST_OPERANDS + 1], built[MOST_OPERANDS];
    random_operands(&t, c, args);
    args[t.operands] = random_tensor("weight", &result(op)->type, -1, 1);
    if (!interpret(t.m, g, args, built))
        fail_msg("the gradient of %s: %s", op_table[c->kind].name, said(t.text));
    for (int i = 0, n = 0; i < t.operands; i++) {
        if (wants_gradient(c, &t, i) != (dx[i] != NULL))
            fail_msg("%s: operand %d has %s gradient", op_table[c->kind].name, i + 1, dx[i] ? "a" : "no");
        if (!dx[i])
            continue;
        Tensor numeric = numeric_gradient(&t, f, args, i, &args[t.operands]);
        compare(&t, c, i, &numeric, &built[n++], op);
        free_tensors(&numeric, 1);
        tested[c->kind]++;
    }
    free_tensors(args, t.operands + 1);
    free_tensors(built, g->results.count);
    free_text(t.text);
}

static void test_gradients(void **state)
{
    int all = 0;
    each_case(test_case);
    for (int kind = 0; kind < N_OPS; kind++) {
        const OpInfo *row = &op_table[kind];
        bool of_floats = row->args > 0 && row->family != COLLECTIVE && kind != OP_wait && !is_between_stages(kind) &&
                         !(row->traits & COMPARES) && kind != OP_fold_key;
        if (of_floats && !is_flat((OpKind)kind) && !tested[kind])
            fail_msg("no gradient of %s was tested: op_cases.h needs a row of floats", row->name);
        all += tested[kind];
    }
    print_message("%d gradients agree with finite differences\n", all);
}

/* A collective is the identity on the tensor, and so is its gradient. */
static void test_collectives(void **state)
{
    for (int kind = 0; kind < N_OPS; kind++) {
        Value dy = { 0 }, *dx[1] = { NULL };
        if (op_table[kind].family != COLLECTIVE || op_table[kind].traits & MOVES)
            continue;
        vjp_table[kind](NULL, NULL, (Value *[]){ &dy }, dx);
        assert_ptr_equal(dx[0], &dy);
    }
}

/* Several largest elements share the gradient. */
static void test_ties(void **state)
{
    Text *t = good_text("module @m { func @f(%x: f32[i:4]) { %y = max %x {over=i} : f32[] return %y } }");
    Func *f = t->m->funcs;
    Builder b = { .module = t->m, .func = f };
    Value *dy = add_param(t->m, f, intern_text(t->m, "dy"), scalar_type(F32)), *dx[1];
    vjp_table[f->first->kind](&b, f->first, &dy, dx);
    f->results.at[0] = dx[0];
    Tensor args[2] = { new_tensor(&f->params.at[0]->type), new_tensor(&dy->type) }, out;
    memcpy(args[0].data, (double[]){ 1, 3, 2, 3 }, 4 * sizeof(double));
    args[1].data[0] = 10;
    assert_true(interpret(t->m, f, args, &out));
    assert_memory_equal(out.data, ((double[]){ 0, 5, 0, 5 }), 4 * sizeof(double));
    free_tensors(args, 2);
    free_tensors(&out, 1);
    free_text(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_ties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
