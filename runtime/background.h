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

/* The previous job has been joined.  `rivals`: the computing threads of each processor.  Ends the trainer if no
 * thread can be made; `what` names the job in that message. */
void rt_background_start(RtBackground *background, void (*job)(void *of), void *of, double rivals, const char *what);

bool rt_background_is_done(const RtBackground *background); /* also without a job */
void rt_background_join(RtBackground *background);          /* likewise */

#endif
