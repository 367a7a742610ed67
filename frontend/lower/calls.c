/* calls.c -- calls of blocks: a block as an instance with a path, its dims and arguments, the values that it returns.
 *
 * A call is inlined: the body is lowered again for each instance, in a separate scope with the arguments and the
 * declarations of the file, and under the instance's path.  In that scope the block's dims and consts stand for those
 * of the call.
 */
#include "compose.h"
#include "elaborate/instances.h"
#include "expr.h"

#include <string.h>

enum { MOST_INSTANCES = 16384 };

/* --- Calls ------------------------------------------------------------------------------ */

static bool may_call(Lower *l, const Ast *call, const Symbol *block)
{
    for (int i = 0; i < l->now.ncalls; i++)
        if (l->now.calls[i].block == block->ast)
            return complain(l, (Where){ .at = call->name_loc }, "'%s' calls itself%s", block->name,
                            i + 1 < l->now.ncalls
                                ? arena_text(l->arena, " through '%s'", l->now.calls[l->now.ncalls - 1].block->name)
                                : "");
    bool nested = l->now.ncalls == sizeof l->now.calls / sizeof l->now.calls[0];
    if (!nested && l->now.instance_count < MOST_INSTANCES)
        return true;
    if (!l->too_many && nested)
        complain(l, (Where){ .at = call->name_loc }, "calls of blocks are nested too deeply");
    else if (!l->too_many)
        complain(l, (Where){ .at = call->name_loc, .help = "use repeat" }, "more than %d instances of blocks",
                 MOST_INSTANCES);
    l->too_many = true;
    return false;
}

/* --- Arguments ----------------------------------------------------------------------------- */

static Loc list_loc(const Ast *list) { return (Loc){ list->loc.begin, (list->last ? list->last : list)->loc.end }; }

static int length_of(const Ast *list)
{
    int length = 0;
    for (; list; list = list->next)
        length++;
    return length;
}

/* Reports a name of the block that is something else: they shadow nothing. */
static Symbol *declare_own(Lower *l, Scope *scope, SymbolKind kind, const Ast *own)
{
    const Symbol *other = find_symbol(scope, own->name);
    if (other)
        complain(l, (Where){ .at = own->name_loc }, "'%s' is already %s, declared at %s", own->name,
                 symbol_noun(other->kind), position_text(l, other->loc));
    Symbol *symbol = declare(l, scope, kind, own->name, own->name_loc);
    symbol->wrong = other != NULL;
    return symbol;
}

/* The dim that a call gives: also one of slots, which may have no size yet; NULL after reporting. */
static Symbol *given_dim(Lower *l, const Ast *given)
{
    Symbol *named = find_symbol(l->scope, given->name), *symbol = symbol_in_call(named);
    Dim dim;
    if (!(symbol && symbol->is_slots) && !find_dim_named(l, given->name, given->loc, &dim))
        return NULL;
    named->used = true;
    return symbol;
}

/* The dims of the call take the place of those in the block's brackets. */
static bool bind_dims(Lower *l, const Call *at, const Symbol *block, Scope *scope)
{
    const Ast *call = at->call;
    const int needed = length_of(at->block->dims), count = length_of(call->dims);
    const Ast *given = count == needed ? call->dims : NULL;
    bool good = count == needed;
    if (!good)
        complain(l,
                 (Where){ .at = count ? list_loc(call->dims) : call->name_loc,
                          .label = arena_text(l->arena, "declared at %s", position_text(l, block->loc)) },
                 "'%s' takes %d dim%s in brackets, not %d", block->name, needed, needed == 1 ? "" : "s", count);
    for (const Ast *own = at->block->dims; own; own = own->next) {
        Symbol *symbol = declare_own(l, scope, S_DIM, own);
        symbol->meant = given && !symbol->wrong ? given_dim(l, given) : NULL;
        symbol->wrong = !symbol->meant;
        good &= !symbol->wrong;
        given = given ? given->next : NULL;
    }
    return good;
}

/* A number known at compile time; true is 1, and false 0. */
static bool bind_const(Lower *l, const Ast *arg, const Ast *given, Scope *scope)
{
    Symbol *symbol = declare_own(l, scope, S_CONST, arg);
    if (given && given->kind == A_BOOL)
        symbol->number = integer_constant((int64_t)given->number);
    else if (!given || !constant_of(l, given, &symbol->number))
        symbol->wrong = true;
    Symbol *named = given && given->kind == A_NAME ? find_symbol(l->scope, given->name) : NULL;
    if (named && named->kind == S_CONST && !symbol->wrong)
        symbol->meant = symbol_in_call(named);
    if (!symbol->wrong)
        note_operand(l, arg->name_loc, (Operand){ .kind = NUMBER, .number = symbol->number });
    return !symbol->wrong;
}

/* The type of an argument, with the dims of the call. */
static bool type_within(Lower *l, const Call *at, Scope *scope, const Ast *ast, Type *type)
{
    Scope *outer = l->scope;
    l->scope = scope;
    l->now.calls[l->now.ncalls++] = *at;
    bool good = type_of_ast(l, ast, type);
    l->now.ncalls--;
    l->scope = outer;
    return good;
}

static bool argument_fits(Lower *l, const Call *at, Scope *scope, const Ast *arg, const Ast *given, const Value *value)
{
    Type declared;
    if (!type_within(l, at, scope, arg->type, &declared))
        return false;
    Names missing = dims_lacking(&declared, &value->type), more = dims_lacking(&value->type, &declared);
    if (declared.dtype == value->type.dtype && !missing.count && (arg->type->ellipsis || !more.count))
        return true;
    const char *wanted = type_words(l, &declared);
    if (arg->type->ellipsis)
        wanted = arena_text(l->arena, "%s[..., %s", is_float(declared.dtype) ? "" : dtype_name[declared.dtype],
                            dims_text(l, &declared) + 1);
    const char *help = missing.count || more.count
                           ? NULL
                           : arena_text(l->arena, "write '%s: %s' there, or cast(..., %s) here", arg->name,
                                        type_words(l, &value->type), dtype_name[declared.dtype]);
    return complain(
        l,
        (Where){ .at = given->loc,
                 .label = arena_text(l->arena, "'%s' is declared at %s", arg->name, position_text(l, arg->loc)),
                 .help = help },
        "the argument '%s' must be %s, not %s", arg->name, wanted, type_words(l, &value->type));
}

static Operand lower_argument(Lower *l, const Call *at, Scope *scope, const Ast *arg, const Ast *given)
{
    Operand operand = lower_expr(l, given);
    set_place(l, given->loc);
    operand = scalar_of(l, operand, arg->type->name ? dtype_named(arg->type->name) : F32);
    return operand.kind == TENSOR && argument_fits(l, at, scope, arg, given, operand.value) ? operand : wrong;
}

static bool bind_argument(Lower *l, const Call *at, const Ast *arg, const Ast *given, Scope *scope)
{
    if (given && (given->kind == A_KEYWORD || given->kind == A_ARROW)) {
        complain(l, (Where){ .at = given->loc, .help = "f(x), in the order of the block's arguments" },
                 "the arguments of a block cannot be named in a call");
        lower_expr(l, given->child);
        given = NULL;
    }
    if (!arg->type)
        return bind_const(l, arg, given, scope);
    Operand operand = given ? lower_argument(l, at, scope, arg, given) : wrong;
    Symbol *symbol = declare_own(l, scope, S_ARGUMENT, arg);
    symbol->operand = symbol->wrong ? wrong : operand;
    note_operand(l, arg->name_loc, symbol->operand);
    return operand.kind != WRONG;
}

static const char *argument_list(Lower *l, const Ast *block)
{
    const char *list = "";
    for (const Ast *arg = block->child; arg; arg = arg->next)
        list = arena_text(l->arena, "%s%s%s", list, *list ? ", " : "", arg->name);
    return list;
}

/* Lowers the arguments in the scope of the call and names them in the scope of the block. */
static bool bind_arguments(Lower *l, const Call *binding, const Symbol *block, Scope *scope)
{
    const Ast *call = binding->call, *given = call->child;
    bool good = bind_dims(l, binding, block, scope);
    const char *missing = NULL;
    for (const Ast *arg = binding->block->child; arg; arg = arg->next) {
        missing = given || missing ? missing : arg->name;
        good &= bind_argument(l, binding, arg, given, scope);
        given = given ? given->next : NULL;
    }
    look_at_arguments(l, given);
    Where at = { .at = call->name_loc, .label = arena_text(l->arena, "declared at %s", position_text(l, block->loc)) };
    at.help = missing ? arena_text(l->arena, "%s(%s)", block->name, argument_list(l, binding->block)) : NULL;
    if (missing)
        complain(l, at, "too few arguments for '%s': '%s' is missing", block->name, missing);
    if (given)
        complain(l, at, "too many arguments for '%s'", block->name);
    return good && !given;
}

/* --- Bodies -------------------------------------------------------------------------------- */

static Results lower_return(Lower *l, const Ast *ast)
{
    Results results = { .at = NEW_ARRAY(l->arena, Operand, length_of(ast->child)) };
    bool good = true;
    for (const Ast *value = ast->child; value; value = value->next) {
        set_place(l, value->loc);
        Operand operand = lower_expr(l, value);
        good &= operand.kind != WRONG;
        results.at[results.count++] = operand;
    }
    return good ? results : (Results){ 0 };
}

static Results lower_body(Lower *l, const Symbol *block)
{
    Results returned = { 0 };
    const Ast *last = NULL;
    for (const Ast *ast = block->ast->body; ast; ast = ast->next) {
        if (last) {
            complain(l, (Where){ .at = ast->loc }, "no statement may follow 'return'");
            break;
        }
        if (ast->kind == A_RETURN) {
            returned = lower_return(l, ast);
            last = ast;
        } else {
            lower_statement(l, ast);
        }
    }
    if (!last)
        complain(l, (Where){ .at = block->loc }, "the block '%s' returns nothing", block->name);
    return returned;
}

static Results lower_instance(Lower *l, const Call *call, const Symbol *block, const NamedInstance *shared,
                              Scope *scope, const char *name)
{
    const struct {
        Name path, stars, of_ops;
        const Use *use;
        Scope *scope;
        Instance **instances;
    } outer = { l->path, l->stars, l->b.path, l->use, l->scope, l->instances };
    Instance *instances = NULL;
    const Use use = { .of = shared,
                      .at = l->frame,
                      .frozen = call->call->frozen || (shared && shared->mean_of) || is_frozen_use(l),
                      .outer = l->use };
    const Name stars = shared ? shared->stars : instance_stars(l, name);
    l->path = l->b.path = shared ? shared->path : instance_path(l, name);
    l->stars = stars;
    l->use = shared || call->call->frozen ? &use : l->use;
    l->scope = scope;
    l->instances = &instances;
    l->now.calls[l->now.ncalls++] = *call;
    Results returned = lower_body(l, block);
    if (returned.count)
        check_used(l, scope);
    l->path = outer.path, l->stars = outer.stars, l->b.path = outer.of_ops;
    l->use = outer.use;
    l->scope = outer.scope;
    l->instances = outer.instances;
    l->now.ncalls--;
    return returned;
}

/* `called`: the block, or an instance of one. */
static Results lower_call(Lower *l, const Ast *call, Symbol *called)
{
    const NamedInstance *shared = called->shared;
    Symbol *block = block_called(called);
    const Call binding = { block->ast, call };
    const char *name = call->as ? call->as : block->name;
    Loc at = call->as ? call->as_loc : call->name_loc;
    Scope scope = { .outer = &l->globals };
    called->used = block->used = true;
    if (shared && call->as)
        complain(l, (Where){ .at = call->as_loc, .help = "leave it out" }, "'%s' is an instance, which has a name",
                 call->name);
    if (!may_call(l, call, block)) {
        look_at_arguments(l, call->child);
        return (Results){ 0 };
    }
    l->now.instance_count++;
    bool bound = bind_arguments(l, &binding, block, &scope);
    if (!shared && !is_free_instance(l, block, name, at))
        return (Results){ 0 };
    Results returned = lower_instance(l, &binding, block, shared, &scope, name);
    return bound ? returned : (Results){ 0 };
}

Operand call_block(Lower *l, const Ast *ast, Symbol *called)
{
    const Symbol *block = block_called(called);
    Results results = lower_call(l, ast, called);
    if (results.count == 1)
        return results.at[0];
    if (results.count)
        complain(l,
                 (Where){ .at = ast->name_loc,
                          .label = arena_text(l->arena, "declared at %s", position_text(l, block->loc)),
                          .help = arena_text(l->arena, "give each a name: a, b = %s(...)", block->name) },
                 "'%s' returns %d values, but one is needed here", block->name, results.count);
    return wrong;
}

/* A choice at compile time; the other expression is not lowered.  NULL after an error. */
static const Ast *chosen_of(Lower *l, const Ast *call)
{
    const Ast *condition = call->child, *yes = condition ? condition->next : NULL, *no = yes ? yes->next : NULL;
    Constant c;
    if (!no || no->next)
        return complain(l, (Where){ .at = call->loc }, "if(condition, a, b) takes three arguments"), NULL;
    if (!constant_of(l, condition, &c))
        return NULL;
    note_unlowered(l, c.value != 0 ? no : yes);
    return c.value != 0 ? yes : no;
}

Operand choose(Lower *l, const Ast *call)
{
    const Ast *chosen = chosen_of(l, call);
    return chosen ? lower_expr(l, chosen) : wrong;
}

Results results_of(Lower *l, const Ast *ast)
{
    if (ast->kind == A_CALL && strcmp(ast->name, "if") == 0) {
        const Ast *chosen = chosen_of(l, ast);
        return chosen ? results_of(l, chosen) : (Results){ 0 };
    }
    Symbol *called = ast->kind == A_CALL ? called_symbol(l, ast->name) : NULL;
    if (called)
        return lower_call(l, ast, called);
    Results results = { .at = NEW_ARRAY(l->arena, Operand, 2) };
    Operand value = lower_expr(l, ast);
    set_place(l, ast->loc);
    Operand largest = value.kind == WRONG ? wrong : largest_of(l, value);
    if (largest.kind != WRONG)
        results.at[results.count++] = largest;
    if (value.kind != WRONG)
        results.at[results.count++] = value;
    return results;
}
