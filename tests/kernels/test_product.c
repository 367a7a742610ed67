/* test_product.c -- rt_product against three loops, over layouts, types, batches, accumulation, biases and activations.
 */
#include "check.h"
#include "device.h"

static const RtProgram program = { .precision = "fp32" };

static int64_t extent(int64_t rows, int64_t row, int64_t columns, int64_t column, int64_t count, int64_t batch)
{
    return (rows - 1) * row + (columns - 1) * column + (count - 1) * batch + 1;
}

/* Strides of an operand: dense or padded, by rows or by columns, any of a single row or column; matrices one after
 * another, or (interleaved) beside each other in a row, or one for all. */
static void pick_layout(int64_t rows, int64_t columns, int64_t count, bool may_share, int64_t *row, int64_t *column,
                        int64_t *batch)
{
    const bool turned = pick(2);
    const int64_t minor = turned ? rows : columns, major = turned ? columns : rows, pad = pick(2) * 5;
    const bool interleaved = pick(2);
    const int64_t stride = (interleaved ? count : 1) * minor + pad;
    *(turned ? row : column) = 1;
    *(turned ? column : row) = major == 1 && pick(2) ? 0 : stride;
    *batch = count == 1 || (may_share && pick(3) == 0) ? 0 : interleaved ? minor : stride * major + pad;
}

static double tolerance(const RtProductShape *s, double magnitude)
{
    return ((double)s->k + 2) * 0x1p-23 * magnitude; /* each of k sums and products rounds once, in f32 */
}

/* The slopes are at most 1.13, and oneDNN's tanh is good to some units of f32. */
static double activated(RtActivation activation, double x)
{
    if (activation == RT_RELU)
        return x > 0 ? x : 0;
    return activation == RT_GELU_TANH ? 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))) : x;
}

static void compare(const RtProductShape *s, const void *a, const void *b, const void *bias, const void *before,
                    const void *c, int64_t t, int64_t i, int64_t j)
{
    const int64_t at = t * s->c.batch + i * s->c.row + j * s->c.column;
    double want = s->accumulate ? get(before, at, s->c.type) : 0, magnitude = fabs(want);
    want += s->has_bias ? get(bias, j, s->c.type) : 0;
    magnitude += s->has_bias ? fabs(get(bias, j, s->c.type)) : 0;
    for (int64_t l = 0; l < s->k; l++) {
        const double x = get(a, t * s->a.batch + i * s->a.row + l * s->a.column, s->a.type);
        const double y = get(b, t * s->b.batch + l * s->b.row + j * s->b.column, s->b.type);
        want += x * y;
        magnitude += fabs(x * y);
    }
    const double got = get(c, at, s->c.type);
    want = activated(s->activation, want);
    check(is_close(got, want, tolerance(s, magnitude) * (s->activation == RT_GELU_TANH ? 4 : 1), s->c.type),
          "%lld x %lld x %lld batch %lld: a %s %lld,%lld b %s %lld,%lld c %s %lld,%lld%s%s, activation %d: "
          "[%lld, %lld, %lld] is %g, not %g",
          (long long)s->m, (long long)s->n, (long long)s->k, (long long)s->batch, type_name[s->a.type],
          (long long)s->a.row, (long long)s->a.column, type_name[s->b.type], (long long)s->b.row,
          (long long)s->b.column, type_name[s->c.type], (long long)s->c.row, (long long)s->c.column,
          s->accumulate ? " accumulate" : "",
          s->has_bias  ? " bias"
          : s->counted ? " counted"
                       : "",
          s->activation, (long long)t, (long long)i, (long long)j, got, want);
}

static void check_padding(const RtProductShape *s, const void *before, const void *c, int64_t count)
{
    bool *written = calloc((size_t)count, 1);
    for (int64_t t = 0; t < s->batch; t++)
        for (int64_t i = 0; i < s->m; i++)
            for (int64_t j = 0; j < s->n; j++)
                written[t * s->c.batch + i * s->c.row + j * s->c.column] = true;
    for (int64_t at = 0; at < count; at++)
        check(written[at] || get(before, at, s->c.type) == get(c, at, s->c.type), "wrote what is not its own");
    free(written);
}

/* Makes the last lines of each matrix of the operand zeros where they are looked for: all, none or some. */
static void empty_lines(const RtProductShape *s, void *a, void *b)
{
    const bool in_a = s->counted == RT_COUNTED_M || (s->counted == RT_COUNTED_K && s->a.row == 1);
    const int64_t size = s->counted == RT_COUNTED_M ? s->m : s->counted == RT_COUNTED_N ? s->n : s->k;
    const int64_t length = s->counted != RT_COUNTED_K ? s->k : in_a ? s->m : s->n;
    const int64_t line = s->counted == RT_COUNTED_M   ? s->a.row
                         : s->counted == RT_COUNTED_N ? s->b.column
                         : in_a                       ? s->a.column
                                                      : s->b.row;
    for (int64_t t = 0; t < s->batch; t++)
        for (int64_t i = pick(3) ? pick(size + 1) : pick(2) * size; i < size; i++)
            for (int64_t j = 0; j < length; j++)
                put(in_a ? a : b, t * (in_a ? s->a.batch : s->b.batch) + i * line + j, pick(2) ? 0.0 : -0.0,
                    in_a ? s->a.type : s->b.type);
}

/* Runs it twice, in a fresh trainer; `samples`: number of checked elements, 0: all. */
static void check_product(RtProductShape s, int64_t samples)
{
    const int64_t a_count = extent(s.m, s.a.row, s.k, s.a.column, s.batch, s.a.batch);
    const int64_t b_count = extent(s.k, s.b.row, s.n, s.b.column, s.batch, s.b.batch);
    const int64_t c_count = extent(s.m, s.c.row, s.n, s.c.column, s.batch, s.c.batch);
    void *a = random_array(a_count, s.a.type), *b = random_array(b_count, s.b.type);
    void *before = random_array(c_count, s.c.type), *c = allocate(c_count * type_bytes(s.c.type));
    void *bias = s.has_bias ? random_array(s.n, s.c.type) : NULL;
    if (s.counted)
        empty_lines(&s, a, b);
    Rt rt = { .program = &program };
    rt_product_create(&rt, 1, s);
    for (int iteration = 0; iteration < 2; iteration++) {
        memcpy(c, before, (size_t)(c_count * type_bytes(s.c.type)));
        rt_product_with(&rt, 1, a, b, bias, NULL, c);
    }
    for (int64_t i = 0; i < samples; i++)
        compare(&s, a, b, bias, before, c, pick(s.batch), pick(s.m), pick(s.n));
    for (int64_t t = 0; t < s.batch && !samples; t++)
        for (int64_t i = 0; i < s.m; i++)
            for (int64_t j = 0; j < s.n; j++)
                compare(&s, a, b, bias, before, c, t, i, j);
    if (!samples)
        check_padding(&s, before, c, c_count);
    rt_products_free(&rt);
    check(rt.products == NULL && rt_libraries_workspace_bytes(&rt) == 0, "not freed");
    free(a);
    free(b);
    free(bias);
    free(before);
    free(c);
}

static const RtType types[][3] = {
    { RT_F32, RT_F32, RT_F32 },  { RT_BF16, RT_BF16, RT_BF16 }, { RT_BF16, RT_BF16, RT_F32 },
    { RT_F16, RT_F16, RT_F16 },  { RT_F16, RT_F16, RT_F32 },    { RT_F32, RT_BF16, RT_F32 },
    { RT_F32, RT_F32, RT_BF16 }, { RT_BF16, RT_F32, RT_F16 },
};

static void check_any(void)
{
    static const int64_t sizes[] = { 1, 2, 3, 7, 16, 33, 64, 65 };
    const RtType *type = types[pick(8)];
    RtProductShape s = { .m = sizes[pick(8)],
                         .n = sizes[pick(8)],
                         .k = sizes[pick(8)],
                         .batch = pick(3) ? 1 : 3,
                         .a.type = type[0],
                         .b.type = type[1],
                         .c.type = type[2],
                         .accumulate = pick(2),
                         .has_bias = pick(2),
                         .activation = (RtActivation)pick(3) };
    pick_layout(s.m, s.k, s.batch, true, &s.a.row, &s.a.column, &s.a.batch);
    pick_layout(s.k, s.n, s.batch, true, &s.b.row, &s.b.column, &s.b.batch);
    pick_layout(s.m, s.n, s.batch, false, &s.c.row, &s.c.column, &s.c.batch);
    const bool may_count[] = { true, s.m >= 16 && s.a.column == 1, s.n >= 16 && s.b.row == 1,
                               s.k >= 16 && (s.a.row == 1 || s.b.column == 1) };
    const RtCounted counted = (RtCounted)pick(4);
    if (!s.has_bias && !s.activation && may_count[counted])
        s.counted = counted;
    check_product(s, 0);
}

/* By expert, 16 lines of which few are filled, and one or two of the others. */
static void check_few(RtCounted counted)
{
    RtProductShape s = { .m = 1 + pick(2), .n = 1 + pick(2), .k = 1 + pick(2), .batch = 1, .counted = counted };
    *(counted == RT_COUNTED_M ? &s.m : counted == RT_COUNTED_N ? &s.n : &s.k) = 16;
    pick_layout(s.m, s.k, 1, true, &s.a.row, &s.a.column, &s.a.batch);
    pick_layout(s.k, s.n, 1, true, &s.b.row, &s.b.column, &s.b.batch);
    pick_layout(s.m, s.n, 1, false, &s.c.row, &s.c.column, &s.c.batch);
    const bool may_count[] = { true, s.a.column == 1, s.b.row == 1, s.a.row == 1 || s.b.column == 1 };
    if (may_count[counted])
        check_product(s, 0);
}

/* Long products, split into pieces, of which the last is shorter. */
static void check_long(RtType type, RtType result, bool by_rows, bool accumulate, bool turned)
{
    enum { LONG = 70001, SHORT = 150, DEPTH = 9 };
    RtProductShape s = {
        .m = by_rows ? LONG : SHORT, .n = by_rows ? SHORT : LONG, .k = DEPTH, .batch = 1, .accumulate = accumulate
    };
    s.has_bias = !accumulate;
    s.activation = accumulate ? RT_NO_ACTIVATION : RT_RELU;
    s.a.type = s.b.type = type;
    s.c.type = result;
    s.a.row = by_rows ? 1 : DEPTH, s.a.column = by_rows ? LONG : 1;
    s.b.row = by_rows ? SHORT : 1, s.b.column = by_rows ? 1 : DEPTH;
    s.c.row = turned ? 1 : s.n + 3, s.c.column = turned ? s.m + 3 : 1;
    Rt rt = { .program = &program };
    rt_product_create(&rt, 0, s);
    check(rt_libraries_workspace_bytes(&rt) < 40 << 20, "a workspace of %lld bytes",
          (long long)rt_libraries_workspace_bytes(&rt));
    rt_products_free(&rt);
    check_product(s, 3000);
}

/* Rows of B that meet in a few sets of a cache, and are copied apart for AVX2; many columns in pieces. */
static void check_rows_that_meet(RtType type, bool many, bool accumulate, bool turned)
{
    static const int64_t few[] = { 32, 61, 383 };
    RtProductShape s = { .m = few[pick(3)],
                         .n = many ? 140 * 512 : 500 + pick(2) * 12,
                         .k = many ? 160 : 1 + pick(300),
                         .batch = 1,
                         .accumulate = accumulate,
                         .has_bias = !accumulate };
    s.a.type = s.b.type = s.c.type = type;
    s.a.row = s.k + 1, s.a.column = s.b.column = 1;
    s.b.row = (s.n + 511) / 512 * 512;
    s.c.row = turned ? 1 : s.n + 3, s.c.column = turned ? s.m + 3 : 1;
    check_product(s, 3000);
}

static void check_all_rows_that_meet(void)
{
    for (int i = 0; i < 16; i++)
        check_rows_that_meet(i & 1 ? RT_F16 : RT_F32, (i & 14) == 0, i & 4, i & 8);
}

/* With an argument only rows that meet, for another level of instructions. */
int main(int count, char *args[])
{
    check_all_rows_that_meet();
    if (count > 1)
        return report(args[1]);
    const bool all = is_for_all();
    for (int i = 0; i < (all ? 1500 : 500); i++)
        check_any();
    for (int i = 0; i < (all ? 600 : 200); i++)
        check_few((RtCounted)(1 + i % 3));
    const unsigned pairs = 1 << 0 | 1 << 7 | 1 << 11 | 1 << 13 | 1 << 14; /* each two choices in each way */
    for (int i = 0; i < 16; i++)
        if (all || pairs >> i & 1)
            check_long(i & 1 ? RT_BF16 : RT_F16, i & 2 ? RT_F32 : i & 1 ? RT_BF16 : RT_F16, i & 4, i & 2, i & 8);
    Rt rt = { .program = &program };
    check(rt_product_peak(&rt, 0.05) > 1e8, "no peak");
    return report(getenv("MPC_EMULATE_BF16") ? "product, bf16 emulated" : "product");
}
