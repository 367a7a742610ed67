/* mir.c -- values, ops and functions as text, written and read.
 *
 * What is written is deterministic: nothing depends on addresses or on the run.  Reading never trusts its input: every
 * error is reported at its location, and reading stops.  Functions may be called before their definition; the verifier
 * checks calls.
 */
#include "mir.h"
#include "near.h"
#include "split_loop.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

const char *const role_name[N_ROLES] = {
    [PLAIN] = "",          [MODEL] = "model",   [OPTIMIZE] = "optimize", [TOTALS] = "totals",
    [STEP] = "step",       [UPDATE] = "update", [EVAL] = "eval",         [PREDICT] = "predict",
    [OUTPUTS] = "outputs", [FINISH] = "finish", [BEGIN] = "begin",       [KERNEL] = "kernel"
};

/* --- Values --------------------------------------------------------------------------------------- */

/* A number as a name: fresh names must differ from it. */
static void note_number(Module *m, Name name)
{
    if (isdigit((unsigned char)name[0]) && strlen(name) < 9) {
        int number = atoi(name);
        m->fresh = number > m->fresh ? number : m->fresh;
    }
}

/* A name that is read is not yet defined in the function. */
static Value *new_value(Mir *t)
{
    Value *value = NEW(&t->module->arena, Value);
    int begin = t->at;
    value->name = read_name(t);
    if (!t->failed && map_get(&t->values, value->name))
        fail(t, from(t, begin), "a value of that name is defined above");
    map_put(&t->values, value->name, value);
    note_number(t->module, value->name);
    return value;
}

/* A value defined before; NULL after reporting. */
static Value *used_value(Mir *t)
{
    int begin = t->at;
    Value *value = map_get(&t->values, read_name(t));
    if (!t->failed && !value)
        fail(t, from(t, begin), "no value of that name is defined above");
    return t->failed ? NULL : value;
}

/* %a, the i-th of a list, which `read` gives. */
static Value *text_value(Mir *t, Values *list, int i, Value *(*read)(Mir *))
{
    mark(t, "%");
    if (t->out)
        return fputs(list->at[i]->name, t->out), list->at[i];
    Value *value = read(t);
    if (value)
        push_value(&t->module->arena, list, value);
    return value;
}

/* %a, %b, ... */
static void text_values(Mir *t, Values *list, Value *(*read)(Mir *))
{
    for (int i = 0; another(t, i, list->count, '%'); i++)
        text_value(t, list, i, read);
}

/* p2+128: 128 bytes from pointer 2; p2+-128: before it. */
static void text_pointer(Mir *t, Storage *s)
{
    int64_t number = s->pointer;
    const int begin = t->at;
    if (t->out)
        fputc('p', t->out);
    else
        t->at++;
    text_natural(t, &number);
    if (number > INT32_MAX)
        fail(t, from(t, begin), "no function has so many pointers");
    s->pointer = (int)number;
    if (given(t, "+", s->at != 0))
        text_Int(t, &s->at);
}

/* at 4096 strides(2304, 64, 1): a stride for each dim. */
static void text_storage(Mir *t, Value *value)
{
    if (!given(t, " at ", value->storage))
        return;
    Storage *s = value->storage = t->out ? value->storage : NEW(&t->module->arena, Storage);
    if (!t->out)
        s->base = peek(t) == 'p' ? BY_POINTER : value->type.tier ? IN_TIER : IN_FRAME;
    if (s->base == BY_POINTER)
        text_pointer(t, s);
    else
        text_natural(t, &s->at);
    opens(t, " strides", true);
    for (int i = 0; i < value->type.rank && !t->failed; i++) {
        mark(t, i ? ", " : "");
        text_natural(t, &s->stride[i]);
    }
    mark(t, ")");
}

void text_type(Mir *t, Type *type)
{
    if (t->out)
        fputs(type_text(t->module, type), t->out);
    else
        *type = read_type(t);
}

static void text_typed(Mir *t, const char *before, Value *value)
{
    mark(t, before);
    text_type(t, &value->type);
    text_storage(t, value);
}

/* " as param(wte)"; for %wte just " as param"; " as state(wte, m)". */
static Port text_port(Mir *t, Port port, Name own)
{
    if (!given(t, " as ", port.kind))
        return port;
    if (t->out) {
        fputs(port_word(port.kind), t->out);
    } else {
        peek(t);
        int begin = t->at;
        Name word = read_name(t);
        for (PortKind kind = PORT_NONE + 1; kind < N_PORTS; kind++)
            if (word && strcmp(port_word(kind), word) == 0)
                port.kind = kind;
        if (!t->failed && (!port.kind || port.kind == PORT_RESIDUAL))
            fail(t, from(t, begin), "no such port: see ports.def");
        port.of = port_is_named(port.kind) ? own : NULL;
    }
    if (port.of && given(t, "(", port.slot || port.of != own)) {
        text_Name(t, &port.of);
        if (given(t, ", ", port.slot))
            text_Name(t, &port.slot);
        mark(t, ")");
    }
    return port;
}

/* --- Places in the .mdl ----------------------------------------------------------------------------- */

/* Anything without spaces or ')'; NULL: nothing. */
static Name read_plain(Mir *t)
{
    const char *text = t->source->text;
    int begin = t->at;
    while (t->at < t->source->length && (unsigned char)text[t->at] > ' ' && text[t->at] != ')' && text[t->at] != '"')
        t->at++;
    return t->at > begin ? intern(t->module, text + begin, t->at - begin) : NULL;
}

/* A word of loc(...), if there is one; in quotes if it would not parse as one word. */
static void text_word(Mir *t, Name *text)
{
    bool is_word = t->out && *text && **text && **text != '#' && !strpbrk(*text, "()\"\\\x7f");
    for (const char *at = is_word ? *text : ""; *at; at++)
        is_word &= (unsigned char)*at > ' ';
    if (is_word)
        fputs(*text, t->out);
    else if (t->out ? *text != NULL : peek(t) == '"')
        text_Quoted(t, text);
    else if (!t->out)
        *text = read_plain(t);
}

void text_place(Mir *t, Name *path, Name *where)
{
    if (!opens(t, " loc", *path || *where))
        return;
    text_word(t, path);
    mark(t, *path && *where ? " " : "");
    text_word(t, where);
    if (!t->out && *path && !*where && strchr(*path, ':'))
        *where = *path, *path = NULL;
    mark(t, ")");
}

/* --- Functions --------------------------------------------------------------------------------------- */

static OpKind read_kind(Mir *t)
{
    peek(t);
    int begin = t->at;
    Name wanted = read_name(t);
    NearMiss near = { .name = wanted };
    for (int kind = 0; kind < N_OPS && !t->failed; kind++) {
        if (strcmp(op_table[kind].name, wanted) == 0)
            return (OpKind)kind;
        offer(&near, op_table[kind].name);
    }
    fail_with_help(t, from(t, begin), "no such op", did_you_mean(&t->module->arena, &near));
    return OP_constant;
}

static void text_op(Mir *t, Op *op)
{
    int begin = t->out ? 0 : (peek(t), t->at);
    text_values(t, &op->results, new_value);
    mark(t, op->results.count ? " = " : "");
    if (t->out)
        fprintf(t->out, "%s%s", info(op)->name, op->args.count ? " " : "");
    else
        op->kind = read_kind(t);
    text_values(t, &op->args, used_value);
    text_attrs(t, op->kind, &op->attrs);
    op->loc = t->out ? op->loc : from(t, begin);
    for (int i = 0; i < op->results.count && !t->failed; i++)
        text_typed(t, i ? ", " : " : ", op->results.at[i]);
    text_place(t, &op->path, &op->where);
    if (!t->failed && info(op)->results >= 0 && info(op)->results != op->results.count)
        fail(t, op->loc, arena_text(&t->module->arena, "%s has %d results", info(op)->name, info(op)->results));
}

static void text_body(Mir *t, Func *f)
{
    if (t->out)
        for (Op *op = f->first; op; op = op->next) {
            fputs("    ", t->out);
            text_op(t, op);
            fputc('\n', t->out);
        }
    while (!t->out && !t->failed && !accept(t, "return")) {
        Op *op = NEW(&t->module->arena, Op);
        text_op(t, op);
        for (int i = 0; i < op->results.count; i++)
            op->results.at[i]->def = op;
        if (t->failed)
            return;
        insert_op(f, op, NULL);
        note_split_loop(t->module, op);
    }
}

static void text_params(Mir *t, Func *f)
{
    mark(t, "(");
    for (int i = 0; another(t, i, f->params.count, '%'); i++) {
        Value *param = text_value(t, &f->params, i, new_value);
        text_typed(t, ": ", param);
        param->port = text_port(t, param->port, param->name);
    }
    mark(t, ")");
}

/* Residuals are last: return %y as loss saves(%a, %b) */
static void text_results(Mir *t, Func *f)
{
    const int residuals = first_residual(f);
    const int count = f->results.count - residuals;
    Values saved = { count, 0, count ? f->results.at + residuals : NULL };
    if (t->out)
        fputs(residuals ? "    return " : "    return", t->out);
    for (int i = 0; another(t, i, residuals, '%'); i++) {
        Values read = { 0 };
        Value *value = text_value(t, t->out ? &f->results : &read, i, used_value);
        const Port port = value ? text_port(t, result_port(f, i), value->name) : (Port){ 0 };
        if (!t->out && !t->failed)
            add_result(t->module, f, value, port);
    }
    if (!opens(t, " saves", saved.count))
        return;
    text_values(t, &saved, used_value);
    mark(t, ")");
    for (int i = 0; !t->out && i < saved.count; i++)
        add_result(t->module, f, saved.at[i], (Port){ .kind = PORT_RESIDUAL });
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
        else if (f->role == OUTPUTS)
            port = (Port){ .kind = PORT_OUTPUT, .of = results.at[i]->name };
        else if (i < 1 + (f->role == STEP))
            port.kind = first[i];
        else if (f->role == STEP && nstate <= f->params.count)
            port = f->params.at[f->params.count - nstate + i - 2]->port;
        add_result(m, f, results.at[i], port);
    }
}

static FuncRole read_role(Mir *t)
{
    for (int role = 1; role < N_ROLES; role++)
        if (accept(t, role_name[role]))
            return (FuncRole)role;
    return PLAIN;
}

/* The function, or the next one of the module. */
void text_func(Mir *t, Func *f)
{
    const FuncRole role = t->out ? f->role : read_role(t);
    if (t->out)
        fprintf(t->out, "%s%s", role_name[role], role ? " " : "");
    mark(t, "@");
    int begin = t->at;
    Name name = t->out ? f->name : NULL;
    text_Name(t, &name);
    if (!t->out) {
        if (!t->failed && find_func(t->module, name))
            fail(t, from(t, begin), "a function of that name is defined above");
        f = add_func(t->module, name, role);
        f->loc = from(t, begin);
        t->values = (Map){ .arena = &t->module->arena };
    }
    text_params(t, f);
    text_reference(t, " backward", "@", &f->forward);
    if (opens(t, " inner", f->inner.count))
        text_Names(t, &f->inner), mark(t, ")");
    if (opens(t, " frame", f->frame))
        text_natural(t, &f->frame), mark(t, ")");
    mark(t, " {\n");
    text_body(t, f);
    text_results(t, f);
    mark(t, "\n  }\n");
    if (!t->out && f->role != PLAIN && f->role != OPTIMIZE && f->role != KERNEL && !f->returns.count)
        assume_ports(t->module, f);
}
