/* deal.c -- see deal.h. */
#include "deal.h"

#include "mesh/comm.h"

#include <stdlib.h>

typedef struct {
    RtView view;
    uint64_t home; /* the rank that has its first element and comes first of those; in a pipeline it says the stage */
    int place;     /* in the order of the program */
} DealtTensor;

static bool has_first_element(const RtView *view)
{
    RtRanges ranges = rt_ranges(view);
    RtRange range;
    return view->is_owner && rt_next_range(&ranges, &range) && range.whole == 0;
}

static int by_home(const void *a, const void *b)
{
    const DealtTensor *x = a, *y = b;
    return x->home != y->home ? (x->home > y->home) - (x->home < y->home) : x->place - y->place;
}

static void sort_by_home(Rt *rt, RtView *views, uint64_t *homes, int count)
{
    DealtTensor *dealt = rt_allocate(count, sizeof *dealt);
    for (int i = 0; i < count; i++)
        homes[i] = has_first_element(&views[i]) ? (uint64_t)rt->rank : 0;
    rt_comm_add(rt, homes, count);
    for (int i = 0; i < count; i++)
        dealt[i] = (DealtTensor){ views[i], homes[i], i };
    qsort(dealt, (size_t)count, sizeof *dealt, by_home);
    for (int i = 0; i < count; i++) {
        views[i] = dealt[i].view;
        homes[i] = dealt[i].home;
    }
    free(dealt);
}

static int64_t elements(const RtView *views, int count)
{
    int64_t sum = 0;
    for (int i = 0; i < count; i++)
        sum += views[i].count;
    return sum;
}

/* Deals views first to end - 1, which have one home, to `files` files, of which those without a tensor are left out. */
static int deal_home(const RtView *views, int first, int end, int files, RtShare *share)
{
    const double all = (double)elements(views + first, end - first);
    int count = 0, last = -1;
    double before = 0;
    for (int i = first; i < end; before += (double)views[i++].count) {
        const int file = (int)((before + 0.5 * (double)views[i].count) / all * files);
        if (file != last)
            share[count++] = (RtShare){ .first = i };
        share[count - 1].count++;
        last = file;
    }
    return count;
}

RtShare *rt_deal(Rt *rt, RtView *views, int count, int files, int *dealt)
{
    uint64_t *homes = rt_allocate(count, sizeof *homes);
    RtShare *shares = rt_allocate(count, sizeof *shares);
    sort_by_home(rt, views, homes, count);
    const double all = (double)elements(views, count);
    *dealt = 0;
    for (int first = 0, end; first < count; first = end) {
        for (end = first; end < count && homes[end] == homes[first]; end++)
            ;
        const double portion = (double)elements(views + first, end - first) / all;
        const int own = (int)(portion * files + 0.5);
        *dealt += deal_home(views, first, end, own > 1 ? own : 1, shares + *dealt);
    }
    for (int file = 0; file < *dealt; file++)
        for (int i = shares[file].first; i < shares[file].first + shares[file].count; i++)
            views[i].is_owner = rt_view_falls_to(rt, &views[i], file);
    free(homes);
    return shares;
}
