/* save_files.c -- see save_files.h. */
#include "save_files.h"

#include "lock.h"
#include "mesh/comm.h"
#include "safetensors.h"
#include "shards.h"
#include "weights.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>

/* Tensors of whole pages come first: ranks that write parts of them share no page, so that they write past the cache
 * (output.c) and do not wait for each other. */
static void put_whole_pages_first(RtView *views, int count)
{
    enum { PAGE = 4096 };
    RtView *others = rt_allocate(count, sizeof *others);
    int whole = 0, rest = 0;
    for (int i = 0; i < count; i++)
        if (4 * views[i].count % PAGE)
            others[rest++] = views[i];
        else
            views[whole++] = views[i];
    memcpy(views + whole, others, (size_t)rest * sizeof *views);
    free(others);
}

RtSaveFiles rt_save_files_open(const char *path, Rt *rt, int files)
{
    RtSaveFiles f = { .rt = rt, .path = path, .has_index = rt_is_index(path) };
    f.views = rt_views(rt, &f.count);
    if (f.has_index) {
        f.share = rt_deal(rt, f.views, f.count, files, &f.shares);
    } else {
        put_whole_pages_first(f.views, f.count);
        f.share = rt_allocate(1, sizeof *f.share);
        f.share[f.shares++].count = f.count;
    }
    f.head = rt_allocate(f.shares, sizeof *f.head);
    f.name = rt_allocate(f.shares + 1, sizeof *f.name);
    return f;
}

void rt_save_files_close(RtSaveFiles *files)
{
    rt_views_free(files->views, files->count);
    free(files->share);
    free(files->head);
    free(files->name);
}

static int64_t bytes_of(const RtSaveFiles *files, const RtShare *share)
{
    int64_t bytes = 0;
    for (int i = share->first; i < share->first + share->count; i++)
        bytes += 4 * files->views[i].count;
    return bytes;
}

int64_t rt_save_files_most(const RtSaveFiles *files)
{
    int64_t most = 0;
    for (const RtShare *share = files->share; share < files->share + files->shares; share++) {
        const int64_t bytes = bytes_of(files, share);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* --- Names and heads ---------------------------------------------------------------------------- */

static char *head_of(const RtSaveFiles *files, int number, const char *const *metadata, int64_t *bytes)
{
    const RtShare *share = &files->share[number];
    return rt_safetensors_header(files->views + share->first, share->count, metadata, bytes);
}

/* The rest of what is said of a save is in the index. */
static char *head_of_part(const RtSaveFiles *files, int number, int64_t step, int64_t *bytes)
{
    char *text = rt_text("%lld", (long long)step), *part = rt_text("%d of %d", number + 1, files->shares);
    const char *const metadata[] = { "format", "mpc", "model", files->rt->program->name, "step", text,
                                     "part",   part,  NULL };
    char *head = head_of(files, number, metadata, bytes);
    free(part);
    free(text);
    return head;
}

static void take_part_error(RtSaveFiles *files)
{
    if (!files->output.error)
        files->output.error = files->shard_file.error;
}

/* The first rank creates each with its head. */
static void begin_parts(RtSaveFiles *files, int64_t step)
{
    for (int i = 0; i < files->shares; i++) {
        char *head = head_of_part(files, i, step, &files->head[i]);
        if (files->rt->rank == 0 && !files->output.error) {
            files->shard_file = rt_output_beside(files->name[i], true);
            rt_output_write(&files->shard_file, head, files->head[i]);
            rt_save_files_turned(files);
        }
        free(head);
    }
    rt_save_files_require(files);
}

/* The first rank sees which names there are. */
static void name_all(RtSaveFiles *files, int64_t step)
{
    char *target = rt_output_target(files->path);
    const int seen = files->rt->rank == 0 ? rt_shards_generation(target, step) : 0;
    const int generation = (int)rt_comm_max(files->rt, seen);
    for (int i = 0; i < files->shares; i++)
        files->name[i] = rt_shard_path(target, step, generation, i, files->shares);
    free(target);
}

void rt_save_files_begin(RtSaveFiles *files, int64_t step, const char *const *metadata)
{
    const bool is_first = files->rt->rank == 0;
    files->output = (RtOutput){ 0 };
    if (files->has_index)
        name_all(files, step);
    if (is_first) {
        files->output = rt_output_open(files->path, "--save");
        rt_lock_mark(&files->output, files->name);
    }
    if (files->has_index)
        begin_parts(files, step);
    else
        free(head_of(files, 0, metadata, files->head));
    rt_comm_barrier(files->rt);
    if (!is_first)
        files->output = rt_output_join(files->path, "--save");
    rt_comm_barrier(files->rt); /* a rank that fails to write removes the file; all have opened it by now */
}

/* --- Writing ------------------------------------------------------------------------------------ */

void rt_save_files_reserve(RtSaveFiles *files)
{
    if (files->rt->rank == 0 && !files->has_index)
        rt_output_reserve(&files->output, files->head[0] + bytes_of(files, &files->share[0]));
}

/* A rank that cannot write removes the files and ends all ranks.  One that finds a file gone lets it say why. */
enum { SECONDS_OF_ANOTHER = 5 };

RtOutput *rt_save_files_turn_to(RtSaveFiles *files, int number)
{
    if (!files->has_index)
        return &files->output;
    files->shard_file = rt_output_beside(files->name[number], false);
    if (files->shard_file.error == ENOENT)
        sleep(SECONDS_OF_ANOTHER);
    return &files->shard_file;
}

void rt_save_files_turned(RtSaveFiles *files)
{
    if (!files->has_index)
        return;
    rt_output_finish(&files->shard_file);
    take_part_error(files);
}

void rt_save_files_finish(RtSaveFiles *files)
{
    if (files->rt->rank > 0)
        rt_output_finish(&files->output);
}

static const char *name_within_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

void rt_save_files_complete(RtSaveFiles *files, const char *const *metadata)
{
    if (!files->has_index) {
        int64_t bytes;
        char *head = head_of(files, 0, metadata, &bytes);
        rt_output_seek(&files->output, 0);
        rt_output_write(&files->output, head, bytes);
        free(head);
        return;
    }
    const char **file = rt_allocate(files->count, sizeof *file);
    for (int i = 0; i < files->shares; i++)
        for (int k = 0; k < files->share[i].count; k++)
            file[files->share[i].first + k] = name_within_folder(files->name[i]);
    char *text = rt_index_text(files->views, files->count, file, metadata);
    rt_output_settle(files->output.target); /* no index is there before what it names */
    rt_output_write(&files->output, text, (int64_t)strlen(text));
    free(text);
    free(file);
}

/* --- End ---------------------------------------------------------------------------------------- */

static void remove_parts(const RtSaveFiles *files)
{
    for (char **name = files->name; *name; name++)
        unlink(*name);
}

void rt_save_files_require(const RtSaveFiles *files)
{
    if (files->output.error)
        remove_parts(files);
    rt_output_require(&files->output);
}

void rt_save_files_discard(RtSaveFiles *files)
{
    remove_parts(files);
    rt_output_discard(&files->output);
}

void rt_save_files_leave(RtSaveFiles *files)
{
    rt_output_leave(&files->output);
    for (char **name = files->name; *name; name++) {
        free(*name);
        *name = NULL;
    }
}
