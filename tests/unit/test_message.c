/* test_message.c -- which collectives are one message: those that differ only in their tensors. */
#include "ir_test.h"

#include "flight.h"
#include "storage.h"

/* Is `%1 = all_reduce %a {axis=dp, bucket=1}` one message with this op, which reads %b? */
static bool joins(const char *b, const char *op)
{
    char text[512];
    snprintf(text, sizeof text,
             "module @m {\n"
             "  mesh dp=2, tp=2\n"
             "  func @f(%%a: f32[i:4] partial(dp), %%b: %s) {\n"
             "    %%1 = all_reduce %%a {axis=dp, bucket=1} : f32[i:4]\n"
             "    %%2 = %s\n"
             "    return %%1, %%2\n"
             "  }\n"
             "}\n",
             b, op);
    Text *t = good_text(text);
    const Op *first = t->m->funcs->first;
    bool is_one = is_one_message(first, first->next);
    assert_int_equal(is_one_message(first->next, first), is_one);
    free_text(t);
    return is_one;
}

static void test_tensors_of_a_bucket(void **state)
{
    assert_true(joins("f32[i:4] partial(dp)", "all_reduce %b {axis=dp, bucket=1} : f32[i:4]"));
    assert_true(joins("f32[j:8/tp, k:3] partial(dp)", "all_reduce %b {axis=dp, bucket=1} : f32[j:8/tp, k:3]"));
    assert_true(joins("f32[i:4] partial(dp+tp)", "all_reduce %b {axis=dp, bucket=1} : f32[i:4] partial(tp)"));
}

/* Each differs in one thing. */
static void test_what_is_another_message(void **state)
{
    assert_false(joins("f32[i:4] partial(dp)", "all_reduce %b {axis=dp, bucket=2} : f32[i:4]"));
    assert_false(joins("f32[i:4] partial(tp)", "all_reduce %b {axis=tp, bucket=1} : f32[i:4]"));
    assert_false(joins("bf16[i:4] partial(dp)", "all_reduce %b {axis=dp, bucket=1} : bf16[i:4]"));
    assert_false(joins("f32[i:4] partial_max(dp)", "all_reduce %b {axis=dp, bucket=1} : f32[i:4]"));
    assert_false(joins("f32[i:4] partial(dp)", "reduce_scatter %b {dim=i, axis=dp, bucket=1} : f32[i:4/dp]"));
}

static bool are_one(const char *op)
{
    char text[512];
    snprintf(text, sizeof text,
             "module @m {\n  mesh dp=2\n  func @f(%%a: f32[i:4] partial(dp)) {\n    %%1 = %s\n    %%2 = %s\n"
             "    return %%1, %%2\n  }\n}\n",
             op, op);
    Text *t = good_text(text);
    bool is_one = is_one_message(t->m->funcs->first, t->m->funcs->last);
    free_text(t);
    return is_one;
}

static void test_what_is_in_no_bucket(void **state)
{
    assert_true(are_one("all_reduce %a {axis=dp, bucket=1} : f32[i:4]"));
    assert_false(are_one("all_reduce %a {axis=dp} : f32[i:4]"));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_tensors_of_a_bucket),
                                        cmocka_unit_test(test_what_is_another_message),
                                        cmocka_unit_test(test_what_is_in_no_bucket) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
