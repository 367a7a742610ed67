/* fetch.c -- moves tensors between memory and the file of offloaded ones.  A thread performs started moves in their
 * order. */
#include "far/disk.h"
#include "far/space.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct {
    void *to;         /* NULL: to the file ... */
    const void *from; /* ... from here */
    int64_t offset, bytes;
    bool is_done;
} Transfer;

struct RtTransfers {
    const Rt *rt;
    Transfer *transfer; /* by number */
    int *queue;         /* a ring buffer of numbers, each at most once */
    int first, count, room;
    bool is_closing;
    pthread_t thread;
    pthread_mutex_t lock; /* protects all fields but rt */
    pthread_cond_t changed;
};

static int64_t offset_of(const Rt *rt, const void *address) { return (const char *)address - rt->arena; }

static void *run_queue(void *argument)
{
    struct RtTransfers *f = argument;
    pthread_mutex_lock(&f->lock);
    while (!f->is_closing) {
        if (f->count == 0) {
            pthread_cond_wait(&f->changed, &f->lock);
            continue;
        }
        Transfer *transfer = &f->transfer[f->queue[f->first]];
        pthread_mutex_unlock(&f->lock);
        if (transfer->to)
            rt_disk_read(f->rt, transfer->to, transfer->offset, transfer->bytes, true);
        else
            rt_disk_write(f->rt, transfer->offset, transfer->from, transfer->bytes, true);
        pthread_mutex_lock(&f->lock);
        f->first = (f->first + 1) % f->room;
        f->count--;
        transfer->is_done = true;
        pthread_cond_broadcast(&f->changed);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

static void start_thread(Rt *rt)
{
    struct RtTransfers *f = rt->far->transfers = rt_allocate(1, sizeof *f);
    f->rt = rt;
    f->room = rt->program->ntransfers + 1;
    f->transfer = rt_allocate(f->room, sizeof *f->transfer);
    f->queue = rt_allocate(f->room, sizeof *f->queue);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    if (pthread_create(&f->thread, NULL, run_queue, f))
        rt_fail("cannot start the thread that fetches offloaded tensors: too many threads or too little memory");
}

static void end_thread(Rt *rt)
{
    struct RtTransfers *f = rt->far->transfers;
    pthread_mutex_lock(&f->lock);
    f->is_closing = true;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    pthread_join(f->thread, NULL);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    free(f->transfer);
    free(f->queue);
    free(f);
}

void rt_far_open(Rt *rt, const char *folder)
{
    if (!rt->program->far_bytes)
        return;
    rt->far = rt_allocate(1, sizeof *rt->far);
    rt->far->disk = rt_disk_open(rt, folder);
    start_thread(rt);
}

void rt_far_close(Rt *rt)
{
    if (!rt->far)
        return;
    end_thread(rt);
    rt_disk_close(rt->far->disk);
    free(rt->far);
    rt->far = NULL;
}

int64_t rt_far_workspace_bytes(const Rt *rt) { return rt->far ? RT_FAR_BUFFERS * (int64_t)RT_FAR_BUFFER_BYTES : 0; }

/* --- For generated code ------------------------------------------------------------------------------------ */

static void start(Rt *rt, int id, Transfer transfer)
{
    struct RtTransfers *f = rt->far->transfers;
    pthread_mutex_lock(&f->lock);
    f->transfer[id] = transfer;
    f->queue[(f->first + f->count++) % f->room] = id;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    rt->far->moved += transfer.bytes;
}

void rt_fetch_start(Rt *rt, int id, void *to, const void *from, int64_t bytes)
{
    start(rt, id, (Transfer){ .to = to, .offset = offset_of(rt, from), .bytes = bytes });
}

void rt_offload_start(Rt *rt, int id, void *to, const void *from, int64_t bytes)
{
    start(rt, id, (Transfer){ .from = from, .offset = offset_of(rt, to), .bytes = bytes });
}

void rt_transfer_wait(Rt *rt, int id)
{
    struct RtTransfers *f = rt->far->transfers;
    const double from = rt_seconds();
    pthread_mutex_lock(&f->lock);
    while (!f->transfer[id].is_done)
        pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
    rt->far->waited += rt_seconds() - from;
}

void rt_fetch(Rt *rt, void *to, const void *from, int64_t bytes)
{
    const double begun = rt_seconds();
    rt_disk_read(rt, to, offset_of(rt, from), bytes, false);
    rt->far->moved += bytes;
    rt->far->waited += rt_seconds() - begun;
}

void rt_offload(Rt *rt, void *to, const void *from, int64_t bytes)
{
    const double begun = rt_seconds();
    rt_disk_write(rt, offset_of(rt, to), from, bytes, false);
    rt->far->moved += bytes;
    rt->far->waited += rt_seconds() - begun;
}
