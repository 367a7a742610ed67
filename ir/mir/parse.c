/* parse.c -- ops, functions and modules from text: the inverse of print.c, production by production.
 *
 * Never trusts its input: every error is reported at its location, and parsing stops.  Functions may be called before
 * their definition; the verifier checks calls.
 */
#include "parse.h"
#include "stages.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* A number as a name: fresh names must differ from it. */
static void note_number(Module *m, Name name)
{
    if (isdigit((unsigned char)name[0]) && strlen(name) < 9) {
        int number = atoi(name);
        m->fresh = number > m->fresh ? number : m->fresh;
    }
}

/* %name, not yet defined in the function. */
static Value *new_value(Parser *p)
{
    Value *value = NEW(&p->module->arena, Value);
    expect(p, "%");
    int begin = p->at;
    value->name = read_name(p);
    if (!p->failed && map_get(&p->values, value->name))
        fail(p, from(p, begin), "a value of that name is defined above");
    map_put(&p->values, value->name, value);
    note_number(p->module, value->name);
    return value;
}

/* %a: a value defined before; NULL after reporting. */
static Value *used_value(Parser *p)
{
    expect(p, "%");
    int begin = p->at;
    Value *value = map_get(&p->values, read_name(p));
    if (!p->failed && !value)
        fail(p, from(p, begin), "no value of that name is defined above");
    return p->failed ? NULL : value;
}

/* %a, %b, ... */
static void used_values(Parser *p, Values *list)
{
    if (peek(p) != '%')
        return;
    do {
        Value *value = used_value(p);
        if (value)
            push_value(&p->module->arena, list, value);
    } while (!p->failed && accept(p, ","));
}

static OpKind op_kind(Parser *p)
{
    peek(p);
    int begin = p->at;
    Name wanted = read_name(p);
    for (int kind = 0; kind < N_OPS && !p->failed; kind++)
        if (strcmp(op_table[kind].name, wanted) == 0)
            return (OpKind)kind;
    fail(p, from(p, begin), "no such op");
    return OP_constant;
}

static void read_types(Parser *p, Op *op)
{
    for (int i = 0; i < op->results.count && !p->failed; i++) {
        Value *value = op->results.at[i];
        expect(p, i ? "," : ":");
        value->type = read_type(p);
        value->storage = read_storage(p, &value->type);
    }
}

static bool in_place_text(char c) { return (unsigned char)c > ' ' && c != ')' && c != '"'; }

/* One word of loc(...): anything without spaces or ')', or a quoted string. */
static Name place_word(Parser *p)
{
    if (peek(p) == '"')
        return read_quoted(p);
    int begin = p->at;
    while (p->at < p->source->length && in_place_text(p->source->text[p->at]))
        p->at++;
    return p->at > begin ? intern(p->module, p->source->text + begin, p->at - begin) : NULL;
}

/* loc(path where), either may be missing: a `where` has a ':'. */
static void read_place(Parser *p, Name *path, Name *where)
{
    if (!accept(p, "loc"))
        return;
    expect(p, "(");
    *path = place_word(p);
    *where = place_word(p);
    if (*path && !*where && strchr(*path, ':')) {
        *where = *path;
        *path = NULL;
    }
    expect(p, ")");
}

static void read_op(Parser *p, Func *f)
{
    Module *m = p->module;
    Op *op = NEW(&m->arena, Op);
    peek(p);
    int begin = p->at;
    if (peek(p) == '%') {
        do {
            Value *value = new_value(p);
            value->def = op;
            push_value(&m->arena, &op->results, value);
        } while (!p->failed && accept(p, ","));
        expect(p, "=");
    }
    op->kind = op_kind(p);
    used_values(p, &op->args);
    read_attrs(p, op->kind, &op->attrs);
    op->loc = from(p, begin);
    read_types(p, op);
    read_place(p, &op->path, &op->where);
    if (!p->failed && info(op)->results >= 0 && info(op)->results != op->results.count)
        fail(p, op->loc, arena_text(&m->arena, "%s has %d results", info(op)->name, info(op)->results));
    if (!p->failed) {
        insert_op(f, op, NULL);
        note_pipeline(m, op);
    }
}

/* The port of the value, if given. */
static Port read_port(Parser *p, Name own)
{
    Port port = { 0 };
    if (!accept(p, "as"))
        return port;
    peek(p);
    int begin = p->at;
    Name word = read_name(p);
    for (PortKind kind = PORT_NONE + 1; kind < N_PORTS; kind++)
        if (word && strcmp(port_word(kind), word) == 0)
            port.kind = kind;
    if (!p->failed && (!port.kind || port.kind == PORT_RESIDUAL))
        fail(p, from(p, begin), "no such port: see ports.def");
    if (port_is_named(port.kind))
        port.of = own;
    if (port.of && accept(p, "(")) {
        port.of = read_name(p);
        port.slot = accept(p, ",") ? read_name(p) : NULL;
        expect(p, ")");
    }
    return port;
}

static void read_params(Parser *p, Func *f)
{
    expect(p, "(");
    while (!p->failed && peek(p) == '%') {
        Value *param = new_value(p);
        expect(p, ":");
        param->type = read_type(p);
        param->storage = read_storage(p, &param->type);
        param->port = read_port(p, param->name);
        push_value(&p->module->arena, &f->params, param);
        if (!accept(p, ","))
            break;
    }
    expect(p, ")");
}

static void read_results(Parser *p, Func *f)
{
    Values saved = { 0 };
    while (!p->failed && peek(p) == '%') {
        Value *value = used_value(p);
        if (!p->failed)
            add_result(p->module, f, value, read_port(p, value->name));
        if (!accept(p, ","))
            break;
    }
    if (!accept(p, "saves"))
        return;
    expect(p, "(");
    used_values(p, &saved);
    expect(p, ")");
    for (int i = 0; i < saved.count; i++)
        add_result(p->module, f, saved.at[i], (Port){ .kind = PORT_RESIDUAL });
}

/* Ports of a program without any (a fragment written by hand): those of its role, in order.  The last results of a step
 * replace its last parameters. */
static void assume_ports(Module *m, Func *f)
{
    const PortKind first[] = { f->role == PREDICT ? PORT_LOGITS : PORT_LOSS, PORT_GRADIENT_NORM };
    const int nstate = f->role == STEP ? f->results.count - 2 : 0;
    for (int i = 0; i < f->params.count; i++) {
        Value *param = f->params.at[i];
        const bool is_kept = i >= f->params.count - nstate;
        if (!param->port.kind)
            param->port = is_kept ? (Port){ .kind = PORT_PARAM, .of = param->name } : port_named(m, param->name);
        if (f->role == STEP && !is_kept && param->port.kind == PORT_PARAM)
            param->port = (Port){ 0 };
    }
    const Values results = f->results;
    f->results = (Values){ 0 };
    for (int i = 0; i < results.count; i++) {
        Port port = { 0 };
        if (f->role == TOTALS)
            port = (Port){ .kind = PORT_TOTAL, .of = intern_format(m, "%d", i) };
        else if (i < 1 + (f->role == STEP))
            port.kind = first[i];
        else if (f->role == STEP && nstate <= f->params.count)
            port = f->params.at[f->params.count - nstate + i - 2]->port;
        add_result(m, f, results.at[i], port);
    }
}

static FuncRole read_role(Parser *p)
{
    for (int role = 1; role < N_ROLES; role++)
        if (accept(p, role_name[role]))
            return (FuncRole)role;
    return PLAIN;
}

static void read_func(Parser *p)
{
    FuncRole role = read_role(p);
    expect(p, "@");
    int begin = p->at;
    Name name = read_name(p);
    if (!p->failed && find_func(p->module, name))
        fail(p, from(p, begin), "a function of that name is defined above");
    Func *f = add_func(p->module, name, role);
    f->loc = from(p, begin);
    p->values = (Map){ .arena = &p->module->arena };
    read_params(p, f);
    if (accept(p, "backward")) {
        expect(p, "(");
        expect(p, "@");
        f->forward = read_name(p);
        expect(p, ")");
    }
    if (accept(p, "inner")) {
        expect(p, "(");
        f->inner = read_names(p);
        expect(p, ")");
    }
    if (accept(p, "frame")) {
        expect(p, "(");
        f->frame = read_natural(p);
        expect(p, ")");
    }
    expect(p, "{");
    while (!p->failed && !accept(p, "return"))
        read_op(p, f);
    read_results(p, f);
    expect(p, "}");
    if (f->role != PLAIN && f->role != OPTIMIZE && f->role != KERNEL && !f->returns.count)
        assume_ports(p->module, f);
}

static void read_mesh(Parser *p)
{
    Module *m = p->module;
    do {
        if (m->naxes == MAX_AXES) {
            fail(p, from(p, p->at), "too many axes");
            break;
        }
        peek(p);
        const int begin = p->at;
        m->axis[m->naxes] = read_name(p);
        for (int i = 0; i < m->naxes && !p->failed; i++)
            if (m->axis[i] == m->axis[m->naxes])
                fail(p, from(p, begin), "the mesh has this axis already");
        expect(p, "=");
        int64_t size = read_int(p);
        if (!p->failed && (size < 1 || size > 1 << 20))
            fail(p, from(p, p->at - 1), "an axis must have from 1 to 2^20 ranks");
        m->axis_size[m->naxes++] = p->failed ? 1 : size;
    } while (!p->failed && accept(p, ","));
}

static void read_param(Parser *p, Param **end)
{
    Param *param = NEW(&p->module->arena, Param);
    expect(p, "%");
    int at = p->at;
    param->name = read_name(p);
    param->loc = from(p, at);
    if (!p->failed && find_param(p->module, param->name))
        fail(p, param->loc, "a parameter of that name is declared above");
    *end = param;
    param->path = read_name(p);
    param->first = accept(p, "from") ? read_natural(p) : 0;
    param->skips = accept(p, "skip") ? read_natural(p) : 0;
    expect(p, ":");
    param->type = read_type(p);
    expect(p, "=");
    peek(p);
    int begin = p->at;
    Name init = read_name(p);
    while (param->init < N_INITS && strcmp(init_name[param->init], init) != 0)
        param->init++;
    if (!p->failed && param->init == N_INITS) {
        param->init = ZEROS;
        fail(p, from(p, begin), "expected zeros, ones, normal, uniform or constant");
    }
    expect(p, "(");
    param->a = read_number(p);
    expect(p, ",");
    param->b = read_number(p);
    expect(p, ")");
    param->decay = !accept(p, "no_decay");
    param->frozen = accept(p, "frozen");
    param->state = accept(p, "state");
    param->most = param->state && accept(p, "max");
    if (accept(p, "like")) {
        expect(p, "(");
        expect(p, "%");
        param->like = read_name(p);
        expect(p, ")");
    }
    if (accept(p, "update")) {
        expect(p, "(");
        expect(p, "@");
        param->update = read_name(p);
        expect(p, ")");
    }
    Name path = NULL;
    read_place(p, &path, &param->where);
}

static int64_t read_parenthesised(Parser *p, const char *key)
{
    expect(p, key);
    expect(p, "(");
    int64_t value = read_int(p);
    expect(p, ")");
    return value;
}

static void read_input(Parser *p, Input **end)
{
    Input *input = *end = NEW(&p->module->arena, Input);
    expect(p, "%");
    int begin = p->at;
    input->name = read_name(p);
    input->loc = from(p, begin);
    expect(p, ":");
    input->type = read_type(p);
    input->of = input->name;
    if (accept(p, "of(")) {
        expect(p, "%");
        input->of = read_name(p);
        expect(p, ")");
    }
    input->shift = read_parenthesised(p, "shift");
    input->vocab = read_parenthesised(p, "vocab");
    input->may_ignore = accept(p, "ignored(");
    if (input->may_ignore) {
        input->ignored = read_int(p);
        expect(p, ")");
    }
}

static void read_rule(Parser *p, ShardRule **end)
{
    ShardRule *rule = *end = NEW(&p->module->arena, ShardRule);
    rule->dims = read_names(p);
    expect(p, "over");
    peek(p);
    int begin = p->at;
    Name axis = read_name(p);
    while (rule->axis < p->module->naxes && p->module->axis[rule->axis] != axis)
        rule->axis++;
    if (!p->failed && rule->axis == p->module->naxes) {
        rule->axis = 0;
        fail(p, from(p, begin), "the mesh has no such axis");
    }
    if (accept(p, "else"))
        rule->otherwise = read_name(p);
    if (accept(p, "dealt"))
        expect(p, "("), rule->dealt = (int)read_natural(p), expect(p, ")");
    rule->zigzag = accept(p, "zigzag") ? 2 : 0;
    if (rule->zigzag && accept(p, "("))
        rule->zigzag = read_blocks(p), expect(p, ")");
    rule->exchange = accept(p, "exchange");
    rule->ring = accept(p, "ring");
    rule->reversed = accept(p, "reversed");
    rule->joined = accept(p, "joined");
    if (accept(p, "parts"))
        rule->parts = read_parts(p);
}

static void read_saved(Parser *p, SavedValues **end)
{
    SavedValues *saved = *end = NEW(&p->module->arena, SavedValues);
    expect(p, "@");
    int begin = p->at;
    saved->func = read_name(p);
    saved->loc = from(p, begin);
    expect(p, "(");
    if (accept(p, ")"))
        return;
    do {
        const bool is_value = accept(p, "%"); /* else a path and a number: see label_values() */
        const Name name = read_name(p);
        const Name away = !accept(p, "away") ? NULL : accept(p, "%") ? read_name(p) : intern_text(p->module, "");
        add_saved(&p->module->arena, saved, is_value ? intern_format(p->module, "%%%s", name) : name, away);
    } while (!p->failed && accept(p, ","));
    expect(p, ")");
}

/* table "schedule.csv" "F0.0,B0.0..." */
static void read_table(Parser *p)
{
    const char *path = read_quoted(p), *text = read_quoted(p);
    if (p->failed)
        return;
    p->module->table = NEW(&p->module->arena, Source);
    *p->module->table = (Source){ path, text, (int)strlen(text) };
}

static void read_module(Parser *p)
{
    Module *m = p->module;
    expect(p, "module");
    expect(p, "@");
    m->name = read_name(p);
    expect(p, "{");
    if (accept(p, "source"))
        m->source = read_quoted(p);
    if (accept(p, "table"))
        read_table(p);
    if (accept(p, "mesh"))
        read_mesh(p);
    while (accept(p, "dim")) {
        const Name dim = read_name(p);
        const Making making = (Making)read_word_of(p, making_name, N_MAKINGS);
        add_made_dim(m, dim, making, read_name(p));
    }
    for (ShardRule **end = &m->rules; accept(p, "shard"); end = &(*end)->next)
        read_rule(p, end);
    if (accept(p, "batch"))
        m->batch = read_name(p);
    if (accept(p, "vocab"))
        m->vocab = read_name(p);
    if (accept(p, "mixes"))
        m->mixes = read_quoted(p);
    if (accept(p, "auxiliary"))
        m->auxiliary = read_quoted(p);
    if (accept(p, "train")) {
        m->train_loc = from(p, p->at - 5);
        read_train(p, &m->train);
    }
    for (SavedValues **end = &m->saved; accept(p, "save"); end = &(*end)->next)
        read_saved(p, end);
    for (Input **end = &m->inputs; accept(p, "input"); end = &(*end)->next)
        read_input(p, end);
    for (Param **end = &m->params; accept(p, "param"); end = &(*end)->next)
        read_param(p, end);
    while (accept(p, "func"))
        read_func(p);
    expect(p, "}");
    peek(p);
    if (!p->failed && p->at < p->source->length)
        fail(p, (Loc){ p->at, p->at + 1 }, "expected the end of the file");
}

Module *parse_module(const Source *source, Diags *diags)
{
    Parser parser = { .module = new_module(diags), .source = source };
    read_module(&parser);
    return parser.module;
}
