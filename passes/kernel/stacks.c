/* stacks.c -- kernels over stacks of which the stages of a pipeline have parts of different sizes: once for each copy.
 *
 *   %dw = call %w, %lr {callee=k} : f32[h.copy:7/pp(3+4), embed:64]
 *   =>
 *   %dw = loop %w, %lr {dims=[h.copy:7/pp(3+4)], callee=k.copy} : f32[h.copy:7/pp(3+4), embed:64]
 *
 * A kernel over a whole stack would have the same size on all ranks, that of the largest stage.  A loop in stages runs
 * on each stage over its own copies, so that it needs memory for these alone.  A sum over all copies is a sum of those
 * of each:
 *
 *   %norm = call %dw {callee=k}        with  %1 = sum %dw {over=h.copy+embed}
 *   =>
 *   %2 = loop %dw {dims=[h.copy:7/pp(3+4)], callee=k.copy} : f32[h.copy:7/pp(3+4)]
 *   %norm = call %2 {callee=k.copies}  with  %1 = sum of %2, and zeros in its padding, over h.copy
 */
#include "fuse.h"
#include "manager/pass.h"
#include "map.h"

typedef struct {
    Module *m;
    Func *f;
    Op *call;
    const Func *kernel;
    Dim copies; /* the dim of the stacks */
} Stack;

/* The dim along which stages have parts of their own sizes; NULL: there is none. */
static const Dim *uneven_dim(const Type *type)
{
    return type->rank > 1 && type->dim[0].split.parts ? &type->dim[0] : NULL;
}

static const Dim *copies_of(const Op *call)
{
    const Dim *dim = NULL;
    for (int i = 0; !dim && i < call->args.count + call->results.count; i++)
        dim = uneven_dim(&arg_or_result(call, i)->type);
    return dim;
}

/* --- Is it possible? ------------------------------------------------------------------------------- */

static bool is_first_or_none(const Type *type, Name dim) { return find_dim(type, dim) <= 0; }

static bool is_read(const Func *kernel, const Value *value)
{
    for (const Op *op = kernel->first; op; op = op->next)
        if (index_of(&op->args, value) >= 0)
            return true;
    return false;
}

/* Is it a sum over the copies, which nothing else in the kernel reads? */
static bool adds_copies(const Stack *s, const Op *op)
{
    return info(op)->family == REDUCTION && op_role(op, s->copies.name) == SUM;
}

static bool is_total(const Stack *s, const Value *value)
{
    return value->def && adds_copies(s, value->def) && value->type.dtype == F32 && !is_read(s->kernel, value) &&
           value->def->attrs.over.count > 1;
}

static bool has_copies(const Stack *s, const Op *op)
{
    bool has = false;
    for (int i = 0; i < op->args.count + op->results.count; i++)
        has |= find_dim(&arg_or_result(op, i)->type, s->copies.name) >= 0;
    return has;
}

/* May it run on one copy?  Positions are those in the whole stack. */
static bool runs_on_one(const Stack *s, const Op *op)
{
    const Family family = info(op)->family;
    if (!has_copies(s, op))
        return true;
    if (family != POINTWISE && family != REDUCTION)
        return false;
    for (int i = 0; i < op->args.count + op->results.count; i++)
        if (!is_first_or_none(&arg_or_result(op, i)->type, s->copies.name))
            return false;
    return !(info(op)->traits & POSITIONAL) && !has_name(&op->attrs.order, s->copies.name) &&
           (op_role(op, s->copies.name) == KEEP || is_total(s, result(op)));
}

static bool can_run_once_a_copy(const Stack *s)
{
    for (const Op *op = s->kernel->first; op; op = op->next)
        if (!runs_on_one(s, op))
            return false;
    for (int i = 0; i < s->kernel->results.count; i++) {
        const Value *value = s->kernel->results.at[i];
        if (find_dim(&value->type, s->copies.name) != 0 && !is_total(s, value))
            return false;
    }
    return true;
}

/* --- The kernel of one copy ------------------------------------------------------------------------ */

static Names without_name(Names names, Name name)
{
    Names left = { 0 };
    for (int i = 0; i < names.count; i++)
        if (names.name[i] != name)
            add_name(&left, names.name[i]);
    return left;
}

static Attrs attrs_of_one(const Stack *s, const Op *op)
{
    Attrs attrs = op->attrs;
    attrs.over = without_name(attrs.over, s->copies.name);
    attrs.dims = (Dims){ 0 };
    for (int i = 0; i < op->attrs.dims.count; i++)
        if (op->attrs.dims.dim[i].name != s->copies.name)
            attrs.dims.dim[attrs.dims.count++] = op->attrs.dims.dim[i];
    return attrs;
}

static Func *kernel_of_one(const Stack *s)
{
    Module *m = s->m;
    Func *one = add_func(m, kernel_name(m, s->call, ".copy"), KERNEL);
    Map inside = { .arena = &m->arena };
    one->inner = without_name(s->kernel->inner, s->copies.name);
    for (int i = 0; i < s->kernel->params.count; i++) {
        Value *param = s->kernel->params.at[i];
        map_put(&inside, param, add_param(m, one, param->name, without_dim(param->type, s->copies.name)));
    }
    for (const Op *op = s->kernel->first; op; op = op->next) {
        Builder b = { .module = m, .func = one, .loc = op->loc, .path = op->path, .where = op->where };
        Value **own = NEW_ARRAY(&m->arena, Value *, op->args.count + 1);
        for (int i = 0; i < op->args.count; i++)
            own[i] = map_get(&inside, arg(op, i));
        const Op *clone = build(&b, op->kind, attrs_of_one(s, op), op->args.count, own);
        for (int i = 0; i < op->results.count; i++) {
            clone->results.at[i]->name = op->results.at[i]->name;
            map_put(&inside, op->results.at[i], clone->results.at[i]);
        }
    }
    for (int i = 0; i < s->kernel->results.count; i++)
        push_value(&m->arena, &one->results, map_get(&inside, s->kernel->results.at[i]));
    return one;
}

/* The body of the loop: a call of that kernel. */
static Func *body_of_loop(const Stack *s, const Func *one)
{
    Module *m = s->m;
    Func *body = add_func(m, intern_format(m, "copies.%s", one->name), PLAIN);
    Builder b = { .module = m, .func = body, .loc = s->call->loc, .path = s->call->path, .where = s->call->where };
    for (int i = 0; i < one->params.count; i++)
        add_param(m, body, one->params.at[i]->name, one->params.at[i]->type);
    const Op *call = build(&b, OP_call, (Attrs){ .callee = one->name }, body->params.count, body->params.at);
    for (int i = 0; i < call->results.count; i++)
        push_value(&m->arena, &body->results, call->results.at[i]);
    return body;
}

/* --- Sums over all copies --------------------------------------------------------------------------- */

/* The sum of a value for each copy: of those that there are. */
static Value *sum_of_copies(const Stack *s, const Value *total, Value *each)
{
    Module *m = s->m;
    Func *kernel = add_func(m, kernel_name(m, s->call, ".copies"), KERNEL);
    Builder b = { .module = m, .func = kernel, .loc = s->call->loc, .path = s->call->path, .where = s->call->where };
    Value *x = add_param(m, kernel, total->name, each->type);
    const Attrs along = { .dims = { .count = 1, .dim = { s->copies } } };
    const Attrs limit = { .value = (double)s->copies.size, .dtype = intern_text(m, "i32") };
    Value *inside =
        BUILD(&b, OP_lt, NO_ATTRS, build_op(&b, OP_iota, along, 0, NULL), build_op(&b, OP_constant, limit, 0, NULL));
    Value *zero = build_op(&b, OP_constant, (Attrs){ .dtype = intern_text(m, dtype_name[x->type.dtype]) }, 0, NULL);
    if (x->type.partial)
        zero = BUILD(&b, OP_broadcast, ((Attrs){ .axis = x->type.partial }), zero);
    x = BUILD(&b, OP_where, NO_ATTRS, inside, x, zero);
    add_name(&kernel->inner, s->copies.name);
    push_value(&m->arena, &kernel->results, BUILD(&b, OP_sum, ((Attrs){ .over = kernel->inner }), x));
    Builder at = builder_at(m, s->f, s->call);
    return BUILD(&at, OP_call, (Attrs){ .callee = kernel->name }, each);
}

/* In place of `made`, its op makes `value`, which others read. */
static void make_instead(Value *made, Value *value)
{
    Op *op = made->def;
    op->results.at[index_of(&op->results, made)] = value;
    value->def = op;
    value->type = made->type;
}

static void run_once_a_copy(const Stack *s)
{
    Module *m = s->m;
    const Func *body = body_of_loop(s, kernel_of_one(s));
    Builder b = builder_at(m, s->f, s->call);
    const Attrs attrs = { .callee = body->name, .dims = { .count = 1, .dim = { s->copies } } };
    const Op *loop = build(&b, OP_loop, attrs, s->call->args.count, s->call->args.at);
    for (int i = 0; i < loop->results.count; i++) {
        Value *value = s->call->results.at[i], *made = loop->results.at[i];
        if (is_total(s, s->kernel->results.at[i]))
            made = sum_of_copies(s, value, made);
        make_instead(made, value);
    }
    remove_op(s->f, s->call);
}

/* Those that loops have replaced. */
static void drop_kernels(Module *m)
{
    Map called = { .arena = &m->arena };
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            if (op->attrs.callee)
                map_put(&called, op->attrs.callee, (void *)op);
    for (Func *f = m->funcs, *next; f; f = next) {
        next = f->next;
        if (f->role == KERNEL && !map_get(&called, f->name))
            remove_func(m, f);
    }
}

void pass_stacks(Module *m);
void pass_stacks(Module *m)
{
    for (Func *f = m->funcs; f; f = f->next)
        for (Op *op = f->role == KERNEL ? NULL : f->first, *next; op; op = next) {
            const Func *callee = op->attrs.callee ? find_func(m, op->attrs.callee) : NULL;
            const Dim *copies = callee && callee->role == KERNEL ? copies_of(op) : NULL;
            next = op->next;
            if (!copies)
                continue;
            const Stack s = { .m = m, .f = f, .call = op, .kernel = callee, .copies = *copies };
            if (can_run_once_a_copy(&s))
                run_once_a_copy(&s);
        }
    drop_kernels(m);
}
