/* build.c -- creates and removes functions, values and ops. */
#include "ir.h"
#include "map.h"
#include "split_loop.h"

#include <stdlib.h>
#include <string.h>

static const char kernel_prefix[] = "k.";

Name free_kernel_name(Module *m, const Op *op, const char *suffix)
{
    const char *path = op->path ? op->path : info(op)->name;
    return free_func_name(m, intern_format(m, "%s%s%s", kernel_prefix, path, suffix));
}

const char *kernel_path(const Func *kernel)
{
    const size_t length = sizeof kernel_prefix - 1;
    return kernel->name + (strncmp(kernel->name, kernel_prefix, length) == 0 ? length : 0);
}

Value *add_param(Module *m, Func *f, Name name, Type type)
{
    Value *value = NEW(&m->arena, Value);
    *value = (Value){ .name = name, .type = type };
    push_value(&m->arena, &f->params, value);
    return value;
}

Value *param_named(const Func *f, Name name)
{
    for (int i = 0; i < f->params.count; i++)
        if (f->params.at[i]->name == name)
            return f->params.at[i];
    return NULL;
}

/* Called for each op, so without printf(). */
Name fresh_name(Module *m)
{
    char digits[12];
    int at = (int)sizeof digits;
    for (int left = ++m->fresh; left; left /= 10)
        digits[--at] = (char)('0' + left % 10);
    return intern(m, digits + at, (int)sizeof digits - at);
}

Name free_name(Module *m, const Func *f, Name name)
{
    bool is_taken = param_named(f, name) != NULL;
    for (const Op *op = f->first; op && !is_taken; op = op->next)
        for (int i = 0; i < op->results.count; i++)
            is_taken |= op->results.at[i]->name == name;
    return is_taken ? fresh_name(m) : name;
}

void insert_op(Func *f, Op *op, Op *before)
{
    op->next = before;
    op->prev = before ? before->prev : f->last;
    *(op->prev ? &op->prev->next : &f->first) = op;
    *(before ? &before->prev : &f->last) = op;
}

void remove_op(Func *f, Op *op)
{
    *(op->prev ? &op->prev->next : &f->first) = op->next;
    *(op->next ? &op->next->prev : &f->last) = op->prev;
}

static Values room_for_values(Arena *arena, int count)
{
    return (Values){ .room = count, .at = count ? NEW_ARRAY(arena, Value *, count) : NULL };
}

/* like: whose results have the names; NULL: new ones. */
static Op *try_build_like(Builder *b, OpKind kind, const Attrs *attrs, int nargs, Value *const args[], const Op *like)
{
    Module *m = b->module;
    Op *op = NEW(&m->arena, Op);
    op->kind = kind, op->attrs = *attrs, op->loc = b->loc, op->path = b->path, op->where = b->where;
    op->args = room_for_values(&m->arena, nargs);
    for (int i = 0; i < nargs; i++)
        op->args.at[op->args.count++] = args[i];
    const Type *types = infer_results(m, op);
    if (!types)
        return NULL;
    const int nresults = result_count(m, op);
    op->results = room_for_values(&m->arena, nresults);
    for (int i = 0; i < nresults; i++) {
        Value *value = NEW(&m->arena, Value);
        value->name = like ? like->results.at[i]->name : fresh_name(m), value->type = types[i], value->def = op;
        op->results.at[op->results.count++] = value;
    }
    m->fresh += like ? nresults : 0; /* numbers of names do not depend on which ops are copies */
    insert_op(b->func, op, b->before);
    note_split_loop(m, op);
    return op;
}

Op *try_build(Builder *b, OpKind kind, Attrs attrs, int nargs, Value *const args[])
{
    return try_build_like(b, kind, &attrs, nargs, args, NULL);
}

void report_ill_typed(Module *m, const Func *f, OpKind kind, int nargs, Value *const args[])
{
    fprintf(stderr, "mpc: internal error: a pass built an ill-typed %s in @%s", op_table[kind].name, f->name);
    for (int i = 0; i < nargs; i++)
        fprintf(stderr, "%s %%%s : %s", i ? "," : "", args[i]->name, type_text(m, &args[i]->type));
    fputc('\n', stderr);
    abort();
}

static Op *build_as(Builder *b, OpKind kind, const Attrs *attrs, int nargs, Value *const args[], const Op *like)
{
    Op *op = try_build_like(b, kind, attrs, nargs, args, like);
    if (!op)
        report_ill_typed(b->module, b->func, kind, nargs, args);
    return op;
}

Op *build(Builder *b, OpKind kind, Attrs attrs, int nargs, Value *const args[])
{
    return build_as(b, kind, &attrs, nargs, args, NULL);
}

Value *build_op(Builder *b, OpKind kind, Attrs attrs, int nargs, Value *const args[])
{
    return result(build(b, kind, attrs, nargs, args));
}

Value *build_number(Builder *b, double value) { return build_op(b, OP_constant, (Attrs){ .value = value }, 0, NULL); }

Value *build_cast(Builder *b, DType dtype, Value *x)
{
    const Attrs attrs = { .dtype = intern_text(b->module, dtype_name[dtype]) };
    return x->type.dtype == dtype ? x : BUILD(b, OP_cast, attrs, x);
}

Value *build_rounded(Builder *b, DType dtype, Value *x)
{
    return dtype == BF16  ? BUILD(b, OP_round_bf16, NO_ATTRS, x)
           : dtype == F16 ? BUILD(b, OP_round_f16, NO_ATTRS, x)
                          : x;
}

Op *clone_op(Builder *b, const Op *op, Value *const args[])
{
    Builder at = *b;
    at.loc = op->loc, at.path = op->path, at.where = op->where;
    return build_as(&at, op->kind, &op->attrs, op->args.count, args, op);
}

Op *clone_mapped(Builder *b, const Op *op, Map *own)
{
    Value **args = NEW_ARRAY(&b->module->arena, Value *, op->args.count + 1);
    for (int i = 0; i < op->args.count; i++)
        args[i] = map_get(own, arg(op, i));
    Op *clone = clone_op(b, op, args);
    for (int i = 0; i < op->results.count; i++)
        map_put(own, op->results.at[i], clone->results.at[i]);
    return clone;
}

Func *copy_func(Module *m, const Func *f, const char *suffix)
{
    Name name = f->name;
    do
        name = intern_format(m, "%s%s", name, suffix);
    while (find_func(m, name));
    Func *copy = add_func(m, name, f->role);
    copy->forward = f->forward, copy->inner = f->inner;
    Map inside = { .arena = &m->arena };
    for (int i = 0; i < f->params.count; i++) {
        const Value *param = f->params.at[i];
        Value *own = add_param(m, copy, param->name, param->type);
        own->port = param->port;
        map_put(&inside, param, own);
    }
    for (const Op *op = f->first; op; op = op->next) {
        Builder b = { .module = m, .func = copy };
        Op *own = clone_mapped(&b, op, &inside);
        if (op->attrs.callee)
            own->attrs.callee = copy_func(m, find_func(m, op->attrs.callee), suffix)->name;
    }
    for (int i = 0; i < f->results.count; i++)
        add_result(m, copy, map_get(&inside, f->results.at[i]), result_port(f, i));
    return copy;
}

Builder builder_at(Module *m, Func *f, Op *before)
{
    Builder b = { .module = m, .func = f, .before = before };
    if (before)
        b.loc = before->loc, b.path = before->path, b.where = before->where;
    return b;
}

void note_read(Map *read, const Values *values)
{
    for (int i = 0; i < values->count; i++)
        map_put(read, values->at[i], values->at[i]);
}

/* Backwards: readers of a value come after its op. */
void remove_dead_ops(Func *f, Map *read)
{
    note_read(read, &f->results);
    for (Op *op = f->last, *above; op; op = above) {
        above = op->prev;
        bool live = false;
        for (int i = 0; i < op->results.count && !live; i++)
            live = map_get(read, op->results.at[i]) != NULL;
        if (live)
            note_read(read, &op->args);
        else
            remove_op(f, op);
    }
}

void replace_value(Values *values, const Value *old, Value *with)
{
    for (int i = 0; i < values->count; i++)
        if (values->at[i] == old)
            values->at[i] = with;
}

void replace_uses(Func *f, const Value *old, Value *with)
{
    for (Op *op = f->first; op; op = op->next)
        replace_value(&op->args, old, with);
    replace_value(&f->results, old, with);
}

bool is_used(const Func *f, const Value *value)
{
    for (const Op *op = f->first; op; op = op->next)
        if (index_of(&op->args, value) >= 0)
            return true;
    return index_of(&f->results, value) >= 0;
}

bool is_zeros(const Value *value)
{
    while (value->def && info(value->def)->traits & COPIES)
        value = arg(value->def, 0);
    return is_number(value, 0);
}

bool same_order(const Type *a, const Type *b)
{
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i].name != b->dim[i].name)
            return false;
    return true;
}

Value *build_like(Builder *b, Value *x, const Type *like)
{
    Attrs spread = { 0 }, order = { 0 };
    for (int i = 0; i < like->rank; i++) {
        if (find_dim(&x->type, like->dim[i].name) < 0)
            spread.dims.dim[spread.dims.count++] = like->dim[i];
        add_name(&order.order, like->dim[i].name);
    }
    x = spread.dims.count ? BUILD(b, OP_broadcast, spread, x) : x;
    return same_order(&x->type, like) ? x : BUILD(b, OP_reorder, order, x);
}

Value *build_rows(Builder *b, Value *x, const Value *place, const Names *over)
{
    Attrs spread = { 0 };
    Dims lacking = { 0 };
    for (int i = 0; i < place->type.rank; i++) {
        const Dim *dim = &place->type.dim[i];
        if (!has_name(over, dim->name))
            continue;
        if (find_dim(&x->type, dim->name) >= 0)
            spread.dims = dim->size > 1 ? lacking : spread.dims;
        else if (dim->size > 1)
            lacking.dim[lacking.count++] = *dim;
    }
    return spread.dims.count ? BUILD(b, OP_broadcast, spread, x) : x;
}

Value *build_zeros(Builder *b, const Type *type)
{
    Attrs spread = { .axis = type->partial, .on = type->on };
    Attrs zero = { .dtype = intern_text(b->module, dtype_name[type->dtype]) };
    Value *value = build_op(b, OP_constant, zero, 0, NULL);
    for (int i = 0; i < type->rank; i++)
        spread.dims.dim[spread.dims.count++] = type->dim[i];
    return type->rank || spread.axis || spread.on.at ? BUILD(b, OP_broadcast, spread, value) : value;
}
