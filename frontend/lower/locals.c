/* locals.c -- checks the names of values in blocks: each is used, and names nothing else. */
#include "expr.h"

/* May a value have this name here? */
static bool may_name(Lower *l, const char *name, Loc loc)
{
    Symbol *other = find_symbol(l->scope, name);
    if (!other || other->kind == S_LOCAL || other->kind == S_ARGUMENT)
        return true;
    if (other->taken)
        return false;
    other->taken = other->kind == S_MODEL || other->kind == S_BLOCK;
    return complain(l, (Where){ .at = loc, .help = "give the value another name" },
                    "'%s' is already %s, declared at %s", name, symbol_noun(other->kind), position_text(l, other->loc));
}

static void check_one(Lower *l, const Symbol *symbol)
{
    if (symbol->state && !symbol->updated && l->role == MODEL && !l->incomplete)
        complain(l, (Where){ .at = symbol->loc, .help = arena_text(l->arena, "update %s = ...", symbol->name) },
                 "the state '%s' has no update", symbol->name);
    static const char *const nouns[N_SYMBOLS] = {
        [S_ARGUMENT] = "the argument ", [S_CONST] = "the argument ", [S_DIM] = "the dim ",
        [S_PARAM] = "the parameter ",   [S_INPUT] = "the input ",    [S_LOCAL] = "",
        [S_INSTANCE] = "the instance "
    };
    Where where = { .at = symbol->loc,
                    .help = symbol->named && symbol->kind == S_PARAM
                                ? "declare it in a block that this part calls: if(c, mix(x), x)"
                                : "use it, or remove it" };
    const bool is_number = symbol->kind == S_CONST || symbol->kind == S_DIM;
    const bool is_wrong = is_number ? symbol->wrong : symbol->operand.kind == WRONG && !symbol->shared;
    if (!symbol->used && !symbol->from_before && !is_wrong && l->role == MODEL)
        complain_unused(l, where,
                        arena_text(l->arena,
                                   symbol->kind == S_LOCAL ? "%s'%s' is computed and never used"
                                   : symbol->named         ? "%s'%s' is used only in a part that is switched off"
                                                           : "%s'%s' is never used",
                                   nouns[symbol->kind], symbol->name));
}

void check_used(Lower *l, const Scope *scope)
{
    for (const Symbol *symbol = scope->newest; symbol; symbol = symbol->next)
        check_one(l, symbol);
}

/* What a const switches off may be of use with another one: but parameters and inputs are there in any case. */
void note_unlowered(Lower *l, const Ast *list)
{
    for (const Ast *ast = list; ast; ast = ast->next) {
        Symbol *symbol = ast->name ? find_symbol(l->scope, ast->name) : NULL;
        if (symbol)
            symbol->named = true;
        const bool is_new = symbol && !symbol->used && symbol->kind != S_PARAM && symbol->kind != S_INPUT;
        if (is_new)
            symbol->used = true;
        if (is_new && symbol->kind == S_BLOCK)
            note_unlowered(l, symbol->ast->body);
        const Ast *const lists[] = { ast->child, ast->type, ast->init, ast->body, ast->dims };
        for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
            note_unlowered(l, lists[i]);
    }
}

void name_result(Lower *l, const char *name, Loc loc, Operand operand)
{
    Symbol *before = find_symbol_here(l->scope, name);
    bool good = may_name(l, name, loc);
    if (good && before && operand.kind != WRONG)
        check_one(l, before);
    else if (before)
        before->used = true; /* perhaps by the statement with the error */
    if (!good && !before)
        return; /* a const, dim or block of the file */
    declare(l, l->scope, S_LOCAL, name, loc)->operand = good ? operand : wrong;
    note_value(l, name, loc, operand);
}
