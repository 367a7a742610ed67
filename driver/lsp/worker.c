/* worker.c -- compiles layouts in a copy of the server, which goes on answering meanwhile.
 *
 * The copy ends with what it has found, as JSON in a pipe: a program that compiles for long is given up, and nothing of
 * it stays in the server.  There is one at a time, of the text that was asked about last.
 */
#include "layout.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_SECONDS = 60, WAIT_MS = 500 }; /* of a processor; until an answer goes without the layout */

/* --- The copy ----------------------------------------------------------------------------------- */

static _Noreturn void send_layout(const Analysis *analysis, int file)
{
    const struct rlimit limit = { MOST_SECONDS, MOST_SECONDS };
    Run run = { .options = analysis->run.options, .source = analysis->run.source };
    FILE *to = fdopen(file, "w");
    run.diags = (Diags){ .arena = &run.arena, .source = &run.source, .out = open_discarding() };
    setrlimit(RLIMIT_CPU, &limit);
    cJSON *found = list_layout(&run);
    char *text = found ? cJSON_PrintUnformatted(found) : NULL;
    if (to && text) {
        fputs(text, to);
        fflush(to);
    }
    _exit(0); /* nothing of the server's is written twice */
}

/* --- What it has found -------------------------------------------------------------------------- */

static const char *string_in(Arena *arena, const cJSON *object, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    return arena_text(arena, "%s", text ? text : "");
}

static double number_in(const cJSON *object, const char *key)
{
    const cJSON *number = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(number) ? number->valuedouble : 0;
}

/* The messages of that kind, or new ones at the end. */
static LineMessages *caused_like(Arena *arena, Layout *layout, int line, const char *name, const char *axes)
{
    LineMessages **at = &layout->caused;
    while (*at && ((*at)->line != line || strcmp((*at)->name, name) != 0 || strcmp((*at)->axes, axes) != 0))
        at = &(*at)->next;
    if (!*at) {
        *at = NEW(arena, LineMessages);
        **at = (LineMessages){ .line = line, .name = name, .axes = axes };
    }
    return *at;
}

/* What no line causes, as the norm of all gradients, is the layout's. */
static int line_of_layout(const Analysis *analysis)
{
    int line = 0, column;
    for (const Ast *ast = analysis->file; ast; ast = ast->next)
        if (ast->kind == A_MODEL || ast->kind == A_PARALLEL)
            line_and_column(&analysis->run.source, ast->loc.begin, &line, &column);
    return line;
}

static const Layout *layout_found(const Analysis *analysis, const cJSON *found, Arena *arena)
{
    const int otherwise = line_of_layout(analysis);
    const cJSON *entry;
    Layout *layout = NEW(arena, Layout);
    cJSON_ArrayForEach(entry, cJSON_GetObjectItemCaseSensitive(found, "tensors"))
    {
        SplitTensor *tensor = NEW(arena, SplitTensor);
        *tensor = (SplitTensor){ string_in(arena, entry, "path"), string_in(arena, entry, "type"),
                                 number_in(entry, "bytes"), layout->tensors };
        layout->tensors = tensor;
    }
    cJSON_ArrayForEach(entry, cJSON_GetObjectItemCaseSensitive(found, "caused"))
    {
        const int line = (int)number_in(entry, "line");
        LineMessages *caused = caused_like(arena, layout, line > 0 ? line : otherwise, string_in(arena, entry, "name"),
                                           string_in(arena, entry, "axes"));
        caused->messages += number_in(entry, "messages");
        caused->bytes += number_in(entry, "bytes");
    }
    return layout;
}

/* --- The server --------------------------------------------------------------------------------- */

static void forget_worker(Worker *worker)
{
    close(worker->file);
    waitpid(worker->copy, NULL, 0);
    free(worker->text);
    *worker = (Worker){ .file = -1 };
}

void stop_worker(Worker *worker)
{
    if (worker->file < 0)
        return;
    kill(worker->copy, SIGKILL);
    forget_worker(worker);
}

static void start_worker(Worker *worker, Analysis *analysis)
{
    int ends[2];
    stop_worker(worker);
    if (pipe(ends) != 0)
        return;
    fflush(NULL);
    const pid_t copy = fork();
    if (copy == 0) {
        close(ends[0]);
        send_layout(analysis, ends[1]);
    }
    close(ends[1]);
    if (copy > 0)
        *worker = (Worker){ .copy = copy, .file = ends[0], .analysis = analysis };
    else
        close(ends[0]);
}

/* False: the copy has ended. */
static bool read_part(Worker *worker)
{
    enum { PART = 65536 };
    if (worker->length + PART > worker->room) {
        worker->room = 2 * worker->room + PART;
        worker->text = realloc(worker->text, worker->room);
        if (!worker->text)
            out_of_memory(worker->room);
    }
    const ssize_t got = read(worker->file, worker->text + worker->length, PART);
    worker->length += got > 0 ? (size_t)got : 0;
    return got > 0 || (got < 0 && errno == EINTR);
}

/* Asks the editor to ask for hints again. */
static void request_refresh(void)
{
    cJSON *request = cJSON_CreateObject();
    cJSON_AddStringToObject(request, "jsonrpc", "2.0");
    cJSON_AddStringToObject(request, "id", "hints");
    cJSON_AddStringToObject(request, "method", "workspace/inlayHint/refresh");
    write_message(request);
}

void take_layout(Server *server)
{
    Worker *worker = &server->worker;
    if (read_part(worker))
        return;
    Analysis *analysis = worker->analysis;
    cJSON *found = cJSON_ParseWithLength(worker->text, worker->length);
    analysis->layout = found ? layout_found(analysis, found, &analysis->arena) : NULL;
    analysis->has_layout = true;
    cJSON_Delete(found);
    const bool asks = server->refreshes_hints && worker->is_late;
    forget_worker(worker);
    if (asks)
        request_refresh();
}

const Layout *layout_of(Server *server, const Document *document)
{
    Worker *worker = &server->worker;
    Analysis *analysis = document->analysis;
    if (analysis->ranks <= 1 || !analysis->facts.is_complete)
        return NULL;
    if (!analysis->has_layout && worker->analysis != analysis)
        start_worker(worker, analysis);
    struct pollfd file = { .fd = worker->file, .events = POLLIN };
    while (!analysis->has_layout && worker->file >= 0 && poll(&file, 1, WAIT_MS) > 0)
        take_layout(server);
    worker->is_late = !analysis->has_layout;
    return analysis->layout;
}

const SplitTensor *split_of(const Layout *layout, const char *path)
{
    const SplitTensor *tensor = layout ? layout->tensors : NULL;
    while (tensor && strcmp(tensor->path, path) != 0)
        tensor = tensor->next;
    return tensor;
}
