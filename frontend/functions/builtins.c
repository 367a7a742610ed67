/* builtins.c -- the simple functions of the language: of single elements, reductions, products, norms, entropy.
 *
 * attend.c has attend; library.c has rope, iota, dropout and rename; shapes.c has split, merge and broadcast; conv.c
 * has conv and shift; concat.c has concat; means.c has mean; experts.c has those for experts.
 */
#include "elaborate/slots.h"
#include "functions.h"

#include <string.h>

/* --- Elementwise --------------------------------------------------------------------------- */

static OpKind op_named(const char *name)
{
    OpKind kind = 0;
    while (kind < N_OPS && strcmp(op_table[kind].name, name) != 0)
        kind++;
    return kind;
}

static bool refuse_bool(Lower *l, const Arguments *a)
{
    bool is_bool = a->x[0]->type.dtype == BOOL;
    if (is_bool)
        complain(l, (Where){ .at = a->ast[0]->loc, .help = "cast(..., i32) or cast(..., f32)" },
                 "%s takes numbers, not bool%s", a->call->name, dims_text(l, &a->x[0]->type));
    return is_bool;
}

CALL(map) { return refuse_bool(l, a) ? wrong : tensor_operand(EMIT(l, op_named(a->call->name), NO_ATTRS, a->x[0])); }

CALL(pair) { return combine(l, op_named(a->call->name), a->call->name_loc, "compare", a->ast, a->operand); }

CALL(where)
{
    Value *x[3];
    const bool is_number = a->operand[0].kind == NUMBER;
    if (is_number || a->operand[0].value->type.dtype != BOOL)
        return complain(l, (Where){ .at = a->ast[0]->loc, .help = "a comparison gives one" },
                        "the first argument of where is a bool tensor, not %s",
                        is_number ? "a number" : type_words(l, &a->operand[0].value->type)),
               wrong;
    x[0] = a->operand[0].value;
    if (!unify(l, a->call->name_loc, "choose between", a->ast + 1, a->operand + 1, x + 1) ||
        !dims_fit(l, a->call->name_loc, "choose between", 3, a->ast, x))
        return wrong;
    return tensor_operand(emit(l, OP_where, NO_ATTRS, 3, x));
}

CALL(cast)
{
    DType dtype = dtype_named(a->word->name);
    if (dtype == N_DTYPES || is_half(dtype))
        return complain(l, (Where){ .at = a->word->loc, .help = "cast to f32, i32 or bool" }, "%s '%s'%s",
                        dtype == N_DTYPES ? "no type is named" : "cannot cast to", a->word->name,
                        dtype == N_DTYPES ? "" : ": train.precision determines how floating-point tensors are stored"),
               wrong;
    if (dtype == BOOL && a->x[0]->type.dtype != BOOL)
        return tensor_operand(EMIT(l, OP_ne, NO_ATTRS, a->x[0], emit_number(l, 0, a->x[0]->type.dtype)));
    return tensor_operand(dtype == F32 ? emit_f32(l, a->x[0]) : emit_cast(l, a->x[0], dtype));
}

CALL(one_hot)
{
    Dim dim;
    Value *index = a->x[0];
    const Loc at = a->ast[0]->loc;
    find_dim_named(l, a->dims.name[0], a->dim_ast[0]->loc, &dim);
    if (index->type.dtype != I32)
        complain(l, (Where){ .at = at, .help = "cast(..., i32)" }, "one_hot takes i32, not %s",
                 is_float(index->type.dtype) ? "floating-point numbers" : "bool");
    else if (find_dim(&index->type, dim.name) >= 0)
        complain(l, (Where){ .at = a->dim_ast[0]->loc, .also = { at } }, "%s already has a dim '%s'",
                 type_words(l, &index->type), dim.name);
    else if (!has_no_positions(l, dim.name, a->dim_ast[0]->loc) && index_fits(l, index, &dim, NULL, at))
        return tensor_operand(one_hot(l, index, dim));
    return wrong;
}

/* --- Reductions and products --------------------------------------------------------------- */

Names dims_or_all(const Lower *l, const Arguments *a)
{
    Names names = a->dims;
    for (int i = 0; !a->names_dims && i < a->x[0]->type.rank; i++)
        if (!counts_matrices(l, a->x[0]->type.dim[i].name))
            add_name(&names, a->x[0]->type.dim[i].name);
    return names;
}

CALL(reduction)
{
    Names over = dims_or_all(l, a);
    if (refuse_bool(l, a))
        return wrong;
    return tensor_operand(over.count ? EMIT(l, op_named(a->call->name), (Attrs){ .over = over }, a->x[0]) : a->x[0]);
}

/* Of no sum: all products, over the dims of both, those of a first. */
static Value *outer_product(Lower *l, Value *a, Value *b)
{
    Value *product = EMIT(l, OP_mul, NO_ATTRS, a, b);
    Type order = a->type;
    for (int i = 0; product && i < b->type.rank; i++)
        if (find_dim(&a->type, b->type.dim[i].name) < 0)
            order.dim[order.rank++] = b->type.dim[i];
    return reorder(l, product, &order);
}

CALL(dot)
{
    Name name;
    for (int i = 0; i < a->dims.count; i++) {
        const Ast *ast = a->dim_ast[i];
        if (ast->kind == A_NAME && dims_named(l, ast->name)
                ? !has_one_of(l, a->x[1], a->dims.name[i], ast)
                : !need_dim(l, a->x[1], a->ast[1], a->dims.name[i], ast->loc, &name))
            return wrong;
    }
    if (!a->dims.count)
        return tensor_operand(outer_product(l, a->x[0], a->x[1]));
    return tensor_operand(EMIT(l, OP_dot, (Attrs){ .over = a->dims }, a->x[0], a->x[1]));
}

CALL(softmax) { return tensor_operand(softmax(l, a->x[0], a->dims)); }
CALL(logsumexp) { return tensor_operand(logsumexp(l, a->x[0], a->dims)); }
CALL(log_softmax) { return tensor_operand(log_softmax(l, a->x[0], a->dims)); }

static bool eps_argument(Lower *l, const Arguments *a, double *eps)
{
    if (!number_argument(l, a->keyword[0], 1e-5, eps))
        return false;
    if (*eps >= 0)
        return true;
    return complain(l, (Where){ .at = a->keyword[0]->child->loc }, "'eps' cannot be negative");
}

CALL(layernorm)
{
    double eps;
    return eps_argument(l, a, &eps) ? tensor_operand(layernorm(l, a->x[0], a->dims, eps)) : wrong;
}

CALL(rmsnorm)
{
    double eps;
    return eps_argument(l, a, &eps) ? tensor_operand(rmsnorm(l, a->x[0], a->dims, eps)) : wrong;
}

static bool labels_fit(Lower *l, const Arguments *a)
{
    const Type *logits = &a->x[0]->type, *labels = &a->x[1]->type;
    Type wanted = without_dim(*logits, a->dims.name[0]);
    bool fit = labels->dtype == I32 && !dims_lacking(labels, &wanted).count && !dims_lacking(&wanted, labels).count;
    wanted.dtype = I32;
    if (!fit)
        complain(l, (Where){ .at = a->ast[1]->loc, .also = { a->ast[0]->loc } },
                 "the labels of %s logits over '%s' are %s, not %s", type_words(l, logits), a->dims.name[0],
                 type_words(l, &wanted), labels->dtype == F32 ? "floating-point numbers" : type_words(l, labels));
    return fit;
}

/* Notes the logits for prediction: those whose labels are the next tokens. */
static void note_logits(Lower *l, Value *logits, const Value *labels, Name dim)
{
    const Input *input = labels->def || declares_records(l) ? NULL : find_input(l->m, labels->name);
    if (input && input->shift > 0 && !l->frame->outer && !l->now.logits) {
        l->now.logits = logits;
        l->m->vocab = dim;
    }
}

CALL(cross_entropy)
{
    int64_t ignore = -100;
    Name dim = a->dims.name[0];
    if (a->keyword[0] && !integer_of(l, a->keyword[0]->child, "'ignore'", INT32_MIN, INT32_MAX, &ignore))
        return wrong;
    if (!labels_fit(l, a))
        return wrong;
    const Constant ignored = integer_constant(ignore);
    if (!index_fits(l, a->x[1], &a->x[0]->type.dim[find_dim(&a->x[0]->type, dim)], &ignored, a->ast[1]->loc))
        return wrong;
    note_logits(l, a->x[0], a->x[1], dim);
    return tensor_operand(cross_entropy(l, a->x[0], a->x[1], dim, (double)ignore));
}
