/* complete.c -- completion, and the arguments of a call while it is typed. */
#include "lsp.h"

#include "builtin_table.h"
#include "place.h"

#include <string.h>

/* The CompletionItemKind of the protocol. */
enum {
    SHOWN_FUNCTION = 3,
    SHOWN_FIELD = 5,
    SHOWN_VARIABLE = 6,
    SHOWN_CLASS = 7,
    SHOWN_PROPERTY = 10,
    SHOWN_KEYWORD = 14,
    SHOWN_ENUM_MEMBER = 20,
    SHOWN_CONSTANT = 21,
    SHOWN_TYPE = 25
};

static const char optimizers[] =
#define OPTIMIZER(name) #name " "
#include "optimizers.def"
    ;

static const struct {
    const char *place, *words;
} word_table[] = {
#define WORDS(place, ...) { place, __VA_ARGS__ },
#include "words.def"
};

typedef struct {
    Request *r;
    Place place;
    cJSON *items;
} Completion;

/* --- Items -------------------------------------------------------------------------------------- */

/* rank: "1" before "2" in the list. */
static void add_item(Completion *c, const char *label, int kind, const char *detail, const char *insert,
                     const char *rank)
{
    cJSON *item = cJSON_CreateObject();
    cJSON_AddStringToObject(item, "label", label);
    cJSON_AddNumberToObject(item, "kind", kind);
    if (detail)
        cJSON_AddStringToObject(item, "detail", detail);
    cJSON_AddStringToObject(item, "sortText", arena_text(c->r->arena, "%s%s", rank, label));
    cJSON_AddItemToObject(item, "textEdit", text_edit(&c->r->document->text, c->place.word, insert ? insert : label));
    cJSON_AddItemToArray(c->items, item);
}

static void add_words(Completion *c, const char *place, int kind)
{
    for (size_t i = 0; i < sizeof word_table / sizeof word_table[0]; i++)
        for (const char *word = word_table[i].words; strcmp(word_table[i].place, place) == 0 && *word;
             word += strspn(word, " ")) {
            const int length = (int)strcspn(word, " ");
            add_item(c, arena_text(c->r->arena, "%.*s", length, word), kind, NULL, NULL, "1");
            word += length;
        }
}

/* The head of a block, as it is declared. */
static const char *head_text(Request *r, const Declaration *named)
{
    const Text *text = &r->document->text;
    const Loc whole = named->declared->loc;
    if (whole.end > text->length)
        return NULL;
    const char *begin = text->bytes + whole.begin;
    return arena_text(r->arena, "%.*s", (int)strcspn(begin, "{\r\n"), begin);
}

static const char *detail_of(Completion *c, const Declaration *named)
{
    if (named->kind == N_BLOCK)
        return head_text(c->r, named);
    const Fact *fact = fact_of(c->r->document, named, named->at);
    if (!fact)
        return NULL;
    return named->kind == N_DIM || named->kind == N_CONST || named->kind == N_NUMBER
               ? arena_text(c->r->arena, "= %s", fact->type)
               : fact->type;
}

static void add_named(Completion *c, const Declaration *named)
{
    static const int kinds[N_NAME_KINDS] = {
        [N_CONST] = SHOWN_CONSTANT,   [N_DIM] = SHOWN_TYPE,           [N_BLOCK] = SHOWN_FUNCTION,
        [N_MODEL] = SHOWN_CLASS,      [N_OPTIMIZER] = SHOWN_FUNCTION, [N_INPUT] = SHOWN_PROPERTY,
        [N_PARAM] = SHOWN_FIELD,      [N_STATE] = SHOWN_FIELD,        [N_ARGUMENT] = SHOWN_VARIABLE,
        [N_NUMBER] = SHOWN_CONSTANT,  [N_VALUE] = SHOWN_VARIABLE,     [N_INSTANCE] = SHOWN_PROPERTY,
        [N_AXIS] = SHOWN_ENUM_MEMBER,
    };
    const char *insert = named->kind == N_BLOCK ? arena_text(c->r->arena, "%s(", named->name) : NULL;
    add_item(c, named->name, kinds[named->kind], detail_of(c, named), insert, *named->holder ? "1" : "2");
}

/* Names of these kinds, as bits, that can be used at the place. */
static void add_names(Completion *c, int kinds)
{
    const int at = c->r->offset;
    for (const Declaration *n = c->r->analysis->names.newest; n; n = n->older) {
        const bool is_seen = n->scope.begin <= at && at <= n->scope.end && (!*n->holder || n->at.end < at);
        if (kinds & 1 << n->kind && is_seen)
            add_named(c, n);
    }
}

/* Instances in the model, which a layout names from outside. */
static void add_instances(Completion *c)
{
    for (const Declaration *n = c->r->analysis->names.newest; n; n = n->older)
        if (n->kind == N_INSTANCE)
            add_named(c, n);
}

static void add_functions(Completion *c)
{
    for (int i = 0; i < nbuiltins; i++)
        add_item(c, builtin_table[i].name, SHOWN_FUNCTION, builtin_table[i].usage,
                 arena_text(c->r->arena, "%s(", builtin_table[i].name), "3");
}

static void add_keywords_of(Completion *c, const char *callee)
{
    const BuiltinInfo *builtin = find_builtin(callee);
    for (int i = 0; builtin && builtin->keyword[i]; i++)
        add_item(c, arena_text(c->r->arena, "%s = ", builtin->keyword[i]), SHOWN_PROPERTY, builtin->usage, NULL, "0");
}

/* --- Places ------------------------------------------------------------------------------------- */

enum {
    DIMS = 1 << N_DIM,
    AXES = 1 << N_AXIS,
    VALUES = 1 << N_CONST | 1 << N_DIM | 1 << N_BLOCK | 1 << N_INPUT | 1 << N_PARAM | 1 << N_STATE | 1 << N_ARGUMENT |
             1 << N_NUMBER | 1 << N_VALUE
};

static bool is(const char *a, const char *b) { return strcmp(a, b) == 0; }

static void complete_expression(Completion *c)
{
    add_names(c, VALUES);
    add_functions(c);
}

static void complete_layout(Completion *c)
{
    const Place *p = &c->place;
    if (*p->keyword)
        add_words(c, arena_text(c->r->arena, "%s.%s", p->first, p->keyword), SHOWN_KEYWORD);
    else if (p->bracket == '(' && (is(p->first, "shard") || is(p->first, "zero")) && !is(p->callee, "shard"))
        add_words(c, p->first, SHOWN_PROPERTY);
    else if (is(p->before, "over"))
        add_names(c, AXES);
    else if (is(p->first, "shard"))
        add_names(c, DIMS);
    else if (is(p->first, "pipeline") && is(p->before, "pipeline"))
        add_instances(c);
    else if (is(p->first, "zero"))
        add_names(c, AXES);
    else
        add_words(c, p->first, is(p->first, "pipeline") ? SHOWN_PROPERTY : SHOWN_KEYWORD);
}

static void complete_setting(Completion *c)
{
    const Place *p = &c->place;
    add_words(c, arena_text(c->r->arena, "train.%s", p->keyword), SHOWN_KEYWORD);
    add_names(c, is(p->keyword, "optimizer") ? 1 << N_OPTIMIZER : 1 << N_CONST | DIMS);
}

static void complete_in_bracket(Completion *c)
{
    const Place *p = &c->place;
    const bool is_type =
        p->bracket == '[' && (!*p->callee || is(p->callee, "i32") || is(p->callee, "bool") || is(p->callee, "f32"));
    if (is_type || (p->bracket == '[' && !*p->keyword)) {
        add_names(c, DIMS); /* of a type, of a call, or before the `=` of an index */
        return;
    }
    if (is(p->first, "block") && p->sign == ':')
        add_words(c, "type", SHOWN_TYPE);
    if (p->bracket == '(' && *p->keyword)
        add_words(c, arena_text(c->r->arena, "%s.%s", p->callee, p->keyword), SHOWN_KEYWORD);
    else if (p->bracket == '(')
        add_keywords_of(c, p->callee);
    complete_expression(c);
}

static void complete_statement(Completion *c)
{
    const Place *p = &c->place;
    if (!*p->first) {
        add_words(c, p->body, SHOWN_KEYWORD);
        if (!is(p->body, "file") && !is(p->body, "train") && !is(p->body, "parallel"))
            add_names(c, VALUES);
    } else if (p->sign == ':') {
        add_words(c, "type", SHOWN_TYPE);
    } else if (is(p->first, "scan")) {
        add_names(c, DIMS);
    } else {
        if (is(p->first, "param") && p->sign == '=')
            add_words(c, "param", SHOWN_KEYWORD);
        complete_expression(c);
    }
}

cJSON *answer_completion(Request *r)
{
    Completion c = { .r = r,
                     .place = find_place(&r->document->text, r->offset, r->arena),
                     .items = cJSON_CreateArray() };
    const Place *p = &c.place;
    if (p->is_comment)
        return c.items;
    if (is(p->body, "parallel") && *p->first)
        complete_layout(&c);
    else if (is(p->body, "train") && *p->keyword && !p->bracket)
        complete_setting(&c);
    else if (p->bracket)
        complete_in_bracket(&c);
    else
        complete_statement(&c);
    return c.items;
}

/* --- Arguments of a call ------------------------------------------------------------------------ */

/* The usage of what is called at the place; NULL: no call, or nothing that is known. */
static const char *called_text(Request *r, const Place *place)
{
    const BuiltinInfo *builtin = find_builtin(place->callee);
    if (place->bracket != '(' || builtin)
        return builtin && place->bracket == '(' ? builtin->usage : NULL;
    for (const Declaration *n = r->analysis->names.newest; n; n = n->older)
        if (n->kind == N_BLOCK && is(n->name, place->callee)) {
            const char *head = head_text(r, n);
            return head ? head + strcspn(head, " ") + 1 : NULL;
        }
    return NULL;
}

/* Up to a comma or the `)` of the list. */
static int parameter_length(const char *text)
{
    int length = 0;
    for (int depth = 0; text[length] && (depth > 0 || !strchr(",)", text[length])); length++)
        depth += strchr("([", text[length]) ? 1 : strchr(")]", text[length]) ? -1 : 0;
    return length;
}

/* Of "(x: [batch, seq], causal: const)"; NULL: there is no list. */
static cJSON *parameters_json(Arena *arena, const char *list)
{
    cJSON *parameters = cJSON_CreateArray();
    while (list && (*list == '(' || *list == ',')) {
        list += 1 + strspn(list + 1, " ");
        const int length = parameter_length(list);
        cJSON *parameter = length ? cJSON_CreateObject() : NULL;
        if (parameter)
            cJSON_AddStringToObject(parameter, "label", arena_text(arena, "%.*s", length, list));
        if (parameter)
            cJSON_AddItemToArray(parameters, parameter);
        list += length;
    }
    return parameters;
}

cJSON *answer_signature(Request *r)
{
    const Place place = find_place(&r->document->text, r->offset, r->arena);
    const char *text = called_text(r, &place);
    if (!text)
        return NULL;
    cJSON *help = cJSON_CreateObject(), *signature = cJSON_CreateObject();
    cJSON_AddItemToArray(cJSON_AddArrayToObject(help, "signatures"), signature);
    cJSON_AddStringToObject(signature, "label", text);
    cJSON_AddItemToObject(signature, "parameters", parameters_json(r->arena, strchr(text, '(')));
    cJSON_AddNumberToObject(help, "activeSignature", 0);
    cJSON_AddNumberToObject(help, "activeParameter", place.argument);
    return help;
}
