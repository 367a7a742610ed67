/* names.c -- unknown names: what may be meant, and how what other frameworks name is written here. */
#include "lowering.h"
#include "syntax/idioms.h"

#include <string.h>

/* The suggested name counts as used: a second message, that it never is, would be about the same mistake. */
static void use_nearest(const Scope *scope, const NearMiss *near)
{
    Symbol *meant = near->best ? find_symbol(scope, near->best) : NULL;
    if (meant)
        meant->used = true;
}

void unknown_name(Lower *l, const Ast *ast)
{
    NearMiss near = { .name = ast->name };
    const bool is_shown = l->reports.nreported <= MAX_MESSAGES;
    for (const Scope *scope = is_shown ? l->scope : NULL; scope; scope = scope->outer)
        for (const Symbol *s = scope->newest; s; s = s->next)
            if (s->kind != S_BLOCK && s->kind != S_MODEL)
                offer(&near, s->name);
    const Ast *below = l->file;
    while (below && ((below->kind != A_CONST && below->kind != A_DIM) || strcmp(below->name, ast->name) != 0))
        below = below->next;
    use_nearest(l->scope, &near);
    if (below && l->reports.elsewhere)
        complain(l, (Where){ .at = ast->loc, .help = "give a number" }, "'%s' is not declared above what this sets",
                 ast->name);
    else if (below)
        complain(l, (Where){ .at = ast->loc, .help = "move it up" }, "'%s' is declared below, at %s", ast->name,
                 position_text(l, below->name_loc));
    else
        complain(l, (Where){ .at = ast->loc, .help = help_with(l->arena, IDIOM_NAME, &near) },
                 "nothing is named '%s' here", ast->name);
}

void unknown_call(Lower *l, const Ast *ast)
{
    NearMiss near = { .name = ast->name };
    for (const Symbol *s = l->globals.newest; s; s = s->next)
        if (s->kind == S_BLOCK)
            offer_spelled(&near, s->name);
    offer_functions(&near);
    use_nearest(&l->globals, &near);
    if (l->matrix && find_symbol_here(&l->globals, ast->name))
        complain(l, (Where){ .at = ast->name_loc, .help = "write it out" }, "an optimizer cannot call '%s'", ast->name);
    else
        complain(l, (Where){ .at = ast->name_loc, .help = help_with(l->arena, IDIOM_FUNCTION, &near) },
                 "no function or block is named '%s'", ast->name);
}
