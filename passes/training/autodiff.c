/* autodiff.c -- the backward of each function: @h becomes @h.fwd, which also returns residuals for the backward
 * (`saves`), and @h.bwd, which takes these and the gradients of the results.
 *
 *   func @h(%x, %w) {                       func @h.fwd(%x, %w) {           func @h.bwd(%d.y, %x, %y, %w) {
 *     %u = dot %x, %w {over=embed}            %u = dot %x, %w                 %1 = mul %d.y, (1 - %y * %y)
 *     %y = tanh %u                            %y = tanh %u                    %2 = dot %1, %w {over=ff}
 *     return %y                               return %y saves(%x, %y)         %3 = dot %1, %x {over=batch}
 *                                                                             return %2, %3
 *
 * A loop's backward is a loop in reverse: gradients of carried values are carried, gradients of slices are stacked,
 * gradients of shared operands are summed.  Reverse mode as in Griewank and Walther, Evaluating Derivatives (2008),
 * chapter 3, function by function.
 */
#include "autodiff.h"

#include "map.h"
#include "simplify/cleanup.h"
#include "uses.h"

#include <string.h>

typedef struct {
    Module *m;
    Func *f;     /* being differentiated */
    int carried; /* number of carried parameters */
    Builder b;   /* into its backward */
    const Map *useful;
    Map active;     /* useful values of f that depend on a differentiated parameter */
    Map gradient;   /* value of f -> its gradient so far */
    Map recorded;   /* those gradients: one value may be the gradient of several */
    Map derivative; /* loop or call -> Derivative of its callee */
} State;

static Value *sum_over(Builder *b, Value *x, Names over)
{
    return over.count ? BUILD(b, OP_sum, (Attrs){ .over = over }, x) : x;
}

/* If `is_new`, x has no other reader: an op that sums in f32 can then return its sum unrounded. */
static Value *cast_sum(Builder *b, Value *x, DType dtype, bool is_new)
{
    const bool may_widen = is_new && x->def && x->type.dtype != dtype && info(x->def)->traits & WIDENS;
    if (may_widen && !first_reader(x->def->next, &(Values){ .count = 1, .at = &x })) {
        x->def->attrs.dtype = intern_text(b->module, dtype_name[dtype]);
        x->type.dtype = dtype;
        return x;
    }
    return build_cast(b, dtype, x);
}

/* The gradient of an operand of `type` from a term of an op over `space`: the sum over the dims that the operand lacks.
 * Along a dim that the term lacks too, the sum is a multiplication by the dim's size.  Dims of the operand that the
 * gradient lacks broadcast by name at its uses. */
static Value *fit(Builder *b, Value *term, const Type *space, const Type *type, DType dtype, bool is_new)
{
    double times = 1;
    for (int i = 0; i < space->rank; i++)
        if (find_dim(type, space->dim[i].name) < 0 && find_dim(&term->type, space->dim[i].name) < 0)
            times *= (double)space->dim[i].size;
    Value *gradient = cast_sum(b, sum_over(b, term, dims_lacking(&term->type, type)), dtype, is_new);
    return times == 1 ? gradient : BUILD(b, OP_mul, NO_ATTRS, gradient, build_number(b, times));
}

Value *finish_gradient(Builder *b, Value *gradient, const Type *type, DType dtype)
{
    gradient = sum_over(b, gradient, dims_lacking(&gradient->type, type));
    return build_like(b, build_cast(b, dtype, gradient), type);
}

/* --- Active values, and callees ------------------------------------------------------------ */

static bool is_active(const State *s, const Value *value) { return map_get(&s->active, value) != NULL; }

static void set_active(State *s, Value *value)
{
    if (map_get(s->useful, value))
        map_put(&s->active, value, value);
}

static bool *new_flags(Module *m, int count) { return NEW_ARRAY(&m->arena, bool, count); }

/* The new results of a call or loop whose callee now returns residuals too. */
static void extend_results(Module *m, Op *op)
{
    const Func *callee = find_func(m, op->attrs.callee);
    const Type *types = infer_results(m, op);
    if (!types)
        return; /* reported */
    for (int i = op->results.count; i < callee->results.count; i++) {
        Value *value = NEW(&m->arena, Value);
        *value = (Value){ .name = fresh_name(m), .type = types[i], .def = op };
        push_value(&m->arena, &op->results, value);
    }
}

static Derivative *differentiate(Module *m, Func *f, bool *active, bool *shared, int carried, const Map *useful);

/* Differentiates the callee of a loop or call with respect to the active operands. */
static void differentiate_callee(State *s, Op *op)
{
    Module *m = s->m;
    Func *callee = find_func(m, op->attrs.callee);
    int n = op->args.count, carried = (int)op->attrs.carried;
    bool *active = new_flags(m, n), *shared = new_flags(m, n), any = false;
    for (int i = 0; i < n; i++) {
        active[i] = is_active(s, arg(op, i));
        any |= active[i];
        shared[i] = is_captured(op, i);
    }
    if (!any)
        return;
    Derivative *d = differentiate(m, callee, active, shared, carried, s->useful);
    map_put(&s->derivative, op, d);
    op->attrs.callee = d->fwd->name;
    extend_results(m, op);
    for (int i = 0, end = first_residual(d->fwd); i < end; i++)
        set_active(s, op->results.at[i]);
}

static void find_active(State *s, const bool *wanted)
{
    for (int i = 0; i < s->f->params.count; i++)
        if (wanted[i])
            set_active(s, s->f->params.at[i]);
    for (Op *op = s->f->first; op; op = op->next) {
        if (info(op)->family == CONTROL) {
            differentiate_callee(s, op);
            continue;
        }
        bool any = false;
        for (int i = 0; i < op->args.count; i++)
            any |= is_active(s, arg(op, i));
        const OpInfo *row = info(op);
        bool stops = row->family == POINTWISE && !row->gradient[0] && !row->gradient[1] && !row->gradient[2] &&
                     row->forward; /* a MAP without gradients in its row */
        for (int i = 0; any && !stops && i < op->results.count; i++)
            set_active(s, op->results.at[i]);
    }
}

/* --- Reverse mode -------------------------------------------------------------------------- */

/* The gradient of a parameter is summed in f32; other gradients have the dtype of the value. */
static DType gradient_dtype(const Value *value, bool param) { return param ? F32 : value->type.dtype; }

static bool is_param(const State *s, const Value *value)
{
    int at = value->def ? -1 : index_of(&s->f->params, value);
    return at >= s->carried;
}

/* `space`: the space of the op. */
static void add_gradient(State *s, const Value *value, Value *term, const Type *space)
{
    if (!term || !is_active(s, value))
        return;
    Value *sum = map_get(&s->gradient, value);
    bool is_new = !map_get(&s->recorded, term);
    term = fit(&s->b, term, space, &value->type, gradient_dtype(value, is_param(s, value)), is_new);
    term = sum ? BUILD(&s->b, OP_add, NO_ATTRS, sum, term) : term;
    map_put(&s->gradient, value, term);
    map_put(&s->recorded, term, term);
}

static Value *gradient_or_zeros(State *s, Value *value)
{
    Value *gradient = map_get(&s->gradient, value);
    return gradient ? finish_gradient(&s->b, gradient, &value->type, value->type.dtype)
                    : build_zeros(&s->b, &value->type);
}

/* The backward of a loop or a call: operands in the order of Derivative. */
static void reverse_call(State *s, const Op *op, const Derivative *d)
{
    Module *m = s->m;
    Values args = { 0 };
    int n = d->fwd->params.count, returned = first_residual(d->fwd);
    for (int i = 0; i < d->carried; i++)
        if (d->given[i])
            push_value(&m->arena, &args, gradient_or_zeros(s, op->results.at[i]));
    for (int i = 0; i < n; i++)
        if (d->active[i] && d->shared[i]) {
            Type type = arg(op, i)->type;
            type.dtype = gradient_dtype(arg(op, i), true);
            push_value(&m->arena, &args, build_zeros(&s->b, &type));
        }
    const bool is_loop = op->attrs.dims.count > 0;
    Attrs attrs = { .callee = d->bwd->name,
                    .dims = op->attrs.dims,
                    .scan = op->attrs.scan,
                    .chunked = op->attrs.chunked,
                    .reverse = is_loop && !op->attrs.reverse,
                    .carried = is_loop ? args.count : 0 };
    for (int i = d->carried; i < returned; i++)
        if (d->given[i])
            push_value(&m->arena, &args, gradient_or_zeros(s, op->results.at[i]));
    for (int i = returned; i < op->results.count; i++)
        push_value(&m->arena, &args, op->results.at[i]);
    for (int i = 0; i < d->read.count; i++)
        push_value(&m->arena, &args, arg(op, index_of(&d->fwd->params, d->read.at[i])));
    const Op *back = build(&s->b, op->kind, attrs, args.count, args.at);
    int next = 0;
    for (int phase = 0; phase < 3; phase++) /* carried, shared, the others */
        for (int i = 0; i < n; i++) {
            int kind = i < d->carried ? 0 : d->shared[i] ? 1 : 2;
            if (!d->active[i] || kind != phase)
                continue;
            Value *gradient = back->results.at[next++];
            if (!d->unread[i])
                add_gradient(s, arg(op, i), gradient, &arg(op, i)->type);
        }
}

static void reverse_op(State *s, const Op *op)
{
    Value **dy = NEW_ARRAY(&s->m->arena, Value *, op->results.count), *dx[8] = { NULL };
    bool any = false;
    s->b.loc = op->loc, s->b.path = op->path, s->b.where = op->where;
    for (int i = 0; i < op->results.count; i++) {
        dy[i] = map_get(&s->gradient, op->results.at[i]);
        any |= dy[i] != NULL;
    }
    if (!any)
        return;
    const Derivative *d = map_get(&s->derivative, op);
    if (d) {
        reverse_call(s, op, d);
        return;
    }
    /* Pointwise gradients and sums broadcast by name, except for positional ops; all others require a dy with all
     * dims. */
    bool by_name = (info(op)->family == POINTWISE || info(op)->family == REDUCTION) && !(info(op)->traits & POSITIONAL);
    for (int i = 0; i < op->results.count; i++)
        if (dy[i] && !by_name)
            dy[i] = finish_gradient(&s->b, dy[i], &op->results.at[i]->type, dy[i]->type.dtype);
    vjp_table[op->kind](&s->b, op, dy, dx);
    /* The space of a pointwise op is that of its result; terms may lack dims if `by_name`. */
    for (int i = 0; i < op->args.count; i++)
        add_gradient(s, arg(op, i), dx[i], by_name ? &result(op)->type : &arg(op, i)->type);
}

/* --- The interface of the backward --------------------------------------------------------- */

/* A forward value in the backward: a number is computed again, a parameter is passed on, anything else is a
 * residual. */
static void import(State *s, Derivative *d, Value *value, Map *imported)
{
    Module *m = s->m;
    if (map_get(imported, value))
        return;
    if (value->def && info(value->def)->family == LEAF) {
        Builder b = builder_at(m, d->bwd, d->bwd->first);
        map_put(imported, value, build_op(&b, value->def->kind, value->def->attrs, 0, NULL));
        return;
    }
    Value *copy = NEW(&m->arena, Value);
    *copy = (Value){ .name = value->name, .type = value->type, .port = { .kind = PORT_FORWARD, .of = value->name } };
    map_put(imported, value, copy);
    int param = index_of(&s->f->params, value);
    if (param >= 0 && param >= d->carried) {
        push_value(&m->arena, &d->read, value);
        return;
    }
    add_result(m, s->f, value, (Port){ .kind = PORT_RESIDUAL });
}

static void import_all(State *s, Derivative *d)
{
    Map imported = { .arena = &s->m->arena }, own = { .arena = &s->m->arena };
    Func *g = d->bwd;
    note_read(&own, &g->params);
    for (Op *op = g->first; op; op = op->next) {
        for (int i = 0; i < op->args.count; i++) {
            Value *value = arg(op, i);
            if (map_get(&own, value))
                continue;
            import(s, d, value, &imported);
            op->args.at[i] = map_get(&imported, value);
        }
        note_read(&own, &op->results);
    }
    for (int i = first_residual(s->f); i < s->f->results.count; i++)
        push_value(&s->m->arena, &g->params, map_get(&imported, s->f->results.at[i]));
    for (int i = 0; i < d->read.count; i++)
        push_value(&s->m->arena, &g->params, map_get(&imported, d->read.at[i]));
}

/* Stops of gradients have done their work: their readers read the operand, and equal values become one, for the
 * backward too. (Returned ones stay, since results are values of their own.) */
static void drop_stops(Func *f, Func *bwd)
{
    Arena scratch = { 0 };
    Map instead = { .arena = &scratch };
    for (const Op *op = f->first; op; op = op->next)
        if (op->kind == OP_stop_gradient && index_of(&f->results, result(op)) < 0)
            map_put(&instead, result(op), arg(op, 0));
    if (instead.count) {
        note_equal(f, &instead);
        drop_dead(f);
    }
    for (Op *op = bwd ? bwd->first : NULL; op; op = op->next)
        resolve_all(&instead, &op->args);
    if (bwd)
        resolve_all(&instead, &bwd->results);
    arena_free(&scratch);
}

static void take_result_gradients(State *s, const Derivative *d, int first, int end)
{
    for (int i = first; i < end; i++) {
        Value *value = s->f->results.at[i];
        d->given[i] = i < d->carried ? d->active[i] : map_get(s->useful, value) != NULL;
        if (!d->given[i])
            continue;
        Name name = intern_format(s->m, "d.%s", value->name);
        if (param_named(d->bwd, name)) /* one value, returned twice */
            name = fresh_name(s->m);
        Value *dy = add_param(s->m, d->bwd, name, value->type);
        Value *sum = map_get(&s->gradient, value);
        map_put(&s->gradient, value, sum ? BUILD(&s->b, OP_add, NO_ATTRS, sum, dy) : dy);
    }
}

static void return_gradients(State *s, Derivative *d, Value *const accumulator[])
{
    for (int phase = 0; phase < 3; phase++)
        for (int i = 0; i < d->fwd->params.count; i++) {
            Value *value = s->f->params.at[i];
            int kind = i < d->carried ? 0 : d->shared[i] ? 1 : 2;
            if (!d->active[i] || kind != phase)
                continue;
            DType dtype = gradient_dtype(value, kind != 0);
            Value *gradient = map_get(&s->gradient, value);
            d->unread[i] = !gradient;
            Type type = value->type;
            type.dtype = dtype;
            gradient = gradient ? finish_gradient(&s->b, gradient, &value->type, dtype) : build_zeros(&s->b, &type);
            if (kind == 1)
                gradient = BUILD(&s->b, OP_add, NO_ATTRS, accumulator[i], gradient);
            push_value(&s->m->arena, &d->bwd->results, gradient);
        }
}

static Value **add_accumulators(State *s, const Derivative *d)
{
    Value **accumulator = NEW_ARRAY(&s->m->arena, Value *, d->fwd->params.count);
    for (int i = 0; i < d->fwd->params.count; i++) {
        Value *value = s->f->params.at[i];
        Type type = value->type;
        type.dtype = gradient_dtype(value, true);
        if (d->active[i] && d->shared[i])
            accumulator[i] = add_param(s->m, d->bwd, intern_format(s->m, "sum.%s", value->name), type);
    }
    return accumulator;
}

/* A useful carried value is active if an iteration may compute it from an active one. */
static void find_active_carried(const Func *f, bool *active, int carried, const Map *useful)
{
    bool any = false;
    for (int i = 0; i < f->params.count; i++)
        any |= active[i];
    for (int i = 0; i < carried; i++)
        active[i] |= any && (map_get(useful, f->params.at[i]) || map_get(useful, f->results.at[i]));
}

static Derivative *differentiate(Module *m, Func *f, bool *active, bool *shared, int carried, const Map *useful)
{
    Derivative *d = NEW(&m->arena, Derivative);
    find_active_carried(f, active, carried, useful);
    *d = (Derivative){ .fwd = f, .carried = carried, .active = active, .shared = shared };
    d->unread = new_flags(m, f->params.count + 1);
    d->given = new_flags(m, f->results.count + 1);
    State s = { .m = m,
                .f = f,
                .carried = carried,
                .useful = useful,
                .active.arena = &m->arena,
                .gradient.arena = &m->arena,
                .recorded.arena = &m->arena,
                .derivative.arena = &m->arena };
    find_active(&s, active);
    d->bwd = add_func(m, intern_format(m, "%s.bwd", f->name), PLAIN);
    rename_func(m, f, intern_format(m, "%s.fwd", f->name));
    d->bwd->forward = f->name;
    f->role = PLAIN;
    s.b = (Builder){ .module = m, .func = d->bwd };
    take_result_gradients(&s, d, 0, carried);
    Value **accumulator = add_accumulators(&s, d);
    take_result_gradients(&s, d, carried, f->results.count);
    for (const Op *op = f->last; op; op = op->prev)
        reverse_op(&s, op);
    return_gradients(&s, d, accumulator);
    drop_stops(f, d->bwd);
    import_all(&s, d);
    share_equal(d->bwd);
    drop_dead(d->bwd);
    return d;
}

void pass_autodiff(Module *m);
void pass_autodiff(Module *m)
{
    Func *model = func_with_role(m, MODEL);
    bool *active = new_flags(m, model->params.count);
    for (int i = 0; i < model->params.count; i++)
        active[i] = has_gradient(m, model->params.at[i]->port);
    Map useful = { .arena = &m->arena };
    find_useful(m, model, &useful);
    const Derivative *derivative = differentiate(m, model, active, new_flags(m, model->params.count), 0, &useful);
    hoist_products(m);
    write_step(m, derivative);
    for (Func *f = m->funcs; f; f = f->next)
        drop_stops(f, NULL);
}
