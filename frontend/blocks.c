/* blocks.c -- the statements of blocks; parameters; a block call as an instance with a path.
 *
 * A call is inlined: the body is lowered again for each instance, in a separate scope with the arguments and the
 * declarations of the file, and under the instance's path.
 */
#include "lowering.h"

#include <string.h>

enum { MOST_INSTANCES = 16384 };

static const Operand wrong = { .kind = WRONG };

static Name join_path(Lower *l, Name path, const char *name)
{
    return path ? intern_format(l->m, "%s.%s", path, name) : intern_text(l->m, name);
}

/* --- Assignments --------------------------------------------------------------------------- */

static Names order_of(const Type *type)
{
    Names order = { 0 };
    for (int i = 0; i < type->rank; i++)
        add_name(&order, type->dim[i].name);
    return order;
}

static bool in_order(const Type *a, const Type *b)
{
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i].name != b->dim[i].name)
            return false;
    return true;
}

Value *reorder(Lower *l, Value *value, const Type *like)
{
    Op *op = value ? value->def : NULL;
    if (!value || in_order(&value->type, like))
        return value;
    const Func *f = l->frame->func;
    if (op && op == f->last && index_of(&f->results, value) < 0 && op->kind == OP_dot && !op->attrs.order.count) {
        op->attrs.order = order_of(like); /* it has no reader: the product can write that order itself */
        return infer_op(l->m, op, &value->type) ? value : NULL;
    }
    return EMIT(l, OP_reorder, (Attrs){ .order = order_of(like) }, value);
}

bool conform(Lower *l, Value **value, const Ast *ast)
{
    Type stated, *type = &(*value)->type;
    if (ast->ellipsis) {
        complain(l, (Where){ .at = ast->loc }, "'...' is allowed only in the types of a block's arguments");
        return false;
    }
    if (!type_of_ast(l, ast, &stated))
        return false;
    if (stated.dtype != type->dtype || dims_lacking(&stated, type).count || dims_lacking(type, &stated).count) {
        complain(l, (Where){ .at = ast->loc }, "declared as %s, but it is %s", type_words(l, &stated),
                 type_words(l, type));
        return false;
    }
    *value = reorder(l, *value, &stated);
    return *value != NULL;
}

Value *number_as_stated(Lower *l, Operand number, const Ast *type)
{
    Type stated;
    Attrs dims = { 0 };
    if (type->ellipsis || !type_of_ast(l, type, &stated))
        return scalar_of(l, number, F32).value;
    Value *value = scalar_of(l, number, stated.dtype).value;
    for (int i = 0; i < stated.rank; i++)
        dims.dims.dim[dims.dims.count++] = stated.dim[i];
    return stated.rank ? EMIT(l, OP_broadcast, dims, value) : value;
}

/* May a value have this name here? */
static bool may_name(Lower *l, const char *name, Loc loc)
{
    const Symbol *other = find_symbol(l->scope, name);
    if (!other || other->kind == S_LOCAL || other->kind == S_ARGUMENT)
        return true;
    complain(l, (Where){ .at = loc, .help = "give the value another name" }, "'%s' is already %s, declared at %s", name,
             symbol_noun(other->kind), position_text(l, other->loc));
    return false;
}

static void check_one(Lower *l, const Symbol *symbol)
{
    if (symbol->state && !symbol->updated && l->variant == AS_MODEL && !l->incomplete)
        complain(l, (Where){ .at = symbol->loc, .help = arena_text(l->arena, "update %s = ...", symbol->name) },
                 "the state '%s' has no update", symbol->name);
    static const char *const nouns[N_SYMBOLS] = {
        [S_ARGUMENT] = "the argument ", [S_PARAM] = "the parameter ", [S_INPUT] = "the input ", [S_LOCAL] = ""
    };
    Where where = { .at = symbol->loc, .help = "use it, or remove it" };
    if (!symbol->used && !symbol->from_before && symbol->operand.kind != WRONG && l->variant == AS_MODEL &&
        !l->incomplete)
        complain(l, where, symbol->kind == S_LOCAL ? "%s'%s' is computed and never used" : "%s'%s' is never used",
                 nouns[symbol->kind], symbol->name);
}

void check_used(Lower *l, const Scope *scope)
{
    for (const Symbol *symbol = scope->newest; symbol; symbol = symbol->next)
        check_one(l, symbol);
}

void name_result(Lower *l, const char *name, Loc loc, Operand operand)
{
    const Symbol *before = find_symbol_here(l->scope, name);
    bool good = may_name(l, name, loc);
    if (good && before)
        check_one(l, before);
    if (!good && !before)
        return; /* a const, dim or block of the file */
    declare(l, l->scope, S_LOCAL, name, loc)->operand = good ? operand : wrong;
}

/* p, chosen = top_k(...) */
static void lower_pair(Lower *l, const Ast *ast)
{
    const Ast *target = ast->child;
    Name outer = l->b.path;
    l->b.path = join_path(l, l->path, target->name);
    Operand values[] = { wrong, lower_expr(l, ast->init) };
    if (ast->type)
        complain(l, (Where){ .at = ast->type->loc, .help = "leave it out" }, "one type is stated for two values");
    set_place(l, ast->init->loc);
    if (values[1].kind != WRONG)
        values[0] = largest_of(l, values[1]);
    if (values[1].kind != WRONG && (values[0].kind == WRONG || target->next->next)) {
        complain(l, (Where){ .at = target->next->loc }, "one value is assigned to two names");
        values[0] = values[1] = wrong;
    }
    for (int i = 0; target; i = 1, target = target->next) {
        if (values[i].kind == TENSOR)
            name_value(l, values[i].value, join_path(l, l->path, target->name));
        name_result(l, target->name, target->loc, values[i]);
    }
    l->b.path = outer;
}

Operand lower_stated(Lower *l, const Ast *ast, const char *name)
{
    Name outer = l->b.path, path = join_path(l, l->path, name);
    l->b.path = path;
    set_place(l, ast->init->loc);
    Operand operand = lower_expr(l, ast->init);
    if (ast->type && operand.kind == NUMBER)
        operand = tensor_operand(number_as_stated(l, operand, ast->type));
    if (ast->type)
        operand = scalar_of(l, operand, ast->type->name ? dtype_named(ast->type->name) : F32);
    set_place(l, ast->init->loc);
    if (operand.kind == TENSOR && ast->type && !conform(l, &operand.value, ast->type))
        operand = wrong;
    if (operand.kind == TENSOR)
        name_value(l, operand.value, path);
    l->b.path = outer;
    return operand;
}

void lower_assign(Lower *l, const Ast *ast)
{
    if (ast->child->next) {
        lower_pair(l, ast);
        return;
    }
    const Ast *target = ast->child;
    name_result(l, target->name, target->loc, lower_stated(l, ast, target->name));
}

/* --- Parameters ---------------------------------------------------------------------------- */

static const struct {
    const char *name;
    InitKind kind;
    int numbers;
    const char *usage;
} inits[] = {
    { "zeros", ZEROS, 0, "zeros" },
    { "ones", ONES, 0, "ones" },
    { "normal", NORMAL, 1, "normal(std)" },
    { "uniform", UNIFORM, 2, "uniform(low, high)" },
    { "constant", CONSTANT, 1, "constant(c)" },
};
enum { N_INIT_NAMES = sizeof inits / sizeof inits[0] };

static bool read_init(Lower *l, const Ast *ast, Param *param)
{
    NearMiss near = { .name = ast->name ? ast->name : "" };
    int i = 0, n = 0;
    Constant numbers[2] = { { 0 } };
    while (i < N_INIT_NAMES && strcmp(inits[i].name, near.name) != 0)
        offer(&near, inits[i++].name);
    if (i == N_INIT_NAMES || (ast->kind != A_NAME && ast->kind != A_CALL)) {
        const char *help = did_you_mean(l->arena, &near);
        complain(l,
                 (Where){ .at = ast->loc,
                          .help = help ? help : "zeros, ones, normal(std), uniform(low, high), constant(c)" },
                 "a parameter cannot be initialised with this");
        return false;
    }
    for (const Ast *child = ast->kind == A_CALL ? ast->child : NULL; child; child = child->next, n++)
        if (n < 2 &&
            (!constant_of(l, child, &numbers[n]) ||
             !is_finite(l, numbers[n], child->loc, arena_text(l->arena, "the argument of '%s'", inits[i].name))))
            return false;
    if (n != inits[i].numbers) {
        complain(l, (Where){ .at = ast->loc }, "'%s' takes %d number%s, not %d: %s", inits[i].name, inits[i].numbers,
                 inits[i].numbers == 1 ? "" : "s", n, inits[i].usage);
        return false;
    }
    param->init = inits[i].kind;
    param->a = numbers[0].value;
    param->b = numbers[1].value;
    if ((param->init == NORMAL && param->a < 0) || (param->init == UNIFORM && param->a > param->b)) {
        complain(l, (Where){ .at = ast->loc }, "%s",
                 param->init == NORMAL ? "a standard deviation cannot be negative"
                                       : "the first number of 'uniform' is above the second");
        return false;
    }
    return true;
}

static bool param_type(Lower *l, const Ast *ast, Type *type)
{
    if (ast->ellipsis) {
        complain(l, (Where){ .at = ast->loc }, "'...' is allowed only in the types of a block's arguments");
        return false;
    }
    if (!type_of_ast(l, ast, type))
        return false;
    if (!is_float(type->dtype)) {
        complain(l, (Where){ .at = ast->name_loc }, "a parameter holds floating-point numbers, not %s", ast->name);
        return false;
    }
    if (too_large(l, type, ast->loc) || too_many_dims(l, type, ast->loc))
        return false;
    for (int i = 0; i < type->rank; i++) {
        const Name dim = type->dim[i].name;
        if (!varies(l, dim))
            continue;
        complain(l, (Where){ .at = ast->loc }, "a parameter cannot have the dim '%s', which is %sthe micro-batch", dim,
                 dim == l->m->batch ? "" : "a part of ");
        return false;
    }
    return true;
}

/* Adds the tensor with all its copies to the module. */
static void add_trainable(Lower *l, const Ast *name, const Param *described, Name full)
{
    const Body *model = l->frame;
    Param *param = NEW(l->arena, Param);
    while (model->outer)
        model = model->outer;
    *param = *described;
    param->name = full;
    param->path = join_path(l, l->stars, name->name);
    param->type = model->params.at[model->params.count - 1]->type;
    param->where = where_text(l, name->loc);
    *(l->last_param ? &l->last_param->next : &l->m->params) = param;
    l->last_param = param;
}

static bool may_have_state(Lower *l, const Ast *ast)
{
    if (is_in_scan(l))
        complain(l, (Where){ .at = ast->name_loc, .help = "declare it outside, where all places are seen" },
                 "a state is updated once a step, not at each place of a scan");
    return !is_in_scan(l);
}

void lower_param(Lower *l, const Ast *ast)
{
    Type type;
    Param described = { 0 };
    bool typed = param_type(l, ast->type, &type), good = read_init(l, ast->init, &described) && typed;
    good &= !ast->is_state || may_have_state(l, ast);
    described.decay = good && !ast->no_decay && !ast->is_state;
    described.frozen = ast->frozen;
    described.state = ast->is_state;
    for (const Ast *name = ast->child; name; name = name->next) {
        const Symbol *other = find_symbol(l->scope, name->name);
        if (other) {
            complain(l, (Where){ .at = name->loc }, "'%s' is already %s, declared at %s", name->name,
                     symbol_noun(other->kind), position_text(l, other->loc));
            continue;
        }
        Symbol *symbol = declare(l, l->scope, S_PARAM, name->name, name->loc);
        if (!good)
            continue;
        Name full = join_path(l, l->path, name->name);
        symbol->operand =
            tensor_operand(import_param(l, l->frame, full, type, (Port){ .kind = PORT_PARAM, .of = full }));
        if (ast->is_state)
            declare_state(l, symbol);
        if (l->variant == AS_MODEL)
            add_trainable(l, name, &described, full);
    }
}

/* --- Calls of blocks ----------------------------------------------------------------------- */

static bool declares_parameters(const Lower *l, const Ast *ast);

/* Does the block have parameters, or a block that it calls?  (Recursion is reported elsewhere.) */
static bool has_parameters(const Lower *l, Symbol *block)
{
    if (block->parameters == UNKNOWN) {
        block->parameters = NONE_KNOWN;
        block->parameters = declares_parameters(l, block->ast) ? SOME : NONE_KNOWN;
    }
    return block->parameters == SOME;
}

static bool declares_parameters(const Lower *l, const Ast *ast)
{
    Symbol *called = ast->kind == A_CALL ? find_symbol_here(&l->globals, ast->name) : NULL;
    if (ast->kind == A_PARAM || (called && called->kind == S_BLOCK && has_parameters(l, called)))
        return true;
    const Ast *const lists[] = { ast->init, ast->child, ast->body };
    for (int i = 0; i < 3; i++)
        for (const Ast *child = lists[i]; child; child = child->next)
            if (declares_parameters(l, child))
                return true;
    return false;
}

static bool is_free_instance(Lower *l, const char *name, Loc loc, bool has_params)
{
    for (const Instance *i = *l->instances; i; i = i->next)
        if (has_params && i->has_params && strcmp(i->name, name) == 0) {
            complain(l, (Where){ .at = loc, .help = arena_text(l->arena, "%s(...) as %s_2", name, name) },
                     "a second instance '%s' here: the first is at %s, and both would have the same parameter names",
                     name, position_text(l, i->loc));
            return false;
        }
    Instance *instance = NEW(l->arena, Instance);
    *instance = (Instance){ name, loc, has_params, *l->instances };
    *l->instances = instance;
    return true;
}

static bool may_call(Lower *l, const Ast *call, const Symbol *block)
{
    for (int i = 0; i < l->ncalls; i++)
        if (l->calls[i] == block->ast) {
            complain(l, (Where){ .at = call->name_loc }, "'%s' calls itself%s", block->name,
                     i + 1 < l->ncalls ? arena_text(l->arena, " through '%s'", l->calls[l->ncalls - 1]->name) : "");
            return false;
        }
    bool nested = l->ncalls == sizeof l->calls / sizeof l->calls[0];
    if (!nested && l->instance_count < MOST_INSTANCES)
        return true;
    if (!l->too_many && nested)
        complain(l, (Where){ .at = call->name_loc }, "calls of blocks are nested too deeply");
    else if (!l->too_many)
        complain(l, (Where){ .at = call->name_loc, .help = "use repeat" }, "more than %d instances of blocks",
                 MOST_INSTANCES);
    l->too_many = true;
    return false;
}

static bool argument_fits(Lower *l, const Ast *arg, const Ast *given, const Value *value)
{
    Type declared;
    if (!type_of_ast(l, arg->type, &declared))
        return false;
    Names missing = dims_lacking(&declared, &value->type), more = dims_lacking(&value->type, &declared);
    if (declared.dtype == value->type.dtype && !missing.count && (arg->type->ellipsis || !more.count))
        return true;
    const char *wanted = type_words(l, &declared);
    if (arg->type->ellipsis)
        wanted = arena_text(l->arena, "%s[..., %s", is_float(declared.dtype) ? "" : dtype_name[declared.dtype],
                            dims_text(l, &declared) + 1);
    complain(l,
             (Where){ .at = given->loc,
                      .label = arena_text(l->arena, "'%s' is declared at %s", arg->name, position_text(l, arg->loc)) },
             "the argument '%s' must be %s, not %s", arg->name, wanted, type_words(l, &value->type));
    return false;
}

static Operand lower_argument(Lower *l, const Ast *arg, const Ast *given)
{
    if (given->kind == A_KEYWORD || given->kind == A_ARROW) {
        complain(l, (Where){ .at = given->loc }, "the arguments of a block cannot be named in a call");
        lower_expr(l, given->child);
        return wrong;
    }
    Operand operand = lower_expr(l, given);
    set_place(l, given->loc);
    operand = scalar_of(l, operand, arg->type->name ? dtype_named(arg->type->name) : F32);
    return operand.kind == TENSOR && argument_fits(l, arg, given, operand.value) ? operand : wrong;
}

static void declare_argument(Lower *l, Scope *scope, const Ast *arg, Operand operand)
{
    const Symbol *other = find_symbol(scope, arg->name);
    if (other)
        complain(l, (Where){ .at = arg->name_loc }, "'%s' is already %s, declared at %s", arg->name,
                 symbol_noun(other->kind), position_text(l, other->loc));
    declare(l, scope, S_ARGUMENT, arg->name, arg->name_loc)->operand = other ? wrong : operand;
}

/* Lowers the arguments in the scope of the call and names them in the scope of the block. */
static bool bind_arguments(Lower *l, const Ast *call, const Symbol *block, Scope *scope)
{
    const Ast *given = call->child;
    bool good = true;
    const char *missing = NULL;
    for (const Ast *arg = block->ast->child; arg; arg = arg->next) {
        Operand operand = given ? lower_argument(l, arg, given) : wrong;
        missing = given || missing ? missing : arg->name;
        declare_argument(l, scope, arg, operand);
        good &= operand.kind != WRONG;
        given = given ? given->next : NULL;
    }
    look_at_arguments(l, given);
    Where at = { .at = call->name_loc, .label = arena_text(l->arena, "declared at %s", position_text(l, block->loc)) };
    if (missing)
        complain(l, at, "too few arguments for '%s': '%s' is missing", block->name, missing);
    if (given)
        complain(l, at, "too many arguments for '%s'", block->name);
    return good && !given;
}

static Operand lower_body(Lower *l, const Symbol *block)
{
    Operand returned = wrong;
    const Ast *last = NULL;
    for (const Ast *ast = block->ast->body; ast; ast = ast->next) {
        if (last) {
            complain(l, (Where){ .at = ast->loc }, "no statement may follow 'return'");
            break;
        }
        if (ast->kind == A_RETURN) {
            set_place(l, ast->child->loc);
            returned = lower_expr(l, ast->child);
            last = ast;
        } else {
            lower_statement(l, ast);
        }
    }
    if (!last)
        complain(l, (Where){ .at = block->loc }, "the block '%s' returns nothing", block->name);
    return returned;
}

/* The instance's name with a star for each directly enclosing repeat; all places of a scan have one. */
static const char *starred(Lower *l, const char *name)
{
    const Scope *scope = l->scope;
    for (const Body *frame = l->frame; frame->outer && scope == frame->scope;
         frame = frame->outer, scope = scope->outer)
        name = frame->scans ? name : arena_text(l->arena, "%s.*", name);
    return name;
}

static Operand lower_instance(Lower *l, const Symbol *block, Scope *scope, const char *name)
{
    const Lower outer = *l;
    Instance *instances = NULL;
    l->path = l->b.path = join_path(l, l->path, name);
    l->stars = join_path(l, l->stars, starred(l, name));
    l->scope = scope;
    l->instances = &instances;
    l->calls[l->ncalls++] = block->ast;
    Operand returned = lower_body(l, block);
    if (returned.kind != WRONG)
        check_used(l, scope);
    l->path = outer.path, l->stars = outer.stars, l->b.path = outer.b.path;
    l->scope = outer.scope;
    l->instances = outer.instances;
    l->ncalls--;
    return returned;
}

Operand call_block(Lower *l, const Ast *call, Symbol *block)
{
    const char *name = call->as ? call->as : block->name;
    Loc at = call->as ? call->as_loc : call->name_loc;
    Scope scope = { .outer = &l->globals };
    block->used = true;
    if (!may_call(l, call, block)) {
        look_at_arguments(l, call->child);
        return wrong;
    }
    l->instance_count++;
    bool bound = bind_arguments(l, call, block, &scope);
    bool is_free = is_free_instance(l, name, at, has_parameters(l, block));
    if (!is_free)
        return wrong;
    Operand returned = lower_instance(l, block, &scope, name);
    return bound ? returned : wrong;
}

void lower_statement(Lower *l, const Ast *ast)
{
    if (ast->kind == A_ASSIGN)
        lower_assign(l, ast);
    else if (ast->kind == A_PARAM)
        lower_param(l, ast);
    else if (ast->kind == A_UPDATE)
        lower_update(l, ast);
    else if (ast->kind == A_REPEAT || ast->kind == A_SCAN)
        lower_repeat(l, ast);
    else if (ast->kind == A_YIELD)
        lower_yield(l, ast);
}
