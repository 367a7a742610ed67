/* test_verify.c -- invalid programs, each with its error message and location. */
#include "ir_test.h"

/* The line with a comment `# error: MESSAGE` must be reported with that message. */
static void refused(const char *text)
{
    const char *mark = strstr(text, "# error: ");
    assert_non_null(mark);
    mark += strlen("# error: ");
    int line = 1, length = (int)strcspn(mark, "\n");
    for (const char *c = text; c < mark; c++)
        line += *c == '\n';
    char place[64], message[256];
    snprintf(place, sizeof place, "test.mir:%d:", line);
    snprintf(message, sizeof message, "%.*s", length, mark);

    Text *t = read_text(text);
    if (!t->diags.errors && verify_module(t->m))
        fail_msg("accepted, but should say '%s':\n%s", message, text);
    /* the line of the message only: below it the guilty line is shown, comment and all */
    const char *at = strstr(said(t), place), *found = at ? strstr(at, message) : NULL;
    if (!found || memchr(at, '\n', (size_t)(found - at)))
        fail_msg("should say '%s' at line %d, but says\n%s", message, line, said(t));
    if (t->diags.errors != 1)
        fail_msg("one mistake, but %d messages:\n%s", t->diags.errors, said(t));
    free_text(t);
}

/* Each program of wrong.mir.  run.sh runs the tests at the root of the repository. */
static void test_wrong_programs(void **state)
{
    char *text = read_file("tests/unit/wrong.mir");
    int programs = 0;
    for (char *at = text, *end; (end = strstr(at, "\n----\n")); at = end + strlen("\n----\n")) {
        end[1] = '\0';
        refused(at);
        programs++;
    }
    assert_in_range(programs, 50, 1000);
    print_message("%d wrong programs refused\n", programs);
    free(text);
}

/* Errors of passes that text cannot express: the parser requires definitions before uses. */
static void test_order(void **state)
{
    Text *t = good_text("module @m {\n  func @f(%x: f32[i:8]) {\n    %1 = neg %x : f32[i:8]\n    %2 = abs %1 : "
                        "f32[i:8]\n    return %2\n  }\n}\n");
    Func *f = t->m->funcs;
    Op *neg = f->first;
    remove_op(f, neg);
    insert_op(f, neg, NULL);
    assert_false(verify_module(t->m));
    assert_non_null(strstr(said(t), "test.mir:4:5: error: %1 is used before it is defined in @f"));
    free_text(t);

    t = good_text(
        "module @m { func @f(%x: f32[i:8]) { %1 = neg %x : f32[i:8] return %1 } func @g(%y: f32[i:8]) { return %y } }");
    t->m->funcs->next->results.at[0] = result(t->m->funcs->first);
    assert_false(verify_module(t->m));
    assert_non_null(strstr(said(t), "@g returns %1, which it does not define"));
    free_text(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_wrong_programs), cmocka_unit_test(test_order) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
