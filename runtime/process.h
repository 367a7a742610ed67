/* process.h -- helpers at the start of a process, of mpc and of trainers alike: closed files, sets of signals. */
#ifndef MPC_RUNTIME_PROCESS_H
#define MPC_RUNTIME_PROCESS_H

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

/* Opens /dev/null for those of stdin, stdout and stderr that are closed (2>&-).  Otherwise the first files that are
 * opened get their numbers, and what is printed goes into these files, such as a checkpoint. */
static inline void rt_open_closed_files(void)
{
    int file = STDIN_FILENO;
    while (file >= 0 && file <= STDERR_FILENO)
        file = open("/dev/null", O_RDWR);
    if (file > STDERR_FILENO)
        close(file);
}

static inline sigset_t rt_signal_set(const int *signals, size_t count)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < count; i++)
        sigaddset(&set, signals[i]);
    return set;
}

#endif
