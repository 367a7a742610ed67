/* scope.c -- symbols and scopes: what a name stands for. */
#include "lowering.h"

#include <string.h>

static unsigned hash_of(const char *name) { return hash_text(name, (int)strlen(name)); }

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

Symbol *symbol_in_call(Symbol *symbol)
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
