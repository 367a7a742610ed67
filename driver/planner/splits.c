/* splits.c -- which axes can split an op or a tensor: see splits.h. */
#include "splits.h"

#include "filled.h"

#include <string.h>

static unsigned axis_bit(const Planner *p, const char *name)
{
    for (int i = 0; i < p->naxes; i++)
        if (strcmp(p->axis[i].name, name) == 0)
            return 1u << i;
    return 0;
}

static bool names_dim(const Ast *item, const char *dim)
{
    return item->kind == A_PAIR ? names_dim(item->child, dim) || names_dim(item->child->next, dim)
                                : strcmp(item->name, dim) == 0;
}

static unsigned split_of_name(const Planner *p, const char *dim)
{
    unsigned split = 0;
    for (const Ast *ast = p->parallel->body; ast; ast = ast->next) {
        bool is_named = ast->kind == A_SHARD && ast->init && strcmp(ast->init->name, dim) == 0;
        for (const Ast *item = ast->kind == A_SHARD ? ast->child : NULL; item; item = item->next)
            is_named |= names_dim(item, dim);
        split |= is_named ? axis_bit(p, ast->name) : 0;
    }
    return split;
}

unsigned axes_splitting(const Splits *s, Name dim)
{
    const intptr_t known = (intptr_t)map_get(&s->split, dim);
    return known ? (unsigned)(known - 1) : split_of_name(s->p, dim);
}

static void note_split(Splits *s, Name dim, unsigned split)
{
    map_put(&s->split, dim, (void *)(intptr_t)(axes_splitting(s, dim) + split - (axes_splitting(s, dim) & split) + 1));
}

/* To which tokens are dispatched: each to some of them. */
static void note_experts(Splits *s)
{
    for (const Func *f = s->m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            for (int i = 0; i < op->attrs.dims.count && info(op)->traits & FILLS; i++)
                if (!filled_by(s->m, op->attrs.dims.dim[i].name))
                    add_name(&s->experts, op->attrs.dims.dim[i].name);
}

/* Dims that the compiler makes are split like those that they are made of. */
void find_splits(Splits *s)
{
    note_experts(s);
    for (const MadeDim *dim = s->m->made_dims; dim; dim = dim->next)
        if (dim->making == MADE_LIKE)
            note_split(s, dim->name, axes_splitting(s, dim->of));
    for (const Func *f = s->m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            if (info(op)->traits & FOLDS) {
                Name one, outermost;
                folded_dims(op, &one, &outermost);
                note_split(s, one, axes_splitting(s, outermost));
                note_split(s, outermost, axes_splitting(s, one));
            }
}

unsigned split_of_type(const Splits *s, const Type *type)
{
    unsigned split = 0;
    for (int i = 0; i < type->rank; i++)
        split |= filled_by(s->m, type->dim[i].name) ? ~0u : axes_splitting(s, type->dim[i].name);
    return split;
}

unsigned split_of_op(const Splits *s, const Op *op)
{
    unsigned split = 0;
    for (int i = 0; i < op->args.count + op->results.count; i++)
        split |= split_of_type(s, &arg_or_result(op, i)->type);
    return split;
}

bool grows(const Splits *s, const Type *type)
{
    for (int i = 0; i < type->rank; i++)
        if (type->dim[i].name == s->m->batch || filled_by(s->m, type->dim[i].name))
            return true;
    return false;
}

bool is_of_experts(const Splits *s, const Type *type)
{
    for (int i = 0; i < type->rank; i++)
        if (has_name(&s->experts, type->dim[i].name))
            return true;
    return false;
}

double ranks_sharing(const Planner *p, const PlanLayout *layout, unsigned axes)
{
    double ranks = 1;
    for (int i = 0; i < p->naxes; i++)
        ranks *= axes >> i & 1 && !p->axis[i].is_data && !p->axis[i].splits_copies ? (double)layout->size[i] : 1;
    return ranks;
}
