/* watched.c -- how far the run is, for the program that starts trainers again after a fault (mpc run): MPC_PROGRESS
 * names a file of its own, in which the first rank keeps one line.  It outlives a rank that is killed. */
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
    char line[64];
    if (run->progress_file < 0)
        return;
    const int length = snprintf(line, sizeof line, "step %-12lld saved %-12lld\n", (long long)run->place.step,
                                (long long)run->saved_at);
    if (pwrite(run->progress_file, line, (size_t)length, 0) < 0)
        errno = 0; /* the reader then knows less */
}

void rt_watched_close(RtRun *run)
{
    if (run->progress_file >= 0)
        close(run->progress_file);
}
