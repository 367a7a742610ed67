/* layout.c -- the pass layout: assigns a layout to every value, and inserts reshards where an op needs another one.
 *
 * The rules (tensor_layout.h) split the space of an op, the union of its operands' dims; an operand in another layout
 * is resharded first.
 *
 *   rules: shard heads, ff over tp else seq
 *   %2 = dot %1, %w {over=embed}        =>  %3 = reshard %1 {dims=[seq, embed]}
 *                                           %2 = dot %3, %w {over=embed} : [seq, ff/tp]     (the space has ff)
 *   %4 = dot %2, %v {over=ff}           =>  %4 = dot %2, %v {over=ff} : [seq, embed] partial(tp)
 *   %5 = square %4                      =>  %6 = reshard %4 {dims=[seq/tp, embed]}          (it has none: else seq)
 *                                           %5 = square %6 : [seq/tp, embed]
 *
 * A sum stays pending as long as its only reader sums it further; else it is reduced where it is computed, once, into
 * the layout of its type.  So gradients of weights are accumulated over micro-batches before they are reduced, and with
 * zero they are reduced to shards.
 */
#include "accumulator.h"
#include "infer.h"
#include "operand_layout.h"
#include "rank_layout.h"
#include "ring.h"
#include "sent_order.h"
#include "simplify/cleanup.h"
#include "split_loop.h"
#include "stage_balance.h"
#include "tensor_layout.h"

typedef struct {
    Module *m;
    LayoutRules rules;
    Map visited; /* functions, and ops created with their final types */
    Map uses;    /* of values of the present function: number of uses, stored as a pointer */
    Name sent;   /* the dtype in which gradients are sent; NULL: their own */
} Layout;

/* A function in the walk. */
typedef struct {
    Func *f;
    int carried; /* number of carried parameters and results, which are the first ones */
    bool *open;  /* of each carried one: an accumulator whose layout is not yet determined by its first addition */
} FuncLayout;

static void assign_func(Layout *s, Func *f, int carried, bool *open);

static void add_use(Layout *s, const Value *value)
{
    map_put(&s->uses, value, (void *)(intptr_t)(uses_of(&s->uses, value) + 1));
}

/* --- Reshards -------------------------------------------------------------------------- */

/* A tensor pending over data-parallel axes: the gradient of a weight. */
static bool is_gradient(const Layout *s, const Value *value)
{
    return value->type.rank > 0 && value->type.partial & s->rules.data.axes;
}

/* The type of a reduced sum.  Within a micro-batch, gradients stay pending over ranks, which must not wait for each
 * other but where the schedule says so: those that micro-batches reduce are pending over these alone in the step. */
static Type reduced_type(const Layout *s, const Func *f, const Value *value)
{
    const bool is_left = f->role == STEP && value->type.rank > 0 && value->type.partial & s->rules.loop_axes;
    Type reduced =
        is_left || is_gradient(s, value) ? state_type(&s->rules, value->type) : layout_type(&s->rules, value->type);
    reduced.partial = f->role == PLAIN && value->type.by == BY_SUM ? value->type.partial & s->rules.loop_axes : 0;
    return reduced;
}

static Dims dims_of(const Type *type)
{
    Dims dims = { .count = type->rank };
    for (int i = 0; i < type->rank; i++)
        dims.dim[i] = type->dim[i];
    return dims;
}

/* The reader that needs another layout. */
typedef struct {
    const char *name;
    Purpose purpose;
} Reader;

static const Reader of_gradient = { "gradient", GRADIENT }, returned = { "return", ANY_PURPOSE };

static Attrs reshard_attrs(Layout *s, const Type *from, const Type *to, Reader reader)
{
    static const char *const part[] = { [BY_RULES] = "shard", [BY_ELSE] = "sequence", [BY_ZERO] = "zero" };
    const LayoutPart behind = part_behind(&s->rules, from, to);
    return (Attrs){ .dims = dims_of(to),
                    .axis = to->partial,
                    .on = to->on,
                    .purpose = !reader.purpose && behind == BY_ZERO ? WEIGHT : reader.purpose,
                    .cause = intern_format(s->m, "%s.%s", part[behind], reader.name) };
}

/* At the end of a function, what it returns belongs to the line that computes it. */
static Builder builder_for(Layout *s, Func *f, Op *before, const Value *value)
{
    Builder b = builder_at(s->m, f, before);
    const Op *def = before ? NULL : value->def;
    if (def)
        b.loc = def->loc, b.path = def->path, b.where = def->where;
    return b;
}

/* Reshards `value` to `to` for `reader`, before `before`. */
static Value *reshard(Layout *s, Func *f, Op *before, Value *value, const Type *to, Reader reader)
{
    if (same_dims(&value->type, to) && same_ranks(value->type.on, to->on))
        return value;
    Builder b = builder_for(s, f, before, value);
    Op *made;
    if (value->def && info(value->def)->family == LEAF && !to->on.at) { /* recreated in the needed layout */
        Attrs attrs = value->def->attrs;
        attrs.dims = dims_of(to);
        made = build(&b, value->def->kind, attrs, 0, NULL);
    } else {
        made = build(&b, OP_reshard, reshard_attrs(s, &value->type, to, reader), 1, &value);
    }
    add_use(s, result(made));
    return result(made);
}

static Value *cast_as(Layout *s, Builder *b, Value *value, Name dtype)
{
    Value *made = BUILD(b, OP_cast, ((Attrs){ .dtype = dtype }), value);
    map_put(&s->visited, made->def, made->def);
    add_use(s, made);
    return made;
}

/* Reduces a gradient in the dtype for messages, and casts it back. */
static Value *reduce_gradient(Layout *s, Func *f, Op *before, Value *value, const Type *to, Reader reader)
{
    Name sent = is_gradient(s, value) ? s->sent : NULL;
    if (!sent || dtype_named(sent) == value->type.dtype || same_dims(&value->type, to))
        return reshard(s, f, before, value, to, reader);
    Builder b = builder_for(s, f, before, value);
    Value *reduced = reshard(s, f, before, cast_as(s, &b, value, sent), to, reader);
    return cast_as(s, &b, reduced, intern_text(s->m, dtype_name[value->type.dtype]));
}

/* Is it a gradient that the step keeps in a narrow dtype, and widens for all of its readers? */
static bool is_kept_narrow(const Func *f, const Op *op, const Value *value)
{
    const Op *reader = f->role == STEP && value->type.rank > 0 && is_half(value->type.dtype) ? op->next : NULL;
    while (reader && index_of(&reader->args, value) < 0)
        reader = reader->next;
    return reader && info(reader)->traits & CASTS && !is_half(result(reader)->type.dtype);
}

/* Reduces a pending sum with several readers, or a maximum, where it is computed. */
static void reduce_pending(Layout *s, Func *f, Op *op, Value *value)
{
    const bool is_kept = value->type.partial && is_kept_narrow(f, op, value);
    if (!value->type.partial || (uses_of(&s->uses, value) <= 1 && value->type.by == BY_SUM && !is_kept))
        return;
    Type wanted = reduced_type(s, f, value);
    bool of_weight = is_kept || (info(op)->family == CONTROL && value->type.rank > 0);
    Op *next = op->next;
    Value *reduced = of_weight ? reduce_gradient(s, f, next, value, &wanted, of_gradient)
                               : reshard(s, f, next, value, &wanted, (Reader){ info(op)->name, ANY_PURPOSE });
    for (Op *made = op->next; made != next; made = made->next) {
        made->path = of_weight ? value->name : op->path;
        made->where = op->where;
    }
    int left = uses_of(&s->uses, value); /* all of them, as f was: no op behind this one has been looked at */
    for (int i = 0; i < f->results.count; i++)
        if (f->results.at[i] == value)
            f->results.at[i] = reduced, add_use(s, reduced), left--;
    for (Op *reader = reduced->def->next; reader && left > 0; reader = reader->next)
        for (int i = 0; i < reader->args.count; i++)
            if (arg(reader, i) == value)
                reader->args.at[i] = reduced, add_use(s, reduced), left--;
}

/* --- Ops ------------------------------------------------------------------------------------------ */

static void retype_results(Layout *s, Op *op)
{
    const Type *types = infer_results(s->m, op);
    if (!types)
        return; /* reported by the type inference */
    for (int i = 0; i < op->results.count; i++)
        op->results.at[i]->type = types[i];
}

static void assign_op(Layout *s, Func *f, Op *op)
{
    int first, last;
    Axes pending = pending_sums(&s->rules, &s->uses, op, &first, &last);
    Type space = whole_space(op);
    split_by_rules(&s->rules, &space, pending, op);
    adopt_splits(&s->rules, op, &space, pending);
    split_keys(s->m, op, &space);
    split_folded(s->m, op, &space);
    RankSet where;
    const bool moves = moves_operands(f, op, &space, &where);
    for (int i = 0; i < op->args.count; i++) {
        if (pending && chooses_zeros(op, i))
            continue;
        Type wanted = wanted_type(&arg(op, i)->type, &space, i >= first && i <= last ? pending : 0);
        if (moves && (!where.at || !is_on_all(wanted.on, where)))
            wanted.on = where;
        op->args.at[i] = reshard(s, f, op, arg(op, i), &wanted, (Reader){ info(op)->name, ANY_PURPOSE });
    }
    for (int i = 0; i < op->attrs.dims.count; i++) {
        Dim *dim = &op->attrs.dims.dim[i];
        const int at = find_dim(&space, dim->name);
        if (at >= 0 && !needs_whole(op, dim->name))
            dim->split = space.dim[at].split, dim->zigzag = space.dim[at].zigzag;
    }
    retype_results(s, op);
    for (int i = 0; i < op->results.count; i++)
        reduce_pending(s, f, op, op->results.at[i]);
}

/* --- Accumulators -------------------------------------------------------------------------------- A carried value
 * that a loop only adds to starts as zeros, and zeros are a pending sum over any axes: so the accumulator has the
 * layout of the added terms and is reduced once, after the loop. */

/* Gives an accumulator the layout of the term that the op adds. */
static void close_accumulator(const FuncLayout *frame, const Op *op)
{
    for (int i = 0; i < op->args.count && frame->open; i++) {
        int at = arg(op, i)->def ? -1 : index_of(&frame->f->params, arg(op, i));
        if (at < 0 || at >= frame->carried || !frame->open[at])
            continue;
        const Type *added = &arg(op, 1 - i)->type;
        Type *own = &arg(op, i)->type;
        for (int j = 0; j < own->rank; j++) {
            const Dim *dim = &added->dim[find_dim(added, own->dim[j].name)];
            own->dim[j].split = dim->split;
            own->dim[j].zigzag = dim->zigzag;
        }
        own->partial = added->by == BY_SUM ? added->partial : 0;
        own->on = added->on;
        frame->open[at] = false;
    }
}

/* --- Calls and loops -------------------------------------------------------------------------- */

/* The type of a callee's parameter.  Weights are gathered before the call in a step, unless they stay split, and before
 * a scan, all of whose places read them; but not other values of which each place has its own part. */
static Type type_for_callee(const Layout *s, const Func *caller, const Op *call, const Value *value)
{
    if (value->type.partial)
        return layout_type(&s->rules, value->type);
    const Type state = state_type(&s->rules, value->type);
    const bool scanned =
        call->attrs.scan && (find_dim(&value->type, looped_dim(call)) < 0 || same_dims(&value->type, &state));
    const bool gathers = scanned || (caller->role != PLAIN && !s->rules.data.splits_calls);
    return gathers ? gathered_type(&s->rules, value->type) : value->type;
}

/* The ranks on which a call needs its i-th operand; `to`: where its operands come together, if they must. */
static RankSet ranks_for_call(const Layout *s, const Op *op, const Func *callee, int i, RankSet to)
{
    const RankSet given = arg(op, i)->type.on;
    if (!is_split_loop(op))
        return says_where(s->m, callee) ? callee->params.at[i]->type.on : to.at && !is_on_all(given, to) ? to : given;
    const RankSet first = end_rank(s->m, op, false), passed = ranks_passed(s->m, op);
    if (i >= op->attrs.carried && find_dim(&arg(op, i)->type, looped_dim(op)) >= 0)
        return (RankSet){ 0 };
    if (i >= op->attrs.carried)
        return is_on_all(given, passed) ? given : unless_all(s->m, passed);
    return common_ranks(given, first).axis < 0 ? first : given;
}

static void enter_callee(Layout *s, Func *f, Op *op, Func *callee)
{
    Name dim = looped_dim(op);
    int carried = dim ? (int)op->attrs.carried : 0;
    bool *open = NEW_ARRAY(&s->m->arena, bool, carried + 1);
    const bool names_ranks = !is_split_loop(op) && (!dim || splits_any_loop(&s->rules, callee));
    for (int i = 0; i < callee->params.count; i++) {
        Type *param = &callee->params.at[i]->type;
        Type given = type_for_callee(s, f, op, arg(op, i));
        given = i >= carried && dim ? without_dim(given, dim) : given;
        open[i < carried ? i : carried] = i < carried && is_zeros(arg(op, i)) && accumulating(callee, i) != NULL;
        given.dtype = param->dtype;
        given.on = names_ranks ? given.on : (RankSet){ 0 };
        *param = i < carried ? layout_type(&s->rules, *param) : given;
    }
    Map uses = s->uses;
    assign_func(s, callee, carried, open);
    s->uses = uses;
    map_put(&s->visited, callee, callee);
}

static void assign_call(Layout *s, Func *f, Op *op)
{
    Func *callee = find_func(s->m, op->attrs.callee);
    Name dim = looped_dim(op);
    RankSet to;
    split_loop(&s->rules, op);
    note_split_loop(s->m, op);
    if (!map_get(&s->visited, callee))
        enter_callee(s, f, op, callee);
    moves_operands(f, op, &(Type){ 0 }, &to);
    for (int i = 0; i < op->args.count; i++) {
        Value *value = arg(op, i);
        Type wanted = callee->params.at[i]->type;
        if (dim && find_dim(&value->type, dim) == 0)
            wanted = with_dim_first(wanted, op->attrs.dims.dim[0]);
        wanted.on = ranks_for_call(s, op, callee, i, to);
        bool from_zeros = !same_dims(&value->type, &wanted) && is_zeros(value);
        Builder b = builder_at(s->m, f, op);
        op->args.at[i] = from_zeros ? build_zeros(&b, &wanted)
                                    : reshard(s, f, op, value, &wanted, (Reader){ callee->name, ANY_PURPOSE });
    }
    retype_results(s, op);
    for (int i = 0; i < op->results.count; i++)
        reduce_pending(s, f, op, op->results.at[i]);
}

static Type on_all_ranks(Type type)
{
    type.on = (RankSet){ 0 };
    return type;
}

/* --- Functions ------------------------------------------------------------------------------------ */

/* The type of a function's i-th result. */
static Type returned_type(const Layout *s, const Func *f, int i, int carried)
{
    const Value *value = f->results.at[i];
    const int old = state_replaced(f, i);
    if (old >= 0)
        return f->params.at[old]->type;
    if (result_port(f, i).kind == PORT_OUTPUT) /* each rank writes its part */
        return value->type.partial ? layout_type(&s->rules, value->type) : value->type;
    if (f->role != PLAIN)
        return on_all_ranks(unsplit_type(value->type)); /* the trainer reads it */
    if (i < carried)
        return f->params.at[i]->type;
    bool residual = result_port(f, i).kind == PORT_RESIDUAL;
    bool reduced = residual || value->type.by == BY_MAX || (s->rules.data.reduces_early && is_gradient(s, value));
    return value->type.partial && reduced ? reduced_type(s, f, value) : value->type;
}

static void count_uses(Layout *s, const Func *f)
{
    s->uses = (Map){ .arena = &s->m->arena };
    for (const Op *op = f->first; op; op = op->next)
        for (int i = 0; i < op->args.count; i++)
            add_use(s, arg(op, i));
    for (int i = 0; i < f->results.count; i++)
        add_use(s, f->results.at[i]);
}

/* Its copy is split as the input is: not by `else`, as other values are. */
static bool copies_input(const Op *op)
{
    const Value *x = op->args.count ? arg(op, 0) : NULL;
    return info(op)->traits & COPIES && !x->def && x->port.kind == PORT_INPUT;
}

/* Parameters already have their types. */
static void assign_func(Layout *s, Func *f, int carried, bool *open)
{
    FuncLayout frame = { f, carried, open };
    share_equal(f);
    count_uses(s, f);
    for (Op *op = f->first; op; op = op->next) {
        if (info(op)->traits & WISHES || map_get(&s->visited, op))
            continue; /* created by this walk */
        close_accumulator(&frame, op);
        if (info(op)->family == CONTROL)
            assign_call(s, f, op);
        else if (copies_input(op))
            retype_results(s, op);
        else
            assign_op(s, f, op);
    }
    for (int i = 0; i < f->results.count; i++) {
        Type wanted = returned_type(s, f, i, carried);
        bool is_residual = result_port(f, i).kind == PORT_RESIDUAL;
        f->results.at[i] = is_residual ? reshard(s, f, NULL, f->results.at[i], &wanted, returned)
                                       : reduce_gradient(s, f, NULL, f->results.at[i], &wanted,
                                                         is_gradient(s, f->results.at[i]) ? of_gradient : returned);
    }
    share_equal(f);
    drop_dead(f);
}

/* --- The pass ------------------------------------------------------------------------------------- */

/* Declares the types of inputs and parameters. */
static void declare_types(Layout *s)
{
    for (Input *input = s->m->inputs; input; input = input->next)
        input->type = input_type(&s->rules, input->type);
    for (Param *param = s->m->params; param; param = param->next) {
        const RankSet on = param->type.on;
        param->type = state_type(&s->rules, param->type);
        param->type.on = on;
    }
}

static void assign_entry(Layout *s, Func *f)
{
    for (int i = 0; i < f->params.count; i++) {
        Value *param = f->params.at[i];
        bool is_input = param->port.kind == PORT_INPUT;
        param->type = is_input ? input_type(&s->rules, param->type) : state_type(&s->rules, param->type);
        const Param *declared = param->port.of && !is_input ? find_param(s->m, param->port.of) : NULL;
        if (declared)
            param->type.on = declared->type.on;
    }
    assign_func(s, f, 0, NULL);
}

/* Only the training step sums gradients; with zero, other programs may have sums over the same axes. */
static void assign_entries(Layout *s)
{
    forget_layout(s->m);
    order_sent(s->m);
    s->visited = s->uses = (Map){ .arena = &s->m->arena };
    declare_types(s);
    for (Func *f = s->m->funcs; f; f = f->next)
        if (is_program(f)) {
            s->sent = f->role == STEP ? s->m->train.grad_dtype : NULL;
            assign_entry(s, f);
        }
    drop_unreached(s->m);
}

void pass_layout(Module *m);
void pass_layout(Module *m)
{
    if (!m->naxes)
        return;
    balance_stages(m);
    Layout s = { .m = m, .rules = layout_rules(m) };
    place_params(&s.rules);
    assign_entries(&s);
}
