/* ports.c -- finds parameters and results of a function by their port. */
#include "ir.h"

#include <string.h>

enum { NAMED = 1, STATE = 2, FED = 4, MEASURED = 8 };

static const struct {
    const char *word;
    unsigned traits;
} table[N_PORTS] = {
#define PORT(name, word, traits) [PORT_##name] = { word, traits },
#include "ports.def"
};

const char *port_word(PortKind kind) { return table[kind].word; }
const FuncRole programs[N_PROGRAMS] = { STEP, EVAL, PREDICT, OUTPUTS, FINISH, BEGIN };

bool is_program(const Func *f)
{
    int i = 0;
    while (i < N_PROGRAMS && programs[i] != f->role)
        i++;
    return i < N_PROGRAMS;
}

bool returns_state(const Func *f) { return f->role == STEP || f->role == FINISH || f->role == BEGIN; }

bool port_is_named(PortKind kind) { return table[kind].traits & NAMED; }
bool port_is_state(PortKind kind) { return table[kind].traits & STATE; }
bool port_is_fed(PortKind kind) { return table[kind].traits & FED; }
bool port_is_measured(PortKind kind) { return table[kind].traits & MEASURED; }
bool same_port(Port a, Port b) { return a.kind == b.kind && a.of == b.of && a.slot == b.slot; }

bool is_trained(const Module *m, Port port) { return port.kind == PORT_PARAM && !find_param(m, port.of)->frozen; }

Port port_named(const Module *m, Name name)
{
    PortKind kind = find_param(m, name) ? PORT_PARAM : find_input(m, name) ? PORT_INPUT : PORT_NONE;
    return (Port){ .kind = kind, .of = kind ? name : NULL };
}

Value *param_with(const Func *f, Port port)
{
    for (int i = 0; i < f->params.count; i++)
        if (same_port(f->params.at[i]->port, port))
            return f->params.at[i];
    return NULL;
}

Value *param_for(const Func *f, PortKind kind, Name of) { return param_with(f, (Port){ .kind = kind, .of = of }); }

static Value **find_indexed(const ParamIndex *index, Port port)
{
    uint64_t hash = (uint64_t)port.kind + 1;
    hash = (hash ^ (uint64_t)(uintptr_t)port.of) * 0x9E3779B97F4A7C15u;
    hash = (hash ^ (uint64_t)(uintptr_t)port.slot) * 0x9E3779B97F4A7C15u;
    uint64_t i = hash >> 32;
    while (index->at[i & (uint64_t)(index->room - 1)] &&
           !same_port(index->at[i & (uint64_t)(index->room - 1)]->port, port))
        i++;
    return &index->at[i & (uint64_t)(index->room - 1)];
}

ParamIndex index_params(Arena *arena, const Func *f)
{
    ParamIndex index = { .room = 16 };
    while (index.room < 2 * f->params.count)
        index.room *= 2;
    index.at = NEW_ARRAY(arena, Value *, index.room);
    for (int i = 0; i < f->params.count; i++) {
        Value **place = find_indexed(&index, f->params.at[i]->port);
        *place = *place ? *place : f->params.at[i];
    }
    return index;
}

Value *indexed_param(const ParamIndex *index, Port port) { return *find_indexed(index, port); }

Port result_port(const Func *f, int i) { return i < f->returns.count ? f->returns.at[i] : (Port){ 0 }; }

int result_at(const Func *f, Port port)
{
    for (int i = 0; i < f->results.count; i++)
        if (same_port(result_port(f, i), port))
            return i;
    return -1;
}

Value *result_for(const Func *f, PortKind kind)
{
    int at = result_at(f, (Port){ .kind = kind });
    return at < 0 ? NULL : f->results.at[at];
}

void add_result(Module *m, Func *f, Value *value, Port port)
{
    push_value(&m->arena, &f->results, value);
    if (!port.kind)
        return;
    for (Ports *to = &f->returns; to->count < f->results.count;) {
        GROW(&m->arena, to->at, to->count, to->room);
        to->at[to->count++] = (Port){ 0 };
    }
    f->returns.at[f->results.count - 1] = port;
}

void insert_result(Module *m, Func *f, int at, Value *value)
{
    if (at >= f->returns.count) {
        insert_value(&m->arena, &f->results, at, value);
        return;
    }
    add_result(m, f, value, f->returns.at[f->returns.count - 1]);
    take_away(&f->results, f->results.count - 1);
    insert_value(&m->arena, &f->results, at, value);
    for (int i = f->returns.count - 1; i > at; i--)
        f->returns.at[i] = f->returns.at[i - 1];
    f->returns.at[at] = (Port){ 0 };
}

void remove_result(Func *f, int at)
{
    take_away(&f->results, at);
    for (int i = at; i + 1 < f->returns.count; i++)
        f->returns.at[i] = f->returns.at[i + 1];
    f->returns.count -= at < f->returns.count;
}

int first_residual(const Func *f)
{
    int first = f->results.count;
    while (first > 0 && result_port(f, first - 1).kind == PORT_RESIDUAL)
        first--;
    return first;
}

int first_state(const Func *f)
{
    int first = f->params.count;
    while (first > 0 && port_is_state(f->params.at[first - 1]->port.kind))
        first--;
    return first;
}

int state_replaced(const Func *f, int result)
{
    const int at = f->params.count - (f->results.count - result);
    return returns_state(f) && port_is_state(result_port(f, result).kind) ? at : -1;
}

bool is_of_repeat(const Module *m, Port port)
{
    const Param *param = port.of ? find_param(m, port.of) : NULL;
    return param && strchr(param->path, '*');
}

StepState state_of(const Func *step)
{
    int first = first_state(step), count = step->params.count - first;
    if (!returns_state(step) || count > step->results.count)
        return (StepState){ 0 };
    return (StepState){ count, step->params.at + first, step->results.at + step->results.count - count };
}

/* --- Saved residuals -------------------------------------------------------------------------- */

void add_saved(Arena *arena, SavedValues *saved, Name value, Name away)
{
    int room = saved->room; /* of both arrays */
    GROW(arena, saved->value, saved->count, room);
    GROW(arena, saved->away, saved->count, saved->room);
    saved->value[saved->count] = value;
    saved->away[saved->count++] = away;
}

SavedValues *saved_of(const Module *m, Name func)
{
    SavedValues *saved = m->saved;
    while (saved && saved->func != func)
        saved = saved->next;
    return saved;
}
