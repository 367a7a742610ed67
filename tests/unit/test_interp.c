/* test_interp.c -- the reference interpreter against values computed by hand or by definition. */
#include "ir_test.h"

#include <math.h>

/* Runs the function @f of a text on the numbers given, parameter after parameter, and compares its results,
 * one after the other, with the numbers expected. */
static void check(const char *text, const double *given, const double *expected)
{
    Text *t = good_text(text);
    const Func *f = find_func(t->m, intern_text(t->m, "f"));
    Tensor args[8], results[8];
    for (int i = 0; i < f->params.count; i++) {
        args[i] = new_tensor(&f->params.at[i]->type);
        for (int64_t n = 0; n < element_count(&args[i].type); n++)
            args[i].data[n] = *given++;
    }
    if (!interpret(t->m, f, args, results))
        fail_msg("%s", said(t));
    for (int i = 0; i < f->results.count; i++)
        for (int64_t n = 0; n < element_count(&results[i].type); n++, expected++)
            if (!(fabs(results[i].data[n] - *expected) < 1e-12 || results[i].data[n] == *expected))
                fail_msg("element %d of result %d is %.17g, not %.17g, of\n%s", (int)n, i, results[i].data[n],
                         *expected, text);
    free_tensors(args, f->params.count);
    free_tensors(results, f->results.count);
    free_text(t);
}

/* The same of a wrong program: what the verifier says. */
static void refuse(const char *text, const char *expected)
{
    Text *t = read_text(text);
    if (t->diags.errors == 0 && verify_module(t->m))
        fail_msg("is accepted: %s", text);
    if (!strstr(said(t), expected))
        fail_msg("should say '%s', but says\n%s", expected, said(t));
    free_text(t);
}

#define CHECK(text, given, ...) check(text, (double[])given, (double[])__VA_ARGS__)
#define GIVEN(...)                                                                                                     \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

/* Known answers of the authors' library (Random123, kat_vectors). */
static void test_philox(void **state)
{
    static const uint32_t known[3][10] = {
        { 0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 },
        { ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd },
        { 0xa4093822, 0x299f31d0, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xd16cfe09, 0x94fdcceb, 0x5001e420,
          0x24126ea1 },
    };
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        philox(&known[i][0], &known[i][2], out);
        assert_memory_equal(out, &known[i][6], sizeof out);
    }
}

static void test_pointwise(void **state)
{
    CHECK("module @m { func @f(%a: f32[i:2, j:3], %b: f32[j:3]) {"
          "  %y = sub %a, %b : f32[i:2, j:3] return %y } }",
          GIVEN(1, 2, 3, 4, 5, 6, 10, 20, 30), { -9, -18, -27, -6, -15, -24 });
    CHECK("module @m { func @f(%a: f32[i:2], %b: f32[j:2]) { %y = mul %a, %b : f32[i:2, j:2] return %y } }",
          GIVEN(2, 3, 5, 7), { 10, 14, 15, 21 });
    CHECK("module @m { func @f(%c: bool[i:2], %a: f32[i:2], %b: f32[]) {"
          "  %y = where %c, %a, %b : f32[i:2] return %y } }",
          GIVEN(1, 0, 5, 6, 7), { 5, 7 });
    CHECK("module @m { func @f(%a: f32[i:2], %b: f32[i:2]) {"
          "  %0 = lt %a, %b : bool[i:2] %1 = eq %a, %b : bool[i:2] return %0, %1 } }",
          GIVEN(1, 2, 2, 2), { 1, 0, 0, 1 });
    CHECK("module @m { func @f(%a: f32[i:4]) { %0 = gelu %a : f32[i:4] %1 = silu %a : f32[i:4]"
          "  %2 = gelu_tanh %a : f32[i:4] return %0, %1, %2 } }",
          GIVEN(-1, 0, 1, 2),
          { -0.15865525393145705, 0, 0.84134474606854293, 1.9544997361036416, -0.26894142136999512, 0,
            0.7310585786300049, 1.7615941559557649, -0.15880800939172324, 0, 0.84119199060827676, 1.9545976940877752 });
}

static void test_integers(void **state)
{
    CHECK("module @m { func @f(%a: i32[i:4], %b: i32[i:4]) {"
          "  %0 = div %a, %b : i32[i:4] %1 = mul %a, %b : i32[i:4] return %0, %1 } }",
          GIVEN(7, -7, 2147483647, 1, 2, 2, 3, 3), { 3, -3, 715827882, 0, 14, -14, 2147483645, 3 });
    CHECK("module @m { func @f(%a: f32[i:3]) { %0 = cast %a {dtype=i32} : i32[i:3]"
          "  %1 = cast %a {dtype=bool} : bool[i:3] %2 = cast %a {dtype=bf16} : bf16[i:3] return %0, %1, %2 } }",
          GIVEN(2.75, -2.75, 0), { 2, -2, 0, 1, 1, 0, 2.75, -2.75, 0 });
    CHECK("module @m { func @f(%a: i32[i:3], %b: i32[i:3]) { %0 = div %a, %b : i32[i:3] return %0 } }",
          GIVEN(7, 0, INT32_MIN, 0, 0, -1), { 0, 0, INT32_MIN }); /* by zero it is 0, and it wraps */
}

static void test_products_and_reductions(void **state)
{
    CHECK("module @m { func @f(%a: f32[i:2, j:2], %b: f32[j:2, k:2]) {"
          "  %y = dot %a, %b {over=j} : f32[i:2, k:2] return %y } }",
          GIVEN(1, 2, 3, 4, 5, 6, 7, 8), { 19, 22, 43, 50 });
    CHECK("module @m { func @f(%a: f32[i:2, j:2], %b: f32[j:2, i:2]) {" /* i is a batch dim; another order */
          "  %y = dot %a, %b {over=j} : f32[i:2] return %y } }",
          GIVEN(1, 2, 3, 4, 5, 6, 7, 8), { 1 * 5 + 2 * 7, 3 * 6 + 4 * 8 });
    CHECK("module @m { func @f(%a: f32[i:2, j:3]) { %0 = sum %a {over=i} : f32[j:3] %1 = max %a {over=j} : f32[i:2]"
          "  %2 = min %a {over=i+j} : f32[] return %0, %1, %2 } }",
          GIVEN(1, 9, 3, 4, 5, -6), { 5, 14, -3, 9, 5, -6 });
}

static void test_cumulative(void **state)
{
    CHECK("module @m { func @f(%a: f32[i:2, j:3]) { %0 = cumsum %a {dim=j} : f32[i:2, j:3]"
          "  %1 = cumsum %a {dim=i, exclusive=true} : f32[i:2, j:3]"
          "  %2 = cumsum %a {dim=j, exclusive=true, reverse=true} : f32[i:2, j:3] return %0, %1, %2 } }",
          GIVEN(1, 2, 3, 4, 5, 6), { 1, 3, 6, 4, 9, 15, 0, 0, 0, 1, 2, 3, 5, 3, 0, 11, 6, 0 });
    CHECK("module @m { func @f(%a: i32[j:5]) { %0 = cummax %a {dim=j} : i32[j:5]"
          "  %1 = cummax %a {dim=j, exclusive=true} : i32[j:5] %2 = cummax %a {dim=j, reverse=true} : i32[j:5]"
          "  return %0, %1, %2 } }",
          GIVEN(-3, 2, 1, 7, 0), { -3, 2, 2, 7, 7, INT32_MIN, -3, 2, 2, 7, 7, 7, 7, 7, 0 });
}

static void test_views(void **state)
{
    CHECK("module @m { func @f(%a: f32[i:2, j:3]) {"
          "  %0 = slice %a {dim=j, index=2} : f32[i:2]"
          "  %1 = part %a {dim=j, dims=[k:2], index=1} : f32[i:2, k:2]"
          "  %2 = reorder %a {order=j+i} : f32[j:3, i:2]"
          "  %3 = rename %a {dim=i, to=n} : f32[n:2, j:3]"
          "  return %0, %1, %2, %3 } }",
          GIVEN(1, 2, 3, 4, 5, 6), { 3, 6, 2, 3, 5, 6, 1, 4, 2, 5, 3, 6, 1, 2, 3, 4, 5, 6 });
    CHECK("module @m { func @f(%a: f32[i:2], %b: f32[i:1]) {"
          "  %0 = pad %a {dim=i, dims=[n:4], index=1} : f32[n:4]"
          "  %1 = pad %a {dims=[n:2], index=1} : f32[n:2, i:2]"
          "  %2 = concat %a, %b {dims=[i:3]} : f32[i:3]"
          "  %3 = broadcast %a {dims=[n:2]} : f32[n:2, i:2]"
          "  %4 = iota {dims=[n:3]} : i32[n:3]"
          "  return %0, %1, %2, %3, %4 } }",
          GIVEN(1, 2, 3), { 0, 1, 2, 0, 0, 0, 1, 2, 1, 2, 3, 1, 2, 1, 2, 0, 1, 2 });
}

static void test_take(void **state)
{
    CHECK("module @m { func @f(%t: f32[v:3, e:2], %i: i32[s:3], %x: f32[s:3, e:2]) {"
          "  %0 = gather %t, %i {dim=v} : f32[s:3, e:2]"
          "  %1 = scatter_add %x, %i {over=s, dims=[v:3]} : f32[v:3, e:2]"
          "  return %0, %1 } }",
          GIVEN(1, 2, 3, 4, 5, 6, 2, 0, 2, 10, 20, 30, 40, 50, 60), { 5, 6, 1, 2, 5, 6, 30, 40, 0, 0, 60, 80 });
    CHECK("module @m { func @f(%i: i32[s:3], %x: f32[s:3, e:2], %t: f32[v:3, e:2]) {"
          "  %1 = scatter_add %x, %i, %t {over=s, dims=[v:3]} : f32[v:3, e:2]"
          "  return %1 } }",
          GIVEN(2, 0, 2, 10, 20, 30, 40, 50, 60, 1, 2, 3, 4, 5, 6), { 31, 42, 3, 4, 65, 86 });
    /* a table for each h, which the index has, too */
    CHECK("module @m { func @f(%t: f32[h:2, v:3], %i: i32[s:2, h:2], %x: f32[h:2, s:2]) {"
          "  %0 = gather %t, %i {dim=v} : f32[h:2, s:2]"
          "  %1 = scatter_add %x, %i {over=s, dims=[v:3]} : f32[h:2, v:3]"
          "  return %0, %1 } }",
          GIVEN(1, 2, 3, 4, 5, 6, 2, 0, 1, 0, 10, 20, 30, 40), { 3, 2, 4, 4, 0, 20, 10, 70, 0, 0 });
}

/* Each rank looks up what it has of a split vocabulary; the sum of all is the row. */
static void test_take_along_a_split_dim(void **state)
{
    CHECK("module @m { mesh tp=2 func @f(%t: f32[v:3~4/tp, e:2], %i: i32[s:3]) {"
          "  %0 = gather %t, %i {dim=v} : f32[s:3, e:2] partial(tp)"
          "  %1 = all_reduce %0 {axis=tp} : f32[s:3, e:2]"
          "  return %0, %1 } }",
          GIVEN(1, 2, 3, 4, 5, 6, 2, 0, 2), { 5, 6, 1, 2, 5, 6, 5, 6, 1, 2, 5, 6 });
}

/* Two queries and keys of one feature; scores q k. */
static void test_attend(void **state)
{
    const double e = exp(1), y00 = (1 * e + 2 * e * e) / (e + e * e),
                 y10 = (1 * e * e + 2 * pow(e, 4)) / (e * e + pow(e, 4));
    const double half = (e * 1 + e * e * 2) / (e + e * e); /* with scale 1/2, query 2 scores 1 and 2 */
    CHECK("module @m { func @f(%q: f32[s:2, h:1], %k: f32[t:2, h:1], %v: f32[t:2, h:1]) {"
          "  %0, %1 = attend %q, %k, %v {seq=s, key=t, feature=h, scale=1} : f32[s:2, h:1], f32[s:2]"
          "  return %0, %1 } }",
          GIVEN(1, 2, 1, 2, 1, 2), { y00, y10, log(e + e * e), log(e * e + pow(e, 4)) });
    CHECK("module @m { func @f(%q: f32[s:2, h:1], %k: f32[t:2, h:1], %v: f32[t:2, h:1]) {"
          "  %0, %1 = attend %q, %k, %v {seq=s, key=t, feature=h, causal=true, scale=0.5} : f32[s:2, h:1], f32[s:2]"
          "  return %0, %1 } }",
          GIVEN(1, 2, 1, 2, 1, 2), { 1, half, 0.5, log(e + e * e) });
    CHECK("module @m { func @f(%q: f32[s:3, h:1], %k: f32[t:3, h:1], %v: f32[t:3, h:1]) {" /* equal scores */
          "  %0, %1 = attend %q, %k, %v {seq=s, key=t, feature=h, window=2, scale=1} : f32[s:3, h:1], f32[s:3]"
          "  %2, %3 = attend %q, %k, %v {seq=s, key=t, feature=h, causal=true, window=2, scale=1}"
          "    : f32[s:3, h:1], f32[s:3]"
          "  return %0, %2 } }",
          GIVEN(0, 0, 0, 1, 2, 3, 3, 6, 12), { 4.5, 7, 9, 3, 4.5, 9 });
    CHECK("module @m { func @f(%q: f32[g:2, s:1, h:1], %k: f32[t:2, h:1], %v: f32[t:2, h:1]) {" /* grouped queries */
          "  %0, %1 = attend %q, %k, %v {seq=s, key=t, feature=h, scale=1} : f32[g:2, s:1, h:1], f32[g:2, s:1]"
          "  return %0 } }",
          GIVEN(1, 2, 1, 2, 1, 2), { y00, y10 });
}

static void test_rope(void **state)
{
    const double c = cos(1), s = sin(1), d = cos(0.01), u = sin(0.01);
    CHECK("module @m { func @f(%x: f32[s:2, h:4]) {"
          "  %0 = rope %x {seq=s, feature=h, base=10000} : f32[s:2, h:4]"
          "  %1 = rope %x {seq=s, feature=h, base=10000, interleaved=true} : f32[s:2, h:4]"
          "  %2 = rope %0 {seq=s, feature=h, base=10000, inverse=true} : f32[s:2, h:4]"
          "  %3 = rope %x {seq=s, feature=h, base=10000, stretch=0.5} : f32[s:2, h:4]"
          "  return %0, %1, %2, %3 } }",
          GIVEN(1, 2, 3, 4, 1, 2, 3, 4),
          { 1,
            2,
            3,
            4,
            c - 3 * s,
            2 * d - 4 * u,
            3 * c + s,
            4 * d + 2 * u, /* half: (0, 2), (1, 3) */
            1,
            2,
            3,
            4,
            c - 2 * s,
            2 * c + s,
            3 * d - 4 * u,
            4 * d + 3 * u, /* (0, 1), (2, 3) */
            1,
            2,
            3,
            4,
            1,
            2,
            3,
            4,
            1,
            2,
            3,
            4,
            cos(2) - 3 * sin(2), /* position 1 is 2 */
            2 * cos(0.02) - 4 * sin(0.02),
            3 * cos(2) + sin(2),
            4 * cos(0.02) + 2 * sin(0.02) });
}

static double kept(uint32_t key, uint32_t instance, uint32_t index, double rate)
{
    uint32_t out[4];
    philox((uint32_t[]){ key, instance }, (uint32_t[]){ index, 0, 0, 0 }, out);
    return (out[0] >> 8) * 0x1p-24 >= rate ? 1 / (1 - rate) : 0;
}

/* The index counts the batch dim outermost, from the origin: two micro-batches are one batch. */
static void test_dropout(void **state)
{
    const char *text =
        "module @m { mesh dp=2, tp=2 batch b func @f(%x: f32[i:3~4/tp, b:4/z/dp, j:2], %k: i32[], %o: i32[]) {"
        "  %y = dropout %x, %k, %o {rate=0.25, instance=7} : f32[i:3~4/tp, b:4/z/dp, j:2] return %y } }";
    double given[26], expected[24];
    int dropped = 0;
    for (int n = 0; n < 24; n++)
        given[n] = 1;
    given[24] = -5, given[25] = 8;
    for (int i = 0, n = 0; i < 3; i++)
        for (int b = 0; b < 4; b++)
            for (int j = 0; j < 2; j++, n++) {
                expected[n] = kept((uint32_t)-5, 7, (uint32_t)((b + 8) * 6 + i * 2 + j), 0.25);
                dropped += expected[n] == 0;
            }
    assert_in_range(dropped, 1, 12);
    check(text, given, expected);
}

static void test_fold_key(void **state)
{
    uint32_t out[4];
    philox((uint32_t[]){ 11, 0x6b657973 }, (uint32_t[]){ 5, 0, 1, 0 }, out);
    CHECK("module @m { func @f(%k: i32[], %i: i32[]) { %y = fold_key %k, %i : i32[] return %y } }", GIVEN(11, 5),
          { (double)(int32_t)out[0] });
}

/* Every collective leaves the tensor unchanged; with two axes on a dim, zig-zag, and uneven parts. */
static void test_collectives(void **state)
{
    double given[40], expected[400];
    for (int i = 0; i < 40; i++)
        given[i] = i * i;
    for (int i = 0; i < 400; i++)
        expected[i] = given[i % 40];
    check("module @m { mesh dp=2, tp=3 func @f(%x: f32[i:4/z/dp, j:10~12] partial(tp)) {"
          "  %0 = all_reduce %x {axis=tp} : f32[i:4/z/dp, j:10~12]"
          "  %1 = reduce_scatter %x {dim=j, axis=tp} : f32[i:4/z/dp, j:10~12/tp]"
          "  %2 = all_to_all %1 {dim=i, to=j, axis=dp} : f32[i:4, j:10~12/tp+dp]"
          "  %3 = all_gather %2 {dim=j, axis=dp} : f32[i:4, j:10~12/tp]"
          "  %4 = all_gather %2 {dim=j, axis=dp+tp} : f32[i:4, j:10~12]"
          "  %5 = local_slice %4 {dim=j, axis=dp+tp} : f32[i:4, j:10~12/dp+tp]"
          "  %6 = all_gather %0 {dim=i, axis=dp} : f32[i:4, j:10~12]"
          "  return %x, %0, %1, %2, %3, %4, %5, %6 } }",
          given, expected);
}

/* Rotated blocks; and attention to keys that pass by, whole and block by block: rank 0 has keys 0 and 3. */
static void test_rotation(void **state)
{
    CHECK("module @m { mesh dp=3 func @f(%x: f32[i:6/dp]) {"
          "  %0 = rotate %x {dim=i, axis=dp, index=1} : f32[i:6/dp@1]"
          "  %1 = rotate %0 {dim=i, axis=dp, index=2} : f32[i:6/dp]"
          "  %2 = add %0, %0 : f32[i:6/dp@1]"
          "  %3 = iota {dims=[i:6/dp@2]} : i32[i:6/dp@2]"
          "  return %1, %2, %3 } }",
          GIVEN(1, 2, 3, 4, 5, 6), { 1, 2, 3, 4, 5, 6, 2, 4, 6, 8, 10, 12, 0, 1, 2, 3, 4, 5 });
    CHECK("module @m { mesh dp=2 func @f(%q: f32[s:4/z/dp, h:1], %k: f32[t:4/z/dp, h:1]) {"
          "  %y, %l = attend %q, %k, %k {axis=dp, seq=s, key=t, feature=h, causal=true, scale=1} :"
          "    f32[s:4/z/dp, h:1], f32[s:4/z/dp]"
          "  %a, %la = attend %q, %k, %k {own=true, seq=s, key=t, feature=h, causal=true, scale=1} :"
          "    f32[s:4/z/dp, h:1], f32[s:4/z/dp]"
          "  %n = rotate %k {dim=t, axis=dp, index=1} : f32[t:4/z/dp@1, h:1]"
          "  %b, %lb = attend %q, %n, %n {own=true, seq=s, key=t, feature=h, causal=true, scale=1} :"
          "    f32[s:4/z/dp, h:1], f32[s:4/z/dp]"
          "  %lm = lse_add %la, %lb : f32[s:4/z/dp]"
          "  return %y, %a, %b, %lm } }",
          GIVEN(0, 0, 0, 0, 1, 2, 4, 8),
          { 1, 1.5, 7 / 3.0, 15 / 4.0, 1, 2, 3, 4.5, 0, 1, 1, 3, 0, log(2), log(3), log(4) });
}

static void test_partial_maximum(void **state)
{
    CHECK("module @m { mesh tp=3 func @f(%x: f32[i:2, j:5~6/tp]) {"
          "  %0 = max %x {over=j} : f32[i:2] partial_max(tp)"
          "  %1 = all_reduce %0 {axis=tp} : f32[i:2]"
          "  return %0, %1 } }",
          GIVEN(-1, -2, -3, -4, -5, 5, 6, 7, 8, 9), { -1, 9, -1, 9 });
}

static const char LOOPS[] =
    "module @m {\n"
    "  func @body(%x: f32[i:2], %w: f32[i:2], %g: f32[]) {\n"
    "    %0 = mul %x, %w : f32[i:2]\n"
    "    %1 = add %0, %g : f32[i:2]\n"
    "    return %1, %0\n"
    "  }\n"
    "  func @f(%x: f32[i:2], %w: f32[n:2, i:2], %g: f32[]) {\n"
    "    %a, %b = loop %x, %w, %g {dims=[n:2], callee=body, carried=1} : f32[i:2], f32[n:2, i:2]\n"
    "    %c, %d = loop %x, %w, %g {dims=[n:2], callee=body, carried=1, reverse=true} : f32[i:2], f32[n:2, i:2]\n"
    "    %w0 = slice %w {dim=n} : f32[i:2]\n"
    "    %e, %h = call %x, %w0, %g {callee=body} : f32[i:2], f32[i:2]\n"
    "    return %a, %b, %c, %d, %e\n"
    "  }\n"
    "}\n";

static void test_loops(void **state)
{
    CHECK(LOOPS, GIVEN(1, 2, 3, 4, 5, 6, 10), { 75, 118, 3, 8, 65, 108, 55, 98, 45, 88, 5, 12, 13, 18 });
}

typedef struct {
    int seen;
    char names[512];
} Log;

static void log_value(void *context, const Observation *seen)
{
    Log *log = context;
    log->seen++;
    size_t length = strlen(log->names);
    snprintf(log->names + length, sizeof log->names - length, "%s%s=%g ", seen->iteration,
             seen->op->results.at[seen->result]->name, seen->value.data[0]);
}

static void test_observer(void **state)
{
    Text *t = good_text(LOOPS);
    const Func *f = find_func(t->m, intern_text(t->m, "f"));
    Tensor args[3], results[5];
    for (int i = 0; i < 3; i++) {
        args[i] = new_tensor(&f->params.at[i]->type);
        for (int n = 0; n < element_count(&args[i].type); n++)
            args[i].data[n] = 1;
    }
    Log log = { 0 };
    assert_true(interpret_with(t->m, f, args, results, &(RunOptions){ .observer = &(Observer){ log_value, &log } }));
    assert_int_equal(log.seen, 4 + 2 + 4 + 2 + 1 + 2 + 2);
    assert_non_null(strstr(log.names, "body[0].0=1 body[0].1=2 body[1].0=2 body[1].1=3 a=3 b=1 body[1].0=1 "));
    free_tensors(args, 3);
    free_tensors(results, 5);
    free_text(t);
}

/* The interpreter does not rely on types: these programs are invalid, and it reports where.  They would not pass the
 * verifier, so they are not verified here. */
static void refuses(const char *text, const double *given, const char *message)
{
    Text *t = read_text(text);
    assert_int_equal(t->diags.errors, 0);
    const Func *f = find_func(t->m, intern_text(t->m, "f"));
    Tensor args[8], results[8];
    for (int i = 0; i < f->params.count; i++) {
        args[i] = new_tensor(&f->params.at[i]->type);
        for (int64_t n = 0; n < element_count(&args[i].type); n++)
            args[i].data[n] = *given++;
    }
    if (interpret(t->m, f, args, results))
        fail_msg("runs, but should not:\n%s", text);
    if (!strstr(said(t), message))
        fail_msg("should say '%s', but says\n%s", message, said(t));
    free_tensors(args, f->params.count);
    free_text(t);
}

static void test_refusals(void **state)
{
    const double given[16] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    refuses("module @m { mesh dp=2 func @f(%x: f32[i:4/dp]) { %y = sum %x {over=i} : f32[] return %y } }", given,
            "@f: sum %y at : the copies of %y differ: element 0 of its shard is 3 on rank 0, 7 on rank 1");
    refuses("module @m { mesh dp=2 func @f(%x: f32[i:2] partial(dp)) { %y = neg %x : f32[i:2] return %y } }", given,
            "the copies of %y differ");
    refuses("module @m { mesh a=2, b=2 func @f(%x: f32[i:4/a]) {"
            "  %y = all_gather %x {dim=i, axis=b} : f32[i:4] loc(h.x t.mdl:1:1) return %y } }",
            given, "at h.x: rank 0 needs element 2 of 'i', which no rank of its group holds");
    refuses("module @m { mesh a=2, b=2 func @f(%x: f32[i:4/a+b]) {" /* a group of `a` has not all of a block of b */
            "  %y = all_gather %x {dim=i, axis=a} : f32[i:4/b] return %y } }",
            given, "which no rank of its group holds");
    refuses("module @m { mesh a=2 func @f(%x: f32[i:2] partial(a)) {"
            "  %y = local_slice %x {dim=i, axis=a} : f32[i:2/a] return %y } }",
            given, "its group cannot produce the pending sums");
    refuses("module @m { func @f(%x: f32[v:3], %i: i32[s:1]) { %y = gather %x, %i {dim=v} : f32[s:1] return %y } }",
            given, "index 4 on rank 0, but 'v' has 3 elements");
    refuses("module @m { mesh a=2 func @f(%x: f32[i:4/a], %y: f32[i:4]) { %0 = add %x, %y : f32[i:4/a] return %0 } }",
            given, "split 'i' differently");
    refuses("module @m { func @f(%x: f32[]) { %0 = call %x {callee=f} : f32[] return %0 } }", given,
            "calls are recursive");
}

static void test_tensors(void **state)
{
    Text *t = good_text("module @m { }");
    Type type = type_of_text(t->m, "f32[i:8, j:4]"), turned = type_of_text(t->m, "bf16[j:4, i:8]");
    Tensor a = random_tensor("w", &type, -1, 1), b = random_tensor("w", &type, -1, 1), c = new_tensor(&turned);
    Tensor other = random_tensor("v", &type, -1, 1);
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 4; j++)
            c.data[j * 8 + i] = a.data[i * 4 + j];
    assert_true(tensor_difference(&a, &b, 0).by == 0);
    assert_true(tensor_difference(&a, &c, 0).by == 0);
    assert_true(tensor_difference(&a, &other, 0).by > 0.1);
    b.data[7] += 1e-3;
    Difference d = tensor_difference(&a, &b, 0);
    assert_true(d.at == 7 && d.by > 5e-4 && d.by < 1e-2);
    b.data[7] = NAN;
    assert_true(isinf(tensor_difference(&a, &b, 0).by));
    type = type_of_text(t->m, "i32[i:100]");
    Tensor tokens = random_tensor("tokens", &type, 0, 3);
    int count[3] = { 0 };
    for (int i = 0; i < 100; i++)
        count[(int)tokens.data[i]]++;
    assert_true(count[0] > 10 && count[1] > 10 && count[2] > 10 && count[0] + count[1] + count[2] == 100);
    free_tensors((Tensor[]){ a, b, c, other, tokens }, 5);
    free_text(t);
}

#define STAGED "module @m { mesh dp=2, pp=4 "
#define LAYER "func @layer(%x: f32[i:2], %w: f32[i:2]) { %y = mul %x, %w : f32[i:2] return %y } "

/* A value may be on some stages of a pipeline only: ops run there, and sums of several stages are pending. */
static void test_stages(void **state)
{
    CHECK(STAGED "func @f(%x: f32[i:2] on(pp=0), %w: f32[i:2] on(pp=2), %v: f32[i:2]) {"
                 "  %1 = mul %x, %v : f32[i:2] on(pp=0) %2 = send %1 {on=(pp=2)} : f32[i:2] on(pp=2)"
                 "  %3 = mul %2, %w : f32[i:2] on(pp=2) return %3, %1 } }",
          GIVEN(1, 2, 3, 4, 5, 6), { 15, 48, 5, 12 });
    CHECK(STAGED "func @f(%x: f32[i:2] on(pp=1), %y: f32[i:2] on(pp=3)) {"
                 "  %1 = add %x, %y : f32[i:2] partial(pp) on(pp=1+3)"
                 "  %2 = all_reduce %1 {axis=pp} : f32[i:2] on(pp=1+3) return %1, %2 } }",
          GIVEN(1, 2, 3, 4), { 4, 6, 4, 6 });
    CHECK(STAGED "func @f(%x: f32[i:2] on(pp=1), %y: f32[i:2] on(pp=3), %z: f32[i:2] on(pp=2)) {"
                 "  %1 = add %x, %y : f32[i:2] partial(pp) on(pp=1+3)"
                 "  %2 = add %1, %z : f32[i:2] partial(pp) on(pp=1+2+3)"
                 "  %3 = reshard %2 {dims=[i:2]} : f32[i:2] return %3 } }",
          GIVEN(1, 2, 3, 4, 10, 20), { 14, 26 });
    CHECK(STAGED "func @f(%x: f32[i:2] on(pp=1), %y: f32[i:2] on(pp=3), %z: f32[i:2] on(pp=2)) {"
                 "  %1 = pend %x, %y {axis=pp, on=(pp=1+3)} : f32[i:2] partial(pp) on(pp=1+3)"
                 "  %2 = pend %z, %1 {axis=pp} : f32[i:2] partial(pp)"
                 "  %3 = all_reduce %2 {axis=pp} : f32[i:2] return %3 } }",
          GIVEN(1, 2, 3, 4, 10, 20), { 14, 26 });
    CHECK(STAGED LAYER "func @f(%x: f32[i:2] on(pp=1), %w: f32[i:2] on(pp=1+2), %g: f32[i:2] partial(dp) on(pp=2)) {"
                       "  %1 = call %x, %w {callee=layer} : f32[i:2] on(pp=1)"
                       "  %2 = reshard %1 {dims=[i:2], axis=pp} : f32[i:2] partial(pp)"
                       "  %3 = all_reduce %2 {axis=pp} : f32[i:2]"
                       "  %4 = all_reduce %g {axis=dp} : f32[i:2] on(pp=2) return %3, %4 } }",
          GIVEN(1, 2, 3, 4, 5, 6), { 3, 8, 5, 6 });
}

static void test_wrong_stages(void **state)
{
    refuse(STAGED "func @f(%x: f32[i:2] on(pp=0), %w: f32[i:2] on(pp=1)) {"
                  "  %1 = mul %x, %w : f32[i:2] on(pp=0) return %1 } }",
           "no stage holds all operands of mul: %w is on(pp=1)");
    refuse(STAGED "func @f(%x: f32[i:2] on(pp=0+1), %w: f32[i:2] on(pp=2)) {"
                  "  %1 = add %x, %w : f32[i:2] on(pp=0+1+2) return %1 } }",
           "no stage holds all operands of add: %w is on(pp=2)");
    refuse(STAGED "func @f(%x: f32[i:2] on(pp=0)) { %1 = send %x {on=(pp=0)} : f32[i:2] on(pp=0) return %1 } }",
           "send takes %x from one stage to another one");
    refuse(STAGED "func @f(%x: f32[i:2] on(pp=0), %w: f32[i:2] on(pp=0)) {"
                  "  %1 = pend %x, %w {axis=pp} : f32[i:2] partial(pp) return %1 } }",
           "pend takes terms of one type, each on stages of its own: not %w");
    refuse(STAGED "func @f(%x: f32[i:2] on(pp=4)) { return %x } }", "the axis has no such stage");
    refuse(STAGED "func @f(%x: f32[i:2] on(tp=0)) { return %x } }", "the mesh has no such axis");
    refuse(STAGED "func @f(%x: f32[i:2]) { %1 = square %x {on=(pp=0)} : f32[i:2] on(pp=0) return %1 } }",
           "square has no attribute 'on': it has none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox),       cmocka_unit_test(test_stages),
        cmocka_unit_test(test_wrong_stages), cmocka_unit_test(test_pointwise),
        cmocka_unit_test(test_integers),     cmocka_unit_test(test_products_and_reductions),
        cmocka_unit_test(test_cumulative),   cmocka_unit_test(test_views),
        cmocka_unit_test(test_take),         cmocka_unit_test(test_take_along_a_split_dim),
        cmocka_unit_test(test_attend),       cmocka_unit_test(test_rope),
        cmocka_unit_test(test_dropout),      cmocka_unit_test(test_fold_key),
        cmocka_unit_test(test_collectives),  cmocka_unit_test(test_partial_maximum),
        cmocka_unit_test(test_rotation),     cmocka_unit_test(test_loops),
        cmocka_unit_test(test_observer),     cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
