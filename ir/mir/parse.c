/* parse.c -- tokens, names, dims and types from IR text: the inverse of type_text.c. */
#include "mir.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

Loc from(const Mir *p, int begin) { return (Loc){ begin, p->at > begin ? p->at : begin + 1 }; }

bool fail_with_help(Mir *p, Loc loc, const char *what, const char *help)
{
    if (!p->failed)
        error_at(p->module->diags, (Where){ .at = loc, .help = help }, "%s", what);
    p->failed = true;
    return false;
}

bool fail(Mir *p, Loc loc, const char *what) { return fail_with_help(p, loc, what, NULL); }

/* Skips spaces and # comments. */
char peek(Mir *p)
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

static const char spaces[] = " \n"; /* around tokens that are written */

bool accept(Mir *p, const char *token)
{
    token += strspn(token, spaces);
    int length = (int)strcspn(token, spaces);
    if (!length)
        return true;
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

bool expect(Mir *p, const char *token)
{
    if (accept(p, token))
        return true;
    peek(p);
    token += strspn(token, spaces);
    return fail(p, (Loc){ p->at, p->at + 1 },
                arena_text(&p->module->arena, "expected '%.*s'", (int)strcspn(token, spaces), token));
}

Name read_name(Mir *p)
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

Name read_quoted(Mir *p)
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

double read_number(Mir *p)
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

int64_t read_int(Mir *p)
{
    peek(p);
    int begin = p->at;
    double value = read_number(p);
    if (!p->failed && !(value > -9e15 && value < 9e15 && value == (double)(int64_t)value))
        fail(p, from(p, begin), "expected a whole number");
    return p->failed ? 0 : (int64_t)value;
}

int64_t read_natural(Mir *p)
{
    peek(p);
    int begin = p->at;
    int64_t value = read_int(p);
    if (!p->failed && value < 0)
        fail(p, from(p, begin), "expected a whole number that is not negative");
    return p->failed ? 0 : value;
}

int read_axis(Mir *p, const char *unknown)
{
    peek(p);
    int begin = p->at;
    Name axis = read_name(p);
    for (int i = 0; i < p->module->naxes; i++)
        if (p->module->axis[i] == axis)
            return i;
    return fail(p, from(p, begin), unknown);
}

static const char no_axis[] = "no such mesh axis";

Axes read_axes(Mir *p)
{
    Axes set = 0;
    do
        set |= 1u << read_axis(p, no_axis);
    while (accept(p, "+"));
    return set;
}

static Split read_split(Mir *p)
{
    Split split = { 0 };
    do {
        if (split.count == MAX_SPLIT)
            return fail(p, from(p, p->at), "too many axes on one dim"), split;
        split.axis[split.count++] = (int8_t)read_axis(p, no_axis);
    } while (accept(p, "+"));
    return split;
}

Names read_names(Mir *p)
{
    Names list = { 0 };
    do {
        if (list.count == MAX_NAMES)
            return fail(p, from(p, p->at), "too many names"), list;
        list.name[list.count++] = read_name(p);
    } while (accept(p, "+"));
    return list;
}

static int64_t read_size_from(Mir *p, int64_t least)
{
    peek(p);
    int begin = p->at;
    int64_t size = read_int(p);
    if (!p->failed && (size < least || size > INT64_C(1) << 40))
        fail(p, from(p, begin), least ? "a size must be from 1 to 2^40" : "a part must be from 0 to 2^40, or -");
    return p->failed ? 1 : size;
}

static int64_t read_size(Mir *p) { return read_size_from(p, 1); }

/* (3+9), (0+9), (-+9) */
Name read_parts(Mir *p)
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

int read_blocks(Mir *p)
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
static int16_t read_dealt(Mir *p, int *zigzag)
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
static Dim read_dim(Mir *p)
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
RankSet read_ranks(Mir *p)
{
    RankSet on = { 0 };
    expect(p, "(");
    on.axis = read_axis(p, "the mesh has no such axis");
    expect(p, "=");
    do {
        const int at = p->at;
        const int64_t rank = read_int(p);
        if (!p->failed && (rank < 0 || rank >= p->module->axis_size[on.axis] || rank >= MAX_SET_RANKS))
            fail(p, from(p, at), "the axis has no such stage");
        else
            on.at |= UINT64_C(1) << rank;
    } while (!p->failed && accept(p, "+"));
    expect(p, ")");
    return on;
}

int read_word_of(Mir *p, const char *const words[], int first, int end)
{
    peek(p);
    const int begin = p->at;
    char *list = "";
    for (int i = first; i < end && !p->failed; i++)
        if (accept(p, words[i]))
            return i;
    read_name(p);
    for (int i = first; i < end; i++)
        list = arena_text(&p->module->arena, "%s%s%s", list, i == first ? "" : i + 1 == end ? " or " : ", ", words[i]);
    if (!p->failed)
        fail(p, from(p, begin), arena_text(&p->module->arena, "expected %s", list));
    return 0;
}

Type read_type(Mir *p)
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
        type.on = read_ranks(p);
        on = accept(p, "on");
    }
    if (on)
        type.tier = (Tier)read_word_of(p, Tier_words, 1, N_Tier);
    type.in_flight = accept(p, "in_flight");
    if (!p->failed && too_large(&type))
        fail(p, from(p, begin), "a tensor of more than 2^50 elements");
    return type;
}

Dims read_dims(Mir *p)
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

Dtype read_dtype(Mir *p)
{
    peek(p);
    int begin = p->at;
    Name name = read_name(p);
    if (!p->failed && dtype_named(name) == N_DTYPES)
        fail(p, from(p, begin), "expected a dtype: f32, bf16, f16, i32 or bool");
    return name;
}
