/* watch.h -- a run of a trainer that goes on after faults. */
#ifndef MPC_WATCH_H
#define MPC_WATCH_H

#include "driver.h"

/* A compiled trainer, and how it is started. */
typedef struct {
    const char *program, *mesh; /* mesh: "dp=2,tp=2" */
    int ranks;
    bool is_alone, by_mpirun; /* is_alone: it has no mesh */
} Trainer;

/* How often the trainer is started again, at most: --restarts, or by default with the trainer's --save-every. */
long long restarts_of(const Options *options);

/* Starts the first trainer with the options that the user gave for it, and after a fault again, or the next one, which
 * has fewer ranks.  The exit status of the run. */
int watch(Run *run, const Trainer trainers[], int count);

#endif
