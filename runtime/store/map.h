/* map.h -- files mapped for reading. */
#ifndef MPC_RUNTIME_MAP_H
#define MPC_RUNTIME_MAP_H

#include <stdint.h>

/* The content of a regular file; ends the trainer, naming `option`, if it is not one. */
const char *rt_map_file(const char *path, const char *option, int64_t *bytes);
void rt_unmap_file(const char *map, int64_t bytes);

/* From now on, a page of a mapped file that cannot be read, since the file is truncated or its disk fails, is zeros,
 * and noticed. */
void rt_map_watch(void);

/* The first mapped file of which a page could not be read; NULL: none; else owned by the caller.  What was read since
 * the last call may be wrong. */
char *rt_map_fault(void);

/* Ends the trainer if there is one. */
void rt_map_check(void);

#endif
