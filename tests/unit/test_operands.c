/* test_operands.c -- each operand and result of a LIBRARY op has a name, and is found by it. */
#include "op_cases.h"
#include "operands.h"

static bool seen[N_OPS][N_OPERANDS];

static void test_case(const Case *c)
{
    if (op_table[c->kind].family != LIBRARY)
        return;
    Op *op;
    Trial t = begin_trial(c, "module @m { batch b }");
    if (!make_func(&t, c, "f", &op))
        fail_msg("%s: %s", op_table[c->kind].name, said(t.text));
    for (int i = 0; i < op->args.count + op->results.count; i++) {
        const OperandName name = operand_name(op, i);
        if (!name || operand_at(op, name) != i)
            fail_msg("%s: operand or result %d is '%s', which is found at %d", info(op)->name, i, operand_text[name],
                     operand_at(op, name));
        const bool is_integer = name == OPERAND_index || name == OPERAND_position || name == OPERAND_chosen ||
                                name == OPERAND_place || name == OPERAND_query_segment || name == OPERAND_key_segment;
        const DType dtype = arg_or_result(op, i)->type.dtype;
        if (op->kind != OP_cumsum && op->kind != OP_cummax && is_integer != (dtype == I32))
            fail_msg("%s: '%s' is %s", info(op)->name, operand_text[name], dtype_name[dtype]);
        seen[c->kind][name] = true;
    }
    assert_int_equal(operand_name(op, op->args.count + op->results.count), NO_OPERAND);
    free_text(t.text);
}

static void test_names(void **state)
{
    each_case(test_case);
#define NAME(name)
#define OPERAND(op, name)                                                                                              \
    if (!seen[OP_##op][OPERAND_##name])                                                                                \
        fail_msg(#op " has no case in op_cases.h with '" #name "'");
#define OPTIONAL(op, name, is) OPERAND(op, name)
#define RESULT(op, name) OPERAND(op, name)
#include "operands.def"
}

/* All that attention may have, and without one of them. */
static void test_optional(void **state)
{
    Text *t = good_text(
        "module @m { func @f(%q: f32[s:8, g:2, h:4], %k: f32[t:8, h:4], %b: f32[s:8, t:8], %z: f32[g:2], %i: i32[s:8], "
        "%j: i32[t:8]) { %y, %l = attend %q, %k, %k, %b, %z, %i, %j {seq=s, key=t, feature=h, scale=1} : "
        "f32[s:8, g:2, h:4], f32[g:2, s:8] %u, %m = attend %q, %k, %k, %z, %i, %j {seq=s, key=t, feature=h, scale=1} : "
        "f32[s:8, g:2, h:4], f32[g:2, s:8] return %y, %u } }");
    const Op *all = t->m->funcs->first, *some = all->next;
    assert_int_equal(operand_at(all, OPERAND_bias), 3);
    assert_int_equal(operand_at(all, OPERAND_sinks), 4);
    assert_int_equal(operand_at(all, OPERAND_key_segment), 6);
    assert_int_equal(operand_at(all, OPERAND_lse), 8);
    assert_int_equal(operand_at(some, OPERAND_bias), -1);
    assert_int_equal(operand_at(some, OPERAND_sinks), 3);
    assert_int_equal(operand_at(some, OPERAND_query_segment), 4);
    assert_int_equal(operand_at(some, OPERAND_y), 6);
    assert_true(is_logit(all, 3) && is_logit(all, 4) && !is_logit(all, 5) && !is_logit(all, 0));
    free_text(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_names), cmocka_unit_test(test_optional) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
