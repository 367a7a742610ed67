/* blocks.c -- the statements of blocks: assignments, parameters, updates of these and of states, means of instances. */
#include "elaborate/instances.h"
#include "expr.h"
#include "sizes.h"
#include "syntax/idioms.h"

#include <string.h>

/* --- Assignments --------------------------------------------------------------------------- */

/* Converts to a stated type. */
static bool conform(Lower *l, Value **value, const Ast *ast)
{
    Type stated, *type = &(*value)->type;
    if (ast->ellipsis)
        return complain(l, (Where){ .at = ast->loc }, "'...' is allowed only in the types of a block's arguments");
    if (!type_of_ast(l, ast, &stated))
        return false;
    const Names more = dims_lacking(&stated, type);
    const bool has_others = dims_lacking(type, &stated).count > 0;
    if (stated.dtype != type->dtype || more.count || has_others) {
        const char *help = has_others   ? NULL
                           : more.count ? arena_text(l->arena, "broadcast(..., %s) has the same along it", more.name[0])
                                        : arena_text(l->arena, "cast(..., %s)", dtype_name[stated.dtype]);
        return complain(l, (Where){ .at = ast->loc, .help = help }, "declared as %s, but it is %s",
                        type_words(l, &stated), type_words(l, type));
    }
    *value = reorder(l, *value, &stated);
    return *value != NULL;
}

/* In all elements; NULL after an error. */
static Value *number_as_stated(Lower *l, Operand number, const Ast *type)
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

/* p, chosen = top_k(...); y, aux = block(...) */
static void lower_several(Lower *l, const Ast *ast)
{
    const Ast *target = ast->child;
    Name outer = l->b.path;
    l->b.path = join_path(l, l->path, target->name);
    Results values = results_of(l, ast->init);
    int count = 0;
    for (const Ast *name = target; name; name = name->next)
        count++;
    if (ast->type)
        complain(l, (Where){ .at = ast->type->loc, .help = "leave it out" }, "one type is stated for %d values", count);
    const bool good = values.count == count;
    if (values.count && !good)
        complain(l, (Where){ .at = target->next->loc }, "%d value%s assigned to %d names", values.count,
                 values.count == 1 ? " is" : "s are", count);
    for (int i = 0; target; i++, target = target->next) {
        if (good && values.at[i].kind == TENSOR)
            name_value(l, values.at[i].value, join_path(l, l->path, target->name));
        name_result(l, target->name, target->loc, good ? values.at[i] : wrong);
    }
    l->b.path = outer;
}

/* NAME (: type) = init, without the name. */
static Operand lower_stated(Lower *l, const Ast *ast, const char *name)
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

static void lower_assign(Lower *l, const Ast *ast)
{
    const Ast *target = ast->child;
    if (names_instance(l, ast))
        lower_named(l, ast);
    else if (target->next)
        lower_several(l, ast);
    else
        name_result(l, target->name, target->loc, lower_stated(l, ast, target->name));
}

/* Of a scan: what a place has becomes a tensor outside. */
static void lower_yield(Lower *l, const Ast *ast)
{
    Yield **end = &l->frame->yielded;
    Operand operand = lower_stated(l, ast, ast->name);
    for (; *end; end = &(*end)->next)
        if (strcmp((*end)->name, ast->name) == 0) {
            complain(l, (Where){ .at = ast->name_loc, .help = "give one of them another name" },
                     "'%s' is yielded twice: the first time at %s", ast->name, position_text(l, (*end)->loc));
            return;
        }
    *end = NEW(l->arena, Yield);
    **end = (Yield){ .name = ast->name, .loc = ast->name_loc };
    set_place(l, ast->init->loc);
    if (operand.kind != WRONG)
        (*end)->value = value_of(l, operand, F32);
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
        const char *help = help_with(l->arena, IDIOM_INITIAL, &near);
        return complain(l,
                        (Where){ .at = ast->loc,
                                 .help = help ? help : "zeros, ones, normal(std), uniform(low, high), constant(c)" },
                        "a parameter cannot be initialised with this");
    }
    for (const Ast *child = ast->kind == A_CALL ? ast->child : NULL; child; child = child->next, n++)
        if (n < 2 &&
            (!constant_of(l, child, &numbers[n]) ||
             !is_finite(l, numbers[n], child->loc, arena_text(l->arena, "the argument of '%s'", inits[i].name))))
            return false;
    if (n != inits[i].numbers)
        return complain(l, (Where){ .at = ast->loc }, "'%s' takes %d number%s, not %d: %s", inits[i].name,
                        inits[i].numbers, inits[i].numbers == 1 ? "" : "s", n, inits[i].usage);
    param->init = inits[i].kind;
    param->a = numbers[0].value;
    param->b = numbers[1].value;
    if ((param->init == NORMAL && param->a < 0) || (param->init == UNIFORM && param->a > param->b))
        return complain(l, (Where){ .at = ast->loc }, "%s",
                        param->init == NORMAL ? "a standard deviation cannot be negative"
                                              : "the first number of 'uniform' is above the second");
    return true;
}

static bool param_type(Lower *l, const Ast *ast, Type *type)
{
    if (ast->ellipsis)
        return complain(l, (Where){ .at = ast->loc }, "'...' is allowed only in the types of a block's arguments");
    if (!type_of_ast(l, ast, type))
        return false;
    if (!is_float(type->dtype))
        return complain(l, (Where){ .at = ast->name_loc }, "a parameter holds floating-point numbers, not %s",
                        ast->name);
    if (too_large(l, type, ast->loc) || too_many_dims(l, type, ast->loc))
        return false;
    for (int i = 0; i < type->rank; i++) {
        const Name dim = type->dim[i].name;
        if (!varies_by_micro_batch(l, dim))
            continue;
        return complain(l, (Where){ .at = ast->loc },
                        "a parameter cannot have the dim '%s', which is %sthe micro-batch", dim,
                        dim == l->m->batch ? "" : "a part of ");
    }
    return true;
}

static void check_tensors(Lower *l, const Param *param, Loc at)
{
    const int64_t copies = tensor_count(param);
    if (l->tensors <= MAX_TENSORS && l->tensors + copies > MAX_TENSORS)
        complain(l, (Where){ .at = at, .help = "fewer copies, or a parameter with one more dim" },
                 "a model has at most %d tensors; with the copies of this parameter there are %lld", MAX_TENSORS,
                 (long long)(l->tensors + copies));
    l->tensors += copies;
}

/* Adds the tensor with all its copies to the module. */
static void add_trainable(Lower *l, const Ast *name, const Param *described, Name full)
{
    const Use *use = instance_around(l->use);
    const Body *model = l->frame;
    Param *param = NEW(l->arena, Param);
    *param = *described;
    for (model = where_named(model, &use); model->outer; model = where_named(model->outer, &use))
        if (model->run) {
            param->first = model->number;
            param->skips = model->run->bodies - 1;
        }
    param->name = full;
    param->path = join_path(l, l->stars, name->name);
    param->type = model->params.at[model->params.count - 1]->type;
    if (!too_large(l, &param->type, name->loc)) /* with all copies */
        check_tensors(l, param, name->loc);
    param->where = where_text(l, name->loc);
    *(l->last_param ? &l->last_param->next : &l->m->params) = param;
    l->last_param = param;
}

static bool may_have_state(Lower *l, const Ast *ast)
{
    if (is_in_scan(l))
        complain(l, (Where){ .at = ast->name_loc, .help = "declare it outside of the scan" },
                 "a state is updated once a step, not at each position of a scan");
    return !is_in_scan(l);
}

/* Checkpoints have other entries, too, by name. */
static bool is_free_in_files(Lower *l, Name full, Loc at)
{
    static const char state[] = "optimizer.";
    const bool is_about = strcmp(full, "__metadata__") == 0, is_state = strncmp(full, state, strlen(state)) == 0;
    if (is_about || is_state)
        complain(l, (Where){ .at = at, .help = is_about ? "rename it" : "rename the instance: as optimizer_2" },
                 "'%s' cannot be the name of a parameter: checkpoints have %s under such names", full,
                 is_about ? "their metadata" : "the optimizer's state");
    return !is_about && !is_state;
}

static void lower_param(Lower *l, const Ast *ast)
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
        if (!is_free_in_files(l, full, name->loc))
            continue;
        Param own = described;
        if (!share_param(l, full, &type, &own, name->loc) || (is_mean(l) && !begin_mean(l, full, &own)))
            continue;
        symbol->operand =
            tensor_operand(import_param(l, l->use, l->frame, full, type, (Port){ .kind = PORT_PARAM, .of = full }));
        if (ast->is_state && !is_mean(l))
            declare_state(l, symbol);
        else if (is_frozen_use(l) && !described.frozen)
            symbol->operand = tensor_operand(EMIT(l, OP_stop_gradient, NO_ATTRS, symbol->operand.value));
        if (l->role != MODEL || find_param(l->m, full))
            continue;
        add_trainable(l, name, &own, full);
        note_param(l, name->loc, l->last_param, &type);
        if (own.like)
            update_mean(l, find_param(l->m, full));
    }
}

/* --- Updates and means ------------------------------------------------------------------------ */

static void lower_update(Lower *l, const Ast *ast)
{
    Symbol *symbol = find_updated(l, ast);
    if (!symbol || is_frozen_use(l) || l->role != MODEL)
        return;
    Body *frame = l->frame;
    Value *own = symbol->state ? symbol->state : symbol->operand.value;
    const Value *tensor = outside_bodies(&frame, own, true);
    if (has_update(l, tensor->port))
        return;
    l->b.path = tensor->port.of;
    set_place(l, ast->init->loc);
    Value *after = emit_f32(l, lower_tensor(l, ast->init));
    const Type *type = &own->type;
    if (after && (dims_lacking(&after->type, type).count || dims_lacking(type, &after->type).count))
        complain(l, (Where){ .at = ast->init->loc }, "the %s '%s' is %s, and its update %s",
                 symbol->state ? "state" : "parameter", ast->name, type_words(l, type), type_words(l, &after->type));
    else if (after)
        write_update(l, ast, symbol, tensor, after);
    l->b.path = l->path;
}

/* state NAME = mean of INSTANCE (SHARE) */
static void lower_mean(Lower *l, const Ast *ast)
{
    Symbol *of = find_symbol_here(l->scope, ast->name);
    Constant share = { 0 };
    if (strcmp(ast->as, "mean of") != 0 || ast->child->next)
        complain(l, (Where){ .at = ast->as_loc, .help = "state NAME = mean of INSTANCE (0.99)" },
                 "the state of an instance is the mean of another one");
    if (of)
        of->used = true;
    if (constant_of(l, ast->init, &share) && !(share.value >= 0 && share.value < 1))
        complain(l, (Where){ .at = ast->init->loc }, "the share of the old mean is from 0 to below 1, not %s",
                 constant_text(l->arena, share));
    const bool is_instance = of && of->kind == S_INSTANCE && !of->shared->mean_of;
    if (!is_instance)
        complain(l, (Where){ .at = ast->name_loc, .help = arena_text(l->arena, "%s = BLOCK above", ast->name) },
                 "'%s' is not an instance that is named here, by its block", ast->name);
    if (!is_instance)
        name_result(l, ast->child->name, ast->child->loc, wrong);
    NamedInstance *shared = is_instance ? name_instance(l, ast->child, of->shared->block) : NULL;
    if (!shared)
        return;
    shared->mean_of = of->shared;
    shared->share = share.value;
}

/* --- All of them ---------------------------------------------------------------------------- */

void lower_statement(Lower *l, const Ast *ast)
{
    if (ast->kind == A_ASSIGN)
        lower_assign(l, ast);
    else if (ast->kind == A_PARAM)
        lower_param(l, ast);
    else if (ast->kind == A_MEAN)
        lower_mean(l, ast);
    else if (ast->kind == A_UPDATE)
        lower_update(l, ast);
    else if (ast->kind == A_REPEAT || ast->kind == A_SCAN)
        lower_repeat(l, ast);
    else if (ast->kind == A_YIELD)
        lower_yield(l, ast);
}
