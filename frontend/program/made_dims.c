/* made_dims.c -- dims that are declared where they are made: `2 -> choice` in a call of top_k, x[d = a : b -> e],
 * others(x, batch -> other).
 *
 * They are declared before any block is looked at, as if `dim choice = 2` stood at the end of the file.  Not those that
 * a block has in its brackets, which are what its calls give.
 */
#include "elaborate/slots.h"
#include "lower/expr.h"
#include "program.h"

#include <string.h>

/* --- Declarations -------------------------------------------------------------------------- */

/* As `dim choice = 2` does; several calls may make the same. */
static void declare_made(Lower *l, const Ast *made)
{
    const Symbol *other = find_symbol_here(&l->globals, made->name);
    Constant size, before;
    if (is_local(l, made->child))
        return;
    if (!other || other->kind != S_DIM || !other->ast->child) {
        Ast *dim = NEW(l->arena, Ast), **end = &l->choices;
        *dim = (Ast){ .kind = A_DIM, .loc = made->loc, .name_loc = made->name_loc, .name = made->name };
        dim->child = made->child;
        while (*end)
            end = &(*end)->next;
        *end = dim;
        declare_dim(l, dim);
    } else if (constant_of(l, made->child, &size) && constant_of(l, other->ast->child, &before) &&
               size.value != before.value) {
        complain(l, (Where){ .at = made->loc }, "'%s' already has %s elements, declared at %s", made->name,
                 constant_text(l->arena, before), position_text(l, other->loc));
    }
}

/* others(x, batch -> other) declares other, of the size of the micro-batch. */
static void declare_others(Lower *l, const Ast *made)
{
    const Symbol *known = find_symbol_here(&l->globals, made->name);
    if (known && !known->is_others)
        complain(
            l, (Where){ .at = made->name_loc, .help = "leave out its declaration: it has the size of the micro-batch" },
            "'%s' is %s, declared at %s", made->name, symbol_noun(known->kind), position_text(l, known->loc));
    if (known)
        return;
    Symbol *symbol = declare(l, &l->globals, S_DIM, made->name, made->name_loc);
    symbol->is_others = true;
    symbol->ast = made;
}

/* x[d = a : b -> e] declares e as b - a elements, if it is not declared. */
static void declare_range(Lower *l, const Ast *range)
{
    Ast *first = NEW(l->arena, Ast), *end = NEW(l->arena, Ast);
    if (!range->name || find_symbol_here(&l->globals, range->name))
        return;
    *first = *range->child, *end = *range->child->next;
    first->next = first->last = NULL;
    end->next = first;
    const Ast count = { .kind = A_BINARY, .loc = range->loc, .name = "-", .child = end };
    Ast made = *range;
    made.child = NEW(l->arena, Ast);
    *made.child = count;
    declare_made(l, &made);
}

static bool is_given(const Ast *block, const char *dim)
{
    for (const Ast *own = block->dims; own; own = own->next)
        if (dim && strcmp(own->name, dim) == 0)
            return true;
    return false;
}

static void declare_made_in(Lower *l, const Ast *ast, const Ast *block)
{
    const Ast *made = argument_of(ast, "top_k", 2);
    if (made && made->kind == A_ARROW && !is_given(block, made->name))
        declare_made(l, made);
    const Ast *others = argument_of(ast, "others", 1);
    if (others && others->kind == A_ARROW && !is_given(block, others->name))
        declare_others(l, others);
    if (ast->kind == A_RANGE && !is_given(block, ast->name))
        declare_range(l, ast);
    const Ast *const lists[] = { ast->init, ast->child, ast->body };
    for (int i = 0; i < 3; i++)
        for (const Ast *child = lists[i]; child; child = child->next)
            declare_made_in(l, child, block);
}

void declare_made_dims(Lower *l)
{
    for (const Ast *ast = l->file; ast; ast = ast->next)
        declare_made_in(l, ast, ast);
}
