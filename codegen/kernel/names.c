/* names.c -- C names for the values of a row kernel.
 *
 * A kernel is written with readable names, from its first call.  For comparison, the same text is written with names
 * that depend only on positions: the updates of four weights of one shape then share one function.
 */
#include "kernel.h"

#include "ir/storage.h"

#include <ctype.h>
#include <string.h>

/* "gain" of h.ln_1.gain; NULL for names numbered by the compiler. */
static const char *last_word(const char *name)
{
    const char *dot = strrchr(name, '.'), *word = dot ? dot + 1 : name;
    return isalpha((unsigned char)*word) ? word : NULL;
}

/* The array of the state that a value of the call replaces or is replaced by; NULL: none. */
static const Array *replaced_by(const RowKernel *k, const Value *given)
{
    for (int i = 0; i < k->f->params.count; i++)
        if (port_is_state(arg(k->call, i)->port.kind) && have_same_address(arg(k->call, i), given))
            return &k->array[i];
    return NULL;
}

static bool is_replaced(const RowKernel *k, const Value *given)
{
    for (int i = 0; i < k->call->results.count && port_is_state(given->port.kind); i++)
        if (have_same_address(k->call->results.at[i], given))
            return true;
    return false;
}

static const char *array_name(const RowKernel *k, int number)
{
    const Array *array = &k->array[number];
    bool is_result = number >= k->f->params.count;
    int alike = is_result ? k->f->results.count : k->f->params.count;
    const Array *before = is_result ? replaced_by(k, array->given) : NULL;
    if (before)
        return arena_text(&k->m->arena, "%s_new", before->name);
    if (!is_result && is_replaced(k, array->given))
        return array->given->port.slot ? array->given->port.slot : port_word(array->given->port.kind);
    const char *word = alike > 1 ? last_word(array->value->name) : NULL;
    return word ? word : is_result ? "y" : "x";
}

void name_arrays(RowKernel *k)
{
    for (int i = 0; i < k->narrays; i++)
        k->array[i].name =
            new_identifier(&k->names, k->is_anonymous ? arena_text(&k->m->arena, "array%d", i) : array_name(k, i));
}

const char *name_dim(RowKernel *k, int dim)
{
    return new_identifier(&k->names, k->is_anonymous ? arena_text(&k->m->arena, "dim%d", dim) : k->dim[dim].name);
}

/* From the array that it is loaded from or stored in; else from the model, or from its op. */
static const char *value_name(const RowKernel *k, const Node *node)
{
    const char *array = node->array >= 0 ? k->array[node->array].name : NULL;
    for (int i = 0; i < k->f->results.count; i++)
        if (k->f->results.at[i] == node->value && !array)
            array = k->array[k->f->params.count + i].name;
    if (!array)
        return last_word(node->value->name) ? last_word(node->value->name) : info(node->op)->name;
    const char *kind = !node->dims ? "value" : k->by_rows && !(node->dims & k->inner) ? "row" : "i";
    return arena_text(&k->m->arena, "%s_%s", array, kind);
}

void name_values(RowKernel *k)
{
    for (int i = 0; i < k->nnodes; i++)
        k->node[i].name = new_identifier(&k->names, k->is_anonymous ? arena_text(&k->m->arena, "value%d", i)
                                                                    : value_name(k, &k->node[i]));
}

void name_sums(RowKernel *k, Sink *column)
{
    const char *array = k->array[k->f->params.count + column->result].name;
    column->name = new_identifier(&k->names, arena_text(&k->m->arena, "%s_sum", array));
    column->parts = new_identifier(&k->names, arena_text(&k->m->arena, "%s_parts", array));
}
