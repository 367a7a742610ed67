#include "residuals.h"

#include "simplify/cleanup.h"

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

Map map_calls(Arena *arena, const Module *m)
{
    Map calls = { .arena = arena };
    for (Func *f = m->funcs; f; f = f->next)
        for (Op *op = f->first; op; op = op->next)
            if (op->attrs.callee && !map_get(&calls, op->attrs.callee)) {
                CallPlace *place = NEW(arena, CallPlace);
                *place = (CallPlace){ op, f };
                map_put(&calls, op->attrs.callee, place);
            }
    return calls;
}

/* The parameter of a backward for a value of its forward, or NULL. */
static Value *param_standing_for(const Func *f, const Value *value)
{
    Value *param = param_for(f, PORT_FORWARD, value->name);
    return param && type_equal(&param->type, &value->type) ? param : NULL;
}

/* Adds a residual to f; returns the new result of the call. */
static Value *save(Module *m, Func *f, Value *value, Op *call)
{
    int at = index_of(&f->results, value);
    if (at >= 0 && at >= first_residual(f))
        return call->results.at[at];
    add_result(m, f, value, (Port){ .kind = PORT_RESIDUAL });
    Type type = call->attrs.dims.count ? with_dim_first(value->type, call->attrs.dims.dim[0]) : value->type;
    Value *result = NEW(&m->arena, Value);
    *result = (Value){ .name = fresh_name(m), .type = type, .def = call };
    push_value(&m->arena, &call->results, result);
    return result;
}

static void find_calls(Module *m, Link *link)
{
    const CallPlace *from = map_get(link->calls, link->from->name), *to = map_get(link->calls, link->to->name);
    link->outer = NEW(&m->arena, Link);
    *link->outer = (Link){ .from = from->caller, .to = to->caller, .calls = link->calls };
    link->call = from->op;
    link->call_to = to->op;
}

Value *hand_residual(Module *m, Link *link, Value *value)
{
    if (link->from == link->to)
        return value;
    Value *there = param_standing_for(link->to, value);
    if (there)
        return there;
    if (!link->outer)
        find_calls(m, link);
    int param = value->def ? -1 : index_of(&link->from->params, value);
    Value *handed =
        param >= link->call->attrs.carried ? arg(link->call, param) : save(m, link->from, value, link->call);
    push_value(&m->arena, &link->call_to->args, hand_residual(m, link->outer, handed));
    Value *own = add_param(m, link->to, value->name, value->type);
    own->port = (Port){ .kind = PORT_FORWARD, .of = value->name };
    return own;
}

/* --- Labels ---------------------------------------------------------------------------------------- */

static void add_label(Labels *labels, Name label, Value *value)
{
    map_put(&labels->value, label, value);
    map_put(&labels->label, value, (void *)label);
}

Labels label_values(Arena *arena, Module *m, const Func *f)
{
    Labels labels = { { .arena = arena }, { .arena = arena } };
    Map count = { .arena = arena }; /* path -> number of its values so far */
    for (int i = 0; i < f->params.count; i++)
        add_label(&labels, intern_format(m, "%%%s", f->params.at[i]->name), f->params.at[i]);
    for (const Op *op = f->first; op; op = op->next)
        for (int i = 0; i < op->results.count; i++) {
            Value *value = op->results.at[i];
            const intptr_t number = op->path ? (intptr_t)map_get(&count, op->path) + 1 : 0;
            if (op->path)
                map_put(&count, op->path, (void *)number);
            add_label(&labels,
                      number ? intern_format(m, "%s.%d", op->path, (int)number) : intern_format(m, "%%%s", value->name),
                      value);
        }
    return labels;
}

/* --- Unused parameters and results ----------------------------------------------------------------- */

static bool drop_params(Func *f, Op *call, const Map *read)
{
    bool changed = false;
    for (int i = f->params.count - 1; i >= call->attrs.carried; i--)
        if (!map_get(read, f->params.at[i])) {
            take_away(&f->params, i);
            take_away(&call->args, i);
            changed = true;
        }
    return changed;
}

/* Residuals, and what a loop stacks. */
static bool drop_results(Func *f, Op *call, const Map *read)
{
    bool changed = false;
    const int first = call->attrs.dims.count ? (int)call->attrs.carried : first_residual(f);
    for (int i = f->results.count - 1; i >= first; i--)
        if (!map_get(read, call->results.at[i])) {
            remove_result(f, i);
            take_away(&call->results, i);
            changed = true;
        }
    return changed;
}

/* What rounds of pruning hand on. */
typedef struct {
    Arena arena;
    bool is_first;
    Map changed; /* functions that the last round has changed; in the first round all may be */
    Map calls;   /* function name -> its first call */
} Pruning;

static bool may_change(const Pruning *p, const Func *f) { return p->is_first || map_get(&p->changed, f); }

/* The first call of each function, and the function that it is in; one that has lost its first call looks at another
 * one. */
static void find_first_calls(Module *m, Pruning *p, Map *calls, Map *callers)
{
    for (Func *f = m->funcs; f; f = f->next)
        for (Op *op = f->first; op; op = op->next)
            if (op->attrs.callee && !map_get(calls, op->attrs.callee)) {
                map_put(calls, op->attrs.callee, op);
                map_put(callers, op->attrs.callee, f);
                if (map_get(&p->calls, op->attrs.callee) != op)
                    map_put(&p->changed, f, f);
            }
}

/* One round: removes parameters and results without readers.  Ops that lose their last reader are removed in the next
 * round.  Where nothing has changed, nothing can be removed. */
static bool prune_once(Module *m, Pruning *p)
{
    Arena scratch = { 0 };
    Map calls = { .arena = &p->arena }, callers = { .arena = &scratch }, read = { .arena = &scratch };
    Map changed = { .arena = &p->arena };
    find_first_calls(m, p, &calls, &callers);
    for (Func *f = m->funcs; f; f = f->next) {
        for (Op *op = f->first; op && may_change(p, f); op = op->next)
            note_read(&read, &op->args);
        if (may_change(p, f))
            note_read(&read, &f->results);
    }
    for (Func *f = m->funcs; f; f = f->next) {
        Op *call = f->role == PLAIN ? map_get(&calls, f->name) : NULL;
        Func *caller = call ? map_get(&callers, f->name) : NULL;
        bool prunes = call && may_change(p, f) && drop_params(f, call, &read);
        prunes |= call && may_change(p, caller) && drop_results(f, call, &read);
        if (prunes)
            map_put(&changed, f, f), map_put(&changed, caller, caller);
    }
    p->changed = changed, p->calls = calls, p->is_first = false;
    arena_free(&scratch);
    return changed.count > 0;
}

/* An unused backward is removed with its last call. */
void prune_interfaces(Module *m)
{
    Pruning p = { .is_first = true };
    p.changed.arena = p.calls.arena = &p.arena;
    do {
        for (Func *f = m->funcs; f; f = f->next)
            if (may_change(&p, f))
                drop_dead(f);
        drop_unreached(m);
    } while (prune_once(m, &p));
    arena_free(&p.arena);
}
