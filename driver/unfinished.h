/* unfinished.h -- files that are being written, and processes that write them: Ctrl-C, SIGTERM and SIGHUP end these and
 * remove those before mpc ends by the same signal, so that none is left in a user's folders. */
#ifndef MPC_UNFINISHED_H
#define MPC_UNFINISHED_H

#include <sys/types.h>

/* A file, or a folder that is empty when what was noted after it has been removed; `path` stays the caller's, and
 * valid until it is forgotten: the file is finished, or removed. */
void note_unfinished(const char *path);
void forget_unfinished(const char *path);

/* Starts a program that writes such files, by posix_spawnp(), whose result is this one; it is forgotten when it has
 * been waited for. */
int start_writer(const char *const argv[], pid_t *pid);
void forget_writer(pid_t pid);

#endif
