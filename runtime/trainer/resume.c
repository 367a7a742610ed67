/* resume.c -- --resume: chooses the checkpoint from which a run goes on.  The newest is the file of --save; the others
 * are those of --keep.  A damaged one is passed over.  If all are damaged the run ends, since a new one would write
 * over files that may still be of use. */
#include "train.h"

#include "mesh/comm.h"

#include <stdlib.h>
#include <string.h>

#include <sys/stat.h>

/* In place of the step in a name. */
enum { NONE = -1, FILE_OF_SAVE = -2 };

/* By the first rank alone: others may see a folder on a network a moment later. */
typedef struct {
    const char *path;
    int64_t *kept; /* steps, the newest first */
    int count, next;
    bool has_begun;
} Candidates;

static bool is_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* The newest kept one is the file of --save under another name. */
static int64_t next_kept(Candidates *c)
{
    while (c->next < c->count) {
        const int64_t step = c->kept[c->next++];
        char *name = rt_keep_name(c->path, step);
        const bool is_other = !is_same_file(name, c->path);
        free(name);
        if (is_other)
            return step;
    }
    return NONE;
}

static int64_t next_candidate(Candidates *c)
{
    struct stat info;
    const bool is_first = !c->has_begun;
    c->has_begun = true;
    return is_first && !stat(c->path, &info) ? FILE_OF_SAVE : next_kept(c);
}

/* The first rank's, on all; owned by the caller.  NULL: there is none. */
static char *agreed_name(Rt *rt, const char *path, int64_t candidate)
{
    int64_t *all = rt_allocate(rt->ranks, sizeof *all);
    rt_comm_gather(rt, &candidate, sizeof candidate, (char *)all);
    const int64_t first = rt->ranks > 1 ? all[0] : candidate;
    free(all);
    return first == FILE_OF_SAVE ? rt_text("%s", path) : first == NONE ? NULL : rt_keep_name(path, first);
}

/* The whole state of the run is in that file. */
static void go_on_from(RtRun *run, char *path)
{
    RtOptions *o = &run->options;
    free(run->resumed);
    o->load = run->resumed = path;
    o->weights_only = false;
    o->load_missing = "fail";
    o->load_part = NULL;
}

void rt_resume(RtRun *run)
{
    const char *path = run->options.save;
    Rt *rt = &run->rt;
    Candidates candidates = { .path = path };
    int passed = 0;
    if (rt->rank == 0)
        candidates.kept = rt_keep_list(path, &candidates.count);
    for (char *name; (name = agreed_name(rt, path, rt->rank ? NONE : next_candidate(&candidates))); passed++) {
        char *fault = rt_checkpoint_fault(name, rt);
        if (!fault) {
            go_on_from(run, name);
            break;
        }
        rt_note("note: --resume passes over %s: %s", name, fault);
        free(fault);
        free(name);
    }
    free(candidates.kept);
    if (!run->resumed && passed)
        rt_fail("--resume: no checkpoint of --save %s is whole (%d passed over); move %s away to begin anew", path,
                passed, passed > 1 ? "them" : "it");
    if (!run->resumed)
        rt_note("--resume: there is no checkpoint %s yet: %s", path,
                run->options.load ? "the run begins from --load" : "a new run");
}
