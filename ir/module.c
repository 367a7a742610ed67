/* module.c -- a module: its functions, parameters and inputs by name; lists of values. */
#include "ir.h"
#include "map.h"
#include "target.h"

#include <stdlib.h>

/* --- Lists of values -------------------------------------------------------------------------- */

void push_value(Arena *arena, Values *values, Value *value)
{
    GROW(arena, values->at, values->count, values->room);
    values->at[values->count++] = value;
}

void insert_value(Arena *arena, Values *values, int at, Value *value)
{
    push_value(arena, values, value);
    for (int i = values->count - 1; i > at; i--)
        values->at[i] = values->at[i - 1];
    values->at[at] = value;
}

void take_away(Values *values, int at)
{
    for (int i = at; i + 1 < values->count; i++)
        values->at[i] = values->at[i + 1];
    values->count--;
}

int index_of(const Values *values, const Value *value)
{
    for (int i = 0; i < values->count; i++)
        if (values->at[i] == value)
            return i;
    return -1;
}

/* --- The module -------------------------------------------------------------------------------- */

/* By name.  New ones are appended to the list and indexed at the next lookup. */
struct Index {
    Map funcs, params;
    Map taken;       /* a name -> the last number behind it that free_func_name() has given; none: 1 */
    Func *last_func; /* indexed in `funcs` */
    Param *last;     /* indexed in `params` */
};

Module *new_module(Diags *diags)
{
    Module *m = calloc(1, sizeof *m);
    if (!m) {
        fprintf(stderr, "mpc: error: out of memory\n");
        exit(EXIT_FAILURE);
    }
    m->diags = diags;
    m->kind_axis = -1;
    m->target = &no_target;
    m->index = NEW(&m->arena, struct Index);
    m->index->funcs.arena = m->index->params.arena = m->index->taken.arena = &m->arena;
    m->parts = NEW(&m->arena, Map);
    m->parts->arena = &m->arena;
    return m;
}

void free_module(Module *m)
{
    arena_free(&m->arena);
    free(m);
}

static void note_funcs(const Module *m)
{
    struct Index *index = m->index;
    for (Func *next = index->last_func ? index->last_func->next : m->funcs; next; next = next->next) {
        if (!map_get(&index->funcs, next->name))
            map_put(&index->funcs, next->name, next);
        index->last_func = next;
    }
}

Func *find_func(const Module *m, Name name)
{
    note_funcs(m);
    return map_get(&m->index->funcs, name);
}

void append_func(Module *m, Func *f)
{
    note_funcs(m);
    f->prev = m->index->last_func;
    *(f->prev ? &f->prev->next : &m->funcs) = f;
}

Func *add_func(Module *m, Name name, FuncRole role)
{
    Func *f = NEW(&m->arena, Func);
    f->name = name;
    f->role = role;
    append_func(m, f);
    return f;
}

Name free_func_name(Module *m, Name base)
{
    intptr_t number = (intptr_t)map_get(&m->index->taken, base);
    Name name;
    do
        name = ++number == 1 ? base : intern_format(m, "%s.%d", base, (int)number);
    while (find_func(m, name));
    map_put(&m->index->taken, base, (void *)number);
    return name;
}

/* The names of removed functions are free again. */
static void forget_name(Module *m, Name name)
{
    map_put(&m->index->funcs, name, NULL);
    m->index->taken = (Map){ .arena = &m->arena };
}

void rename_func(Module *m, Func *f, Name name)
{
    note_funcs(m);
    forget_name(m, f->name);
    map_put(&m->index->funcs, name, f);
    f->name = name;
}

Func *func_with_role(const Module *m, FuncRole role)
{
    Func *f = m->funcs;
    while (f && f->role != role)
        f = f->next;
    return f;
}

Func *called_by(const Module *m, const Op *op) { return op->attrs.callee ? find_func(m, op->attrs.callee) : NULL; }

Func *kernel_called_by(const Module *m, const Op *op)
{
    Func *callee = called_by(m, op);
    return callee && callee->role == KERNEL ? callee : NULL;
}

Func *function_called_by(const Module *m, const Op *op)
{
    Func *callee = called_by(m, op);
    return callee && callee->role != KERNEL ? callee : NULL;
}

void remove_func(Module *m, Func *f)
{
    note_funcs(m);
    *(f->prev ? &f->prev->next : &m->funcs) = f->next;
    if (f->next)
        f->next->prev = f->prev;
    if (m->index->last_func == f)
        m->index->last_func = f->prev;
    forget_name(m, f->name);
}

Param *find_param(const Module *m, Name name)
{
    struct Index *index = m->index;
    for (Param *next = index->last ? index->last->next : m->params; next; next = next->next) {
        if (!map_get(&index->params, next->name))
            map_put(&index->params, next->name, next);
        index->last = next;
    }
    return map_get(&index->params, name);
}

int repeats_around(const Param *param)
{
    int stars = 0;
    for (const char *c = param->path; *c; c++)
        stars += *c == '*';
    return stars;
}

void insert_param(Module *m, Param *before, Param *param)
{
    find_param(m, param->name);
    param->next = before->next;
    before->next = param;
    map_put(&m->index->params, param->name, param);
    if (m->index->last == before)
        m->index->last = param;
}

Input *find_input(const Module *m, Name name)
{
    Input *input = m->inputs;
    while (input && input->name != name)
        input = input->next;
    return input;
}

const Input *longest_input(const Module *m)
{
    const Input *longest = m->inputs;
    for (const Input *input = longest; input; input = input->next)
        if (input->type.rank > longest->type.rank)
            longest = input;
    return longest;
}

bool is_fed_records(const Module *m)
{
    const Input *longest = longest_input(m);
    for (const Input *input = m->inputs; input; input = input->next) {
        const bool is_token = input->type.dtype == I32 && input->type.rank <= 1 + (m->batch != NULL);
        if (!is_token || (input->type.rank == longest->type.rank && !same_dims(&input->type, &longest->type)))
            return true;
    }
    return false;
}
