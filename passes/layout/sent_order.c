/* sent_order.c -- the memory order of activations that messages gather and scatter.
 *
 *   rules: shard heads, ff over tp else seq
 *   func @model.fwd(%tokens: i32[batch:4, seq:1024])      %1 = reorder %tokens {order=[seq, batch]}
 *     %x = gather %wte, %tokens {dim=vocab}           =>  %x = gather %wte, %1 {dim=vocab} : [seq:1024, batch:4, embed]
 *
 * A message brings what each rank has as one stretch of memory.  The stretch of a sequence that a rank has is one of
 * the tensor only if the rank has one sequence, or if the dim comes first; else NCCL's buffers are packed and unpacked,
 * which reads and writes the tensor once more.  Types follow from those of operands: so it is enough to reorder the
 * inputs, which are small, and the dims that ops create.  Dims that inputs lack, as features, stay inside: kernels run
 * along them.  (Megatron-LM has its activations in this order, too.)
 *
 * Results of a program keep their order, since the trainer reads them.
 */
#include "sent_order.h"

#include "infer.h"
#include "map.h"
#include "pieces.h"
#include "uses.h"

typedef struct {
    Module *m;
    Names sent;  /* the dims that come before the batch */
    Map visited; /* functions */
    Map old;     /* Value -> its type before */
} SentOrder;

static bool is_sent_along(const SentOrder *s, Name dim) { return has_name(&s->sent, ruled_as(s->m, dim)); }

/* The order of these dims: position[i] is the place, among those given, of the one that is to be the i-th. */
static bool find_order(const SentOrder *s, int count, const Name name[], int position[])
{
    int batch = 0, placed = 0;
    bool moves = false;
    while (batch < count && name[batch] != s->m->batch)
        batch++;
    for (int i = 0; i < batch; i++)
        position[placed++] = i;
    for (int sent = 1; sent >= 0; sent--)
        for (int i = batch; i < count; i++)
            if (is_sent_along(s, name[i]) == sent) {
                moves |= i != placed;
                position[placed++] = i;
            }
    return moves;
}

/* --- Ops and types --------------------------------------------------------------------------------- */

static Names names_of(const Type *type)
{
    Names names = { 0 };
    for (int i = 0; i < type->rank; i++)
        add_name(&names, type->dim[i].name);
    return names;
}

static bool order_names(const SentOrder *s, Names *names)
{
    const Names given = *names;
    int position[MAX_NAMES];
    const bool moves = find_order(s, given.count, given.name, position);
    for (int i = 0; i < given.count; i++)
        names->name[i] = given.name[position[i]];
    return moves;
}

static void order_dims(const SentOrder *s, Dims *dims)
{
    const Dims given = *dims;
    Name name[MAX_RANK] = { 0 };
    int position[MAX_RANK];
    for (int i = 0; i < given.count; i++)
        name[i] = given.dim[i].name;
    find_order(s, given.count, name, position);
    for (int i = 0; i < given.count; i++)
        dims->dim[i] = given.dim[position[i]];
}

static Value *reordered(SentOrder *s, Func *f, Op *before, Value *value, const Names *order)
{
    Builder b = builder_at(s->m, f, before);
    return BUILD(&b, OP_reorder, ((Attrs){ .order = *order }), value);
}

/* The value in the order of that type. */
static Value *in_order_of(SentOrder *s, Func *f, Op *before, Value *value, const Type *type)
{
    const Names order = names_of(type);
    return same_order(&value->type, type) ? value : reordered(s, f, before, value, &order);
}

static void note_type(SentOrder *s, const Value *value)
{
    Type *given = NEW(&s->m->arena, Type);
    *given = value->type;
    map_put(&s->old, value, given);
}

static void give_order_of(Type *type, const Type *like)
{
    const Type given = *type;
    int placed = 0;
    for (int i = 0; i < like->rank; i++) {
        const int at = find_dim(&given, like->dim[i].name);
        if (at >= 0)
            type->dim[placed++] = given.dim[at];
    }
}

/* --- Functions ------------------------------------------------------------------------------------- */

static void order_func(SentOrder *s, Func *f);

static void enter_callee(SentOrder *s, const Op *call, Func *callee)
{
    for (int i = 0; i < callee->params.count; i++) {
        note_type(s, callee->params.at[i]);
        give_order_of(&callee->params.at[i]->type, &arg(call, i)->type);
    }
    order_func(s, callee);
    for (int i = 0; i < call->attrs.carried; i++)
        callee->results.at[i] = in_order_of(s, callee, NULL, callee->results.at[i], &callee->params.at[i]->type);
    map_put(&s->visited, callee, callee);
}

static void order_call(SentOrder *s, Func *f, Op *call)
{
    Func *callee = find_func(s->m, call->attrs.callee);
    if (!map_get(&s->visited, callee))
        enter_callee(s, call, callee);
    for (int i = 0; i < call->args.count; i++) {
        const Type *param = &callee->params.at[i]->type;
        const bool is_sliced = arg(call, i)->type.rank > param->rank;
        const Type wanted = is_sliced ? with_dim_first(*param, call->attrs.dims.dim[0]) : *param;
        call->args.at[i] = in_order_of(s, f, call, arg(call, i), &wanted);
    }
}

/* Are the dims that become one next to each other, in that order? */
static bool are_nested(const Type *type, const Names *dims)
{
    bool good = true;
    for (int i = 1; i < dims->count; i++)
        good &= find_dim(type, dims->name[i]) == find_dim(type, dims->name[i - 1]) + 1;
    return good;
}

/* Does each element have the position that dropout counts, in which the batch comes before all other dims? */
static bool keeps_positions(const SentOrder *s, const Type *type, const Type *old)
{
    int at = 0;
    bool good = true;
    for (int i = 0; i < type->rank; i++) {
        at += at < old->rank && old->dim[at].name == s->m->batch;
        if (type->dim[i].name != s->m->batch)
            good &= type->dim[i].name == old->dim[at++].name;
    }
    return good;
}

static void order_op(SentOrder *s, Func *f, Op *op)
{
    const Value *x = op->args.count ? arg(op, 0) : NULL;
    const Type *given = x ? map_get(&s->old, x) : NULL;
    if (info(op)->family == CONTROL)
        order_call(s, f, op);
    order_names(s, &op->attrs.order);
    if (!(info(op)->traits & FOLDS))
        order_dims(s, &op->attrs.dims);
    const bool is_other =
        given && (info(op)->traits & FOLDS ? !are_nested(&x->type, &op->attrs.over)
                                           : info(op)->traits & POSITIONAL && !keeps_positions(s, &x->type, given));
    if (is_other)
        op->args.at[0] = in_order_of(s, f, op, arg(op, 0), given);
    for (int i = 1; info(op)->traits & JOINS && i < op->args.count; i++)
        op->args.at[i] = in_order_of(s, f, op, arg(op, i), &x->type);
}

static void order_func(SentOrder *s, Func *f)
{
    for (Op *op = f->first; op; op = op->next) {
        order_op(s, f, op);
        const Type *types = infer_results(s->m, op);
        for (int i = 0; types && i < op->results.count; i++) {
            note_type(s, op->results.at[i]);
            op->results.at[i]->type = types[i];
        }
    }
}

static void order_program(SentOrder *s, Func *f)
{
    Type *given = NEW_ARRAY(&s->m->arena, Type, f->results.count + 1);
    Op *first = f->first;
    for (int i = 0; i < f->results.count; i++)
        given[i] = f->results.at[i]->type;
    for (int i = 0; i < f->params.count; i++) {
        Value *param = f->params.at[i];
        Names order = names_of(&param->type);
        if (param->port.kind != PORT_INPUT || !uses_in(f, param) || !order_names(s, &order))
            continue;
        Value *own = reordered(s, f, first, param, &order);
        replace_uses(f, param, own);
        own->def->args.at[0] = param;
    }
    order_func(s, f);
    for (int i = 0; i < f->results.count; i++)
        f->results.at[i] = in_order_of(s, f, NULL, f->results.at[i], &given[i]);
}

static bool is_of_inputs(const Module *m, Name dim)
{
    const Input *input = m->inputs;
    while (input && (find_dim(&input->type, dim) < 0 || find_dim(&input->type, m->batch) < 0))
        input = input->next;
    return input;
}

/* Of a rule with `else`: has a rank several sequences, into which messages are not cut? */
static bool packs(const Module *m, const ShardRule *rule)
{
    return rule->otherwise && m->batch && is_of_inputs(m, rule->otherwise) && m->axis_size[rule->axis] > 1 &&
           rank_sequences(m) > 1 && batch_pieces(m, rule) == 1;
}

void order_sent(Module *m)
{
    SentOrder s = { .m = m, .visited.arena = &m->arena, .old.arena = &m->arena };
    for (const ShardRule *rule = m->rules; rule; rule = rule->next)
        if (packs(m, rule) && !has_name(&s.sent, rule->otherwise))
            add_name(&s.sent, rule->otherwise);
    for (Func *f = s.sent.count ? m->funcs : NULL; f; f = f->next)
        if (is_program(f))
            order_program(&s, f);
}
