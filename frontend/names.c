/* names.c -- symbols and scopes, and what a name that is unknown was meant to be. */
#include "lowering.h"

#include <string.h>

Symbol *find_symbol_here(const Scope *scope, const char *name)
{
    Symbol *symbol = scope->newest;
    while (symbol && strcmp(symbol->name, name) != 0)
        symbol = symbol->next;
    return symbol;
}

Symbol *find_symbol(const Scope *scope, const char *name)
{
    for (; scope; scope = scope->outer) {
        Symbol *symbol = find_symbol_here(scope, name);
        if (symbol)
            return symbol;
    }
    return NULL;
}

Symbol *declare(Lower *l, Scope *scope, SymbolKind kind, const char *name, Loc loc)
{
    Symbol *symbol = NEW(l->arena, Symbol);
    *symbol = (Symbol){ .kind = kind, .name = name, .loc = loc, .home = l->frame, .next = scope->newest };
    return scope->newest = symbol;
}

const char *symbol_noun(SymbolKind kind)
{
    static const char *const nouns[N_SYMBOLS] = {
        [S_CONST] = "a const",     [S_DIM] = "a dim",      [S_BLOCK] = "a block",
        [S_MODEL] = "the model",   [S_LOCAL] = "a value",  [S_ARGUMENT] = "an argument",
        [S_PARAM] = "a parameter", [S_INPUT] = "an input",
    };
    return nouns[kind];
}
