/* test_fill.c -- templates with named holes: inputs, outputs, errors. */
#include "codegen/text/fill.h"
#include "codegen/text/names.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void assert_filled(const char *pattern, const Hole holes[], const char *expected)
{
    Text text;
    open_text(&text);
    fill(text.out, pattern, holes);
    Arena arena = { 0 };
    assert_string_equal(close_text(&arena, &text), expected);
    arena_free(&arena);
}

static void holes_in_a_line(void **state)
{
    assert_filled("const $type $name = $a + $a;\n",
                  (const Hole[]){ { "a", "x[i]" }, { "name", "y" }, { "type", "float" }, { NULL, NULL } },
                  "const float y = x[i] + x[i];\n");
    assert_filled("$a", (const Hole[]){ { "a", "x" }, { NULL, NULL } }, "x");
    assert_filled("$ab$a", (const Hole[]){ { "a", "1" }, { "ab", "2" }, { NULL, NULL } }, "21");
}

static void lines_are_indented_as_the_hole(void **state)
{
    assert_filled("{\n    $body\n}\n", (const Hole[]){ { "body", "a;\nif (b)\n    c;\n" }, { NULL, NULL } },
                  "{\n    a;\n    if (b)\n        c;\n}\n");
    assert_filled("{\n    $body\n}\n", (const Hole[]){ { "body", "a;" }, { NULL, NULL } }, "{\n    a;\n}\n");
    assert_filled("{\n    $body\n}\n", (const Hole[]){ { "body", "a;\n\nb;\n" }, { NULL, NULL } },
                  "{\n    a;\n\n    b;\n}\n");
}

static void an_empty_text_removes_the_line(void **state)
{
    assert_filled("$pragma\nfor\n", (const Hole[]){ { "pragma", "" }, { NULL, NULL } }, "for\n");
}

static void preprocessor_lines_stand_at_the_left(void **state)
{
    assert_filled("    $body\n", (const Hole[]){ { "body", "#pragma omp simd\nfor\n" }, { NULL, NULL } },
                  "#pragma omp simd\n    for\n");
}

static int signal_of(const char *pattern, const Hole holes[])
{
    pid_t child = fork();
    if (child == 0) {
        freopen("/dev/null", "w", stderr);
        Text text;
        open_text(&text);
        fill(text.out, pattern, holes);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void mistakes_abort(void **state)
{
    const Hole holes[] = { { "a", "1" }, { NULL, NULL } };
    assert_int_equal(signal_of("$a", holes), 0);
    assert_int_equal(signal_of("$a $b", holes), SIGABRT);
    assert_int_equal(signal_of("nothing", holes), SIGABRT);
}

static void identifiers(void **state)
{
    Diags diags = { 0 };
    Module *m = new_module(&diags);
    NameSpace names = { .module = m };
    assert_string_equal(new_identifier(&names, "h.attn.q"), "h_attn_q");
    assert_string_equal(new_identifier(&names, "h.attn.q"), "h_attn_q_2");
    assert_string_equal(new_identifier(&names, "12"), "v12");
    assert_string_equal(new_identifier(&names, "double"), "double_2");
    assert_string_equal(new_identifier(&names, "rt_run"), "v_rt_run_2");
    assert_string_equal(new_identifier(&names, "a_long_block.another_block.w"), "another_block_w");
    free_module(m);
}

static void numbers(void **state)
{
    Diags diags = { 0 };
    Module *m = new_module(&diags);
    assert_string_equal(c_number(m, 0.1, false), "0.1f");
    assert_string_equal(c_number(m, 1, false), "1.0f");
    assert_string_equal(c_number(m, 1, true), "1");
    assert_string_equal(c_number(m, -2.5, false), "(-2.5f)");
    assert_string_equal(c_number(m, 1e300, false), "INFINITY");
    assert_string_equal(c_number(m, 1e-8, false), "1e-08f");
    assert_string_equal(c_number(m, 16777217, true), "16777217");
    free_module(m);
}

static void lists_wrap(void **state)
{
    Diags diags = { 0 };
    Module *m = new_module(&diags);
    const char *items[] = { "const float *restrict a_name_of_some_length", "const float *restrict another_long_name",
                            "float *restrict result" };
    assert_string_equal(
        wrapped_list(m, "static void f(", 3, items, ")", 0),
        "static void f(const float *restrict a_name_of_some_length, const float *restrict another_long_name,\n"
        "              float *restrict result)");
    assert_string_equal(wrapped_list(m, "f(", 0, items, ");", 4), "f();");
    free_module(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holes_in_a_line),
        cmocka_unit_test(lines_are_indented_as_the_hole),
        cmocka_unit_test(an_empty_text_removes_the_line),
        cmocka_unit_test(preprocessor_lines_stand_at_the_left),
        cmocka_unit_test(mistakes_abort),
        cmocka_unit_test(identifiers),
        cmocka_unit_test(numbers),
        cmocka_unit_test(lists_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
