/* cuda_counted.c -- products by expert of which at least half the rows are empty: kernels that leave these out
 * (runtime/cuda/counted.cuh), where cuBLASLt would compute all.
 *
 * Which is faster depends on how many rows are filled, which is known when a step runs; the choice is made here, for a
 * balanced router, so that it does not depend on what was measured. */
#include "cuda_library.h"
#include "cuda_row.h"
#include "filled.h"
#include "templates.h"

#include <inttypes.h>

/* As in runtime/cuda/counted.cuh. */
enum { TILE = 128, THREADS = 256, COUNT_BLOCKS = 32, SHARED = 81920, MOST_MATRICES = 4096 };

/* One of the two operands: rows of A or columns of B, and terms of the sum. */
typedef struct {
    const char *name;
    const Value *value;
    int64_t batch, line, outer;
    bool by_terms; /* the terms are contiguous; else the rows or columns */
} Side;

/* C's rows are contiguous: else C' = B' A'. */
typedef struct {
    Side a, b;
    int64_t row, k;
    RtCounted counted;
} Sides;

static Sides sides_of(const Product *p, const Op *call)
{
    const RtProductShape *s = &p->shape;
    const Side a = {
        "a", arg(call, p->a), s->a.batch, s->a.column == 1 ? s->a.row : s->a.column, s->m, s->a.column == 1
    };
    const Side b = { "b", arg(call, p->b), s->b.batch, s->b.row == 1 ? s->b.column : s->b.row, s->n, s->b.row == 1 };
    if (s->c.column == 1)
        return (Sides){ a, b, s->c.row, s->k, s->counted };
    const RtCounted turned = s->counted == RT_COUNTED_M   ? RT_COUNTED_N
                             : s->counted == RT_COUNTED_N ? RT_COUNTED_M
                                                          : RT_COUNTED_K;
    return (Sides){ b, a, s->c.column, s->k, turned };
}

/* Whose lines are looked at, and how many there are: contiguous ones, as plan_products has seen to. */
static const Side *counted_side(const Sides *s, int64_t *lines, int64_t *length)
{
    const Side *side = s->counted == RT_COUNTED_M   ? &s->a
                       : s->counted == RT_COUNTED_N ? &s->b
                       : s->a.by_terms              ? &s->b
                                                    : &s->a;
    *lines = s->counted == RT_COUNTED_K ? s->k : side->outer;
    *length = s->counted == RT_COUNTED_K ? side->outer : s->k;
    return side;
}

/* Do all lines begin on a boundary of so many elements, if loops do not move them? */
static bool lines_begin_on(const Module *m, const Op *call, const Value *value, int elements, int64_t line,
                           int64_t batch)
{
    return is_address_aligned(m, call, value, (int64_t)elements * dtype_bytes(value->type.dtype)) &&
           line % elements == 0 && batch % elements == 0;
}

static bool loops_keep_boundaries(const Product *p)
{
    for (int i = 0; i < p->nloops; i++)
        if (p->loop[i].a % 8 || p->loop[i].b % 8 || p->loop[i].c % 2)
            return false;
    return true;
}

static bool is_in_packs(const Module *m, const Op *call, const Side *side, int64_t k)
{
    return lines_begin_on(m, call, side->value, 8, side->line, side->batch) &&
           (side->by_terms ? k : side->outer) % 8 == 0;
}

bool is_cuda_counted(Module *m, const Product *p, const Op *call)
{
    const RtProductShape *s = &p->shape;
    if (p->naive || s->counted == RT_NOT_COUNTED || s->a.type == RT_F32 || s->a.type != s->b.type)
        return false;
    const Sides sides = sides_of(p, call);
    const Value *c = call->results.at[p->c];
    return filled_flops(m, p->dot) <= op_flops(m, p->dot) / 2 && s->batch <= MOST_MATRICES &&
           is_in_packs(m, call, &sides.a, s->k) && is_in_packs(m, call, &sides.b, s->k) &&
           lines_begin_on(m, call, c, 2, sides.row, s->c.batch) && sides.b.outer % 2 == 0 && loops_keep_boundaries(p);
}

/* --- Functions ------------------------------------------------------------------------------------ */

static char *matrix(Module *m, int64_t batch, int64_t line)
{
    return arena_text(&m->arena, "{ .batch = %" PRId64 ", .line = %" PRId64 " }", batch, line);
}

static char *count_body(Module *m, const Sides *s)
{
    int64_t lines, length;
    const Side *side = counted_side(s, &lines, &length);
    return arena_text(&m->arena,
                      "const RtCountedLines lines = {\n"
                      "    .of = %s,\n"
                      "    .count = %" PRId64 ",\n"
                      "    .length = %" PRId64 ",\n"
                      "};\n"
                      "rt_count_filled(%s, filled, lines);",
                      matrix(m, side->batch, side->line), lines, length, side->name);
}

static char *product_body(Module *m, const Sides *s, const RtProductShape *shape)
{
    static const char *const counted[] = {
        [RT_COUNTED_M] = "RT_COUNTED_ROWS", [RT_COUNTED_N] = "RT_COUNTED_COLUMNS", [RT_COUNTED_K] = "RT_COUNTED_TERMS"
    };
    static const char *const truth[] = { "false", "true" };
    return arena_text(&m->arena,
                      "const RtCountedProduct shape = {\n"
                      "    .m = %" PRId64 ",\n"
                      "    .n = %" PRId64 ",\n"
                      "    .k = %" PRId64 ",\n"
                      "    .a = %s,\n"
                      "    .b = %s,\n"
                      "    .c = %s,\n"
                      "};\n"
                      "rt_counted_product<%s, %s, %s, %s>(%s, %s, c, filled, shape);",
                      s->a.outer, s->b.outer, s->k, matrix(m, s->a.batch, s->a.line), matrix(m, s->b.batch, s->b.line),
                      matrix(m, shape->c.batch, s->row), counted[s->counted], truth[s->a.by_terms],
                      truth[s->b.by_terms], truth[shape->accumulate], s->a.name, s->b.name);
}

static void write_function(Module *m, const Product *p, const Op *call, CudaLaunch launch, const char *body,
                           CudaLaunches *launches, FILE *out)
{
    const char *parameter[MAX_PRODUCT_OPERANDS + 1];
    int count = product_parameters(m, p, call, "", parameter);
    parameter[count++] = "int32_t *filled";
    FILL(out, function_template, { "head", kernel_head(m, launch.name, cuda_bounds(m, THREADS, 2), count, parameter) },
         { "body", body });
    add_launch(launches, launch, m);
}

const char *emit_cuda_counted(Module *m, const Product *p, const Op *call, const char *name, CudaLaunches *launches,
                              FILE *out)
{
    const Sides s = sides_of(p, call);
    int64_t lines, length, tiles = ((s.a.outer + TILE - 1) / TILE) * ((s.b.outer + TILE - 1) / TILE);
    const Side *side = counted_side(&s, &lines, &length);
    const int64_t c = value_bytes(m, call->results.at[p->c]);
    const CudaLaunch counting = {
        .name = name, .blocks = p->shape.batch * COUNT_BLOCKS, .threads = THREADS, .bytes = value_bytes(m, side->value)
    };
    const CudaLaunch product = { .name = arena_text(&m->arena, "%s_2", name),
                                 .blocks = p->shape.batch * tiles,
                                 .threads = THREADS,
                                 .shared = SHARED,
                                 .bytes = value_bytes(m, s.a.value) + value_bytes(m, s.b.value) +
                                          (p->shape.accumulate ? 2 : 1) * c };
    launches->count = 0;
    write_function(m, p, call, counting, count_body(m, &s), launches, out);
    fputc('\n', out);
    write_function(m, p, call, product, product_body(m, &s, &p->shape), launches, out);
    return arena_text(&m->arena, "/* A product of which most rows are empty, at %s */\n",
                      comment_text(m, call->where ? call->where : ""));
}
