/* print.c -- IR to text.  parse.c is its inverse, production by production.
 *
 * The output is deterministic: nothing depends on addresses or on the run.
 */
#include "parse.h"
#include "type_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *const making_name[N_MAKINGS] = {
    [MADE_LIKE] = "like",      [MADE_COPIES] = "copies_of", [MADE_RUN] = "run_of",
    [MADE_CHUNK] = "chunk_of", [MADE_TWIN] = "twin_of",
};

const char *const role_name[N_ROLES] = {
    [PLAIN] = "",        [MODEL] = "model",   [OPTIMIZE] = "optimize", [TOTALS] = "totals",
    [STEP] = "step",     [UPDATE] = "update", [EVAL] = "eval",         [PREDICT] = "predict",
    [FINISH] = "finish", [BEGIN] = "begin",   [KERNEL] = "kernel"
};

const char *const init_name[N_INITS] = {
    [ZEROS] = "zeros", [ONES] = "ones", [NORMAL] = "normal", [UNIFORM] = "uniform", [CONSTANT] = "constant"
};

/* For each kind of attribute: whether it is set, and its text. */
static bool set_Name(Name name) { return name != NULL; }
static bool set_Dtype(Dtype dtype) { return dtype != NULL; }
static bool set_Quoted(Quoted text) { return text != NULL; }
static bool set_Names(Names names) { return names.count > 0; }
static bool set_Dims(Dims dims) { return dims.count > 0; }
static bool set_Axes(Axes axes) { return axes != 0; }
static bool set_Stages(Stages on) { return on.at != 0; }
static bool set_Number(Number number) { return number != 0; }
static bool set_Int(Int number) { return number != 0; }
static bool set_Flag(Flag flag) { return flag; }
static bool set_Zigzag(Zigzag blocks) { return blocks; }

static void print_Name(Module *m, Name name, FILE *out) { fputs(name, out); }
static void print_quoted(const char *text, FILE *out);
static void print_Quoted(Module *m, Quoted text, FILE *out) { print_quoted(text, out); }
static void print_Dtype(Module *m, Dtype dtype, FILE *out) { fputs(dtype, out); }

#define KIND(kind, unsaid)                                                                                             \
    static bool set_##kind(kind word) { return word != unsaid; }                                                       \
    static void print_##kind(Module *m, kind word, FILE *out) { fputs(kind##_words[word], out); }
#define WORD(name, text)
#define END(kind)
#include "words.def"

/* The shortest text that reads back as the same number. */
static void print_Number(Module *m, Number number, FILE *out)
{
    char text[32];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        if (strtod(text, NULL) == number)
            break;
    }
    fputs(text, out);
}

static void print_Int(Module *m, Int number, FILE *out) { fprintf(out, "%" PRId64, number); }
static void print_Flag(Module *m, Flag flag, FILE *out) { fputs("true", out); }

static void print_Zigzag(Module *m, Zigzag blocks, FILE *out)
{
    if (blocks == 2)
        fputs("true", out);
    else
        fprintf(out, "%d", blocks);
}

static void print_Names(Module *m, Names names, FILE *out)
{
    for (int i = 0; i < names.count; i++)
        fprintf(out, "%s%s", i ? "+" : "", names.name[i]);
}

static void print_Axes(Module *m, Axes axes, FILE *out) { fputs(text_of_axes(m, axes), out); }

static void print_Stages(Module *m, Stages on, FILE *out) { fprintf(out, "(%s)", stages_text(m, on)); }

static void print_Dims(Module *m, Dims dims, FILE *out)
{
    fputc('[', out);
    for (int i = 0; i < dims.count; i++) {
        fprintf(out, "%s%s", i ? ", " : "", text_of_dim(m, &dims.dim[i]));
    }
    fputc(']', out);
}

static void print_attrs(Module *m, const Attrs *attrs, FILE *out)
{
    const char *before = " {";
#define ATTR(key, kind, ops)                                                                                           \
    if (set_##kind(attrs->key)) {                                                                                      \
        fprintf(out, "%s" #key "=", before);                                                                           \
        print_##kind(m, attrs->key, out);                                                                              \
        before = ", ";                                                                                                 \
    }
#include "attrs.def"
    if (before[0] == ',')
        fputc('}', out);
}

static void print_type(Module *m, const Type *type, FILE *out) { fputs(type_text(m, type), out); }

/* at 4096 strides(2304, 64, 1): a stride for each dim; at p2+128: 128 bytes from pointer 2. */
static void print_storage(const Value *value, FILE *out)
{
    if (!value->storage)
        return;
    const Storage *storage = value->storage;
    fputs(" at ", out);
    if (storage->base == BY_POINTER)
        fprintf(out, "p%d%s", storage->pointer, storage->at ? "+" : "");
    if (storage->base != BY_POINTER || storage->at)
        fprintf(out, "%" PRId64, storage->at);
    fputs(" strides(", out);
    for (int i = 0; i < value->type.rank; i++)
        fprintf(out, "%s%" PRId64, i ? ", " : "", value->storage->stride[i]);
    fputc(')', out);
}

/* " as param(wte)"; for %wte just " as param"; " as state(wte, m)". */
static void print_port(Port port, Name own, FILE *out)
{
    if (port.kind)
        fprintf(out, " as %s", port_word(port.kind));
    if (port.slot)
        fprintf(out, "(%s, %s)", port.of, port.slot);
    else if (port.of && port.of != own)
        fprintf(out, "(%s)", port.of);
}

static void print_typed(Module *m, const Value *value, FILE *out)
{
    print_type(m, &value->type, out);
    print_storage(value, out);
}

static void print_names(const Values *values, int first, int count, FILE *out)
{
    for (int i = 0; i < count; i++) {
        fputs(i ? ", %" : "%", out);
        fputs(values->at[first + i]->name, out);
    }
}

/* In quotes, with invalid bytes as \xNN. */
static void print_quoted(const char *text, FILE *out)
{
    fputc('"', out);
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || strchr("\"\\\x7f", *text))
            fprintf(out, "\\x%02X", (unsigned)(unsigned char)*text);
        else
            fputc(*text, out);
    fputc('"', out);
}

/* Of a word without quotes. */
static bool is_plain(unsigned char c)
{
    return c > ' ' && c != '(' && c != ')' && c != '"' && c != '\\' && c != '\x7f';
}

/* A word of loc(...), in quotes if it would not parse as one word. */
static void print_place(const char *text, FILE *out)
{
    bool is_word = *text && *text != '#';
    for (const char *at = text; *at && is_word; at++)
        is_word = is_plain((unsigned char)*at);
    if (is_word)
        fputs(text, out);
    else
        print_quoted(text, out);
}

static void print_loc(const char *path, const char *where, FILE *out)
{
    if (!path && !where)
        return;
    fputs(" loc(", out);
    if (path)
        print_place(path, out);
    if (path && where)
        fputc(' ', out);
    if (where)
        print_place(where, out);
    fputc(')', out);
}

static void print_op(Module *m, const Op *op, FILE *out)
{
    fputs("    ", out);
    print_names(&op->results, 0, op->results.count, out);
    fprintf(out, "%s%s%s", op->results.count ? " = " : "", info(op)->name, op->args.count ? " " : "");
    print_names(&op->args, 0, op->args.count, out);
    print_attrs(m, &op->attrs, out);
    for (int i = 0; i < op->results.count; i++) {
        fputs(i ? ", " : " : ", out);
        print_typed(m, op->results.at[i], out);
    }
    print_loc(op->path, op->where, out);
    fputc('\n', out);
}

static void print_func(Module *m, const Func *f, FILE *out)
{
    fprintf(out, "  func %s%s@%s(", role_name[f->role], f->role ? " " : "", f->name);
    for (int i = 0; i < f->params.count; i++) {
        fprintf(out, "%s%%%s: ", i ? ", " : "", f->params.at[i]->name);
        print_typed(m, f->params.at[i], out);
        print_port(f->params.at[i]->port, f->params.at[i]->name, out);
    }
    fputs(")", out);
    if (f->forward)
        fprintf(out, " backward(@%s)", f->forward);
    if (f->inner.count) {
        fputs(" inner(", out);
        print_Names(m, f->inner, out);
        fputc(')', out);
    }
    if (f->frame)
        fprintf(out, " frame(%" PRId64 ")", f->frame);
    fputs(" {\n", out);
    for (const Op *op = f->first; op; op = op->next)
        print_op(m, op, out);
    fputs("    return", out);
    const int residuals = first_residual(f);
    for (int i = 0; i < residuals; i++) {
        fprintf(out, "%s%%%s", i ? ", " : " ", f->results.at[i]->name);
        print_port(result_port(f, i), f->results.at[i]->name, out);
    }
    if (residuals < f->results.count) {
        fputs(" saves(", out);
        print_names(&f->results, residuals, f->results.count - residuals, out);
        fputc(')', out);
    }
    fputs("\n  }\n", out);
}

/* param %h.attn.wq h.*.attn.wq from 6 skip 1 : f32[h.copy:12, embed:768] = normal(0.02, 0) no_decay loc(gpt2.mdl:20:5)
 */
static void print_param(Module *m, const Param *param, FILE *out)
{
    fprintf(out, "  param %%%s %s ", param->name, param->path);
    if (param->first)
        fprintf(out, "from %" PRId64 " ", param->first);
    if (param->skips)
        fprintf(out, "skip %" PRId64 " ", param->skips);
    fputs(": ", out);
    print_type(m, &param->type, out);
    fprintf(out, " = %s(", init_name[param->init]);
    print_Number(m, param->a, out);
    fputs(", ", out);
    print_Number(m, param->b, out);
    fputs(param->decay ? ")" : ") no_decay", out);
    fputs(param->frozen ? " frozen" : "", out);
    fputs(param->most ? " state max" : param->state ? " state" : "", out);
    if (param->like)
        fprintf(out, " like(%%%s)", param->like);
    if (param->update)
        fprintf(out, " update(@%s)", param->update);
    print_loc(NULL, param->where, out);
    fputc('\n', out);
}

static void print_input(Module *m, const Input *input, FILE *out)
{
    fprintf(out, "  input %%%s : ", input->name);
    print_type(m, &input->type, out);
    if (input->of != input->name)
        fprintf(out, " of(%%%s)", input->of);
    fprintf(out, " shift(%" PRId64 ") vocab(%" PRId64 ")", input->shift, input->vocab);
    if (input->may_ignore)
        fprintf(out, " ignored(%" PRId64 ")", input->ignored);
    fputc('\n', out);
}

static void print_train(Module *m, FILE *out)
{
    const char *before = "  train {";
#define TRAIN(key, kind)                                                                                               \
    if (set_##kind(m->train.key)) {                                                                                    \
        fprintf(out, "%s" #key "=", before);                                                                           \
        print_##kind(m, m->train.key, out);                                                                            \
        before = ", ";                                                                                                 \
    }
#include "train.def"
    if (before[0] == ',')
        fputs("}\n", out);
}

/* save @h.fwd(%x, h.attn.q.2) */
static void print_saved(const SavedValues *saved, FILE *out)
{
    fprintf(out, "  save @%s(", saved->func);
    for (int i = 0; i < saved->count; i++) {
        const char *away = saved->away[i];
        fprintf(out, "%s%s%s%s", i ? ", " : "", saved->value[i],
                !away   ? ""
                : *away ? " away %"
                        : " away",
                away ? away : "");
    }
    fputs(")\n", out);
}

/* shard heads+ff+vocab over tp else seq dealt(4); shard seq over cp exchange; shard seq over cp zigzag(8) ring */
static void print_rule(Module *m, const ShardRule *rule, FILE *out)
{
    fputs("  shard ", out);
    print_Names(m, rule->dims, out);
    fprintf(out, " over %s%s%s", m->axis[rule->axis], rule->otherwise ? " else " : "",
            rule->otherwise ? rule->otherwise : "");
    if (rule->dealt)
        fprintf(out, " dealt(%d)", rule->dealt);
    fputs(rule->zigzag ? " zigzag" : "", out);
    if (rule->zigzag > 2)
        fprintf(out, "(%d)", rule->zigzag);
    fprintf(out, "%s%s%s%s", rule->exchange ? " exchange" : "", rule->ring ? " ring" : "",
            rule->reversed ? " reversed" : "", rule->joined ? " joined" : "");
    fprintf(out, rule->parts ? " parts(%s)\n" : "\n", rule->parts);
}

/* mixes "gpt2.mdl:24:9" */
static void print_where(const char *word, Name place, FILE *out)
{
    if (!place)
        return;
    fprintf(out, "  %s ", word);
    print_quoted(place, out);
    fputc('\n', out);
}

void print_module(Module *m, FILE *out)
{
    fprintf(out, "module @%s {\n", m->name);
    if (m->source) {
        fputs("  source ", out);
        print_quoted(m->source, out);
        fputc('\n', out);
    }
    if (m->table) {
        fputs("  table ", out);
        print_quoted(m->table->path, out);
        fputc(' ', out);
        print_quoted(m->table->text, out);
        fputc('\n', out);
    }
    for (int i = 0; i < m->naxes; i++)
        fprintf(out, "%s%s=%" PRId64 "%s", i ? ", " : "  mesh ", m->axis[i], m->axis_size[i],
                i + 1 < m->naxes ? "" : "\n");
    for (const MadeDim *dim = m->made_dims; dim; dim = dim->next)
        fprintf(out, "  dim %s %s %s\n", dim->name, making_name[dim->making], dim->of);
    for (const ShardRule *rule = m->rules; rule; rule = rule->next)
        print_rule(m, rule, out);
    if (m->batch)
        fprintf(out, "  batch %s\n", m->batch);
    if (m->vocab)
        fprintf(out, "  vocab %s\n", m->vocab);
    print_where("mixes", m->mixes, out);
    print_where("auxiliary", m->auxiliary, out);
    print_train(m, out);
    for (const SavedValues *saved = m->saved; saved; saved = saved->next)
        print_saved(saved, out);
    for (const Input *input = m->inputs; input; input = input->next)
        print_input(m, input, out);
    for (const Param *param = m->params; param; param = param->next)
        print_param(m, param, out);
    for (const Func *f = m->funcs; f; f = f->next)
        print_func(m, f, out);
    fprintf(out, "}\n");
}

char *module_text(Module *m)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memory(&text, &size);
    print_module(m, out);
    fclose(out);
    return text;
}
