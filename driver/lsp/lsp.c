/* lsp.c -- mpc lsp: answers an editor's requests about models, over standard input and output. */
#include "layout.h"
#include "mir.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The error codes of JSON-RPC and of the protocol. */
enum {
    PARSE_ERROR = -32700,
    INVALID_REQUEST = -32600,
    METHOD_NOT_FOUND = -32601,
    INVALID_PARAMS = -32602,
    NOT_INITIALIZED = -32002,
    REQUEST_FAILED = -32803
};

static const struct {
    const char *method;
    cJSON *(*answer)(Request *);
    cJSON *(*of_dump)(Request *); /* NULL: there is nothing to be said of a dump */
    bool has_place;               /* it is about a position in the document */
} requests[] = {
    { "textDocument/definition", answer_definition, dump_definition, true },
    { "textDocument/references", answer_references, NULL, true },
    { "textDocument/documentHighlight", answer_highlights, NULL, true },
    { "textDocument/prepareRename", answer_prepare_rename, NULL, true },
    { "textDocument/rename", answer_rename, NULL, true },
    { "textDocument/documentSymbol", answer_symbols, dump_symbols, false },
    { "textDocument/formatting", answer_formatting, NULL, false },
    { "textDocument/hover", answer_hover, dump_hover, true },
    { "textDocument/completion", answer_completion, NULL, true },
    { "textDocument/signatureHelp", answer_signature, NULL, true },
    { "textDocument/semanticTokens/full", answer_tokens, NULL, false },
    { "textDocument/codeAction", answer_actions, NULL, false },
    { "textDocument/inlayHint", answer_hints, NULL, false },
};
enum { NREQUESTS = sizeof requests / sizeof requests[0] };

static const struct {
    const char *method;
    void (*take)(Server *, const cJSON *);
} notifications[] = {
    { "textDocument/didOpen", open_document },
    { "textDocument/didChange", change_document },
    { "textDocument/didClose", close_document },
};
enum { NNOTIFICATIONS = sizeof notifications / sizeof notifications[0] };

/* --- The life of a session ---------------------------------------------------------------------- */

static cJSON *capabilities(void)
{
    static const char text[] = "{\"positionEncoding\": \"utf-16\","
                               "\"textDocumentSync\": {\"openClose\": true, \"change\": 2},"
                               "\"definitionProvider\": true,"
                               "\"referencesProvider\": true,"
                               "\"documentHighlightProvider\": true,"
                               "\"renameProvider\": {\"prepareProvider\": true},"
                               "\"documentSymbolProvider\": true,"
                               "\"documentFormattingProvider\": true,"
                               "\"hoverProvider\": true,"
                               "\"completionProvider\": {\"triggerCharacters\": [\"[\", \"(\"]},"
                               "\"signatureHelpProvider\": {\"triggerCharacters\": [\"(\", \",\"]},"
                               "\"codeActionProvider\": {\"codeActionKinds\": [\"quickfix\"]},"
                               "\"inlayHintProvider\": true,"
                               "\"semanticTokensProvider\": {\"full\": true}}";
    cJSON *all = cJSON_Parse(text);
    cJSON_AddItemToObject(cJSON_GetObjectItemCaseSensitive(all, "semanticTokensProvider"), "legend", token_legend());
    return all;
}

static const cJSON *member_at(const cJSON *object, const char *const keys[], int n)
{
    for (int i = 0; i < n; i++)
        object = cJSON_GetObjectItemCaseSensitive(object, keys[i]);
    return object;
}

static cJSON *initialize(Server *server, const cJSON *params)
{
    static const char *const refresh[] = { "capabilities", "workspace", "inlayHint", "refreshSupport" };
    server->refreshes_hints = cJSON_IsTrue(member_at(params, refresh, 4));
    cJSON *result = cJSON_CreateObject(), *info;
    cJSON_AddItemToObject(result, "capabilities", capabilities());
    info = cJSON_AddObjectToObject(result, "serverInfo");
    cJSON_AddStringToObject(info, "name", "mpc");
    cJSON_AddStringToObject(info, "version", MPC_VERSION);
    server->is_initialized = true;
    return result;
}

/* Initialize, shutdown; false: it is another request. */
static bool answer_life(Server *server, const char *method, const cJSON *params, const cJSON *id)
{
    if (strcmp(method, "initialize") == 0 && server->is_initialized)
        respond_error(id, INVALID_REQUEST, "the session has been initialized already");
    else if (strcmp(method, "initialize") == 0)
        respond(id, initialize(server, params));
    else if (!server->is_initialized)
        respond_error(id, NOT_INITIALIZED, "the first request of a session is 'initialize'");
    else if (server->is_shut_down)
        respond_error(id, INVALID_REQUEST, "the session has been shut down");
    else if (strcmp(method, "shutdown") == 0)
        respond(id, NULL);
    else
        return false;
    server->is_shut_down |= server->is_initialized && strcmp(method, "shutdown") == 0;
    return true;
}

/* --- Requests ----------------------------------------------------------------------------------- */

static bool read_place(Request *r, bool has_place)
{
    const cJSON *document = cJSON_GetObjectItemCaseSensitive(r->params, "textDocument");
    const char *uri = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(document, "uri"));
    r->document = find_document(r->server, uri);
    if (!r->document)
        r->error = "the document is not open";
    else if (has_place &&
             !read_position(&r->document->text, cJSON_GetObjectItemCaseSensitive(r->params, "position"), &r->offset))
        r->error = "the position has no line and character";
    return !r->error;
}

static void answer_request(Server *server, int kind, const cJSON *params, const cJSON *id)
{
    Arena arena = { 0 };
    Request request = { .server = server, .params = params, .arena = &arena };
    if (read_place(&request, requests[kind].has_place)) {
        request.analysis = analysis_of(server, request.document);
        cJSON *(*answer)(Request *) = is_dump(request.document->path) ? requests[kind].of_dump : requests[kind].answer;
        cJSON *result = answer ? answer(&request) : NULL;
        if (request.error)
            respond_error(id, REQUEST_FAILED, request.error);
        else
            respond(id, result);
    } else {
        respond_error(id, INVALID_PARAMS, request.error);
    }
    arena_free(&arena);
}

static void take_request(Server *server, const char *method, const cJSON *params, const cJSON *id)
{
    if (answer_life(server, method, params, id))
        return;
    for (int i = 0; i < NREQUESTS; i++)
        if (strcmp(requests[i].method, method) == 0) {
            answer_request(server, i, params, id);
            return;
        }
    respond_error(id, METHOD_NOT_FOUND, "mpc lsp does not have this method");
}

static void take_notification(Server *server, const char *method, const cJSON *params)
{
    for (int i = 0; i < NNOTIFICATIONS && server->is_initialized; i++)
        if (strcmp(notifications[i].method, method) == 0)
            notifications[i].take(server, params);
}

/* --- The command -------------------------------------------------------------------------------- */

/* False: the session ends. */
static bool take_message(Server *server, const cJSON *message)
{
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(message, "id");
    const cJSON *params = cJSON_GetObjectItemCaseSensitive(message, "params");
    const char *method = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(message, "method"));
    const bool has_id = cJSON_IsString(id) || cJSON_IsNumber(id);
    const bool is_response =
        has_id && !method && (cJSON_HasObjectItem(message, "result") || cJSON_HasObjectItem(message, "error"));
    if (!method && !is_response)
        respond_error(has_id ? id : NULL, INVALID_REQUEST, "this message is neither a request nor a notification");
    else if (method && has_id)
        take_request(server, method, params, id);
    else if (method && strcmp(method, "exit") == 0)
        return false;
    else if (method)
        take_notification(server, method, params);
    return true;
}

/* False: nothing more can be read. */
static bool read_and_take(Server *server, Stream *stream)
{
    cJSON *message;
    bool goes_on = true;
    switch (read_message(stream, &message)) {
    case READ_MESSAGE:
        goes_on = take_message(server, message);
        break;
    case READ_BAD_HEAD:
        respond_error(NULL, PARSE_ERROR, "a message begins with 'Content-Length: N' and an empty line");
        break;
    case READ_BAD_JSON:
        respond_error(NULL, PARSE_ERROR, "this message is not JSON, or nested more than 1,000 deep");
        break;
    case READ_TOO_LONG:
        respond_error(NULL, PARSE_ERROR, "this message is longer than 256 MB");
        goes_on = false;
        break;
    case READ_END:
        goes_on = false;
    }
    cJSON_Delete(message);
    return goes_on;
}

static void take_layout_of(void *context) { take_layout(context); }

int run_lsp(Run *run)
{
    if (run->options->operand)
        return usage_error(run->options->command, "it takes no file: the editor names them");
    Server server = { .options = run->options, .worker.file = -1 };
    Stream stream = { .file = STDIN_FILENO, .also = &server.worker.file, .ready = take_layout_of, .context = &server };
    while (read_and_take(&server, &stream))
        if (!has_input(&stream)) /* while one types, only the last text counts */
            publish_notes(&server);
    free_documents(&server);
    free(stream.bytes);
    return server.is_shut_down ? STATUS_OK : STATUS_FAILED;
}
