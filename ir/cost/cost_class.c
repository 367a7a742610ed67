/* cost_class.c -- classifies each tensor of a compiled program.
 *
 * Weights are propagated from the state of the step into its callees, gradients backwards from the ops that write new
 * state.  The ops that the loss depends on are the forward pass; its values that other ops read are activations.
 */
#include "cost.h"

const char *const class_name[N_CLASSES] = {
    [MASTER_WEIGHTS] = "master weights",
    [WEIGHTS] = "weights",
    [GRADIENTS] = "gradients",
    [OPTIMIZER_STATE] = "optimizer state",
    [INPUTS] = "inputs",
    [ACTIVATIONS] = "activations",
    [WORKSPACE] = "workspace",
};

TensorClass class_of(const Classes *classes, const Value *value)
{
    intptr_t kind = (intptr_t)map_get(&classes->of, value);
    return kind ? (TensorClass)(kind - 1) : WORKSPACE;
}

const Param *param_behind(const Classes *classes, const Value *value) { return map_get(&classes->param, value); }

static bool has_class(const Classes *classes, const Value *value) { return map_get(&classes->of, value) != NULL; }

/* The first class assigned to a value is kept. */
static void set_class(Classes *classes, const Value *value, TensorClass kind, const Param *param)
{
    if (has_class(classes, value))
        return;
    map_put(&classes->of, value, (void *)((intptr_t)kind + 1));
    map_put(&classes->param, value, (void *)param);
}

static Func *callee_of(const Classes *classes, const Op *op)
{
    return op->attrs.callee ? find_func(classes->m, op->attrs.callee) : NULL;
}

/* --- State, inputs, weights: downwards ------------------------------------------------------------ */

static void classify_params(Classes *classes, const Func *f)
{
    const Module *m = classes->m;
    bool is_narrow = m->train.precision > PRECISION_FP32;
    for (int i = 0; i < f->params.count; i++) {
        const Value *value = f->params.at[i];
        const Param *param = value->port.of ? find_param(m, value->port.of) : NULL;
        if (value->port.kind == PORT_PARAM)
            set_class(classes, value, is_narrow ? MASTER_WEIGHTS : WEIGHTS, param);
        else if (port_is_state(value->port.kind) && value->port.kind != PORT_LEFT) /* these are gradients */
            set_class(classes, value, OPTIMIZER_STATE, param);
        else if (value->port.kind != PORT_LEFT)
            set_class(classes, value, INPUTS, NULL);
    }
}

static bool is_weight(const Classes *classes, const Value *value)
{
    TensorClass kind = class_of(classes, value);
    return kind == WEIGHTS || kind == MASTER_WEIGHTS;
}

/* Computed only from weights, and not larger: casts, gathered shards, slices. */
static bool is_made_of_weights(const Classes *classes, const Op *op)
{
    int64_t largest = 0;
    for (int i = 0; i < op->args.count; i++) {
        if (arg(op, i)->type.rank > 0 && !is_weight(classes, arg(op, i)))
            return false;
        int64_t count = arg(op, i)->type.rank > 0 ? element_count(&arg(op, i)->type) : 0;
        largest = count > largest ? count : largest;
    }
    for (int i = 0; i < op->results.count; i++)
        if (element_count(&op->results.at[i]->type) > largest)
            return false;
    return largest > 0;
}

/* Stacks of values that the callee computes from slices of weights. */
static void pass_weights_up(Classes *classes, const Op *op, const Func *callee)
{
    for (int i = 0; i < op->results.count; i++)
        if (callee->results.at[i]->def && class_of(classes, callee->results.at[i]) == WEIGHTS)
            set_class(classes, op->results.at[i], WEIGHTS, param_behind(classes, callee->results.at[i]));
}

static void pass_down(Classes *classes, const Func *f)
{
    for (const Op *op = f->first; op; op = op->next) {
        const Func *callee = callee_of(classes, op);
        for (int i = 0; callee && i < op->args.count; i++) {
            TensorClass kind = class_of(classes, arg(op, i));
            if (kind != WORKSPACE)
                set_class(classes, callee->params.at[i], kind, param_behind(classes, arg(op, i)));
        }
        if (callee && callee->role != KERNEL) {
            pass_down(classes, callee);
            pass_weights_up(classes, op, callee);
        } else if (is_made_of_weights(classes, op)) {
            for (int i = 0; i < op->results.count; i++)
                set_class(classes, op->results.at[i], WEIGHTS, param_behind(classes, arg(op, 0)));
        }
    }
}

/* --- Gradients: upwards ---------------------------------------------------------------------------- */

/* Dims of the same names and sizes, regardless of splits. */
static bool same_shape(const Type *a, const Type *b)
{
    for (int i = 0; i < a->rank && a->rank == b->rank; i++)
        if (a->dim[i].name != b->dim[i].name || a->dim[i].size != b->dim[i].size)
            return false;
    return a->rank == b->rank && a->rank > 0;
}

static void mark_gradient(Classes *classes, const Value *value, const Param *param);

/* The operands of a gradient's op: terms of its sum, the same tensor in another layout. */
static void mark_operands(Classes *classes, const Op *op, const Value *gradient, const Param *param)
{
    for (int i = 0; i < op->args.count; i++)
        if (info(op)->family == VIEW || same_shape(&arg(op, i)->type, &gradient->type))
            mark_gradient(classes, arg(op, i), param);
}

static void mark_gradient(Classes *classes, const Value *value, const Param *param)
{
    const Op *op = value->def;
    if (has_class(classes, value))
        return;
    set_class(classes, value, GRADIENTS, param);
    const Func *callee = op ? callee_of(classes, op) : NULL;
    int at = callee ? index_of(&op->results, value) : -1;
    if (callee && callee->role != KERNEL) {
        mark_gradient(classes, callee->results.at[at], param);
        if (at < op->attrs.carried) {
            mark_gradient(classes, callee->params.at[at], param);
            mark_gradient(classes, arg(op, at), param);
        }
    } else if (op) {
        mark_operands(classes, op, value, param);
    }
}

/* A key of a map; not NULL. */
static const void *place_of(const Value *value) { return value->storage ? (void *)(value->storage->at + 1) : value; }

static int64_t padded_elements(const Type *type)
{
    int64_t count = 1;
    for (int i = 0; i < type->rank; i++)
        count *= type->dim[i].padded;
    return count;
}

/* Has it the state's shape, or the state's blocks of rows: see passes/memory/rows.c? */
static bool is_like_state(const Type *type, const Type *state)
{
    return same_shape(type, state) ||
           (type->rank == state->rank + 1 && padded_elements(type) == padded_elements(state));
}

/* The op that makes new state, behind a view of its blocks; NULL: there is none. */
static const Op *maker_of(const Value *new)
{
    const Op *op = new->def;
    return op && info(op)->traits & FOLDS ? arg(op, 0)->def : op;
}

/* Of operands with the state's shape, ops that write new state read old state and the gradient. */
static void mark_gradients(Classes *classes, const Func *step)
{
    const StepState state = state_of(step);
    Map places = { .arena = &classes->m->arena }; /* storage of state */
    for (int i = 0; i < state.count; i++)
        if (state.before[i]->port.kind != PORT_LEFT)
            map_put(&places, place_of(state.before[i]), state.before[i]);
    for (int i = 0; i < state.count; i++) {
        const Value *old = state.before[i];
        const Op *op = maker_of(state.after[i]);
        for (int j = 0; old->port.kind != PORT_LEFT && op && j < op->args.count; j++) {
            const Value *operand = arg(op, j);
            if (is_like_state(&operand->type, &old->type) && !map_get(&places, place_of(operand)))
                mark_gradient(classes, operand, param_behind(classes, old));
        }
    }
}

/* Is it state that has been read for the next step? */
static bool is_read_ahead(const Value *left)
{
    const Op *op = left->def && info(left->def)->traits & WAITS ? arg(left->def, 0)->def : NULL;
    return op && info(op)->traits & CARRIES;
}

/* What a step leaves to the next one is gradients, but for some numbers and state; casts that the update makes are
 * weights. */
static void mark_left(Classes *classes, const Func *step)
{
    const StepState state = state_of(step);
    for (int i = 0; i < state.count; i++) {
        const Value *new = state.after[i], *old = state.before[i];
        if (old->port.kind == PORT_LEFT && is_read_ahead(new)) {
            set_class(classes, old, OPTIMIZER_STATE, NULL);
            set_class(classes, new, OPTIMIZER_STATE, NULL);
        } else if (old->port.kind == PORT_LEFT) {
            set_class(classes, old, GRADIENTS, NULL);
            mark_gradient(classes, new, param_behind(classes, old));
        }
        const Op *op = maker_of(new);
        for (int j = 0; old->port.kind == PORT_PARAM && op && j < op->results.count; j++) {
            const Value *made = op->results.at[j];
            if (index_of(&step->results, made) < 0 && !made->type.tier && is_like_state(&made->type, &old->type))
                set_class(classes, made, WEIGHTS, param_behind(classes, old));
        }
    }
}

/* --- Activations --------------------------------------------------------------------------------- */

/* What the callee needs for that result: of a loop, also for what it carries to the next iteration. */
static void mark_needed(const Module *m, Map *forward, const Op *op, const Func *callee, int index)
{
    const int carried = op->attrs.dims.count ? (int)op->attrs.carried : 0;
    mark_forward(m, forward, callee->results.at[index]);
    for (bool is_done = false; !is_done;) {
        is_done = true;
        for (int i = 0; i < callee->params.count; i++) {
            if (!map_get(forward, callee->params.at[i]))
                continue;
            mark_forward(m, forward, arg(op, i));
            is_done &= i >= carried || map_get(forward, callee->results.at[i]);
            if (i < carried)
                mark_forward(m, forward, callee->results.at[i]);
        }
    }
}

void mark_forward(const Module *m, Map *forward, const Value *value)
{
    const Op *op = value->def;
    if (map_get(forward, value))
        return;
    map_put(forward, value, (void *)value);
    if (!op)
        return;
    const Func *callee = function_called_by(m, op);
    const bool is_new = !map_get(forward, op);
    map_put(forward, op, (void *)op);
    if (callee)
        mark_needed(m, forward, op, callee, index_of(&op->results, value));
    for (int i = 0; is_new && !callee && i < op->args.count; i++)
        mark_forward(m, forward, arg(op, i));
}

static void mark_activations(Classes *classes, const Map *forward, const Func *f)
{
    for (const Op *op = f->first; op; op = op->next) {
        const Func *callee = callee_of(classes, op);
        if (callee && callee->role != KERNEL)
            mark_activations(classes, forward, callee);
        for (int i = 0; !map_get(forward, op) && i < op->args.count; i++)
            if (arg(op, i)->def && map_get(forward, arg(op, i)->def))
                set_class(classes, arg(op, i), ACTIVATIONS, NULL);
    }
}

Classes classify_tensors(Module *m)
{
    Classes classes = { .m = m, .of.arena = &m->arena, .param.arena = &m->arena, .lives.arena = &m->arena };
    Map forward = { .arena = &m->arena };
    for (int i = 0; i < N_PROGRAMS; i++) {
        const Func *f = func_with_role(m, programs[i]);
        if (!f)
            continue;
        classify_params(&classes, f);
        pass_down(&classes, f);
    }
    const Func *step = func_with_role(m, STEP);
    if (step) {
        mark_gradients(&classes, step);
        mark_left(&classes, step);
        mark_forward(m, &forward, result_for(step, PORT_LOSS));
        mark_activations(&classes, &forward, step);
        pass_down(&classes, step); /* classes found since, to callees and kernels */
    }
    return classes;
}
