/* map.h -- files mapped for reading. */
#ifndef MPC_RUNTIME_MAP_H
#define MPC_RUNTIME_MAP_H

#include <stdint.h>

/* The content of a regular file; ends the trainer, naming `option`, if it is not one. */
const char *rt_map_file(const char *path, const char *option, int64_t *bytes);
void rt_unmap_file(const char *map, int64_t bytes);

/* From now on, a mapped file that is truncated ends the trainer with a message instead of SIGBUS. */
void rt_map_watch(void);

#endif
