/* error.c -- messages, and small functions used by all parts of the runtime. */
#include "state.h"
#include "transport.h"
#include "visible.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <unistd.h>

static const Rt *own; /* NULL: the only rank */
static void (*last_act)(void);
static void (*first_act)(int status);

void rt_error_ranks(const Rt *rt) { own = rt; }

void rt_before_abort(void (*act)(void)) { last_act = act; }

void rt_before_error(void (*act)(int status)) { first_act = act; }

/* In one write, so that lines of several ranks do not mix. */
static void print_line(const char *before, const char *format, va_list args)
{
    char *text = NULL;
    fflush(stdout);
    if (isatty(STDOUT_FILENO) && isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr); /* a progress line may be there */
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    char *shown = text ? rt_visible(text) : NULL;
    fprintf(stderr, "%s%s\n", before, shown ? shown : format);
    free(shown);
    free(text);
}

/* Sleeps; a signal means that another rank is ending all ranks. */
static void sleep_or_end(int moments)
{
    enum { MOMENT = 100000000 }; /* ns */
    for (int i = 0; i < moments; i++)
        if (nanosleep(&(struct timespec){ .tv_nsec = MOMENT }, NULL))
            _exit(RT_EXIT_ERROR);
}

/* Of threads that report errors simultaneously one is chosen; of ranks, before they know of each other, the lowest. */
static bool has_word(const RtComm *comm)
{
    enum { AT_ONE_TIME = 2 };
    static atomic_flag is_claimed = ATOMIC_FLAG_INIT;
    if (comm->hear_claim() >= 0 || atomic_flag_test_and_set(&is_claimed))
        return false;
    comm->claim_word();
    sleep_or_end(AT_ONE_TIME);
    int other = comm->hear_claim();
    return other < 0 || other > own->rank;
}

/* Most errors occur on several ranks: each rank waits a moment for lower ranks to report the error, and the first to
 * report ends all. */
static void let_one_speak(void)
{
    enum { MOST = 20, UNTIL_ENDED = 600 };
    sleep_or_end(own->rank < MOST ? own->rank : MOST);
    if (!has_word(own->program->comm))
        sleep_or_end(UNTIL_ENDED);
}

static _Noreturn void end_with(int status, const char *format, va_list args)
{
    bool has_others = own && own->ranks > 1;
    if (has_others)
        let_one_speak();
    char *before = own && own->rank ? rt_text("error: rank %d: ", own->rank) : NULL;
    print_line(before ? before : "error: ", format, args);
    if (has_others) {
        if (first_act)
            first_act(status);
        if (last_act)
            last_act();
        own->program->comm->abort(status);
    }
    exit(status);
}

void rt_end(int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    end_with(status, format, args);
}

void rt_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    end_with(RT_EXIT_ERROR, format, args);
}

void rt_end_in_handler(int status, const char *line)
{
    const bool speaks = !own || own->rank == 0;
    if (last_act)
        last_act();
    if (speaks && write(STDERR_FILENO, line, strlen(line)) < 0)
        errno = 0; /* nobody reads it */
    _exit(status);
}

void rt_note(const char *format, ...)
{
    va_list args;
    if (own && own->rank)
        return;
    va_start(args, format);
    print_line("", format, args);
    va_end(args);
}

void *rt_allocate(int64_t count, int64_t size)
{
    void *memory = calloc(count > 0 ? (size_t)count : 1, (size_t)size);
    if (!memory)
        rt_fail("out of memory: cannot allocate %lld times %lld bytes", (long long)count, (long long)size);
    return memory;
}

static char *text_behind(const char *before, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    size_t start = strlen(before), length = (size_t)vsnprintf(NULL, 0, format, args);
    char *text = rt_allocate((int64_t)(start + length + 1), 1);
    memcpy(text, before, start);
    vsnprintf(text + start, length + 1, format, again);
    va_end(again);
    return text;
}

int rt_compare_texts(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

char *rt_text(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = text_behind("", format, args);
    va_end(args);
    return text;
}

void rt_append(char **text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *longer = text_behind(*text, format, args);
    va_end(args);
    free(*text);
    *text = longer;
}

double rt_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

RtBytesText rt_bytes_text(double bytes)
{
    static const char *const units[] = { "B", "kB", "MB", "GB", "TB", "PB", "EB" };
    unsigned unit = 0;
    while (bytes >= 999.5 && unit < sizeof units / sizeof *units - 1) {
        bytes /= 1000;
        unit++;
    }
    RtBytesText result;
    snprintf(result.text, sizeof result.text, unit == 0 ? "%.0f %s" : "%.2f %s", bytes, units[unit]);
    return result;
}

RtCountText rt_count_text(int64_t count, const char *noun)
{
    RtCountText result;
    snprintf(result.text, sizeof result.text, "%lld %s%s", (long long)count, noun, count == 1 ? "" : "s");
    return result;
}
