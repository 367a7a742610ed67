/* expr.c -- expressions: numbers fold, tensors become ops, dims are matched by name. */
#include "expr.h"
#include "compose.h"
#include "elaborate/instances.h"

#include <math.h>
#include <string.h>

enum { MOST_NESTED = 600 }; /* the parser's limit is 500; blocks and repeats add to that */

static Operand number_operand(Constant number) { return (Operand){ .kind = NUMBER, .number = number }; }

Value *lower_tensor(Lower *l, const Ast *ast)
{
    Operand operand = lower_expr(l, ast);
    return operand.kind == WRONG ? NULL : value_of(l, operand, F32);
}

void look_at_arguments(Lower *l, const Ast *list)
{
    for (; list; list = list->next) {
        const Ast *ast = list->kind == A_KEYWORD ? list->child : list;
        Symbol *symbol = ast->kind == A_NAME ? find_symbol(l->scope, ast->name) : NULL;
        Symbol *dim = symbol_in_call(symbol);
        const bool is_name = symbol && symbol->kind != S_DIM && symbol->kind != S_DIMS;
        if (dim && dim->kind == S_DIM)
            symbol->used = dim->used = true;
        else if (is_name || ast->kind == A_CALL || ast->kind == A_UNARY || ast->kind == A_BINARY ||
                 ast->kind == A_INDEX)
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

bool integer_of(Lower *l, const Ast *ast, const char *what, int64_t least, int64_t most, int64_t *number)
{
    Constant c;
    if (!constant_of(l, ast, &c))
        return false;
    if (!c.real && c.integer >= least && c.integer <= most) {
        *number = c.integer;
        return true;
    }
    return complain(l, (Where){ .at = ast->loc }, "%s must be a whole number from %lld to %lld, not %s", what,
                    (long long)least, (long long)most, constant_text(l->arena, c));
}

/* --- Arithmetic ---------------------------------------------------------------------------- */

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
    return complain(l, where, "%s", problem), wrong;
}

/* a - a / b * b, of whole numbers */
static Operand remainder_of(Lower *l, Loc at, const Ast *const asts[2], const Operand operands[2])
{
    const Operand quotient = combine(l, OP_div, at, "divide", asts, operands);
    if (quotient.kind == WRONG)
        return wrong;
    if (quotient.value->type.dtype != I32)
        return complain(l, (Where){ .at = at, .also = { asts[0]->loc, asts[1]->loc }, .help = "cast(..., i32) both" },
                        "'%%' takes whole numbers, not floating-point ones"),
               wrong;
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
    if (operand.value->type.dtype == BOOL)
        return complain(l, (Where){ .at = ast->name_loc, .also = { ast->child->loc } }, "cannot negate a bool"), wrong;
    return tensor_operand(EMIT(l, OP_neg, NO_ATTRS, operand.value));
}

/* --- Names --------------------------------------------------------------------------------- */

static Operand lower_name(Lower *l, const Ast *ast)
{
    Symbol *named = find_symbol(l->scope, ast->name), *symbol = symbol_in_call(named);
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
        return complain(l, (Where){ .at = ast->loc, .help = help },
                        "the size of '%s' %s the micro-batch, on which no result may depend", ast->name,
                        symbol->is_slots ? "depends on" : "is"),
               wrong;
    }
    if (symbol->kind == S_CONST || symbol->kind == S_DIM || symbol->kind == S_DIMS)
        return number_operand(symbol->number);
    if (symbol->kind == S_BLOCK || symbol->kind == S_MODEL || symbol->kind == S_INSTANCE)
        return complain(l, (Where){ .at = ast->loc, .help = symbol->kind == S_MODEL ? NULL : "call it" },
                        "'%s' is %s, not a value", ast->name, symbol_noun(symbol->kind)),
               wrong;
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
        return complain(l, (Where){ .at = ast->child->next->loc, .help = is_from_end ? last : NULL },
                        "'%s' has elements 0 to %lld, not %s", dim->name, (long long)(dim->size - 1),
                        constant_text(l->arena, at)),
               wrong;
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
    if (index->type.dtype != I32)
        return complain(l, (Where){ .at = at->loc, .help = "cast(..., i32)" }, "an index must be i32, not %s",
                        is_float(index->type.dtype) ? "a floating-point tensor" : "bool"),
               wrong;
    if (!index_fits(l, index, dim, NULL, at->loc))
        return wrong;
    if (is_picked(l, x, index, dim->name))
        return tensor_operand(gather_along(l, x, index, *dim));
    Name from = dim->name;
    if (find_dim(&index->type, from) >=
        0) { /* x[seq = iota(seq) - 1]: two dims of one name, which may be split differently */
        from = intern_format(l->m, "%s.from", dim->name);
        add_made_dim(l->m, from, MADE_LIKE, dim->name);
        x = EMIT(l, OP_rename, ((Attrs){ .dim = dim->name, .to = from }), x);
    }
    x = emit_gather(l, x, from, index);
    return x ? tensor_operand(x) : wrong;
}

/* x[dim = a : b -> c] */
static Operand lower_range(Lower *l, const Ast *range, Value *x, Dim dim)
{
    const Ast *first = range->child, *end = first->next;
    int64_t from, to;
    Dim part;
    if (!range->name)
        return complain(l,
                        (Where){ .at = range->loc,
                                 .help = arena_text(l->arena, "[%s = 0 : 2 -> pair] makes a dim", dim.name) },
                        "a range of '%s' needs a dim of its own", dim.name),
               wrong;
    if (!integer_of(l, first, "the first element", 0, dim.size - 1, &from) ||
        !integer_of(l, end, "the end of a range", from + 1, dim.size, &to) ||
        !find_made_dim(l, range, integer_constant(to - from), &part) ||
        !is_constant_size(l, part.name, range->name_loc) || !is_new(l, x, part.name, range->name_loc))
        return wrong;
    if (part.size == to - from)
        return tensor_operand(
            EMIT(l, OP_part, ((Attrs){ .dim = dim.name, .dims = { 1, { part } }, .index = from }), x));
    return complain(l, (Where){ .at = range->loc }, "'%s' has %lld elements, but the range has %lld", part.name,
                    (long long)part.size, (long long)(to - from)),
           wrong;
}

static Operand lower_index(Lower *l, const Ast *ast)
{
    const Ast *index = ast->child->next;
    const bool is_range = index->kind == A_RANGE;
    Operand x = lower_expr(l, ast->child), at = is_range ? number_operand(integer_constant(0)) : lower_expr(l, index);
    Name name;
    if (is_range && x.kind == WRONG)
        excuse_dim(l, index);
    if (x.kind == WRONG || at.kind == WRONG)
        return wrong;
    if (x.kind == NUMBER)
        return complain(l, (Where){ .at = ast->child->loc }, "a number has no dim to index"), wrong;
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

/* Of a declaration with an error, which may have been of an instance. */
static bool is_wrong_name(const Lower *l, const char *name)
{
    const Symbol *symbol = find_symbol(l->scope, name);
    return symbol && symbol->kind == S_LOCAL && symbol->operand.kind == WRONG;
}

static Operand lower_call(Lower *l, const Ast *ast)
{
    Symbol *called = l->frame && !l->matrix ? called_symbol(l, ast->name) : NULL;
    if (called)
        return call_block(l, ast, called);
    const bool is_choice = strcmp(ast->name, "if") == 0;
    if (!is_choice && !is_function(l, ast->name) && !may_be_folded(ast->name)) {
        if (!is_wrong_name(l, ast->name))
            unknown_call(l, ast);
        look_at_arguments(l, ast->child);
        return wrong;
    }
    refuse_as_block(l, ast);
    if (is_choice)
        return choose(l, ast);
    if (ast->as)
        complain(l, (Where){ .at = ast->as_loc }, "'as' names an instance of a block, but '%s' is a built-in function",
                 ast->name);
    return call_function(l, ast);
}

static Operand lower_any(Lower *l, const Ast *ast)
{
    switch (ast->kind) {
    case A_NUMBER:
        if (isinf(ast->number))
            return complain(l, (Where){ .at = ast->loc, .help = "write 'inf' for infinity" },
                            "this number is too large"),
                   wrong;
        if (ast->is_integer && fabs(ast->number) >= 0x1p53)
            return complain(l, (Where){ .at = ast->loc }, "a whole number must be below 2^53"), wrong;
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
        return complain(l,
                        (Where){ .at = ast->loc,
                                 .help = ast->kind == A_BOOL
                                             ? "write 1 or 0; of bools, b == 0 is not b, a * b both, and "
                                               "maximum(a, b) either"
                                             : NULL },
                        "%s is neither a number nor a tensor",
                        ast->kind == A_STRING ? "a text"
                        : ast->kind == A_BOOL ? "'true' or 'false'"
                                              : "this"),
               wrong;
    }
}

Operand lower_expr(Lower *l, const Ast *ast)
{
    if (l->now.depth >= MOST_NESTED) {
        if (!l->incomplete) /* else the parser may have reported an error */
            complain(l, (Where){ .at = ast->loc }, "calls and expressions are nested too deeply");
        return wrong;
    }
    l->now.depth++;
    Operand operand = lower_any(l, ast);
    note_operand(l, ast->loc, operand);
    l->now.depth--;
    return operand;
}
