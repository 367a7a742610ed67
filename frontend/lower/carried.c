/* carried.c -- values carried by loops: the existing values that its body assigns, in the order of the first
 * assignment.  They are the first parameters of the body and its first results.
 */
#include "repeat.h"

#include <string.h>

const char observed[] = "the statistics of updates"; /* no name that a file can have */

static LoopValue *find_carried(LoopValue *list, const char *name)
{
    while (list && strcmp(list->name, name) != 0)
        list = list->next;
    return list;
}

static void note_assigned(Lower *l, const char *name, Loc loc, LoopValue **list)
{
    Symbol *symbol = find_symbol(l->scope, name);
    LoopValue *known = find_carried(*list, name);
    if (known)
        known->loc = loc;
    if (known || !symbol || (symbol->kind != S_LOCAL && symbol->kind != S_ARGUMENT))
        return;
    LoopValue **end = list;
    while (*end)
        end = &(*end)->next;
    *end = NEW(l->arena, LoopValue);
    **end = (LoopValue){ .name = name, .loc = loc };
    symbol->used = true;
    (*end)->before = symbol->operand;
    if (symbol->operand.kind == TENSOR)
        (*end)->before.value = import_value(l, l->frame, symbol->operand.value, symbol->frame);
}

/* The existing values that these statements assign, in order.  What a scan yields, it assigns outside of it. */
void collect_carried(Lower *l, const Ast *body, LoopValue **list)
{
    for (const Ast *ast = body; ast; ast = ast->next) {
        if (ast->kind == A_REPEAT || ast->kind == A_SCAN)
            collect_carried(l, ast->body, list);
        for (const Ast *y = ast->kind == A_SCAN ? ast->body : NULL; y; y = y->next)
            if (y->kind == A_YIELD)
                note_assigned(l, y->name, y->name_loc, list);
        for (const Ast *target = ast->kind == A_ASSIGN ? ast->child : NULL; target; target = target->next)
            note_assigned(l, target->name, target->loc, list);
    }
}

/* Of a scan: what it carries is of one place, and has one name afterwards. */
void check_scanned(Lower *l, const Body *body, const Ast *ast, LoopValue *carried)
{
    for (; carried; carried = carried->next) {
        const bool is_tensor = carried->before.kind == TENSOR && carried->before.value;
        if (is_tensor && find_dim(&carried->before.value->type, body->copy.name) >= 0) {
            complain(
                l, (Where){ .at = carried->loc, .help = "give it another name here, and yield it" },
                "'%s' exists before the scan and has the dim '%s', so it cannot be carried from position to position",
                carried->name, body->copy.name);
            carried->before = (Operand){ .kind = WRONG };
        }
        for (const Ast *y = ast->body; y; y = y->next)
            if (y->kind == A_YIELD && strcmp(y->name, carried->name) == 0)
                complain(l, (Where){ .at = y->name_loc, .help = "yield it under another name" },
                         "after the scan '%s' is the carried value at the last position", y->name);
    }
}

/* In a model with updates or experts: the statistics of the body and of its callees. */
void carry_observed(Lower *l, Loc at, LoopValue **list)
{
    if (l->role != MODEL || !l->observes)
        return;
    Value *before = l->frame->observed ? l->frame->observed : emit_number(l, 0, F32);
    while (*list)
        list = &(*list)->next;
    *list = NEW(l->arena, LoopValue);
    **list = (LoopValue){ .name = observed, .loc = at, .before = tensor_operand(before) };
}

/* A carried number becomes a scalar, outside of the loop. */
void make_tensors(Lower *l, LoopValue *carried)
{
    for (; carried; carried = carried->next)
        if (carried->before.kind == NUMBER)
            carried->before = tensor_operand(value_of(l, carried->before, F32));
}

void enter_carried(Lower *l, LoopValue *carried)
{
    for (; carried; carried = carried->next) {
        Symbol *symbol = declare(l, l->scope, S_LOCAL, carried->name, carried->loc);
        symbol->from_before = true;
        if (carried->before.kind != TENSOR)
            continue;
        const Name name = carried->name == observed ? fresh_name(l->m) : intern_text(l->m, carried->name);
        Value *value = new_value(l, name, carried->before.value->type);
        push_named(l, l->frame, &l->frame->carried, value);
        symbol->operand = tensor_operand(value);
        carried->labels = enter_labels(l, carried->before.value, value);
        if (carried->name == observed)
            l->frame->observed = value;
    }
}

static bool is_read(const Scope *scope, const char *name)
{
    for (const Symbol *symbol = scope->newest; symbol; symbol = symbol->next)
        if (symbol->used && strcmp(symbol->name, name) == 0)
            return true;
    return false;
}

/* Carried results have the type of the carried parameters; only the memory order may differ. */
bool leave_carried(Lower *l, LoopValue *carried)
{
    bool good = true;
    for (; carried; carried = carried->next) {
        carried->after = find_symbol_here(l->scope, carried->name);
        carried->read = is_read(l->scope, carried->name);
        carried->after->used = true;
        Operand after = carried->after->operand;
        if (after.kind == WRONG || carried->before.kind == WRONG || !l->frame->copy.name) {
            good = false;
            continue;
        }
        set_place(l, carried->loc);
        const Type *before = &carried->before.value->type;
        Value *value = scalar_of(l, after, before->dtype).value;
        if (value && (value->type.dtype != before->dtype || dims_lacking(&value->type, before).count ||
                      dims_lacking(before, &value->type).count)) {
            complain(l, (Where){ .at = carried->loc }, "each %s gets '%s' as %s, but this one returns %s",
                     l->frame->scans ? "position" : "copy", carried->name, type_words(l, before),
                     type_words(l, &value->type));
            good = false;
            continue;
        }
        good &= leave_labels(l, carried->labels, value, carried->name, carried->loc);
        value = value ? reorder(l, value, before) : NULL;
        good &= value != NULL;
        if (value)
            push_value(l->arena, &l->frame->func->results, value);
    }
    return good;
}

/* What the copy assigns to carried values, the next one has. */
void pass_to_next_copy(Lower *l, const Scope *copy, const LoopValue *carried)
{
    for (; carried; carried = carried->next) {
        Symbol *after = find_symbol_here(copy, carried->name);
        if (!after)
            continue;
        Symbol *before = declare(l, l->scope, S_LOCAL, carried->name, carried->loc);
        before->operand = after->operand;
        before->from_before = true;
        before->used = after->used;
        after->used = true;
    }
}

/* What is carried has its last value after the loop. */
void declare_carried(Lower *l, const Body *body, const LoopValue *carried, const Op *loop)
{
    for (int i = 0; carried; carried = carried->next, i++) {
        if (carried->name == observed) {
            l->frame->observed = loop ? loop->results.at[i] : NULL;
            continue;
        }
        Symbol *symbol = declare(l, l->scope, S_LOCAL, carried->name, carried->loc);
        symbol->operand = tensor_operand(loop ? loop->results.at[i] : NULL);
        const Operand after = carried->after->operand;
        if (loop)
            keep_labels(l, body, after.kind == TENSOR ? after.value : NULL, loop->results.at[i]);
        symbol->used = carried->read;
    }
}
