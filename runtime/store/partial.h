/* partial.h -- opens the file under whose name an output is written before it is renamed: of trainers and of mpc. */
#ifndef MPC_RUNTIME_PARTIAL_H
#define MPC_RUNTIME_PARTIAL_H

#include <stdbool.h>

/* Opens it for writing, created if there is none; `truncate`: without its content.  -1 with errno: it may be a link,
 * which is not followed, since what it names is another file of the user's, or no file.  To be truncated, a file with a
 * second name is left to that, and a new one is made. */
int rt_partial_open(const char *path, bool truncate);

#endif
