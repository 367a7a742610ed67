/* index.c -- bad indices.  A kernel cannot end the trainer in a parallel loop: it records one bad index, and the
 * trainer checks for it after the function. */
#include "index.h"

#include "state.h"

#include <stdatomic.h>

static struct {
    atomic_flag is_claimed;
    atomic_bool is_found;
    int64_t index, size;
    const char *dim, *where;
} bad = { .is_claimed = ATOMIC_FLAG_INIT };

void rt_index_out_of_range(int64_t index, int64_t size, const char *dim, const char *where);

void rt_index_out_of_range(int64_t index, int64_t size, const char *dim, const char *where)
{
    if (atomic_flag_test_and_set(&bad.is_claimed))
        return;
    bad.index = index;
    bad.size = size;
    bad.dim = dim;
    bad.where = where;
    atomic_store(&bad.is_found, true);
}

void rt_index_refuse(int64_t index, int64_t size, const char *dim, const char *where)
{
    rt_fail(
        "%s: index %lld of dim '%s' is out of range: it must be from 0 to %lld; fix the expression that computes it "
        "(nothing was saved from this step on)",
        where, (long long)index, dim, (long long)size - 1);
}

void rt_index_check(void)
{
    if (atomic_load(&bad.is_found))
        rt_index_refuse(bad.index, bad.size, bad.dim, bad.where);
}
