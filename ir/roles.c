/* roles.c -- the effect of an op on each dim of its space: the functions that the column `roles` of ops.def names. */
#include "infer.h"
#include "operands.h"

Role role_over(const Op *op, Name dim) { return has_name(&op->attrs.over, dim) ? info(op)->over : KEEP; }

Role role_named(const Op *op, Name dim)
{
    const Attrs *a = &op->attrs;
    bool made = a->dims.count && a->dims.dim[0].name == dim;
    return dim == a->dim || dim == a->key || dim == a->feature || made ? info(op)->over : KEEP;
}

bool chooses_zeros(const Op *op, int at) { return info(op)->linear == REST && at > 0 && is_number(arg(op, at), 0); }

void folded_dims(const Op *op, Name *one, Name *outermost)
{
    const Attrs *a = &op->attrs;
    const Name made = a->dims.count ? a->dims.dim[0].name : NULL;
    *one = a->dim ? a->dim : made;
    *outermost = a->dim ? made : a->over.count ? a->over.name[0] : NULL;
}

Name free_dim(const Op *dot, int operand)
{
    const Type *type = &arg(dot, operand)->type, *other = &arg(dot, 1 - operand)->type;
    for (int i = type->rank - 1; i >= 0; i--)
        if (find_dim(other, type->dim[i].name) < 0)
            return type->dim[i].name;
    return NULL;
}

/* split and merge: blocks of the one dim are blocks of the outermost one of the several. */
Role role_folded(const Op *op, Name dim)
{
    Name one, outermost;
    folded_dims(op, &one, &outermost);
    if (dim == one || dim == outermost)
        return KEEP;
    for (int i = 1; i < op->attrs.dims.count; i++)
        if (op->attrs.dims.dim[i].name == dim)
            return WHOLE;
    return role_over(op, dim);
}

/* collect: rows are picked, and summed over some dims of their index. */
Role role_collected(const Op *op, Name dim)
{
    return role_named(op, dim) == KEEP ? role_over(op, dim) : info(op)->over;
}

/* place: the queue of an expert has all tokens. */
Role role_queued(const Op *op, Name dim)
{
    return op->attrs.dims.count && op->attrs.dims.dim[0].name == dim ? WHOLE : role_over(op, dim);
}

/* attend_grad: gradients of keys and values are sums over the queries, and groups of queries, that share them. */
Role role_attended(const Op *op, Name dim)
{
    Role role = role_named(op, dim);
    bool shared = find_dim(&arg(op, 1)->type, dim) < 0 || find_dim(&arg(op, 2)->type, dim) < 0;
    return role == KEEP && shared ? SUM : role;
}

/* attend_bias_grad: the gradient of a bias is a sum over the dims that it lacks. */
Role role_biased(const Op *op, Name dim)
{
    const int bias = operand_at(op, OPERAND_bias);
    Role role = role_named(op, dim);
    return role == KEEP && bias >= 0 && find_dim(&arg(op, bias)->type, dim) < 0 ? SUM : role;
}

static Role (*const role_table[N_OPS])(const Op *, Name dim) = {
#define OP(name, args, res, family, over, roles, linear, traits, flops, infer, vjp) [OP_##name] = role_##roles,
#include "ops.def"
};

Role op_role(const Op *op, Name dim) { return role_table[op->kind](op, dim); }

bool needs_whole(const Op *op, Name dim)
{
    Role role = op_role(op, dim);
    const bool in_parts = op->attrs.own && dim != op->attrs.feature, passes_by = op->attrs.axis && dim == op->attrs.key;
    return (role == WHOLE || role == MIN) && !in_parts && !passes_by;
}

/* Does it need a dim whole that is split like one of the rule: keys, which are split like queries? */
static bool needs_all_keys(const Module *m, const Op *op, const ShardRule *rule)
{
    for (int i = 0; i < op->args.count; i++)
        for (int j = 0; j < arg(op, i)->type.rank; j++) {
            const Name name = arg(op, i)->type.dim[j].name, like = ruled_as(m, name);
            if (like != name && has_name(&rule->dims, like) && needs_whole(op, name))
                return true;
        }
    return false;
}

bool exchanges(const Module *m, const Op *op, const ShardRule *rule)
{
    return rule->exchange && needs_all_keys(m, op, rule);
}

bool passes_keys_around(const Module *m, const Op *op, const ShardRule *rule)
{
    return rule->ring && info(op)->traits & IN_BLOCKS && needs_all_keys(m, op, rule);
}

/* A dim of all its floating-point operands but logits, which it keeps, but not the micro-batch; or else one that
 * queries have alone: the gradients of keys are sums over that. */
bool is_exchangeable(const Module *m, const Op *op, const ShardRule *rule, Name dim, bool repeats)
{
    const Role role = op_role(op, dim);
    if (dim == m->batch || (role != KEEP && (!repeats || role != SUM)) || has_name(&rule->dims, ruled_as(m, dim)))
        return false;
    if (repeats)
        return find_dim(&arg(op, 0)->type, dim) >= 0 && find_dim(&arg(op, 1)->type, dim) < 0 &&
               find_dim(&arg(op, 2)->type, dim) < 0;
    for (int i = 0; i < op->args.count; i++)
        if (is_float(arg(op, i)->type.dtype) && !is_logit(op, i) && find_dim(&arg(op, i)->type, dim) < 0)
            return false;
    return true;
}

bool has_whole_dims(Module *m, const Op *op)
{
    for (int i = 0; i < op->args.count; i++)
        for (int j = 0; j < arg(op, i)->type.rank; j++) {
            const Dim *dim = &arg(op, i)->type.dim[j];
            if (dim->split.count && needs_whole(op, dim->name) && !(info(op)->traits & FOLDS)) /* see infer_views.c */
                return REFUSE("all_gather it first", "%s needs all of '%s', which is split", info(op)->name, dim->name);
        }
    return true;
}
