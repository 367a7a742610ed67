/* test_storage.c -- invalid memory plans, made by hand: the interpreter reports the overwritten value, and
 * verify_memory, which runs in every compilation, rejects them too. */
#include "ir_test.h"
#include "storage.h"
#include "target.h"

/* As the memory pass plans it: a loop with a frame, a buffer between iterations, state in place, a view, an evaluation
 * that shares the arena. */
static const char plan[] =
    "module @m {\n"
    "  train {optimizer=sgd, lr=0.1}\n"
    "  param %w w : f32[i:2, j:3] = normal(1, 0)\n"
    "  func kernel @k.up(%w: f32[i:2, j:3], %g: f32[i:2, j:3], %lr: f32[]) {\n"
    "    %1 = mul %g, %lr : f32[i:2, j:3]\n"
    "    %2 = sub %w, %1 : f32[i:2, j:3]\n"
    "    return %2\n"
    "  }\n"
    "  func kernel @k.norm(%g: f32[i:2, j:3]) {\n"
    "    %1 = square %g : f32[i:2, j:3]\n"
    "    %2 = sum %1 {over=i+j} : f32[]\n"
    "    return %2\n"
    "  }\n"
    "  func kernel @k.scale(%w: f32[i:2, j:3], %x: f32[j:3]) {\n"
    "    %1 = mul %w, %x : f32[i:2, j:3]\n"
    "    return %1\n"
    "  }\n"
    "  func kernel @k.exp(%w: f32[j:3]) {\n"
    "    %1 = exp %w : f32[j:3]\n"
    "    return %1\n"
    "  }\n"
    "  func @iteration(%c: f32[j:3] at p0 strides(1), %u: f32[j:3] at p1 strides(1)) frame(64) {\n"
    "    %1 = call %u {callee=k.exp} : f32[j:3] at p3 strides(1)\n"
    "    %2 = call %1 {callee=k.exp} : f32[j:3] at 0 strides(1)\n"
    "    %3 = add %2, %c : f32[j:3] at p2 strides(1)\n"
    "    return %3, %1\n"
    "  }\n"
    "  func step @step(%x: f32[j:3] at 64 strides(1), %lr: f32[] at 144 strides(), %w: f32[i:2, j:3] at 0 strides(3, "
    "1))"
    " frame(576) {\n"
    "    %1 = call %w, %x {callee=k.scale} : f32[i:2, j:3] at 320 strides(3, 1)\n"
    "    %2, %s = loop %x, %1 {dims=[i:2], callee=iteration, carried=1, frame=192} : f32[j:3] at 384 strides(1),"
    " f32[i:2, j:3] at 448 strides(3, 1)\n"
    "    %row = slice %1 {dim=i, index=1} : f32[j:3] at 332 strides(1)\n"
    "    %n = call %s {callee=k.norm, frame=528} : f32[] at 192 strides()\n"
    "    %t = add %2, %row : f32[j:3] at 512 strides(1)\n"
    "    %l = sum %t {over=j} : f32[] at 256 strides()\n"
    "    %w2 = call %w, %s, %lr {callee=k.up} : f32[i:2, j:3] at 0 strides(3, 1)\n"
    "    return %l, %n, %w2\n"
    "  }\n"
    "  func eval @eval(%y: f32[j:3] at 64 strides(1)) frame(576) {\n"
    "    %e = sum %y {over=j} : f32[] at 128 strides()\n"
    "    return %e\n"
    "  }\n"
    "}\n";

/* A sum over ranks is in flight during another computation. */
static const char flight[] =
    "module @m {\n"
    "  mesh dp=2\n"
    "  func kernel @k.exp(%x: f32[i:4]) {\n"
    "    %1 = exp %x : f32[i:4]\n"
    "    return %1\n"
    "  }\n"
    "  func eval @eval(%x: f32[b:4/dp, i:4] at 0 strides(4, 1), %y: f32[i:4] at 64 strides(1)) frame(384) {\n"
    "    %1 = sum %x {over=b} : f32[i:4] partial(dp) at 128 strides(1)\n"
    "    %2 = all_reduce %1 {axis=dp, started=true} : f32[i:4] in_flight at 192 strides(1)\n"
    "    %3 = call %y {callee=k.exp} : f32[i:4] at 256 strides(1)\n"
    "    %4 = call %3 {callee=k.exp} : f32[i:4] at 256 strides(1)\n"
    "    %5 = wait %2 : f32[i:4] at 192 strides(1)\n"
    "    %6 = add %4, %5 : f32[i:4] at 320 strides(1)\n"
    "    %7 = sum %6 {over=i} : f32[] at 128 strides()\n"
    "    return %7\n"
    "  }\n"
    "}\n";

/* Operands of an iteration arrive one iteration early, at 448 and in the buffer at 384, after that of %c. */
static const char early[] =
    "module @m {\n"
    "  mesh dp=2\n"
    "  func kernel @k.exp(%x: f32[i:4]) {\n"
    "    %1 = exp %x : f32[i:4]\n"
    "    return %1\n"
    "  }\n"
    "  func @iteration(%c: f32[i:4] at p0 strides(1), %coming: f32[i:4] in_flight at p1 strides(1), %next: f32[i:4/dp] "
    "at "
    "p2 "
    "strides(1)) frame(64) {\n"
    "    %v = wait %coming : f32[i:4] at p1 strides(1)\n"
    "    %g = all_gather %next {dim=i, axis=dp, started=true} : f32[i:4] in_flight at p4 strides(1)\n"
    "    %1 = mul %c, %v : f32[i:4] at 0 strides(1)\n"
    "    %2 = add %1, %v : f32[i:4] at p3 strides(1)\n"
    "    return %2, %g\n"
    "  }\n"
    "  func eval @eval(%x: f32[i:4] at 64 strides(1), %w: f32[n:2, i:4/dp] at 0 strides(2, 1)) frame(576) {\n"
    "    %z = call %x {callee=k.exp} : f32[i:4] at 192 strides(1)\n"
    "    %f = slice %w {dim=n} : f32[i:4/dp] at 0 strides(1)\n"
    "    %g = all_gather %f {dim=i, axis=dp, started=true} : f32[i:4] in_flight at 448 strides(1)\n"
    "    %y, %h = loop %x, %g, %w {dims=[n:2], callee=iteration, carried=2, prefetch=1, frame=256} : f32[i:4] at 128 "
    "strides(1), f32[i:4] in_flight at 448 strides(1)\n"
    "    %s = add %y, %z : f32[i:4] at 256 strides(1)\n"
    "    %e = sum %s {over=i} : f32[] at 320 strides()\n"
    "    return %e\n"
    "  }\n"
    "}\n";

/* Each rank has one element of a split dim, so that its stride does not matter where %2 is written over %1. */
static const char one_each[] = "module @m {\n"
                               "  mesh dp=2\n"
                               "  func kernel @k.exp(%x: f32[b:2/dp, i:4]) {\n"
                               "    %1 = exp %x : f32[b:2/dp, i:4]\n"
                               "    return %1\n"
                               "  }\n"
                               "  func eval @eval(%x: f32[b:2/dp, i:4] at 0 strides(4, 1)) frame(256) {\n"
                               "    %1 = call %x {callee=k.exp} : f32[b:2/dp, i:4] at 64 strides(8, 1)\n"
                               "    %2 = call %1 {callee=k.exp} : f32[b:2/dp, i:4] at 64 strides(4, 1)\n"
                               "    %3 = sum %2 {over=b+i} : f32[] partial(dp) at 128 strides()\n"
                               "    %4 = all_reduce %3 {axis=dp} : f32[] at 192 strides()\n"
                               "    return %4\n"
                               "  }\n"
                               "}\n";

static int64_t sixteen_for_norms(Module *m, const Op *op)
{
    return op->attrs.callee == intern_text(m, "k.norm") ? 16 : 0;
}

/* The error of every compilation about the plan; "" if none. */
static char *verified(Text *t)
{
    char *silent;
    size_t length;
    Diags *diags = t->m->diags, own = *diags;
    own.out = open_memstream(&silent, &length);
    t->m->diags = &own;
    bool good = verify_memory(t->m);
    t->m->diags = diags;
    fclose(own.out);
    assert_int_equal(good, length == 0);
    return silent;
}

/* Runs the programs of a plan with one passage replaced; returns the message, or "".  `seen`: is it rejected without
 * being run? */
static char *message_of(const char *plan, const char *from, const char *to, bool *seen)
{
    const char *at = strstr(plan, from);
    if (!at)
        fail_msg("the plan does not say '%s'", from);
    char *text = calloc(1, strlen(plan) + strlen(to) + 1), *message;
    memcpy(text, plan, (size_t)(at - plan));
    strcat(strcat(text, to), at + strlen(from));
    Text *t = good_text(text);
    static const FuncRole roles[] = { STEP, EVAL };
    const Target target = { .scratch_bytes = sixteen_for_norms };
    t->m->target = &target;
    char *static_message = verified(t);
    *seen = *static_message;
    free(static_message);
    for (int k = 0; k < 2 && t->diags.errors == 0; k++) {
        const Func *f = func_with_role(t->m, roles[k]);
        Tensor args[4], results[4];
        if (!f)
            continue;
        for (int i = 0; i < f->params.count; i++)
            args[i] = random_tensor(f->params.at[i]->name, &f->params.at[i]->type, 0.1, 1);
        if (interpret_with(t->m, f, args, results, &(RunOptions){ .placed = true }))
            free_tensors(results, f->results.count);
        free_tensors(args, f->params.count);
    }
    message = strdup(said(t));
    free_text(t);
    free(text);
    return message;
}

/* A plan with `from` replaced by `to` must be rejected with that message. */
static void check(const char *plan, const char *from, const char *to, const char *expected)
{
    bool seen;
    char *message = message_of(plan, from, to, &seen);
    if (!strstr(message, expected))
        fail_msg("with '%s' it says '%s', not '%s'", to, message, expected);
    if (!seen)
        fail_msg("with '%s', verify_memory says nothing", to);
    free(message);
}

static void check_plan(const char *from, const char *to, const char *expected) { check(plan, from, to, expected); }

static void test_right_plans(void **state)
{
    const char *const plans[] = { plan, flight, early, one_each };
    for (int i = 0; i < 4; i++) {
        bool seen;
        char *message = message_of(plans[i], "module @m", "module @m", &seen);
        assert_string_equal(message, "");
        assert_false(seen);
        free(message);
    }
}

static void test_values_that_overlap(void **state)
{
    check_plan("at 320 strides(3, 1)", "at 448 strides(3, 1)", "element 0 of %row is not at byte 332");
    check_plan("at 384 strides(1)", "at 336 strides(1)",
               "of %row is not at byte 336 of rank 0: it was overwritten by %3");
    check_plan("f32[] at 256 strides()", "f32[] at 194 strides()",
               "of %n is not at byte 192 of rank 0: it was overwritten by %l");
    check_plan("%lr: f32[] at 144", "%lr: f32[] at 72", "of %x is not at byte 72");
}

static void test_wrong_strides(void **state)
{
    check_plan("%u: f32[j:3] at p1 strides(1)", "%u: f32[j:3] at p1 strides(2)", "element 1 of %u is not at byte");
    check_plan("f32[i:2, j:3] at 448 strides(3, 1)", "f32[i:2, j:3] at 448 strides(2, 1)",
               "element 2 of %s is not at byte 456");
}

static void test_wrong_pointers(void **state)
{
    check_plan("at p3 strides(1)", "at p2 strides(1)", "of %s is not at byte");
    check_plan("at p1 strides(1)", "at p0 strides(1)", "element 0 of %u is not at byte");
    check_plan("f32[j:3] at p2 strides(1)", "f32[j:3] at 0 strides(1)",
               "it writes %3 at byte 192 of rank 0, where it reads %2");
}

static void test_views(void **state)
{
    check_plan("at 332 strides(1)", "at 320 strides(1)", "element 0 of %row is not at byte 320");
}

static void test_frames_and_buffers_of_loops(void **state)
{
    check_plan("carried=1, frame=192", "carried=1, frame=268", "element 0 of %u is not at byte 320");
    check_plan("carried=1, frame=192", "carried=1, frame=80", /* carried values are after the frame */
               "of %lr is not at byte 144 of rank 0: it was overwritten by %3");
    check_plan("carried=1, frame=192", "carried=1, frame=512", "outside of the arena");
}

static void test_state(void **state)
{
    check_plan("f32[i:2, j:3] at 0 strides(3, 1)\n    return", "f32[i:2, j:3] at 448 strides(3, 1)\n    return",
               "the new %w is at byte 448, the old one at 0");
    check_plan("at 512 strides(1)", "at 0 strides(1)", "of %w is not at byte 0 of rank 0: it was overwritten by %t");
    check_plan("f32[] at 256 strides()", "f32[] at 4 strides()", "element 1 of %w is not at byte 4");
    check_plan("%e = sum %y {over=j} : f32[] at 128", "%e = sum %y {over=j} : f32[] at 0", "of %w is not at byte 0");
}

static void test_an_op_that_overwrites_what_it_reads(void **state)
{
    check_plan("f32[] at 192 strides()", "f32[] at 448 strides()",
               "it writes %n at byte 448 of rank 0, where it reads %s");
    check_plan("f32[i:2, j:3] at 0 strides(3, 1)\n    return", "f32[i:2, j:3] at 0 strides(1, 2)\n    return",
               "where it reads %w");
    check(one_each, "at 64 strides(4, 1)", "at 64 strides(4, 2)", "where it reads %1");
}

static void test_scratch(void **state)
{
    check_plan("{callee=k.norm, frame=528}", "{callee=k.norm, frame=448}", "element 0 of %s is not at byte 448");
    check_plan("{callee=k.norm, frame=528}", "{callee=k.norm, frame=192}", "of %n is not at byte 192");
}

/* Operand and result of a collective may not be touched before its wait. */
static void test_messages_on_their_way(void **state)
{
    check(flight, "at 256 strides(1)", "at 128 strides(1)",
          "of %1 is not at byte 128 of rank 0: it was overwritten by %3");
    check(flight, "f32[i:4] at 256 strides(1)\n    %5", "f32[i:4] at 192 strides(1)\n    %5",
          "of %2 is not at byte 192");
    check(flight, "started=true} : f32[i:4] in_flight at 192", "started=true} : f32[i:4] in_flight at 128",
          "it writes %2 at byte 128 of rank 0, where it reads %1");
    check(flight, "wait %2 : f32[i:4] at 192", "wait %2 : f32[i:4] at 320", "of %5 is not at byte 320");
}

/* Of the buffers of a prefetched value, one is in use while the other is written. */
static void test_messages_that_come_early(void **state)
{
    check(early, "f32[i:4] at 192", "f32[i:4] at 384", "element 0 of %z is not at byte 384");
    check(early, "f32[i:4] at 192", "f32[i:4] at 448", "element 0 of %z is not at byte 448");
    check(early, "f32[i:4] at 0 strides(1)\n    %2", "f32[i:4] at 192 strides(1)\n    %2",
          "it writes %1 at byte 448 of rank 0, where it reads %v");
    check(early, "f32[i:4] at 0 strides(1)\n    %2", "f32[i:4] at 128 strides(1)\n    %2",
          "of %coming is not at byte 384 of rank 0: it was overwritten by %1");
    check(early, "prefetch=1, frame=256", "prefetch=1, frame=512", "outside of the arena");
}

static void test_outside(void **state)
{
    check_plan("f32[] at 256 strides()", "f32[] at 576 strides()", "%l is outside of the arena: at byte 576 of 576");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_plans),
        cmocka_unit_test(test_values_that_overlap),
        cmocka_unit_test(test_wrong_strides),
        cmocka_unit_test(test_wrong_pointers),
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_frames_and_buffers_of_loops),
        cmocka_unit_test(test_state),
        cmocka_unit_test(test_an_op_that_overwrites_what_it_reads),
        cmocka_unit_test(test_scratch),
        cmocka_unit_test(test_messages_on_their_way),
        cmocka_unit_test(test_messages_that_come_early),
        cmocka_unit_test(test_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
