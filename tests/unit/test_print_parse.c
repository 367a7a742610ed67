/* test_print_parse.c -- what print writes, parse reads, on a module that uses every op and every attribute. */
#include "ir_test.h"

#include <math.h>

static void fail_at_difference(const char *expected, const char *got)
{
    int line = 1;
    const char *begin = expected;
    for (int i = 0; expected[i] == got[i] && expected[i]; i++)
        if (expected[i] == '\n')
            line++, begin = expected + i + 1;
    const char *other = got + (begin - expected);
    fail_msg("line %d should be printed as\n%.*s\nbut is\n%.*s", line, (int)strcspn(begin, "\n"), begin,
             (int)strcspn(other, "\n"), other);
}

static void test_round_trip(void **state)
{
    char *text = read_file("tests/unit/every_op.mir");
    Text *t = good_text(text);
    char *printed = module_text(t->m);
    if (strcmp(text, printed) != 0)
        fail_at_difference(text, printed);
    free(printed);
    free_text(t);
    free(text);
}

/* Checks that the module above uses everything. */
static void test_nothing_is_left_out(void **state)
{
    char *text = read_file("tests/unit/every_op.mir");
    Text *t = good_text(text);
    bool op_seen[N_OPS] = { 0 }, role_seen[N_ROLES] = { 0 }, init_seen[N_INITS] = { 0 };
    Attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    for (const Func *f = t->m->funcs; f; f = f->next) {
        role_seen[f->role] = true;
        for (const Op *op = f->first; op; op = op->next) {
            op_seen[op->kind] = true;
            for (size_t i = 0; i < sizeof attrs; i++)
                ((unsigned char *)&attrs)[i] |= ((const unsigned char *)&op->attrs)[i];
        }
    }
    for (const Param *param = t->m->params; param; param = param->next)
        init_seen[param->init] = true;
    for (int i = 0; i < N_OPS; i++)
        if (!op_seen[i])
            fail_msg("every_op.mir has no %s", op_table[i].name);
    for (int i = 0; i < N_ROLES; i++)
        assert_true(role_seen[i]);
    for (int i = 0; i < N_INITS; i++)
        assert_true(init_seen[i]);
    const unsigned char zero[sizeof(Dims)] = { 0 };
#define ATTR(key, kind, ops)                                                                                           \
    if (memcmp(&attrs.key, zero, sizeof attrs.key) == 0)                                                               \
        fail_msg("every_op.mir has no attribute '" #key "'");
#include "attrs.def"
#define TRAIN(key, kind)                                                                                               \
    if (memcmp(&t->m->train.key, zero, sizeof t->m->train.key) == 0)                                                   \
        fail_msg("every_op.mir has no setting '" #key "'");
#include "train.def"
    free_text(t);
    free(text);
}

/* Fields that a type of its own holds, read from text. */
static void test_types(void **state)
{
    Text *t = good_text("module @m { mesh dp=2, tp=4 }");
    Type type = type_of_text(t->m, "bf16[batch:8/z/dp, vocab:50~64/tp] partial_max(dp+tp)");
    assert_int_equal(type.dtype, BF16);
    assert_int_equal(type.rank, 2);
    assert_true(type.dim[0].zigzag && type.dim[0].split.count == 1 && type.dim[0].split.axis[0] == 0);
    assert_true(!type.dim[1].zigzag && type.dim[1].size == 50 && type.dim[1].padded == 64);
    assert_int_equal(local_size(t->m, &type.dim[1]), 16);
    assert_true(type.partial == 3 && type.by == BY_MAX);
    type = type_of_text(t->m, "f32[n:48/6z/dp+tp]");
    assert_true(type.dim[0].zigzag == 6 && type.dim[0].split.count == 2 && type.dim[0].split.axis[0] == 0);
    assert_string_equal(type_text(t->m, &type), "f32[n:48/6z/dp+tp]");
    type = type_of_text(t->m, "f32[n:48/3d/tp]");
    assert_true(type.dim[0].split.dealt == 3 && !type.dim[0].zigzag && type.dim[0].split.axis[0] == 1);
    assert_string_equal(type_text(t->m, &type), "f32[n:48/3d/tp]");
    type = type_of_text(t->m, "f32[n:16/tp+dp]");
    assert_true(type.dim[0].split.axis[0] == 1 && type.dim[0].split.axis[1] == 0);
    const Type up = type_of_text(t->m, "f32[n:6/tp(1+2+2+1)]"), down = type_of_text(t->m, "f32[n:6/-tp(1+3+1+1)]");
    static const int64_t first[2][4] = { { 0, 1, 3, 5 }, { 5, 2, 1, 0 } };
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(part_first(t->m, &up.dim[0], rank), first[0][rank]);
        assert_int_equal(part_first(t->m, &down.dim[0], rank), first[1][rank]);
    }
    const Type some = type_of_text(t->m, "f32[n:3/tp(-+0+3+-)]");
    assert_int_equal(ranks_with_part(t->m, &some.dim[0]), 6);
    assert_int_equal(part_size(t->m, &some.dim[0], 0), 0);
    assert_int_equal(part_size(t->m, &some.dim[0], 2), 3);
    assert_int_equal(local_size(t->m, &some.dim[0]), 3);
    assert_int_equal(local_size(t->m, &down.dim[0]), 3);
    assert_false(type_equal(&up, &down));
    free_text(t);
}

/* Numbers are restored to the last bit. */
static void test_numbers(void **state)
{
    static const double numbers[] = { 0.1, 1.0 / 3, 1e-300, -0x1.fffffffffffffp+1023, INFINITY, -INFINITY, 5e-324 };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        Text *t = good_text("module @m { func @f() { %x = constant {value=1} : f32[] return %x } }");
        t->m->funcs->first->attrs.value = numbers[i];
        char *text = module_text(t->m);
        Text *again = good_text(text);
        assert_memory_equal(&again->m->funcs->first->attrs.value, &numbers[i], sizeof(double));
        free(text);
        free_text(again);
        free_text(t);
    }
}

/* Fresh names differ from parsed ones. */
static void test_fresh_names(void **state)
{
    Text *t = good_text("module @m { func @f(%7: f32[]) { %x = neg %7 : f32[] return %x } }");
    Builder b = builder_at(t->m, t->m->funcs, NULL);
    assert_string_equal(build_number(&b, 1)->name, "8");
    free_text(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_nothing_is_left_out), cmocka_unit_test(test_types),
        cmocka_unit_test(test_numbers),    cmocka_unit_test(test_fresh_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
