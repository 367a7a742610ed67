/* decay.c -- which parameters decay: those that are multiplied as matrices.
 *
 * A parameter decays if an op that CONTRACTS reads it and it has one of the dims that are contracted: a product,
 * attention, a gather of its rows.  What is made of parameters and numbers alone counts as they do: `dot(x, 0.5 * w,
 * d)`.  A table of positions has no gather, since dims meet by name: a dim of an input says that it is one.  Gains and
 * biases are neither, however many dims they have.
 */
#include "lowering.h"

/* A parameter that a value is made of, with the names that its dims have there. */
typedef struct Part {
    Param *param;
    Type type;
    struct Part *next;
} Part;

/* Of a value that no data go into. */
typedef struct {
    const Part *parts;
} Made;

typedef struct {
    Module *m;
    Map made; /* of values; NULL: data go into them */
} Decay;

static void set_made(Decay *d, const Value *value, const Part *parts)
{
    Made *made = NEW(&d->m->arena, Made);
    made->parts = parts;
    map_put(&d->made, value, made);
}

static Part *with_part(Decay *d, const Part *of, Part *before, Name dim, Name to)
{
    Part *part = NEW(&d->m->arena, Part);
    *part = (Part){ of->param, of->type, before };
    for (int i = 0; i < part->type.rank; i++)
        if (part->type.dim[i].name == dim)
            part->type.dim[i].name = to;
    return part;
}

/* A gather by an iota has the elements of a dim, in their order, under another name. */
static Name renamed_to(const Op *op)
{
    const Op *index = op->args.count == 2 && info(op)->traits & CONTRACTS ? arg(op, 1)->def : NULL;
    const bool renames = op->attrs.dim && index && info(index)->family == LEAF && index->attrs.dims.count;
    return renames ? index->attrs.dims.dim[0].name : op->attrs.to;
}

/* All parts of the operands, as they are called in the result. */
static void pass_on(Decay *d, const Op *op)
{
    Part *parts = NULL;
    const Name to = renamed_to(op);
    for (int i = 0; i < op->args.count; i++) {
        const Made *made = map_get(&d->made, arg(op, i));
        if (!made)
            return;
        for (const Part *part = made->parts; part; part = part->next)
            parts = with_part(d, part, parts, to ? op->attrs.dim : NULL, to);
    }
    for (int i = 0; i < op->results.count; i++)
        set_made(d, op->results.at[i], parts);
}

/* Of attention the features of queries and keys, and the keys of values. */
static bool is_contracted(const Op *op, int operand, Name dim)
{
    if (op->attrs.key)
        return dim == (operand < 2 ? op->attrs.feature : op->attrs.key);
    return op_role(op, dim) != KEEP;
}

static void note_contracted(const Decay *d, const Op *op)
{
    for (int i = 0; i < op->args.count && info(op)->traits & CONTRACTS && !renamed_to(op); i++) {
        const Made *made = map_get(&d->made, arg(op, i));
        for (const Part *part = made ? made->parts : NULL; part; part = part->next)
            for (int j = 0; j < part->type.rank; j++)
                part->param->decay |= is_contracted(op, i, part->type.dim[j].name);
    }
}

static void visit(Decay *d, const Func *f);

/* What a loop carries changes from turn to turn, and counts as data. */
static void visit_callee(Decay *d, const Op *op)
{
    const Func *callee = find_func(d->m, op->attrs.callee);
    for (int i = (int)op->attrs.carried; i < op->args.count; i++) {
        const Made *made = map_get(&d->made, arg(op, i));
        if (made)
            set_made(d, callee->params.at[i], made->parts);
    }
    visit(d, callee);
}

static void visit(Decay *d, const Func *f)
{
    for (const Op *op = f->first; op; op = op->next) {
        note_contracted(d, op);
        if (op->attrs.callee)
            visit_callee(d, op);
        else
            pass_on(d, op);
    }
}

static bool is_table_of_positions(const Module *m, const Param *param)
{
    for (const Input *input = m->inputs; input; input = input->next)
        for (int i = 0; i < input->type.rank; i++)
            if (input->type.dim[i].name != m->batch && find_dim(&param->type, input->type.dim[i].name) >= 0)
                return true;
    return false;
}

void decide_decay(Module *m)
{
    Decay d = { .m = m, .made.arena = &m->arena };
    const Func *model = func_with_role(m, MODEL);
    Map may = { .arena = &m->arena }; /* what no_decay does not exempt */
    for (Param *param = m->params; param; param = param->next) {
        if (param->decay)
            map_put(&may, param, param);
        param->decay = is_table_of_positions(m, param);
    }
    for (int i = 0; i < model->params.count; i++) {
        const Value *value = model->params.at[i];
        Param *param = value->port.kind == PORT_PARAM ? find_param(m, value->port.of) : NULL;
        if (param)
            set_made(&d, value, with_part(&d, &(Part){ param, param->type, NULL }, NULL, NULL, NULL));
        else if (port_is_fed(value->port.kind))
            set_made(&d, value, NULL);
    }
    visit(&d, model);
    for (Param *param = m->params; param; param = param->next)
        param->decay &= map_get(&may, param) != NULL;
}
