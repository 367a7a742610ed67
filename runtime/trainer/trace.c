/* trace.c -- records begin and end of each kernel while tracing, of the actions of a pipeline, and of messages. */
#include "trace_parts.h"

#include "device.h"
#include "mesh/comm.h"
#include "store/output.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <unistd.h>

bool rt_tracing;

/* --- Events --------------------------------------------------------------------------------- */

static void *grown(void *array, int64_t *room, size_t size)
{
    *room = *room ? 2 * *room : 4096;
    array = realloc(array, (size_t)*room * size);
    if (!array)
        rt_fail("out of memory: --trace needs more for %lld events; trace fewer steps", (long long)*room);
    return array;
}

static RtTraceEvent *add(struct RtTrace *trace, int kernel, int row)
{
    if (trace->count == trace->room)
        trace->events = grown(trace->events, &trace->room, sizeof *trace->events);
    RtTraceEvent *event = &trace->events[trace->count++];
    *event = trace->now;
    event->kernel = kernel;
    event->row = row;
    return event;
}

void rt_trace_begin(Rt *rt, int kernel)
{
    struct RtTrace *trace = rt->trace;
    assert(trace->depth < (int)(sizeof trace->open / sizeof *trace->open));
    trace->open[trace->depth++] = trace->count;
    double now = rt_mark(rt);
    add(trace, kernel, kernel == RT_TRACED_ACTION ? RT_PIPELINE_ROW : RT_COMPUTATION_ROW)->begin = now;
}

void rt_trace_end(Rt *rt, int kernel)
{
    struct RtTrace *trace = rt->trace;
    double now = rt_mark(rt);
    assert(trace->depth > 0);
    RtTraceEvent *event = &trace->events[trace->open[--trace->depth]];
    assert(event->kernel == kernel);
    event->end = now;
}

void rt_trace_span(Rt *rt, int kernel, bool background, double begin, double end)
{
    RtTraceEvent *event = add(rt->trace, kernel, background ? RT_COLLECTIVE_ROW : RT_COMPUTATION_ROW);
    event->begin = begin;
    event->end = end;
}

/* Loops nested deeper than RT_TRACED_LOOPS are not recorded. */
void rt_trace_iteration(Rt *rt, const char *dim, int64_t iteration)
{
    RtTraceEvent *now = &rt->trace->now;
    int i = 0;
    while (i < now->loops && strcmp(now->loop[i].dim, dim))
        i++;
    if (i == RT_TRACED_LOOPS)
        return;
    now->loop[i] = (RtTraceIteration){ dim, iteration };
    now->loops = iteration < 0 ? i : i + 1;
}

/* --- Pipelines ------------------------------------------------------------------------------ */

void rt_trace_action(Rt *rt, int stage, char action, int64_t micro)
{
    if (!rt_tracing)
        return;
    rt->trace->now.stage = stage;
    rt->trace->now.action = action;
    rt_trace_iteration(rt, "micro", micro);
}

double *rt_trace_message(Rt *rt, int id, int64_t number, int other, bool sends)
{
    struct RtTrace *trace = rt->trace;
    if (trace->nmessages == trace->message_room)
        trace->messages = grown(trace->messages, &trace->message_room, sizeof *trace->messages);
    RtTraceMessage *message = rt_allocate(1, sizeof *message);
    *message = (RtTraceMessage){ .event = trace->now, .number = number, .sends = sends };
    message->event.kernel = rt->program->nkernels + id;
    message->event.row = RT_MESSAGE_ROW;
    message->other = rt_comm_group(rt, &rt->program->collectives[id])->rank[other];
    trace->messages[trace->nmessages++] = message;
    return message->time;
}

void rt_trace_message_wait(Rt *rt, int id, int64_t number, double begin, double end)
{
    struct RtTrace *trace = rt->trace;
    const int kernel = rt->program->nkernels + id;
    rt_trace_span(rt, kernel, false, begin, end);
    for (int64_t i = trace->nmessages - 1; i >= 0; i--) {
        RtTraceMessage *message = trace->messages[i];
        if (message->event.kernel != kernel || message->number != number)
            continue;
        message->waited[0] = begin;
        message->waited[1] = end;
        return;
    }
}

/* --- Start ---------------------------------------------------------------------------------- */

char *rt_trace_path(const char *path, int rank)
{
    const char *name = strrchr(path, '/'), *dot = strrchr(name ? name : path, '.');
    int length = dot && dot > path ? (int)(dot - path) : (int)strlen(path);
    return rank ? rt_text("%.*s.rank%d%s", length, path, rank, path + length) : rt_text("%s", path);
}

/* What rank 0 tells the others: its time, and a number of its own. */
typedef struct {
    double now;
    uint64_t run;
} Meeting;

static void meet(Rt *rt, struct RtTrace *trace)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t date = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    const Meeting own = { .now = rt_seconds(), .run = date * 0x9E3779B97F4A7C15u + (uint64_t)getpid() };
    Meeting *all = rt_allocate(rt->ranks, sizeof *all);
    const double ahead = rt_clock_ahead(rt);
    rt_comm_gather(rt, &own, sizeof own, (char *)all);
    trace->run = all[0].run;
    trace->origin = all[0].now + ahead;
    free(all);
}

void rt_trace_open(Rt *rt, const char *option, int64_t first, int64_t steps)
{
    char *path = option ? rt_trace_path(option, rt->rank) : NULL;
    struct RtTrace *trace = rt_allocate(1, sizeof *trace);
    if (path)
        rt_output_check(path, "--trace");
    if (rt_comm_max(rt, path != NULL) > 0)
        meet(rt, trace);
    trace->path = path;
    trace->first = first;
    trace->last = first + steps - 1;
    if (path)
        rt->trace = trace;
    else
        free(trace);
}

/* --- Steps ---------------------------------------------------------------------------------- */

/* From a mark to nanoseconds since the origin. */
static double converted(Rt *rt, double mark) { return rint(1e9 * (rt_time_of_mark(rt, mark) - rt->trace->origin)); }

static void end_message(Rt *rt, RtTraceMessage *message)
{
    message->event.begin = converted(rt, message->time[0]);
    message->event.end = converted(rt, message->time[1]);
    message->waited[0] = converted(rt, message->waited[0]);
    message->waited[1] = converted(rt, message->waited[1]);
}

static bool overlap(const RtTraceEvent *a, const RtTraceEvent *b) { return a->begin < b->end && b->begin < a->end; }

/* Messages from a rank to another arrive one after the other: a receive, which is started ahead, is shown from where
 * the one before has ended.  A send is shown from its start, since its end is noticed late: by then the next one may
 * have arrived.  Those that are under way at once have rows of their own. */
static void place_message(const struct RtTrace *trace, int64_t number)
{
    RtTraceMessage *message = trace->messages[number], **before = &trace->messages[trace->first_message_of_step];
    RtTraceEvent *event = &message->event;
    const int64_t count = number - trace->first_message_of_step;
    for (int64_t i = 0; i < count && !message->sends; i++)
        if (before[i]->other == message->other && !before[i]->sends)
            event->begin = fmin(fmax(event->begin, before[i]->event.end), event->end);
    for (int64_t i = 0; i < count && event->row < RT_TRACE_ROWS - 1;) {
        const bool is_taken = before[i]->event.row == event->row && overlap(&before[i]->event, event);
        event->row += is_taken;
        i = is_taken ? 0 : i + 1;
    }
}

static void end_step(Rt *rt)
{
    struct RtTrace *trace = rt->trace;
    if (trace->depth > 0)
        rt_trace_end(rt, RT_TRACED_STEP);
    for (int64_t i = trace->first_of_step; i < trace->count; i++) {
        trace->events[i].begin = converted(rt, trace->events[i].begin);
        trace->events[i].end = converted(rt, trace->events[i].end);
    }
    for (int64_t i = trace->first_message_of_step; i < trace->nmessages; i++) {
        end_message(rt, trace->messages[i]);
        place_message(trace, i);
    }
    trace->first_of_step = trace->count;
    trace->first_message_of_step = trace->nmessages;
    rt_tracing = false;
}

void rt_trace_step(Rt *rt, int64_t step)
{
    struct RtTrace *trace = rt->trace;
    if (!trace)
        return;
    end_step(rt);
    trace->now = (RtTraceEvent){ .step = step };
    if (step > trace->last) {
        rt_trace_close(rt);
    } else if (step >= trace->first) {
        rt_trace_begin(rt, RT_TRACED_STEP);
        rt_tracing = true;
    }
}

void rt_trace_close(Rt *rt)
{
    struct RtTrace *trace = rt->trace;
    if (!trace)
        return;
    end_step(rt);
    rt_trace_write(rt, trace);
    rt_note("trace of %lld events written to %s", (long long)(trace->count + trace->nmessages), trace->path);
    for (int64_t i = 0; i < trace->nmessages; i++)
        free(trace->messages[i]);
    free(trace->messages);
    free(trace->events);
    free(trace->path);
    free(trace);
    rt->trace = NULL;
}
