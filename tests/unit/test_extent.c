/* test_extent.c -- invalid accesses of generated code and invalid storage: each is reported with its name. */
#include "extent.h"
#include "ir_test.h"

static const char plan[] = "module @m {\n"
                           "  mesh cp=2\n"
                           "  func @iteration(%u: f32[j:4] at p0 strides(1)) frame(64) {\n"
                           "    %1 = exp %u : f32[j:4] at 0 strides(1)\n"
                           "    return %1\n"
                           "  }\n"
                           "  func eval @eval(%x: f32[i:2, j:4] at 0 strides(4, 1), %s: f32[k:5~6/cp] at 64 strides(1))"
                           " frame(320) {\n"
                           "    %row = slice %x {dim=i, index=1} : f32[j:4] at 16 strides(1)\n"
                           "    %wide = exp %x : f32[i:2, j:4] at 128 strides(8, 1)\n"
                           "    %t = call %row {callee=iteration, frame=256} : f32[j:4] at 192 strides(1)\n"
                           "    %l = sum %t {over=j} : f32[] at 128 strides()\n"
                           "    return %l\n"
                           "  }\n"
                           "}\n";

static const Value *value_named(const Module *m, const char *name)
{
    for (const Func *f = m->funcs; f; f = f->next) {
        for (int i = 0; i < f->params.count; i++)
            if (strcmp(f->params.at[i]->name, name) == 0)
                return f->params.at[i];
        for (const Op *op = f->first; op; op = op->next)
            for (int i = 0; i < op->results.count; i++)
                if (strcmp(op->results.at[i]->name, name) == 0)
                    return op->results.at[i];
    }
    fail_msg("no value is called %s", name);
    return NULL;
}

/* Loops over the value of that name, as in its reader `t`. */
static bool runs(Text *t, const char *name, Access access)
{
    const Value *value = value_named(t->m, name);
    return access_stays_inside(t->m, value_named(t->m, "t")->def, value->name, &value->type, value->storage, &access);
}

static void test_accesses(void **state)
{
    static const struct {
        const char *name;
        Access access;
        const char *said; /* NULL: it stays inside */
    } cases[] = {
        { "x", { 2, { 2, 4 }, { 4, 1 } }, NULL },
        { "x", { 1, { 8 }, { 1 } }, NULL },
        { "x", { 0, { 0 }, { 0 } }, NULL }, /* one element */
        { "x", { 1, { 9 }, { 1 } }, "reaches element 8 of 'x', which has 8 in memory" },
        { "x", { 2, { 2, 4 }, { 5, 1 } }, "reaches element 8 of 'x'" },
        { "x", { 2, { 3, 4 }, { 4, 1 } }, "reaches element 11 of 'x'" },
        { "wide", { 2, { 2, 4 }, { 8, 1 } }, NULL }, /* rows with gaps, of which the last has none */
        { "wide", { 1, { 13 }, { 1 } }, "reaches element 12 of 'wide', which has 12 in memory" },
        { "row", { 1, { 4 }, { 1 } }, NULL },
        { "row", { 1, { 5 }, { 1 } }, "reaches element 4 of 'row'" },
        { "s", { 1, { 3 }, { 1 } }, NULL }, /* a rank's part, with its padding */
        { "s", { 1, { 6 }, { 1 } }, "reaches element 5 of 's', which has 3 in memory" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Text *t = good_text(plan);
        bool good = runs(t, cases[i].name, cases[i].access);
        if (good != !cases[i].said || (!good && !strstr(said(t), cases[i].said)))
            fail_msg("case %zu: %s: %s", i, good ? "stays inside" : "refused", said(t));
        free_text(t);
    }
}

static void test_pieces(void **state)
{
    Text *t = good_text(plan);
    const Value *x = value_named(t->m, "x");
    assert_true(holds(t->m, value_named(t->m, "t")->def, x, 8));
    assert_false(holds(t->m, value_named(t->m, "t")->def, x, 9));
    free_text(t);
}

static void test_places(void **state)
{
    static const struct {
        const char *old, *wrong, *said;
    } cases[] = {
        { "", "", NULL },
        { "frame(320)", "frame(300)", "internal: call '' needs 64 bytes at 256 of a frame of 300" },
        { "frame=256", "frame=288", "internal: call '' needs 64 bytes at 288 of a frame of 320" },
        { "at 128 strides(8, 1)", "at 288 strides(8, 1)", "internal: 'wide' is not inside its frame" },
        { "%s: f32[k:5~6/cp] at 64", "%s: f32[k:5~6/cp] at 312", "internal: 's' is not inside its frame" },
        { "f32[j:4] at 16", "f32[j:4] at 20", "internal: 'row' is not inside the viewed value" },
        { "f32[j:4] at 16 strides(1)", "f32[j:4] at 16 strides(2)", "internal: 'row' is not inside the viewed" },
        { "strides(1)) frame(64)", "strides(1)) frame(8)", "internal: '1' is not inside its frame" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *at = strstr(plan, cases[i].old);
        char text[2 * sizeof plan];
        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - plan), plan, cases[i].wrong, at + strlen(cases[i].old));
        Text *t = read_text(text);
        assert_int_equal(t->diags.errors, 0);
        bool good = check_frames(t->m);
        if (good != !cases[i].said || (!good && !strstr(said(t), cases[i].said)))
            fail_msg("case %zu: %s: %s", i, good ? "accepted" : "refused", said(t));
        free_text(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_accesses), cmocka_unit_test(test_pieces),
                                        cmocka_unit_test(test_places) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
