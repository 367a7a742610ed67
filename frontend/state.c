/* state.c -- state that is no parameter: `state bias : [experts] = zeros` and `update bias = ...`.
 *
 * A state is read as a constant.  Its update is computed once a step, from states, numbers, and one sum over the batch
 * with the dims of the state, its statistic: over the whole batch, like a gradient.  And so it is handed out as the
 * state's gradient, by a term of the loss that is zero:
 *
 *   %still = stop_gradient %bias                      the bias, for the model
 *   %load  = sum %taken {over=batch+seq}              the statistic
 *   %term  = sum (stop_gradient %load) * (%bias - %still)
 *
 * What follows the statistic is the function @update.bias(%bias, %load), which the step calls in place of an optimizer,
 * for all copies of a repeat at once.
 */
#include "compose.h"
#include "instances.h"
#include "sequences.h"

#include <string.h>

enum { READS, FED }; /* what a value is made of: states and numbers only; inputs or parameters */

typedef struct {
    Lower *l;
    const Ast *ast;
    const Symbol *symbol;
    Func *f; /* @update.NAME */
    Value *statistic;
    Map copies, known; /* of the values before; whether they are FED, plus 1 */
    bool good;
} Update;

void declare_state(Lower *l, Symbol *symbol)
{
    symbol->state = symbol->operand.value;
    symbol->operand = tensor_operand(EMIT(l, OP_stop_gradient, NO_ATTRS, symbol->state));
}

bool has_updates(const Lower *l, const Ast *list)
{
    for (const Ast *ast = list ? list : l->file; ast; ast = ast->next)
        if (ast->kind == A_UPDATE || (ast->body && has_updates(l, ast->body)))
            return true;
    return false;
}

static bool is_state(const Update *u, const Value *value)
{
    return value == u->symbol->state || value == u->symbol->operand.value;
}

/* Also a number for each sequence, whose sum depends on the size of the batch. */
static bool is_fed(Update *u, const Value *value)
{
    const intptr_t known = (intptr_t)map_get(&u->known, value);
    if (known)
        return known - 1 == FED;
    bool fed = (!value->def && !is_state(u, value)) || (u->l->m->batch && find_dim(&value->type, u->l->m->batch) >= 0);
    for (int i = 0; value->def && !is_state(u, value) && i < value->def->args.count; i++)
        fed |= is_fed(u, arg(value->def, i));
    map_put(&u->known, value, (void *)(intptr_t)(1 + (fed ? FED : READS)));
    return fed;
}

static Value *refuse(Update *u, const char *help, const char *why)
{
    if (u->good)
        complain(u->l, (Where){ .at = u->ast->init->loc, .help = help }, "the update of '%s' %s", u->ast->name, why);
    u->good = false;
    return NULL;
}

/* Is it a sum over the batch? */
static bool sums_batch(const Update *u, const Value *value)
{
    const Op *op = value->def;
    return op && u->l->m->batch && find_dim(&value->type, u->l->m->batch) < 0 &&
           (op->kind == OP_sum || op->kind == OP_dot) && has_name(&op->attrs.over, u->l->m->batch);
}

/* `seen` takes the place of the value in the model, and is summed over the batch. */
static Value *statistic_of(Update *u, Value *value, Value *seen)
{
    const Type *state = &u->symbol->state->type;
    if (!seen)
        return NULL;
    if (u->statistic)
        return refuse(u, "a state for each", "reads more than one sum over the batch or parameter");
    if (value->type.dtype != F32 || dims_lacking(state, &value->type).count || dims_lacking(&value->type, state).count)
        return refuse(u,
                      arena_text(u->l->arena, "sum over all other dims at once, %s, of floating-point numbers",
                                 dims_text(u->l, state)),
                      "needs a sum over the batch with the dims of the state");
    u->statistic = seen;
    Statistic *place = NEW(u->l->arena, Statistic);
    *place = (Statistic){ seen->def->loc, u->l->statistics };
    u->l->statistics = place;
    Value *own = add_param(u->l->m, u->f, fresh_name(u->l->m), u->f->params.at[0]->type);
    own->port = (Port){ .kind = PORT_GRADIENT, .of = u->symbol->state->port.of };
    map_put(&u->copies, value, own);
    return own;
}

/* A parameter is the sum over all micro-batches of it times their shares of the batch. */
static Value *share_of(Update *u, Value *param)
{
    Lower *l = u->l;
    const double share = (double)l->batch_size / (double)l->m->train.batch;
    return EMIT(l, OP_mul, NO_ATTRS, param, emit_number(l, share, F32));
}

/* The value in @update.NAME. */
static Value *copy(Update *u, Value *value)
{
    const Op *op = value->def;
    Value *own = is_state(u, value) ? u->f->params.at[0] : map_get(&u->copies, value);
    if (own || !u->good)
        return own;
    const bool fed = is_fed(u, value);
    if (fed && sums_batch(u, value))
        return statistic_of(u, value, value);
    if (!op && value->port.kind == PORT_PARAM && u->l->batch)
        return statistic_of(u, value, share_of(u, value));
    if (!op || op->results.count != 1 ||
        (info(op)->family != LEAF && info(op)->family != POINTWISE && op->kind != OP_sum && op->kind != OP_max &&
         op->kind != OP_min))
        return refuse(u,
                      fed ? arena_text(u->l->arena,
                                       "it may read '%s', numbers, and one sum or mean over '%s' or one parameter",
                                       u->ast->name, u->l->m->batch ? u->l->m->batch : "the batch")
                          : NULL,
                      fed ? "reads more than its state and a sum over the batch or a parameter"
                          : "takes functions of single elements, sum, mean, max and min");
    if (op->kind == OP_reorder)
        return copy(u, arg(op, 0));
    Value **args = NEW_ARRAY(u->l->arena, Value *, op->args.count + 1);
    for (int i = 0; i < op->args.count; i++)
        if (!(args[i] = copy(u, arg(op, i))))
            return NULL;
    Builder b = { .module = u->l->m, .func = u->f, .loc = op->loc, .path = op->path, .where = op->where };
    own = build_op(&b, op->kind, op->attrs, op->args.count, args);
    map_put(&u->copies, value, own);
    return own;
}

void observe(Lower *l, Value *state, Value *still, Value *statistic)
{
    Names all = { 0 };
    for (int i = 0; i < state->type.rank; i++)
        add_name(&all, state->type.dim[i].name);
    Value *moved = EMIT(l, OP_sub, NO_ATTRS, state, still);
    Value *seen = EMIT(l, OP_stop_gradient, NO_ATTRS, emit_f32(l, statistic));
    Value *term = sum_over(l, EMIT(l, OP_mul, NO_ATTRS, seen, moved), all);
    Body *frame = l->frame;
    frame->observed = frame->observed ? EMIT(l, OP_add, NO_ATTRS, frame->observed, term) : term;
}

/* In the order of the dims of the state. */
static Value *in_order(Update *u, Value *made)
{
    const Type *state = &u->f->params.at[0]->type;
    Builder b = { .module = u->l->m, .func = u->f };
    Attrs spread = { 0 }, order = { 0 };
    for (int i = 0; i < state->rank; i++) {
        add_name(&order.order, state->dim[i].name);
        if (find_dim(&made->type, state->dim[i].name) < 0)
            spread.dims.dim[spread.dims.count++] = state->dim[i];
    }
    if (spread.dims.count) /* the same for all copies */
        made = BUILD(&b, OP_broadcast, spread, made);
    return same_dims(&made->type, state) ? made : BUILD(&b, OP_reorder, order, made);
}

static void write_update(Lower *l, const Ast *ast, Symbol *symbol, Value *after)
{
    Update u = { .l = l, .ast = ast, .symbol = symbol, .good = true };
    const Value *state = symbol->state;
    const Body *model = l->frame;
    while (model->outer)
        model = model->outer;
    u.copies.arena = u.known.arena = l->arena;
    u.f = NEW(l->arena, Func);
    *u.f = (Func){ .name = free_function_name(l, intern_format(l->m, "update.%s", state->port.of)), .role = UPDATE };
    for (int i = 0; i < model->params.count; i++)
        if (model->params.at[i]->port.of == state->port.of) /* all copies: ops find dims by name */
            add_param(l->m, u.f, state->name, model->params.at[i]->type)->port = state->port;
    Value *made = copy(&u, after);
    if (!made)
        return;
    add_result(l->m, u.f, in_order(&u, made), state->port);
    append_func(l->m, u.f);
    if (u.statistic)
        observe(l, symbol->state, symbol->operand.value, u.statistic);
}

void lower_update(Lower *l, const Ast *ast)
{
    Symbol *symbol = find_symbol_here(l->scope, ast->name);
    if (!symbol || symbol->kind != S_PARAM || !symbol->state) {
        if (!symbol || symbol->operand.kind != WRONG)
            complain(
                l, (Where){ .at = ast->name_loc, .help = arena_text(l->arena, "state %s : [DIMS] = zeros", ast->name) },
                "'%s' is not a state of this block", ast->name);
        return;
    }
    if (symbol->updated)
        complain(l, (Where){ .at = ast->name_loc }, "a second update of '%s'", ast->name);
    symbol->used = symbol->updated = true;
    if (is_frozen_use(l))
        return;
    if (l->variant != AS_MODEL && (l->variant != AS_CHECK || evaluates(l)))
        return;
    l->b.path = symbol->state->port.of;
    set_place(l, ast->init->loc);
    Value *after = emit_f32(l, lower_tensor(l, ast->init));
    const Type *state = &symbol->state->type;
    if (l->variant == AS_CHECK)
        after = NULL; /* all that is checked is the sum that it reads */
    if (after && (dims_lacking(&after->type, state).count || dims_lacking(state, &after->type).count))
        complain(l, (Where){ .at = ast->init->loc }, "the state '%s' is %s, and its update %s", ast->name,
                 type_words(l, state), type_words(l, &after->type));
    else if (after)
        write_update(l, ast, symbol, after);
    l->b.path = l->path;
}
