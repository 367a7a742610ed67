/* paths.h -- identity of files, and creation of folders. */
#ifndef MPC_PATHS_H
#define MPC_PATHS_H

#include <stdbool.h>
#include <sys/stat.h>

/* Is `path` this regular file, possibly under another name? */
bool is_same_file(const char *path, const struct stat *file);

/* Makes the folder and its missing parents; with `only_above`, only the parents.  False with errno set. */
bool make_folders(const char *path, bool only_above);

#endif
