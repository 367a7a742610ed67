/* layout.c -- compiles a model for its mesh, and reads off splits and messages.
 *
 * That is done by a copy of the server that ends with it, and sends what it has found as JSON: a program that compiles
 * for long is given up, and nothing of it stays in the server.
 */
#include "layout.h"

#include "amount.h"
#include "manager/pass.h"
#include "stages.h"

#include "cost/cost.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_SECONDS = 20 }; /* of a processor */

/* --- In the copy: the program ------------------------------------------------------------------- */

typedef struct {
    Module *m;
    cJSON *list;
    Map forward;     /* ops of the forward pass */
    Map of_path;     /* a path -> Found */
    Classes classes; /* of the final program */
    Arena *arena;
} Search;

/* The last op of a path, in the first function that has one: the value of that name. */
typedef struct {
    const Func *func;
    const Op *op;
    cJSON *entry;
} Found;

static void describe_tensor(Search *s, cJSON *entry, const char *path, const Type *type)
{
    cJSON_AddStringToObject(entry, "path", path);
    cJSON_AddStringToObject(entry, "type", type_text(s->m, type));
    cJSON_AddNumberToObject(entry, "bytes", (double)local_bytes(s->m, type));
}

static void find_value(void *context, const Func *f, const Op *op, double times)
{
    Search *s = context;
    if (!op->path || !op->results.count || !map_get(&s->forward, op))
        return;
    Found *found = map_get(&s->of_path, op->path);
    if (!found) {
        found = NEW(s->arena, Found);
        *found = (Found){ .func = f, .op = op, .entry = cJSON_CreateObject() };
        map_put(&s->of_path, op->path, found);
        cJSON_AddItemToArray(s->list, found->entry);
    } else if (found->func == f) {
        found->op = op;
        cJSON *anew = cJSON_CreateObject();
        cJSON_ReplaceItemViaPointer(s->list, found->entry, anew);
        found->entry = anew;
    } else {
        return;
    }
    describe_tensor(s, found->entry, op->path, &result(op)->type);
}

/* Types once collectives are chosen, and before kernels hide values. */
static cJSON *list_tensors(Module *m, Arena *arena)
{
    Search s = { .m = m, .list = cJSON_CreateArray(), .forward.arena = arena, .of_path.arena = arena, .arena = arena };
    const Func *step = func_with_role(m, STEP);
    for (const Param *param = m->params; param; param = param->next) {
        cJSON *entry = cJSON_CreateObject();
        describe_tensor(&s, entry, param->path, &param->type);
        cJSON_AddItemToArray(s.list, entry);
    }
    mark_forward(m, &s.forward, result_for(step, PORT_LOSS));
    visit_program(m, step, find_value, &s);
    return s.list;
}

/* Messages of a parameter and its gradient are its declaration's. */
static int line_that_causes(const Search *s, const Op *op)
{
    const Param *behind = param_behind(&s->classes, result(op)),
                *param = behind ? behind : param_behind(&s->classes, arg(op, 0));
    const char *where = param ? param->where : op->where, *colon = where ? strchr(where, ':') : NULL;
    return colon ? atoi(colon + 1) : 0;
}

static void add_caused(Search *s, const Op *op, const char *name, Axes axes, double messages, double bytes)
{
    const int line = line_that_causes(s, op);
    if (bytes <= 0)
        return;
    cJSON *entry = cJSON_CreateObject();
    const char *list = "";
    for (int i = 0; i < s->m->naxes; i++)
        if (axes >> i & 1)
            list = arena_text(s->arena, "%s%s%s", list, *list ? "+" : "", s->m->axis[i]);
    cJSON_AddNumberToObject(entry, "line", line);
    cJSON_AddStringToObject(entry, "name", name);
    cJSON_AddStringToObject(entry, "axes", list);
    cJSON_AddNumberToObject(entry, "messages", messages);
    cJSON_AddNumberToObject(entry, "bytes", bytes);
    cJSON_AddItemToArray(s->list, entry);
}

/* As mpc report counts it. */
static void find_caused(void *context, const Func *f, const Op *op, double times)
{
    Search *s = context;
    if (info(op)->traits & SENDS)
        add_caused(s, op, info(op)->name, info(op)->traits & MOVES ? 1u << result(op)->type.on.axis : op->attrs.axis,
                   joins_message(op) ? 0 : times, op_traffic(s->m, op).sent * times);
    if (!runs_in_stages(op))
        return;
    const int stages = __builtin_popcountll(stages_passed(s->m, op).at);
    for (int i = 0; i < op->attrs.carried && stages > 1; i++) {
        const double share = (stages - 1) / (double)stages * times;
        add_caused(s, op, "send", 1u << op->attrs.dims.dim[0].split.axis[0], share,
                   (double)local_bytes(s->m, &op->results.at[i]->type) * share);
    }
}

static cJSON *list_caused(Module *m, Arena *arena)
{
    Search s = { .m = m, .list = cJSON_CreateArray(), .classes = classify_tensors(m), .arena = arena };
    visit_program(m, func_with_role(m, STEP), find_caused, &s);
    return s.list;
}

static cJSON *compile_and_list(Run *run)
{
    static const char chosen[] = "collectives";
    Module *m = lower_source(run, 0, NULL);
    if (!m)
        return NULL;
    cJSON *found = cJSON_CreateObject();
    const int64_t ranks = count_ranks(m, ~0u);
    cJSON_AddNumberToObject(found, "ranks", (double)ranks);
    if (ranks > 1 && run_passes(m, &(PassOptions){ .stop_after = chosen })) {
        cJSON_AddItemToObject(found, "tensors", list_tensors(m, &run->arena));
        if (run_passes(m, &(PassOptions){ .start_after = chosen }))
            cJSON_AddItemToObject(found, "caused", list_caused(m, &run->arena));
    }
    return found;
}

static void hear_nothing(void *context, Where where, bool is_error, const char *message) {}

static _Noreturn void send_layout(const Analysis *analysis, int file)
{
    const struct rlimit limit = { MOST_SECONDS, MOST_SECONDS };
    Run run = { .options = analysis->run.options, .source = analysis->run.source };
    FILE *to = fdopen(file, "w");
    char *unread = NULL;
    size_t length;
    run.diags = (Diags){
        .arena = &run.arena, .source = &run.source, .out = open_memory(&unread, &length), .listen = hear_nothing
    };
    setrlimit(RLIMIT_CPU, &limit);
    cJSON *found = compile_and_list(&run);
    char *text = found ? cJSON_PrintUnformatted(found) : NULL;
    if (to && text) {
        fputs(text, to);
        fflush(to);
    }
    _exit(0); /* nothing of the server's is written twice */
}

/* --- In the server ------------------------------------------------------------------------------ */

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
static Caused *caused_like(Arena *arena, Layout *layout, int line, const char *name, const char *axes)
{
    Caused **at = &layout->caused;
    while (*at && ((*at)->line != line || strcmp((*at)->name, name) != 0 || strcmp((*at)->axes, axes) != 0))
        at = &(*at)->next;
    if (!*at) {
        *at = NEW(arena, Caused);
        **at = (Caused){ .line = line, .name = name, .axes = axes };
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
    layout->ranks = number_in(found, "ranks");
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
        Caused *caused = caused_like(arena, layout, line > 0 ? line : otherwise, string_in(arena, entry, "name"),
                                     string_in(arena, entry, "axes"));
        caused->messages += number_in(entry, "messages");
        caused->bytes += number_in(entry, "bytes");
    }
    return layout;
}

/* All that the copy writes until it ends; NULL: nothing. */
static cJSON *read_found(int file)
{
    char *text = NULL, part[65536];
    size_t size;
    ssize_t got;
    FILE *all = open_memory(&text, &size);
    while ((got = read(file, part, sizeof part)) > 0)
        fwrite(part, 1, (size_t)got, all);
    fclose(all);
    cJSON *found = cJSON_ParseWithLength(text, size);
    free(text);
    return found;
}

const Layout *find_layout(const Analysis *analysis, Arena *arena)
{
    int ends[2];
    if (pipe(ends) != 0)
        return NULL;
    fflush(NULL);
    const pid_t copy = fork();
    if (copy == 0) {
        close(ends[0]);
        send_layout(analysis, ends[1]);
    }
    close(ends[1]);
    cJSON *found = copy > 0 ? read_found(ends[0]) : NULL;
    close(ends[0]);
    if (copy > 0)
        waitpid(copy, NULL, 0);
    const Layout *layout = found ? layout_found(analysis, found, arena) : NULL;
    cJSON_Delete(found);
    return layout;
}

const SplitTensor *split_of(const Layout *layout, const char *path)
{
    const SplitTensor *tensor = layout ? layout->tensors : NULL;
    while (tensor && strcmp(tensor->path, path) != 0)
        tensor = tensor->next;
    return tensor;
}

const Layout *layout_of(Document *document)
{
    Analysis *a = document->analysis;
    if (!a->has_layout && a->facts.is_complete)
        a->layout = find_layout(a, &a->arena);
    a->has_layout = true;
    return a->layout;
}
