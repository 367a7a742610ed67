/* tensor_layout.c -- the rules of the layout, applied to the dims of a tensor or of an op's space. */
#include "tensor_layout.h"

#include "pieces.h"
#include "simplify/cleanup.h"

static void unsplit(Type *type)
{
    type->partial = 0;
    type->by = BY_SUM;
    for (int i = 0; i < type->rank; i++) {
        type->dim[i].split = (Split){ 0 };
        type->dim[i].zigzag = 0;
    }
}

Type unsplit_type(Type type)
{
    unsplit(&type);
    return type;
}

Axes axes_in_use(const Type *type)
{
    Axes axes = type->partial;
    for (int i = 0; i < type->rank; i++)
        for (int j = 0; j < type->dim[i].split.count; j++)
            axes |= 1u << type->dim[i].split.axis[j];
    return axes;
}

/* Has a step only one micro-batch? */
static bool runs_once(const LayoutRules *h)
{
    const Func *step = func_with_role(h->m, STEP);
    const Type *input = step && step->params.count ? &step->params.at[0]->type : NULL;
    return input && input->rank > 0 && !map_get(&h->looped, input->dim[0].name);
}

static DataParallel data_parallel(const LayoutRules *h)
{
    const Train *t = &h->m->train;
    return (DataParallel){ .axes = t->zero_axes,
                           .splits_state = t->zero >= 1,
                           .reduces_early = t->zero >= 2 || (t->overlap_grads && runs_once(h)),
                           .splits_calls = t->gather ? t->gather == GATHER_MICRO : t->zero >= 3 };
}

LayoutRules layout_rules(Module *m)
{
    LayoutRules h = { .m = m, .looped.arena = &m->arena };
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            if (info(op)->family == CONTROL && op->attrs.dims.count)
                map_put(&h.looped, op->attrs.dims.dim[0].name, (void *)op->attrs.dims.dim[0].name);
    for (const ShardRule *rule = m->rules; rule; rule = rule->next)
        for (int i = 0; i < rule->dims.count; i++)
            h.loop_axes |= map_get(&h.looped, rule->dims.name[i]) ? 1u << rule->axis : 0;
    h.data = data_parallel(&h);
    return h;
}

/* The dim that a rule names: `name` itself, else one declared to be split like it. */
static int dim_meant(const LayoutRules *h, const Type *type, Name name)
{
    int at = find_dim(type, name);
    for (int i = 0; at < 0 && i < type->rank; i++)
        if (ruled_as(h->m, type->dim[i].name) == name)
            at = i;
    return at;
}

/* Splits the dim over the axis of a rule, inside its present split; false if it does not divide. */
static bool split_once(const LayoutRules *h, Dim *dim, const ShardRule *rule, int zigzag)
{
    Dim more = *dim;
    if (more.split.count == MAX_SPLIT)
        return false;
    if (more.split.count == 0)
        more.zigzag = zigzag;
    more.split.axis[more.split.count++] = (int8_t)rule->axis;
    if (rule->parts)
        more.split.parts = rule->parts, more.split.reversed = rule->reversed;
    if (!splits_evenly(h->m, &more))
        return false;
    *dim = more;
    return true;
}

static bool try_dim(const LayoutRules *h, Type *type, Name name, const ShardRule *rule, int zigzag, const Op *op)
{
    int at = dim_meant(h, type, name);
    return at >= 0 && !(op && needs_whole(op, type->dim[at].name)) && split_once(h, &type->dim[at], rule, zigzag);
}

/* Along `otherwise`, in blocks, unless pieces are some of the sequences.  Attention works on stretches of its queries.
 */
static bool try_dealing(const LayoutRules *h, Type *type, const ShardRule *rule, const Op *op)
{
    const int at = dim_meant(h, type, rule->otherwise);
    const int64_t blocks = rule->dealt / batch_pieces(h->m, rule);
    if (at < 0 || blocks == 1 || type->dim[at].split.count || type->rank == MAX_RANK ||
        (op && info(op)->traits & IN_BLOCKS) || (op && needs_whole(op, type->dim[at].name)))
        return false;
    Dim dealt = type->dim[at];
    dealt.split = (Split){ .count = 1, .axis = { (int8_t)rule->axis }, .dealt = (int16_t)blocks };
    if (!splits_evenly(h->m, &dealt))
        return false;
    type->dim[at] = dealt;
    return true;
}

/* Is this dim of the op's space one that an operand has, and that is not picked from?  If such a dim is split, the op
 * needs no message: of a dim that it makes, or picks from, each rank would need all other operands. */
static bool is_given(const LayoutRules *h, const Op *op, const Type *space, Name ruled)
{
    const int at = dim_meant(h, space, ruled);
    bool given = false;
    for (int i = 0; i < op->args.count && at >= 0; i++)
        given |= find_dim(&arg(op, i)->type, space->dim[at].name) >= 0;
    return given && op_role(op, space->dim[at].name) != PICK;
}

/* In place of the dims of the rule, and inside of all other splits: so operands are all-to-all'ed.  Where heads of keys
 * do not divide, those of queries may, and keys are gathered. */
static bool try_exchange(const LayoutRules *h, Type *type, const ShardRule *rule, const Op *op)
{
    for (int repeats = 0; repeats < 2; repeats++)
        for (int i = 0; i < type->rank; i++)
            if (is_exchangeable(h->m, op, rule, type->dim[i].name, repeats) && split_once(h, &type->dim[i], rule, 0))
                return true;
    return false;
}

void split_by_rules(const LayoutRules *h, Type *type, Axes taken, const Op *op)
{
    Axes exchanged = 0;
    for (const ShardRule *rule = h->m->rules; rule; rule = rule->next)
        exchanged |= op && exchanges(h->m, op, rule) ? 1u << rule->axis & ~taken : 0;
    for (int given = op != NULL; given >= 0; given--)
        for (const ShardRule *rule = h->m->rules; rule; rule = rule->next)
            for (int i = 0; i < rule->dims.count && !((taken | exchanged) & 1u << rule->axis); i++)
                if ((!given || is_given(h, op, type, rule->dims.name[i])) &&
                    try_dim(h, type, rule->dims.name[i], rule, rule->zigzag, op))
                    taken |= 1u << rule->axis;
    for (const ShardRule *rule = h->m->rules; rule; rule = rule->next)
        if (exchanged & ~taken & 1u << rule->axis && try_exchange(h, type, rule, op))
            taken |= 1u << rule->axis;
    for (const ShardRule *rule = h->m->rules; rule && !h->ignores_else; rule = rule->next)
        if (rule->otherwise && !(taken & 1u << rule->axis) &&
            ((rule->dealt && try_dealing(h, type, rule, op)) || try_dim(h, type, rule->otherwise, rule, 0, op)))
            taken |= 1u << rule->axis;
}

/* Adds the data-parallel axes that the type does not use yet: they split the first dim that divides.  The last axis,
 * whose ranks are nearest, is outermost: so gradients are first reduced along it, and the remaining shards along the
 * others; parameters are gathered along it last. */
static void split_state(const LayoutRules *h, Type *type)
{
    Axes taken = axes_in_use(type);
    for (int axis = h->m->naxes - 1; axis >= 0; axis--)
        for (int i = 0; i < type->rank && h->data.axes & ~taken & 1u << axis; i++)
            if (!map_get(&h->looped, type->dim[i].name) &&
                split_once(h, &type->dim[i], &(ShardRule){ .axis = axis }, 0))
                taken |= 1u << axis;
}

void split_folded(const Module *m, const Op *op, Type *space)
{
    Name names[2];
    if (!(info(op)->traits & FOLDS))
        return;
    folded_dims(op, &names[0], &names[1]);
    Dim *one = &space->dim[find_dim(space, names[0])], *outermost = &space->dim[find_dim(space, names[1])];
    const Dim *from = one->split.count ? one : outermost;
    Dim *other = from == one ? outermost : one;
    const Dim kept = *other;
    other->split = from->split, other->zigzag = from->zigzag;
    if (splits_evenly(m, other))
        return;
    *other = kept;
    one->split = outermost->split = (Split){ 0 };
    one->zigzag = outermost->zigzag = 0;
}

Type layout_type(const LayoutRules *h, Type type)
{
    Type wanted = unsplit_type(type);
    split_by_rules(h, &wanted, 0, NULL);
    return wanted;
}

Type state_type(const LayoutRules *h, Type type)
{
    Type wanted = layout_type(h, type);
    for (int i = 0; i < wanted.rank; i++)
        wanted.dim[i].split.dealt = 0;
    if (h->data.splits_state)
        split_state(h, &wanted);
    return wanted;
}

Type input_type(const LayoutRules *h, Type type)
{
    LayoutRules some = *h;
    some.ignores_else = true;
    return layout_type(&some, type);
}

Type gathered_type(const LayoutRules *h, Type type)
{
    Type wanted = layout_type(h, type);
    for (int i = 0; i < type.rank; i++) {
        Split *split = &type.dim[i].split;
        while (split->count > wanted.dim[i].split.count && h->data.axes & 1u << split->axis[split->count - 1])
            split->axis[--split->count] = 0;
        if (split->count == 0)
            type.dim[i].zigzag = 0;
    }
    return type;
}

static Axes axes_moved(const Type *from, const Type *to)
{
    Axes axes = from->partial ^ to->partial;
    for (int i = 0; i < from->rank; i++) {
        Type a = { .rank = 1, .dim = { from->dim[i] } }, b = { .rank = 1, .dim = { to->dim[i] } };
        axes |= axes_in_use(&a) ^ axes_in_use(&b);
    }
    return axes;
}

LayoutPart part_behind(const LayoutRules *h, const Type *from, const Type *to)
{
    Axes moved = axes_moved(from, to);
    const Type *const sides[] = { from, to };
    for (int i = 0; i < 2; i++) {
        Type by_rules = input_type(h, *sides[i]), by_else = layout_type(h, *sides[i]);
        Axes extra = axes_in_use(sides[i]) & moved & ~sides[i]->partial;
        if (extra & ~axes_in_use(&by_else) & h->data.axes)
            return BY_ZERO;
        if (extra & axes_in_use(&by_else) & ~axes_in_use(&by_rules))
            return BY_ELSE;
    }
    return BY_RULES;
}

/* --- The program without layout ---------------------------------------------------------------- */

static void forget_type(Type *type)
{
    unsplit(type);
    type->on = (RankSet){ 0 };
}

static void forget_op(Func *f, Op *op, Map *instead)
{
    resolve_all(instead, &op->args);
    if (info(op)->traits & WISHES) {
        map_put(instead, result(op), arg(op, 0));
        remove_op(f, op);
        return;
    }
    for (int i = 0; i < op->attrs.dims.count; i++) {
        op->attrs.dims.dim[i].split = (Split){ 0 };
        op->attrs.dims.dim[i].zigzag = 0;
    }
    op->attrs.axis = 0;
    for (int i = 0; i < op->results.count; i++)
        forget_type(&op->results.at[i]->type);
}

void forget_layout(Module *m)
{
    m->kind_axis = -1;
    for (Func *f = m->funcs; f; f = f->next) {
        for (int i = 0; i < f->params.count; i++)
            forget_type(&f->params.at[i]->type);
        Map instead = { .arena = &m->arena };
        for (Op *op = f->first, *next; op; op = next) {
            next = op->next;
            forget_op(f, op, &instead);
        }
        resolve_all(&instead, &f->results);
    }
}
