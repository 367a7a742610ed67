/* streams.c -- streams as queues, and events as positions in them. */
#include "streams.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static EmulatedStream *streams[MAX_STREAMS];
static int nstreams;

/* --- Helpers ------------------------------------------------------------------------------------ */

int64_t emulated_number(const char *name, int64_t preset)
{
    const char *text = getenv(name);
    return text && *text ? strtoll(text, NULL, 10) : preset;
}

void emulated_fault(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("emulated device: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    _exit(70);
}

static double seconds_ahead;

void emulated_take_longer(double seconds) { seconds_ahead += seconds; }

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return seconds_ahead + (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static uint32_t draw(uint32_t below)
{
    static uint64_t state;
    if (state == 0)
        state = (uint64_t)emulated_number("EMULATED_SEED", 0) * 2 + 1;
    state = state * 6364136223846793005u + 1442695040888963407u; /* D. E. Knuth's */
    return (uint32_t)(state >> 33) % below;
}

/* --- The scheduler ------------------------------------------------------------------------------- */

static void finish_first(EmulatedStream *stream)
{
    Work *work = stream->first;
    stream->first = work->next;
    stream->last = stream->first ? stream->last : NULL;
    stream->done++;
    free(work->data);
    free(work);
}

/* Reorders streams; delayed streams stay delayed for a while. */
static void shuffle(void)
{
    const bool is_fixed = emulated_number("EMULATED_IN_ORDER", 0);
    for (int i = nstreams - 1; i > 0 && !is_fixed; i--) {
        int other = (int)draw((uint32_t)i + 1);
        EmulatedStream *stream = streams[i];
        streams[i] = streams[other];
        streams[other] = stream;
    }
}

/* Runs one piece of work of the first stream that can continue. */
static bool step(void)
{
    if (draw(32) == 0)
        shuffle();
    for (int i = 0; i < nstreams; i++)
        if (streams[i]->first && streams[i]->first->work(streams[i]->first->data)) {
            finish_first(streams[i]);
            return true;
        }
    return false;
}

/* Other ranks, which share this machine's processors, are to be waited for. */
static void rest(void) { nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL); }

static void run_until(Place place)
{
    emulated_open_memory();
    while (place.stream->done < place.number)
        if (!step())
            rest(); /* waits for other ranks */
    emulated_close_memory();
}

void emulated_drain(EmulatedStream *stream) { run_until((Place){ stream, stream->put }); }

static bool is_idle(void)
{
    for (int i = 0; i < nstreams; i++)
        if (streams[i]->first)
            return false;
    return true;
}

void emulated_load(void)
{
    if (!emulated_number("EMULATED_LAZY", 0))
        return;
    emulated_open_memory();
    while (!is_idle())
        if (!step())
            rest();
    emulated_close_memory();
}

bool emulated_advance(EmulatedStream *stream)
{
    enum { SOME = 64 };
    bool goes_on = true;
    emulated_open_memory();
    for (int i = 0; i < SOME && goes_on && stream->done < stream->put; i++)
        goes_on = step();
    emulated_close_memory();
    if (!goes_on)
        rest();
    return stream->done == stream->put;
}

void *emulated_copy(const void *data, size_t bytes)
{
    void *copy = malloc(bytes + 1);
    memcpy(copy, data, bytes);
    return copy;
}

/* A launch waits while the queue is full. */
static void wait_for_room(const EmulatedStream *stream)
{
    const int64_t room = emulated_number("EMULATED_QUEUE", INT64_MAX);
    if (stream->put - stream->done >= room)
        run_until((Place){ (EmulatedStream *)(uintptr_t)stream, stream->put - room + 1 });
}

void emulated_enqueue(EmulatedStream *stream, EmulatedWork *work, const void *data, size_t bytes)
{
    if (stream->capture) {
        emulated_record_work(stream, work, data, bytes);
        return;
    }
    wait_for_room(stream);
    static int64_t number;
    Work *last = malloc(sizeof *last);
    *last = (Work){ work, emulated_copy(data, bytes), number++, NULL };
    *(stream->last ? &stream->last->next : &stream->first) = last;
    stream->last = last;
    stream->put++;
}

static const Work *first_with(const void *data)
{
    for (int i = 0; i < nstreams; i++)
        if (streams[i]->first && streams[i]->first->data == data)
            return streams[i]->first;
    return NULL;
}

bool emulated_holds_up(const void *data, EmulatedWork *work, bool (*is_it)(const void *data))
{
    const Work *behind = first_with(data)->next;
    for (; behind && (behind->work != emulated_wait || emulated_wait(behind->data)); behind = behind->next)
        if (behind->work == work && is_it(behind->data))
            return true;
    return false;
}

bool emulated_is_next(const void *data, EmulatedWork *work)
{
    const int64_t number = first_with(data)->number;
    for (int i = 0; i < nstreams; i++)
        for (const Work *other = streams[i]->first; other; other = other->next)
            if (other->work == work && other->number < number)
                return false;
    return true;
}

void emulated_postpone(EmulatedStream *stream)
{
    if (!stream->capture)
        stream->last->number += INT32_MAX;
}

/* --- Waits of the processor -------------------------------------------------------------------------- */

static const EmulatedStream *first_made;
static int64_t first_waits;

void emulated_forget_waits(void)
{
    for (int i = 0; i < nstreams; i++)
        streams[i]->waits = 0;
    first_waits = 0;
}

static void write_waits(void)
{
    FILE *out = fopen(getenv("EMULATED_WAITS"), "w");
    if (!out || fprintf(out, "%lld\n", (long long)first_waits) < 0 || fclose(out) != 0)
        emulated_fault("$EMULATED_WAITS cannot be written");
}

/* The processor asks for the end of all that is queued: again and again perhaps, which is one wait. */
static void note_wait(EmulatedStream *stream)
{
    static bool is_registered;
    if (!is_registered && getenv("EMULATED_WAITS"))
        atexit(write_waits);
    is_registered = true;
    stream->waits += stream->put > stream->asked;
    stream->asked = stream->put;
    first_waits = stream == first_made ? stream->waits : first_waits;
}

/* --- Streams ---------------------------------------------------------------------------------------- */

EmulatedStream *emulated_new_stream(int priority)
{
    if (nstreams == MAX_STREAMS)
        emulated_fault("more than %d streams", MAX_STREAMS);
    EmulatedStream *stream = calloc(1, sizeof *stream);
    stream->priority = priority;
    first_made = first_made ? first_made : stream;
    return streams[nstreams++] = stream;
}

enum { GREATEST_PRIORITY = -5 };

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = GREATEST_PRIORITY;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    *stream = emulated_new_stream(priority);
    shuffle();
    return flags == cudaStreamNonBlocking ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

bool emulated_is_urgent(const EmulatedStream *stream) { return stream->priority < 0; }

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    emulated_drain(stream);
    for (int i = 0; i < nstreams; i++)
        if (streams[i] == stream)
            streams[i] = streams[--nstreams];
    free(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    if (stream->capture)
        return cudaErrorStreamCaptureUnsupported;
    note_wait(stream);
    emulated_drain(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    if (stream->capture)
        return cudaErrorStreamCaptureUnsupported;
    note_wait(stream);
    return emulated_advance(stream) ? cudaSuccess : cudaErrorNotReady;
}

/* --- Events ----------------------------------------------------------------------------------------- */

static bool work_record(void *data)
{
    cudaEvent_t event = *(cudaEvent_t *)data;
    event->seconds = seconds_now();
    return true;
}

bool emulated_wait(void *data)
{
    const Place *place = data;
    return place->stream->done >= place->number;
}

/* Of its last record when the work is done, which may be long after it was recorded in a graph. */
static bool work_wait_outside(void *data)
{
    const cudaEvent_t event = *(cudaEvent_t *)data;
    return !event->place.stream || emulated_wait(&event->place);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    *event = calloc(1, sizeof **event);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    if (event->place.stream)
        run_until(event->place);
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    event->capture = stream->capture;
    if (stream->capture) {
        event->node = emulated_record_event(stream);
        return cudaSuccess;
    }
    emulated_enqueue(stream, work_record, &event, sizeof event);
    event->place = (Place){ stream, stream->put };
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    static int64_t count;
    bool is_left_out = ++count == emulated_number("EMULATED_FORGET_WAIT", 0);
    if (event->capture)
        return emulated_record_wait(stream, event->capture, event->node, is_left_out) ? cudaSuccess
                                                                                      : cudaErrorStreamCaptureMerge;
    if (stream->capture && flags != cudaEventWaitExternal)
        return cudaErrorStreamCaptureIsolation;
    if (stream->capture && !is_left_out)
        emulated_enqueue(stream, work_wait_outside, &event, sizeof event);
    else if (event->place.stream && !is_left_out)
        emulated_enqueue(stream, emulated_wait, &event->place, sizeof event->place);
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    if (event->place.stream) {
        note_wait(event->place.stream);
        run_until(event->place);
    }
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    if (!start->place.stream || !end->place.stream)
        return cudaErrorInvalidResourceHandle;
    if (!emulated_wait(&start->place) || !emulated_wait(&end->place))
        return cudaErrorNotReady;
    *milliseconds = (float)(1e3 * (end->seconds - start->seconds));
    return cudaSuccess;
}
