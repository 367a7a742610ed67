/* dims.c -- one walk over the model: what its ops do to the dims that the file declares.
 *
 * A value is computed from data, or from weights and numbers alone.  What is done to a weight by itself costs nothing
 * that depends on the batch; so only ops with data count, and of products those of a weight and of data.
 */
#include "dims.h"

#include "map.h"

#include <string.h>

typedef enum { OF_NUMBERS, OF_WEIGHTS, OF_DATA } Origin;

typedef struct {
    Module *m;
    Arena *arena;
    DimUses *uses;
    Map origin; /* of a value: a pointer to one of these */
} Walk;

static const Origin origins[] = { OF_NUMBERS, OF_WEIGHTS, OF_DATA };

static Origin origin_of(const Walk *w, const Value *value)
{
    const Origin *origin = map_get(&w->origin, value);
    return origin ? *origin : OF_NUMBERS;
}

static void set_origin(Walk *w, const Value *value, Origin origin)
{
    map_put(&w->origin, value, (void *)&origins[origin]);
}

int dim_number(const DimUses *uses, Name name)
{
    for (int i = 0; i < uses->count; i++)
        if (uses->at[i].name == name)
            return i;
    return -1;
}

static DimUse *use_of(const Walk *w, Name name)
{
    const int at = name ? dim_number(w->uses, name) : -1;
    return at < 0 ? NULL : &w->uses->at[at];
}

static DimSet dims_of(const Walk *w, const Type *type)
{
    DimSet set = 0;
    for (int i = 0; i < type->rank; i++) {
        const int at = dim_number(w->uses, type->dim[i].name);
        set |= at < 0 ? 0 : (DimSet)1 << at;
    }
    return set;
}

/* --- Ops ----------------------------------------------------------------------------------------------------- */

/* Two names of the same elements. */
static void note_same(Walk *w, Name a, Name b)
{
    const DimUse *one = use_of(w, a), *other = use_of(w, b);
    if (!one || !other || one->same == other->same)
        return;
    const int first = one->same < other->same ? one->same : other->same, second = one->same + other->same - first;
    for (int i = 0; i < w->uses->count; i++)
        if (w->uses->at[i].same == second)
            w->uses->at[i].same = first;
}

static void note_roles(Walk *w, const Op *op)
{
    for (int i = 0; i < op->args.count + op->results.count; i++) {
        const Type *type = &arg_or_result(op, i)->type;
        for (int j = 0; j < type->rank; j++) {
            const Name name = type->dim[j].name;
            DimUse *use = use_of(w, name);
            if (!use)
                continue;
            use->whole |= needs_whole(op, name);
            use->reduced |= info(op)->family == REDUCTION && op_role(op, name) != KEEP;
        }
    }
    DimUse *queries = info(op)->traits & IN_BLOCKS ? use_of(w, op->attrs.seq) : NULL;
    if (queries)
        queries->attended = true;
    DimUse *experts = info(op)->traits & FILLS ? use_of(w, op->attrs.dims.dim[0].name) : NULL;
    if (experts)
        experts->experts = true;
}

static void note_product(Walk *w, const Op *op, double copies)
{
    const int weight = origin_of(w, arg(op, 0)) == OF_DATA;
    if (info(op)->family != PRODUCT || origin_of(w, arg(op, weight)) != OF_WEIGHTS)
        return;
    const DimSet dims = dims_of(w, &arg(op, weight)->type);
    Product *product = NEW(w->arena, Product);
    *product = (Product){ .dims = dims,
                          .made = dims & ~dims_of(w, &arg(op, !weight)->type),
                          .summed = dims & ~dims_of(w, &result(op)->type),
                          .flops = copies * op_flops(w->m, op),
                          .next = w->uses->products };
    w->uses->products = product;
}

/* Rows of a table, as of an embedding. */
static void note_table(Walk *w, const Op *op, double copies)
{
    const bool picks = info(op)->traits & CONTRACTS && info(op)->over == PICK;
    DimUse *rows = picks && origin_of(w, arg(op, 0)) == OF_WEIGHTS && origin_of(w, arg(op, 1)) == OF_DATA
                       ? use_of(w, op->attrs.dim)
                       : NULL;
    if (rows)
        rows->rows += copies * (double)element_count(&arg(op, 0)->type);
}

static void note_op(Walk *w, const Op *op, double copies)
{
    Name one = NULL, outermost = NULL;
    note_roles(w, op);
    note_product(w, op, copies);
    note_table(w, op, copies);
    if (info(op)->traits & FOLDS)
        folded_dims(op, &one, &outermost);
    if (one)
        note_same(w, one, outermost);
    else if (op->attrs.dim && op->attrs.to)
        note_same(w, op->attrs.dim, op->attrs.to);
}

/* --- Functions ------------------------------------------------------------------------------------------------ */

static void walk_func(Walk *w, const Func *f, double copies);

/* What all copies together hold of what a repeat carries. */
static void note_residual(Walk *w, const Op *loop, double copies)
{
    for (int i = 0; i < (int)loop->attrs.carried; i++) {
        const Type *type = &arg(loop, i)->type;
        for (int j = 0; j < type->rank; j++) {
            DimUse *use = use_of(w, type->dim[j].name);
            if (use)
                use->residual += copies * (double)element_count(type);
        }
    }
}

static void walk_call(Walk *w, const Op *op, double copies)
{
    const Func *callee = find_func(w->m, op->attrs.callee);
    const Dim *dim = op->attrs.dims.count ? &op->attrs.dims.dim[0] : NULL;
    DimUse *scanned = op->attrs.scan ? use_of(w, dim->name) : NULL;
    if (scanned)
        scanned->scanned = true;
    copies *= dim ? (double)dim->size : 1;
    for (int i = 0; i < callee->params.count; i++)
        set_origin(w, callee->params.at[i], i < (int)op->attrs.carried ? OF_DATA : origin_of(w, arg(op, i)));
    if (dim && !op->attrs.scan)
        note_residual(w, op, copies);
    walk_func(w, callee, copies);
}

static void walk_func(Walk *w, const Func *f, double copies)
{
    for (const Op *op = f->first; op; op = op->next) {
        const bool calls = info(op)->family == CONTROL;
        Origin origin = calls ? OF_DATA : OF_NUMBERS;
        for (int i = 0; i < op->args.count; i++)
            origin = origin_of(w, arg(op, i)) > origin ? origin_of(w, arg(op, i)) : origin;
        for (int i = 0; i < op->results.count; i++)
            set_origin(w, op->results.at[i], origin);
        if (calls)
            walk_call(w, op, copies);
        else if (origin == OF_DATA)
            note_op(w, op, copies);
    }
}

static void walk_model(Walk *w, const Func *model)
{
    for (int i = 0; i < model->params.count; i++) {
        const Value *param = model->params.at[i];
        set_origin(w, param, param->port.kind == PORT_PARAM ? OF_WEIGHTS : OF_DATA);
    }
    walk_func(w, model, 1);
}

/* --- The whole ------------------------------------------------------------------------------------------------- */

static const Dim *find_in(const Module *m, Name name)
{
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            for (int i = 0; i < op->args.count + op->results.count; i++) {
                const Type *type = &arg_or_result(op, i)->type;
                if (find_dim(type, name) >= 0)
                    return &type->dim[find_dim(type, name)];
            }
    return NULL;
}

/* Those with a size that some tensor has. */
static void declare_dims(Walk *w, const Ast *file)
{
    DimUses *uses = w->uses;
    for (const Ast *ast = file; ast; ast = ast->next) {
        const Name name = ast->kind == A_DIM && ast->child ? intern_text(w->m, ast->name) : NULL;
        const Dim *dim = name ? find_in(w->m, name) : NULL;
        if (!dim || uses->count == MAX_DIM_USES)
            continue;
        uses->at[uses->count] = (DimUse){ .name = name, .size = dim->padded, .same = uses->count };
        uses->count++;
    }
}

DimUses *find_dim_uses(Arena *arena, const Ast *file, Module *m)
{
    Walk w = { .m = m, .arena = arena, .uses = NEW(arena, DimUses), .origin = { .arena = arena } };
    declare_dims(&w, file);
    for (const Param *param = m->params; param; param = param->next)
        w.uses->parameters += (double)element_count(&param->type);
    for (const Input *input = m->inputs; input; input = input->next)
        for (int i = 0; i < input->type.rank; i++) {
            DimUse *use = use_of(&w, input->type.dim[i].name);
            if (use)
                use->fed = true;
        }
    walk_model(&w, func_with_role(m, MODEL));
    return w.uses;
}
