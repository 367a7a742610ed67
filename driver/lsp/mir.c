/* mir.c -- dumps of the IR: what an op costs, where it comes from, the functions. */
#include "mir.h"

#include "amount.h"

#include "cost/cost.h"

#include <string.h>
#include <unistd.h>

bool is_dump(const char *path)
{
    const char *point = strrchr(path, '.');
    return point && strcmp(point, ".mir") == 0;
}

/* From the name of a function to that of the next one. */
static Loc range_of(const Request *r, const Func *f)
{
    return (Loc){ f->loc.begin, f->next ? f->next->loc.begin : r->document->text.length };
}

static const Func *func_at(const Request *r)
{
    const Func *f = r->analysis->module ? r->analysis->module->funcs : NULL;
    while (f && range_of(r, f).end <= r->offset)
        f = f->next;
    return f && f->loc.begin <= r->offset ? f : NULL;
}

/* In the line of the place. */
static const Op *op_at(const Request *r, const Func *f)
{
    const Text *text = &r->document->text;
    const int line = line_of(text, r->offset);
    const Op *op = f ? f->first : NULL;
    while (op && line_of(text, op->loc.begin) != line)
        op = op->next;
    return op;
}

/* --- Costs -------------------------------------------------------------------------------------- */

typedef struct {
    const Op *op;
    double times;
} Counting;

static void count_runs(void *context, const Func *f, const Op *op, double times)
{
    Counting *counting = context;
    counting->times += op == counting->op ? times : 0;
}

/* How often the step, or the model before there is one, runs it. */
static double runs_of(const Module *m, const Op *op)
{
    Counting counting = { .op = op };
    const Func *step = func_with_role(m, STEP), *program = step ? step : func_with_role(m, MODEL);
    if (program)
        visit_program(m, program, count_runs, &counting);
    return counting.times;
}

static const char *times_text(Arena *arena, const char *what, double times, const char *total)
{
    return times > 1 ? arena_text(arena, "%s, %g times in a step: %s", what, times, total) : what;
}

static const char *cost_text(Request *r, const Func *f, const Op *op)
{
    Module *m = r->analysis->module;
    const double times = runs_of(m, op), work = op_work(m, f, op).rank;
    const char *text = arena_text(r->arena, "`%s` of `@%s`", info(op)->name, f->name);
    if (op->path)
        text = arena_text(r->arena, "%s: %s", text, op->path);
    if (op->where)
        text = arena_text(r->arena, "%s, %s", text, op->where);
    for (int i = 0; i < op->results.count; i++)
        text = arena_text(r->arena, "%s\n\n`%s`: %s on a rank", text, type_text(m, &op->results.at[i]->type),
                          bytes_text(r->arena, (double)local_bytes(m, &op->results.at[i]->type)));
    if (work > 0)
        text = arena_text(r->arena, "%s\n\n%s", text,
                          times_text(r->arena, flops_text(r->arena, work), times, flops_text(r->arena, work * times)));
    if (info(op)->traits & SENDS) {
        const double sent = op_traffic(m, op).sent;
        const char *each = arena_text(r->arena, "sends %s", bytes_text(r->arena, sent));
        text = arena_text(r->arena, "%s\n\n%s", text,
                          times_text(r->arena, each, times, bytes_text(r->arena, sent * times)));
    }
    return text;
}

cJSON *dump_hover(Request *r)
{
    const Func *f = func_at(r);
    const Op *op = op_at(r, f);
    if (!op)
        return NULL;
    cJSON *hover = cJSON_CreateObject(), *contents = cJSON_AddObjectToObject(hover, "contents");
    cJSON_AddStringToObject(contents, "kind", "markdown");
    cJSON_AddStringToObject(contents, "value", cost_text(r, f, op));
    cJSON_AddItemToObject(hover, "range", range_json(&r->document->text, op->loc));
    return hover;
}

/* --- Definitions -------------------------------------------------------------------------------- */

static bool is_value_byte(char c) { return is_name_byte(c) || c == '.' || c == '\''; }

/* The %name at the place; empty: there is none. */
static Loc value_name_at(const Request *r)
{
    const Text *text = &r->document->text;
    Loc name = { r->offset, r->offset };
    while (name.begin > 0 && is_value_byte(text->bytes[name.begin - 1]))
        name.begin--;
    while (name.end < text->length && is_value_byte(text->bytes[name.end]))
        name.end++;
    if (text->bytes[r->offset] == '%')
        return (Loc){ r->offset, r->offset + 1 + (int)strcspn(text->bytes + r->offset + 1, " ,:)]}=\n") };
    return name.begin > 0 && text->bytes[name.begin - 1] == '%' ? (Loc){ name.begin - 1, name.end } : (Loc){ 0 };
}

/* Values are defined above their uses: the first time that the function has the name. */
static cJSON *value_definition(const Request *r, const Func *f, Loc name)
{
    const char *bytes = r->document->text.bytes;
    const int length = name.end - name.begin;
    const Loc range = range_of(r, f);
    for (int at = range.begin; at + length <= range.end; at++)
        if (strncmp(bytes + at, bytes + name.begin, (size_t)length) == 0 && !is_value_byte(bytes[at + length]))
            return location_json(r->document, (Loc){ at, at + length });
    return NULL;
}

static const char *file_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The text of the model: open, as the module names it, or in the folder of the dump or one of those above it. */
static const Source *model_text(Request *r, Run *run, const char *name, const Document **open)
{
    const char *unread, *from = r->analysis->module->source, *folder = r->document->path;
    for (*open = r->server->documents; *open; *open = (*open)->next)
        if (strcmp(file_of((*open)->path), name) == 0)
            return NULL;
    Source *source = from && strcmp(file_of(from), name) == 0 ? read_text(run, from, &unread) : NULL;
    for (int up = 0; !source && up < 4 && strchr(folder, '/'); up++) {
        folder = arena_text(r->arena, "%.*s", (int)(file_of(folder) - folder) - 1, folder);
        source = read_text(run, arena_text(r->arena, "%s/%s", folder, name), &unread);
    }
    return source;
}

/* file:// and the path, with what is no letter of a URI as %20. */
static const char *uri_of(Arena *arena, const char *path)
{
    char folder[4096];
    const char *uri = "file://";
    if (*path != '/' && getcwd(folder, sizeof folder))
        path = arena_text(arena, "%s/%s", folder, path);
    for (const char *at = path; *at; at++)
        uri =
            arena_text(arena, is_name_byte(*at) || strchr("/.-~", *at) ? "%s%c" : "%s%%%02X", uri, (unsigned char)*at);
    return uri;
}

static Loc place_of(const Text *text, int line, int column)
{
    int at = text->line[line <= text->nlines ? line - 1 : text->nlines - 1];
    for (int i = 1; i < column && at < text->length; i++)
        at += text_step(text, at);
    return (Loc){ at, at };
}

static cJSON *model_definition(Request *r, const Op *op)
{
    Run run = { 0 };
    int line = 0, column = 0;
    const char *colon = strchr(op->where, ':');
    if (!colon || sscanf(colon, ":%d:%d", &line, &column) != 2 || line < 1)
        return NULL;
    const Document *open;
    const char *name = arena_text(r->arena, "%.*s", (int)(colon - op->where), op->where);
    const Source *source = model_text(r, &run, name, &open);
    cJSON *location = NULL;
    if (open) {
        location = location_json(open, place_of(&open->text, line, column));
    } else if (source) {
        Text text = { 0 };
        replace_text(&text, source->text);
        location = cJSON_CreateObject();
        cJSON_AddStringToObject(location, "uri", uri_of(r->arena, source->path));
        cJSON_AddItemToObject(location, "range", range_json(&text, place_of(&text, line, column)));
        free_text(&text);
    }
    arena_free(&run.arena);
    return location;
}

cJSON *dump_definition(Request *r)
{
    const Func *f = func_at(r);
    const Op *op = op_at(r, f);
    const Loc name = value_name_at(r);
    if (f && name.end > name.begin)
        return value_definition(r, f, name);
    return op && op->where ? model_definition(r, op) : NULL;
}

/* --- Functions ---------------------------------------------------------------------------------- */

cJSON *dump_symbols(Request *r)
{
    enum { FUNCTION = 12 };
    cJSON *list = cJSON_CreateArray();
    for (const Func *f = r->analysis->module ? r->analysis->module->funcs : NULL; f; f = f->next) {
        cJSON *symbol = cJSON_CreateObject();
        cJSON_AddStringToObject(symbol, "name", f->name);
        cJSON_AddNumberToObject(symbol, "kind", FUNCTION);
        cJSON_AddItemToObject(symbol, "range", range_json(&r->document->text, range_of(r, f)));
        cJSON_AddItemToObject(symbol, "selectionRange", range_json(&r->document->text, f->loc));
        cJSON_AddItemToArray(list, symbol);
    }
    return list;
}
