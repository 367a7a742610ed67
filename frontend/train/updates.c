/* updates.c -- an optimizer as IR: for each type of parameter a function with the role OPTIMIZE.
 *
 *   optimizer mine(lr = 1e-3, beta = 0.9) {        func optimize @mine(%param, %grad, %lr, %step, %m) {
 *       state m = zeros                              %1 = mul %beta, %m
 *       m = beta * m + (1 - beta) * grad             ...
 *       update param - lr * m                        return %5, %3
 *   }                                              }
 *
 * State whose old value no op reads is not kept: that of sgd without momentum.
 */
#include "functions/functions.h"
#include "optimize.h"
#include "train.h"

#include <string.h>

typedef struct {
    Lower *l;
    const Group *group;
    const Param *param; /* the first that it updates */
    bool decays;
    Matrix matrix;
    Func *f;
    Body frame;
    Scope scope;
    Values state;          /* parameters, */
    const char *slots[64]; /* and their names */
    Value *new;            /* of the parameter */
    Value *average;        /* of the parameter; NULL without train.ema */
} Update;

enum {
    MOST_STATE = sizeof((Update *)0)->slots / sizeof(const char *),
    MOST_ROUNDS = 100 /* of a repeat */
};

/* --- Names ----------------------------------------------------------------------------------- */

static Value *take(Update *u, const char *name, Type type)
{
    Value *value = add_param(u->l->m, u->f, intern_text(u->l->m, name), type);
    Values unread = { 0 };
    push_named(u->l, &u->frame, &unread, value);
    return value;
}

static Symbol *name(Update *u, const char *text, Operand operand)
{
    Symbol *symbol = declare(u->l, &u->scope, S_ARGUMENT, text, u->group->declared->name_loc);
    symbol->operand = operand;
    symbol->used = true;
    return symbol;
}

/* The rate of a group is in proportion to that of all parameters, which the schedule sets. */
static Value *rate_of(Update *u, Value *lr)
{
    Lower *l = u->l;
    const double own = rate_argument(u->group), common = rate_argument(l->optimizing->groups);
    if (own == common)
        return lr;
    return EMIT(l, OP_mul, NO_ATTRS, lr, emit_number(l, own / common, F32));
}

/* An argument with the name weight_decay is 0 for parameters that do not decay. */
static void name_arguments(Update *u)
{
    int i = 0;
    for (const Ast *ast = u->group->declared->child; ast; ast = ast->next, i++) {
        Constant c = u->group->argument[i];
        if (strcmp(ast->name, "lr") == 0)
            continue;
        if (strcmp(ast->name, "weight_decay") == 0 && !u->decays)
            c = integer_constant(0);
        name(u, ast->name, (Operand){ .kind = NUMBER, .number = c });
    }
}

static void name_dims(Update *u, const char *text, const Names *named, const Names *dims)
{
    const Type *type = u->matrix.type;
    Symbol *symbol = name(u, text, (Operand){ 0 });
    symbol->kind = S_DIMS;
    symbol->dims = *named;
    symbol->number = integer_constant(1);
    for (int i = 0; i < dims->count; i++)
        symbol->number = integer_constant(symbol->number.integer * type->dim[find_dim(type, dims->name[i])].size);
}

/* --- Statements ------------------------------------------------------------------------------ */

static bool fits(Lower *l, const Ast *at, Operand *operand, const Type *type, const char *what)
{
    if (operand->kind == NUMBER)
        *operand = tensor_operand(value_of(l, *operand, F32));
    if (operand->kind == WRONG)
        return false;
    const Type *own = &operand->value->type;
    if (own->dtype != F32 || dims_lacking(type, own).count || dims_lacking(own, type).count)
        return complain(l, (Where){ .at = at->loc }, "%s is %s, not %s", what, type_words(l, type), type_words(l, own));
    operand->value = reorder(l, operand->value, type);
    return operand->value != NULL;
}

/* Are the dims named once each, by names of several? */
static bool names_groups(Update *u, const Ast *ast)
{
    Lower *l = u->l;
    for (const Ast *name = ast->child; name; name = name->next) {
        if (!dims_named(l, name->name))
            return complain(l, (Where){ .at = name->loc, .help = "[..., in] or [..., out]" },
                            "the state of an optimizer has the dims 'in', 'out' or both");
        for (const Ast *before = ast->child; before != name; before = before->next)
            if (strcmp(before->name, name->name) == 0) {
                const char *help = arena_text(l->arena, "%.*s' is the same dim under a second name",
                                              (int)strcspn(name->name, "'"), name->name);
                return complain(l, (Where){ .at = name->loc, .help = help },
                                "'%s' occurs twice: the dims of a tensor must be distinct", name->name);
            }
    }
    return true;
}

/* [..., in, in']: of the parameter, the dims that are in neither `in` nor `out`, and those that are named; then second
 * ones. */
static bool state_type(Update *u, const Ast *ast, Type *type)
{
    const Type *whole = &u->param->type;
    Names named = { 0 };
    *type = scalar_type(F32);
    if (!names_groups(u, ast))
        return false;
    for (const Ast *name = ast->child; name; name = name->next) {
        const Names *dims = dims_named(u->l, name->name);
        u->matrix.refused |= named.count + dims->count > MAX_RANK;
        for (int i = 0; i < dims->count && !u->matrix.refused; i++)
            add_name(&named, dims->name[i]);
    }
    for (int i = 0; i < whole->rank; i++) {
        const Name dim = whole->dim[i].name;
        const bool is_of_matrix = has_name(&u->matrix.in, dim) || has_name(&u->matrix.out, dim);
        if (is_of_matrix ? has_name(&named, dim) : ast->ellipsis)
            type->dim[type->rank++] = whole->dim[i];
    }
    for (int i = 0; i < named.count; i++) {
        if (find_dim(whole, named.name[i]) >= 0)
            continue;
        u->matrix.refused |= type->rank == MAX_RANK;
        if (!u->matrix.refused)
            type->dim[type->rank++] = dim_of_matrix(u->l, &u->matrix, named.name[i]);
    }
    return true;
}

static void lower_state(Update *u, const Ast *ast)
{
    Lower *l = u->l;
    Type type = u->param->type;
    const bool good = !ast->type || state_type(u, ast->type, &type);
    if (ast->init->kind != A_NAME || strcmp(ast->init->name, "zeros") != 0)
        complain(l, (Where){ .at = ast->init->loc }, "the state of an optimizer begins as zeros");
    for (const Ast *target = ast->child; target; target = target->next) {
        if (u->average && strcmp(target->name, u->average->name) == 0) {
            complain(l, (Where){ .at = target->loc, .help = "another name" }, "'%s' is the mean that train.ema keeps",
                     target->name);
            declare(l, l->scope, S_LOCAL, target->name, target->loc)->operand = wrong;
            continue;
        }
        Symbol *other = find_symbol(l->scope, target->name);
        if (other)
            other->taken = other->kind == S_MODEL || other->kind == S_BLOCK;
        if (other || u->state.count == MOST_STATE) {
            complain(l, (Where){ .at = target->loc, .help = other ? "give the state another name" : NULL },
                     other ? "'%s' is already %s" : "'%s' is one tensor of state too many", target->name,
                     other ? symbol_noun(other->kind) : "");
            continue;
        }
        if (strcmp(target->name, "ema") == 0 && !type_equal(&type, &u->param->type))
            complain(l, (Where){ .at = target->loc, .help = "another name" },
                     "'ema' is what --ema evaluates with: it has the dims of the parameter");
        Value *value = take(u, target->name, type);
        Symbol *symbol = declare(l, &u->scope, S_LOCAL, target->name, target->loc);
        symbol->operand = tensor_operand(value);
        symbol->wrong = !good;
        symbol->used = symbol->from_before = true;
        u->slots[u->state.count] = target->name;
        push_value(l->arena, &u->state, value);
    }
}

static void lower_line(Update *u, const Ast *ast);

/* Had anything this name before the statement? */
static bool is_before(const Update *u, const Ast *ast, const char *name)
{
    const Symbol *symbol = u->scope.newest;
    while (symbol && (symbol->loc.begin > ast->loc.begin || strcmp(symbol->name, name) != 0))
        symbol = symbol->next;
    return symbol != NULL;
}

/* The body once for each copy, one after the other.  What it carries need not be read after the last one. */
static void lower_rounds(Update *u, const Ast *ast)
{
    Lower *l = u->l;
    int64_t copies;
    if (ast->as)
        complain(l, (Where){ .at = ast->as_loc }, "a repeat in an optimizer does not number its copies");
    if (!integer_of(l, ast->init, "the number of copies", 0, MOST_ROUNDS, &copies))
        return;
    if (copies == 0)
        note_unlowered(l, ast->body);
    for (int64_t i = 0; i < copies; i++)
        for (const Ast *line = ast->body; line; line = line->next)
            lower_line(u, line);
    for (Symbol *symbol = copies > 0 ? u->scope.newest : NULL; symbol; symbol = symbol->next)
        symbol->from_before |= symbol->loc.begin > ast->loc.begin && is_before(u, ast, symbol->name);
}

static void lower_line(Update *u, const Ast *ast)
{
    if (ast->kind == A_REPEAT)
        lower_rounds(u, ast);
    else
        lower_statement(u->l, ast);
}

static void lower_body(Update *u)
{
    Lower *l = u->l;
    const Ast *last = NULL;
    for (const Ast *ast = u->group->declared->body; ast; ast = ast->next) {
        if (last) {
            complain(l, (Where){ .at = ast->loc }, "no statement may follow 'update'");
        } else if (ast->kind == A_STATE) {
            lower_state(u, ast);
        } else if (ast->kind == A_UPDATED) {
            set_place(l, ast->child->loc);
            Operand operand = lower_expr(l, ast->child);
            last = ast;
            if (fits(l, ast->child, &operand, &u->param->type, "the parameter"))
                u->new = operand.value;
        } else {
            lower_line(u, ast);
        }
    }
    if (!last)
        complain(l, (Where){ .at = u->group->declared->name_loc, .help = "update param - lr * grad" },
                 "the optimizer '%s' updates nothing", u->group->declared->name);
}

/* The mean of weights, which begins as they do. */
static Value *new_average(Update *u)
{
    Lower *l = u->l;
    const double share = l->m->train.ema;
    Value *param = u->f->params.at[UPDATED_PARAM], *step = u->f->params.at[UPDATE_STEP];
    Value *is_first = EMIT(l, OP_le, NO_ATTRS, step, emit_number(l, 1, F32));
    Value *old = EMIT(l, OP_where, NO_ATTRS, is_first, param, u->average);
    Value *kept = EMIT(l, OP_mul, NO_ATTRS, old, emit_number(l, share, F32));
    return EMIT(l, OP_add, NO_ATTRS, kept, EMIT(l, OP_mul, NO_ATTRS, u->new, emit_number(l, 1 - share, F32)));
}

/* --- The function ---------------------------------------------------------------------------- */

static void add_results(Update *u)
{
    Lower *l = u->l;
    add_result(l->m, u->f, u->new, (Port){ 0 });
    if (u->average)
        add_result(l->m, u->f, new_average(u), (Port){ 0 });
    for (int i = 0; i < u->state.count; i++) {
        Symbol *symbol = find_symbol_here(&u->scope, u->slots[i]);
        const Ast at = { .loc = symbol->loc };
        symbol->used = true;
        if (fits(l, &at, &symbol->operand, &u->state.at[i]->type, "this state"))
            add_result(l->m, u->f, symbol->operand.value, (Port){ 0 });
    }
}

static void drop_unread_state(Update *u)
{
    Func *f = u->f;
    Map read = { .arena = u->l->arena };
    remove_dead_ops(f, &read);
    for (int i = f->params.count - 1; i >= N_UPDATE_PARAMS; i--)
        if (!map_get(&read, f->params.at[i])) {
            take_away(&f->params, i);
            remove_result(f, i - N_UPDATE_PARAMS + 1);
        }
    read = (Map){ .arena = u->l->arena };
    remove_dead_ops(f, &read);
}

static void build_update(Update *u)
{
    Lower *l = u->l;
    const Type type = u->param->type;
    const int errors = l->diags->errors;
    Value *const param = take(u, "param", type), *const grad = take(u, "grad", type);
    Value *const lr = take(u, "lr", scalar_type(F32)), *const step = take(u, "step", scalar_type(F32));
    if (l->m->train.ema > 0)
        u->average = take(u, "ema", type);
    set_place(l, u->group->declared->name_loc);
    name(u, "param", tensor_operand(param));
    name(u, "grad", tensor_operand(grad));
    name(u, "lr", tensor_operand(rate_of(u, lr)));
    name(u, "step", tensor_operand(step));
    static const char *const sides[2][3] = { { "in", "in'", "in''" }, { "out", "out'", "out''" } };
    for (int side = 0; side < 2; side++) {
        const Names *dims = side ? &u->matrix.out : &u->matrix.in;
        name_dims(u, sides[side][0], dims, dims);
        for (int times = 1; times <= TWINS; times++) {
            const Names others = primed_dims(l, dims, times);
            name_dims(u, sides[side][times], &others, dims);
        }
    }
    name_arguments(u);
    lower_body(u);
    if (u->frame.key)
        complain(l, (Where){ .at = u->group->declared->name_loc }, "an optimizer has no dropout");
    if (l->diags->errors > errors || u->matrix.refused)
        return;
    add_results(u);
    check_used(l, &u->scope);
    drop_unread_state(u);
}

/* Names and places are those of the optimizer's own text. */
static Func *lower_optimizer(Update *u)
{
    Lower *l = u->l;
    const Source *file = l->source;
    Diags own = *l->diags, *outer = l->diags;
    u->f = NEW(l->arena, Func);
    u->f->role = OPTIMIZE;
    u->frame.func = u->f;
    u->scope.outer = u->group->text ? NULL : &l->globals;
    l->role = MODEL;
    l->frame = &u->frame;
    l->scope = &u->scope;
    l->matrix = &u->matrix;
    l->path = l->stars = NULL;
    l->b = (Builder){ .module = l->m, .func = u->f };
    if (u->group->text) {
        own.source = u->group->text;
        l->source = u->group->text;
        l->diags = l->m->diags = &own;
    }
    build_update(u);
    outer->errors = l->diags->errors;
    l->diags = l->m->diags = outer;
    l->source = file;
    l->frame = NULL;
    l->matrix = NULL;
    l->scope = &l->globals;
    u->f->name = free_function_name(l, intern_format(l->m, "%s.%s", u->group->declared->name, u->param->name));
    append_func(l->m, u->f);
    return u->f;
}

/* Other dims, which count matrices, are then the same too. */
static bool same_matrix(const Matrix *a, const Matrix *b)
{
    return names_equal(&a->in, &b->in) && names_equal(&a->out, &b->out);
}

static Loc chosen_at(const Lower *l, const Group *group)
{
    Loc at = group->ast ? group->ast->name_loc : l->model->name_loc;
    for (const Ast *ast = l->file; ast && !group->ast; ast = ast->next)
        for (const Ast *line = ast->kind == A_TRAIN ? ast->body : NULL; line; line = line->next)
            if (line->name && strcmp(line->name, "optimizer") == 0)
                at = line->child->loc;
    return at;
}

/* An optimizer that calls orthogonal() has nothing to do with a bias. */
static void refuse_matrix(Update *u)
{
    const char *name = u->group->declared->name;
    const Where at = { .at = chosen_at(u->l, u->group),
                       .help = "a group in train gives it another optimizer, as adamw(lr = 1e-3)" };
    if (!u->matrix.in.count)
        complain(u->l, at, "%s updates matrices, and the parameter '%s' is none", name, u->param->path);
    else
        complain(u->l, at, "%s multiplies '%s' by itself, and the product would have more than %d dims", name,
                 u->param->path, MAX_RANK);
}

void lower_updates(Lower *l)
{
    int refused = 0; /* parameters; what else is wrong with an optimizer is reported once */
    for (Param *param = l->m->params; param; param = param->next) {
        Update u = { .l = l, .group = group_for(l, param), .param = param, .decays = param->decay };
        u.matrix = matrix_of(l, param);
        for (const Param *other = l->m->params; other != param && !param->update; other = other->next) {
            const Matrix like = matrix_of(l, other);
            if (!other->frozen && !other->state && other->decay == u.decays && type_equal(&other->type, &param->type) &&
                group_for(l, other) == u.group && same_matrix(&like, &u.matrix))
                param->update = other->update;
        }
        if (param->frozen || param->state || param->update)
            continue;
        if (l->diags->errors == refused)
            param->update = lower_optimizer(&u)->name;
        if (u.matrix.refused) {
            refuse_matrix(&u);
            refused++;
        }
    }
}
