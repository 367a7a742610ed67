/* signals.c -- the flag that signal handlers set. */
#include "signals.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <time.h>

static volatile sig_atomic_t caught;
static struct timespec caught_at;

static double seconds_since(struct timespec begin)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - begin.tv_sec) + 1e-9 * (double)(now.tv_nsec - begin.tv_nsec);
}

/* Who asks once often asks twice: `timeout` tells the process and then its group, launchers tell the ranks of a group
 * that has had the signal.  Only a signal that comes later is another request. */
static void note(int signal)
{
    enum { AT_ONE_TIME = 1 }; /* seconds */
    int error = errno;
    if (!caught) {
        clock_gettime(CLOCK_MONOTONIC, &caught_at);
        caught = signal;
    } else if (seconds_since(caught_at) > AT_ONE_TIME) {
        struct sigaction action = { .sa_handler = SIG_DFL };
        sigaction(signal, &action, NULL);
        raise(signal); /* comes when this handler has returned */
    }
    errno = error;
}

/* Nobody reads any more: every further line that is written brings it again, and is no request. */
static void note_lost_reader(int signal)
{
    if (!caught)
        note(signal);
}

void rt_signals_catch(void)
{
    static const int requests[] = { SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU };
    /* No SA_RESTART: a line on its way to a reader who has stopped reading (mpirun that ends its ranks) is given up. */
    struct sigaction action = { .sa_handler = note }, lost = { .sa_handler = note_lost_reader }, former;
    for (unsigned i = 0; i < sizeof requests / sizeof *requests; i++)
        sigaction(requests[i], &action, NULL);
    if (!sigaction(SIGHUP, NULL, &former) && former.sa_handler != SIG_IGN) /* as nohup wants it */
        sigaction(SIGHUP, &action, NULL);
    sigaction(SIGPIPE, &lost, NULL);
    /* A file over the limit of its size (ulimit -f) is then an error of write, with its message. */
    struct sigaction ignore = { .sa_handler = SIG_IGN };
    sigaction(SIGXFSZ, &ignore, NULL);
}

int rt_signals_caught(void) { return caught; }
