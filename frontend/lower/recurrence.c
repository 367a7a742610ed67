/* recurrence.c -- `scan seq { ... yield y = ... }`: a repeat whose copies are the places along a dim of tensors.
 *
 *   scan seq {                           %2 = reorder %x {order=[seq, batch, hidden]}
 *       h = tanh(x + dot(h, ...))   =>   %h.2, %y = loop %h, %2, %w {dims=[seq:64], callee=scan, carried=1, scan=true}
 *       yield y = h
 *   }
 *
 * An outer value with the dim is inside what it is at one place: the loop slices it, which is its first dim for that.
 * What the body yields, the loop stacks.  All places share parameters, which are outer values like others.
 */
#include "repeat.h"

/* --- The head --------------------------------------------------------------------------------- */

/* Are there places along the dim, one after the other, that each rank can go through? */
static bool has_places(Lower *l, const Ast *ast, const Dim *dim)
{
    const char *why = NULL, *help = NULL;
    if (varies_by_micro_batch(l, dim->name))
        why = "is the micro-batch, or a part of it: its elements do not depend on each other",
        help = "scan another dim";
    else if (dim->padded != dim->size)
        why = "has padding, over which no scan can run", help = "a size without padding";
    else if (scan_along(l, dim->name))
        why = "is scanned already, around this", help = "give the tensors of this scan another dim";
    if (why)
        complain(l, (Where){ .at = ast->name_loc, .help = help }, "'%s' %s", dim->name, why);
    return !why;
}

bool begin_scan(Lower *l, const Ast *ast, Body *body)
{
    body->scans = true;
    body->around = l->b;
    const Symbol *symbol = symbol_in_call(find_symbol(l->scope, ast->name));
    const bool is_slots = symbol && symbol->is_slots;
    bool good = is_slots || find_dim_named(l, ast->name, ast->name_loc, &body->copy);
    if (is_slots)
        body->copy.name = intern_text(l->m, symbol->name);
    good = good && has_places(l, ast, &body->copy);
    if (!good)
        body->copy = (Dim){ 0 };    /* so that nothing else is said of it */
    if (good && l->role == MODEL) { /* for the check of the layout */
        ScanDim *scanned = NEW(l->arena, ScanDim);
        *scanned = (ScanDim){ body->copy.name, ast->name_loc, l->noted.scanned };
        l->noted.scanned = scanned;
    }
    return good;
}

/* --- What it yields ---------------------------------------------------------------------------- */

/* Copies a parameter of the body, or a value that is a result already: each result has memory of its own. */
bool leave_yielded(Lower *l, Body *body)
{
    bool good = true;
    for (const Yield *y = body->yielded; y; y = y->next) {
        set_place(l, y->loc);
        const bool is_own = y->value && y->value->def && index_of(&body->func->results, y->value) < 0;
        Value *value = is_own ? y->value : EMIT(l, OP_reorder, NO_ATTRS, y->value);
        if (value)
            push_value(l->arena, &body->func->results, value);
        good &= value != NULL;
    }
    return good;
}

void declare_yielded(Lower *l, const Body *body, const Op *loop)
{
    int at = loop ? (int)loop->attrs.carried : 0;
    for (const Yield *y = body->yielded; y; y = y->next) {
        Value *stacked = loop ? loop->results.at[at++] : NULL;
        if (stacked) {
            stack_labels(l, body, y->value, stacked);
            name_value(l, stacked,
                       l->path ? intern_format(l->m, "%s.%s", l->path, y->name) : intern_text(l->m, y->name));
        }
        name_result(l, y->name, y->loc, tensor_operand(stacked));
    }
}

/* --- What it reads ----------------------------------------------------------------------------- */

Value *stack_first(Lower *l, Body *body, Value *x)
{
    const int at = x ? find_dim(&x->type, body->copy.name) : -1;
    if (at <= 0)
        return x;
    const Type like = with_dim_first(without_dim(x->type, body->copy.name), x->type.dim[at]);
    return reorder(l, x, &like);
}
