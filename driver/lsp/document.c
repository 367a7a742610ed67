/* document.c -- the documents that an editor has open, and the messages about them. */
#include "lsp.h"

#include "near.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static char *copy_of(const char *text)
{
    char *copy = strdup(text);
    if (!copy)
        out_of_memory(strlen(text));
    return copy;
}

/* The path of a file:// URI, with %20 as a space; of another one all of it. */
static char *path_of(const char *uri)
{
    static const char scheme[] = "file://";
    const size_t length = strlen(scheme);
    char *path = copy_of(strncmp(uri, scheme, length) == 0 ? uri + length : uri), *to = path;
    for (const char *at = path; *at; at++) {
        const bool is_code = *at == '%' && isxdigit((unsigned char)at[1]) && isxdigit((unsigned char)at[2]);
        const char digits[] = { at[0] ? at[1] : '\0', is_code ? at[2] : '\0', '\0' };
        const char c = is_code ? (char)strtol(digits, NULL, 16) : *at;
        *to++ = c ? c : '?';
        at += is_code ? 2 : 0;
    }
    *to = '\0';
    return path;
}

static const char *string_in(const cJSON *object, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
}

Document *find_document(const Server *server, const char *uri)
{
    Document *document = uri ? server->documents : NULL;
    while (document && strcmp(document->uri, uri) != 0)
        document = document->next;
    return document;
}

/* Of a text without errors it is kept until the next one: it knows the types of names in lines that are being typed. */
static void forget_analysis(Server *server, Document *document)
{
    if (document->analysis && server->worker.analysis == document->analysis)
        stop_worker(&server->worker);
    const bool is_complete = document->analysis && document->analysis->facts.is_complete;
    free_analysis(is_complete ? document->complete : document->analysis);
    if (is_complete)
        document->complete = document->analysis;
    document->analysis = NULL;
    document->is_published = false;
}

static void take_version(Document *document, const cJSON *identifier)
{
    const cJSON *version = cJSON_GetObjectItemCaseSensitive(identifier, "version");
    document->version = cJSON_IsNumber(version) ? version->valuedouble : 0;
}

void open_document(Server *server, const cJSON *params)
{
    const cJSON *opened = cJSON_GetObjectItemCaseSensitive(params, "textDocument");
    const char *uri = string_in(opened, "uri"), *text = string_in(opened, "text");
    if (!uri || !text)
        return;
    Document *document = find_document(server, uri);
    if (!document) {
        document = calloc(1, sizeof *document);
        if (!document)
            out_of_memory(sizeof *document);
        *document = (Document){ .uri = copy_of(uri), .path = path_of(uri), .next = server->documents };
        server->documents = document;
    }
    replace_text(&document->text, text);
    take_version(document, opened);
    forget_analysis(server, document);
}

void change_document(Server *server, const cJSON *params)
{
    const cJSON *changed = cJSON_GetObjectItemCaseSensitive(params, "textDocument"), *change;
    Document *document = find_document(server, string_in(changed, "uri"));
    if (!document)
        return;
    cJSON_ArrayForEach(change, cJSON_GetObjectItemCaseSensitive(params, "contentChanges"))
    {
        change_text(&document->text, change);
    }
    take_version(document, changed);
    forget_analysis(server, document);
}

static void free_document(Server *server, Document *document)
{
    forget_analysis(server, document);
    free_analysis(document->complete);
    free_text(&document->text);
    free(document->uri);
    free(document->path);
    free(document);
}

static void publish(const Document *document, cJSON *diagnostics)
{
    cJSON *params = cJSON_CreateObject();
    cJSON_AddStringToObject(params, "uri", document->uri);
    cJSON_AddNumberToObject(params, "version", document->version);
    cJSON_AddItemToObject(params, "diagnostics", diagnostics);
    notify("textDocument/publishDiagnostics", params);
}

void close_document(Server *server, const cJSON *params)
{
    const cJSON *closed = cJSON_GetObjectItemCaseSensitive(params, "textDocument");
    Document *document = find_document(server, string_in(closed, "uri")), **at = &server->documents;
    if (!document)
        return;
    while (*at != document)
        at = &(*at)->next;
    *at = document->next;
    publish(document, cJSON_CreateArray());
    free_document(server, document);
}

void free_documents(Server *server)
{
    for (Document *next; server->documents; server->documents = next) {
        next = server->documents->next;
        free_document(server, server->documents);
    }
}

const Fact *fact_of(const Document *document, const Declaration *named, Loc at)
{
    const Fact *fact = fact_at(&document->analysis->facts, at);
    const Analysis *before = document->complete;
    const Declaration *earlier = before && !fact ? same_name(&before->names, named) : NULL;
    return earlier ? fact_at(&before->facts, earlier->at) : fact;
}

const Analysis *analysis_of(const Server *server, Document *document)
{
    if (!document->analysis)
        document->analysis = analyse(server->options, document->path, document->text.bytes, document->text.length);
    return document->analysis;
}

/* --- Messages ----------------------------------------------------------------------------------- */

/* The places that a message also marks, with its label. */
static void add_related(const Document *document, cJSON *diagnostic, const Note *note)
{
    cJSON *related = cJSON_CreateArray();
    for (int i = 0; i < 2; i++)
        if (note->also[i].end > 0) {
            cJSON *place = cJSON_CreateObject(), *location = cJSON_AddObjectToObject(place, "location");
            cJSON_AddStringToObject(location, "uri", document->uri);
            cJSON_AddItemToObject(location, "range", range_json(&document->text, note->also[i]));
            cJSON_AddStringToObject(place, "message", note->label ? note->label : "this");
            cJSON_AddItemToArray(related, place);
        }
    if (cJSON_GetArraySize(related))
        cJSON_AddItemToObject(diagnostic, "relatedInformation", related);
    else
        cJSON_Delete(related);
}

/* The message, its label, and on a line of its own the remedy. */
static const char *note_text(Arena *arena, const Note *note)
{
    const char *label = note->label ? arena_text(arena, " (%s)", note->label) : "";
    const char *help = note->help ? arena_text(arena, "\nhelp: %s", note->help) : "";
    return arena_text(arena, "%s%s%s", note->message, label, help);
}

cJSON *note_json(Arena *arena, const Document *document, const Note *note)
{
    cJSON *diagnostic = cJSON_CreateObject();
    Loc at = note->at;
    if (at.end <= at.begin)
        at.end = at.begin + 1;
    cJSON_AddItemToObject(diagnostic, "range", range_json(&document->text, at));
    cJSON_AddNumberToObject(diagnostic, "severity", note->is_error ? 1 : 2);
    cJSON_AddStringToObject(diagnostic, "source", "mpc");
    cJSON_AddStringToObject(diagnostic, "message", note_text(arena, note));
    add_related(document, diagnostic, note);
    return diagnostic;
}

void publish_notes(const Server *server)
{
    for (Document *document = server->documents; document; document = document->next) {
        if (document->is_published)
            continue;
        Arena arena = { 0 };
        cJSON *list = cJSON_CreateArray();
        for (const Note *note = analysis_of(server, document)->notes; note; note = note->next)
            cJSON_AddItemToArray(list, note_json(&arena, document, note));
        publish(document, list);
        document->is_published = true;
        arena_free(&arena);
    }
}
