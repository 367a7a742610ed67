/* near.c -- runs a rank on the processors near its GPU.  Memory is allocated near the processor that first writes it,
 * and threads inherit processors, so pinned memory, copies and launches are near the GPU as well.  On a machine with
 * several sockets the way from another one is longer and narrower. */
#include "gpu.h"

#include <ctype.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first line of a file of the system; false if there is none. */
static bool read_line(const char *path, char *line, int size)
{
    FILE *file = fopen(path, "r");
    const bool has_line = file && fgets(line, size, file);
    if (file)
        fclose(file);
    return has_line;
}

/* The number of the node of memory and processors that the GPU is attached to; -1: unknown. */
static int node_of(const struct RtGpu *gpu)
{
    char id[32], line[32] = "";
    if (cudaDeviceGetPCIBusId(id, sizeof id, gpu->number) != cudaSuccess)
        return -1;
    for (char *c = id; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    char *path = rt_text("/sys/bus/pci/devices/%s/numa_node", id);
    const int node = read_line(path, line, sizeof line) ? atoi(line) : -1;
    free(path);
    return node;
}

/* Adds processors from a list such as "0-15,32-47". */
static void add_processors(const char *list, cpu_set_t *set)
{
    for (char *end; isdigit((unsigned char)*list); list = *end == ',' ? end + 1 : end) {
        const long first = strtol(list, &end, 10), last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        for (long i = first; i <= last && i < CPU_SETSIZE; i++)
            CPU_SET((size_t)i, set);
    }
}

void rt_gpu_stay_near(const Rt *rt)
{
    char list[4096];
    cpu_set_t near, allowed;
    CPU_ZERO(&near);
    const int node = node_of(rt->gpu);
    char *path = rt_text("/sys/devices/system/node/node%d/cpulist", node);
    const bool is_known = node >= 0 && read_line(path, list, sizeof list);
    free(path);
    if (!is_known || sched_getaffinity(0, sizeof allowed, &allowed))
        return;
    add_processors(list, &near);
    CPU_AND(&near, &near, &allowed);
    /* None or all of those that it may use: a launcher has chosen. */
    if (CPU_COUNT(&near) == 0 || CPU_EQUAL(&near, &allowed) || sched_setaffinity(0, sizeof near, &near))
        return;
    rt_note("%s is near processors %.*s: rank %d runs there", rt->gpu->name, (int)strcspn(list, "\n"), list, rt->rank);
}
