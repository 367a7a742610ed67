/* epilogue.c -- see epilogue.h. */
#include "epilogue.h"

#include "ranks.h"
#include "target.h"

#include <string.h>

/* --- From a result back to the dot ---------------------------------------------------------------- */

static bool is_bias(const Op *dot, const Value *value)
{
    const Type *type = &result(dot)->type, *left = &arg(dot, 0)->type;
    int rows = type->rank - value->type.rank;
    bool good =
        rows > 0 && rows < type->rank && value->type.dtype == type->dtype && !type->partial && !value->type.partial;
    for (int i = 0; i < type->rank && good; i++)
        good = (find_dim(left, type->dim[i].name) >= 0) == (i < rows) &&
               (i < rows || dim_equal(&type->dim[i], &value->type.dim[i - rows]));
    return good;
}

/* If `op` adds a term to the result of a product, or to that with a bias, notes it. */
static bool takes_term(const Op *op, const Value *term, Epilogue *epilogue)
{
    const Type *type = &result(op)->type;
    if (epilogue->added || epilogue->activation || epilogue->slope)
        return false;
    if (!epilogue->bias && is_bias(epilogue->dot, term) && type_equal(&result(epilogue->dot)->type, type))
        epilogue->bias = term;
    else if (!term->def && same_dims(&term->type, type) && same_ranks(term->type.on, type->on) &&
             same_dims(&result(epilogue->dot)->type, type))
        epilogue->added = term;
    else
        return false;
    return true;
}

static bool takes_activation(const Op *op, Epilogue *epilogue)
{
    if (epilogue->added || epilogue->activation || epilogue->slope || !type_equal(&result(op)->type, &arg(op, 0)->type))
        return false;
    epilogue->activation = op;
    epilogue->before = arg(op, 0);
    return true;
}

static bool is_multiplication(const Op *op) { return info(op)->linear == EACH && info(op)->traits & COMMUTES; }

/* If `op` multiplies the result of a product by a slope, notes it. */
static bool takes_slope(const Op *op, const Op *slope, Epilogue *epilogue)
{
    const Type *type = &result(op)->type;
    if (!slope || !(info(slope)->traits & SLOPES) || epilogue->added || epilogue->bias || epilogue->activation ||
        epilogue->slope || type->partial || !type_equal(&result(epilogue->dot)->type, type) ||
        !type_equal(&result(slope)->type, type))
        return false;
    epilogue->slope = slope;
    epilogue->before = arg(slope, 0);
    return true;
}

/* An epilogue is short: at most casts between a sum and an activation. */
static bool find_within(const Value *result, Epilogue *epilogue, int depth)
{
    const Op *op = depth > 0 ? result->def : NULL;
    if (op && info(op)->traits & CASTS)
        return find_within(arg(op, 0), epilogue, depth - 1) && !epilogue->bias && !epilogue->activation &&
               !epilogue->slope;
    if (op && info(op)->traits & ACTIVATES)
        return find_within(arg(op, 0), epilogue, depth - 1) && takes_activation(op, epilogue);
    for (int i = 0; op && is_addition(op) && i < 2; i++)
        if (find_within(arg(op, 1 - i), epilogue, depth - 1) && takes_term(op, arg(op, i), epilogue))
            return true;
    for (int i = 0; op && is_multiplication(op) && i < 2; i++)
        if (find_within(arg(op, 1 - i), epilogue, depth - 1) && takes_slope(op, arg(op, i)->def, epilogue))
            return true;
    *epilogue = (Epilogue){ .dot = op };
    return op && info(op)->family == PRODUCT;
}

/* The library reads the added matrix in the dtype of the result, which is f32 or that of the operands. */
static bool fits_library(const Value *result, const Epilogue *epilogue)
{
    const DType dtype = result->type.dtype;
    return !epilogue->added ||
           (epilogue->added->type.dtype == dtype && (dtype == F32 || arg(epilogue->dot, 0)->type.dtype == dtype));
}

/* Is `result` that of a dot, followed only by ops that a product can apply? */
static bool find_epilogue(const Value *result, Epilogue *epilogue)
{
    enum { DEEPEST = 6 };
    return find_within(result, epilogue, DEEPEST) && fits_library(result, epilogue);
}

/* --- Sums of products ------------------------------------------------------------------------------- */

static bool is_bare(const Epilogue *e) { return !e->added && !e->bias && !e->activation && !e->slope; }

/* Notes the products that are added up to the value; false if something else is, or too many are.  `depth`: of the
 * tree of additions, which has a term beside each of them. */
static bool collect_terms(const Value *value, const Type *type, Epilogue terms[], int *count, int depth)
{
    const Op *op = value->def;
    if (!op || depth == MAX_TERMS || !type_equal(&value->type, type))
        return false;
    if (is_addition(op))
        return collect_terms(arg(op, 0), type, terms, count, depth + 1) &&
               collect_terms(arg(op, 1), type, terms, count, depth + 1);
    return *count < MAX_TERMS && find_epilogue(value, &terms[*count]) && is_bare(&terms[*count]) &&
           same_dims(&result(terms[(*count)++].dot)->type, type);
}

int find_terms(const Value *value, Epilogue terms[MAX_TERMS])
{
    const Op *op = value->def;
    const Type *type = &value->type; /* of each term, too: one that lacks a dim is not a product of this shape */
    const Value *added = NULL;
    int count = 0;
    if (find_epilogue(value, &terms[0]))
        return 1;
    if (!op || !is_addition(op))
        return 0;
    for (int i = 0; i < 2 && !added; i++)
        if (!arg(op, i)->def && type_equal(&arg(op, i)->type, type)) {
            added = arg(op, i);
            value = arg(op, 1 - i);
        }
    if (!collect_terms(value, type, terms, &count, 0))
        return 0;
    terms[0].added = added;
    return count;
}

/* --- What is written down ---------------------------------------------------------------------------- */

static void note(Op *op, ProductRole as, const Value *term)
{
    if (arg(op, 0) == term) {
        op->args.at[0] = arg(op, 1);
        op->args.at[1] = (Value *)term;
    }
    op->attrs.as = as;
}

static void note_epilogue(const Value *value, const Epilogue *e)
{
    for (Op *op = value->def; op != e->dot; op = arg(op, 0)->def)
        if (is_addition(op) && e->bias && index_of(&op->args, e->bias) >= 0)
            note(op, ADDS_BIAS, e->bias);
        else if (is_addition(op))
            note(op, ADDS_TENSOR, e->added);
        else if (is_multiplication(op))
            note(op, TAKES_SLOPE, result(e->slope));
        else if (op == e->activation)
            op->attrs.as = TAKES_ACTIVATION;
}

static void note_terms(const Value *value, const Value *added)
{
    Op *op = value->def;
    if (!is_addition(op))
        return;
    if (added) {
        note(op, ADDS_TENSOR, added);
    } else {
        op->attrs.as = ADDS_PRODUCTS;
        note_terms(arg(op, 1), NULL);
    }
    note_terms(arg(op, 0), NULL);
}

void note_epilogues(const Func *kernel)
{
    for (int i = 0; i < kernel->results.count; i++) {
        Epilogue term[MAX_TERMS];
        const int count = find_terms(kernel->results.at[i], term);
        if (count == 1)
            note_epilogue(kernel->results.at[i], term);
        else if (count)
            note_terms(kernel->results.at[i], term[0].added);
    }
}

/* An op that has not been verified may have a role that no such op can have. */
static bool has_role(const Op *op, ProductRole as)
{
    return op && op->attrs.as == as &&
           (as == TAKES_ACTIVATION ? (info(op)->traits & ACTIVATES) != 0
            : as == TAKES_SLOPE    ? is_multiplication(op) && arg(op, 1)->def && info(arg(op, 1)->def)->traits & SLOPES
                                   : is_addition(op));
}

Epilogue epilogue_of(const Value *result)
{
    Epilogue e = { 0 };
    const Op *op = result->def;
    for (; op && info(op)->family != PRODUCT; op = arg(op, 0)->def) {
        if (has_role(op, ADDS_BIAS))
            e.bias = arg(op, 1);
        else if (has_role(op, ADDS_TENSOR))
            e.added = arg(op, 1);
        else if (has_role(op, TAKES_ACTIVATION))
            e.activation = op, e.before = arg(op, 0);
        else if (has_role(op, TAKES_SLOPE))
            e.slope = arg(op, 1)->def, e.before = arg(e.slope, 0);
        else if (!(info(op)->traits & CASTS))
            return (Epilogue){ 0 };
    }
    e.dot = op;
    return e;
}

static int terms_until(const Value *value, Epilogue terms[MAX_TERMS], int count, int depth)
{
    const Op *op = value->def;
    if (depth > MAX_TERMS || count == MAX_TERMS)
        return count;
    if (has_role(op, ADDS_PRODUCTS))
        return terms_until(arg(op, 1), terms, terms_until(arg(op, 0), terms, count, depth + 1), depth + 1);
    terms[count] = epilogue_of(value);
    return count + (terms[count].dot != NULL);
}

int terms_of(const Value *result, Epilogue terms[MAX_TERMS])
{
    const Op *op = result->def, *sum = has_role(op, ADDS_TENSOR) ? arg(op, 0)->def : op;
    if (!has_role(sum, ADDS_PRODUCTS))
        return terms_until(result, terms, 0, 0);
    const int count = terms_until(sum->results.at[0], terms, 0, 0);
    if (count && sum != op)
        terms[0].added = arg(op, 1);
    return count;
}

const char *wrong_role(const Func *f, const Op *op)
{
    Epilogue term[MAX_TERMS];
    return op->attrs.as && (f->role != KERNEL || !terms_of(result(op), term)) ? "no part of a product's kernel" : NULL;
}

const char *wrong_terms(const Value *result)
{
    Epilogue found[MAX_TERMS], noted[MAX_TERMS];
    const int count = find_terms(result, found);
    bool good = terms_of(result, noted) == count;
    for (int i = 0; i < count && good; i++)
        good = memcmp(&found[i], &noted[i], sizeof found[i]) == 0;
    return good ? NULL : "computed by products otherwise than {as} of its ops says";
}

/* --- From a dot on --------------------------------------------------------------------------------- */

/* Readers of a value: `loops` are ops that a fused loop would compute; for all others the value is stored. */
typedef struct {
    int loops;
    bool is_stored;
    const Op *loop; /* the last one */
} Readers;

static Readers readers_of(const Func *f, const Uses *uses, const Value *value)
{
    Readers readers = { .is_stored = index_of(&f->results, value) >= 0 };
    const Users *users = users_of(uses, value);
    for (int i = 0; i < users->count; i++) {
        const Op *op = users->op[i];
        bool is_loop = info(op)->family == POINTWISE || info(op)->family == REDUCTION;
        readers.loops += is_loop;
        readers.is_stored |= !is_loop;
        readers.loop = is_loop ? op : readers.loop;
    }
    return readers;
}

/* The op that adds a bias to the result of the dot and is its only reader. */
static const Op *sum_of(const Func *f, const Uses *uses, const Op *dot)
{
    Readers readers = readers_of(f, uses, result(dot));
    Epilogue epilogue;
    bool is_sum = readers.loops == 1 && !readers.is_stored && is_addition(readers.loop) &&
                  find_epilogue(result(readers.loop), &epilogue) && epilogue.bias && epilogue.dot == dot;
    return is_sum ? readers.loop : NULL;
}

/* The tensor that the only reader of the product, or of its sum with a bias, adds to it; NULL: it does not.  (A view
 * lies as what it shows, not as the result.) */
static const Value *residual_of(const Readers *readers, const Value *product)
{
    if (readers->loops != 1 || readers->is_stored || !is_addition(readers->loop))
        return NULL;
    const Value *term = arg(readers->loop, arg(readers->loop, 0) == product);
    const Family family = term->def ? info(term->def)->family : CONTROL;
    const bool is_residual = term != product && family != LEAF && family != VIEW &&
                             type_equal(&term->type, &product->type) &&
                             type_equal(&result(readers->loop)->type, &product->type);
    return is_residual ? term : NULL;
}

const Op *product_before(const Func *f, const Uses *uses, const Op *op)
{
    for (int i = 0; is_addition(op) && i < 2; i++) {
        const Op *before = arg(op, i)->def;
        Epilogue epilogue;
        if (!find_epilogue(arg(op, i), &epilogue) || epilogue.added || epilogue.activation || epilogue.slope)
            continue;
        const Op *sum = sum_of(f, uses, epilogue.dot);
        const Readers readers = readers_of(f, uses, arg(op, i));
        if (sum == op || (before == (sum ? sum : epilogue.dot) && residual_of(&readers, arg(op, i))))
            return before;
    }
    return NULL;
}

/* The product is multiplied by a slope, stored, and both intermediate values have no other reader. */
static void find_slope(const Module *m, const Func *f, const Uses *uses, const Op *dot, Tail *tail)
{
    Readers readers = readers_of(f, uses, result(dot));
    Epilogue epilogue;
    if (readers.loops != 1 || readers.is_stored || !find_epilogue(result(readers.loop), &epilogue) || !epilogue.slope ||
        epilogue.dot != dot || !(info(epilogue.slope)->traits & m->target->keeps_before))
        return;
    const Readers own = readers_of(f, uses, result(epilogue.slope)), later = readers_of(f, uses, result(readers.loop));
    if (own.loops == 1 && !own.is_stored && later.is_stored)
        tail->slope = epilogue.slope, tail->multiplied = readers.loop;
}

/* An activation is left to a loop that computes more than that; so is a bias, unless its sum is stored anyway.  The
 * operand of an activation may be stored only if the target's products also write it. */
Tail find_tail(const Module *m, const Func *f, const Uses *uses, const Op *dot)
{
    Tail tail = { .sum = sum_of(f, uses, dot) };
    const Value *product = result(tail.sum ? tail.sum : dot);
    Readers readers = readers_of(f, uses, product);
    bool is_activation = readers.loops == 1 && info(readers.loop)->traits & ACTIVATES &&
                         !readers_of(f, uses, result(readers.loop)).loops && !result(dot)->type.partial;
    if (is_activation && (!readers.is_stored || info(readers.loop)->traits & m->target->keeps_before))
        tail.activation = readers.loop;
    else if (m->target->adds_residuals && (tail.residual = residual_of(&readers, product)))
        tail.added = readers.loop;
    else if (!readers.is_stored)
        tail.sum = NULL;
    if (!tail.sum && !tail.activation && !tail.added)
        find_slope(m, f, uses, dot, &tail);
    return tail;
}

/* --- Sums beside a product ------------------------------------------------------------------------- */

const Op *lone_sums(const Module *m, const Op *call)
{
    const Func *callee = kernel_called_by(m, call);
    const Op *first = callee ? callee->first : NULL;
    int count = 0;
    for (const Op *op = first; op; op = op->next, count++)
        if (info(op)->family != REDUCTION || info(op)->over != SUM || !sum_over_same_dims(op, first) ||
            count >= callee->params.count || arg(op, 0) != callee->params.at[count])
            return NULL;
    return first && count == callee->params.count && count == callee->results.count ? first : NULL;
}

const Op *sums_beside(const Module *m, const Op *call)
{
    return call->attrs.beside ? find_func(m, call->attrs.callee)->first : NULL;
}

bool sum_over_same_dims(const Op *a, const Op *b)
{
    for (int i = 0; i < a->attrs.over.count; i++)
        if (!has_name(&b->attrs.over, a->attrs.over.name[i]))
            return false;
    return a->attrs.over.count == b->attrs.over.count;
}
