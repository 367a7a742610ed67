/* state.c -- state that is no parameter: `state bias : [experts] = zeros` and `update bias = ...`; and what follows the
 * optimizer: `update w = ...` of a parameter.
 *
 * A state is read as a constant.  Its update is computed once a step, from tensors of the module, numbers, and one sum
 * or maximum over the batch with the dims of the state, its statistic: over the whole batch, like a gradient.  And so
 * it is handed out as the state's gradient, by a term of the loss that is zero:
 *
 *   %still = stop_gradient %bias                      the bias, for the model
 *   %load  = sum %taken {over=batch+seq}              the statistic
 *   %term  = sum (stop_gradient %load) * (%bias - %still)
 *
 * What follows the statistic is the function @update.bias(%bias, %load), which the step calls in place of an optimizer,
 * for all copies of a repeat at once; that of a parameter it calls after the optimizer.
 */
#include "compose.h"
#include "elaborate/instances.h"
#include "expr.h"

enum { READS, FED }; /* what a value is made of: tensors of the module and numbers only; or inputs, too */

typedef struct {
    Lower *l;
    const Ast *ast;
    const Symbol *symbol;
    const Value *of; /* the tensor that is updated, in the model */
    Func *f;         /* @update.NAME */
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

/* The tensor itself, outside of the repeats around. */
static const Value *tensor_of(const Update *u, Value *value)
{
    Body *frame = u->l->frame;
    const Value *outside = value->def ? value : outside_bodies(&frame, value, false);
    return outside->port.kind == PORT_PARAM ? outside : NULL;
}

/* Also a number for each sequence, whose sum depends on the size of the batch. */
static bool is_fed(Update *u, Value *value)
{
    const intptr_t known = (intptr_t)map_get(&u->known, value);
    if (known)
        return known - 1 == FED;
    const Name batch = u->l->m->batch;
    bool fed = (!value->def && !tensor_of(u, value)) || (batch && find_dim(&value->type, batch) >= 0);
    for (int i = 0; value->def && i < value->def->args.count; i++)
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

/* Is it a sum or maximum over the batch? */
static bool reduces_batch(const Update *u, const Value *value)
{
    const Op *op = value->def;
    return op && u->l->m->batch && find_dim(&value->type, u->l->m->batch) < 0 &&
           (op->kind == OP_sum || op->kind == OP_dot || op->kind == OP_max) &&
           has_name(&op->attrs.over, u->l->m->batch);
}

/* The value is reduced over the whole batch. */
static Value *statistic_of(Update *u, Value *value)
{
    const Type *type = &u->of->type;
    if (!u->symbol->state)
        return refuse(u, "a state has such a statistic, and this may read the state", "reads the batch");
    if (u->statistic)
        return refuse(u, "a state for each", "reads more than one sum or maximum over the batch");
    if (value->type.dtype != F32 || dims_lacking(type, &value->type).count || dims_lacking(&value->type, type).count)
        return refuse(u,
                      arena_text(u->l->arena, "over all other dims at once, %s, of floating-point numbers",
                                 dims_text(u->l, type)),
                      "needs a sum or maximum over the batch with the dims of the state");
    u->statistic = value;
    find_param(u->l->m, u->of->port.of)->most = value->def->kind == OP_max;
    Statistic *place = NEW(u->l->arena, Statistic);
    *place = (Statistic){ value->def->loc, u->l->noted.statistics };
    u->l->noted.statistics = place;
    Value *own = add_param(u->l->m, u->f, fresh_name(u->l->m), u->f->params.at[0]->type);
    own->port = (Port){ .kind = PORT_GRADIENT, .of = u->of->port.of };
    return own;
}

/* A tensor of the module, with all copies: ops find dims by name.  What is updated last reads what the step has made of
 * others. */
static Value *read_tensor(Update *u, const Value *tensor)
{
    const Body *model = u->l->frame;
    while (model->outer)
        model = model->outer;
    const Port port = { .kind = PORT_PARAM,
                        .of = tensor->port.of,
                        .slot = u->symbol->state ? NULL : intern_text(u->l->m, "new") };
    Value *own = param_with(u->f, port);
    for (int i = 0; i < model->params.count && !own; i++)
        if (model->params.at[i]->port.of == tensor->port.of) {
            own = add_param(u->l->m, u->f, fresh_name(u->l->m), model->params.at[i]->type);
            own->port = port;
        }
    return own;
}

/* What an op of the update may be. */
static bool may_compute(const Op *op)
{
    return op && op->results.count == 1 &&
           (info(op)->family == LEAF || info(op)->family == POINTWISE || info(op)->family == PRODUCT ||
            info(op)->family == REDUCTION || op->kind == OP_rename);
}

static Value *copy_of(Update *u, Value *value);

static Value *copy_op(Update *u, const Op *op)
{
    Value **args = NEW_ARRAY(u->l->arena, Value *, op->args.count + 1);
    for (int i = 0; i < op->args.count; i++)
        if (!(args[i] = copy_of(u, arg(op, i))))
            return NULL;
    Builder b = { .module = u->l->m, .func = u->f, .loc = op->loc, .path = op->path, .where = op->where };
    return build_op(&b, op->kind, op->attrs, op->args.count, args);
}

/* The value in @update.NAME. */
static Value *copy_of(Update *u, Value *value)
{
    const Op *op = value->def;
    Value *own = map_get(&u->copies, value);
    if (own || !u->good)
        return own;
    const Value *tensor = op ? NULL : tensor_of(u, value);
    const bool fed = is_fed(u, value), reduces = fed && reduces_batch(u, value);
    if (!tensor && !reduces && (!may_compute(op) || (fed && info(op)->family == LEAF)))
        return refuse(u,
                      !fed                ? NULL
                      : !u->symbol->state ? "it may read numbers, and states and parameters as they are after the step"
                                          : "it may read numbers, states and parameters, and one sum, mean or max over "
                                            "the batch",
                      fed ? "reads more than tensors of its block and a sum or maximum over the batch"
                          : "takes functions of single elements, sum, mean, max, min, dot and rename");
    if (tensor)
        own = tensor->port.of == u->of->port.of ? u->f->params.at[0] : read_tensor(u, tensor);
    else if (reduces)
        own = statistic_of(u, value);
    else
        own = op->kind == OP_reorder ? copy_of(u, arg(op, 0)) : copy_op(u, op);
    map_put(&u->copies, value, own);
    return own;
}

void add_statistic(Lower *l, Value *state, Value *still, Value *statistic)
{
    const Names all = dim_names(&state->type);
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

bool has_update(const Lower *l, Port tensor)
{
    for (const Func *f = l->m->funcs; f; f = f->next)
        if (f->role == UPDATE && result_at(f, tensor) >= 0)
            return true;
    return false;
}

void write_update(Lower *l, const Ast *ast, Symbol *symbol, const Value *tensor, Value *after)
{
    Update u = { .l = l, .ast = ast, .symbol = symbol, .of = tensor, .good = true };
    const Body *model = l->frame;
    while (model->outer)
        model = model->outer;
    u.copies.arena = u.known.arena = l->arena;
    u.f = NEW(l->arena, Func);
    *u.f = (Func){ .name = free_function_name(l, intern_format(l->m, "update.%s", tensor->port.of)), .role = UPDATE };
    for (int i = 0; i < model->params.count; i++)
        if (model->params.at[i]->port.of == tensor->port.of) /* all copies: ops find dims by name */
            add_param(l->m, u.f, tensor->name, model->params.at[i]->type)->port = tensor->port;
    Value *made = copy_of(&u, after);
    if (!made)
        return;
    add_result(l->m, u.f, in_order(&u, made), tensor->port);
    append_func(l->m, u.f);
    UpdateRule *ruled = NEW(l->arena, UpdateRule);
    *ruled = (UpdateRule){ ast->name_loc, tensor->port.of, l->noted.ruled };
    l->noted.ruled = ruled;
    if (u.statistic)
        add_statistic(l, symbol->state, symbol->operand.value, u.statistic);
}

Symbol *find_updated(Lower *l, const Ast *ast)
{
    Symbol *symbol = find_symbol_here(l->scope, ast->name);
    const bool is_tensor = symbol && symbol->kind == S_PARAM;
    if (!is_tensor && (!symbol || symbol->operand.kind != WRONG))
        complain(l,
                 (Where){ .at = ast->name_loc, .help = arena_text(l->arena, "state %s : [DIMS] = zeros", ast->name) },
                 "'%s' is neither a state nor a parameter of this block", ast->name);
    if (!is_tensor)
        return NULL;
    if (!symbol->state && symbol->operand.kind != WRONG && !is_frozen_use(l) && is_in_scan(l))
        return complain(l, (Where){ .at = ast->name_loc, .help = "do it outside of the scan" },
                        "a parameter is updated once a step, not at each position of a scan"),
               NULL;
    if (symbol->updated)
        complain(l, (Where){ .at = ast->name_loc }, "a second update of '%s'", ast->name);
    symbol->used = symbol->updated = true;
    return symbol->operand.kind == WRONG ? NULL : symbol;
}
