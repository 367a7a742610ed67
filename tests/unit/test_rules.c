/* test_rules.c -- both sides of every row of passes/simplify/rules.def, on random tensors through the interpreter. */
#include "interp/interp.h"
#include "simplify/rewrite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static Value *letter(Module *m, Func *f, const char *name)
{
    Type type = { .dtype = F32, .rank = 2 };
    type.dim[0] = (Dim){ .name = intern_text(m, "i"), .size = 3, .padded = 3 };
    type.dim[1] = (Dim){ .name = intern_text(m, "j"), .size = 5, .padded = 5 };
    return add_param(m, f, intern_text(m, name), type);
}

/* One side as a function of x and y. */
static Func *side_of(Module *m, const char *name, const Term *term)
{
    Func *f = add_func(m, intern_text(m, name), PLAIN);
    Builder b = { .module = m, .func = f };
    Binding binding = { 0 };
    binding.value['x' - 'a'] = letter(m, f, "x");
    binding.value['y' - 'a'] = letter(m, f, "y");
    push_value(&m->arena, &f->results, build_term(&b, term, &binding));
    return f;
}

static void test_rules_hold(void **state)
{
    Arena arena = { 0 };
    Source source = { "rules.def", "", 0 };
    Diags diags = { .arena = &arena, .source = &source, .out = stderr };
    Module *m = new_module(&diags);
    int count;
    const Rule *rules = read_rules(&m->arena, &count);
    assert_true(count > 5);
    for (int i = 0; i < count; i++) {
        Tensor result[2];
        for (int side = 0; side < 2; side++) {
            const Func *f =
                side_of(m, arena_text(&m->arena, "rule%d.%d", i, side), side ? rules[i].write : rules[i].when);
            Tensor args[2];
            for (int k = 0; k < 2; k++) /* positive: some rules have roots */
                args[k] = random_tensor(f->params.at[k]->name, &f->params.at[k]->type, 0.5, 2);
            assert_true(interpret(m, f, args, &result[side]));
            free_tensors(args, 2);
        }
        Difference difference = tensor_difference(&result[0], &result[1], 0);
        if (difference.by > 1e-15)
            fail_msg("%s -> %s: %.17g is not %.17g", rules[i].text[0], rules[i].text[1], difference.a, difference.b);
        free_tensors(result, 2);
    }
    free_module(m);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rules_hold) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
