/* stacks.c -- kernels over stacks of which the stages of a pipeline have parts of different sizes, or that are in
 * another tier of memory: once for each copy.
 *
 *   %dw = call %w, %lr {callee=k} : f32[h.copy:7/pp(3+4), embed:64]
 *   =>
 *   %dw = loop %w, %lr {dims=[h.copy:7/pp(3+4)], callee=k.copy} : f32[h.copy:7/pp(3+4), embed:64]
 *
 * A kernel over a whole stack would have the same size on all ranks, that of the largest stage.  A loop in stages runs
 * on each stage over its own copies, so that it needs memory for these alone.  Adjacent kernels that do not read each
 * other's results share a loop: the updates of all parameters, say.  A sum over all copies is a sum of those of each:
 *
 *   %norm = call %dw {callee=k}        with  %1 = sum %dw {over=h.copy+embed}
 *   =>
 *   %2 = loop %dw {dims=[h.copy:7/pp(3+4)], callee=k.copy} : f32[h.copy:7/pp(3+4)]
 *   %norm = call %2 {callee=k.copies}  with  %1 = sum of %2, and zeros in its padding, over h.copy
 *
 * Moves of stacks that only the kernel reads or makes are in the loop, too, so that one copy is on the device.
 */
#include "map.h"
#include "tier.h"
#include "uses.h"

typedef struct {
    Module *m;
    Func *f;
    Op *call;
    Func *kernel;
    Dim copies;   /* the dim of the stacks */
    bool is_near; /* none of them is in another tier */
} Stack;

/* The dim along which stages have parts of their own sizes; NULL: there is none. */
static const Dim *uneven_dim(const Type *type)
{
    return type->rank > 1 && type->dim[0].split.parts ? &type->dim[0] : NULL;
}

/* The dim of the copies of a weight, or of its state, or of the blocks of a table, see rows.c; NULL: there is none. */
static const Dim *dim_of_copies(const Module *m, const Value *value)
{
    if (value->def && info(value->def)->traits & FOLDS && value->type.tier)
        return &value->type.dim[0];
    const bool is_stack = is_of_repeat(m, value->port) && value->type.rank > 1 && /* and not a layer's slice */
                          value->type.dim[0].name == find_param(m, value->port.of)->type.dim[0].name;
    return is_stack ? &value->type.dim[0] : NULL;
}

static const Dim *copies_of(const Module *m, const Func *f, const Op *call, bool *is_near)
{
    const Dim *dim = NULL;
    for (int i = 0; !dim && i < call->args.count; i++) {
        const Op *move = fetch_of(f, arg(call, i));
        dim = move ? dim_of_copies(m, arg(move, 0)) : NULL;
    }
    *is_near = !dim;
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

/* All calls of the kernel are to run once a copy. */
static void run_on_one(const Stack *s)
{
    s->kernel->inner = without_name(s->kernel->inner, s->copies.name);
    for (int i = 0; i < s->kernel->params.count; i++)
        s->kernel->params.at[i]->type = without_dim(s->kernel->params.at[i]->type, s->copies.name);
    for (Op *op = s->kernel->first; op; op = op->next) {
        op->attrs = attrs_of_one(s, op);
        const Type *types = infer_results(s->m, op);
        for (int i = 0; types && i < op->results.count; i++)
            op->results.at[i]->type = types[i];
    }
}

/* --- The loop --------------------------------------------------------------------------------------- */

enum { MAX_RESULTS = MAX_KERNEL_VALUES / 2 }; /* one kernel may have to add up all of them */

/* Adjacent calls for one loop. */
typedef struct {
    int count, results;
    Stack at[MAX_RESULTS];
} Run;

/* The operand of a call as a parameter of the body; the loop passes each once. */
static Value *param_of_body(const Stack *s, Func *body, Values *args, Value *value)
{
    const int known = index_of(args, value);
    if (known >= 0)
        return body->params.at[known];
    push_value(&s->m->arena, args, value);
    return add_param(s->m, body, value->name, without_dim(value->type, s->copies.name));
}

static Builder in_body(const Stack *s, Func *body)
{
    return (
        Builder){ .module = s->m, .func = body, .loc = s->call->loc, .path = s->call->path, .where = s->call->where };
}

/* An operand in the body: the parameter, or the result of its move to the device. */
static Value *operand_in_body(const Stack *s, Func *body, Values *args, Value *value)
{
    const Op *move = fetch_of(s->f, value);
    Builder b = in_body(s, body);
    Value *passed = param_of_body(s, body, args, move ? arg(move, 0) : value);
    return move ? build_op(&b, OP_move, move->attrs, 1, &passed) : passed;
}

static void return_from_body(const Stack *s, Func *body, Values *args, Value *made, const Value *value)
{
    const Op *move = move_away_of(s->f, value);
    Builder b = in_body(s, body);
    Value *moved[2] = { made };
    for (int i = 1; move && i < move->args.count; i++)
        moved[i] = param_of_body(s, body, args, arg(move, i));
    push_value(&s->m->arena, &body->results, move ? build_op(&b, OP_move, move->attrs, move->args.count, moved) : made);
}

static void call_in_body(const Stack *s, Func *body, Values *args)
{
    Values own = { 0 };
    Builder b = in_body(s, body);
    for (int i = 0; i < s->call->args.count; i++)
        push_value(&s->m->arena, &own, operand_in_body(s, body, args, arg(s->call, i)));
    const Op *call = build(&b, OP_call, (Attrs){ .callee = s->kernel->name }, own.count, own.at);
    for (int i = 0; i < call->results.count; i++)
        return_from_body(s, body, args, call->results.at[i], s->call->results.at[i]);
}

/* Makes `value`, which has readers, the result of the op that made `made`. */
static void make_instead(Value *made, Value *value)
{
    Op *op = made->def;
    op->results.at[index_of(&op->results, made)] = value;
    value->def = op;
    value->type = made->type;
}

/* Sums over all copies from the sums of each. */
static void add_copies(const Stack *s, const Values *each, const Values *totals)
{
    Module *m = s->m;
    Func *kernel = add_func(m, free_kernel_name(m, s->call, ".copies"), KERNEL);
    Builder b = { .module = m, .func = kernel, .loc = s->call->loc, .path = s->call->path, .where = s->call->where };
    const Attrs along = { .dims = { .count = 1, .dim = { s->copies } } };
    const Attrs limit = { .value = (double)s->copies.size, .dtype = intern_text(m, "i32") };
    Value *inside =
        BUILD(&b, OP_lt, NO_ATTRS, build_op(&b, OP_iota, along, 0, NULL), build_op(&b, OP_constant, limit, 0, NULL));
    add_name(&kernel->inner, s->copies.name);
    for (int i = 0; i < each->count; i++) {
        Value *x = add_param(m, kernel, totals->at[i]->name, each->at[i]->type);
        Value *zero = build_op(&b, OP_constant, (Attrs){ .dtype = intern_text(m, dtype_name[x->type.dtype]) }, 0, NULL);
        if (x->type.partial)
            zero = BUILD(&b, OP_broadcast, ((Attrs){ .axis = x->type.partial }), zero);
        x = BUILD(&b, OP_where, NO_ATTRS, inside, x, zero);
        push_value(&m->arena, &kernel->results, BUILD(&b, OP_sum, ((Attrs){ .over = kernel->inner }), x));
    }
    Builder at = builder_at(m, s->f, s->call);
    const Op *call = build(&at, OP_call, (Attrs){ .callee = kernel->name }, each->count, each->at);
    for (int i = 0; i < each->count; i++)
        make_instead(call->results.at[i], totals->at[i]);
}

static void remove_with_moves(Func *f, Op *call)
{
    for (int i = 0; i < call->args.count; i++) {
        Op *move = fetch_of(f, arg(call, i));
        if (move)
            remove_op(f, move);
    }
    remove_op(f, call);
}

static void run_once_a_copy(const Run *run)
{
    const Stack *first = &run->at[0];
    Module *m = first->m;
    Func *body = add_func(m, free_kernel_name(m, first->call, ".copy"), PLAIN);
    Values args = { 0 }, each = { 0 }, totals = { 0 };
    for (int i = 0; i < run->count; i++)
        call_in_body(&run->at[i], body, &args);
    Builder b = builder_at(m, first->f, first->call);
    const Attrs attrs = { .callee = body->name, .dims = { .count = 1, .dim = { first->copies } } };
    Value *const *made = build(&b, OP_loop, attrs, args.count, args.at)->results.at;
    for (int i = 0; i < run->count; i++)
        for (int j = 0; j < run->at[i].call->results.count; j++, made++) {
            Value *value = run->at[i].call->results.at[j];
            Op *move = move_away_of(first->f, value);
            if (find_dim(&value->type, first->copies.name) == 0) {
                make_instead(*made, move ? result(move) : value);
                if (move)
                    remove_op(first->f, move);
            } else {
                push_value(&m->arena, &each, *made);
                push_value(&m->arena, &totals, value);
            }
        }
    if (totals.count)
        add_copies(first, &each, &totals);
    for (int i = 0; i < run->count; i++)
        remove_with_moves(first->f, run->at[i].call);
}

/* --- Which calls share a loop ------------------------------------------------------------------------ */

static bool reads_any(const Op *call, const Run *run)
{
    for (int i = 0; i < call->args.count; i++)
        for (int j = 0; j < run->count; j++)
            if (arg(call, i)->def == run->at[j].call)
                return true;
    return false;
}

/* Does it cast a gradient that is sent?  A message may start when its own operand is there: see overlap.c. */
static bool is_sent(const Stack *s)
{
    for (const Op *op = s->call->next; op; op = op->next)
        if (op->attrs.purpose == GRADIENT && arg(op, 0)->def == s->call)
            return true;
    return false;
}

/* Does an op make an operand of the call, or read what the call's results are moved over? */
static bool must_be_before(const Stack *s, const Op *op)
{
    for (int i = 0; i < s->call->args.count; i++)
        if (arg(s->call, i)->def == op)
            return op != fetch_of(s->f, arg(s->call, i));
    for (int i = 0; i < s->call->results.count; i++) {
        const Op *move = move_away_of(s->f, s->call->results.at[i]);
        if (move && move->args.count == 2 && index_of(&op->args, arg(move, 1)) >= 0)
            return true;
    }
    return false;
}

/* May it run where the first call of the run is, where the loop will be?  Calls that move nothing are adjacent. */
static bool is_ready(const Stack *s, const Run *run)
{
    for (const Op *op = run->at[0].call; op != s->call; op = op->next)
        if (must_be_before(s, op))
            return false;
    return true;
}

static bool may_share(const Stack *s, const Run *run)
{
    return run->count && run->results + s->call->results.count <= MAX_RESULTS && s->is_near == run->at[0].is_near &&
           dim_equal(&s->copies, &run->at[0].copies) && !reads_any(s->call, run) && (s->is_near || is_ready(s, run)) &&
           !is_sent(s) && !is_sent(&run->at[0]);
}

/* Is it a call that is to run once a copy?  `one`: kernels that already run on one. */
static bool find_stack(Module *m, Func *f, Op *call, Map *one, Stack *s)
{
    Func *callee = call->attrs.callee ? find_func(m, call->attrs.callee) : NULL;
    bool is_near = true;
    const Dim *copies = callee && callee->role == KERNEL ? copies_of(m, f, call, &is_near) : NULL;
    if (!copies)
        return false;
    *s = (Stack){ .m = m, .f = f, .call = call, .kernel = callee, .copies = *copies, .is_near = is_near };
    if (map_get(one, callee))
        return true;
    if (!can_run_once_a_copy(s))
        return false;
    run_on_one(s);
    map_put(one, callee, callee);
    return true;
}

static void end_run(Run *run)
{
    if (run->count)
        run_once_a_copy(run);
    run->count = run->results = 0;
}

static void add_to_run(Run *run, Stack s)
{
    run->at[run->count++] = s;
    run->results += s.call->results.count;
}

void pass_stacks(Module *m);
void pass_stacks(Module *m)
{
    Map one = { .arena = &m->arena };
    Run run = { 0 };
    for (Func *f = m->funcs; f; f = f->next) {
        for (Op *op = f->role == KERNEL ? NULL : f->first; op; op = op->next) {
            Stack s;
            const bool is_stack = find_stack(m, f, op, &one, &s);
            if (is_stack ? !may_share(&s, &run) : run.count && run.at[0].is_near)
                end_run(&run);
            if (is_stack)
                add_to_run(&run, s);
        }
        end_run(&run);
    }
}
