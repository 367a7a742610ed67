/* hints.c -- inlay hints: the type of each assignment, and the messages between ranks that a line causes. */
#include "layout.h"

#include "amount.h"

#include <string.h>

enum { TYPE_HINT = 1 };

static bool is_asked(Loc asked, int at) { return asked.begin <= at && at <= asked.end; }

static cJSON *hint_json(const Request *r, int at, const char *label)
{
    cJSON *hint = cJSON_CreateObject();
    cJSON_AddItemToObject(hint, "position", position_json(&r->document->text, at));
    cJSON_AddStringToObject(hint, "label", label);
    return hint;
}

/* Behind each name that an assignment without a stated type gives a value. */
static void add_types(Request *r, Loc asked, cJSON *list)
{
    const NameTable *names = &r->analysis->names;
    for (int i = 0; i < names->count; i++) {
        const Mention *mention = &names->mention[i];
        const bool is_value = mention->kind == M_DECLARES && mention->of->kind == N_VALUE && !mention->has_type;
        const Fact *fact =
            is_value && is_asked(asked, mention->at.end) ? fact_at(&r->analysis->facts, mention->at) : NULL;
        if (!fact || !fact->type)
            continue;
        cJSON *hint =
            hint_json(r, mention->at.end, arena_text(r->arena, ": %s%s", fact->type, fact->others ? " ..." : ""));
        cJSON_AddNumberToObject(hint, "kind", TYPE_HINT);
        if (*fact->sizes)
            cJSON_AddStringToObject(hint, "tooltip", fact->sizes);
        cJSON_AddItemToArray(list, hint);
    }
}

static void add_messages(Request *r, const Layout *layout, int line, cJSON *list)
{
    const Text *text = &r->document->text;
    const char *label = "", *more = "";
    for (const LineMessages *c = layout->caused; c; c = c->next)
        if (c->line == line + 1) {
            label = arena_text(r->arena, "%s%s%s %s %s", label, *label ? ", " : "", c->name, c->axes,
                               bytes_text(r->arena, c->bytes));
            more = arena_text(r->arena, "%s%s over %s: %s bytes in a step from each rank, in %g messages\n", more,
                              c->name, c->axes, grouped(r->arena, (int64_t)(c->bytes + 0.5)), c->messages);
        }
    if (!*label)
        return;
    const int begin = text->line[line];
    cJSON *hint = hint_json(r, begin + (int)strcspn(text->bytes + begin, "\r\n"), label);
    cJSON_AddStringToObject(hint, "tooltip", more);
    cJSON_AddBoolToObject(hint, "paddingLeft", true);
    cJSON_AddItemToArray(list, hint);
}

cJSON *answer_hints(Request *r)
{
    const cJSON *range = cJSON_GetObjectItemCaseSensitive(r->params, "range");
    const Text *text = &r->document->text;
    cJSON *list = cJSON_CreateArray();
    Loc asked;
    if (!read_position(text, cJSON_GetObjectItemCaseSensitive(range, "start"), &asked.begin) ||
        !read_position(text, cJSON_GetObjectItemCaseSensitive(range, "end"), &asked.end) || asked.end < asked.begin)
        return list;
    add_types(r, asked, list);
    const Layout *layout = layout_of(r->server, r->document);
    const int last = line_of(text, asked.end);
    for (int line = line_of(text, asked.begin); layout && line <= last; line++)
        add_messages(r, layout, line, list);
    return list;
}
