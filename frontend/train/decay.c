/* decay.c -- selects the parameters with weight decay: those that are multiplied as matrices.
 *
 * A parameter decays if an op that CONTRACTS reads it and it has one of the contracted dims: a product, attention, a
 * gather of its rows.  Values computed only from parameters and numbers count like parameters: `dot(x, 0.5 * w, d)`.  A
 * table of positions is not gathered, since dims are matched by name; it is recognised by a dim of an input.  Gains and
 * biases do not decay, for any number of dims.
 */
#include "operands.h"

#include "train.h"
#include <string.h>

typedef struct {
    Module *m;
    Map made;       /* of values: NULL if they depend on data */
    Map contracted; /* of values: Contraction */
} Decay;

static void set_made(Decay *d, const Value *value, bool made) { map_put(&d->made, value, made ? d : NULL); }

static bool is_made(const Decay *d, const Value *value) { return map_get(&d->made, value) != NULL; }

static const Contraction *contracted(const Decay *d, const Value *value) { return map_get(&d->contracted, value); }

static void contract(Decay *d, const Value *value, Name dim, bool kept)
{
    if (find_dim(&value->type, dim) < 0) /* no longer: an operand may have another dim of that name */
        return;
    for (const Contraction *c = contracted(d, value); c; c = c->next)
        if (c->dim == dim && c->kept == kept)
            return;
    Contraction *c = NEW(&d->m->arena, Contraction);
    *c = (Contraction){ .dim = dim, .kept = kept, .next = map_get(&d->contracted, value) };
    map_put(&d->contracted, value, c);
}

/* Does it place elements of one dim in another one, as pad and part do? */
static bool moves_dim(const Op *op)
{
    const Attrs *a = &op->attrs;
    return op->args.count == 1 && a->dim && a->dims.count == 1 && find_dim(&result(op)->type, a->dim) < 0 &&
           find_dim(&result(op)->type, a->dims.dim[0].name) >= 0;
}

/* A gather by an iota renames a dim, too. */
static Name renamed_to(const Op *op)
{
    if (moves_dim(op))
        return op->attrs.dims.dim[0].name;
    const Op *index = op->args.count == 2 && info(op)->traits & CONTRACTS ? arg(op, 1)->def : NULL;
    const bool renames = op->attrs.dim && index && info(index)->family == LEAF && index->attrs.dims.count;
    return renames ? index->attrs.dims.dim[0].name : op->attrs.to;
}

/* In attention: the features of queries and keys, and the key dim of values. */
static void contract_operand(Decay *d, const Op *op, int i)
{
    if (is_logit(op, i))
        return;
    if (op->attrs.key)
        contract(d, arg(op, i), i < 2 ? op->attrs.feature : op->attrs.key, false);
    else if (op->attrs.dim)
        contract(d, arg(op, i), op->attrs.dim, false);
    for (int j = 0; j < op->attrs.over.count; j++)
        contract(d, arg(op, i), op->attrs.over.name[j], false);
    const bool keeps = op->attrs.over.count || op->attrs.dim; /* a product or a gather: dims of both operands */
    for (int j = 0; keeps && j < arg(op, i)->type.rank; j++)
        if (find_dim(&arg(op, 1 - i)->type, arg(op, i)->type.dim[j].name) >= 0 &&
            !has_name(&op->attrs.over, arg(op, i)->type.dim[j].name) && arg(op, i)->type.dim[j].name != op->attrs.dim)
            contract(d, arg(op, i), arg(op, i)->type.dim[j].name, true);
}

/* A dim that the operand lacks may be a part of one of its dims, or consist of several. */
static void contract_dim(Decay *d, const Op *op, int i, Name dim, bool kept)
{
    const Names gone = info(op)->traits & FOLDS ? dims_lacking(&arg(op, i)->type, &result(op)->type) : (Names){ 0 };
    if (find_dim(&arg(op, i)->type, dim) >= 0 || !gone.count)
        contract(d, arg(op, i), dim, kept);
    for (int j = 0; find_dim(&arg(op, i)->type, dim) < 0 && j < gone.count; j++)
        contract(d, arg(op, i), gone.name[j], kept);
}

/* Contracted dims of a result are contracted dims of its operands, under their names there. */
static void pass_to_operands(Decay *d, const Op *op)
{
    const Name to = renamed_to(op);
    for (int i = 0; i < op->args.count; i++) {
        if (info(op)->traits & CONTRACTS && !to)
            contract_operand(d, op, i);
        for (int j = 0; j < op->results.count && is_made(d, op->results.at[j]); j++)
            for (const Contraction *c = contracted(d, op->results.at[j]); c; c = c->next)
                contract_dim(d, op, i, to && c->dim == to ? op->attrs.dim : c->dim, c->kept);
    }
}

static void visit(Decay *d, const Func *f);

/* Carried values change from iteration to iteration and count as data. */
static void visit_callee(Decay *d, const Op *op)
{
    const Func *callee = find_func(d->m, op->attrs.callee);
    for (int i = 0; i < op->args.count; i++) {
        set_made(d, callee->params.at[i], i >= op->attrs.carried && is_made(d, arg(op, i)));
        map_put(&d->contracted, callee->params.at[i], NULL);
    }
    visit(d, callee);
    for (int i = (int)op->attrs.carried; i < op->args.count; i++)
        for (const Contraction *c = contracted(d, callee->params.at[i]); c; c = c->next)
            contract(d, arg(op, i), c->dim, c->kept);
}

/* Forwards, finds values computed from parameters; backwards, their contracted dims. */
static void visit(Decay *d, const Func *f)
{
    for (const Op *op = f->first; op; op = op->next) {
        bool made = !op->attrs.callee;
        for (int i = 0; i < op->args.count; i++)
            made &= is_made(d, arg(op, i));
        for (int i = 0; i < op->results.count; i++) {
            set_made(d, op->results.at[i], made);
            map_put(&d->contracted, op->results.at[i], NULL);
        }
    }
    for (const Op *op = f->last; op; op = op->prev)
        if (op->attrs.callee)
            visit_callee(d, op);
        else
            pass_to_operands(d, op);
}

/* Positions are those of tokens: what has the features of a fed vector may be a bias. */
static bool is_table_of_positions(const Module *m, const Param *param)
{
    for (const Input *input = m->inputs; input; input = input->next)
        for (int i = 0; i < input->type.rank && input->type.dtype == I32; i++)
            if (input->type.dim[i].name != m->batch && find_dim(&param->type, input->type.dim[i].name) >= 0)
                return true;
    return false;
}

/* For optimizers, which see parameters as matrices. */
static void keep_contracted(Lower *l, const Param *param, const Contraction *list)
{
    Contraction *first = NEW(l->arena, Contraction);
    *first = (Contraction){ .at = -1, .is_table = is_table_of_positions(l->m, param) };
    for (; list; list = list->next) {
        Contraction *kept = NEW(l->arena, Contraction);
        *kept = *list;
        kept->at = find_dim(&param->type, list->dim);
        kept->next = first->next;
        first->next = kept;
    }
    l->optimizing->contracted.arena = l->arena;
    map_put(&l->optimizing->contracted, param->path, first);
}

void decide_decay(Lower *l)
{
    Module *m = l->m;
    Decay d = { .m = m, .made.arena = &m->arena, .contracted.arena = &m->arena };
    const Func *model = func_with_role(m, MODEL);
    Map may = { .arena = &m->arena }; /* parameters without no_decay */
    for (Param *param = m->params; param; param = param->next) {
        if (param->decay)
            map_put(&may, param, param);
        param->decay = is_table_of_positions(m, param);
    }
    for (int i = 0; i < model->params.count; i++) {
        const PortKind kind = model->params.at[i]->port.kind;
        set_made(&d, model->params.at[i], kind == PORT_PARAM || port_is_fed(kind));
    }
    visit(&d, model);
    for (int i = 0; i < model->params.count; i++) {
        const Value *value = model->params.at[i];
        Param *param = value->port.kind == PORT_PARAM ? find_param(m, value->port.of) : NULL;
        for (const Contraction *c = contracted(&d, value); c && param; c = c->next)
            param->decay |= !c->kept && find_dim(&param->type, c->dim) >= 0;
        if (param)
            keep_contracted(l, param, contracted(&d, value));
    }
    for (Param *param = m->params; param; param = param->next)
        param->decay &= map_get(&may, param) != NULL;
}

/* --- Parameters as matrices -------------------------------------------------------------- */

static bool is_copy(const Param *param, int i)
{
    for (const char *star = strchr(param->path, '*'); star; star = strchr(star + 1, '*'))
        if (i-- == 0)
            return true;
    return false;
}

/* The dims of one matrix: those contracted, and the others. */
Matrix matrix_of(const Lower *l, const Param *param)
{
    const Contraction *uses = map_get(&l->optimizing->contracted, param->path);
    Matrix matrix = { .type = &param->type };
    for (int i = 0; i < param->type.rank; i++) {
        const Name dim = param->type.dim[i].name;
        bool contracted = false, kept = false;
        for (const Contraction *c = uses; c; c = c->next)
            if (c->at == i)
                *(c->kept ? &kept : &contracted) = true;
        if (!is_copy(param, i) && (contracted || !kept))
            add_name(contracted ? &matrix.in : &matrix.out, dim);
    }
    const bool is_table = uses && uses->is_table;
    Names *from = matrix.out.count ? &matrix.out : &matrix.in;
    if ((!matrix.out.count || (is_table && !matrix.in.count)) && from->count > 0) {
        Names all = *from;
        matrix = (Matrix){ .type = &param->type };
        for (int i = 0; i < all.count; i++)
            add_name(i == 0 && all.count > 1 ? &matrix.in : &matrix.out, all.name[i]);
    }
    return matrix;
}
