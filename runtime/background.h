/* background.h -- one job beside the computation, in a thread that gives way to it. */
#ifndef MPC_RUNTIME_BACKGROUND_H
#define MPC_RUNTIME_BACKGROUND_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct {
    void (*job)(void *of);
    void *of;
    int niceness;
    pthread_t thread;
    bool is_running; /* until it is joined */
    atomic_bool is_done;
} RtBackground;

/* The job of before has been joined.  `rivals`: the threads that compute, for each processor.  Ends the trainer if
 * there can be no thread; `what` says for what it is. */
void rt_background_start(RtBackground *background, void (*job)(void *of), void *of, double rivals, const char *what);

bool rt_background_is_done(const RtBackground *background); /* also without a job */
void rt_background_join(RtBackground *background);          /* likewise */

#endif
