/* hover.c -- the answer to hover over a name: its type and sizes, parameters, the page of a function. */
#include "layout.h"

#include "amount.h"
#include "builtin_table.h"
#include "pages.h"

#include <string.h>

/* The line of the text at that place, without what follows the head of a block. */
static const char *line_text(Request *r, Loc at)
{
    const Text *text = &r->document->text;
    const char *begin = text->bytes + text->line[line_of(text, at.begin)];
    begin += strspn(begin, " \t");
    size_t length = strcspn(begin, "\r\n#");
    while (length > 0 && strchr(" \t", begin[length - 1]))
        length--;
    return arena_text(r->arena, "%.*s", (int)length, begin);
}

static const char *grouped_number(Arena *arena, double number)
{
    return number < 1e15 ? grouped(arena, (int64_t)number) : arena_text(arena, "%g", number);
}

static const char *param_text(Request *r, const Fact *fact)
{
    const char *text = arena_text(r->arena, "%s %s", grouped_number(r->arena, fact->param.elements), "elements");
    if (fact->param.tensors > 1)
        text = arena_text(r->arena, "%s in %s", text, counted(r->arena, fact->param.tensors, "tensor"));
    text = arena_text(r->arena, "%s, `%s`", text, fact->param.path);
    if (r->analysis->facts.is_complete)
        text = arena_text(r->arena, "%s; %s", text, fact->param.decays ? "weight decay applies" : "no weight decay");
    return text;
}

/* "h : [batch, seq, embed]" and what more there is to say; NULL: nothing. */
static const char *fact_text(Request *r, const char *name, const Fact *fact)
{
    if (!fact || !fact->type)
        return NULL;
    const bool is_number = fact->type[0] != '[' && !strchr(fact->type, '[');
    const char *text = arena_text(r->arena, "```mdl\n%s %s %s\n```", name, is_number ? "=" : ":", fact->type);
    if (*fact->sizes)
        text = arena_text(r->arena, "%s\n\n%s", text, fact->sizes);
    if (fact->param.tensors)
        text = arena_text(r->arena, "%s\n\n%s", text, param_text(r, fact));
    if (fact->others)
        text =
            arena_text(r->arena, "%s\n\nin %s it has another one", text, counted(r->arena, fact->others, "other use"));
    return text;
}

/* What it is on each rank, if the mesh has several; NULL: not known. */
static const char *layout_text(Request *r, const Fact *fact)
{
    const char *path = !fact ? NULL : fact->param.tensors ? fact->param.path : fact->path;
    const Layout *layout = path ? layout_of(r->server, r->document) : NULL;
    const SplitTensor *tensor = layout ? split_of(layout, path) : NULL;
    if (!tensor)
        return NULL;
    return arena_text(r->arena, "on %s: `%s`, %s on each", counted(r->arena, r->analysis->ranks, "rank"), tensor->type,
                      bytes_text(r->arena, tensor->bytes));
}

/* What is known where the name is used; else where it gets its value. */
static const char *name_text(Request *r, const Mention *mention)
{
    const Declaration *of = mention->of;
    const Loc given = definition_of(&r->analysis->names, mention);
    const char *text = fact_text(r, of->name, fact_at(&r->analysis->facts, mention->at));
    text = of->kind == N_PARAM || of->kind == N_STATE || !text ? NULL : text;
    text = text ? text : fact_text(r, of->name, fact_of(r->document, of, given));
    const char *layout = layout_text(r, fact_at(&r->analysis->facts, given));
    const char *declared = line_text(r, of->kind == N_VALUE ? given : of->at);
    return arena_text(r->arena, "%s%s%s%s```mdl\n%s\n```", text ? text : "", text ? "\n\n" : "", layout ? layout : "",
                      layout ? "\n\n" : "", declared);
}

static const char *function_text(Request *r, const Mention *mention)
{
    const BuiltinInfo *builtin = find_builtin(mention->name);
    const char *page = page_of_function(r->arena, mention->name);
    const char *usage = arena_text(r->arena, "```mdl\n%s\n```", builtin->usage);
    return page ? arena_text(r->arena, "%s\n\n%s", usage, page) : usage;
}

static const char *mention_text(Request *r, const Mention *mention)
{
    const char *page;
    switch (mention->kind) {
    case M_DECLARES:
    case M_USES:
        return name_text(r, mention);
    case M_FUNCTION:
        return function_text(r, mention);
    case M_SETTING:
    case M_KEYWORD:
        return page_of_word(r->arena, mention->name);
    default:
        page = page_of_function(r->arena, mention->name);
        return page ? page : page_of_word(r->arena, mention->name);
    }
}

/* A word of the text that is no name: a keyword. */
static Loc word_at(const Text *text, int offset)
{
    Loc word = { offset, offset };
    while (word.begin > 0 && is_name_byte(text->bytes[word.begin - 1]))
        word.begin--;
    while (word.end < text->length && is_name_byte(text->bytes[word.end]))
        word.end++;
    return word;
}

cJSON *answer_hover(Request *r)
{
    const Mention *mention = mention_at(&r->analysis->names, r->offset);
    const Text *text = &r->document->text;
    const Loc at = mention ? mention->at : word_at(text, r->offset);
    const char *word = arena_text(r->arena, "%.*s", at.end - at.begin, text->bytes + at.begin);
    const char *said = mention ? mention_text(r, mention) : *word ? page_of_word(r->arena, word) : NULL;
    if (!said)
        return NULL;
    cJSON *hover = cJSON_CreateObject(), *contents = cJSON_AddObjectToObject(hover, "contents");
    cJSON_AddStringToObject(contents, "kind", "markdown");
    cJSON_AddStringToObject(contents, "value", said);
    cJSON_AddItemToObject(hover, "range", range_json(text, at));
    return hover;
}
