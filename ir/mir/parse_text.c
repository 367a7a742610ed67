/* parse_text.c -- tokens, dims, types and attributes of IR text; the inverse of the first half of print.c. */
#include "parse.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

Loc from(const Parser *p, int begin) { return (Loc){ begin, p->at > begin ? p->at : begin + 1 }; }

bool fail(Parser *p, Loc loc, const char *what)
{
    if (!p->failed)
        error_at(p->module->diags, (Where){ .at = loc }, "%s", what);
    p->failed = true;
    return false;
}

/* Skips spaces and # comments. */
char peek(Parser *p)
{
    const Source *s = p->source;
    bool comment = false;
    for (; p->at < s->length; p->at++) {
        char c = s->text[p->at];
        comment = c == '#' || (comment && c != '\n');
        if (!comment && !isspace((unsigned char)c))
            return c;
    }
    return '\0';
}

static bool in_name(char c) { return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '*'; }

bool accept(Parser *p, const char *token)
{
    int length = (int)strlen(token);
    peek(p);
    int left = p->source->length - p->at;
    const char *text = p->source->text + p->at;
    if (p->failed || left < length || memcmp(text, token, (size_t)length) != 0)
        return false;
    if (in_name(token[length - 1]) && left > length && in_name(text[length]))
        return false;
    p->at += length;
    return true;
}

bool expect(Parser *p, const char *token)
{
    if (accept(p, token))
        return true;
    peek(p);
    return fail(p, (Loc){ p->at, p->at + 1 }, arena_text(&p->module->arena, "expected '%s'", token));
}

Name read_name(Parser *p)
{
    peek(p);
    int begin = p->at;
    while (p->at < p->source->length && in_name(p->source->text[p->at]))
        p->at++;
    if (p->at == begin)
        fail(p, (Loc){ begin, begin + 1 }, "expected a name");
    return intern(p->module, p->source->text + begin, p->at - begin);
}

static int hex_digit(char c)
{
    const char *digits = "0123456789ABCDEF", *at = c ? strchr(digits, toupper((unsigned char)c)) : NULL;
    return at ? (int)(at - digits) : -1;
}

Name read_quoted(Parser *p)
{
    const Source *s = p->source;
    if (!expect(p, "\""))
        return NULL;
    int length = 0;
    char *text = arena_alloc(&p->module->arena, strcspn(s->text + p->at, "\"\n") + 1, 1); /* also ended by a NUL */
    for (; s->text[p->at] && s->text[p->at] != '"' && s->text[p->at] != '\n'; p->at++) {
        const char *at = s->text + p->at;
        text[length] = *at;
        if (*at == '\\') {
            int high = at[1] == 'x' ? hex_digit(at[2]) : -1, low = high < 0 ? -1 : hex_digit(at[3]);
            if (low < 0 || high * 16 + low == 0)
                return fail(p, (Loc){ p->at, p->at + 1 }, "expected \\xNN, with NN from 01 to FF"), NULL;
            text[length] = (char)(high * 16 + low);
            p->at += 3;
        }
        length++;
    }
    expect(p, "\"");
    return intern(p->module, text, length);
}

double read_number(Parser *p)
{
    peek(p);
    const char *begin = p->source->text + p->at;
    char *end;
    double value = strtod(begin, &end); /* the text of a Source ends with a NUL */
    if (end == begin || end > p->source->text + p->source->length)
        return fail(p, (Loc){ p->at, p->at + 1 }, "expected a number"), 0;
    if (isinf(value) && isdigit((unsigned char)begin[begin[0] == '-']))
        return fail(p, (Loc){ p->at, p->at + (int)(end - begin) }, "the number is too large; the largest is inf"), 0;
    p->at += (int)(end - begin);
    return value;
}

int64_t read_int(Parser *p)
{
    peek(p);
    int begin = p->at;
    double value = read_number(p);
    if (!p->failed && !(value > -9e15 && value < 9e15 && value == (double)(int64_t)value))
        fail(p, from(p, begin), "expected a whole number");
    return p->failed ? 0 : (int64_t)value;
}

int64_t read_natural(Parser *p)
{
    peek(p);
    int begin = p->at;
    int64_t value = read_int(p);
    if (!p->failed && value < 0)
        fail(p, from(p, begin), "expected a whole number that is not negative");
    return p->failed ? 0 : value;
}

static int read_axis(Parser *p)
{
    peek(p);
    int begin = p->at;
    Name axis = read_name(p);
    for (int i = 0; i < p->module->naxes; i++)
        if (p->module->axis[i] == axis)
            return i;
    fail(p, from(p, begin), "no such mesh axis");
    return 0;
}

static Axes read_axes(Parser *p)
{
    Axes set = 0;
    do
        set |= 1u << read_axis(p);
    while (accept(p, "+"));
    return set;
}

static Split read_split(Parser *p)
{
    Split split = { 0 };
    do {
        if (split.count == MAX_SPLIT)
            return fail(p, from(p, p->at), "too many axes on one dim"), split;
        split.axis[split.count++] = (int8_t)read_axis(p);
    } while (accept(p, "+"));
    return split;
}

Names read_names(Parser *p)
{
    Names list = { 0 };
    do {
        if (list.count == MAX_NAMES)
            return fail(p, from(p, p->at), "too many names"), list;
        list.name[list.count++] = read_name(p);
    } while (accept(p, "+"));
    return list;
}

static int64_t read_size_from(Parser *p, int64_t least)
{
    peek(p);
    int begin = p->at;
    int64_t size = read_int(p);
    if (!p->failed && (size < least || size > INT64_C(1) << 40))
        fail(p, from(p, begin), least ? "a size must be from 1 to 2^40" : "a part must be from 0 to 2^40, or -");
    return p->failed ? 1 : size;
}

static int64_t read_size(Parser *p) { return read_size_from(p, 1); }

/* (3+9), (0+9), (-+9) */
Name read_parts(Parser *p)
{
    char *text = "";
    expect(p, "(");
    do
        text = accept(p, "-")
                   ? arena_text(&p->module->arena, "%s%s-", text, *text ? "+" : "")
                   : arena_text(&p->module->arena, "%s%s%lld", text, *text ? "+" : "", (long long)read_size_from(p, 0));
    while (!p->failed && accept(p, "+"));
    expect(p, ")");
    return intern_text(p->module, text);
}

int read_blocks(Parser *p)
{
    peek(p);
    const int begin = p->at;
    const int64_t blocks = read_int(p);
    if (!p->failed && (blocks < 2 || blocks > MAX_ZIGZAG || blocks % 2))
        fail(p, from(p, begin), "zig-zag deals an even number of blocks to each rank");
    return p->failed ? 0 : (int)blocks;
}

/* Behind a slash: 8z/ for eight zigzag blocks of each rank, 4d/ for four that are dealt straight, which are returned.
 */
static int16_t read_dealt(Parser *p, int *zigzag)
{
    const int begin = p->at;
    const int64_t blocks = read_size_from(p, 2);
    if (!p->failed && accept(p, "d/"))
        return (int16_t)(blocks <= MAX_ZIGZAG ? blocks : 0);
    p->at = begin;
    *zigzag = read_blocks(p);
    expect(p, "z/");
    return 0;
}

/* name:size~padded/axes, ~~padded where loops run over padding, /z/axes for zigzag blocks, /8z/axes for eight for each
 * rank, /4d/axis for four that are dealt straight, /axis(3+9) for parts of different sizes, /-axis(3+9) for those from
 * the last rank to the first, /axis@1 for blocks rotated by one rank */
static Dim read_dim(Parser *p)
{
    Dim dim = { .name = read_name(p) };
    int begin = p->at;
    int16_t dealt = 0;
    expect(p, ":");
    dim.size = dim.padded = read_size(p);
    dim.full = accept(p, "~~");
    if (dim.full || accept(p, "~"))
        dim.padded = read_size(p);
    if (accept(p, "/z/"))
        dim.zigzag = 2;
    if (dim.zigzag || accept(p, "/")) {
        if (isdigit(peek(p)))
            dealt = read_dealt(p, &dim.zigzag);
        const bool reversed = accept(p, "-");
        dim.split = read_split(p);
        dim.split.reversed = reversed;
        dim.split.dealt = dealt;
    }
    if (dim.split.count && accept(p, "@"))
        dim.split.turn = (int16_t)read_size_from(p, 1);
    if (dim.split.count && peek(p) == '(')
        dim.split.parts = read_parts(p);
    if (p->failed)
        return (Dim){ .name = dim.name, .size = 1, .padded = 1 };
    if (!splits_evenly(p->module, &dim))
        fail(p, from(p, begin),
             "the size in memory is at least the size, and divides by the axes, or parts make it up");
    return dim;
}

/* Larger sizes would overflow computations. */
static bool too_large(const Type *type)
{
    double count = 1;
    for (int i = 0; i < type->rank; i++)
        count *= (double)type->dim[i].padded;
    return count > (double)(INT64_C(1) << 50);
}

/* (pp=0+3) */
static Stages read_stages(Parser *p)
{
    Stages on = { 0 };
    expect(p, "(");
    const int begin = p->at;
    Name axis = read_name(p);
    while (on.axis < p->module->naxes && p->module->axis[on.axis] != axis)
        on.axis++;
    if (!p->failed && on.axis == p->module->naxes)
        return fail(p, from(p, begin), "the mesh has no such axis"), (Stages){ 0 };
    expect(p, "=");
    do {
        const int at = p->at;
        const int64_t stage = read_int(p);
        if (!p->failed && (stage < 0 || stage >= p->module->axis_size[on.axis] || stage >= MAX_STAGE_RANKS))
            fail(p, from(p, at), "the axis has no such stage");
        else
            on.at |= UINT64_C(1) << stage;
    } while (!p->failed && accept(p, "+"));
    expect(p, ")");
    return on;
}

int read_word_of(Parser *p, const char *const words[], int count)
{
    peek(p);
    const int begin = p->at;
    char *list = "";
    for (int i = 1; i < count && !p->failed; i++)
        if (accept(p, words[i]))
            return i;
    read_name(p);
    for (int i = 1; i < count; i++)
        list = arena_text(&p->module->arena, "%s%s%s", list, i == 1 ? "" : i + 1 == count ? " or " : ", ", words[i]);
    if (!p->failed)
        fail(p, from(p, begin), arena_text(&p->module->arena, "expected %s", list));
    return 0;
}

Type read_type(Parser *p)
{
    Type type = { 0 };
    peek(p);
    int begin = p->at;
    type.dtype = dtype_named(read_name(p));
    if (type.dtype == N_DTYPES)
        return fail(p, from(p, begin), "expected a dtype: f32, bf16, f16, i32 or bool"), (Type){ 0 };
    expect(p, "[");
    while (!p->failed && peek(p) != ']') {
        if (type.rank == MAX_RANK)
            return fail(p, from(p, p->at), "too many dims"), type;
        int at = p->at;
        type.dim[type.rank++] = read_dim(p);
        if (find_dim(&type, type.dim[type.rank - 1].name) != type.rank - 1)
            fail(p, from(p, at), "this dim occurs twice");
        if (!accept(p, ","))
            break;
    }
    expect(p, "]");
    bool max = accept(p, "partial_max");
    if (max || accept(p, "partial")) {
        type.by = max ? BY_MAX : BY_SUM;
        expect(p, "(");
        type.partial = read_axes(p);
        expect(p, ")");
    }
    bool on = accept(p, "on");
    if (on && peek(p) == '(') {
        type.on = read_stages(p);
        on = accept(p, "on");
    }
    if (on)
        type.tier = (Tier)read_word_of(p, Tier_words, N_Tier);
    type.in_flight = accept(p, "in_flight");
    if (!p->failed && too_large(&type))
        fail(p, from(p, begin), "a tensor of more than 2^50 elements");
    return type;
}

Storage *read_storage(Parser *p, const Type *type)
{
    if (!accept(p, "at"))
        return NULL;
    Storage *storage = NEW(&p->module->arena, Storage);
    if (peek(p) == 'p') {
        const int begin = p->at++;
        const int64_t number = read_natural(p);
        if (number > INT32_MAX)
            fail(p, from(p, begin), "no function has so many pointers");
        storage->base = BY_POINTER;
        storage->pointer = (int)number;
    } else {
        storage->base = type->tier ? IN_TIER : IN_FRAME;
        storage->at = read_natural(p);
    }
    if (storage->base == BY_POINTER && accept(p, "+"))
        storage->at = read_int(p); /* before another value of that pointer, or after it */
    expect(p, "strides");
    expect(p, "(");
    for (int i = 0; i < type->rank && !p->failed; i++) {
        if (i)
            expect(p, ",");
        storage->stride[i] = read_natural(p);
    }
    expect(p, ")");
    return storage;
}

static Dims read_dims(Parser *p)
{
    Dims dims = { 0 };
    expect(p, "[");
    while (!p->failed && peek(p) != ']') {
        if (dims.count == (int)(sizeof dims.dim / sizeof *dims.dim))
            return fail(p, from(p, p->at), "too many dims"), dims;
        dims.dim[dims.count++] = read_dim(p);
        if (!accept(p, ","))
            break;
    }
    expect(p, "]");
    return dims;
}

static Dtype read_dtype(Parser *p)
{
    peek(p);
    int begin = p->at;
    Name name = read_name(p);
    if (!p->failed && dtype_named(name) == N_DTYPES)
        fail(p, from(p, begin), "expected a dtype: f32, bf16, f16, i32 or bool");
    return name;
}

static bool read_flag(Parser *p) { return expect(p, "true"); }

static Name parse_Name(Parser *p) { return read_name(p); }
static Quoted parse_Quoted(Parser *p) { return read_quoted(p); }
static Dtype parse_Dtype(Parser *p) { return read_dtype(p); }
static Names parse_Names(Parser *p) { return read_names(p); }
static Dims parse_Dims(Parser *p) { return read_dims(p); }
static Axes parse_Axes(Parser *p) { return read_axes(p); }
static Stages parse_Stages(Parser *p) { return read_stages(p); }
static Number parse_Number(Parser *p) { return read_number(p); }
static Int parse_Int(Parser *p) { return read_int(p); }
static Flag parse_Flag(Parser *p) { return read_flag(p); }
static Zigzag parse_Zigzag(Parser *p) { return accept(p, "true") ? 2 : read_blocks(p); }

#define KIND(kind, unsaid)                                                                                             \
    static kind parse_##kind(Parser *p) { return (kind)read_word_of(p, kind##_words, N_##kind); }
#define WORD(name, text)
#define END(kind)
#include "words.def"

/* One `key=` of a list, in which it occurs once: the key must end where the text has '='. */
static bool accept_key(Parser *p, const char *key, bool *given)
{
    const int begin = p->at;
    if (!accept(p, key))
        return false;
    if (*given)
        fail(p, from(p, begin), "this is given twice");
    *given = true;
    return expect(p, "=");
}

static bool has_word(const char *words, const char *word)
{
    const size_t length = strlen(word);
    const char *at = words;
    while ((at = strstr(at, word)) && ((at > words && at[-1] != ' ') || (at[length] && at[length] != ' ')))
        at += length;
    return at != NULL;
}

/* " its own are dim, to", or what there is to say of none. */
static const char *own_attrs(Parser *p, const char *op)
{
    const char *text = "";
#define ATTR(key, kind, ops)                                                                                           \
    if (has_word(ops, op))                                                                                             \
        text = arena_text(&p->module->arena, "%s%s" #key, text, *text ? ", " : "");
#include "attrs.def"
    return *text ? arena_text(&p->module->arena, "its own are %s", text) : "it has none";
}

/* An attribute that begins there: does the op have it? */
static bool belongs_to(Parser *p, const char *key, const char *ops, OpKind kind, int begin)
{
    const char *op = op_table[kind].name;
    return has_word(ops, op) ||
           fail(p, from(p, begin),
                arena_text(&p->module->arena, "%s has no attribute '%s': %s", op, key, own_attrs(p, op)));
}

void read_attrs(Parser *p, OpKind op, Attrs *attrs)
{
    struct {
#define ATTR(key, kind, ops) bool key;
#include "attrs.def"
    } given = { 0 };
    if (!accept(p, "{"))
        return;
    do {
        peek(p);
        const int begin = p->at;
#define ATTR(key, kind, ops)                                                                                           \
    if (accept_key(p, #key, &given.key)) {                                                                             \
        belongs_to(p, #key, ops, op, begin);                                                                           \
        attrs->key = parse_##kind(p);                                                                                  \
        continue;                                                                                                      \
    }
#include "attrs.def"
        fail(p, (Loc){ p->at, p->at + 1 }, "no such attribute");
    } while (!p->failed && accept(p, ","));
    expect(p, "}");
}

void read_train(Parser *p, Train *train)
{
    struct {
#define TRAIN(key, kind) bool key;
#include "train.def"
    } given = { 0 };
    expect(p, "{");
    do {
        peek(p);
#define TRAIN(key, kind)                                                                                               \
    if (accept_key(p, #key, &given.key)) {                                                                             \
        train->key = parse_##kind(p);                                                                                  \
        continue;                                                                                                      \
    }
#include "train.def"
        fail(p, (Loc){ p->at, p->at + 1 }, "no such setting");
    } while (!p->failed && accept(p, ","));
    expect(p, "}");
}
