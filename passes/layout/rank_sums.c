/* rank_sums.c -- sums gradients over micro-batches whose terms are on different ranks, as those of tied embeddings.
 *
 *   func @bwd(%sum: ... partial(pp) on(pp=0+3))       func @bwd(%sum: ... on(pp=3), %1: ... on(pp=0))
 *     %a = dot ... on(pp=3)                             %a = dot ... on(pp=3)
 *     %b = scatter_add ... on(pp=0)                     %new = add %sum, %a
 *     %dw = pend %a, %b                            =>   %b = scatter_add ... on(pp=0)
 *     %new = add %sum, %dw                              %2 = add %1, %b
 *     return %new                                       return %new, %2
 *   %dw = loop %zeros {callee=bwd, dims=[micro]}      %3, %4 = loop %zeros, %5 {callee=bwd, dims=[micro]}
 *                                                     %dw = pend %3, %4
 *
 * A term is then added where it is computed, in place; otherwise it would be kept from there to the sum, on a rank
 * that meanwhile runs its layers, and all ranks leave room for it at one address.
 */
#include "rank_sums.h"

#include "split_loop.h"
#include "uses.h"

/* A function returns its parameter plus the gradient as its i-th result. */
typedef struct {
    const Map *callers; /* see note_callers */
    Func *f;
    Value *param;
    int i;
} Sum;

static Value *made(const Sum *sum) { return sum->f->results.at[sum->i]; }

/* Is the sum in the function just the parameter with terms added to it? */
static bool is_plain_sum(const Sum *sum) { return uses_in(sum->f, sum->param) == 1 && uses_in(sum->f, made(sum)) == 1; }

/* The same in the function that makes the result with a call. */
static bool enter_call(Module *m, const Sum *sum, Sum *inner)
{
    const Op *call = made(sum)->def;
    Func *callee = call && call->attrs.callee && !call->attrs.dims.count ? find_func(m, call->attrs.callee) : NULL;
    const int at = callee ? index_of(&call->args, sum->param) : -1;
    if (at < 0 || callee->role != PLAIN || map_get(sum->callers, callee->name) != call)
        return false;
    *inner = (Sum){ sum->callers, callee, callee->params.at[at], index_of(&call->results, made(sum)) };
    return true;
}

/* The terms that the function adds; NULL: it adds none, or a partial sum has another reader. */
static Op *terms_added(const Sum *sum)
{
    const Op *add = made(sum)->def && is_addition(made(sum)->def) ? made(sum)->def : NULL;
    const int side = add ? index_of(&add->args, sum->param) : -1;
    Op *pend = side < 0 ? NULL : arg(add, 1 - side)->def;
    bool may = pend && pend->kind == OP_pend && pend->args.count > 1 && uses_in(sum->f, result(pend)) == 1 &&
               type_equal(&result(pend)->type, &sum->param->type);
    for (int i = 0; may && i < pend->args.count; i++)
        may = arg(pend, i)->def != NULL;
    return may ? pend : NULL;
}

/* The terms of a sum, wherever they are added; NULL: it has none that can be summed apart. */
static const Op *find_terms(Module *m, const Sum *sum)
{
    Sum inner;
    if (!is_plain_sum(sum))
        return NULL;
    return enter_call(m, sum, &inner) ? find_terms(m, &inner) : terms_added(sum);
}

/* A parameter and a result for each term, in place of the sum's and at these places. */
static void take_each(Module *m, const Sum *sum, const Values *results, int param_at, int result_at, Values *params)
{
    sum->param->type = results->at[0]->type;
    sum->f->results.at[sum->i] = results->at[0];
    push_value(&m->arena, params, sum->param);
    for (int k = 1; k < results->count; k++) {
        Value *param = NEW(&m->arena, Value);
        *param = (Value){ .name = fresh_name(m), .type = results->at[k]->type };
        push_value(&m->arena, params, param);
        insert_value(&m->arena, &sum->f->params, param_at + k - 1, param);
        insert_result(m, sum->f, result_at + k - 1, results->at[k]);
    }
}

/* Adds each term right where it is computed. */
static void add_each(Module *m, const Sum *sum, Op *pend, int param_at, int result_at)
{
    Op *add = made(sum)->def;
    const Name name = made(sum)->name;
    Values params = { 0 };
    take_each(m, sum, &pend->args, param_at, result_at, &params);
    for (int k = 0; k < params.count; k++) {
        Builder b = builder_at(m, sum->f, arg(pend, k)->def->next);
        b.path = add->path, b.where = add->where, b.loc = add->loc;
        Value *new = BUILD(&b, OP_add, NO_ATTRS, params.at[k], arg(pend, k));
        new->name = k ? new->name : name;
        replace_value(&sum->f->results, arg(pend, k), new);
    }
    remove_op(sum->f, add);
    remove_op(sum->f, pend);
}

/* Sums up each of `count` terms apart; the function's new parameters and results are at these places. */
static void split_sum(Module *m, const Sum *sum, int count, int param_at, int result_at)
{
    Sum inner;
    if (!enter_call(m, sum, &inner)) {
        add_each(m, sum, terms_added(sum), param_at, result_at);
        return;
    }
    Op *call = made(sum)->def;
    const int at[] = { inner.f->params.count, inner.i + 1 };
    split_sum(m, &inner, count, at[0], at[1]);
    Values results = { 0 }, params = { 0 };
    made(sum)->type = made(&inner)->type;
    push_value(&m->arena, &results, made(sum));
    for (int k = 1; k < count; k++) {
        Value *value = NEW(&m->arena, Value);
        *value = (Value){ .name = fresh_name(m), .type = inner.f->results.at[inner.i + k]->type, .def = call };
        insert_value(&m->arena, &call->results, inner.i + k, value);
        push_value(&m->arena, &results, value);
    }
    take_each(m, sum, &results, param_at, result_at, &params);
    for (int k = 1; k < count; k++)
        push_value(&m->arena, &call->args, params.at[k]);
}

/* --- In the step ----------------------------------------------------------------------------------- */

static Op *only_reader(const Func *f, Value *value)
{
    return uses_in(f, value) == 1 ? first_reader(value->def->next, &(Values){ 1, 1, &value }) : NULL;
}

static bool is_over_kinds(const Module *m, const Op *op) { return op->attrs.axis >> m->kind_axis & 1; }

/* Does it reduce the gradient over other axes, in a message of its own? */
static bool reduces_alone(const Module *m, const Op *op)
{
    return info(op)->traits & SENDS && op->attrs.purpose == GRADIENT && !op->attrs.bucket && !is_over_kinds(m, op);
}

/* With overlap_grads what reads the loop's result starts as soon as its last micro-batch is there, whatever else runs.
 * What is pending from several results would wait for the loop. */
static bool may_wait(const Module *m, const Op *reader)
{
    return !m->train.overlap_grads || (reader && (is_over_kinds(m, reader) || reduces_alone(m, reader)));
}

/* What the loop carries there for a term: in place of the sum, or new. */
static Value *carry_term(Module *m, Func *step, Op *loop, const Func *micro, int at, bool is_new)
{
    Builder b = builder_at(m, step, loop);
    Value *value = NEW(&m->arena, Value), *zeros = build_zeros(&b, &micro->params.at[at]->type);
    *value = (Value){ .name = fresh_name(m), .type = micro->params.at[at]->type, .def = loop };
    if (is_new) {
        insert_value(&m->arena, &loop->args, at, zeros);
        insert_value(&m->arena, &loop->results, at, value);
    } else {
        loop->args.at[at] = zeros;
        loop->results.at[at] = value;
    }
    return value;
}

/* The loop carries one sum for each term, and the gradient is what they are together, each reduced where it is. */
static void split_carried(Module *m, Func *step, Op *loop, const Sum *sum, const Op *terms)
{
    const int carried = (int)loop->attrs.carried, count = terms->args.count;
    const Attrs attrs = terms->attrs;
    Value *whole = loop->results.at[sum->i];
    Op *reader = only_reader(step, whole), *reduction = reader && reduces_alone(m, reader) ? reader : NULL;
    Builder behind = builder_at(m, step, reduction ? reduction : loop->next);
    Values sums = { 0 };
    split_sum(m, sum, count, carried, carried);
    for (int k = 0; k < count; k++) {
        Value *value = carry_term(m, step, loop, sum->f, k ? carried + k - 1 : sum->i, k > 0);
        if (reduction) {
            value = result(clone_op(&behind, reduction, &value));
            value->name = fresh_name(m);
        }
        push_value(&m->arena, &sums, value);
    }
    loop->attrs.carried += count - 1;
    behind.path = loop->path, behind.where = loop->where, behind.loc = loop->loc;
    whole = reduction ? result(reduction) : whole;
    Value *all = build_op(&behind, OP_pend, attrs, count, sums.at);
    all->name = whole->name;
    replace_uses(step, whole, all);
    if (reduction)
        remove_op(step, reduction);
}

/* False: none has several terms. */
static bool split_sums_of(Module *m, const Map *callers, Func *step, Op *loop)
{
    Func *micro = find_func(m, loop->attrs.callee);
    bool any = false;
    for (int i = (int)loop->attrs.carried - 1; i >= 0; i--) {
        const Sum sum = { callers, micro, micro->params.at[i], i };
        const bool has_terms = sum.param->type.partial >> m->kind_axis & 1;
        const Op *terms = has_terms && is_zeros(arg(loop, i)) ? find_terms(m, &sum) : NULL;
        if (!terms || !may_wait(m, only_reader(step, loop->results.at[i])))
            continue;
        split_carried(m, step, loop, &sum, terms);
        any = true;
    }
    return any;
}

bool sum_terms_apart(Module *m)
{
    Func *step = m->kind_axis >= 0 ? func_with_role(m, STEP) : NULL;
    const Map callers = step ? note_callers(m) : (Map){ 0 };
    bool any = false;
    for (Op *op = step ? step->first : NULL; op; op = op->next)
        if (op->attrs.carried && !is_split_loop(op) && map_get(&callers, op->attrs.callee) == op)
            any |= split_sums_of(m, &callers, step, op);
    return any;
}
