/* launch.h -- starts the ranks of a trainer on this machine. */
#ifndef MPC_LAUNCH_H
#define MPC_LAUNCH_H

#include "driver.h"

#include <signal.h>

enum { MOST_LAUNCHED = 256 };

/* What starts ranks, once or several times.  From launch_open to launch_close signals to mpc wait until it asks. */
typedef struct {
    sigset_t watched, before;
    bool has_secret; /* of the user: ranks of all starts have it */
} Launcher;

/* How the ranks of one start have ended. */
typedef struct {
    int status; /* of the first that failed: its exit status, or 128 and the signal that killed it; 0: none did */
    int rank;   /* which; -1: they could not be started */
    int signal; /* to mpc, which all ranks got; 0: none */
} Ended;

void launch_open(Launcher *launcher);
void launch_close(const Launcher *launcher);

/* Starts the command `argv` once for each of `ranks`, and waits for all.  With `over_tcp` they find each other by the
 * variables that torchrun sets.  Signals to mpc go to all; once a rank has failed, the others are ended if they do not
 * end themselves. */
Ended launch(Run *run, Launcher *launcher, const char *const argv[], int ranks, bool over_tcp);

/* Waits so many seconds.  A signal ends it: its number, else 0. */
int launch_pause(const Launcher *launcher, int seconds);

#endif
