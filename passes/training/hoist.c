/* hoist.c -- replaces the products of a scan's backward pass, one at each place, by one product after the loop.
 *
 *   func @scan.bwd(..., %sum.w, %h) {                    func @scan.bwd(..., %h) {
 *     %1 = dot %h, %dz {over=batch}
 *     %2 = add %sum.w, %1
 *     return ..., %2, %dz                                  return ..., %dz
 *   ...
 *   %g, %dzs = loop ..., %zeros, %hs, ...           =>   %dzs = loop ..., %hs, ...
 *                                                        %g = dot %hs, %dzs {over=seq+batch}
 *
 * A factor is outside what it is inside, stacked along the dim: an operand that the loop slices, a view of one, or a
 * result that it stacks.  With `recompute none` it may also be a new result, or any residual; else memory comes first,
 * and only residuals that are saved in any case are factors: what the forward carries or reads.  A loop that is
 * {chunked} keeps its products: it is there so that nothing of it is stacked.
 */
#include "autodiff.h"

#include "layout/accumulator.h"
#include "simplify/cleanup.h"

typedef struct {
    Module *m;
    Func *f, *body;
    Op *loop;
} Hoist;

static Name scanned_dim(const Hoist *h) { return h->loop->attrs.dims.dim[0].name; }

static bool saves_all(const Hoist *h) { return h->m->train.recompute <= RECOMPUTE_NONE; }

/* Does the backward have it, whatever is recomputed? */
static bool is_saved(const Hoist *h, const Value *param)
{
    return param->port.kind != PORT_FORWARD || saves_all(h) ||
           param_named(find_func(h->m, h->body->forward), param->port.of);
}

static bool is_stacked(const Hoist *h, const Value *value)
{
    return index_of(&h->body->results, value) >= h->loop->attrs.carried;
}

static const Value *viewed_param(const Value *value)
{
    while (value->def && info(value->def)->family == VIEW)
        value = arg(value->def, 0);
    return value->def ? NULL : value;
}

static bool is_sliced(const Hoist *h, const Value *param)
{
    const int at = index_of(&h->body->params, param);
    return at >= h->loop->attrs.carried && find_dim(&arg(h->loop, at)->type, scanned_dim(h)) >= 0;
}

static bool may_stack(const Hoist *h, const Value *value)
{
    const Value *param = viewed_param(value);
    return param ? is_sliced(h, param) && is_saved(h, param)
                 : is_stacked(h, value) || (saves_all(h) && value->type.rank < MAX_RANK);
}

/* A value of the body at all places. */
static Value *stacked(const Hoist *h, Builder *b, Value *value)
{
    const int carried = (int)h->loop->attrs.carried;
    if (value->def && info(value->def)->family == VIEW && viewed_param(value)) {
        Value *of = stacked(h, b, arg(value->def, 0));
        return result(clone_op(b, value->def, &of));
    }
    if (!value->def)
        return arg(h->loop, index_of(&h->body->params, value));
    for (int i = carried; i < h->body->results.count; i++)
        if (h->body->results.at[i] == value)
            return h->loop->results.at[i];
    Value *all = NEW(&h->m->arena, Value);
    *all = (Value){ .name = fresh_name(h->m),
                    .type = with_dim_first(value->type, h->loop->attrs.dims.dim[0]),
                    .def = h->loop };
    push_value(&h->m->arena, &h->body->results, value);
    push_value(&h->m->arena, &h->loop->results, all);
    return all;
}

/* The product that the i-th carried value sums up over the places; NULL: there is none that can be hoisted. */
static Op *summed_product(const Hoist *h, int i)
{
    const Value *sum = h->body->params.at[i];
    const Op *add = accumulating(h->body, i);
    if (!add || !is_zeros(arg(h->loop, i)))
        return NULL;
    Op *product = arg(add, arg(add, 0) == sum)->def;
    const bool fits = product && info(product)->family == PRODUCT && product->attrs.over.count < MAX_NAMES &&
                      type_equal(&result(product)->type, &sum->type);
    return fits && may_stack(h, arg(product, 0)) && may_stack(h, arg(product, 1)) ? product : NULL;
}

static void hoist(Hoist *h, int i, const Op *product)
{
    Builder b = builder_at(h->m, h->f, h->loop->next);
    b.loc = product->loc, b.path = product->path, b.where = product->where;
    Value *factors[] = { stacked(h, &b, arg(product, 0)), stacked(h, &b, arg(product, 1)) };
    Attrs attrs = product->attrs;
    add_name(&attrs.over, scanned_dim(h));
    Value *sum = build_op(&b, product->kind, attrs, 2, factors);
    replace_uses(h->f, h->loop->results.at[i], sum);
    take_away(&h->loop->args, i);
    take_away(&h->loop->results, i);
    take_away(&h->body->params, i);
    take_away(&h->body->results, i);
    h->loop->attrs.carried--;
}

static void hoist_of_loop(Module *m, Func *f, Op *loop)
{
    Hoist h = { m, f, find_func(m, loop->attrs.callee), loop };
    for (int i = (int)loop->attrs.carried - 1; i >= 0; i--) {
        const Op *product = summed_product(&h, i);
        if (product)
            hoist(&h, i, product);
    }
    drop_dead(h.body);
}

void hoist_products(Module *m)
{
    for (Func *f = m->funcs; f; f = f->next)
        for (Op *op = f->first; op; op = op->next)
            if (op->attrs.scan && !op->attrs.chunked && find_func(m, op->attrs.callee)->forward)
                hoist_of_loop(m, f, op);
}
