/* signals.c -- the flag that signal handlers set, and, before the first step, the end of the trainer. */
#include "signals.h"

#include "state.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <time.h>

static volatile sig_atomic_t caught;
static volatile sig_atomic_t has_begun; /* else there is nothing to save */
static struct timespec caught_at;

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

/* The reader of the output is gone: every further write repeats the signal, which is not a second request. */
static void note_lost_reader(int signal)
{
    if (!caught)
        note(signal);
}

void rt_signals_catch(void)
{
    static const int requests[] = { SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU };
    /* No SA_RESTART: a write that is blocked since its reader has stopped (mpirun ending its ranks) is abandoned. */
    struct sigaction action = { .sa_handler = note }, lost = { .sa_handler = note_lost_reader }, former;
    for (unsigned i = 0; i < sizeof requests / sizeof *requests; i++)
        sigaction(requests[i], &action, NULL);
    if (!sigaction(SIGHUP, NULL, &former) && former.sa_handler != SIG_IGN) /* ignored under nohup */
        sigaction(SIGHUP, &action, NULL);
    sigaction(SIGPIPE, &lost, NULL);
    /* Exceeding the file size limit (ulimit -f) then is a reported write error. */
    struct sigaction ignore = { .sa_handler = SIG_IGN };
    sigaction(SIGXFSZ, &ignore, NULL);
}

void rt_signals_keep(void) { has_begun = 1; }

int rt_signals_caught(void) { return caught; }
