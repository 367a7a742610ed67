/* names.c -- C names of types, values and numbers of the IR. */
#include "names.h"

#include <ctype.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Names of a dtype, shared by all back ends. */
static const struct {
    const char *element, *local, *constant;
    RtType type;
} c_of[N_DTYPES] = {
    [F32] = { "float", "float", "RT_F32", RT_F32 },     [BF16] = { "rt_bf16", "float", "RT_BF16", RT_BF16 },
    [F16] = { "rt_f16", "float", "RT_F16", RT_F16 },    [I32] = { "int32_t", "int32_t", "RT_I32", RT_I32 },
    [BOOL] = { "rt_bool", "bool", "RT_BOOL", RT_BOOL },
};

const char *element_type(DType dtype) { return c_of[dtype].element; }
const char *element_constant(DType dtype) { return c_of[dtype].constant; }
RtType element_rt_type(DType dtype) { return c_of[dtype].type; }
const char *local_type(DType dtype) { return c_of[dtype].local; }

/* Words of C and C++, types, macros, variables and some functions of their libraries and of CUDA, and names that the
 * emitted functions use. */
static const char reserved[] =
    " alignas alignof alloca and and_eq asm assert atomicAdd auto begin bitand bitor block blockDim blockIdx"
    " bool break case catch ceilf char char16_t char32_t char8_t class co_await co_return co_yield compl concept"
    " const const_cast consteval constexpr constinit continue cosf decltype default delete dim3 do double"
    " dynamic_cast else end enum erff errno expf explicit expm1f export extern fabsf false float float2 float4"
    " floorf fmaf fmaxf fminf for friend gamma goto gridDim half i if index inline int int16_t int2 int32_t int4"
    " int64_t int8_t intptr_t isfinite isinf isnan iteration j0 j1 jn linux log1pf logf long main memcpy"
    " memmove memset mutable namespace new noexcept noreturn not not_eq nullptr offsetof operator or or_eq"
    " part powf private protected ptrdiff_t public register reinterpret_cast requires restrict return rintf"
    " roundf row rsqrtf scratch short signbit signed signgam sinf size_t sizeof sqrtf ssize_t static"
    " static_assert static_cast stderr stdin stdout struct switch tanhf template this threadIdx thread_local"
    " throw true truncf try typedef typeid typename typeof uint16_t uint2 uint32_t uint4 uint64_t uint8_t"
    " uintptr_t union unix unsigned using virtual void volatile warpSize wchar_t while xor xor_eq y0 y1 yn ";

char *c_identifier(Module *m, const char *text, int room)
{
    while ((int)strlen(text) > room && strchr(text, '.'))
        text = strchr(text, '.') + 1;
    const bool needs_letter = !isalpha((unsigned char)*text); /* '_', too: _Bool and __half are words of C and CUDA */
    char *name = arena_text(&m->arena, "%s%.*s", needs_letter ? "v" : "", room, text);
    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c))
            *c = '_';
    return name;
}

char *hashed_identifier(Module *m, const char *text, bool is_plain)
{
    char *name = c_identifier(m, text, 60);
    return is_plain && strcmp(name, text) == 0
               ? name
               : arena_text(&m->arena, "%s_%08" PRIx32, name, hash_text(text, (int)strlen(text)));
}

static bool is_numbered(const Value *value) { return value->name[0] >= '0' && value->name[0] <= '9'; }

/* For a result without a name of its own: the value of the callee that it is, or whose iterations it stacks; else NULL.
 */
static const Value *in_callee(Module *m, const Value *value)
{
    const Op *def = is_numbered(value) && value->def && value->def->attrs.callee ? value->def : NULL;
    const int at = def ? index_of(&def->results, value) : -1;
    return def && at >= (int)def->attrs.carried ? find_func(m, def->attrs.callee)->results.at[at] : NULL;
}

const char *readable_name(Module *m, const Func *f, const Value *value)
{
    const Func *made_in = f && value->port.kind == PORT_FORWARD ? find_func(m, f->forward) : NULL;
    for (int i = 0; made_in && i < made_in->results.count; i++)
        if (made_in->results.at[i]->name == value->port.of)
            value = made_in->results.at[i];
    const Value *inside = in_callee(m, value);
    while (inside && value->def->attrs.dims.count) {
        value = inside;
        inside = in_callee(m, value);
    }
    if (inside && is_zeros(inside))
        return "zeros";
    if (inside && inside->def && info(inside->def)->traits & CASTS && value->def->args.count == 1)
        return arena_text(&m->arena, "%s.%s", readable_name(m, f, arg(value->def, 0)), dtype_name[value->type.dtype]);
    const Op *def = is_numbered(value) ? value->def : NULL;
    return !def ? value->name : def->path ? def->path : def->attrs.callee ? def->attrs.callee : info(def)->name;
}

static bool is_reserved(const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = strstr(reserved, name); at; at = strstr(at + 1, name))
        if (at[-1] == ' ' && at[length] == ' ')
            return true;
    return false;
}

/* NULL, M_PI, RT_RUN: capitals, but for single ones. */
static bool may_be_macro(const char *name)
{
    bool is_small = !name[1];
    for (const char *c = name; *c && !is_small; c++)
        is_small = islower((unsigned char)*c);
    return !is_small;
}

/* Names that are none with a number behind them either. */
static bool is_strange(const char *name)
{
    return strncmp(name, "rt_", 3) == 0 || strncmp(name, "__", 2) == 0 || may_be_macro(name);
}

static bool is_taken(const NameSpace *names, const char *name)
{
    if (is_reserved(name))
        return true;
    if (map_get(&names->taken, intern_text(names->module, name)))
        return true;
    return is_strange(name);
}

const char *new_identifier(NameSpace *names, const char *text)
{
    Arena *arena = &names->module->arena;
    const Name base = intern_text(names->module, c_identifier(names->module, text, 20));
    /* T, _ and rt are good names, T_2, __2 and rt_2 are not. */
    const char *name, *before = is_strange(arena_text(arena, "%s_2", base)) ? "v_" : "";
    intptr_t number = (intptr_t)map_get(&names->last, base);
    do {
        number++;
        name = number == 1 ? base : arena_text(arena, "%s%s_%d", before, base, (int)number);
    } while (is_taken(names, name));
    Name own = intern_text(names->module, name);
    names->taken.arena = names->last.arena = arena;
    map_put(&names->taken, own, (void *)(uintptr_t)own);
    map_put(&names->last, base, (void *)number);
    return own;
}

static char *append(char *end, const char *text)
{
    size_t length = strlen(text);
    memcpy(end, text, length);
    return end + length;
}

char *wrapped_list(Module *m, const char *head, int nitems, const char *const items[], const char *tail, int indent)
{
    enum { WIDTH = 120 };
    int under = indent + (int)strlen(head), at = under;
    size_t most = strlen(head) + strlen(tail) + 1;
    for (int i = 0; i < nitems; i++)
        most += strlen(items[i]) + 2 + (size_t)(under - indent);
    char *text = NEW_ARRAY(&m->arena, char, most), *end = append(text, head);
    for (int i = 0; i < nitems; i++) {
        bool is_last = i + 1 == nitems;
        int length = (int)strlen(items[i]) + (is_last ? (int)strlen(tail) : 1);
        if (i > 0 && at + 1 + length > WIDTH) {
            *end++ = '\n';
            memset(end, ' ', (size_t)(under - indent));
            end += under - indent;
            at = under;
        } else if (i > 0) {
            *end++ = ' ';
            at++;
        }
        end = append(append(end, items[i]), is_last ? "" : ",");
        at += length;
    }
    append(end, tail);
    return text;
}

char *initialiser_text(Module *m, const Field fields[])
{
    enum { MOST_FIELDS = 32 };
    const char *items[MOST_FIELDS];
    int count = 0;
    for (; fields->name; fields++)
        if (fields->value)
            items[count++] = arena_text(&m->arena, ".%s = %s", fields->name, fields->value);
    return wrapped_list(m, "    { ", count, items, " }", 0);
}

void open_table(const char *type, const char *name, FILE *out)
{
    fprintf(out, "/* clang-format off */\nstatic const %s %s[] = {\n", type, name);
}

void close_table(FILE *out) { fputs("};\n/* clang-format on */\n\n", out); }

char *comment_text(Module *m, const char *text)
{
    char *copy = arena_text(&m->arena, "%s", text);
    for (char *at = copy; *at; at++) {
        bool ends = *at == '/' && at > copy && at[-1] == '*', begins = *at == '*' && at > copy && at[-1] == '/';
        if (ends || begins || *at == '\\' || (unsigned char)*at < ' ' || *at == 0x7f)
            *at = '?';
    }
    return copy;
}

char *c_number(Module *m, double value, bool is_integer)
{
    const char *open = signbit(value) ? "(" : "", *close = signbit(value) ? ")" : "";
    if (isnan(value))
        return arena_text(&m->arena, "NAN");
    if (is_integer)
        return arena_text(&m->arena, "%s%.0f%s", open, value, close);
    if (fabs(value) > FLT_MAX)
        return arena_text(&m->arena, "%s%sINFINITY%s", open, signbit(value) ? "-" : "", close);
    char *digits = arena_text(&m->arena, "%.9g", value);
    for (int precision = 1; precision < 9; precision++) { /* the shortest text of the same float */
        char *shorter = arena_text(&m->arena, "%.*g", precision, value);
        if (strtof(shorter, NULL) == (float)value) {
            digits = shorter;
            break;
        }
    }
    return arena_text(&m->arena, "%s%s%sf%s", open, digits, strpbrk(digits, ".e") ? "" : ".0", close);
}

int64_t loop_size(const Module *m, const Dim *dim) { return runs_over_padding(dim) ? local_size(m, dim) : dim->size; }

int64_t value_bytes(const Module *m, const Value *value)
{
    int64_t bytes = dtype_bytes(value->type.dtype);
    for (int i = 0; i < value->type.rank; i++)
        bytes *= loop_size(m, &value->type.dim[i]);
    return bytes;
}

static char *append_character(char *end, char c, bool after_question)
{
    if (c == '\n')
        return append(end, "\\n");
    if (c == '"' || c == '\\')
        *end++ = '\\';
    else if ((unsigned char)c < ' ' || (c == '?' && after_question)) /* no trigraphs */
        return end + sprintf(end, "\\%03o", (unsigned)c);
    *end++ = c;
    return end;
}

/* A C string, or NULL. */
char *string_text(Module *m, const char *text)
{
    if (!text)
        return "NULL";
    char *quoted = NEW_ARRAY(&m->arena, char, 4 * strlen(text) + 3), *end = append(quoted, "\"");
    for (const char *at = text; *at; at++)
        end = append_character(end, *at, at > text && at[-1] == '?');
    append(end, "\"");
    return quoted;
}
