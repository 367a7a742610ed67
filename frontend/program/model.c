/* model.c -- the model: its inputs, its loss, and the functions of the module that are made from it. */
#include "elaborate/slots.h"
#include "lower/expr.h"
#include "program.h"

#include <string.h>

/* --- Inputs -------------------------------------------------------------------------------- */

/* next(T): the same, one step later along the last dim. */
static bool read_next(Lower *l, const Ast *ast, Input *input)
{
    const Ast *of = ast->kind == A_CALL && strcmp(ast->name, "next") == 0 ? ast->child : NULL;
    if (!of || of->next || of->kind != A_NAME)
        return complain(l, (Where){ .at = ast->loc, .help = "next(T), with T an input declared above" },
                        "an input can only be set to the next tokens of another input");
    Symbol *symbol = find_symbol_here(l->scope, of->name);
    const Input *other = symbol && symbol->kind == S_INPUT ? find_input(l->m, intern_text(l->m, of->name)) : NULL;
    if (!other) {
        if (!symbol || symbol->kind != S_INPUT) /* else reported */
            complain(l, (Where){ .at = of->loc }, "'%s' is not an input declared above", of->name);
        return false;
    }
    if (l->role == MODEL && !type_equal(&other->type, &input->type))
        return complain(l, (Where){ .at = of->loc }, "next(%s) is %s, not %s", of->name, type_words(l, &other->type),
                        type_words(l, &input->type));
    input->of = other->of;
    input->shift = other->shift + 1;
    return true;
}

/* A step has one dim more: the micro-batches. */
static bool read_input_type(Lower *l, const Ast *ast, Type *type)
{
    if (ast->type->ellipsis)
        return complain(l, (Where){ .at = ast->type->loc },
                        "'...' is allowed only in the types of a block's arguments");
    if (!type_of_ast(l, ast->type, type))
        return false;
    const char *batch = l->m->batch;
    if (batch && (type->rank == 0 || type->dim[0].name != batch))
        complain(l, (Where){ .at = ast->type->loc },
                 "the first dim of an input is the micro-batch, [%s, ...], but this one is %s", batch,
                 type_words(l, type));
    else if (type->rank == MAX_RANK)
        complain(l, (Where){ .at = ast->type->loc }, "an input has at most %d dims", MAX_RANK - 1);
    else
        return true;
    return false;
}

static void add_input(Lower *l, const Input *described)
{
    Input *input = NEW(l->arena, Input), **end = &l->m->inputs;
    *input = *described;
    while (*end)
        end = &(*end)->next;
    *end = input;
}

static void lower_input(Lower *l, const Ast *ast)
{
    const Name name = intern_text(l->m, ast->name);
    Input input = { .name = name, .of = name };
    bool good = read_input_type(l, ast, &input.type) && (!ast->init || read_next(l, ast->init, &input));
    const Symbol *other = find_symbol(l->scope, ast->name);
    if (other) {
        complain(l, (Where){ .at = ast->name_loc }, "'%s' is already %s, declared at %s", ast->name,
                 symbol_noun(other->kind), position_text(l, other->loc));
        return;
    }
    Symbol *symbol = declare(l, l->scope, S_INPUT, ast->name, ast->name_loc);
    if (!good)
        return;
    Value *value = new_port(l, input.name, input.type, (Port){ .kind = PORT_INPUT, .of = input.name });
    push_named(l, l->frame, &l->frame->inputs, value);
    symbol->operand = tensor_operand(value);
    note_type(l, ast->name_loc, &input.type);
    if (l->role == MODEL)
        add_input(l, &input);
}

/* --- The loss ------------------------------------------------------------------------------ */

static Value *lower_loss(Lower *l, const Ast *ast)
{
    l->b.path = intern_text(l->m, "loss");
    set_place(l, ast->child->loc);
    Operand operand = lower_expr(l, ast->child);
    l->b.path = NULL;
    if (operand.kind == WRONG)
        return NULL;
    if (operand.kind == NUMBER)
        return complain(l, (Where){ .at = ast->child->loc },
                        "the loss is the constant %s, independent of the parameters",
                        constant_text(l->arena, operand.number)),
               NULL;
    const Type *type = &operand.value->type;
    if (type->rank || !is_float(type->dtype))
        return complain(l, (Where){ .at = ast->child->loc, .help = type->rank ? "mean(...) of it" : NULL },
                        "the loss must be one floating-point number, not %s", type_words(l, type)),
               NULL;
    name_value(l, operand.value, intern_text(l->m, "loss"));
    return operand.value;
}

/* Of records, next() is one step later along a dim of the record. */
static void check_next(Lower *l)
{
    const int least = 1 + (l->m->batch != NULL);
    const bool is_whole = l->diags->errors == 0; /* else the type may not be the intended one */
    for (const Input *input = is_whole && declares_records(l) ? l->m->inputs : NULL; input; input = input->next)
        if (input->shift > 0 && input->type.rank < least)
            complain(l, (Where){ .at = find_symbol_here(l->scope, input->name)->loc },
                     "'%s' is the next element along the last dim of '%s', which has none besides the micro-batch",
                     input->name, input->of);
}

static Value *lower_statements(Lower *l)
{
    Value *loss = NULL;
    const Ast *stated = NULL;
    for (const Ast *ast = l->model->body; ast; ast = ast->next) {
        if (ast->kind == A_INPUT) {
            lower_input(l, ast);
        } else if (ast->kind == A_OUTPUT) {
            lower_output(l, ast);
        } else if (ast->kind != A_LOSS) {
            lower_statement(l, ast);
        } else if (stated) {
            complain(l, (Where){ .at = ast->loc, .help = "add them" }, "a second loss: the first is at %s",
                     position_text(l, stated->loc));
            lower_loss(l, ast);
        } else {
            stated = ast;
            loss = lower_loss(l, ast);
        }
    }
    check_next(l);
    l->now.loss = loss;
    if (loss && l->frame->observed)
        loss = EMIT(l, OP_add, NO_ATTRS, loss, l->frame->observed);
    l->incomplete |= !stated;
    if (!stated)
        complain(l, (Where){ .at = l->model->name_loc }, "the model '%s' has no loss", l->model->name);
    const Param *trained = l->m->params;
    while (trained && trained->state)
        trained = trained->next;
    if (!trained && !l->incomplete && l->diags->errors == 0)
        complain(l, (Where){ .at = l->model->name_loc, .help = "param w : [DIMS] = normal(0.02)" },
                 "the model '%s' has no parameters: there is nothing to train", l->model->name);
    return loss;
}

/* --- Its functions ------------------------------------------------------------------------------ */

static void take_results(Lower *l, Func *f, Value *loss)
{
    if (l->role == PREDICT)
        add_result(l->m, f, predicted_logits(l), (Port){ .kind = PORT_LOGITS });
    else if (l->role == OUTPUTS)
        take_outputs(l, f);
    else if (l->role != TOTALS && loss)
        add_result(l->m, f, loss, (Port){ .kind = PORT_LOSS });
    for (int i = 0; i < l->now.counts.count && l->role != OUTPUTS; i++)
        add_result(l->m, f, l->now.counts.at[i], (Port){ .kind = PORT_TOTAL, .of = intern_format(l->m, "%d", i) });
}

static void keep_used(Lower *l, const Map *read, Values *params)
{
    Values kept = { 0 };
    for (int i = 0; i < params->count; i++)
        if (map_get(read, params->at[i]))
            push_value(l->arena, &kept, params->at[i]);
    *params = kept;
}

static Value *input_named(const Values *inputs, Name name)
{
    int i = 0;
    while (inputs->at[i]->port.of != name)
        i++;
    return inputs->at[i];
}

/* Inputs that are read, and those whose data they get. */
static void keep_inputs(Lower *l, Map *read, Body *frame)
{
    for (int i = 0; i < frame->inputs.count; i++) {
        const Value *value = frame->inputs.at[i];
        Value *source = input_named(&frame->inputs, find_input(l->m, value->port.of)->of);
        if (map_get(read, value))
            map_put(read, source, source);
    }
    keep_used(l, read, &frame->inputs);
}

/* A dim that only outputs have may be split, too. */
static void note_dims(Lower *l, const Func *f)
{
    for (const Op *op = f->first; op; op = op->next)
        for (int i = 0; i < op->results.count; i++)
            for (int d = 0; d < op->results.at[i]->type.rank; d++)
                map_put(&l->noted.dims, op->results.at[i]->type.dim[d].name, l);
}

/* Removes ops and parameters that the results do not need: a prediction needs no labels, and a step no outputs. */
static void prune(Lower *l, Body *frame)
{
    Map read = { .arena = l->arena };
    if (l->role == MODEL)
        note_dims(l, frame->func);
    remove_dead_ops(frame->func, &read);
    if (l->role == PREDICT || l->role == OUTPUTS)
        keep_inputs(l, &read, frame);
    if (l->role == TOTALS)
        keep_used(l, &read, &frame->params);
    if (frame->key && !map_get(&read, frame->key))
        frame->key = NULL;
    if (frame->origin && !map_get(&read, frame->origin))
        frame->origin = NULL;
}

static void start_role(Lower *l, FuncRole role, Body *frame, Scope *scope, Instance **instances)
{
    l->role = role;
    forget_slots(l);
    l->batch_size = role == PREDICT ? 1 : l->m->train.microbatch;
    l->frame = frame;
    l->scope = scope;
    l->instances = instances;
    l->path = l->stars = NULL;
    l->use = NULL;
    l->now = (InFunction){ .uses.arena = l->arena, .labelled.arena = l->arena, .mixing.arena = l->arena };
    l->b = (Builder){ .module = l->m, .func = frame->func };
}

Func *lower_model(Lower *l, FuncRole role)
{
    Instance *instances = NULL;
    Scope scope = { .outer = &l->globals };
    Func *f = NEW(l->arena, Func);
    Body frame = { .func = f };
    start_role(l, role, &frame, &scope, &instances);
    f->role = role;
    Value *loss = lower_statements(l);
    check_used(l, &scope);
    if (l->diags->errors == 0) {
        take_results(l, f, loss);
        if (role == TOTALS || role == PREDICT || l->now.outputs)
            prune(l, &frame);
    }
    finish_frame(l, &frame);
    f->name = role == MODEL ? intern_text(l->m, l->model->name) : intern_text(l->m, role_name[role]);
    append_func(l->m, f);
    l->frame = NULL;
    l->scope = &l->globals;
    return f;
}
