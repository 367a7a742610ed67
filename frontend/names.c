/* names.c -- symbols, scopes, and suggestions for unknown names. */
#include "builtins.h"
#include "idioms.h"
#include "lowering.h"

#include <string.h>

static unsigned hash_of(const char *name)
{
    unsigned hash = 2166136261u; /* FNV-1a */
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash;
}

static Symbol *find_hashed(const Scope *scope, const char *name, unsigned hash)
{
    Symbol *symbol = scope->room ? scope->table[hash & (unsigned)(scope->room - 1)] : NULL;
    while (symbol && (symbol->hash != hash || strcmp(symbol->name, name) != 0))
        symbol = symbol->next_hashed;
    return symbol;
}

static void enter(Scope *scope, Symbol *symbol)
{
    Symbol **list = &scope->table[symbol->hash & (unsigned)(scope->room - 1)];
    symbol->next_hashed = *list;
    *list = symbol;
}

/* The lists are entered anew, the oldest symbol first. */
static void enter_all(Scope *scope, Symbol *symbol)
{
    Symbol *reversed = NULL;
    for (; symbol; symbol = symbol->next) {
        symbol->next_hashed = reversed;
        reversed = symbol;
    }
    for (Symbol *next; reversed; reversed = next) {
        next = reversed->next_hashed;
        enter(scope, reversed);
    }
}

Symbol *find_symbol_here(const Scope *scope, const char *name) { return find_hashed(scope, name, hash_of(name)); }

Symbol *find_symbol(const Scope *scope, const char *name)
{
    const unsigned hash = hash_of(name);
    Symbol *symbol = NULL;
    for (; scope && !symbol; scope = scope->outer)
        symbol = find_hashed(scope, name, hash);
    return symbol;
}

Symbol *meant_by(Symbol *symbol)
{
    while (symbol && symbol->meant)
        symbol = symbol->meant;
    return symbol;
}

Symbol *declare(Lower *l, Scope *scope, SymbolKind kind, const char *name, Loc loc)
{
    Symbol *symbol = NEW(l->arena, Symbol);
    *symbol = (Symbol){
        .kind = kind, .name = name, .hash = hash_of(name), .loc = loc, .frame = l->frame, .next = scope->newest
    };
    scope->newest = symbol;
    if (scope->count++ < scope->room) {
        enter(scope, symbol);
        return symbol;
    }
    scope->room = scope->room ? 2 * scope->room : 16;
    scope->table = NEW_ARRAY(l->arena, Symbol *, scope->room);
    enter_all(scope, symbol);
    return symbol;
}

const char *symbol_noun(SymbolKind kind)
{
    static const char *const nouns[N_SYMBOLS] = {
        [S_CONST] = "a const",        [S_DIM] = "a dim",      [S_BLOCK] = "a block",
        [S_MODEL] = "the model",      [S_LOCAL] = "a value",  [S_ARGUMENT] = "an argument",
        [S_PARAM] = "a parameter",    [S_INPUT] = "an input", [S_DIMS] = "a group of dims",
        [S_INSTANCE] = "an instance",
    };
    return nouns[kind];
}

/* --- Unknown names ------------------------------------------------------------------------- */

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
    const bool is_shown = l->nreported <= MAX_MESSAGES;
    for (const Scope *scope = is_shown ? l->scope : NULL; scope; scope = scope->outer)
        for (const Symbol *s = scope->newest; s; s = s->next)
            if (s->kind != S_BLOCK && s->kind != S_MODEL)
                offer(&near, s->name);
    const Ast *below = l->file;
    while (below && ((below->kind != A_CONST && below->kind != A_DIM) || strcmp(below->name, ast->name) != 0))
        below = below->next;
    use_nearest(l->scope, &near);
    if (below && l->elsewhere)
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
