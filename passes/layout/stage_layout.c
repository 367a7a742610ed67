/* stage_layout.c -- on which stages of a pipeline ops run, and parameters are.
 *
 * An op runs where its operands are.  A parameter is where it is read: the embedding on the first stage, the head on
 * the last one, a tied one on both. */
#include "stage_layout.h"

#include "stages.h"

int64_t bytes_of(const Type *type) { return element_count(type) * dtype_bytes(type->dtype); }

bool moves_operands(const Op *op, const Type *space, Stages *to)
{
    const Value *largest = NULL;
    Stages common = { 0 };
    bool splits_space = false;
    *to = (Stages){ 0 };
    for (int i = 0; i < op->args.count; i++) {
        const Stages on = arg(op, i)->type.on;
        splits_space |= on.at && axes_in_use(space) & 1u << on.axis;
        common = common.axis < 0 ? common : common_stages(common, on);
        if (on.at && (!largest || bytes_of(&arg(op, i)->type) > bytes_of(&largest->type)))
            largest = arg(op, i);
    }
    if (!splits_space && common.axis < 0)
        *to = largest->type.on;
    return splits_space || (common.axis < 0 && !adds_stages(op));
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

bool has_pipeline(const LayoutRules *rules, const Func *f)
{
    for (const Op *op = f->first; op; op = op->next) {
        Op loop = *op;
        split_loop(rules, &loop);
        if (runs_in_stages(&loop) || (op->attrs.callee && has_pipeline(rules, find_func(rules->m, op->attrs.callee))))
            return true;
    }
    return false;
}

void place_params(Module *m)
{
    const int axis = pipeline_axis(m);
    if (axis < 0)
        return;
    Map needed = stages_needed(m, false);
    for (Param *param = m->params; param; param = param->next) {
        uint64_t at = 0;
        for (const Func *f = m->funcs; f; f = f->next) {
            const Value *value = f->role != PLAIN ? param_for(f, PORT_PARAM, param->name) : NULL;
            at |= value ? stages_needing(&needed, value) : 0;
        }
        param->type.on = unless_all(m, (Stages){ at, at ? axis : 0 });
    }
}
