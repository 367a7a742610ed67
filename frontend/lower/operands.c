/* operands.c -- operands of ops: numbers become tensors, dims are matched by name, dtypes are made one. */
#include "emit.h"

#include <float.h>
#include <math.h>
#include <string.h>

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
    if (dtype == F32 && fabs(value) > FLT_MAX && !isinf(value))
        return complain(l, (Where){ .at = l->b.loc, .help = "inf, or a number up to 3.4e38" },
                        "%s does not fit into f32", constant_text(l->arena, operand.number)),
               NULL;
    return emit_number(l, value, dtype);
}

bool is_finite(Lower *l, Constant number, Loc at, const char *what)
{
    if (fabs(number.value) <= FLT_MAX)
        return true;
    return complain(l, (Where){ .at = at }, "%s must be a number that fits into f32 (up to 3.4e38), not %s", what,
                    constant_text(l->arena, number));
}

/* --- By name ------------------------------------------------------------------------------------ */

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
    return complain(l,
                    (Where){ .at = at,
                             .also = { asts[left]->loc, asts[right]->loc },
                             .label = declared_text(l, asts[odd]),
                             .help = dims_help(l, verb, &values[odd]->type, &values[largest]->type, lacking) },
                    "cannot %s %s and %s: %s has no dim '%s'", verb, type_words(l, &values[left]->type),
                    type_words(l, &values[right]->type), side(largest, n), lacking);
}

bool has_no_positions(Lower *l, Name dim, Loc at)
{
    const bool varying = varies_by_micro_batch(l, dim);
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
    return complain(l, (Where){ .at = loc, .also = { at->loc }, .label = declared_text(l, at), .help = help },
                    "%s has no dim '%s'", type_words(l, &x->type), declared.name);
}

bool is_new(Lower *l, const Value *x, Name name, Loc at)
{
    const bool good = find_dim(&x->type, name) < 0;
    if (!good)
        complain(l, (Where){ .at = at }, "%s already has a dim '%s'", type_words(l, &x->type), name);
    return good;
}

/* --- Arithmetic --------------------------------------------------------------------------------- */

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

/* where(c, 1, 0) */
static bool chooses_whole_numbers(Operand operand)
{
    const Op *op = operand.kind == TENSOR ? operand.value->def : NULL;
    return op && op->kind == OP_where && arg(op, 1)->def && arg(op, 1)->def->kind == OP_constant && arg(op, 2)->def &&
           arg(op, 2)->def->kind == OP_constant;
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
        bool choice = chooses_whole_numbers(operands[dtype[0] == I32 ? 0 : 1]);
        return complain(l,
                        (Where){ .at = at,
                                 .also = { asts[0]->loc, asts[1]->loc },
                                 .help = choice   ? "where(c, 1.0, 0.0) chooses floating-point numbers"
                                         : number ? "write a whole number, or cast(..., f32) the tensor"
                                                  : "cast(..., f32) or cast(..., i32) one of them" },
                        "cannot %s i32 and floating-point numbers", verb);
    }
    DType common = dtype[0] == BOOL ? dtype[1] : dtype[0];
    for (int i = 0; i < 2; i++)
        if (operands[i].kind == NUMBER && common == I32 && !fits_i32(operands[i].number))
            return complain(l, (Where){ .at = asts[i]->loc }, "%s does not fit into i32",
                            constant_text(l->arena, operands[i].number));
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
    if (dtype == BOOL && !takes_bools(kind))
        return complain(l,
                        (Where){ .at = at,
                                 .also = { asts[0]->loc, asts[1]->loc },
                                 .help = "cast(..., i32) makes them 0 and 1" },
                        "cannot %s two bools", verb),
               wrong;
    if (dtype == I32 && kind == OP_pow)
        return complain(l,
                        (Where){ .at = at, .also = { asts[0]->loc, asts[1]->loc }, .help = "cast(..., f32) the base" },
                        "'^' takes floating-point numbers, not i32"),
               wrong;
    if (dtype == I32 && kind == OP_div && operands[1].kind == NUMBER && operands[1].number.value == 0)
        return complain(l, (Where){ .at = at, .also = { asts[0]->loc, asts[1]->loc } },
                        "division of whole numbers by zero"),
               wrong;
    if (!dims_fit(l, at, verb, 2, asts, values))
        return wrong;
    return tensor_operand(emit(l, kind, NO_ATTRS, 2, values));
}
