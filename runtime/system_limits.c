/* system_limits.c -- reads what this process may use.
 *
 * A job of a batch system, a systemd service or a container is a cgroup, often deep below the root, and each level may
 * have a limit.  In version 2 there is one hierarchy of them, in version 1 one for each controller; a machine may have
 * both.  /proc/self/cgroup has the path of the process in each, /proc/self/mountinfo where they are mounted. */
#include "system_limits.h"

#include "state.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <omp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- Files of numbers ------------------------------------------------------------------------- */

/* The number after `label` in a file of lines "label number ..."; an empty label is the first line.  `otherwise`:
 * there is no such file or line, or it says "max". */
static double number_in(const char *path, const char *label, double otherwise)
{
    FILE *file = fopen(path, "r");
    char line[256];
    double found = otherwise;
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, label, strlen(label)))
            continue;
        if (sscanf(line + strlen(label), "%lf", &found) != 1)
            found = otherwise;
        break;
    }
    if (file)
        fclose(file);
    return found;
}

static double number_of(const char *folder, const char *name, const char *label, double otherwise)
{
    char *path = rt_text("%s/%s", folder, name);
    const double number = number_in(path, label, otherwise);
    free(path);
    return number;
}

/* --- The limits of one cgroup ------------------------------------------------------------------- */

typedef RtGroupLimit Read(const char *folder);

static const RtGroupLimit unlimited = { .processors = INFINITY, .memory = INFINITY };

/* Pages of files are counted as used, but given up where memory is needed. */
static double left(double limit, double used, double of_files) { return fmax(limit - fmax(used - of_files, 0), 0); }

static RtGroupLimit read_version_2(const char *folder)
{
    RtGroupLimit found = unlimited;
    char *path = rt_text("%s/cpu.max", folder);
    FILE *file = fopen(path, "r");
    double quota, period; /* us; without a limit "max 100000" */
    if (file && fscanf(file, "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0)
        found.processors = quota / period;
    if (file)
        fclose(file);
    free(path);
    const double limit = number_of(folder, "memory.max", "", INFINITY);
    if (isfinite(limit))
        found.memory = left(limit, number_of(folder, "memory.current", "", 0),
                            number_of(folder, "memory.stat", "active_file ", 0) +
                                number_of(folder, "memory.stat", "inactive_file ", 0));
    return found;
}

static RtGroupLimit read_processors_1(const char *folder)
{
    RtGroupLimit found = unlimited;
    const double quota = number_of(folder, "cpu.cfs_quota_us", "", -1); /* -1: no limit */
    const double period = number_of(folder, "cpu.cfs_period_us", "", 0);
    if (quota > 0 && period > 0)
        found.processors = quota / period;
    return found;
}

static RtGroupLimit read_memory_1(const char *folder)
{
    const double none = 0x1p60; /* without a limit the largest number of pages */
    RtGroupLimit found = unlimited;
    const double limit = number_of(folder, "memory.limit_in_bytes", "", INFINITY);
    if (limit < none)
        found.memory = left(limit, number_of(folder, "memory.usage_in_bytes", "", 0),
                            number_of(folder, "memory.stat", "total_active_file ", 0) +
                                number_of(folder, "memory.stat", "total_inactive_file ", 0));
    return found;
}

/* --- All levels of a hierarchy -------------------------------------------------------------------- */

static bool has_group(const RtLimits *limits, const struct stat *info)
{
    for (const RtGroupLimit *group = limits->group; group < limits->group + limits->groups; group++)
        if (group->device == info->st_dev && group->inode == info->st_ino)
            return true;
    return false;
}

static void add_group(RtLimits *limits, const char *folder, Read *read)
{
    struct stat info;
    RtGroupLimit found = read(folder);
    if (limits->groups == RT_MOST_GROUPS || (isinf(found.processors) && isinf(found.memory)) || stat(folder, &info) ||
        has_group(limits, &info)) /* a hierarchy may be mounted twice */
        return;
    found.device = info.st_dev;
    found.inode = info.st_ino;
    limits->group[limits->groups++] = found;
}

/* Where below its mount a hierarchy has the process.  A container may see only a part of the hierarchy, `root`; "": the
 * process is elsewhere. */
static const char *path_below(const char *path, const char *root)
{
    const size_t length = strcmp(root, "/") ? strlen(root) : 0;
    const bool is_below = !strncmp(path, root, length) && (path[length] == '/' || !path[length]);
    return is_below && !strstr(path, "/..") && path[length + (path[length] == '/')] ? path + length : "";
}

static void add_levels(RtLimits *limits, const char *mount, const char *below, Read *read)
{
    char *folder = rt_text("%s%s", mount, below);
    for (;;) {
        add_group(limits, folder, read);
        char *last = strrchr(folder, '/');
        if (strlen(folder) <= strlen(mount) || !last)
            break;
        *last = '\0';
    }
    free(folder);
}

/* --- The hierarchies -------------------------------------------------------------------------------- */

/* Is the word one of a list with commas? */
static bool lists(const char *list, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, word, length) && (at[length] == ',' || !at[length]))
            return true;
    return false;
}

/* The path of the process where the controller is; "": in version 2.  NULL: there is none; else owned by the caller. */
static char *own_path(const char *controller)
{
    FILE *file = fopen("/proc/self/cgroup", "r");
    char *line = NULL, *found = NULL;
    size_t room = 0;
    while (file && !found && getline(&line, &room, file) > 0) { /* "4:cpu,cpuacct:/path", "0::/path" */
        line[strcspn(line, "\n")] = '\0';
        char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        if (*controller ? lists(list + 1, controller) : !list[1])
            found = rt_text("%s", path);
    }
    if (file)
        fclose(file);
    free(line);
    return found;
}

static void add_mounted(RtLimits *limits, const char *mount, const char *root, const char *controller, Read *read)
{
    char *path = own_path(controller);
    if (path)
        add_levels(limits, mount, path_below(path, root), read);
    free(path);
}

/* "36 35 98:0 ROOT MOUNT options ... - TYPE source OPTIONS" */
static void add_mount(RtLimits *limits, char *line)
{
    static const struct {
        const char *type, *controller;
        Read *read;
    } kinds[] = { { "cgroup2", "", read_version_2 },
                  { "cgroup", "cpu", read_processors_1 },
                  { "cgroup", "memory", read_memory_1 } };
    char *behind = strstr(line, " - "), root[4096], mount[4096], type[16], options[4096];
    if (!behind || sscanf(line, "%*s %*s %*s %4095s %4095s", root, mount) != 2 ||
        sscanf(behind, " - %15s %*s %4095s", type, options) != 2)
        return;
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(type, kinds[i].type) && (!*kinds[i].controller || lists(options, kinds[i].controller)))
            add_mounted(limits, mount, root, kinds[i].controller, kinds[i].read);
}

static void add_all_groups(RtLimits *limits)
{
    FILE *file = fopen("/proc/self/mountinfo", "r");
    char *line = NULL;
    size_t room = 0;
    while (file && getline(&line, &room, file) > 0)
        add_mount(limits, line);
    if (file)
        fclose(file);
    free(line);
}

/* --- The machine and the process ------------------------------------------------------------------- */

static uint64_t hash_of(const char *text)
{
    uint64_t hash = 0xCBF29CE484222325; /* FNV-1a */
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001B3;
    return hash;
}

static uint64_t machine_now(void)
{
    char name[256] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (!file || !fgets(name, sizeof name, file))
        gethostname(name, sizeof name - 1);
    if (file)
        fclose(file);
    return hash_of(name);
}

static void set_processor(RtLimits *limits, int number)
{
    if (number >= 0 && number < RT_MOST_PROCESSORS)
        limits->processors[number / 64] |= UINT64_C(1) << number % 64;
}

/* With OMP_PROC_BIND or OMP_PLACES, OpenMP has bound this thread to one place already: the places are the mask. */
static void find_processors(RtLimits *limits)
{
    for (int place = 0; place < omp_get_num_places(); place++) {
        const int count = omp_get_place_num_procs(place);
        int *number = rt_allocate(count, sizeof *number);
        omp_get_place_proc_ids(place, number);
        for (int i = 0; i < count; i++)
            set_processor(limits, number[i]);
        free(number);
    }
    const size_t bytes = sizeof limits->processors;
    cpu_set_t *mask = rt_allocate(1, (int64_t)bytes);
    if (omp_get_num_places() == 0 && !sched_getaffinity(0, bytes, mask))
        for (int i = 0; i < RT_MOST_PROCESSORS; i++)
            if (CPU_ISSET_S((size_t)i, bytes, mask))
                set_processor(limits, i);
    free(mask);
}

int64_t rt_files_raise(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return INT64_MAX;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    return (int64_t)limit.rlim_max;
}

RtLimits rt_limits(void)
{
    RtLimits limits = { .machine = machine_now(), .process_memory = INFINITY };
    limits.machine_memory = 1024 * number_in("/proc/meminfo", "MemAvailable:", INFINITY);
    struct rlimit limit;
    if (!getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur != RLIM_INFINITY)
        limits.process_memory = (double)limit.rlim_cur;
    find_processors(&limits);
    add_all_groups(&limits);
    return limits;
}
