/* launch.h -- starts the ranks of a trainer on this machine. */
#ifndef MPC_LAUNCH_H
#define MPC_LAUNCH_H

#include "driver.h"

enum { MOST_LAUNCHED = 256 };

/* Starts the command `argv` once for each of `ranks`, and waits for all.  With `over_tcp` they find each other by the
 * variables that torchrun sets.  Signals to mpc go to all; once a rank has failed, the others are ended if they do not
 * end themselves.  The exit status of the first that failed (128 and the signal that killed it), else 0. */
int launch(Run *run, const char *const argv[], int ranks, bool over_tcp);

#endif
