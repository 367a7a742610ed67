/* background.c -- see background.h.  Where all processors compute, the thread gets a seventh of one of them, and what
 * they leave idle: writing a checkpoint takes little more than its checksums, which are to be done before the step
 * ends. */
#include "background.h"

#include "state.h"

#include <omp.h>

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NICE = 8, MOST_NICE = 19 };

/* Each step of it takes a fifth of what the thread gets.  Where several threads compute on a processor, the thread
 * would have a seventh of the part of one of them: then it has that of all. */
static int niceness(double rivals)
{
    const double step = 1.25;
    int nice = NICE;
    for (double parts = step; nice > 0 && parts <= rivals; parts *= step)
        nice--;
    return nice;
}

/* On Linux a priority is that of a thread.  Without another one the job is done all the same. */
static void *run_job(void *argument)
{
    RtBackground *background = argument;
    omp_set_num_threads(1); /* of this thread: a team of its own would wait for processors that compute */
    const int own = getpriority(PRIO_PROCESS, 0), nice = own + background->niceness;
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), nice < MOST_NICE ? nice : MOST_NICE);
    background->job(background->of);
    background->is_done = true;
    return NULL;
}

void rt_background_start(RtBackground *background, void (*job)(void *of), void *of, double rivals, const char *what)
{
    background->job = job;
    background->of = of;
    background->niceness = niceness(rivals);
    background->is_done = false;
    background->is_running = true;
    if (pthread_create(&background->thread, NULL, run_job, background))
        rt_fail("cannot start the thread %s: too many threads or too little memory", what);
}

bool rt_background_is_done(const RtBackground *background) { return !background->is_running || background->is_done; }

void rt_background_join(RtBackground *background)
{
    if (background->is_running)
        pthread_join(background->thread, NULL);
    background->is_running = false;
}
