/* navigate.c -- declarations and uses of names; renaming, symbols, formatting. */
#include "lsp.h"

#include "format.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* --- Places of a name --------------------------------------------------------------------------- */

/* The name at the place of the request, of the file; NULL: there is none. */
static const Mention *name_here(const Request *r)
{
    const Mention *mention = mention_at(&r->analysis->names, r->offset);
    return mention && mention->of ? mention : NULL;
}

cJSON *location_json(const Document *document, Loc at)
{
    cJSON *location = cJSON_CreateObject();
    cJSON_AddStringToObject(location, "uri", document->uri);
    cJSON_AddItemToObject(location, "range", range_json(&document->text, at));
    return location;
}

cJSON *answer_definition(Request *r)
{
    const Mention *here = name_here(r);
    return here ? location_json(r->document, definition_of(&r->analysis->names, here)) : NULL;
}

cJSON *answer_references(Request *r)
{
    const Mention *here = name_here(r);
    const cJSON *context = cJSON_GetObjectItemCaseSensitive(r->params, "context");
    const bool declarations = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(context, "includeDeclaration"));
    const NameTable *names = &r->analysis->names;
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; here && i < names->count; i++)
        if (names->mention[i].of == here->of && (declarations || names->mention[i].kind != M_DECLARES))
            cJSON_AddItemToArray(list, location_json(r->document, names->mention[i].at));
    return list;
}

cJSON *answer_highlights(Request *r)
{
    enum { READ = 2, WRITE = 3 };
    const Mention *here = name_here(r);
    const NameTable *names = &r->analysis->names;
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; here && i < names->count; i++)
        if (names->mention[i].of == here->of) {
            cJSON *highlight = cJSON_CreateObject();
            cJSON_AddItemToObject(highlight, "range", range_json(&r->document->text, names->mention[i].at));
            cJSON_AddNumberToObject(highlight, "kind", names->mention[i].kind == M_DECLARES ? WRITE : READ);
            cJSON_AddItemToArray(list, highlight);
        }
    return list;
}

/* --- Renaming ----------------------------------------------------------------------------------- */

cJSON *text_edit(const Text *text, Loc loc, const char *bytes)
{
    cJSON *edit = cJSON_CreateObject();
    cJSON_AddItemToObject(edit, "range", range_json(text, loc));
    cJSON_AddStringToObject(edit, "newText", bytes);
    return edit;
}

cJSON *answer_prepare_rename(Request *r)
{
    const Mention *here = name_here(r);
    return here ? range_json(&r->document->text, here->at) : NULL;
}

/* Is it one name, and no keyword?  A file with it in a const's place says so. */
static bool is_free_word(Request *r, const char *name)
{
    if (!*name || isdigit((unsigned char)*name) ||
        name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                          "0123456789_")])
        return false;
    const char *text = arena_text(r->arena, "const %s = 1\n", name);
    const Source source = { .path = "", .text = text, .length = (int)strlen(text) };
    Diags diags = { .arena = r->arena, .source = &source, .out = open_discarding() };
    parse_mdl(&source, &diags, r->arena);
    return diags.errors == 0;
}

/* Names of instances and of axes are apart from all others. */
static bool is_of_one_kind(const Declaration *a, const Declaration *b)
{
    const bool is_apart = a->kind == N_INSTANCE || a->kind == N_AXIS || b->kind == N_INSTANCE || b->kind == N_AXIS;
    return a->kind == b->kind || !is_apart;
}

/* What has that name where the renamed one can be used: names shadow nothing. */
static const Declaration *other_of_name(const Request *r, const Declaration *of, const char *name)
{
    for (const Declaration *other = r->analysis->names.newest; other; other = other->older) {
        const bool is_apart = other->scope.end <= of->scope.begin || of->scope.end <= other->scope.begin;
        if (other != of && !is_apart && is_of_one_kind(other, of) && strcmp(other->name, name) == 0)
            return other;
    }
    return NULL;
}

cJSON *answer_rename(Request *r)
{
    const Mention *here = name_here(r);
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(r->params, "newName"));
    const NameTable *names = &r->analysis->names;
    if (!r->analysis->is_whole)
        r->error = "a file with syntax errors is not renamed in: lines with errors would be left out";
    else if (!here)
        r->error = "there is no name of this file";
    else if (!name || !is_free_word(r, name))
        r->error = arena_text(r->arena, "'%s' is not a name: letters, digits and _, and no keyword", name ? name : "");
    else if (other_of_name(r, here->of, name))
        r->error = arena_text(r->arena, "'%s' is another name here", name);
    if (r->error)
        return NULL;
    cJSON *edit = cJSON_CreateObject(), *changes = cJSON_AddObjectToObject(edit, "changes");
    cJSON *list = cJSON_AddArrayToObject(changes, r->document->uri);
    for (int i = 0; i < names->count; i++)
        if (names->mention[i].of == here->of)
            cJSON_AddItemToArray(list, text_edit(&r->document->text, names->mention[i].at, name));
    return edit;
}

/* --- Symbols ------------------------------------------------------------------------------------ */

/* The SymbolKind of the protocol. */
static int protocol_kind(NameKind kind)
{
    enum {
        CLASS = 5,
        METHOD = 6,
        PROPERTY = 7,
        FIELD = 8,
        FUNCTION = 12,
        VARIABLE = 13,
        CONSTANT = 14,
        ENUM_MEMBER = 22
    };
    static const int kinds[N_NAME_KINDS] = {
        [N_CONST] = CONSTANT,    [N_DIM] = ENUM_MEMBER, [N_BLOCK] = FUNCTION, [N_MODEL] = CLASS,
        [N_OPTIMIZER] = METHOD,  [N_INPUT] = PROPERTY,  [N_PARAM] = FIELD,    [N_STATE] = FIELD,
        [N_ARGUMENT] = VARIABLE, [N_NUMBER] = CONSTANT, [N_VALUE] = VARIABLE, [N_INSTANCE] = PROPERTY,
        [N_AXIS] = ENUM_MEMBER,
    };
    return kinds[kind];
}

static bool is_inside(Loc inner, Loc outer) { return outer.begin <= inner.begin && inner.end <= outer.end; }

/* Does it stand on its own in an outline?  Values that are computed do not, and arguments are in the first line. */
static bool is_outlined(const Declaration *named)
{
    return named->kind != N_VALUE && named->kind != N_ARGUMENT && named->kind != N_NUMBER;
}

static bool holds_names(const Declaration *named)
{
    return named->kind == N_BLOCK || named->kind == N_MODEL || named->kind == N_OPTIMIZER;
}

static cJSON *symbol_json(const Request *r, const Declaration *named)
{
    cJSON *symbol = cJSON_CreateObject();
    const Fact *fact = fact_at(&r->analysis->facts, named->at);
    const Loc whole = is_inside(named->at, named->declared->loc) ? named->declared->loc : named->at;
    cJSON_AddStringToObject(symbol, "name", named->name);
    if (fact)
        cJSON_AddStringToObject(symbol, "detail", fact->type);
    cJSON_AddNumberToObject(symbol, "kind", protocol_kind(named->kind));
    cJSON_AddItemToObject(symbol, "range", range_json(&r->document->text, whole));
    cJSON_AddItemToObject(symbol, "selectionRange", range_json(&r->document->text, named->at));
    return symbol;
}

/* In the order of the text: each list is made from its end. */
cJSON *answer_symbols(Request *r)
{
    cJSON *list = cJSON_CreateArray();
    const NameTable *names = &r->analysis->names;
    const Declaration *holder = NULL; /* the block that the next names may be in */
    cJSON *children = NULL;
    for (int i = 0; i < names->count; i++) {
        const Declaration *named = names->mention[i].of;
        if (names->mention[i].kind != M_DECLARES || named->at.begin != names->mention[i].at.begin ||
            !is_outlined(named))
            continue;
        const bool is_within = holder && is_inside(named->at, holder->declared->loc);
        cJSON *symbol = symbol_json(r, named);
        cJSON_AddItemToArray(is_within ? children : list, symbol);
        if (!holds_names(named))
            continue;
        holder = named;
        children = cJSON_AddArrayToObject(symbol, "children");
    }
    return list;
}

/* --- Formatting --------------------------------------------------------------------------------- */

cJSON *answer_formatting(Request *r)
{
    const Text *text = &r->document->text;
    char *formatted = NULL;
    size_t length;
    if (!r->analysis->is_whole)
        return NULL; /* as mpc fmt, which does not touch a file with syntax errors */
    FILE *out = open_memory(&formatted, &length);
    write_formatted(text->bytes, text->length, out);
    fclose(out);
    cJSON *edits = cJSON_CreateArray();
    if (strcmp(formatted, text->bytes) != 0)
        cJSON_AddItemToArray(edits, text_edit(text, (Loc){ 0, text->length }, formatted));
    free(formatted);
    return edits;
}
