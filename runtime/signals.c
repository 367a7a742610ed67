/* signals.c -- the one thing that changes behind the trainer's back. */
#include "signals.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t caught;

static void note(int signal) { caught = signal; }

void rt_signals_catch(void)
{
    /* No SA_RESTART: a line on its way to a reader who has stopped reading (mpirun that ends its ranks) is given up. */
    struct sigaction action = { .sa_handler = note, .sa_flags = (int)SA_RESETHAND };
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    /* A file over the limit of its size (ulimit -f) is then an error of write, with its message. */
    struct sigaction ignore = { .sa_handler = SIG_IGN };
    sigaction(SIGXFSZ, &ignore, NULL);
}

int rt_signals_caught(void) { return caught; }
