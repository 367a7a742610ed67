/* rank_layout.c -- the ranks on which ops run and parameters are.
 *
 * An op runs where its operands are.  A parameter is where it is read: the embedding on the first rank, the head on
 * the last one, a tied one on both. */
#include "rank_layout.h"

#include "needed.h"
#include "split_loop.h"

int64_t bytes_of(const Type *type) { return element_count(type) * dtype_bytes(type->dtype); }

static bool is_leaf(const Value *value) { return value->def && info(value->def)->family == LEAF; }

/* A number of the step to which different ranks add, as the norm of all gradients: all of them need it.  If only some
 * had it, they alone could update what all hold, and would send that to the others. */
static bool adds_numbers(const Func *f, const Op *op)
{
    if (f->role != STEP || !is_addition(op) || result(op)->type.rank || adds_ranks(op))
        return false;
    const Value *a = arg(op, 0), *b = arg(op, 1);
    return !is_leaf(a) && !is_leaf(b) && !same_ranks(a->type.on, b->type.on);
}

bool moves_operands(const Func *f, const Op *op, const Type *space, RankSet *to)
{
    const Value *largest = NULL;
    RankSet common = { 0 };
    bool splits_space = false;
    *to = (RankSet){ 0 };
    if (adds_numbers(f, op))
        return true;
    for (int i = 0; i < op->args.count; i++) {
        const RankSet on = arg(op, i)->type.on;
        splits_space |= on.at && axes_in_use(space) & 1u << on.axis;
        common = common.axis < 0 ? common : common_ranks(common, on);
        if (on.at && (!largest || bytes_of(&arg(op, i)->type) > bytes_of(&largest->type)))
            largest = arg(op, i);
    }
    if (!splits_space && common.axis < 0)
        *to = largest->type.on;
    return splits_space || (common.axis < 0 && !adds_ranks(op));
}

Name looped_dim(const Op *op) { return op->attrs.dims.count ? op->attrs.dims.dim[0].name : NULL; }

void split_loop(const LayoutRules *rules, Op *op)
{
    if (!looped_dim(op) || op->attrs.scan)
        return;
    Type along = { .rank = 1, .dim = { op->attrs.dims.dim[0] } };
    split_by_rules(rules, &along, 0, NULL);
    op->attrs.dims.dim[0] = along.dim[0];
}

bool splits_any_loop(const LayoutRules *rules, const Func *f)
{
    for (const Op *op = f->first; op; op = op->next) {
        Op loop = *op;
        split_loop(rules, &loop);
        if (is_split_loop(&loop) || (op->attrs.callee && splits_any_loop(rules, find_func(rules->m, op->attrs.callee))))
            return true;
    }
    return false;
}

/* --- Parameters -------------------------------------------------------------------------------------
 * Where they are read is known before anything else of the layout: from the split loops, and where what these
 * carry goes. */

static RankSet ranks_of_op(const Module *m, const Func *f, const Op *op)
{
    RankSet to, on = { 0 };
    if (moves_operands(f, op, &(Type){ 0 }, &to))
        return to;
    for (int i = 0; i < op->args.count; i++) {
        const RankSet given = arg(op, i)->type.on;
        on = !adds_ranks(op) ? common_ranks(on, given) : (RankSet){ on.at | given.at, given.axis };
    }
    return unless_all(m, on);
}

/* The ranks of a callee's parameters; those of carried values are not known yet. */
static void hold_params(const LayoutRules *rules, const Op *op, Func *callee)
{
    const bool names_ranks = !is_split_loop(op) && (!looped_dim(op) || splits_any_loop(rules, callee));
    for (int i = looped_dim(op) ? (int)op->attrs.carried : 0; i < op->args.count && names_ranks; i++)
        callee->params.at[i]->type.on = arg(op, i)->type.on;
}

static void hold_values(const LayoutRules *rules, Map *seen, const Func *f)
{
    Module *m = rules->m;
    for (Op *op = f->first; op; op = op->next) {
        Func *callee = info(op)->family == CONTROL ? find_func(m, op->attrs.callee) : NULL;
        split_loop(rules, op);
        note_split_loop(m, op);
        if (callee && !map_get(seen, callee)) {
            map_put(seen, callee, callee);
            hold_params(rules, op, callee);
            hold_values(rules, seen, callee);
        }
        const bool is_said = callee && says_where(m, callee);
        const RankSet on = is_said || is_split_loop(op) ? (RankSet){ 0 } : ranks_of_op(m, f, op);
        for (int i = 0; i < op->results.count; i++)
            op->results.at[i]->type.on = is_said                                      ? callee->results.at[i]->type.on
                                         : is_split_loop(op) && i < op->attrs.carried ? end_rank(m, op, true)
                                                                                      : on;
    }
}

void place_params(const LayoutRules *rules)
{
    Module *m = rules->m;
    Map seen = { .arena = &m->arena };
    forget_layout(m);
    for (Param *param = m->params; param; param = param->next)
        param->type.on = (RankSet){ 0 };
    for (const Func *f = m->funcs; f && rules->loop_axes; f = f->next)
        if (is_program(f))
            hold_values(rules, &seen, f);
    const int axis = m->kind_axis;
    if (axis < 0)
        return;
    Map needed = ranks_needed(m, false);
    for (Param *param = m->params; param; param = param->next) {
        uint64_t at = 0;
        for (const Func *f = m->funcs; f; f = f->next) {
            const Value *value = f->role != PLAIN ? param_for(f, PORT_PARAM, param->name) : NULL;
            at |= value ? ranks_needing(&needed, value) : 0;
        }
        param->type.on = unless_all(m, (RankSet){ at, at ? axis : 0 });
    }
}
