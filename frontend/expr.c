/* expr.c -- expressions: numbers fold, tensors become ops, dims are matched by name. */
#include "compose.h"
#include "instances.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { MOST_NESTED = 600 }; /* the parser's limit is 500; blocks and repeats add to that */

static const Operand wrong = { .kind = WRONG };

static Operand number_operand(Constant number) { return (Operand){ .kind = NUMBER, .number = number }; }

Operand tensor_operand(Value *value) { return (Operand){ .kind = value ? TENSOR : WRONG, .value = value }; }

void set_place(Lower *l, Loc loc)
{
    l->b.loc = loc;
    l->b.where = where_text(l, loc);
}

/* inf is a valid f32, but a finite number must not become infinite. */
Value *value_of(Lower *l, Operand operand, DType dtype)
{
    if (operand.kind != NUMBER)
        return operand.value;
    double value = operand.number.value;
    if (dtype == F32 && fabs(value) > FLT_MAX && !isinf(value)) {
        complain(l, (Where){ .at = l->b.loc, .help = "inf, or a number up to 3.4e38" }, "%s does not fit into f32",
                 constant_text(l->arena, operand.number));
        return NULL;
    }
    return emit_number(l, value, dtype);
}

Value *lower_tensor(Lower *l, const Ast *ast)
{
    Operand operand = lower_expr(l, ast);
    return operand.kind == WRONG ? NULL : value_of(l, operand, F32);
}

void look_at_arguments(Lower *l, const Ast *list)
{
    for (; list; list = list->next) {
        const bool names_dims = list->kind == A_ARROW || list->kind == A_PARTS || list->kind == A_JOIN;
        const Ast *ast = names_dims ? NULL : list->kind == A_KEYWORD ? list->child : list;
        const Symbol *symbol = ast && ast->kind == A_NAME ? find_symbol(l->scope, ast->name) : NULL;
        if (ast && (ast->kind != A_NAME || symbol))
            lower_expr(l, ast);
    }
}

/* --- Constant expressions ------------------------------------------------------------------ */

bool constant_of(Lower *l, const Ast *ast, Constant *number)
{
    const bool was = l->in_constant;
    l->in_constant = true;
    Operand operand = lower_expr(l, ast);
    l->in_constant = was;
    if (operand.kind == TENSOR)
        complain(l, (Where){ .at = ast->loc }, "a number that is known at compile time is needed here, not a tensor %s",
                 type_words(l, &operand.value->type));
    *number = operand.number;
    return operand.kind == NUMBER;
}

bool is_finite(Lower *l, Constant number, Loc at, const char *what)
{
    if (fabs(number.value) <= FLT_MAX)
        return true;
    complain(l, (Where){ .at = at }, "%s must be a number that fits into f32 (up to 3.4e38), not %s", what,
             constant_text(l->arena, number));
    return false;
}

bool integer_of(Lower *l, const Ast *ast, const char *what, int64_t least, int64_t most, int64_t *number)
{
    Constant c;
    if (!constant_of(l, ast, &c))
        return false;
    if (!c.real && c.integer >= least && c.integer <= most) {
        *number = c.integer;
        return true;
    }
    complain(l, (Where){ .at = ast->loc }, "%s must be a whole number from %lld to %lld, not %s", what,
             (long long)least, (long long)most, constant_text(l->arena, c));
    return false;
}

/* --- By name ------------------------------------------------------------------------------- */

static const char *declared_text(Lower *l, const Ast *ast)
{
    Symbol *symbol = ast->kind == A_NAME ? find_symbol(l->scope, ast->name) : NULL;
    if (!symbol)
        return NULL;
    return arena_text(l->arena, "'%s' is declared at %s", ast->name, position_text(l, symbol->loc));
}

static const char *side(int i, int n)
{
    static const char *const of_two[] = { "the left side", "the right side" };
    static const char *const of_three[] = { "the first operand", "the second operand", "the third operand" };
    return n == 2 ? of_two[i] : of_three[i];
}

static bool is_index(const Value *value) { return !is_float(value->type.dtype); }

/* All pairs of two tensors that share other dims may be wanted, or a dim may have another name. */
static const char *dims_help(Lower *l, const char *verb, const Type *odd, const Type *largest, Name lacking)
{
    const int64_t size = odd->dim[find_dim(odd, lacking)].size;
    const bool multiplies = strcmp(verb, "multiply") == 0;
    const char *pairs = multiplies ? "dot(a, b)" : arena_text(l->arena, "broadcast(..., %s)", lacking);
    for (int i = 0; i < largest->rank; i++)
        if (find_dim(odd, largest->dim[i].name) < 0 && largest->dim[i].size == size)
            return arena_text(l->arena, "rename(..., %s -> %s), if they are the same; %s for all pairs", lacking,
                              largest->dim[i].name, pairs);
    return arena_text(l->arena, "%s %s", pairs,
                      multiplies ? "gives all products, over the dims of both" : "has the same along it");
}

bool dims_fit(Lower *l, Loc at, const char *verb, int n, const Ast *const asts[], Value *const values[])
{
    int largest = 0, odd = -1;
    bool all_index = true;
    for (int i = 0; i < n; i++) {
        all_index &= is_index(values[i]);
        if (values[i]->type.rank > values[largest]->type.rank)
            largest = i;
    }
    for (int i = 0; i < n && odd < 0; i++)
        if (dims_lacking(&values[i]->type, &values[largest]->type).count)
            odd = i;
    if (odd < 0 || all_index || l->matrix) /* in an optimizer: r * c of rows and columns */
        return true;
    Name lacking = dims_lacking(&values[odd]->type, &values[largest]->type).name[0];
    int left = largest < odd ? largest : odd, right = largest < odd ? odd : largest;
    complain(l,
             (Where){ .at = at,
                      .also = { asts[left]->loc, asts[right]->loc },
                      .label = declared_text(l, asts[odd]),
                      .help = dims_help(l, verb, &values[odd]->type, &values[largest]->type, lacking) },
             "cannot %s %s and %s: %s has no dim '%s'", verb, type_words(l, &values[left]->type),
             type_words(l, &values[right]->type), side(largest, n), lacking);
    return false;
}

/* --- Arithmetic ---------------------------------------------------------------------------- */

static bool fits_i32(Constant c) { return !c.real && c.integer >= INT32_MIN && c.integer <= INT32_MAX; }

Operand scalar_of(Lower *l, Operand operand, DType stated)
{
    if (operand.kind != NUMBER)
        return operand;
    const bool is_truth = stated == BOOL && (operand.number.value == 0 || operand.number.value == 1);
    const bool is_whole = is_truth || (stated == I32 && fits_i32(operand.number));
    Value *value = value_of(l, operand, is_whole ? I32 : F32);
    return tensor_operand(is_truth ? emit_cast(l, value, BOOL) : value);
}

static DType dtype_of(Operand operand)
{
    if (operand.kind == TENSOR)
        return is_float(operand.value->type.dtype) ? F32 : operand.value->type.dtype;
    return operand.number.real ? F32 : I32;
}

/* Numbers take the dtype of the other operand; a bool beside a number is 0 or 1. */
bool unify(Lower *l, Loc at, const char *verb, const Ast *const asts[2], const Operand operands[2], Value *values[2])
{
    DType dtype[] = { dtype_of(operands[0]), dtype_of(operands[1]) };
    for (int i = 0; i < 2; i++)
        if (operands[i].kind == NUMBER && dtype[1 - i] == F32)
            dtype[i] = F32;
    if (dtype[0] != dtype[1] && dtype[0] != BOOL && dtype[1] != BOOL) {
        bool number = operands[0].kind == NUMBER || operands[1].kind == NUMBER;
        complain(l,
                 (Where){ .at = at,
                          .also = { asts[0]->loc, asts[1]->loc },
                          .help = number ? "write a whole number, or cast(..., f32) the tensor"
                                         : "cast(..., f32) or cast(..., i32) one of them" },
                 "cannot %s i32 and floating-point numbers", verb);
        return false;
    }
    DType common = dtype[0] == BOOL ? dtype[1] : dtype[0];
    for (int i = 0; i < 2; i++)
        if (operands[i].kind == NUMBER && common == I32 && !fits_i32(operands[i].number)) {
            complain(l, (Where){ .at = asts[i]->loc }, "%s does not fit into i32",
                     constant_text(l->arena, operands[i].number));
            return false;
        }
    for (int i = 0; i < 2; i++) {
        values[i] = value_of(l, operands[i], common);
        if (dtype[i] == BOOL && common != BOOL)
            values[i] = emit_cast(l, values[i], common);
    }
    return values[0] && values[1];
}

/* Of two bools: * and minimum are `and`, maximum is `or`, == and != compare. */
static bool takes_bools(OpKind kind)
{
    return kind == OP_mul || kind == OP_minimum || kind == OP_maximum || kind == OP_eq || kind == OP_ne;
}

Operand combine(Lower *l, OpKind kind, Loc at, const char *verb, const Ast *const asts[2], const Operand operands[2])
{
    Value *values[2];
    set_place(l, at);
    if (!unify(l, at, verb, asts, operands, values))
        return wrong;
    DType dtype = values[0]->type.dtype;
    if (dtype == BOOL && !takes_bools(kind)) {
        complain(
            l, (Where){ .at = at, .also = { asts[0]->loc, asts[1]->loc }, .help = "cast(..., i32) makes them 0 and 1" },
            "cannot %s two bools", verb);
        return wrong;
    }
    if (dtype == I32 && kind == OP_pow) {
        complain(l, (Where){ .at = at, .also = { asts[0]->loc, asts[1]->loc }, .help = "cast(..., f32) the base" },
                 "'^' takes floating-point numbers, not i32");
        return wrong;
    }
    if (dtype == I32 && kind == OP_div && operands[1].kind == NUMBER && operands[1].number.value == 0) {
        complain(l, (Where){ .at = at, .also = { asts[0]->loc, asts[1]->loc } }, "division of whole numbers by zero");
        return wrong;
    }
    if (!dims_fit(l, at, verb, 2, asts, values))
        return wrong;
    return tensor_operand(emit(l, kind, NO_ATTRS, 2, values));
}

static const struct {
    const char *sign, *verb;
    OpKind kind;
} signs[] = {
    { "+", "add", OP_add },     { "-", "subtract", OP_sub }, { "*", "multiply", OP_mul }, { "/", "divide", OP_div },
    { "^", "raise", OP_pow },   { "<", "compare", OP_lt },   { "<=", "compare", OP_le },  { ">", "compare", OP_gt },
    { ">=", "compare", OP_ge }, { "==", "compare", OP_eq },  { "!=", "compare", OP_ne },
};

static Operand fold(Lower *l, const Ast *ast, int n, const Constant numbers[])
{
    Constant number;
    const char *problem = fold_constants(l->arena, ast->name, n, numbers, &number);
    if (!problem)
        return number_operand(number);
    Where where = { .at = ast->name_loc,
                    .also = { ast->child->loc, ast->child->next ? ast->child->next->loc : (Loc){ 0 } } };
    if (strcmp(ast->name, "/") == 0)
        where.help = division_help(l->arena, numbers[0], numbers[1]);
    complain(l, where, "%s", problem);
    return wrong;
}

/* a - a / b * b, of whole numbers */
static Operand remainder_of(Lower *l, Loc at, const Ast *const asts[2], const Operand operands[2])
{
    const Operand quotient = combine(l, OP_div, at, "divide", asts, operands);
    if (quotient.kind == WRONG)
        return wrong;
    if (quotient.value->type.dtype != I32) {
        complain(l, (Where){ .at = at, .also = { asts[0]->loc, asts[1]->loc }, .help = "cast(..., i32) both" },
                 "'%%' takes whole numbers, not floating-point ones");
        return wrong;
    }
    const Operand whole = combine(l, OP_mul, at, "multiply", asts, (Operand[]){ quotient, operands[1] });
    return whole.kind == WRONG ? wrong : combine(l, OP_sub, at, "subtract", asts, (Operand[]){ operands[0], whole });
}

static Operand lower_binary(Lower *l, const Ast *ast)
{
    const Ast *const asts[] = { ast->child, ast->child->next };
    const Operand operands[] = { lower_expr(l, asts[0]), lower_expr(l, asts[1]) };
    size_t i = 0;
    while (i < sizeof signs / sizeof signs[0] && strcmp(signs[i].sign, ast->name) != 0)
        i++;
    if (operands[0].kind == WRONG || operands[1].kind == WRONG)
        return wrong;
    if (operands[0].kind == NUMBER && operands[1].kind == NUMBER)
        return fold(l, ast, 2, (Constant[]){ operands[0].number, operands[1].number });
    if (i == sizeof signs / sizeof signs[0])
        return remainder_of(l, ast->name_loc, asts, operands);
    return combine(l, signs[i].kind, ast->name_loc, signs[i].verb, asts, operands);
}

static Operand lower_unary(Lower *l, const Ast *ast)
{
    Operand operand = lower_expr(l, ast->child);
    if (operand.kind == NUMBER)
        return fold(l, ast, 1, &operand.number);
    if (operand.kind == WRONG)
        return wrong;
    set_place(l, ast->name_loc);
    if (operand.value->type.dtype == BOOL) {
        complain(l, (Where){ .at = ast->name_loc, .also = { ast->child->loc } }, "cannot negate a bool");
        return wrong;
    }
    return tensor_operand(EMIT(l, OP_neg, NO_ATTRS, operand.value));
}

/* --- Names --------------------------------------------------------------------------------- */

static Operand lower_name(Lower *l, const Ast *ast)
{
    Symbol *named = find_symbol(l->scope, ast->name), *symbol = meant_by(named);
    if (!symbol && (strcmp(ast->name, "inf") == 0 || (l->in_constant && strcmp(ast->name, "none") == 0)))
        return number_operand(real_constant(INFINITY));
    if (!symbol) {
        unknown_name(l, ast);
        return wrong;
    }
    named->used = symbol->used = true;
    if (symbol->wrong || symbol->taken)
        return wrong;
    if (symbol == l->batch || symbol->is_slots || symbol->is_others) {
        const char *help = l->frame
                               ? "mean(...) divides by the size of the whole batch"
                               : "what is compared with each other is in one record: input x : f32[batch, pair, d]";
        complain(l, (Where){ .at = ast->loc, .help = help },
                 "the size of '%s' %s the micro-batch, on which no result may depend", ast->name,
                 symbol->is_slots ? "depends on" : "is");
        return wrong;
    }
    if (symbol->kind == S_CONST || symbol->kind == S_DIM || symbol->kind == S_DIMS)
        return number_operand(symbol->number);
    if (symbol->kind == S_BLOCK || symbol->kind == S_MODEL || symbol->kind == S_INSTANCE) {
        complain(l, (Where){ .at = ast->loc, .help = symbol->kind == S_MODEL ? NULL : "call it" },
                 "'%s' is %s, not a value", ast->name, symbol_noun(symbol->kind));
        return wrong;
    }
    Operand operand = symbol->operand;
    if (operand.kind == TENSOR)
        operand.value = import_value(l, l->frame, operand.value, symbol->frame);
    return operand;
}

/* --- Indexing ------------------------------------------------------------------------------ */

static Operand slice(Lower *l, const Ast *ast, Value *x, const Dim *dim, Constant at)
{
    if (at.real || at.integer < 0 || at.integer >= dim->size) {
        const bool is_from_end = !at.real && at.integer < 0 && at.integer >= -dim->size;
        const char *last = arena_text(l->arena, "%s = %s - %lld", dim->name, dim->name, -(long long)at.integer);
        note_element(l, dim);
        complain(l, (Where){ .at = ast->child->next->loc, .help = is_from_end ? last : NULL },
                 "'%s' has elements 0 to %lld, not %s", dim->name, (long long)(dim->size - 1),
                 constant_text(l->arena, at));
        return wrong;
    }
    return tensor_operand(EMIT(l, OP_slice, ((Attrs){ .dim = dim->name, .index = at.integer }), x));
}

/* Has x all dims of the index, so that no element is read twice, and compares them all with it where they are computed?
 * Not of the indexed dim's name, as x[seq = iota(seq)]; and not of what has no batch: a table, which is only read. */
static bool is_picked(const Lower *l, const Value *x, const Value *index, Name dim)
{
    return l->m->batch && find_dim(&x->type, l->m->batch) >= 0 && index->type.rank > 0 &&
           dims_lacking(&index->type, &x->type).count == 0 && find_dim(&index->type, dim) < 0;
}

static Operand gather(Lower *l, const Ast *ast, Value *x, const Dim *dim, Value *index)
{
    const Ast *at = ast->child->next;
    if (index->type.dtype != I32) {
        complain(l, (Where){ .at = at->loc, .help = "cast(..., i32)" }, "an index must be i32, not %s",
                 is_float(index->type.dtype) ? "a floating-point tensor" : "bool");
        return wrong;
    }
    if (!index_fits(l, index, dim, NULL, at->loc))
        return wrong;
    if (is_picked(l, x, index, dim->name))
        return tensor_operand(pick(l, x, index, *dim));
    Name from = dim->name;
    if (find_dim(&index->type, from) >=
        0) { /* x[seq = iota(seq) - 1]: two dims of one name, which may be split differently */
        from = intern_format(l->m, "%s.from", dim->name);
        add_made_dim(l->m, from, MADE_LIKE, dim->name);
        x = EMIT(l, OP_rename, ((Attrs){ .dim = dim->name, .to = from }), x);
    }
    bool is_truth = x && x->type.dtype == BOOL; /* ranks without a row add zeros, which is possible only for numbers */
    x = is_truth ? emit_cast(l, x, I32) : x;
    x = x ? EMIT(l, OP_gather, (Attrs){ .dim = from }, x, index) : NULL;
    x = x && is_truth ? emit_cast(l, x, BOOL) : x;
    return x ? tensor_operand(x) : wrong;
}

bool has_no_positions(Lower *l, Name dim, Loc at)
{
    const bool varying = varies(l, dim);
    if (varying)
        complain(l, (Where){ .at = at }, "'%s' is %s: a model cannot depend on positions in it", dim,
                 dim == l->m->batch ? "the micro-batch" : "a part of the micro-batch");
    return varying;
}

bool need_dim(Lower *l, const Value *x, const Ast *at, const char *name, Loc loc, Name *dim)
{
    Dim declared;
    if (!find_dim_named(l, name, loc, &declared))
        return false;
    *dim = declared.name;
    if (find_dim(&x->type, declared.name) >= 0)
        return true;
    NearMiss near = { .name = declared.name };
    for (int i = 0; i < x->type.rank; i++)
        offer(&near, x->type.dim[i].name);
    const char *help = scan_along(l, declared.name) ? "a scan sees one position at a time: do this before or after it"
                                                    : did_you_mean(l->arena, &near);
    complain(l, (Where){ .at = loc, .also = { at->loc }, .label = declared_text(l, at), .help = help },
             "%s has no dim '%s'", type_words(l, &x->type), declared.name);
    return false;
}

static Operand lower_index(Lower *l, const Ast *ast)
{
    const Ast *index = ast->child->next;
    const bool is_range = index->kind == A_RANGE;
    Operand x = lower_expr(l, ast->child), at = is_range ? number_operand(integer_constant(0)) : lower_expr(l, index);
    Name name;
    if (is_range && x.kind == WRONG)
        excuse_made_dim(l, index);
    if (x.kind == WRONG || at.kind == WRONG)
        return wrong;
    if (x.kind == NUMBER) {
        complain(l, (Where){ .at = ast->child->loc }, "a number has no dim to index");
        return wrong;
    }
    if (!need_dim(l, x.value, ast->child, ast->name, ast->name_loc, &name))
        return wrong;
    if (has_no_positions(l, name, ast->name_loc))
        return wrong;
    set_place(l, ast->name_loc);
    const Dim *dim = &x.value->type.dim[find_dim(&x.value->type, name)];
    if (is_range)
        return lower_range(l, index, x.value, *dim);
    return at.kind == NUMBER ? slice(l, ast, x.value, dim, at.number) : gather(l, ast, x.value, dim, at.value);
}

/* --- Calls --------------------------------------------------------------------------------- */

static Operand lower_call(Lower *l, const Ast *ast)
{
    Symbol *called = l->frame && !l->matrix ? called_symbol(l, ast->name) : NULL;
    if (called)
        return call_block(l, ast, called);
    refuse_as_block(l, ast);
    if (strcmp(ast->name, "if") == 0)
        return choose(l, ast);
    if (!is_function(ast->name) && !folds(ast->name)) {
        unknown_call(l, ast);
        look_at_arguments(l, ast->child);
        return wrong;
    }
    if (ast->as)
        complain(l, (Where){ .at = ast->as_loc }, "'as' names an instance of a block, but '%s' is a built-in function",
                 ast->name);
    return call_function(l, ast);
}

static Operand lower_any(Lower *l, const Ast *ast)
{
    switch (ast->kind) {
    case A_NUMBER:
        if (isinf(ast->number)) {
            complain(l, (Where){ .at = ast->loc, .help = "write 'inf' for infinity" }, "this number is too large");
            return wrong;
        }
        if (ast->is_integer && fabs(ast->number) >= 0x1p53) {
            complain(l, (Where){ .at = ast->loc }, "a whole number must be below 2^53");
            return wrong;
        }
        return number_operand(ast->is_integer ? integer_constant((int64_t)ast->number) : real_constant(ast->number));
    case A_NAME:
        return lower_name(l, ast);
    case A_CALL:
        return lower_call(l, ast);
    case A_UNARY:
        return lower_unary(l, ast);
    case A_BINARY:
        return lower_binary(l, ast);
    case A_INDEX:
        return lower_index(l, ast);
    default:
        complain(l,
                 (Where){ .at = ast->loc,
                          .help = ast->kind == A_BOOL ? "write 1 or 0; of bools, b == 0 is not b, a * b both, and "
                                                        "maximum(a, b) either"
                                                      : NULL },
                 "%s is neither a number nor a tensor",
                 ast->kind == A_STRING ? "a text"
                 : ast->kind == A_BOOL ? "'true' or 'false'"
                                       : "this");
        return wrong;
    }
}

Operand lower_expr(Lower *l, const Ast *ast)
{
    if (l->depth >= MOST_NESTED) {
        if (!l->incomplete) /* else the parser may have reported an error */
            complain(l, (Where){ .at = ast->loc }, "calls and expressions are nested too deeply");
        return wrong;
    }
    l->depth++;
    Operand operand = lower_any(l, ast);
    note_operand(l, ast->loc, operand);
    l->depth--;
    return operand;
}
