/* pace.c -- see pace.h.  All ranks have the same numbers, and so the same opinion. */
#include "pace.h"

#include "mesh/comm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    double number, work, waited;
} News;

void rt_pace_open(RtPace *pace, const Rt *rt)
{
    pace->waited = rt_allocate(rt->ranks, sizeof *pace->waited);
    pace->late = rt_allocate(rt->ranks, sizeof *pace->late);
    pace->work = rt_allocate(rt->ranks, sizeof *pace->work);
    pace->worked = rt_allocate(rt->ranks, sizeof *pace->worked);
    pace->is_told = rt_allocate(rt->ranks, sizeof *pace->is_told);
}

void rt_pace_close(RtPace *pace)
{
    free(pace->waited);
    free(pace->late);
    free(pace->work);
    free(pace->worked);
    free(pace->is_told);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of an even number the lower of the two in the middle, so that one of two ranks may be slow. */
static double median_of(const double *numbers, int count)
{
    double *sorted = rt_allocate(count, sizeof *sorted);
    memcpy(sorted, numbers, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, compare);
    const double median = sorted[(count - 1) / 2];
    free(sorted);
    return median;
}

static void find_late(RtPace *pace, int ranks)
{
    const double median = median_of(pace->work, ranks);
    for (int rank = 0; rank < ranks; rank++) {
        pace->worked[rank] += pace->work[rank];
        pace->late[rank] = fmax(pace->work[rank] - median, 0);
    }
}

double rt_pace_gather(RtPace *pace, Rt *rt, double number, double seconds, double waited)
{
    const News own = { number, seconds - waited, waited + pace->between };
    const double begin = rt_seconds();
    News *all = rt_allocate(rt->ranks, sizeof *all);
    rt_comm_gather(rt, &own, sizeof own, (char *)all);
    pace->between = rt_seconds() - begin;
    pace->ranks = rt->ranks > 1 && !isnan(waited) ? rt->ranks : 0;
    for (int rank = 0; rank < rt->ranks; rank++) {
        number = fmax(number, all[rank].number);
        pace->waited[rank] = all[rank].waited;
        pace->work[rank] = all[rank].work;
    }
    free(all);
    return number;
}

static void tell(const Rt *rt, int rank, const char *host, double factor, int64_t steps, int64_t step)
{
    char *place = rt_comm_place(rt, rank);
    rt_note("note: steps %lld to %lld: %s on %s takes %.2f times as long as the median rank for its own work, and "
            "others wait for it",
            (long long)(step - steps + 1), (long long)step, place, host, factor);
    free(place);
}

static void tell_slow(RtPace *pace, Rt *rt, int64_t step)
{
    enum { ROOM = 64 };
    const double slow = 1.2, median = median_of(pace->worked, rt->ranks);
    char own[ROOM] = "", *hosts = rt_allocate(rt->ranks, ROOM);
    gethostname(own, sizeof own - 1);
    rt_comm_gather(rt, own, ROOM, hosts);
    for (int rank = 0; rank < rt->ranks; rank++) {
        rt_comm_clean(hosts + rank * ROOM, ROOM);
        if (pace->worked[rank] <= slow * median || pace->is_told[rank])
            continue;
        tell(rt, rank, hosts + rank * ROOM, pace->worked[rank] / median, pace->steps, step);
        pace->is_told[rank] = true;
    }
    free(hosts);
}

void rt_pace_count(RtPace *pace, Rt *rt, int64_t step)
{
    enum { STEPS = 50 };
    if (!pace->ranks)
        return;
    find_late(pace, pace->ranks);
    if (++pace->steps < STEPS)
        return;
    tell_slow(pace, rt, step);
    memset(pace->worked, 0, (size_t)rt->ranks * sizeof *pace->worked);
    pace->steps = 0;
}
