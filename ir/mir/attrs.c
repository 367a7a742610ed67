/* attrs.c -- attributes of ops and settings of training as text, by attrs.def and train.def: {key=value, ...}. */
#include "mir.h"
#include "type_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- Marks --------------------------------------------------------------------------------------- */

void mark(Mir *t, const char *token)
{
    if (t->out)
        fputs(token, t->out);
    else
        expect(t, token);
}

bool given(Mir *t, const char *token, bool is_set)
{
    if (t->out)
        fputs(is_set ? token : "", t->out);
    return t->out ? is_set : accept(t, token);
}

bool opens(Mir *t, const char *word, bool is_set)
{
    const bool is_there = given(t, word, is_set);
    mark(t, is_there ? "(" : "");
    return is_there;
}

bool another(Mir *t, int i, int count, char first)
{
    if (t->out)
        fputs(i && i < count ? ", " : "", t->out);
    return t->out ? i < count : !t->failed && (i ? accept(t, ",") : !first || peek(t) == first);
}

/* --- Values of each kind: whether one is set, and its text ---------------------------------------- */

static bool set_Name(Name name) { return name != NULL; }
static bool set_Dtype(Dtype dtype) { return dtype != NULL; }
static bool set_Quoted(Quoted text) { return text != NULL; }
static bool set_Names(Names names) { return names.count > 0; }
static bool set_Dims(Dims dims) { return dims.count > 0; }
static bool set_Axes(Axes axes) { return axes != 0; }
static bool set_RankSet(RankSet on) { return on.at != 0; }
static bool set_Number(Number number) { return number != 0; }
static bool set_Int(Int number) { return number != 0; }
static bool set_Flag(Flag flag) { return flag; }
static bool set_Zigzag(Zigzag blocks) { return blocks; }

/* The shortest text that reads back as the same number. */
static void write_number(double number, FILE *out)
{
    char text[32];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        if (strtod(text, NULL) == number)
            break;
    }
    fputs(text, out);
}

/* Writes the text in quotes, with invalid bytes as \xNN. */
static void write_quoted(const char *text, FILE *out)
{
    fputc('"', out);
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || strchr("\"\\\x7f", *text))
            fprintf(out, "\\x%02X", (unsigned)(unsigned char)*text);
        else
            fputc(*text, out);
    fputc('"', out);
}

static void write_names(const Names *names, FILE *out)
{
    for (int i = 0; i < names->count; i++)
        fprintf(out, "%s%s", i ? "+" : "", names->name[i]);
}

static void write_dims(Module *m, const Dims *dims, FILE *out)
{
    fputc('[', out);
    for (int i = 0; i < dims->count; i++)
        fprintf(out, "%s%s", i ? ", " : "", text_of_dim(m, &dims->dim[i]));
    fputc(']', out);
}

/* A value of a kind. */
#define BOTH_WAYS(storage, name, kind, write, read)                                                                    \
    storage void text_##name(Mir *t, kind *x)                                                                          \
    {                                                                                                                  \
        if (t->out)                                                                                                    \
            write;                                                                                                     \
        else                                                                                                           \
            *x = read;                                                                                                 \
    }
BOTH_WAYS(, Name, Name, fputs(*x, t->out), read_name(t))
BOTH_WAYS(, Names, Names, write_names(x, t->out), read_names(t))
BOTH_WAYS(, Quoted, Quoted, write_quoted(*x, t->out), read_quoted(t))
BOTH_WAYS(, Number, Number, write_number(*x, t->out), read_number(t))
BOTH_WAYS(, Int, Int, fprintf(t->out, "%" PRId64, *x), read_int(t))
BOTH_WAYS(, natural, Int, fprintf(t->out, "%" PRId64, *x), read_natural(t))
BOTH_WAYS(static, Dtype, Dtype, fputs(*x, t->out), read_dtype(t))
BOTH_WAYS(static, Dims, Dims, write_dims(t->module, x, t->out), read_dims(t))
BOTH_WAYS(static, Axes, Axes, fputs(text_of_axes(t->module, *x), t->out), read_axes(t))
BOTH_WAYS(static, RankSet, RankSet, fprintf(t->out, "(%s)", ranks_text(t->module, *x)), read_ranks(t))
BOTH_WAYS(static, Flag, Flag, fputs("true", t->out), expect(t, "true"))
BOTH_WAYS(static, Zigzag, Zigzag, fprintf(t->out, *x == 2 ? "true" : "%d", *x), accept(t, "true") ? 2 : read_blocks(t))

#define KIND(kind, unsaid)                                                                                             \
    static bool set_##kind(kind word) { return word != unsaid; }                                                       \
    BOTH_WAYS(static, kind, kind, fputs(kind##_words[*x], t->out), (kind)read_word_of(t, kind##_words, 1, N_##kind))
#define WORD(name, text)
#define END(kind)
#include "words.def"

void text_reference(Mir *t, const char *word, const char *sign, Name *name)
{
    if (opens(t, word, *name))
        mark(t, sign), text_Name(t, name), mark(t, ")");
}

/* --- {key=value, ...} ------------------------------------------------------------------------------ */

static bool has_word(const char *words, const char *word)
{
    const size_t length = strlen(word);
    const char *at = words;
    while ((at = strstr(at, word)) && ((at > words && at[-1] != ' ') || (at[length] && at[length] != ' ')))
        at += length;
    return at != NULL;
}

/* " its own are dim, to", or what there is to say of none. */
static const char *own_attrs(Mir *t, const char *op)
{
    const char *text = "";
#define ATTR(key, kind, ops)                                                                                           \
    if (has_word(ops, op))                                                                                             \
        text = arena_text(&t->module->arena, "%s%s" #key, text, *text ? ", " : "");
#include "attrs.def"
    return *text ? arena_text(&t->module->arena, "its own are %s", text) : "it has none";
}

/* One pass over the keys of a table: all that are set are written, or one is read. */
typedef struct {
    int begin; /* of the key that is read */
    bool is_known;
    const char *before; /* the next key that is written */
} Keys;

/* One key, which occurs once.  What is read must end where the text has '='. */
static bool text_key(Mir *t, Keys *keys, const char *key, bool is_set, bool *read)
{
    if (t->out && is_set)
        fprintf(t->out, "%s%s=", keys->before, key), keys->before = ", ";
    if (t->out || keys->is_known || !accept(t, key))
        return t->out && is_set;
    if (*read)
        fail(t, from(t, keys->begin), "this is given twice");
    keys->is_known = *read = true;
    return expect(t, "=");
}

/* Is there another key to read? */
static bool ends_key(Mir *t, Keys *keys, const char *unknown)
{
    if (!t->out && !keys->is_known)
        fail(t, (Loc){ t->at, t->at + 1 }, unknown);
    keys->is_known = false;
    return !t->out && !t->failed && accept(t, ",");
}

static void begin_key(Mir *t, Keys *keys)
{
    if (!t->out)
        peek(t);
    keys->begin = t->at;
}

void text_attrs(Mir *t, OpKind kind, Attrs *attrs)
{
    struct {
#define ATTR(key, kind, ops) bool key;
#include "attrs.def"
    } read = { 0 };
    const char *op = op_table[kind].name;
    Keys keys = { .before = " {" };
    if (!t->out && !accept(t, "{"))
        return;
    do {
        begin_key(t, &keys);
#define ATTR(key, kind, ops)                                                                                           \
    if (text_key(t, &keys, #key, set_##kind(attrs->key), &read.key)) {                                                 \
        if (!t->out && !has_word(ops, op))                                                                             \
            fail(t, from(t, keys.begin),                                                                               \
                 arena_text(&t->module->arena, "%s has no attribute '" #key "': %s", op, own_attrs(t, op)));           \
        text_##kind(t, &attrs->key);                                                                                   \
    }
#include "attrs.def"
    } while (ends_key(t, &keys, "no such attribute"));
    if (!t->out || keys.before[0] == ',')
        mark(t, "}");
}

void text_train(Mir *t, Train *train)
{
    struct {
#define TRAIN(key, kind) bool key;
#include "train.def"
    } read = { 0 };
    Keys keys = { .before = "  train {" };
    if (!t->out)
        expect(t, "{");
    do {
        begin_key(t, &keys);
#define TRAIN(key, kind)                                                                                               \
    if (text_key(t, &keys, #key, set_##kind(train->key), &read.key))                                                   \
        text_##kind(t, &train->key);
#include "train.def"
    } while (ends_key(t, &keys, "no such setting"));
    if (!t->out || keys.before[0] == ',')
        mark(t, "}\n");
}
