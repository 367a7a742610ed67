/* watched.c -- reports the progress of a run to the program that restarts trainers after a fault (mpc run):
 * MPC_PROGRESS names a file that outlives the rank, in which the first rank keeps one line: the step from which it
 * began, the last finished step, the newest saved one (-1: none), and the FLOPs per second of a rank that mfu is
 * measured by. */
#include "train.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>

void rt_watched_open(RtRun *run)
{
    const char *path = run->rt.rank == 0 ? getenv("MPC_PROGRESS") : NULL;
    run->progress_file = path ? open(path, O_WRONLY | O_CLOEXEC) : -1;
    if (path && run->progress_file < 0)
        rt_note("note: MPC_PROGRESS %s: cannot open it: %s", path, strerror(errno));
    rt_watched_tell(run);
}

void rt_watched_tell(const RtRun *run)
{
    char line[128];
    if (run->progress_file < 0)
        return;
    const int length =
        snprintf(line, sizeof line, "from %-12lld step %-12lld saved %-12lld peak %-14.8g\n", (long long)run->begun_at,
                 (long long)run->place.step, (long long)run->saved_at, run->peak / run->rt.ranks);
    if (pwrite(run->progress_file, line, (size_t)length, 0) < 0)
        errno = 0; /* the reader then knows less */
}

void rt_watched_close(RtRun *run)
{
    if (run->progress_file >= 0)
        close(run->progress_file);
}
