/* paths.h -- identity of files, and creation of folders. */
#ifndef MPC_PATHS_H
#define MPC_PATHS_H

#include <stdbool.h>
#include <sys/stat.h>

/* Is what stands at `path` this regular file, under whatever name? */
bool is_same_file(const char *path, const struct stat *file);

/* Makes the folder and those above it that are missing; with `only_above`, these alone.  False with errno set. */
bool make_folders(const char *path, bool only_above);

#endif
