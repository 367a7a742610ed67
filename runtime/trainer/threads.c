/* threads.c -- the number of OpenMP threads of a rank. */
#include "mesh/comm.h"
#include "train.h"

#include <stdlib.h>

#include <omp.h>

static const char variable[] = "OMP_NUM_THREADS";

/* The first number of "4" or "4,2": those that follow are for nested loops, which the trainer has none of.  OpenMP
 * itself takes any number, and crashes at tens of thousands. */
static int threads_in(const char *text)
{
    const long most = (long)rt_options_most("threads");
    char *end;
    const long first = strtol(text, &end, 10);
    bool is_good = true;
    for (const char *at = text; at; at = *end == ',' ? end + 1 : NULL) {
        const long number = strtol(at, &end, 10);
        is_good = is_good && end != at && number >= 1 && number <= most;
        while (*end == ' ' || *end == '\t')
            end++;
        is_good = is_good && (*end == ',' || !*end);
    }
    if (!is_good)
        rt_end(RT_EXIT_USAGE,
               "%s='%s' in the environment: a number of threads is from 1 to %ld; set another one, or none", variable,
               text, most);
    return (int)first;
}

void rt_threads_choose(RtRun *run)
{
    Rt *rt = &run->rt;
    const char *text = getenv(variable);
    const int limit = omp_get_thread_limit(), own = rt->share.processors >= 1 ? (int)rt->share.processors : 1;
    if (run->options.given.threads)
        rt->threads = (int)run->options.threads;
    else if (text && *text)
        rt->threads = threads_in(text);
    else
        rt->threads = own < limit ? own : limit;
    if (rt->threads > limit)
        rt_end(RT_EXIT_USAGE, "%s %d: OMP_THREAD_LIMIT of the environment allows %d; give fewer threads, or unset it",
               run->options.given.threads ? "--threads" : variable, rt->threads, limit);
    omp_set_num_threads(rt->threads);
}
