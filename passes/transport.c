#include "transport.h"

#include "cleanup.h"

Op *call_of(const Module *m, const Func *f, Func **caller)
{
    for (Func *g = m->funcs; g; g = g->next)
        for (Op *op = g->first; op; op = op->next)
            if (op->attrs.callee == f->name) {
                *caller = g;
                return op;
            }
    return NULL;
}

static Value *param_like(const Func *f, const Value *value)
{
    for (int i = 0; i < f->params.count; i++)
        if (f->params.at[i]->name == value->name && type_equal(&f->params.at[i]->type, &value->type))
            return f->params.at[i];
    return NULL;
}

/* One more residual of f; returns the result that its caller gets. */
static Value *save(Module *m, Func *f, Value *value, Op *call)
{
    int at = index_of(&f->results, value);
    if (at >= f->results.count - f->saves)
        return call->results.at[at];
    push_value(&m->arena, &f->results, value);
    f->saves++;
    Type type = call->attrs.dims.count ? with_dim_first(value->type, call->attrs.dims.dim[0]) : value->type;
    Value *result = NEW(&m->arena, Value);
    *result = (Value){ .name = fresh_name(m), .type = type, .def = call };
    push_value(&m->arena, &call->results, result);
    return result;
}

Value *transport(Module *m, Func *from, Value *value, Func *to)
{
    if (from == to)
        return value;
    Value *there = param_like(to, value);
    if (there)
        return there;
    Func *outer = NULL, *outer_to = NULL;
    Op *call = call_of(m, from, &outer), *call_to = call_of(m, to, &outer_to);
    int param = value->def ? -1 : index_of(&from->params, value);
    Value *handed = param >= call->attrs.carried ? arg(call, param) : save(m, from, value, call);
    Value *operand = transport(m, outer, handed, outer_to);
    push_value(&m->arena, &call_to->args, operand);
    return add_param(m, to, value->name, value->type);
}

static void take_away(Values *values, int at)
{
    for (int i = at; i + 1 < values->count; i++)
        values->at[i] = values->at[i + 1];
    values->count--;
}

static bool drop_params(Module *m, Func *f)
{
    Func *caller;
    Op *call = call_of(m, f, &caller);
    bool changed = false;
    for (int i = f->params.count - 1; call && i >= call->attrs.carried; i--)
        if (!is_used(f, f->params.at[i])) {
            take_away(&f->params, i);
            take_away(&call->args, i);
            changed = true;
        }
    return changed;
}

static bool drop_saves(Module *m, Func *f)
{
    Func *caller;
    Op *call = call_of(m, f, &caller);
    bool changed = false;
    for (int i = f->results.count - 1; call && i >= f->results.count - f->saves; i--)
        if (!is_used(caller, call->results.at[i])) {
            take_away(&f->results, i);
            take_away(&call->results, i);
            f->saves--;
            changed = true;
        }
    return changed;
}

/* A backward that nobody needs goes with the last call of it. */
void prune_interfaces(Module *m)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (Func *f = m->funcs; f; f = f->next)
            drop_dead(f);
        drop_unreached(m);
        for (Func *f = m->funcs; f; f = f->next) {
            if (f->role != PLAIN)
                continue;
            changed |= drop_params(m, f);
            changed |= drop_saves(m, f);
        }
    }
}
