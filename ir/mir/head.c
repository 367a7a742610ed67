/* head.c -- the head of a module as text, written and read: all but its functions, and these in order. */
#include "mir.h"
#include "pipeline_text.h"

#include <stdlib.h>
#include <string.h>

static const char *const making_name[N_MAKINGS] = {
    [MADE_LIKE] = "like",      [MADE_COPIES] = "copies_of", [MADE_RUN] = "run_of",
    [MADE_CHUNK] = "chunk_of", [MADE_TWIN] = "twin_of",
};

const char *const init_name[N_INITS] = {
    [ZEROS] = "zeros", [ONES] = "ones", [NORMAL] = "normal", [UNIFORM] = "uniform", [CONSTANT] = "constant"
};

/* %wte, and in *loc where that is. */
static void text_own_name(Mir *t, Name *name, Loc *loc)
{
    mark(t, "%");
    const int begin = t->at;
    text_Name(t, name);
    *loc = t->out ? *loc : from(t, begin);
}

/* param %h.attn.wq h.*.attn.wq from 6 skip 1 : f32[h.copy:12, embed:768] = normal(0.02, 0) no_decay loc(gpt2.mdl:20:5)
 */
static void text_param(Mir *t, Param *param)
{
    Name path = NULL;
    text_own_name(t, &param->name, &param->loc);
    if (!t->out && !t->failed && find_param(t->module, param->name) != param)
        fail(t, param->loc, "a parameter of that name is declared above");
    mark(t, " ");
    text_Name(t, &param->path);
    if (given(t, " from ", param->first))
        text_natural(t, &param->first);
    if (given(t, " skip ", param->skips))
        text_natural(t, &param->skips);
    mark(t, " : ");
    text_type(t, &param->type);
    mark(t, " = ");
    if (t->out)
        fputs(init_name[param->init], t->out);
    else
        param->init = (InitKind)read_word_of(t, init_name, 0, N_INITS);
    mark(t, "(");
    text_Number(t, &param->a);
    mark(t, ", ");
    text_Number(t, &param->b);
    mark(t, ")");
    param->decay = !given(t, " no_decay", !param->decay);
    param->frozen = given(t, " frozen", param->frozen);
    param->state = given(t, " state", param->state);
    param->most = param->state && given(t, " max", param->most);
    text_reference(t, " like", "%", &param->like);
    text_reference(t, " update", "@", &param->update);
    text_place(t, &path, &param->where);
    mark(t, "\n");
}

static void text_input(Mir *t, Input *input)
{
    text_own_name(t, &input->name, &input->loc);
    mark(t, " : ");
    text_type(t, &input->type);
    input->of = t->out && input->of != input->name ? input->of : NULL;
    text_reference(t, " of", "%", &input->of);
    input->of = input->of ? input->of : input->name;
    mark(t, " shift"), mark(t, "("), text_Int(t, &input->shift), mark(t, ")");
    mark(t, " vocab"), mark(t, "("), text_Int(t, &input->vocab), mark(t, ")");
    input->may_ignore = given(t, " ignored(", input->may_ignore);
    if (input->may_ignore)
        text_Int(t, &input->ignored), mark(t, ")");
    mark(t, "\n");
}

/* (8), unless there are two of each rank. */
static int text_blocks(Mir *t, int blocks)
{
    if (!given(t, "(", blocks > 2))
        return 2;
    if (t->out)
        fprintf(t->out, "%d", blocks);
    else
        blocks = read_blocks(t);
    mark(t, ")");
    return blocks;
}

/* shard heads+ff+vocab over tp else seq dealt(4); shard seq over cp exchange; shard seq over cp zigzag(8) ring */
static void text_rule(Mir *t, ShardRule *rule)
{
    Int dealt = rule->dealt;
    text_Names(t, &rule->dims);
    mark(t, " over ");
    if (t->out)
        fputs(t->module->axis[rule->axis], t->out);
    else
        rule->axis = read_axis(t, "the mesh has no such axis");
    if (given(t, " else ", rule->otherwise))
        text_Name(t, &rule->otherwise);
    if (opens(t, " dealt", dealt))
        text_natural(t, &dealt), mark(t, ")");
    rule->dealt = (int)dealt;
    if (given(t, " zigzag", rule->zigzag))
        rule->zigzag = text_blocks(t, rule->zigzag);
    rule->exchange = given(t, " exchange", rule->exchange);
    rule->ring = given(t, " ring", rule->ring);
    rule->reversed = given(t, " reversed", rule->reversed);
    rule->joined = given(t, " joined", rule->joined);
    if (given(t, " parts", rule->parts)) {
        if (t->out)
            fprintf(t->out, "(%s)", rule->parts);
        else
            rule->parts = read_parts(t);
    }
    mark(t, "\n");
}

/* save @h.fwd(%x, h.attn.q.2 away %p) */
static void text_saved(Mir *t, SavedValues *saved)
{
    mark(t, "@");
    const int begin = t->at;
    text_Name(t, &saved->func);
    saved->loc = t->out ? saved->loc : from(t, begin);
    mark(t, "(");
    for (int i = 0; (t->out || i || peek(t) != ')') && another(t, i, saved->count, 0); i++) {
        const bool is_away = t->out && saved->away[i], is_named = is_away && *saved->away[i];
        const bool is_value = given(t, "%", false); /* else a path and a number: see label_values() */
        Name value = t->out ? saved->value[i] : NULL, away = is_away ? saved->away[i] : NULL;
        text_Name(t, &value);
        if (given(t, " away", is_away)) {
            away = t->out ? away : "";
            if (given(t, " %", is_named))
                text_Name(t, &away);
        }
        if (!t->out)
            add_saved(&t->module->arena, saved, is_value ? intern_format(t->module, "%%%s", value) : value,
                      away ? intern_text(t->module, away) : NULL);
    }
    mark(t, ")\n");
}

/* table "schedule.csv" "F0.0,B0.0..." */
static void text_table(Mir *t, Source **table)
{
    const char *path = *table ? (*table)->path : NULL, *text = *table ? (*table)->text : NULL;
    if (!given(t, "  table ", *table))
        return;
    text_Quoted(t, &path);
    mark(t, " ");
    text_Quoted(t, &text);
    mark(t, "\n");
    if (t->out || t->failed)
        return;
    *table = NEW(&t->module->arena, Source);
    **table = (Source){ path, text, (int)strlen(text) };
}

static void text_mesh(Mir *t)
{
    Module *m = t->module;
    if (!given(t, "  mesh ", m->naxes))
        return;
    for (int i = 0; another(t, i, m->naxes, 0); i++) {
        if (!t->out && m->naxes == MAX_AXES) {
            fail(t, from(t, t->at), "too many axes");
            return;
        }
        const int begin = t->out ? 0 : (peek(t), t->at);
        text_Name(t, &m->axis[i]);
        for (int k = 0; k < i && !t->failed; k++)
            if (m->axis[k] == m->axis[i])
                fail(t, from(t, begin), "the mesh has this axis already");
        mark(t, "=");
        text_Int(t, &m->axis_size[i]);
        if (!t->failed && (m->axis_size[i] < 1 || m->axis_size[i] > 1 << 20))
            fail(t, from(t, t->at - 1), "an axis must have from 1 to 2^20 ranks");
        if (t->failed)
            m->axis_size[i] = 1;
        m->naxes += !t->out;
    }
    mark(t, "\n");
}

static void text_made_dims(Mir *t)
{
    Module *m = t->module;
    for (const MadeDim *dim = m->made_dims; given(t, "  dim ", dim); dim = t->out ? dim->next : NULL) {
        MadeDim made = t->out ? *dim : (MadeDim){ 0 };
        text_Name(t, &made.name);
        mark(t, " ");
        if (t->out)
            fputs(making_name[made.making], t->out);
        else
            made.making = (Making)read_word_of(t, making_name, 1, N_MAKINGS);
        mark(t, " ");
        text_Name(t, &made.of);
        mark(t, "\n");
        if (!t->out)
            add_made_dim(m, made.name, made.making, made.of);
    }
}

/* What follows from the functions is not read, but compared with them: see verify_pipeline_text(). */
static void text_pipeline(Mir *t)
{
    char *text = t->out ? pipeline_text(t->module) : NULL;
    if (text)
        fputs(text, t->out);
    free(text);
    if (t->out || !accept(t, "pipeline"))
        return;
    const int begin = t->at - (int)strlen("pipeline");
    t->at += (int)strcspn(t->source->text + t->at, "}");
    if (expect(t, "}"))
        t->module->pipeline_said = from(t, begin);
}

/* A line: a word and a name, or a text in quotes. */
static void text_line(Mir *t, const char *word, void (*text)(Mir *, Name *), Name *name)
{
    if (!given(t, word, *name))
        return;
    text(t, name);
    mark(t, "\n");
}

/* Is there a next item of a list, which begins with that word?  One that is read is new. */
#define NEXT(t, word, item)                                                                                            \
    (given((t), (word), *(item) != NULL) && (*(item) || (*(item) = NEW(&(t)->module->arena, __typeof__(**(item))))))

static void text_module(Mir *t)
{
    Module *m = t->module;
    mark(t, "module");
    mark(t, " @");
    text_Name(t, &m->name);
    mark(t, " {\n");
    text_line(t, "  source ", text_Quoted, &m->source);
    text_table(t, &m->table);
    text_mesh(t);
    text_made_dims(t);
    for (ShardRule **at = &m->rules; NEXT(t, "  shard ", at); at = &(*at)->next)
        text_rule(t, *at);
    text_pipeline(t);
    text_line(t, "  batch ", text_Name, &m->batch);
    text_line(t, "  vocab ", text_Name, &m->vocab);
    text_line(t, "  mixes ", text_Quoted, &m->mixes);
    text_line(t, "  auxiliary ", text_Quoted, &m->auxiliary);
    if (t->out || accept(t, "train")) {
        m->train_loc = t->out ? m->train_loc : from(t, t->at - 5);
        text_train(t, &m->train);
    }
    for (SavedValues **at = &m->saved; NEXT(t, "  save ", at); at = &(*at)->next)
        text_saved(t, *at);
    for (Input **at = &m->inputs; NEXT(t, "  input ", at); at = &(*at)->next)
        text_input(t, *at);
    for (Param **at = &m->params; NEXT(t, "  param ", at); at = &(*at)->next)
        text_param(t, *at);
    for (Func *f = m->funcs; given(t, "  func ", f); f = f ? f->next : NULL)
        text_func(t, f);
    mark(t, "}\n");
}

void print_module(Module *m, FILE *out) { text_module(&(Mir){ .module = m, .out = out }); }

char *module_text(Module *m)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memory(&text, &size);
    print_module(m, out);
    fclose(out);
    return text;
}

Module *parse_module(const Source *source, Diags *diags)
{
    Mir t = { .module = new_module(diags), .source = source };
    text_module(&t);
    peek(&t);
    if (!t.failed && t.at < source->length)
        fail(&t, (Loc){ t.at, t.at + 1 }, "expected the end of the file");
    return t.module;
}
