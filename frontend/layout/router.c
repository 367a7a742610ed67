/* router.c -- the dim by which a router knows its experts.
 *
 *   gate = softmax(dot(x, w_gate, embed), experts)          [batch, seq, experts.router]
 *   p, chosen = top_k(gate, experts, 2 -> choice)
 *   xe = dispatch(x, chosen, experts, slots)                [experts, slots, embed]
 *
 * `shard experts over ep` splits the experts, with their weights and rows.  A router scores a token for all experts at
 * once, and top_k compares them: split scores would only be gathered again, and so would be the tokens where the batch
 * is split over ep too.  So in what is computed from, and leads to, the operand of a top_k the dim gets another name,
 * unless it meets rows of experts, or what the trainer feeds or reads.
 */
#include "parallel.h"

typedef struct {
    Module *m;
    Name dim;
    Map own, routed; /* values with the dim, and names of parameters: with rows of experts; with an operand of top_k */
} Router;

static bool has(const Map *set, const Value *value)
{
    return map_get(set, value) || (value->port.kind == PORT_PARAM && map_get(set, value->port.of));
}

/* True if that is new. */
static bool add(const Router *r, Map *set, const Value *value)
{
    if (find_dim(&value->type, r->dim) < 0 || map_get(set, value))
        return false;
    map_put(set, value, set);
    if (value->port.kind == PORT_PARAM)
        map_put(set, value->port.of, set);
    return true;
}

/* Values that are one: if one is in the set, both are. */
static bool join(const Router *r, Map *set, const Value *a, const Value *b)
{
    bool any = (has(set, a) && add(r, set, b));
    return (has(set, b) && add(r, set, a)) || any;
}

/* A call: its operands are the callee's parameters, its results the callee's; carried results are parameters again. */
static bool join_call(const Router *r, Map *set, const Op *op)
{
    const Func *callee = find_func(r->m, op->attrs.callee);
    bool any = false;
    for (int i = 0; i < op->args.count; i++)
        any |= join(r, set, arg(op, i), callee->params.at[i]);
    for (int i = 0; i < op->results.count; i++)
        any |= join(r, set, op->results.at[i], callee->results.at[i]);
    for (int i = 0; i < op->attrs.carried; i++)
        any |= join(r, set, callee->params.at[i], callee->results.at[i]);
    return any;
}

static bool join_op(const Router *r, Map *set, const Op *op)
{
    const int count = op->args.count + op->results.count;
    bool is_in = false, any = false;
    for (int i = 0; i < count; i++)
        is_in |= has(set, arg_or_result(op, i)) && find_dim(&arg_or_result(op, i)->type, r->dim) >= 0;
    for (int i = 0; i < count && is_in; i++)
        any |= add(r, set, arg_or_result(op, i));
    return any;
}

/* Adds all values that are connected with those in the set. */
static void spread(const Router *r, Map *set)
{
    for (bool again = true; again;) {
        again = false;
        for (const Func *f = r->m->funcs; f; f = f->next) {
            for (int i = 0; i < f->params.count; i++)
                again |= has(set, f->params.at[i]) && add(r, set, f->params.at[i]);
            for (const Op *op = f->first; op; op = op->next)
                again |= info(op)->family == CONTROL ? join_call(r, set, op) : join_op(r, set, op);
        }
    }
}

static bool is_routers(const Router *r, const Value *value)
{
    return has(&r->routed, value) && !has(&r->own, value) && find_dim(&value->type, r->dim) >= 0;
}

static void rename_in(Names *names, Name from, Name to)
{
    for (int i = 0; i < names->count; i++)
        names->name[i] = names->name[i] == from ? to : names->name[i];
}

static void rename_type(Type *type, Name from, Name to)
{
    const int at = find_dim(type, from);
    if (at >= 0)
        type->dim[at].name = to;
}

static void rename_attrs(Attrs *attrs, Name from, Name to)
{
    Name *const names[] = { &attrs->dim, &attrs->to, &attrs->seq, &attrs->key, &attrs->feature };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        *names[i] = *names[i] == from ? to : *names[i];
    rename_in(&attrs->over, from, to);
    rename_in(&attrs->order, from, to);
    for (int i = 0; i < attrs->dims.count; i++)
        if (attrs->dims.dim[i].name == from)
            attrs->dims.dim[i].name = to;
}

static void rename_all(const Router *r, Name to)
{
    for (Param *param = r->m->params; param; param = param->next)
        if (map_get(&r->routed, param->name) && !map_get(&r->own, param->name))
            rename_type(&param->type, r->dim, to);
    for (Func *f = r->m->funcs; f; f = f->next) {
        for (Op *op = f->first; op; op = op->next) {
            bool renames = false;
            for (int i = 0; i < op->args.count + op->results.count; i++)
                renames |= info(op)->family != CONTROL && is_routers(r, arg_or_result(op, i));
            if (renames)
                rename_attrs(&op->attrs, r->dim, to);
        }
    }
    for (Func *f = r->m->funcs; f; f = f->next) {
        for (int i = 0; i < f->params.count; i++)
            if (is_routers(r, f->params.at[i]))
                rename_type(&f->params.at[i]->type, r->dim, to);
        for (Op *op = f->first; op; op = op->next)
            for (int i = 0; i < op->results.count; i++)
                if (is_routers(r, op->results.at[i]))
                    rename_type(&op->results.at[i]->type, r->dim, to);
    }
}

/* What a scan along the dim slices or stacks: inside, there is no dim that could have another name. */
static void add_scanned(Router *r, const Op *scan, const Value *value)
{
    if (scan->attrs.dims.dim[0].name == r->dim)
        add(r, &r->own, value);
}

static void name_router(Module *m, Name experts)
{
    Router r = { .m = m, .dim = experts, .own.arena = &m->arena, .routed.arena = &m->arena };
    for (const Func *f = m->funcs; f; f = f->next) {
        for (int i = 0; i < f->params.count; i++)
            if (f->params.at[i]->port.kind == PORT_INPUT)
                add(&r, &r.own, f->params.at[i]);
        if (result_for(f, PORT_LOGITS))
            add(&r, &r.own, result_for(f, PORT_LOGITS));
        for (const Op *op = f->first; op; op = op->next) {
            if (op->kind == OP_dispatch)
                add(&r, &r.own, result(op));
            for (int i = 0; i < op->args.count + op->results.count && op->attrs.scan; i++)
                add_scanned(&r, op, arg_or_result(op, i));
            if (op->kind == OP_top_k && op->attrs.dim == experts)
                add(&r, &r.routed, arg(op, 0));
        }
    }
    spread(&r, &r.own);
    spread(&r, &r.routed);
    rename_all(&r, intern_format(m, "%s.router", experts));
}

void name_routers(Module *m)
{
    Names done = { 0 };
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next) {
            const Name experts = op->kind == OP_dispatch ? op->attrs.dims.dim[0].name : NULL;
            if (!experts || has_name(&done, experts) || done.count == MAX_NAMES)
                continue;
            add_name(&done, experts);
            name_router(m, experts);
        }
}
