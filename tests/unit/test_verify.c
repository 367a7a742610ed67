/* test_verify.c -- wrong programs, each with the message that it must get and the place where. */
#include "ir_test.h"

/* The guilty line is the one with a comment `# error: MESSAGE`; what is said must hold the message. */
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

#define FUNC(params, body) "module @m {\n  mesh dp=2, tp=4\n  func @f(" params ") {\n" body "\n  }\n}\n"

/* --- What the type system is for: sums that nobody takes, products of sums. -------------------- */
static void test_pending_sums(void **state)
{
    refused(FUNC("%x: f32[i:8, j:8/tp], %w: f32[j:8/tp, k:4]",
                 "    %1 = dot %x, %w {over=j} : f32[i:8, k:4] # error: dot gives f32[i:8, k:4] partial(tp), but %1 is "
                 "f32[i:8, k:4]\n"
                 "    return %1"));
    refused(FUNC("%x: f32[i:8, j:8/tp], %w: f32[j:8/tp, k:4]",
                 "    %1 = dot %x, %w {over=j} : f32[i:8, k:4] partial(tp)\n"
                 "    %2 = tanh %1 : f32[i:8, k:4] # error: tanh is not linear in %1, which is partial\n"
                 "    return %2"));
    refused(FUNC(
        "%x: f32[i:8] partial(dp), %y: f32[i:8] partial(tp)",
        "    %1 = add %x, %y : f32[i:8] partial(dp+tp) # error: add would count %x once for each rank\n    return %1"));
    refused(FUNC(
        "%x: f32[i:8] partial(dp), %b: f32[i:8]",
        "    %1 = add %x, %b : f32[i:8] partial(dp) # error: add would count %b once for each rank\n    return %1"));
    refused(FUNC("%x: f32[i:8] partial(dp), %y: f32[i:8] partial(dp)",
                 "    %1 = mul %x, %y : f32[i:8] partial(dp) # error: mul of two partial tensors\n    return %1"));
    refused(FUNC("%x: f32[i:8] partial(dp), %y: f32[i:8] partial(tp)",
                 "    %1 = mul %x, %y : f32[i:8] partial(dp+tp)\n    %2 = mul %1, %x : f32[i:8] # error: mul of two "
                 "partial tensors\n    return %2"));
    refused(FUNC("%x: f32[i:8] partial(dp), %y: f32[i:8] partial(dp)",
                 "    %1 = div %x, %y : f32[i:8] partial(dp) # error: div is not linear in %y, which is partial\n    "
                 "return %1"));
    refused(FUNC("%x: i32[i:8] partial(dp), %y: i32[i:8]",
                 "    %1 = div %x, %y : i32[i:8] partial(dp) # error: div of partial integers\n    return %1"));
    refused(FUNC(
        "%x: f32[i:8/dp]",
        "    %1 = max %x {over=i} : f32[] partial_max(dp)\n"
        "    %2 = neg %1 : f32[] partial_max(dp) # error: neg is not linear in %1, which is partial\n    return %2"));
    refused(FUNC("%x: f32[i:8/dp]",
                 "    %1 = min %x {over=i} : f32[] # error: min needs all of 'i', which is split\n    return %1"));
    refused(FUNC(
        "%x: f32[i:8] partial(dp)",
        "    %1 = cast %x {dtype=i32} : i32[i:8] partial(dp) # error: cast of a partial tensor to i32\n    return %1"));
    refused(FUNC("%c: bool[i:8], %x: f32[i:8] partial(dp), %y: f32[i:8]",
                 "    %1 = where %c, %x, %y : f32[i:8] partial(dp) # error: where would count %y once for each rank\n  "
                 "  return %1"));
    refused(FUNC("%x: f32[i:8], %k: i32[] partial(dp), %o: i32[]",
                 "    %1 = dropout %x, %k, %o {rate=0.5} : f32[i:8] # error: dropout is not linear in %k, which is "
                 "partial\n    return %1"));
    refused(FUNC("%q: f32[s:8, h:2] partial(dp), %k: f32[t:8, h:2]",
                 "    %1, %2 = attend %q, %k, %k {seq=s, key=t, feature=h, scale=1} : f32[s:8, h:2], f32[s:8] # error: "
                 "attend is not linear in %q, which is partial\n    return %1"));
}

static void test_splits(void **state)
{
    refused(
        FUNC("%x: f32[i:8/dp], %y: f32[i:8]",
             "    %1 = add %x, %y : f32[i:8/dp] # error: the operands of add split 'i' differently\n    return %1"));
    refused(
        FUNC("%x: f32[i:8/dp+tp], %y: f32[i:8/tp+dp]",
             "    %1 = add %x, %y : f32[i:8/dp+tp] # error: the operands of add split 'i' differently\n    return %1"));
    refused(
        FUNC("%x: f32[i:8/dp], %y: f32[i:8/z/dp]",
             "    %1 = add %x, %y : f32[i:8/dp] # error: the operands of add split 'i' differently\n    return %1"));
    refused(FUNC("%x: f32[i:8/dp], %y: f32[j:8/dp]", "    %1 = add %x, %y : f32[i:8/dp, j:8/dp] # error: the operands "
                                                     "of add use one mesh axis twice\n    return %1"));
    refused(
        FUNC("%x: f32[i:8/dp, j:8]",
             "    %1 = slice %x {dim=i} : f32[j:8] # error: slice needs all of 'i', which is split\n    return %1"));
    refused(FUNC("%x: f32[i:8]", "    %1 = part %x {dim=i, dims=[i:4/dp]} : f32[i:4/dp] # error: part gives all of 'i' "
                                 "to every rank\n    return %1"));
    refused(FUNC("%x: f32[s:8, h:4/tp]", "    %1 = rope %x {seq=s, feature=h, base=10} : f32[s:8, h:4/tp] # error: "
                                         "rope needs all of 'h', which is split\n    return %1"));
    refused(FUNC("%q: f32[s:8, h:2], %k: f32[t:8/dp, h:2]",
                 "    %1, %2 = attend %q, %k, %k {seq=s, key=t, feature=h, scale=1} : f32[s:8, h:2], f32[s:8] # error: "
                 "attend needs all of 't', which is split\n    return %1"));
    refused(FUNC("%x: f32[s:8/z/dp, e:4], %i: i32[s:8/dp]",
                 "    %1 = scatter_add %x, %i {dims=[v:3]} : f32[v:3, e:4] partial(dp) # error: the operands of "
                 "scatter_add split 's' differently\n    return %1"));
    refused("module @m {\n  mesh dp=2\n  func @f(%x: f32[i:8/dp, j:8/dp]) {\n"
            "    %1 = neg %x : f32[i:8/dp, j:8/dp] # error: %x : f32[i:8/dp, j:8/dp] uses one mesh axis twice\n    "
            "return %1\n  }\n}\n");
}

static void test_collectives(void **state)
{
    refused(FUNC("%x: f32[i:8] partial(dp)", "    %1 = all_reduce %x {axis=tp} : f32[i:8] partial(dp) # error: %x is "
                                             "not partial over that axis\n    return %1"));
    refused(
        FUNC("%x: f32[i:8]",
             "    %1 = all_reduce %x {axis=tp} : f32[i:8] # error: %x is not partial over that axis\n    return %1"));
    refused(FUNC("%x: f32[i:8/dp]", "    %1 = all_gather %x {dim=i, axis=tp} : f32[i:8] # error: %x is not split that "
                                    "way along 'i'\n    return %1"));
    refused(FUNC("%x: f32[i:8/dp+tp]", "    %1 = all_gather %x {dim=i, axis=dp} : f32[i:8/tp] # error: %x is not split "
                                       "that way along 'i'\n    return %1"));
    refused(FUNC("%x: f32[i:16/z/dp+tp]", "    %1 = all_gather %x {dim=i, axis=tp} : f32[i:16/z/dp] # error: the "
                                          "blocks of 'i' are dealt out in zig-zag\n    return %1"));
    refused(FUNC("%x: f32[i:16/z/dp]", "    %1 = local_slice %x {dim=i, axis=tp} : f32[i:16/z/dp+tp] # error: the "
                                       "blocks of 'i' are dealt out in zig-zag\n    return %1"));
    refused(FUNC("%x: f32[i:8/dp]", "    %1 = local_slice %x {dim=i, axis=dp} : f32[i:8/dp] # error: local_slice uses "
                                    "one mesh axis twice\n    return %1"));
    refused(FUNC("%x: f32[i:6] partial(tp)", "    %1 = reduce_scatter %x {dim=i, axis=tp} : f32[i:6] # error: 'i' (6) "
                                             "does not divide by its axes (4)\n    return %1"));
    refused(FUNC("%x: f32[i:8, j:8/tp]", "    %1 = all_to_all %x {dim=i, to=j, axis=tp} : f32[i:8, j:8/tp] # error: %x "
                                         "is not split that way along 'i'\n    return %1"));
}

static void test_types(void **state)
{
    refused(FUNC("%x: f32[i:8]",
                 "    %1 = neg %x : f32[i:4] # error: neg gives f32[i:8], but %1 is f32[i:4]\n    return %1"));
    refused(FUNC("%x: f32[i:8]",
                 "    %1 = neg %x : bf16[i:8] # error: neg gives f32[i:8], but %1 is bf16[i:8]\n    return %1"));
    refused(FUNC("%x: f32[i:8]",
                 "    %1 = neg %x : f32[j:8] # error: neg gives f32[i:8], but %1 is f32[j:8]\n    return %1"));
    refused(FUNC("%x: f32[i:8]",
                 "    %1 = neg %x : f32[i:8~16] # error: neg gives f32[i:8], but %1 is f32[i:8~16]\n    return %1"));
    refused(
        FUNC("%x: f32[i:8], %y: f32[i:4]",
             "    %1 = add %x, %y : f32[i:8] # error: the operands of add disagree on the size of 'i'\n    return %1"));
    refused(FUNC("%x: f32[i:8], %y: i32[i:8]",
                 "    %1 = add %x, %y : f32[i:8] # error: add of integers and floating-point numbers\n    return %1"));
    refused(FUNC("%x: f32[i:8]", "    %1 = add %x : f32[i:8] # error: add takes 2 operands, not 1\n    return %1"));
    refused(FUNC("%x: f32[i:8]",
                 "    %1 = sum %x {over=j} : f32[i:8] # error: no operand of sum has a dim 'j'\n    return %1"));
    refused(FUNC("%x: f32[i:8], %y: f32[j:4]",
                 "    %1 = dot %x, %y {over=i} : f32[j:4] # error: dot over 'i', which %y has not\n    return %1"));
    refused(FUNC("%x: f32[i:8]",
                 "    %1 = slice %x {dim=i, index=8} : f32[] # error: 'i' has no element 8\n    return %1"));
    refused(FUNC("%x: f32[i:8]", "    %1 = part %x {dim=i, dims=[i:4], index=5} : f32[i:4] # error: elements 5 to 8 of "
                                 "'i', which has 8\n    return %1"));
    refused(FUNC("%x: f32[i:8], %y: f32[i:8]", "    %1 = concat %x, %y {dims=[i:15]} : f32[i:15] # error: the operands "
                                               "of concat do not add up to 15 along 'i'\n    return %1"));
    refused(FUNC("%x: f32[v:8], %i: f32[s:2]",
                 "    %1 = take %x, %i {dim=v} : f32[s:2] # error: the index of take is whole and i32\n    return %1"));
    refused(FUNC("%x: f32[s:8, h:3]", "    %1 = rope %x {seq=s, feature=h, base=10} : f32[s:8, h:3] # error: rope "
                                      "rotates pairs, but 'h' is 3\n    return %1"));
    refused(FUNC("%x: f32[i:8], %k: i32[]", "    %1 = dropout %x, %k, %k {rate=1} : f32[i:8] # error: the rate of "
                                            "dropout is from 0 to below 1\n    return %1"));
}

static void test_calls(void **state)
{
#define BODY "  func @g(%x: f32[i:8], %w: f32[i:8]) {\n    %y = mul %x, %w : f32[i:8]\n    return %y\n  }\n"
    refused("module @m {\n" BODY "  func @f(%x: f32[i:8]) {\n    %1 = call %x {callee=g} : f32[i:8] # error: @g takes "
                                 "2 operands, not 1\n    return %1\n  }\n}\n");
    refused("module @m {\n" BODY "  func @f(%x: f32[i:8]) {\n    %1 = call %x, %x {callee=h} : f32[i:8] # error: call "
                                 "of 'h', which is no function of the module\n    return %1\n  }\n}\n");
    refused("module @m {\n" BODY "  func @f(%x: f32[i:8], %y: f32[i:4]) {\n    %1 = call %x, %y {callee=g} : f32[i:8] "
                                 "# error: @g takes %w : f32[i:8], not f32[i:4]\n    return %1\n  }\n}\n");
    refused("module @m {\n" BODY
            "  func @f(%x: f32[i:8], %w: f32[n:2, i:8]) {\n    %1 = loop %x, %w {dims=[n:3], callee=g, carried=1} : "
            "f32[i:8] # error: loop slices %w along its first dim, of size 3\n    return %1\n  }\n}\n");
    refused("module @m {\n  func @f(%x: f32[i:8]) {\n    %1 = call %x {callee=f} : f32[i:8] # error: @f calls itself\n "
            "   return %1\n  }\n}\n");
}

/* What a pass may do wrong, and text cannot say: the parser wants definitions before uses. */
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

static void test_text(void **state)
{
    refused("module @m {\n  func @f() {\n    %1 = neg %x : f32[] # error: no value of that name is defined above\n    "
            "return\n  }\n}\n");
    refused("module @m {\n  func @f(%x: f32[]) {\n    %x = neg %x : f32[] # error: a value of that name is defined "
            "above\n    return\n  }\n}\n");
    refused("module @m {\n  func @f(%x: f32[]) {\n    %1 = negg %x : f32[] # error: no such op\n    return\n  }\n}\n");
    refused("module @m {\n  func @f(%x: f32[]) {\n    %1 = neg %x {speed=1} : f32[] # error: no such attribute\n    "
            "return\n  }\n}\n");
    refused("module @m {\n  func @f(%x: f32[i:2, i:2]) { # error: this dim occurs twice\n    return\n  }\n}\n");
    refused("module @m {\n  func @f(%x: f32[i:0]) { # error: a size is from 1 to 2^40\n    return\n  }\n}\n");
    refused("module @m {\n  func @f(%x: f32[i:2/dp]) { # error: no such mesh axis\n    return\n  }\n}\n");
    refused("module @m {\n  mesh dp=4\n  func @f(%x: f32[i:6/dp]) { # error: the size in memory is at least the size, "
            "and divides by the axes\n    return\n  }\n}\n");
    refused("module @m {\n  func @f() {\n    return\n  }\n  func @f() { # error: a function of that name stands "
            "above\n    return\n  }\n}\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pending_sums), cmocka_unit_test(test_splits), cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_types),        cmocka_unit_test(test_calls),  cmocka_unit_test(test_order),
        cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
