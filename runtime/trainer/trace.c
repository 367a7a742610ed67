/* trace.c -- records begin and end of each kernel while tracing, and writes them in the Trace Event Format
 * (chrome://tracing, ui.perfetto.dev). */
#include "trace.h"

#include "device.h"
#include "store/output.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

enum { STEP = -1, MAX_DEPTH = 16, MAX_LOOPS = 4 };

typedef struct {
    const char *dim; /* "h.copy": the copies of the repeat at path h; or another one */
    int64_t iteration;
} Iteration;

typedef struct {
    int kernel; /* index of a kernel or, after these, of a collective; STEP: a whole step */
    int64_t step;
    double begin, end;         /* marks of the device; converted to seconds after the step */
    int thread;                /* 1: collectives */
    Iteration loop[MAX_LOOPS]; /* of the enclosing loops, outermost first */
    int loops;
} Event;

struct RtTrace {
    char *path;
    int64_t first, last; /* the recorded steps */
    int64_t step;        /* the present step */
    Event *events;
    int64_t count, room;
    int64_t first_of_step;
    int64_t open[MAX_DEPTH]; /* unfinished events */
    int depth;
    Iteration loop[MAX_LOOPS];
    int loops;
};

bool rt_tracing;

static Event *add(struct RtTrace *trace, int kernel)
{
    if (trace->count == trace->room) {
        trace->room = trace->room ? 2 * trace->room : 4096;
        trace->events = realloc(trace->events, (size_t)trace->room * sizeof *trace->events);
        if (!trace->events)
            rt_fail("out of memory: --trace needs more for %lld events; trace fewer steps", (long long)trace->room);
    }
    trace->events[trace->count] = (Event){ .kernel = kernel, .step = trace->step, .loops = trace->loops };
    memcpy(trace->events[trace->count].loop, trace->loop, sizeof trace->loop);
    return &trace->events[trace->count++];
}

static void begin(Rt *rt, int kernel)
{
    struct RtTrace *trace = rt->trace;
    assert(trace->depth < MAX_DEPTH);
    trace->open[trace->depth++] = trace->count;
    double now = rt_mark(rt);
    add(trace, kernel)->begin = now;
}

static void end(Rt *rt, int kernel)
{
    struct RtTrace *trace = rt->trace;
    double now = rt_mark(rt);
    assert(trace->depth > 0);
    Event *event = &trace->events[trace->open[--trace->depth]];
    assert(event->kernel == kernel);
    event->end = now;
}

void rt_trace_span(Rt *rt, int kernel, int thread, double begin, double end)
{
    Event *event = add(rt->trace, kernel);
    event->begin = begin;
    event->end = end;
    event->thread = thread;
}

/* Loops nested deeper than MAX_LOOPS are not recorded. */
void rt_trace_iteration(Rt *rt, const char *dim, int64_t iteration)
{
    struct RtTrace *trace = rt->trace;
    int i = 0;
    while (i < trace->loops && strcmp(trace->loop[i].dim, dim))
        i++;
    if (i == MAX_LOOPS)
        return;
    trace->loop[i] = (Iteration){ dim, iteration };
    trace->loops = iteration < 0 ? i : i + 1;
}

void rt_trace_begin(Rt *rt, int kernel) { begin(rt, kernel); }
void rt_trace_end(Rt *rt, int kernel) { end(rt, kernel); }

/* --- Writing -------------------------------------------------------------------------------- */

static cJSON *arguments_of(const RtKernel *kernel, double seconds)
{
    cJSON *arguments = cJSON_CreateObject();
    cJSON_AddStringToObject(arguments, "where", kernel->where ? kernel->where : "");
    if (kernel->flops > 0 && seconds > 0)
        cJSON_AddNumberToObject(arguments, "gflops_per_s", kernel->flops / seconds * 1e-9);
    if (kernel->bytes > 0 && seconds > 0)
        cJSON_AddNumberToObject(arguments, "gbytes_per_s", kernel->bytes / seconds * 1e-9);
    return arguments;
}

static const RtKernel *collective_as_kernel(const RtProgram *program, const Event *event, RtKernel *result)
{
    const RtCollective *c = &program->collectives[event->kernel - program->nkernels];
    *result = (RtKernel){ .name = c->name, .where = c->where, .kind = event->thread ? "collective" : "wait" };
    return result;
}

/* Length of the path of the repeat that the dim belongs to: 1 for "h.copy", "h.copy.2"; 0: not a copy dim. */
static size_t path_of_copies(const char *dim)
{
    const char *copy = strstr(dim, ".copy");
    return copy && (!copy[strlen(".copy")] || copy[strlen(".copy")] == '.') ? (size_t)(copy - dim) : 0;
}

/* "h.attn.q" in the third copy of h: "h.2.attn.q".  Owned by the caller. */
static char *name_in_turn(const char *name, const Event *event)
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

static void add_iterations(cJSON *arguments, const Event *event)
{
    for (int i = 0; i < event->loops; i++)
        cJSON_AddNumberToObject(arguments, event->loop[i].dim, (double)event->loop[i].iteration);
}

/* A complete event ("ph": "X"): times in microseconds since the first event. */
static char *event_text(const RtProgram *program, const Event *event, double origin, int rank)
{
    RtKernel message;
    const RtKernel *kernel = event->kernel == STEP               ? NULL
                             : event->kernel < program->nkernels ? &program->kernels[event->kernel]
                                                                 : collective_as_kernel(program, event, &message);
    char *name = kernel ? name_in_turn(kernel->name, event) : rt_text("step %lld", (long long)event->step);
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "name", name);
    cJSON_AddStringToObject(json, "cat", kernel ? kernel->kind : "step");
    cJSON_AddStringToObject(json, "ph", "X");
    cJSON_AddNumberToObject(json, "ts", 1e6 * (event->begin - origin));
    cJSON_AddNumberToObject(json, "dur", 1e6 * (event->end - event->begin));
    cJSON_AddNumberToObject(json, "pid", rank);
    cJSON_AddNumberToObject(json, "tid", event->thread);
    if (kernel) {
        cJSON *arguments = arguments_of(kernel, event->end - event->begin);
        cJSON_AddStringToObject(arguments, "kernel", kernel->name); /* equal in all copies */
        add_iterations(arguments, event);
        cJSON_AddItemToObject(json, "args", arguments);
    }
    char *text = cJSON_PrintUnformatted(json);
    if (!text)
        rt_fail("out of memory: --trace cannot be written");
    cJSON_Delete(json);
    free(name);
    return text;
}

static void write_text(RtOutput *output, const char *text) { rt_output_write(output, text, (int64_t)strlen(text)); }

static void write_trace(const Rt *rt, const struct RtTrace *trace)
{
    RtOutput output = rt_output_open(trace->path, "--trace");
    write_text(&output, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
    for (int64_t i = 0; i < trace->count; i++) {
        char *text = event_text(rt->program, &trace->events[i], trace->events[0].begin, rt->rank);
        write_text(&output, text);
        write_text(&output, i + 1 < trace->count ? ",\n" : "\n");
        cJSON_free(text);
    }
    write_text(&output, "]}\n");
    rt_output_commit(&output);
}

/* --- Steps ---------------------------------------------------------------------------------- */

char *rt_trace_path(const char *path, int rank)
{
    const char *name = strrchr(path, '/'), *dot = strrchr(name ? name : path, '.');
    int length = dot && dot > path ? (int)(dot - path) : (int)strlen(path);
    return rank ? rt_text("%.*s.rank%d%s", length, path, rank, path + length) : rt_text("%s", path);
}

void rt_trace_open(Rt *rt, const char *option, int64_t first, int64_t steps)
{
    char *path = rt_trace_path(option, rt->rank);
    rt_output_check(path, "--trace");
    rt->trace = rt_allocate(1, sizeof *rt->trace);
    *rt->trace = (struct RtTrace){ .path = path, .first = first, .last = first + steps - 1 };
}

static void end_step(Rt *rt)
{
    struct RtTrace *trace = rt->trace;
    if (trace->depth > 0)
        end(rt, STEP);
    for (Event *event = trace->events + trace->first_of_step; event < trace->events + trace->count; event++) {
        event->begin = rt_time_of_mark(rt, event->begin);
        event->end = rt_time_of_mark(rt, event->end);
    }
    trace->first_of_step = trace->count;
    rt_tracing = false;
}

void rt_trace_step(Rt *rt, int64_t step)
{
    struct RtTrace *trace = rt->trace;
    if (!trace)
        return;
    end_step(rt);
    trace->step = step;
    if (step > trace->last) {
        rt_trace_close(rt);
    } else if (step >= trace->first) {
        begin(rt, STEP);
        rt_tracing = true;
    }
}

void rt_trace_close(Rt *rt)
{
    struct RtTrace *trace = rt->trace;
    if (!trace)
        return;
    end_step(rt);
    write_trace(rt, trace);
    rt_note("trace of %lld events written to %s", (long long)trace->count, trace->path);
    free(trace->events);
    free(trace->path);
    free(trace);
    rt->trace = NULL;
}
