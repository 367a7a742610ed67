/* counter.h -- how far a command is, on a terminal. */
#ifndef MPC_DRIVER_COUNTER_H
#define MPC_DRIVER_COUNTER_H

#include <stdbool.h>
#include <time.h>

/* Begin with {what, all}; count() each that is begun; end_counter() takes the line away. */
typedef struct {
    const char *what; /* "tensors" */
    int all, begun;
    time_t shown;
} Counter;

void count(Counter *c);
void end_counter(const Counter *c);

#endif
