/* product_text.c -- products as text: shapes, calls of rt_product, and loops for products outside the library. */
#include "extent.h"
#include "templates.h"
#include "text/names.h"

#include <inttypes.h>

static const char *const constant_of[] = { [RT_F32] = "RT_F32", [RT_BF16] = "RT_BF16", [RT_F16] = "RT_F16" };

static char *matrix_text(Module *m, RtType type, int64_t row, int64_t column, int64_t batch)
{
    return arena_text(&m->arena, "{ %s, %" PRId64 ", %" PRId64 ", %" PRId64 " }", constant_of[type], row, column,
                      batch);
}

static char *number(Module *m, int64_t value) { return arena_text(&m->arena, "%" PRId64, value); }

char *product_shape_text(Module *m, const RtProductShape *s, const char *unfused)
{
    static const char *const activation[] = {
        [RT_RELU] = "RT_RELU", [RT_GELU_TANH] = "RT_GELU_TANH", [RT_GELU_TANH_SLOPE] = "RT_GELU_TANH_SLOPE"
    };
    static const char *const sums[] = { NULL, "RT_SUMS_A", "RT_SUMS_B" };
    static const char *const squares[] = { NULL, "RT_SQUARES_A", "RT_SQUARES_B" };
    static const char *const counted[] = { NULL, "RT_COUNTED_M", "RT_COUNTED_N", "RT_COUNTED_K" };
    const Field fields[] = {
        { "m", number(m, s->m) },
        { "n", number(m, s->n) },
        { "k", number(m, s->k) },
        { "batch", number(m, s->batch) },
        { "a", matrix_text(m, s->a.type, s->a.row, s->a.column, s->a.batch) },
        { "b", matrix_text(m, s->b.type, s->b.row, s->b.column, s->b.batch) },
        { "c", matrix_text(m, s->c.type, s->c.row, s->c.column, s->c.batch) },
        { "block", s->block ? number(m, s->block) : NULL },
        { "squares", squares[s->squares] },
        { "unrounded", s->unrounded ? "true" : NULL },
        { "accumulate", s->accumulate ? "true" : NULL },
        { "counted", counted[s->counted] },
        { "has_bias", s->has_bias ? "true" : NULL },
        { "activation", s->activation ? activation[s->activation] : NULL },
        { "keeps_before", s->keeps_before ? "true" : NULL },
        { "sums", sums[s->sums] },
        { "between_sums", s->between_sums ? number(m, s->between_sums) : NULL },
        { "sums_reverse", s->sums_reverse ? "true" : NULL },
        { "unfused", unfused },
        { NULL, NULL },
    };
    return initialiser_text(m, fields);
}

/* --- Products of the library ---------------------------------------------------------------------------- */

/* The variable of a loop over a dim; different from operands, which may have the dim's name. */
char *index_name(Module *m, Name dim) { return hashed_identifier(m, arena_text(&m->arena, "i_%s", dim), true); }

/* A term of an index: " + dim * stride"; "" where the stride is 0. */
static char *step(Module *m, const char *index, int64_t stride)
{
    if (stride == 0)
        return "";
    return stride == 1 ? arena_text(&m->arena, " + %s", index)
                       : arena_text(&m->arena, " + %s * %" PRId64, index, stride);
}

enum { A, B, C, BIAS, LIKE_C };

static char *moved(Module *m, const Product *p, int operand, const Value *value, const char *text)
{
    char *steps = "";
    for (int i = 0; i < p->nloops; i++) {
        const int64_t stride[] = { p->loop[i].a, p->loop[i].b, p->loop[i].c, p->loop[i].bias, p->loop[i].c };
        steps = arena_text(&m->arena, "%s%s", steps, step(m, index_name(m, p->loop[i].dim), stride[operand]));
    }
    if (!*steps)
        return arena_text(&m->arena, "%s", text);
    return arena_text(&m->arena, "(%s%s *)%s%s", operand == C ? "" : "const ", element_type(value->type.dtype), text,
                      steps);
}

static char *moved_result(Module *m, const Product *p, int result, const Op *call, const char *const operand[])
{
    return moved(m, p, C, call->results.at[result], operand[call->args.count + result]);
}

Statement product_call(Module *m, const Product *p, int id, const Op *call, const char *const operand[])
{
    bool is_plain = !p->shape.has_bias && !p->shape.activation && p->copied < 0;
    const char **items = NEW_ARRAY(&m->arena, const char *, 7);
    int count = 0;
    items[count++] = "rt";
    items[count++] = number(m, id);
    items[count++] = moved(m, p, A, arg(call, p->a), operand[p->a]);
    items[count++] = moved(m, p, B, arg(call, p->b), operand[p->b]);
    if (p->sums) {
        items[count++] = p->sums;
        items[count++] = p->scratch ? p->scratch : "NULL";
    } else if (p->slope) {
        items[count++] = moved(m, p, LIKE_C, arg(call, p->at), operand[p->at]);
    } else if (!is_plain) {
        items[count++] = p->bias < 0 ? "NULL" : moved(m, p, BIAS, arg(call, p->bias), operand[p->bias]);
        items[count++] = p->copied >= 0   ? moved(m, p, LIKE_C, arg(call, p->copied), operand[p->copied])
                         : p->before >= 0 ? moved_result(m, p, p->before, call, operand)
                                          : "NULL";
    }
    items[count++] = moved_result(m, p, p->c, call, operand);
    const char *function = p->sums          ? "rt_product_sums"
                           : is_plain       ? "rt_product"
                           : p->slope       ? "rt_product_slope"
                           : p->copied >= 0 ? "rt_product_added"
                                            : "rt_product_with";
    Statement s = { .function = function, .count = count, .operand = items };
    for (; s.nloops < p->nloops; s.nloops++) {
        s.loop[s.nloops].index = index_name(m, p->loop[s.nloops].dim);
        s.loop[s.nloops].count = p->loop[s.nloops].count;
    }
    return s;
}

/* --- Naive ones ------------------------------------------------------------------------------------------ */

static char *element_text(Module *m, const char *array, const Value *value, const Names *dims)
{
    char *index = "";
    for (int i = 0; i < dims->count; i++)
        index = arena_text(&m->arena, "%s%s", index,
                           step(m, index_name(m, dims->name[i]), stride_of(value, dims->name[i])));
    return arena_text(&m->arena, "%s[%s]", array, *index ? index + 3 : "0");
}

static char *float_text(Module *m, DType dtype, const char *element)
{
    return dtype == F32 ? arena_text(&m->arena, "%s", element)
                        : arena_text(&m->arena, "rt_load_%s(%s)", dtype_name[dtype], element);
}

static int64_t size_in(Module *m, const Op *dot, const Value *value, const Value *other, Name dim)
{
    int at = find_dim(&value->type, dim);
    return loop_size(m, at >= 0 ? &value->type.dim[at] : &other->type.dim[find_dim(&other->type, dim)]);
}

static const char *stored(Module *m, DType dtype)
{
    return dtype == F32 ? "sum" : arena_text(&m->arena, "rt_store_%s(sum)", dtype_name[dtype]);
}

/* Bias and activation of the sum, or slope. */
static char *after_sum(Module *m, const Product *p, const Op *call, const Names *dims)
{
    Text text;
    open_text(&text);
    if (p->bias >= 0) {
        const Value *bias = arg(call, p->bias);
        fprintf(text.out, "sum += %s;\n", float_text(m, bias->type.dtype, element_text(m, "bias", bias, dims)));
    }
    if (p->before >= 0) {
        const Value *before = call->results.at[p->before];
        fprintf(text.out, "%s = %s;\n", element_text(m, "before", before, dims), stored(m, before->type.dtype));
    }
    if (p->activation) {
        fputs("sum = ", text.out);
        FILL(text.out, info(p->activation)->forward, { "a", "sum" });
        fputs(";\n", text.out);
    }
    if (p->slope) {
        const Value *at = arg(call, p->at);
        fprintf(text.out,
                "const float at_point = %s;\nsum *= ", float_text(m, at->type.dtype, element_text(m, "at", at, dims)));
        FILL(text.out, info(p->slope)->forward, { "a", "at_point" });
        fputs(";\n", text.out);
    }
    return close_text(&m->arena, &text);
}

char *naive_product_point(Module *m, const Product *p, const Op *call)
{
    const Value *a = arg(call, p->a), *b = arg(call, p->b), *c = call->results.at[p->c];
    Names dims = dim_names(&c->type);
    int nouter = dims.count;
    for (int i = 0; i < p->dot->attrs.over.count; i++)
        add_name(&dims, p->dot->attrs.over.name[i]);
    char *from = element_text(m, "c", c, &dims);
    char *text = FILLED(&m->arena, "const float x = $a;\nconst float y = $b;\nsum += x * y;\n",
                        { "a", float_text(m, a->type.dtype, element_text(m, "a", a, &dims)) },
                        { "b", float_text(m, b->type.dtype, element_text(m, "b", b, &dims)) });
    for (int i = dims.count - 1; i >= nouter; i--)
        text =
            loop_text(m, "", index_name(m, dims.name[i]), "0", number(m, size_in(m, p->dot, a, b, dims.name[i])), text);
    const char *start = p->shape.accumulate ? float_text(m, c->type.dtype, from) : "0.0f";
    return arena_text(&m->arena, "float sum = %s;\n%s%s%s = %s;\n", start, text, after_sum(m, p, call, &dims), from,
                      stored(m, c->type.dtype));
}

int product_operands(const Product *p, const Op *call, const char *name[], int at[])
{
    static const char *const names[MAX_PRODUCT_OPERANDS] = { "a", "b", "bias", "at", "before", "c" };
    const int operand[] = { p->a, p->b, p->bias, p->at, p->before, p->c };
    int count = 0;
    for (int i = 0; i < MAX_PRODUCT_OPERANDS; i++) {
        if (operand[i] < 0)
            continue;
        name[count] = names[i];
        at[count++] = operand[i] + (i > 3 ? call->args.count : 0);
    }
    return count;
}

int product_parameters(Module *m, const Product *p, const Op *call, const char *qualifier, const char *name[])
{
    int at[MAX_PRODUCT_OPERANDS], count = product_operands(p, call, name, at);
    for (int i = 0; i < count; i++) {
        const DType dtype = arg_or_result(call, at[i])->type.dtype;
        name[i] = arena_text(&m->arena, "%s%s *%s%s", at[i] < call->args.count ? "const " : "", element_type(dtype),
                             qualifier, name[i]);
    }
    return count;
}

FunctionText naive_product_text(Module *m, const Product *p, const Op *call)
{
    const Value *c = call->results.at[p->c];
    const char **parameters = NEW_ARRAY(&m->arena, const char *, MAX_PRODUCT_OPERANDS);
    int count = product_parameters(m, p, call, "restrict ", parameters);
    char *text = naive_product_point(m, p, call);
    for (int i = c->type.rank - 1; i >= 0; i--)
        text = loop_text(m, i == 0 ? "#pragma omp parallel for" : "", index_name(m, c->type.dim[i].name), "0",
                         number(m, loop_size(m, &c->type.dim[i])), text);
    const char *comment = arena_text(&m->arena, "/* A product that no library takes in this layout, at %s */\n",
                                     comment_text(m, call->where ? call->where : ""));
    return (FunctionText){ .comment = comment, .nparameters = count, .parameter = parameters, .body = text };
}

Statement naive_product_call(Module *m, const Product *p, const char *name, const Op *call, const char *const operand[])
{
    const char **items = NEW_ARRAY(&m->arena, const char *, MAX_PRODUCT_OPERANDS);
    int at[MAX_PRODUCT_OPERANDS], count = product_operands(p, call, items, at);
    for (int i = 0; i < count; i++)
        items[i] = operand[at[i]];
    return (Statement){ .function = name, .count = count, .operand = items };
}
