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

static void find_calls(Module *m, Link *link)
{
    link->outer = NEW(&m->arena, Link);
    link->call = call_of(m, link->from, &link->outer->from);
    link->call_to = call_of(m, link->to, &link->outer->to);
}

Value *transport(Module *m, Link *link, Value *value)
{
    if (link->from == link->to)
        return value;
    Value *there = param_like(link->to, value);
    if (there)
        return there;
    if (!link->outer)
        find_calls(m, link);
    int param = value->def ? -1 : index_of(&link->from->params, value);
    Value *handed =
        param >= link->call->attrs.carried ? arg(link->call, param) : save(m, link->from, value, link->call);
    push_value(&m->arena, &link->call_to->args, transport(m, link->outer, handed));
    return add_param(m, link->to, value->name, value->type);
}

static void take_away(Values *values, int at)
{
    for (int i = at; i + 1 < values->count; i++)
        values->at[i] = values->at[i + 1];
    values->count--;
}

/* Is the value read by an op of f, or returned? */
static Map what_is_read(Arena *arena, const Func *f)
{
    Map read = { .arena = arena };
    for (const Op *op = f->first; op; op = op->next)
        note_read(&read, &op->args);
    note_read(&read, &f->results);
    return read;
}

static bool drop_params(Module *m, Func *f)
{
    Func *caller;
    Op *call = call_of(m, f, &caller);
    Arena scratch = { 0 };
    Map read = what_is_read(&scratch, f);
    bool changed = false;
    for (int i = f->params.count - 1; call && i >= call->attrs.carried; i--)
        if (!map_get(&read, f->params.at[i])) {
            take_away(&f->params, i);
            take_away(&call->args, i);
            changed = true;
        }
    arena_free(&scratch);
    return changed;
}

static bool drop_saves(Module *m, Func *f)
{
    Func *caller;
    Op *call = call_of(m, f, &caller);
    Arena scratch = { 0 };
    Map read = call ? what_is_read(&scratch, caller) : (Map){ 0 };
    bool changed = false;
    for (int i = f->results.count - 1; call && i >= f->results.count - f->saves; i--)
        if (!map_get(&read, call->results.at[i])) {
            take_away(&f->results, i);
            take_away(&call->results, i);
            f->saves--;
            changed = true;
        }
    arena_free(&scratch);
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
