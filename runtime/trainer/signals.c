/* signals.c -- the flag that signal handlers set, and, before the first step, the end of the trainer.
 *
 * Requests are handled by a thread that does nothing else; threads that compute block them.  A handler's frame is
 * written below the stack pointer of the thread that it interrupts, and products of oneDNN use this register as an
 * ordinary one: in 2.6.3 it points into a block of the heap, whose neighbours the frame then overwrites.  So a request
 * interrupts the thread that trains, which may wait for a reader, by a signal that is handled on a stack of its own. */
#define _DEFAULT_SOURCE /* sigaltstack */
#include "signals.h"

#include "process.h"
#include "state.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <unistd.h>

enum {
    INTERRUPTS = SIGURG,    /* by default ignored, so that nobody is asked to send it */
    STACK_BYTES = 128 << 10 /* a frame has all registers: 11 kB with AMX */
};

static const int requests[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU };
static atomic_int caught;
static atomic_bool has_begun; /* else there is nothing to save */
static struct timespec caught_at;
static pthread_t trains;

static double seconds_since(struct timespec begin)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - begin.tv_sec) + 1e-9 * (double)(now.tv_nsec - begin.tv_nsec);
}

/* A signal is often sent twice: `timeout` signals the process and then its group; launchers forward a signal to ranks
 * that already had it.  Only a later signal counts as a second request. */
static void note(int signal)
{
    enum { AT_ONE_TIME = 1 }; /* seconds */
    int error = errno;
    if (!has_begun)
        rt_end_in_handler(RT_EXIT_SIGNAL + signal, "interrupted before the first step: nothing is saved\n");
    if (!caught) {
        clock_gettime(CLOCK_MONOTONIC, &caught_at);
        caught = signal;
    } else if (seconds_since(caught_at) > AT_ONE_TIME) {
        struct sigaction action = { .sa_handler = SIG_DFL };
        sigaction(signal, &action, NULL);
        raise(signal); /* delivered after this handler returns */
    }
    errno = error;
}

static void handle_request(int signal)
{
    note(signal);
    pthread_kill(trains, INTERRUPTS);
}

/* The reader of the output is gone: every further write repeats the signal, which is not a second request. */
static void handle_lost_reader(int signal)
{
    if (!caught)
        note(signal);
}

static void interrupt(int signal) { (void)signal; }

static void *wait_for_requests(void *unused)
{
    (void)unused;
    for (;;)
        pause();
    return NULL;
}

/* Of the calling thread. */
static void open_stack_for_interruption(void)
{
    static char memory[STACK_BYTES];
    const stack_t stack = { .ss_sp = memory, .ss_size = sizeof memory };
    /* No SA_RESTART: a write that is blocked since its reader has stopped (mpirun ending its ranks) is abandoned. */
    const struct sigaction action = { .sa_handler = interrupt, .sa_flags = SA_ONSTACK };
    sigaltstack(&stack, NULL);
    sigaction(INTERRUPTS, &action, NULL);
}

void rt_signals_catch(void)
{
    const sigset_t all = rt_signal_set(requests, sizeof requests / sizeof *requests);
    const struct sigaction action = { .sa_handler = handle_request, .sa_mask = all },
                           lost = { .sa_handler = handle_lost_reader };
    struct sigaction former;
    pthread_t waits;
    trains = pthread_self();
    open_stack_for_interruption();
    for (unsigned i = 0; i < sizeof requests / sizeof *requests; i++) {
        sigaction(requests[i], NULL, &former);
        if (requests[i] != SIGHUP || former.sa_handler != SIG_IGN) /* ignored under nohup */
            sigaction(requests[i], &action, NULL);
    }
    sigaction(SIGPIPE, &lost, NULL);
    /* Exceeding the file size limit (ulimit -f) then is a reported write error. */
    struct sigaction ignore = { .sa_handler = SIG_IGN };
    sigaction(SIGXFSZ, &ignore, NULL);
    const int status = pthread_create(&waits, NULL, wait_for_requests, NULL);
    if (status)
        rt_fail("cannot start the thread that handles signals: %s", strerror(status));
    pthread_sigmask(SIG_BLOCK, &all, NULL); /* here and in threads to come */
}

void rt_signals_keep(void) { has_begun = true; }

int rt_signals_caught(void) { return caught; }
