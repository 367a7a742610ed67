/* recompute.c -- which residuals are saved, and which the backward computes again.
 *
 *   none       saves what the backward reads, but what pointwise ops make of other saved values: that is
 *              computed where it is read, in the same kernel, and costs nothing
 *   selective  computes all again but products, attention and gathers: what is large and cheap
 *   full       saves only what goes into a layer (Chen et al., arXiv 1604.06174)
 *
 * A bias is a part of the product that it is added to.
 *
 *   func @h.fwd ... saves(%u, %g)          func @h.fwd ... saves(%u)
 *   func @h.bwd(%d, %u, %g) {              func @h.bwd(%d, %u) {
 *                                            %g = gelu %u
 */
#include "cleanup.h"
#include "epilogue.h"
#include "map.h"
#include "pass.h"
#include "transport.h"

#include <string.h>

typedef struct {
    Module *m;
    Func *fwd, *bwd;
    bool again[CONTROL + 1]; /* of each family: may its ops be computed again? */
    bool for_products;       /* may what a product or a library op reads be computed again? */
    bool whole;              /* full: whatever it costs */
    bool views_only;         /* what is being decided on is read by a product: another view of it is all that is free */
    int carried;
    Op *begin; /* of bwd, before the first copy: they go before it, in the order in which they are made */
    Map made;  /* value of fwd -> its copy in bwd */
} Pair;

static Value *forward_value(const Func *fwd, Name name)
{
    Value *param = param_named(fwd, name);
    if (param)
        return param;
    for (Op *op = fwd->first; op; op = op->next)
        for (int i = 0; i < op->results.count; i++)
            if (op->results.at[i]->name == name)
                return op->results.at[i];
    return NULL;
}

static Value *backward_param(const Pair *p, const Value *value) { return param_named(p->bwd, value->name); }

static bool is_carried(const Pair *p, const Value *value)
{
    int at = value->def ? -1 : index_of(&p->fwd->params, value);
    return at >= 0 && at < p->carried;
}

/* At hand in the backward without saving more: a number, an operand that can be handed over, a residual. */
static bool at_hand(const Pair *p, const Value *value)
{
    if (!value->def && !is_carried(p, value))
        return true;
    return backward_param(p, value) != NULL || map_get(&p->made, value);
}

static bool may_repeat(const Pair *p, const Op *op)
{
    Family family = adds_bias(p->fwd, op) ? PRODUCT : info(op)->family;
    return p->views_only ? family == VIEW : p->again[family];
}

/* Bytes that would have to be saved in addition, so that `value` can be computed again.  A carried value has to be
 * copied to be saved, so it counts twice. */
static double extra_bytes(const Pair *p, const Value *value, const Value *wanted, Map *seen)
{
    if ((value != wanted && at_hand(p, value)) || map_get(seen, value))
        return 0;
    map_put(seen, value, (void *)value);
    if (!value->def || (!may_repeat(p, value->def) && info(value->def)->family != LEAF))
        return (double)local_bytes(p->m, &value->type) * (is_carried(p, value) ? 2 : 1);
    double bytes = 0;
    for (int i = 0; i < value->def->args.count; i++)
        bytes += extra_bytes(p, arg(value->def, i), wanted, seen);
    return bytes;
}

static bool read_by_kernels_only(const Pair *p, const Value *param)
{
    for (const Op *op = p->bwd->first; op; op = op->next)
        if (index_of(&op->args, param) >= 0 && info(op)->family != POINTWISE && info(op)->family != REDUCTION)
            return false;
    return index_of(&p->bwd->results, param) < 0;
}

static bool should_repeat(Pair *p, const Value *value, const Value *param)
{
    p->views_only = !p->for_products && !read_by_kernels_only(p, param);
    if (!value || !value->def || !may_repeat(p, value->def))
        return false;
    if (p->whole)
        return true;
    Map seen = { .arena = &p->m->arena };
    double own = (double)local_bytes(p->m, &value->type);
    return extra_bytes(p, value, value, &seen) <= own + own / 16; /* the statistics of a row are small change */
}

/* The value in bwd, computed there if it is not at hand.  New ops go before `b`. */
static Value *make(Pair *p, Builder *b, Value *value, bool again)
{
    Value *made = again ? NULL : map_get(&p->made, value);
    if (made)
        return made;
    made = again ? NULL : backward_param(p, value);
    if (!made && value->def && (info(value->def)->family == LEAF || may_repeat(p, value->def))) {
        const Op *op = value->def;
        Value **args = NEW_ARRAY(&p->m->arena, Value *, op->args.count);
        for (int i = 0; i < op->args.count; i++)
            args[i] = make(p, b, arg(op, i), false);
        const Op *clone = clone_op(b, op, args);
        for (int i = 0; i < op->results.count; i++) {
            map_put(&p->made, op->results.at[i], clone->results.at[i]);
            clone->results.at[i]->name = fresh_name(p->m);
        }
        return map_get(&p->made, value);
    }
    if (!made)
        made = transport(p->m, p->fwd, value, p->bwd);
    map_put(&p->made, value, made);
    return made;
}

static void repeat(Pair *p, Value *value, Value *param)
{
    Builder b = builder_at(p->m, p->bwd, p->begin);
    remark(p->m, value->def, "computed again in @%s: %%%s (%.2f MB)", p->bwd->name, value->name,
           (double)local_bytes(p->m, &value->type) / 1e6);
    Value *made = make(p, &b, value, true);
    replace_uses(p->bwd, param, made);
}

/* What is computed again is computed where it is first read: it takes no memory before. */
static void sink_copies(Pair *p)
{
    for (Op *op = p->begin ? p->begin->prev : NULL, *above; op; op = above) {
        above = op->prev;
        Op *user = p->bwd->first;
        for (; user; user = user->next) {
            bool reads = false;
            for (int i = 0; i < op->results.count && !reads; i++)
                reads = index_of(&user->args, op->results.at[i]) >= 0;
            if (reads)
                break;
        }
        if (!user)
            continue;
        remove_op(p->bwd, op);
        insert_op(p->bwd, op, user);
    }
}

static void choose(Pair *p)
{
    Func *caller;
    const Op *call = call_of(p->m, p->fwd, &caller);
    p->carried = call ? (int)call->attrs.carried : 0;
    p->made.arena = &p->m->arena;
    p->begin = p->bwd->first;
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < p->bwd->params.count; i++) {
            Value *param = p->bwd->params.at[i];
            Value *value = is_used(p->bwd, param) ? forward_value(p->fwd, param->name) : NULL;
            if (!should_repeat(p, value, param))
                continue;
            repeat(p, value, param);
            changed = true;
        }
    }
    sink_copies(p);
    share_equal(p->bwd);
    prune_interfaces(p->m);
}

static void set_policy(Pair *p, const char *policy)
{
    Func *caller;
    const Op *call = call_of(p->m, p->fwd, &caller);
    bool layer = call && call->attrs.dims.count; /* `full` is about layers; around them it is selective */
    bool full = strcmp(policy, "full") == 0, selective = full || strcmp(policy, "selective") == 0;
    p->whole = full && layer;
    p->again[POINTWISE] = p->again[VIEW] = true;
    p->again[REDUCTION] = selective;
    p->again[PRODUCT] = p->again[LIBRARY] = p->whole;
    p->for_products = selective;
}

/* @f.fwd and @f.bwd. */
static Func *backward_of(Module *m, const Func *fwd)
{
    size_t length = strlen(fwd->name);
    if (length < 4 || strcmp(fwd->name + length - 4, ".fwd") != 0)
        return NULL;
    return find_func(m, intern_format(m, "%.*s.bwd", (int)length - 4, fwd->name));
}

void pass_recompute(Module *m);
void pass_recompute(Module *m)
{
    const char *policy = m->train.recompute ? m->train.recompute : "none";
    prune_interfaces(m);
    for (Func *f = m->funcs; f; f = f->next) {
        Pair p = { .m = m, .fwd = f, .bwd = backward_of(m, f) };
        if (!p.bwd)
            continue;
        set_policy(&p, policy);
        choose(&p);
    }
}
