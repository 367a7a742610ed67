/* outputs.c -- outputs: values of each record that the model names, for the trainer to write.
 *
 *   output price = dot(x, w_out, embed)      a value and an output
 *   output price                             an output that is a value already
 *
 * They change nothing in training: what only they need is removed from MODEL, and OUTPUTS computes them, of a
 * micro-batch, without the inputs that only the loss reads.
 */
#include "lower/expr.h"
#include "program.h"
#include "sequences.h"

#include <string.h>

/* The value that has the name; after an error, none. */
static Operand named_value(Lower *l, const Ast *ast)
{
    if (!ast->body)
        return lower_expr(l, ast->child);
    lower_statement(l, ast->body);
    Symbol *symbol = find_symbol_here(l->scope, ast->name);
    if (symbol && symbol->kind == S_INSTANCE)
        complain(l, (Where){ .at = ast->name_loc, .help = "call it, and name what it gives" },
                 "'%s' is an instance, not a value", ast->name);
    if (!symbol || symbol->kind != S_LOCAL)
        return wrong;
    symbol->used = true;
    return symbol->operand;
}

/* A record has one: the value is a tensor with the batch dim, and not data. */
static bool is_of_records(Lower *l, const Ast *ast, Operand operand)
{
    const Symbol *symbol = find_symbol_here(l->scope, ast->name);
    if (operand.kind == WRONG)
        return false;
    if (symbol && symbol->kind == S_INPUT)
        return complain(l, (Where){ .at = ast->name_loc, .help = "leave it out" },
                        "'%s' is an input: what would be written is in the data already", ast->name);
    if (!l->m->batch)
        return complain(l, (Where){ .at = ast->name_loc, .help = "declare 'dim batch', the first dim of each input" },
                        "an output has a value for each record, and the model has no dim that counts records");
    if (operand.kind == NUMBER)
        return complain(l, (Where){ .at = ast->name_loc, .help = "leave it out" },
                        "'%s' is the constant %s, the same for every record", ast->name,
                        constant_text(l->arena, operand.number));
    return find_dim(&operand.value->type, l->m->batch) >= 0 ||
           complain(l, (Where){ .at = ast->name_loc, .help = "name what each record has, before a mean or a sum" },
                    "an output has a value for each record, along '%s', but '%s' is %s", l->m->batch, ast->name,
                    type_words(l, &operand.value->type));
}

static const Output *find_output(const Lower *l, const char *name)
{
    const Output *output = l->now.outputs;
    while (output && strcmp(output->name, name) != 0)
        output = output->next;
    return output;
}

void lower_output(Lower *l, const Ast *ast)
{
    const Operand operand = named_value(l, ast);
    const Output *other = find_output(l, ast->name);
    if (!is_of_records(l, ast, operand))
        return;
    if (other) {
        complain(l, (Where){ .at = ast->name_loc, .help = "give one of the values another name" },
                 "a second output '%s': the first is at %s", ast->name, position_text(l, other->at));
        return;
    }
    Output **end = &l->now.outputs, *output = NEW(l->arena, Output);
    *output = (Output){ .name = ast->name, .at = ast->name_loc, .value = operand.value };
    while (*end)
        end = &(*end)->next;
    *end = output;
}

/* The records come first, then the other dims in the order of the value. */
static Value *records_first(Lower *l, Value *value)
{
    const Type *type = &value->type;
    const int batch = find_dim(type, l->m->batch);
    Type order = *type;
    order.dim[0] = type->dim[batch];
    for (int i = 0; i < batch; i++)
        order.dim[i + 1] = type->dim[i];
    return reorder(l, value, &order);
}

void take_outputs(Lower *l, Func *f)
{
    for (const Output *output = l->now.outputs; output; output = output->next) {
        const Port port = { .kind = PORT_OUTPUT, .of = intern_text(l->m, output->name) };
        l->b.path = port.of;
        set_place(l, output->at);
        add_result(l->m, f, records_first(l, output->value), port);
    }
    l->b.path = NULL;
}

/* --- Checks ------------------------------------------------------------------------------------ */

/* What a result is computed from, in its function. */
static Map needed_for(Lower *l, const Func *f, const Values *results)
{
    Map needed = { .arena = l->arena };
    note_read(&needed, results);
    for (const Op *op = f->last; op; op = op->prev) {
        bool is_needed = false;
        for (int i = 0; i < op->results.count; i++)
            is_needed |= map_get(&needed, op->results.at[i]) != NULL;
        if (is_needed)
            note_read(&needed, &op->args);
    }
    return needed;
}

/* Nothing trains a parameter that the loss does not read, unless that is meant. */
static void check_trained(Lower *l, const Output *output, const Func *f, const Map *needed, const Func *model,
                          const Map *trained)
{
    for (int i = 0; i < f->params.count; i++) {
        const Port port = f->params.at[i]->port;
        const Param *param =
            port.kind == PORT_PARAM && map_get(needed, f->params.at[i]) ? find_param(l->m, port.of) : NULL;
        const Value *own = param ? param_with(model, port) : NULL;
        if (param && !param->frozen && !param->state && !(own && map_get(trained, own)))
            complain(l, (Where){ .at = output->at, .help = "add a term to the loss, or declare it frozen" },
                     "the output '%s' reads the parameter '%s', which the loss does not: nothing trains it",
                     output->name, param->path);
    }
}

static bool reads_input(const Func *f, const Map *needed)
{
    bool reads = false;
    for (int i = 0; i < f->params.count; i++)
        reads |= f->params.at[i]->port.kind == PORT_INPUT && map_get(needed, f->params.at[i]);
    return reads;
}

void check_model_outputs(Lower *l, const Func *outputs, const Func *model)
{
    const Map trained = needed_for(l, model, &model->results);
    const Output *output = l->now.outputs;
    for (int i = 0; i < outputs->results.count; i++, output = output->next) {
        Value *result = outputs->results.at[i];
        const Map needed = needed_for(l, outputs, &(Values){ 1, 1, &result });
        Loc at;
        if (mixes_sequences(l, outputs, result, &at))
            complain(l, (Where){ .at = output->at, .help = "training(a, b) has b in evaluation and in outputs" },
                     "the output '%s' of a record depends on the others of its micro-batch, by what is at %s",
                     output->name, position_text(l, at));
        else if (!reads_input(outputs, &needed))
            complain(l, (Where){ .at = output->at, .help = "leave it out" },
                     "the output '%s' reads no input: it is the same for every record", output->name);
        check_trained(l, output, outputs, &needed, model, &trained);
    }
}
