/* tokens.c -- semantic tokens: what kind of name each one is. */
#include "lsp.h"

/* The types of the protocol, in the order of the legend. */
enum { T_VARIABLE, T_PARAMETER, T_PROPERTY, T_FUNCTION, T_CLASS, T_TYPE, T_ENUM_MEMBER, T_KEYWORD, NTYPES };
static const char *const types[NTYPES] = { "variable", "parameter", "property",   "function",
                                           "class",    "type",      "enumMember", "keyword" };
enum { DECLARATION = 1, READONLY = 2, OF_LANGUAGE = 4 };

cJSON *token_legend(void)
{
    static const char *const modifiers[] = { "declaration", "readonly", "defaultLibrary" };
    cJSON *legend = cJSON_CreateObject();
    cJSON_AddItemToObject(legend, "tokenTypes", cJSON_CreateStringArray(types, NTYPES));
    cJSON_AddItemToObject(legend, "tokenModifiers", cJSON_CreateStringArray(modifiers, 3));
    return legend;
}

static int type_of_named(NameKind kind)
{
    static const int of[N_NAME_KINDS] = {
        [N_CONST] = T_ENUM_MEMBER,  [N_DIM] = T_TYPE,         [N_BLOCK] = T_FUNCTION, [N_MODEL] = T_CLASS,
        [N_OPTIMIZER] = T_FUNCTION, [N_INPUT] = T_PARAMETER,  [N_PARAM] = T_PROPERTY, [N_STATE] = T_PROPERTY,
        [N_ARGUMENT] = T_PARAMETER, [N_NUMBER] = T_PARAMETER, [N_VALUE] = T_VARIABLE, [N_INSTANCE] = T_VARIABLE,
        [N_AXIS] = T_ENUM_MEMBER,
    };
    return of[kind];
}

static int type_of_mention(const Mention *mention, int *modifiers)
{
    const bool is_constant = mention->of && (mention->of->kind == N_CONST || mention->of->kind == N_DIM);
    *modifiers = (mention->kind == M_DECLARES ? DECLARATION : 0) | (is_constant ? READONLY : 0) |
                 (mention->kind == M_FUNCTION ? OF_LANGUAGE : 0);
    switch (mention->kind) {
    case M_DECLARES:
    case M_USES:
        return type_of_named(mention->of->kind);
    case M_FUNCTION:
        return T_FUNCTION;
    case M_KEYWORD:
        return T_PARAMETER;
    case M_SETTING:
        return T_PROPERTY;
    default:
        return T_KEYWORD;
    }
}

/* Five numbers for each: lines and characters from the one before, length, type, modifiers. */
cJSON *answer_tokens(Request *r)
{
    const Text *text = &r->document->text;
    const NameTable *names = &r->analysis->names;
    cJSON *tokens = cJSON_CreateObject(), *data = cJSON_AddArrayToObject(tokens, "data");
    int line = 0, last = 0; /* the begin of the token before; of a line without one, that of the line */
    for (int i = 0; i < names->count; i++) {
        const Mention *mention = &names->mention[i];
        const int here = line_of(text, mention->at.begin);
        if (i > 0 && mention->at.begin < names->mention[i - 1].at.end)
            continue; /* two meanings of one name */
        last = here == line ? last : text->line[here];
        int modifiers;
        const int type = type_of_mention(mention, &modifiers);
        const int number[] = { here - line, utf16_units(text->bytes + last, mention->at.begin - last),
                               utf16_units(text->bytes + mention->at.begin, mention->at.end - mention->at.begin), type,
                               modifiers };
        for (int k = 0; k < 5; k++)
            cJSON_AddItemToArray(data, cJSON_CreateNumber(number[k]));
        line = here;
        last = mention->at.begin;
    }
    return tokens;
}
