/* uses.c -- see uses.h. */
#include "uses.h"

static void note_user(Uses *uses, const Value *value, Op *op)
{
    Arena *arena = uses->users.arena;
    Users *users = map_get(&uses->users, value);
    if (!users) {
        users = NEW(arena, Users);
        map_put(&uses->users, value, users);
    }
    if (users->count && users->op[users->count - 1] == op)
        return;
    GROW(arena, users->op, users->count, users->room);
    users->op[users->count++] = op;
}

void note_op(Uses *uses, Op *op)
{
    for (int i = 0; i < op->args.count; i++)
        note_user(uses, arg(op, i), op);
}

Uses find_uses(Arena *arena, const Func *f)
{
    Uses uses = { .users.arena = arena };
    for (Op *op = f->first; op; op = op->next)
        note_op(&uses, op);
    return uses;
}

const Users *users_of(const Uses *uses, const Value *value)
{
    static const Users none;
    const Users *users = map_get(&uses->users, value);
    return users ? users : &none;
}

int uses_in(const Func *f, const Value *value)
{
    int uses = 0;
    for (const Op *op = f->first; op; op = op->next)
        for (int i = 0; i < op->args.count; i++)
            uses += arg(op, i) == value;
    for (int i = 0; i < f->results.count; i++)
        uses += f->results.at[i] == value;
    return uses;
}

void note_with_operands(Map *set, const Op *op)
{
    if (!op || map_get(set, op))
        return;
    map_put(set, op, set);
    for (int i = 0; i < op->args.count; i++)
        note_with_operands(set, arg(op, i)->def);
}

void replace_known_uses(Uses *uses, Func *f, Value *old, Value *with)
{
    Users *users = map_get(&uses->users, old);
    for (int i = 0; users && i < users->count; i++) {
        replace_value(&users->op[i]->args, old, with);
        note_user(uses, with, users->op[i]);
    }
    if (users)
        users->count = 0;
    replace_value(&f->results, old, with);
}

/* Does it reduce rows, in a kernel whose loops are those of the parameter alone? */
static bool reduces_rows(const Func *kernel, const Op *op, const Value *param)
{
    const Names rows = dims_lacking(&arg(op, 0)->type, &result(op)->type);
    bool good = info(op)->family == REDUCTION;
    for (int i = 0; i < rows.count; i++)
        good &= has_name(&kernel->inner, rows.name[i]);
    for (const Op *other = kernel->first; good && other; other = other->next)
        good = dims_lacking(&result(other)->type, &param->type).count == 0;
    return good;
}

bool is_read_after_results(Arena *arena, const Func *kernel, const Value *param)
{
    Map derived = { .arena = arena };
    map_put(&derived, param, (void *)param);
    for (const Op *op = kernel->first; op; op = op->next) {
        bool reads = false;
        for (int i = 0; i < op->args.count; i++)
            reads |= map_get(&derived, arg(op, i)) != NULL;
        if (!reads || reduces_rows(kernel, op, param))
            continue;
        if (info(op)->family != POINTWISE || result(op)->type.rank != param->type.rank)
            return true;
        map_put(&derived, result(op), (void *)param);
    }
    return false;
}

const Value *value_before_casts(const Value *value)
{
    while (value->def && value->def->args.count == 1 && info(value->def)->traits & (ROUNDS | COPIES))
        value = arg(value->def, 0);
    return value;
}

bool is_extreme_of(const Value *value, const Value *x)
{
    value = value_before_casts(value);
    const Op *op = value->def && info(value->def)->family == REDUCTION ? value->def : NULL;
    return op && (info(op)->over == MAX || info(op)->over == MIN) &&
           value_before_casts(arg(op, 0)) == value_before_casts(x);
}

static bool reads_any(const Op *op, const Values *values)
{
    for (int i = 0; i < op->args.count; i++)
        if (index_of(values, arg(op, i)) >= 0)
            return true;
    return false;
}

Op *first_reader(Op *op, const Values *values)
{
    while (op && !reads_any(op, values))
        op = op->next;
    return op;
}

Map note_callers(Module *m)
{
    Map caller = { .arena = &m->arena };
    for (const Func *f = m->funcs; f; f = f->next)
        for (Op *op = f->first; op; op = op->next)
            if (op->attrs.callee)
                map_put(&caller, op->attrs.callee, map_get(&caller, op->attrs.callee) ? (void *)m : op);
    return caller;
}

Op *only_caller(const Module *m, const Map *callers, const Func *f)
{
    void *caller = map_get(callers, f->name);
    return caller == m ? NULL : caller;
}
