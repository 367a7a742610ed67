/* disk.h -- offloaded tensors in a file of the rank's own, which has no name once it is open: it ends with the process,
 * however that ends.  Offsets are those of the plan. */
#ifndef MPC_RUNTIME_FAR_DISK_H
#define MPC_RUNTIME_FAR_DISK_H

#include "far.h"

struct RtDisk *rt_disk_open(const Rt *rt, const char *folder);
void rt_disk_close(struct RtDisk *disk);

/* Each call is of one thread at a time, but for those with `ahead`, of another one. */
void rt_disk_read(const Rt *rt, void *to, int64_t offset, int64_t bytes, bool ahead);
void rt_disk_write(const Rt *rt, int64_t offset, const void *from, int64_t bytes, bool ahead);
void rt_disk_zero(const Rt *rt, int64_t offset, int64_t bytes);

/* Copies of bytes of the file, until closed. */
char *rt_disk_window_open(const Rt *rt, int64_t offset, int64_t bytes);
void rt_disk_window_close(const Rt *rt, char *window, int64_t offset, int64_t bytes, bool is_changed);

#endif
