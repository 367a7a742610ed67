/* threads.c -- the OpenMP threads of a rank: how many, and that there are so many. */
#include "train.h"

#include <pthread.h>
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

/* --- The team ----------------------------------------------------------------------------------- */

/* Of the calling thread. */
static size_t stack_bytes(void)
{
    pthread_attr_t attributes;
    void *stack;
    size_t bytes = SIZE_MAX;
    if (pthread_getattr_np(pthread_self(), &attributes))
        return bytes;
    pthread_attr_getstack(&attributes, &stack, &bytes);
    pthread_attr_destroy(&attributes);
    return bytes;
}

/* oneDNN divides a product among as many threads as were asked for, and does not see that it gets fewer: their parts
 * are then missing.  Its stacks have blocks of both factors, some 200 kB. */
static void check_team(int threads)
{
    enum { LEAST_STACK = 1 << 20 };
    const size_t own = stack_bytes();
    size_t least = SIZE_MAX;
    int count = 0;
#pragma omp parallel reduction(+ : count) reduction(min : least)
    {
        count++;
        if (omp_get_thread_num() > 0)
            least = stack_bytes();
    }
    if (count < threads)
        rt_fail("OpenMP runs %d threads of %d, with which products would be wrong: unset the variables OMP_... of the "
                "environment",
                count, threads);
    if (own < LEAST_STACK)
        rt_fail("the stack may have %s, and products need 1 MiB; raise the limit (ulimit -s)",
                rt_bytes_text((double)own).text);
    if (least < LEAST_STACK)
        rt_fail("the stack of a thread has %s, and products need 1 MiB; set OMP_STACKSIZE=4M",
                rt_bytes_text((double)least).text);
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
    omp_set_dynamic(false); /* OMP_DYNAMIC of the environment: fewer, where processors are busy */
    if (omp_get_max_active_levels() < 1)
        omp_set_max_active_levels(1);
    check_team(rt->threads);
}
