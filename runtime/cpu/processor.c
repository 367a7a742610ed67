/* processor.c -- the CPU as the device: the arena is host memory. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, madvise */
#include "device.h"
#include "far/disk.h"

#include "index.h"

#include <string.h>

#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

static _Noreturn void refuse(const Rt *rt, const char *why)
{
    const RtProgram *program = rt->program;
    const bool shares = rt->local_ranks > 1;
    char *each = shares ? rt_text(" for each of %d ranks here", rt->local_ranks) : rt_text("%s", "");
    rt_fail("out of memory: '%s' is planned to need %s%s, and %s are available%s%s; 'mpc report' "
            "of the model, with its options and --memory=%.0f, says what helps",
            program->name, rt_bytes_text((double)rt_arena_bytes(rt)).text, each, rt_bytes_text(rt->share.memory).text,
            shares ? " to each" : "", why, rt->share.memory);
}

/* 2 MB-aligned.  Addresses of other tiers, behind it, are taken but not accessible. */
static char *map_arena(const Rt *rt)
{
    if ((double)rt_arena_bytes(rt) > rt->share.memory)
        refuse(rt, "");
    const RtProgram *program = rt->program;
    const size_t own = (size_t)rt_arena_bytes(rt);
    const size_t all = program->far_bytes ? (size_t)(program->far_begin + program->far_bytes) : own;
    char *map = mmap(NULL, all + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uintptr_t skip = -(uintptr_t)map & (HUGE_PAGE - 1);
    if (map == MAP_FAILED || mprotect(map + skip, own, PROT_READ | PROT_WRITE))
        refuse(rt, " (but the system refuses to map them)");
    /* Only advice: without huge pages it is slower, but correct. */
    madvise(map + skip, (size_t)rt_arena_bytes(rt), MADV_HUGEPAGE);
    return map + skip;
}

void rt_device_open(Rt *rt, RtDeviceOptions options) {}
void rt_arena_open(Rt *rt) { rt->arena = map_arena(rt); }
void rt_device_close(Rt *rt) {}

void rt_zero(Rt *rt, int64_t offset, int64_t bytes)
{
    if (rt_is_far(rt, offset))
        rt_disk_zero(rt, offset, bytes);
    else
        memset(rt->arena + offset, 0, (size_t)bytes);
}

void rt_download(const Rt *rt, void *to, int64_t offset, int64_t bytes)
{
    memcpy(to, rt->arena + offset, (size_t)bytes);
}

void *rt_upload_place(Rt *rt, int64_t offset, int64_t bytes) { return rt->arena + offset; }

char *rt_window_open(const Rt *rt, int64_t offset, int64_t bytes)
{
    return rt_is_far(rt, offset) ? rt_disk_window_open(rt, offset, bytes) : rt->arena + offset;
}

void rt_window_close(const Rt *rt, char *window, int64_t offset, int64_t bytes, bool is_changed)
{
    if (rt_is_far(rt, offset))
        rt_disk_window_close(rt, window, offset, bytes, is_changed);
}

void rt_run(Rt *rt, const RtFunction *f)
{
    f->run(rt, rt->arena);
    rt_index_check();
}

void rt_run_action(Rt *rt, const RtPipeline *p, RtAction action, int chunk, int64_t micro, char *arena)
{
    p->action[action][chunk](rt, arena, micro);
}

bool rt_defers_pipeline(Rt *rt, const RtPipeline *p) { return false; }

double rt_mark(Rt *rt) { return rt_seconds(); }
double rt_time_of_mark(Rt *rt, double mark) { return mark; }
