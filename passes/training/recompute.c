/* recompute.c -- chooses which residuals are saved and which are recomputed in the backward.
 *
 *   none       saves all values that the backward reads, except pointwise functions of other saved values: these are
 *              recomputed in the kernel that reads them, at no cost
 *   selective  recomputes all but products, attention and what library ops compute from data: values that are large and
 *              cheap, also the windows of convolutions, which are gathers at fixed places
 *   full       saves only the inputs of layers (Chen et al., arXiv 1604.06174); the loops of a layer run again, too
 *   auto       saves the values that the module lists (Module.saved), as chosen with tradeoffs.c
 *
 * The body of a loop that is {chunked} is recomputed in full whatever the policy is: that is what it is for.
 *
 * A bias belongs to its product, and so does a residual: their sum is saved.  A loop that runs again has a body of its
 * own, a copy that still saves what the loop's backward reads: for one layer at a time.
 *
 *   func @h.fwd ... saves(%u, %g)          func @h.fwd ... saves(%u)
 *   func @h.bwd(%d, %u, %g) {              func @h.bwd(%d, %u) {
 *                                            %g = gelu %u
 */
#include "recompute.h"
#include "amount.h"
#include "epilogue.h"
#include "late_loss.h"
#include "map.h"
#include "remark.h"
#include "residuals.h"
#include "simplify/cleanup.h"
#include "uses.h"

#include <stdint.h>
#include <string.h>

typedef struct {
    Module *m;
    Func *fwd, *bwd;
    bool again[CONTROL + 1]; /* of each family: may its ops be recomputed? */
    bool for_products;       /* may operands of products and library ops be recomputed? */
    bool whole;              /* full, auto: at any cost */
    Labels labels;           /* auto: of fwd */
    Map saved;               /* auto: the values that are not recomputed */
    Map away;                /* auto: those of them that leave the device */
    bool views_only;         /* the present value is read by a product: only views of it are free */
    int carried;
    Op *begin; /* of bwd: copies are inserted before it, in order of creation */
    Map made;  /* value of fwd -> its copy in bwd */
    Link link; /* of fwd and bwd */
    Uses fwd_uses, bwd_uses;
    Map forward, params; /* name -> value of fwd, and its parameter of bwd */
    Map returned;        /* parameters of bwd that are also its results */
    Map fixed;           /* value of fwd -> KNOWN_FIXED or KNOWN_TO_VARY */
    Map extreme;         /* value of fwd -> its own maximum or minimum, with which it is compared */
} Pair;

static void note_names(Map *named, const Values *values)
{
    for (int i = 0; i < values->count; i++)
        if (!map_get(named, values->at[i]->name))
            map_put(named, values->at[i]->name, values->at[i]);
}

static void note_param(Pair *p, Value *param)
{
    if (param->port.kind == PORT_FORWARD && !map_get(&p->params, param->port.of))
        map_put(&p->params, param->port.of, param);
}

/* The value of fwd that a value of bwd is, but for rounding; NULL: it is none. */
static const Value *forward_value(const Pair *p, const Value *value)
{
    value = value_before_casts(value);
    return value->port.kind == PORT_FORWARD && !value->def ? map_get(&p->forward, value->port.of) : NULL;
}

/* Notes the operands of a comparison with an extreme: of fwd, which may be made again, or of bwd, as gradients of
 * extremes have. */
static void note_extreme(Pair *p, const Op *op)
{
    for (int side = 0; side < 2; side++) {
        const Value *x = arg(op, side), *y = arg(op, !side);
        const Value *of_fwd = forward_value(p, x), *extreme = forward_value(p, y);
        x = of_fwd ? of_fwd : x;
        y = extreme ? extreme : value_before_casts(y);
        if (is_extreme_of(y, x))
            map_put(&p->extreme, x, (void *)y);
    }
}

static void look_around(Pair *p)
{
    Arena *arena = &p->m->arena;
    p->saved.arena = p->away.arena = p->made.arena = p->forward.arena = p->params.arena = p->returned.arena = arena;
    p->fixed.arena = p->extreme.arena = arena;
    p->fwd_uses = find_uses(arena, p->fwd);
    p->bwd_uses = find_uses(arena, p->bwd);
    for (int i = 0; i < p->bwd->params.count; i++)
        note_param(p, p->bwd->params.at[i]);
    note_read(&p->returned, &p->bwd->results);
    note_names(&p->forward, &p->fwd->params);
    for (const Op *op = p->fwd->first; op; op = op->next)
        note_names(&p->forward, &op->results);
    const Func *const both[] = { p->fwd, p->bwd };
    for (int i = 0; i < 2; i++)
        for (const Op *op = both[i]->first; op; op = op->next)
            if (info(op)->traits & COMPARES)
                note_extreme(p, op);
}

static Value *backward_param(const Pair *p, const Value *value) { return map_get(&p->params, value->name); }

static bool is_read(const Pair *p, const Value *param)
{
    return users_of(&p->bwd_uses, param)->count || map_get(&p->returned, param);
}

static bool is_carried(const Pair *p, const Value *value)
{
    int at = value->def ? -1 : index_of(&p->fwd->params, value);
    return at >= 0 && at < p->carried;
}

/* Is it available in the backward without saving more: a number, an operand that can be passed on, a residual? */
static bool at_hand(const Pair *p, const Value *value)
{
    if (!value->def && !is_carried(p, value))
        return true;
    return backward_param(p, value) != NULL || map_get(&p->made, value);
}

bool is_layer(const Module *m, const Func *f)
{
    Func *caller;
    const Op *call = call_of(m, f, &caller);
    return call && call->attrs.dims.count && !call->attrs.chunked;
}

int carried_of(const Module *m, const Func *f)
{
    Func *caller;
    const Op *call = call_of(m, f, &caller);
    return call ? (int)call->attrs.carried : 0;
}

Family family_for_cost(const Func *f, const Uses *uses, const Op *op)
{
    return product_before(f, uses, op) ? PRODUCT : info(op)->family;
}

static bool is_loop(const Op *op) { return info(op)->family == CONTROL && op->attrs.dims.count; }

enum { KNOWN_FIXED = 1, KNOWN_TO_VARY };

/* Is it computed from numbers and positions alone? */
static bool is_fixed(Pair *p, const Value *value)
{
    intptr_t known = (intptr_t)map_get(&p->fixed, value);
    if (!known) {
        const Family family = value->def ? info(value->def)->family : CONTROL;
        bool fixed = family == LEAF || family == POINTWISE;
        for (int i = 0; fixed && i < value->def->args.count; i++)
            fixed = is_fixed(p, arg(value->def, i));
        known = fixed ? KNOWN_FIXED : KNOWN_TO_VARY;
        map_put(&p->fixed, value, (void *)known);
    }
    return known == KNOWN_FIXED;
}

/* Does it only copy elements from fixed places, some of them several times?  Where data choose the places, they may be
 * on other ranks. */
static bool copies_fixed(Pair *p, const Op *op)
{
    bool copies = info(op)->over != SUM && info(op)->flops == 0 && info(op)->linear != NEVER &&
                  local_bytes(p->m, &result(op)->type) > local_bytes(p->m, &arg(op, 0)->type);
    for (int i = 1; copies && i < op->args.count; i++)
        copies = is_fixed(p, arg(op, i));
    return copies;
}

/* What another loop computes again may differ in the last bit, and then no element of a row is the largest one, which
 * was saved.  It is saved, too, unless both are computed again. */
static bool would_miss(const Pair *p, const Value *value)
{
    const Value *extreme = map_get(&p->extreme, value);
    return extreme && (!p->whole || map_get(&p->saved, extreme));
}

static bool may_repeat(Pair *p, const Value *value)
{
    if (info(value->def)->family == CONTROL)
        return is_loop(value->def) && p->again[CONTROL];
    if (would_miss(p, value))
        return false;
    Family family = family_for_cost(p->fwd, &p->fwd_uses, value->def);
    const bool again = p->again[family] || (p->for_products && family == LIBRARY && copies_fixed(p, value->def));
    return (p->views_only ? family == VIEW : again) && !map_get(&p->saved, value);
}

/* The additional bytes to save so that `value` can be recomputed.  Saving a carried value needs a copy, so it counts
 * twice. */
static double extra_bytes(Pair *p, const Value *value, const Value *wanted, Map *seen)
{
    if ((value != wanted && at_hand(p, value)) || map_get(seen, value))
        return 0;
    map_put(seen, value, (void *)value);
    if (!value->def || (!may_repeat(p, value) && info(value->def)->family != LEAF))
        return (double)local_bytes(p->m, &value->type) * (is_carried(p, value) ? 2 : 1);
    double bytes = 0;
    for (int i = 0; i < value->def->args.count; i++)
        bytes += extra_bytes(p, arg(value->def, i), wanted, seen);
    return bytes;
}

static bool read_by_kernels_only(const Pair *p, const Value *param)
{
    const Users *users = users_of(&p->bwd_uses, param);
    for (int i = 0; i < users->count; i++)
        if (info(users->op[i])->family != POINTWISE && info(users->op[i])->family != REDUCTION)
            return false;
    return !map_get(&p->returned, param);
}

static bool should_repeat(Pair *p, const Value *value, const Value *param)
{
    p->views_only = !p->for_products && !read_by_kernels_only(p, param);
    if (!value || !value->def || !may_repeat(p, value))
        return false;
    if (p->whole)
        return true;
    Arena scratch = { 0 };
    Map seen = { .arena = &scratch };
    double own = (double)local_bytes(p->m, &value->type), extra = extra_bytes(p, value, value, &seen);
    arena_free(&scratch);
    return extra <= own + own / 16; /* ignores the small statistics of rows */
}

/* The value in bwd, recomputed if it is not available.  New ops are inserted before `b`. */
static Value *make(Pair *p, Builder *b, Value *value, bool again)
{
    Value *made = map_get(&p->made, value);
    if (made && (!again || made->def))
        return made;
    made = again ? NULL : backward_param(p, value);
    if (!made && value->def && (info(value->def)->family == LEAF || may_repeat(p, value))) {
        const Op *op = value->def;
        for (int i = 0; i < op->args.count; i++)
            make(p, b, arg(op, i), false);
        Op *clone = clone_mapped(b, op, &p->made);
        if (is_loop(op))
            clone->attrs.callee = copy_func(p->m, find_func(p->m, op->attrs.callee), ".again")->name;
        note_op(&p->bwd_uses, clone);
        for (int i = 0; i < op->results.count; i++)
            clone->results.at[i]->name = fresh_name(p->m);
        return map_get(&p->made, value);
    }
    if (!made) {
        made = hand_residual(p->m, &p->link, value);
        note_param(p, made);
    }
    map_put(&p->made, value, made);
    return made;
}

static void repeat(Pair *p, Value *value, Value *param)
{
    Builder b = builder_at(p->m, p->bwd, p->begin);
    if (p->m->train.recompute != RECOMPUTE_AUTO) /* which prints a table */
        remark(p->m, value->def, "recomputed in @%s: %%%s (%s)", p->bwd->name, value->name,
               bytes_text(&p->m->arena, (double)local_bytes(p->m, &value->type)));
    Value *made = make(p, &b, value, true);
    replace_known_uses(&p->bwd_uses, p->bwd, param, made);
    map_put(&p->returned, param, NULL);
}

/* --- Positions of copies -------------------------------------------------------------------------- */

/* The copies of bwd that are not placed yet, each with its number from 1, in order of creation. */
typedef struct {
    Func *f;
    Map number;
} Copies;

static intptr_t number_of(const Copies *copies, const Op *op)
{
    return op ? (intptr_t)map_get(&copies->number, op) : 0;
}

/* The newest of the copies that op reads; NULL: none is left. */
static Op *last_copy_read(const Copies *copies, const Op *op)
{
    Op *last = NULL;
    for (int i = 0; i < op->args.count; i++)
        if (number_of(copies, arg(op, i)->def) > number_of(copies, last))
            last = arg(op, i)->def;
    return last;
}

/* Places the copies that op needs, transitively, before `root`. */
static void place_copies(Copies *copies, Op **waiting, Op *op, Op *root)
{
    int count = 0;
    for (waiting[count++] = op; count > 0;) {
        Op *copy = last_copy_read(copies, waiting[count - 1]);
        if (copy) {
            waiting[count++] = copy;
            map_put(&copies->number, copy, NULL);
        } else if (--count > 0) {
            insert_op(copies->f, waiting[count], root);
        }
    }
}

/* Moves recomputed values to their first reader, so that they take no memory before.  Returned values stay. */
static void sink_copies(Pair *p)
{
    Arena scratch = { 0 };
    Copies copies = { p->bwd, { .arena = &scratch } };
    intptr_t count = 0;
    for (Op *op = p->bwd->first, *next; op != p->begin; op = next) {
        bool is_read = false;
        next = op->next;
        for (int i = 0; i < op->results.count; i++)
            is_read |= users_of(&p->bwd_uses, op->results.at[i])->count > 0;
        if (!is_read)
            continue;
        map_put(&copies.number, op, (void *)++count);
        remove_op(p->bwd, op);
    }
    Op **waiting = NEW_ARRAY(&scratch, Op *, count + 1);
    for (Op *op = p->bwd->first; op; op = op->next)
        place_copies(&copies, waiting, op, op);
    arena_free(&scratch);
}

/* --- auto --------------------------------------------------------------------------------------- */

/* FLOPs to recompute the value from saved values. */
static double flops_again(Pair *p, const Value *value, const Value *wanted, Map *seen)
{
    if (!value->def || (value != wanted && !may_repeat(p, value)) || map_get(seen, value->def))
        return 0;
    map_put(seen, value->def, value->def);
    double flops = op_flops(p->m, value->def);
    for (int i = 0; i < value->def->args.count; i++)
        flops += flops_again(p, arg(value->def, i), wanted, seen);
    return flops;
}

static void tell_choice(Pair *p, const Value *value)
{
    Arena scratch = { 0 };
    Map seen = { .arena = &scratch };
    const bool saved = !value->def || !may_repeat(p, value);
    remark(p->m, value->def, "%s of @%s: %s, %s to recompute: %s", (const char *)map_get(&p->labels.label, value),
           p->fwd->name, bytes_text(&scratch, (double)local_bytes(p->m, &value->type)),
           flops_text(&scratch, flops_again(p, value, value, &seen)),
           map_get(&p->away, value) ? "offloaded"
           : saved                  ? "saved"
                                    : "recomputed");
    arena_free(&scratch);
}

/* A row for each value that the backward reads or recomputes others from: one layer, on the whole mesh. */
static void tell_choices(Pair *p)
{
    for (int i = 0; i < p->carried; i++)
        if (backward_param(p, p->fwd->params.at[i]) || map_get(&p->saved, p->fwd->params.at[i]))
            tell_choice(p, p->fwd->params.at[i]);
    for (const Op *op = p->fwd->first; op; op = op->next)
        for (int i = 0; i < op->results.count && info(op)->family != CONTROL; i++) /* calls always save theirs */
            if (backward_param(p, op->results.at[i]) || map_get(&p->saved, op->results.at[i]))
                tell_choice(p, op->results.at[i]);
}

/* Finds the values of a list in the module. */
static void note_saved(Pair *p, SavedValues *list)
{
    p->labels = label_values(&p->m->arena, p->m, p->fwd);
    for (int i = 0; list && i < list->count; i++) {
        Value *value = map_get(&p->labels.value, list->value[i]);
        if (value && list->away[i]) {
            list->away[i] = value->name;
            map_put(&p->away, value, value);
        }
        if (value)
            map_put(&p->saved, value, value);
        else
            error_at(p->m->diags, (Where){ .at = list->loc, .help = "remove it" }, "@%s has no value %s to save",
                     p->fwd->name, list->value[i]);
    }
}

/* Does every function with values to save have a backward? */
static bool check_saved(Module *m)
{
    bool good = true;
    for (const SavedValues *saved = m->saved; saved; saved = saved->next) {
        const Func *bwd = m->funcs;
        while (bwd && bwd->forward != saved->func)
            bwd = bwd->next;
        if (!bwd)
            error_at(m->diags, (Where){ .at = saved->loc, .help = "remove the line" },
                     "@%s has no backward to save values for", saved->func);
        good &= bwd != NULL;
    }
    return good;
}

static void choose(Pair *p)
{
    p->begin = p->bwd->first;
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < p->bwd->params.count; i++) {
            Value *param = p->bwd->params.at[i];
            const bool stands = param->port.kind == PORT_FORWARD && is_read(p, param);
            Value *value = stands ? map_get(&p->forward, param->port.of) : NULL;
            if (!should_repeat(p, value, param))
                continue;
            repeat(p, value, param);
            changed = true;
        }
    }
    sink_copies(p);
    share_equal(p->bwd);
}

/* `layer`: see is_layer(); `full` applies to layers, outside of them it is selective. */
static void set_policy(Pair *p, Recompute policy, bool layer)
{
    bool chosen = policy == RECOMPUTE_AUTO, full = policy == RECOMPUTE_FULL;
    bool selective = chosen || full || policy == RECOMPUTE_SELECTIVE;
    p->whole = chosen || (full && layer);
    p->again[POINTWISE] = p->again[VIEW] = true;
    p->again[REDUCTION] = selective;
    p->again[PRODUCT] = p->again[LIBRARY] = layer && (chosen || full);
    p->again[CONTROL] = layer && full;
    p->for_products = selective;
}

static bool has_calls(const Func *f)
{
    for (const Op *op = f->first; op; op = op->next)
        if (info(op)->family == CONTROL)
            return true;
    return false;
}

/* What a backward no longer reads is removed before its callers are looked at: with many callees, not after each. */
void pass_recompute(Module *m);
void pass_recompute(Module *m)
{
    const Recompute policy = m->train.recompute;
    bool is_pruned = true;
    prune_interfaces(m);
    if (!check_saved(m))
        return;
    compute_losses_late(m);
    Map calls = map_calls(&m->arena, m);
    for (Func *f = m->funcs; f; f = f->next) {
        Pair p = { .m = m, .fwd = f->forward ? find_func(m, f->forward) : NULL, .bwd = f };
        p.link = (Link){ .from = p.fwd, .to = f, .calls = &calls };
        if (!p.fwd)
            continue;
        if (!is_pruned && (has_calls(p.fwd) || has_calls(p.bwd))) {
            prune_interfaces(m);
            calls = map_calls(&m->arena, m);
            is_pruned = true;
        }
        if (find_func(m, f->name) != f) /* it had no caller left */
            continue;
        const CallPlace *place = map_get(&calls, p.fwd->name);
        p.carried = place ? (int)place->op->attrs.carried : 0;
        look_around(&p);
        const bool chunked = place && place->op->attrs.chunked, chosen = policy == RECOMPUTE_AUTO && !chunked;
        set_policy(&p, chunked ? RECOMPUTE_FULL : policy, place && place->op->attrs.dims.count);
        if (chosen)
            note_saved(&p, saved_of(m, p.fwd->name));
        if (chosen && tells_remarks(m))
            tell_choices(&p);
        choose(&p);
        is_pruned = false;
    }
    if (!is_pruned)
        prune_interfaces(m);
}
