/* system_limits.h -- the resources that this process may use: the processors of its affinity mask, and what its cgroups
 * grant.
 */
#ifndef MPC_RUNTIME_SYSTEM_LIMITS_H
#define MPC_RUNTIME_SYSTEM_LIMITS_H

#include <stdint.h>

enum { RT_MOST_PROCESSORS = 8192, /* as of Linux */ RT_MOST_GROUPS = 32 };

/* A cgroup that has a limit, which all processes in it and below it share. */
typedef struct {
    uint64_t device, inode; /* equal for processes of one machine: the same cgroup */
    double processors;      /* that it may keep busy; INFINITY: no limit */
    double memory;          /* bytes that it may still take; INFINITY: no limit */
} RtGroupLimit;

typedef struct {
    uint64_t machine;                             /* equal for processes of one machine */
    uint64_t processors[RT_MOST_PROCESSORS / 64]; /* one bit each */
    int groups;                                   /* from the root of its cgroups to its own; of each hierarchy */
    RtGroupLimit group[RT_MOST_GROUPS];
    double machine_memory, process_memory; /* bytes that the machine has, and that the process may map */
} RtLimits;

/* At this moment. */
RtLimits rt_limits(void);

/* From here on this process may have as many open files as its hard limit says.  The number is returned. */
int64_t rt_files_raise(void);

#endif
