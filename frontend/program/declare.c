/* declare.c -- declarations outside of blocks: constants, dims, the model and its blocks. */
#include "elaborate/slots.h"
#include "functions/functions.h"
#include "program.h"

#include <string.h>

enum { MOST_ELEMENTS = 0x7fffffff }; /* along one dim: indices are i32 */

/* --- Overrides ----------------------------------------------------------------------------- */

static const Override *find_define(const Lower *l, const char *name)
{
    for (int i = l->options->ndefines - 1; i >= 0; i--)
        if (strcmp(l->options->defines[i].name, name) == 0)
            return &l->options->defines[i];
    return NULL;
}

static bool constant_of_text(Lower *l, const char *option, const char *text, Constant *number)
{
    OtherText elsewhere;
    enter_other_text(l, &elsewhere, option, text);
    Ast *expr = parse_expression(l->source, l->diags, l->arena);
    bool good = expr && constant_of(l, expr, number);
    leave_other_text(l, &elsewhere);
    return good;
}

/* The number of a const or dim: from -D, if given; else from its expression. */
static bool number_of(Lower *l, const Ast *ast, const Ast *expr, Constant *number)
{
    const Override *define = find_define(l, ast->name);
    if (!define)
        return constant_of(l, expr, number);
    return constant_of_text(l, arena_text(l->arena, "-D %s", define->name), define->value, number);
}

static const char *origin_of(Lower *l, const Ast *ast)
{
    return find_define(l, ast->name) ? "command line" : where_text(l, ast->name_loc);
}

static const char *define_text(Lower *l, const Override *define)
{
    return arena_text(l->arena, "-D %s=%s", define->name, define->value);
}

static void check_defines(Lower *l)
{
    for (int i = 0; i < l->options->ndefines; i++) {
        const Override *define = &l->options->defines[i];
        const Symbol *symbol = find_symbol_here(&l->globals, define->name);
        NearMiss near = { .name = define->name };
        for (const Symbol *s = l->globals.newest; s; s = s->next)
            if (s->kind == S_CONST || s->kind == S_DIM)
                offer(&near, s->name);
        if (symbol && symbol == l->batch)
            fail_command(l, define_text(l, define), "--set train.microbatch=N", "the size of '%s' is the micro-batch",
                         define->name);
        else if (symbol && symbol->is_slots)
            fail_command(l, define_text(l, define), NULL, "the size of '%s' is computed by dispatch", define->name);
        else if (!symbol || (symbol->kind != S_CONST && symbol->kind != S_DIM))
            fail_command(l, define_text(l, define), did_you_mean(l->arena, &near), "no const or dim is named '%s'",
                         define->name);
    }
}

static void mark_unread(Lower *l, const char *name)
{
    for (int i = 0; i < l->settings->count; i++) {
        const char *point = strchr(l->settings->at[i].name, '.');
        l->settings->at[i].unread |= point && strcmp(point + 1, name) == 0;
    }
}

/* At the end: a name that an option sets and nothing reads. */
void check_defines_used(Lower *l)
{
    for (int i = 0; i < l->options->ndefines; i++) {
        const Override *define = &l->options->defines[i];
        if (find_symbol_here(&l->globals, define->name)->used)
            continue;
        if (l->options->has_map)
            mark_unread(l, define->name);
        else
            fail_command(l, define_text(l, define), "leave it out, or use it in the model", "nothing uses '%s'",
                         define->name);
    }
}

/* --- Declarations -------------------------------------------------------------------------- */

static bool taken(Lower *l, const char *name, Loc loc)
{
    const Symbol *other = find_symbol_here(&l->globals, name);
    if (other)
        complain(l, (Where){ .at = loc }, "'%s' is already %s, declared at %s", name, symbol_noun(other->kind),
                 position_text(l, other->loc));
    return other != NULL;
}

static void declare_const(Lower *l, const Ast *ast)
{
    Constant number = { 0 };
    bool good = number_of(l, ast, ast->child, &number);
    if (taken(l, ast->name, ast->name_loc))
        return;
    Symbol *symbol = declare(l, &l->globals, S_CONST, ast->name, ast->name_loc);
    symbol->number = number;
    symbol->wrong = !good;
    symbol->ast = ast;
    if (good)
        add_setting(l, arena_text(l->arena, "const.%s", ast->name), constant_text(l->arena, number), "",
                    origin_of(l, ast));
}

/* Is it an integer number of elements?  Errors are reported at the number. */
static bool is_size(Lower *l, const Ast *ast, const Override *define, Constant number, const char *what)
{
    static const char message[] = "%s must be a whole number from 1 to %d, not %s";
    const char *text = constant_text(l->arena, number);
    bool good = !number.real && number.integer >= 1 && number.integer <= MOST_ELEMENTS;
    if (!good && define)
        fail_command(l, define_text(l, define), NULL, message, what, MOST_ELEMENTS, text);
    else if (!good)
        complain(l, (Where){ .at = ast->loc }, message, what, MOST_ELEMENTS, text);
    return good;
}

static void declare_batch(Lower *l, const Ast *ast)
{
    if (l->batch)
        complain(l, (Where){ .at = ast->name_loc, .help = arena_text(l->arena, "dim %s = ...", ast->name) },
                 "neither '%s' nor '%s', declared at %s, has a size: only the micro-batch may have none", ast->name,
                 l->batch->name, position_text(l, l->batch->loc));
    if (ast->type)
        complain(l, (Where){ .at = ast->type->loc }, "'%s' is the micro-batch, which cannot be padded", ast->name);
    if (!taken(l, ast->name, ast->name_loc)) {
        Symbol *symbol = declare(l, &l->globals, S_DIM, ast->name, ast->name_loc);
        l->batch = l->batch ? l->batch : symbol;
        symbol->wrong = symbol != l->batch;
        symbol->ast = ast;
    }
}

static void declare_slots(Lower *l, const Ast *ast)
{
    if (ast->type)
        complain(l, (Where){ .at = ast->type->loc }, "the size of '%s' is computed by dispatch, it cannot be padded",
                 ast->name);
    if (taken(l, ast->name, ast->name_loc))
        return;
    Symbol *symbol = declare(l, &l->globals, S_DIM, ast->name, ast->name_loc);
    symbol->number = integer_constant(0);
    symbol->is_slots = true;
    symbol->ast = ast;
}

void declare_dim(Lower *l, const Ast *ast)
{
    Constant size = { 0 }, multiple = integer_constant(1);
    if (!ast->child && holds_slots(l, ast->name)) {
        declare_slots(l, ast);
        return;
    }
    if (!ast->child) {
        declare_batch(l, ast);
        return;
    }
    bool good = number_of(l, ast, ast->child, &size) && is_size(l, ast->child, find_define(l, ast->name), size,
                                                                arena_text(l->arena, "the size of '%s'", ast->name));
    if (ast->type)
        good &=
            constant_of(l, ast->type, &multiple) && is_size(l, ast->type, NULL, multiple, "the argument of 'padded'");
    if (taken(l, ast->name, ast->name_loc))
        return;
    Symbol *symbol = declare(l, &l->globals, S_DIM, ast->name, ast->name_loc);
    symbol->ast = ast;
    symbol->wrong = !good;
    symbol->number = good ? size : integer_constant(1);
    symbol->padded = good ? (size.integer + multiple.integer - 1) / multiple.integer * multiple.integer : 1;
    try_sizes(l, symbol);
    if (good)
        add_setting(l, arena_text(l->arena, "dim.%s", ast->name), constant_text(l->arena, size), "elements",
                    origin_of(l, ast));
}

static void declare_block(Lower *l, const Ast *ast, SymbolKind kind)
{
    if (kind == S_BLOCK && is_function(l, ast->name))
        complain(l, (Where){ .at = ast->name_loc }, "'%s' is a built-in function", ast->name);
    if (!taken(l, ast->name, ast->name_loc))
        declare(l, &l->globals, kind, ast->name, ast->name_loc)->ast = ast;
}

static void declare_model(Lower *l, const Ast *ast)
{
    if (l->model)
        complain(l, (Where){ .at = ast->name_loc }, "a second model: '%s' is declared at %s", l->model->name,
                 position_text(l, l->model->name_loc));
    else
        declare_block(l, ast, S_MODEL);
    l->model = l->model ? l->model : ast;
}

void declare_all(Lower *l)
{
    for (const Ast *ast = l->file; ast; ast = ast->next) {
        if (ast->kind == A_CONST)
            declare_const(l, ast);
        else if (ast->kind == A_DIM)
            declare_dim(l, ast);
        else if (ast->kind == A_BLOCK)
            declare_block(l, ast, S_BLOCK);
        else if (ast->kind == A_MODEL)
            declare_model(l, ast);
    }
    declare_made_dims(l);
    check_defines(l);
    if (!l->model)
        complain(l, (Where){ .at = { l->source->length, l->source->length } }, "the file has no model");
    if (l->options->shrink && l->diags->errors == 0)
        shrink_sizes(l);
}
