/* trace_write.c -- writes a trace in the Trace Event Format (chrome://tracing, ui.perfetto.dev).
 *
 * One event a line: `mpc trace merge` reads the file line by line.  Times are microseconds since a moment that the
 * ranks of a run have in common. */
#include "trace_parts.h"

#include "mesh/comm.h"
#include "mesh/workspace.h"
#include "store/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

/* --- Arguments ------------------------------------------------------------------------------ */

static void add_rates(cJSON *arguments, const RtKernel *kernel, double seconds)
{
    if (kernel->flops > 0 && seconds > 0)
        cJSON_AddNumberToObject(arguments, "gflops_per_s", kernel->flops / seconds * 1e-9);
    if (kernel->bytes > 0 && seconds > 0)
        cJSON_AddNumberToObject(arguments, "gbytes_per_s", kernel->bytes / seconds * 1e-9);
}

static void add_place(cJSON *arguments, const RtTraceEvent *event)
{
    for (int i = 0; i < event->loops; i++)
        cJSON_AddNumberToObject(arguments, event->loop[i].dim, (double)event->loop[i].iteration);
    if (!event->action)
        return;
    cJSON_AddNumberToObject(arguments, "stage", event->stage);
    cJSON_AddStringToObject(arguments, "action", (char[]){ event->action, '\0' });
}

static void add_message(cJSON *arguments, const Rt *rt, const RtTraceMessage *message)
{
    const int id = message->event.kernel - rt->program->nkernels;
    cJSON_AddNumberToObject(arguments, "step", (double)message->event.step);
    cJSON_AddNumberToObject(arguments, "collective", id);
    cJSON_AddNumberToObject(arguments, "from", message->sends ? rt->rank : message->other);
    cJSON_AddNumberToObject(arguments, "to", message->sends ? message->other : rt->rank);
    cJSON_AddNumberToObject(arguments, "bytes", (double)rt_message_bytes(&rt->program->collectives[id]));
    cJSON_AddNumberToObject(arguments, "waited_us", (message->waited[1] - message->waited[0]) / 1e3);
}

/* --- Names ---------------------------------------------------------------------------------- */

/* Length of the path of the repeat that the dim belongs to: 1 for "h.copy", "h.copy.2"; 0: not a copy dim. */
static size_t path_of_copies(const char *dim)
{
    const char *copy = strstr(dim, ".copy");
    return copy && (!copy[strlen(".copy")] || copy[strlen(".copy")] == '.') ? (size_t)(copy - dim) : 0;
}

/* "h.attn.q" in the third copy of h: "h.2.attn.q".  Owned by the caller. */
static char *name_in_turn(const char *name, const RtTraceEvent *event)
{
    char *text = rt_text("%s", "");
    for (size_t at = 0; name[at]; at++) {
        rt_append(&text, "%c", name[at]);
        for (int i = 0; i < event->loops; i++)
            if (path_of_copies(event->loop[i].dim) == at + 1 && !strncmp(name, event->loop[i].dim, at + 1) &&
                (name[at + 1] == '.' || !name[at + 1]))
                rt_append(&text, ".%lld", (long long)event->loop[i].iteration);
    }
    return text;
}

/* "F3": the fourth micro-batch; "R", the reductions of a stage, is of all. */
static char *action_name(const RtTraceEvent *event)
{
    long long micro = 0;
    if (event->action == 'R')
        return rt_text("R");
    for (int i = 0; i < event->loops; i++)
        if (!strcmp(event->loop[i].dim, "micro"))
            micro = event->loop[i].iteration;
    return rt_text("%c%lld", event->action, micro);
}

/* "send F3 to stage 1"; without actions "send h to rank 1". */
static char *message_name(const RtTraceMessage *message, const char *collective)
{
    const RtTraceEvent *event = &message->event;
    const char *verb = message->sends ? "send" : "receive", *preposition = message->sends ? "to" : "from";
    if (!event->action)
        return rt_text("%s %s %s rank %d", verb, collective, preposition, message->other);
    char *action = action_name(event);
    char *text = rt_text("%s %s %s stage %d", verb, action, preposition,
                         event->stage + ((event->action == 'F') == message->sends ? 1 : -1));
    free(action);
    return text;
}

/* --- Events --------------------------------------------------------------------------------- */

static void write_text(RtOutput *output, const char *text) { rt_output_write(output, text, (int64_t)strlen(text)); }

/* Writes an object, and deletes it. */
static void write_json(RtOutput *output, cJSON *json)
{
    char *text = cJSON_PrintUnformatted(json);
    if (!text)
        rt_fail("out of memory: --trace cannot be written");
    write_text(output, text);
    cJSON_free(text);
    cJSON_Delete(json);
}

/* On a line of its own, after another event. */
static void write_line(RtOutput *output, cJSON *json)
{
    write_text(output, ",\n");
    write_json(output, json);
}

/* A complete event ("ph": "X"), without arguments.  The name is freed. */
static cJSON *event_json(const Rt *rt, const RtTraceEvent *event, char *name, const char *category)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "name", name);
    cJSON_AddStringToObject(json, "cat", category);
    cJSON_AddStringToObject(json, "ph", "X");
    cJSON_AddNumberToObject(json, "ts", event->begin / 1e3);
    cJSON_AddNumberToObject(json, "dur", (event->end - event->begin) / 1e3);
    cJSON_AddNumberToObject(json, "pid", rt->rank);
    cJSON_AddNumberToObject(json, "tid", event->row);
    free(name);
    return json;
}

/* The kernel of an event; or what the event has of one, if it is of a collective. */
static RtKernel kernel_of(const Rt *rt, const RtTraceEvent *event)
{
    const RtProgram *program = rt->program;
    if (event->kernel < program->nkernels)
        return program->kernels[event->kernel];
    const RtCollective *c = &program->collectives[event->kernel - program->nkernels];
    const char *kind = event->row == RT_COLLECTIVE_ROW ? "collective"
                       : event->row >= RT_MESSAGE_ROW  ? "message"
                                                       : "wait";
    return (RtKernel){ .name = c->name, .where = c->where, .kind = kind };
}

static cJSON *kernel_json(const Rt *rt, const RtTraceEvent *event)
{
    const RtKernel kernel = kernel_of(rt, event);
    cJSON *json = event_json(rt, event, name_in_turn(kernel.name, event), kernel.kind);
    cJSON *arguments = cJSON_AddObjectToObject(json, "args");
    cJSON_AddStringToObject(arguments, "where", kernel.where ? kernel.where : "");
    add_rates(arguments, &kernel, 1e-9 * (event->end - event->begin));
    cJSON_AddStringToObject(arguments, "kernel", kernel.name); /* equal in all copies */
    add_place(arguments, event);
    return json;
}

static cJSON *message_json(const Rt *rt, const RtTraceMessage *message)
{
    cJSON *json = kernel_json(rt, &message->event);
    char *name = message_name(message, cJSON_GetObjectItem(json, "name")->valuestring);
    cJSON_ReplaceItemInObject(json, "name", cJSON_CreateString(name));
    add_message(cJSON_GetObjectItem(json, "args"), rt, message);
    free(name);
    return json;
}

static cJSON *any_json(const Rt *rt, const RtTraceEvent *event)
{
    if (event->kernel == RT_TRACED_STEP)
        return event_json(rt, event, rt_text("step %lld", (long long)event->step), "step");
    if (event->kernel != RT_TRACED_ACTION)
        return kernel_json(rt, event);
    cJSON *json = event_json(rt, event, action_name(event), "action");
    add_place(cJSON_AddObjectToObject(json, "args"), event);
    return json;
}

/* --- The file ------------------------------------------------------------------------------- */

/* A metadata event ("ph": "M"): a name, or a position in the order. */
static cJSON *metadata_json(const Rt *rt, int row, const char *kind, const char *key, cJSON *value)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "name", kind);
    cJSON_AddStringToObject(json, "cat", "__metadata");
    cJSON_AddStringToObject(json, "ph", "M");
    cJSON_AddNumberToObject(json, "pid", rt->rank);
    cJSON_AddNumberToObject(json, "tid", row);
    cJSON_AddItemToObject(cJSON_AddObjectToObject(json, "args"), key, value);
    return json;
}

static void write_row(RtOutput *output, const Rt *rt, int row, const char *name, int order)
{
    write_line(output, metadata_json(rt, row, "thread_name", "name", cJSON_CreateString(name)));
    write_line(output, metadata_json(rt, row, "thread_sort_index", "sort_index", cJSON_CreateNumber(order)));
}

static void write_rows(RtOutput *output, const Rt *rt, const struct RtTrace *trace)
{
    static const char *const names[RT_MESSAGE_ROW] = { "computation", "collectives", "pipeline" };
    static const int order[RT_MESSAGE_ROW] = { 1, RT_TRACE_ROWS, 0 };
    bool is_used[RT_TRACE_ROWS] = { false };
    for (int64_t i = 0; i < trace->count; i++)
        is_used[trace->events[i].row] = true;
    for (int64_t i = 0; i < trace->nmessages; i++)
        is_used[trace->messages[i]->event.row] = true;
    for (int row = 0; row < RT_TRACE_ROWS; row++)
        if (is_used[row] && row < RT_MESSAGE_ROW)
            write_row(output, rt, row, names[row], order[row]);
        else if (is_used[row])
            write_row(output, rt, row, "messages", row - RT_MESSAGE_ROW + 2);
}

/* The first line says what the file is. */
static void write_head(RtOutput *output, const Rt *rt, const struct RtTrace *trace, const char *place)
{
    char run[17];
    snprintf(run, sizeof run, "%016llx", (unsigned long long)trace->run);
    cJSON *facts = cJSON_CreateObject();
    cJSON_AddStringToObject(facts, "format", "mpc trace 1");
    cJSON_AddStringToObject(facts, "model", rt->program->name);
    cJSON_AddStringToObject(facts, "run", run);
    cJSON_AddNumberToObject(facts, "rank", rt->rank);
    cJSON_AddNumberToObject(facts, "ranks", rt->ranks);
    cJSON_AddStringToObject(facts, "place", place);
    write_text(output, "{\"displayTimeUnit\": \"ms\", \"otherData\": ");
    write_json(output, facts);
    write_text(output, ", \"traceEvents\": [\n");
}

void rt_trace_write(const Rt *rt, const struct RtTrace *trace)
{
    char *place = rt_comm_place(rt, rt->rank);
    RtOutput output = rt_output_open(trace->path, "--trace");
    write_head(&output, rt, trace, place);
    write_json(&output, metadata_json(rt, 0, "process_name", "name", cJSON_CreateString(place)));
    write_line(&output, metadata_json(rt, 0, "process_sort_index", "sort_index", cJSON_CreateNumber(rt->rank)));
    write_rows(&output, rt, trace);
    for (int64_t i = 0; i < trace->count; i++)
        write_line(&output, any_json(rt, &trace->events[i]));
    for (int64_t i = 0; i < trace->nmessages; i++)
        write_line(&output, message_json(rt, trace->messages[i]));
    write_text(&output, "\n]}\n");
    rt_output_commit(&output);
    free(place);
}
