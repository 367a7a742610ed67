/* message.c -- packs and unpacks messages on a GPU: NCCL needs contiguous messages, and a tensor's part for one rank
 * may not be contiguous (slots.h).  Such messages are packed into a workspace before, or unpacked from it afterwards,
 * by a kernel: one launch for all tensors and ranks of a collective (message.cuh).
 *
 * Positions are the same each time and are stored in tables in the GPU's memory. */
#include "message.h"
#include "gpu.h"
#include "sizes.h"

#include <stdlib.h>

enum { MOST_BLOCKS = 1024, BLOCK_BYTES = RT_MESSAGE_THREADS * 64 }; /* each thread copies some packs of 16 bytes */

/* The rows of the table for one collective, in one direction. */
typedef struct {
    int first, count;
} Rows;

struct RtGpuMessages {
    cudaKernel_t kernel;
    RtMessagePart *part, *table; /* the table on the host, and on the GPU */
    Rows *sent, *received;       /* by collective */
};

/* --- Memory ------------------------------------------------------------------------------------- */

int64_t rt_gpu_group_space(const Rt *rt, const RtGroup *group)
{
    int64_t most = 0;
    for (int i = 0; i < rt->program->ncollectives; i++) {
        const RtCollective *c = &rt->program->collectives[i];
        int64_t bytes = rt_comm_group(rt, c) == group ? rt_nccl_workspace(c, group->count) : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

static bool is_first_of_group(const Rt *rt, int id)
{
    const RtCollective *all = rt->program->collectives;
    for (int i = 0; i < id; i++)
        if (rt_comm_group(rt, &all[i]) == rt_comm_group(rt, &all[id]))
            return false;
    return true;
}

static int count_parts(const Rt *rt)
{
    const RtCollective *all = rt->program->collectives;
    int count = 0;
    for (int i = 0; i < rt->program->ncollectives; i++)
        count += rt_packed_parts(&all[i], rt_comm_group(rt, &all[i])->count);
    return count;
}

static int64_t tables_bytes(const Rt *rt) { return rt_gpu_tables_bytes(rt->program->ncollectives, count_parts(rt)); }

int64_t rt_gpu_message_bytes(const Rt *rt)
{
    int64_t bytes = tables_bytes(rt);
    for (int i = 0; i < rt->program->ncollectives; i++)
        bytes += is_first_of_group(rt, i) ? rt_gpu_group_space(rt, rt_comm_group(rt, &rt->program->collectives[i])) : 0;
    return bytes;
}

/* --- Tables ------------------------------------------------------------------------------------- */

static void add_part(RtMessagePart *part, const RtCollective *c, int piece, RtSlots slots, int ranks, int64_t *message)
{
    int64_t bytes = ranks * rt_slots_bytes(c->type, slots), blocks = (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
    int each = slots.zigzag ? 2 : 1;
    *part = (RtMessagePart){ .message = *message,
                             .rows = slots.rows,
                             .run = slots.run / each * rt_type_bytes(c->type),
                             .ranks = ranks,
                             .slots = each,
                             .blocks = (int)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS),
                             .piece = piece };
    *message += rt_gpu_aligned(bytes);
}

typedef RtSlots SlotsOf(RtCollectiveKind kind, const RtPiece *piece);

static Rows add_rows(RtMessagePart *table, int first, const RtCollective *c, SlotsOf *slots_of, int ranks,
                     int64_t *message)
{
    Rows rows = { .first = first };
    for (int i = 0; i < c->npieces; i++) {
        RtSlots slots = slots_of(c->kind, &c->piece[i]);
        if (!rt_is_packed(c->kind, c->type, slots, ranks))
            continue;
        add_part(&table[first + rows.count], c, i, slots, ranks, message);
        table[first + rows.count++].is_received = slots_of == rt_received_slots;
    }
    return rows;
}

char *rt_gpu_messages_open(Rt *rt, char *memory)
{
    const RtProgram *program = rt->program;
    struct RtGpuMessages *all = rt->gpu->messages = rt_allocate(1, sizeof *all);
    int count = count_parts(rt), rows = 0;
    all->part = rt_allocate(count, sizeof *all->part);
    all->sent = rt_allocate(program->ncollectives, sizeof *all->sent);
    all->received = rt_allocate(program->ncollectives, sizeof *all->received);
    for (int i = 0; i < program->ncollectives; i++) {
        const RtCollective *c = &program->collectives[i];
        int ranks = rt_comm_group(rt, c)->count;
        int64_t message = 0;
        all->sent[i] = add_rows(all->part, rows, c, rt_sent_slots, ranks, &message);
        all->received[i] = add_rows(all->part, rows + all->sent[i].count, c, rt_received_slots, ranks, &message);
        rows += all->sent[i].count + all->received[i].count;
    }
    all->table = (RtMessagePart *)(memory + rt_gpu_tables_bytes(program->ncollectives, 0));
    rt_gpu_upload(rt, all->table, all->part, (int64_t)count * (int64_t)sizeof *all->part);
    if (count > 0)
        all->kernel = rt_gpu_kernel(rt, "rt_messages");
    return memory + tables_bytes(rt);
}

void rt_gpu_messages_close(Rt *rt)
{
    struct RtGpuMessages *all = rt->gpu->messages;
    free(all->part);
    free(all->sent);
    free(all->received);
    free(all);
    rt->gpu->messages = NULL;
}

/* --- Copies ------------------------------------------------------------------------------------- */

static void launch(Rt *rt, cudaStream_t stream, Rows rows, char *workspace, const void *const tensors[],
                   RtGpuCount count)
{
    const struct RtGpuMessages *all = rt->gpu->messages;
    const RtMessagePart *part = &all->part[rows.first], *table = &all->table[rows.first];
    const void *tensor[RT_MESSAGE_TENSORS] = { NULL };
    void *arguments[4 + RT_MESSAGE_TENSORS] = { (void *)&table, (void *)&workspace, &count.at, &count.shown };
    unsigned blocks = 0;
    for (int i = 0; i < RT_MESSAGE_TENSORS; i++) {
        arguments[4 + i] = (void *)&tensor[i];
        if (i < rows.count) {
            tensor[i] = tensors[part[i].piece];
            blocks += (unsigned)part[i].blocks;
        }
    }
    rt_gpu_check(rt,
                 cudaLaunchKernel((const void *)all->kernel, (dim3){ blocks, 1, 1 }, (dim3){ RT_MESSAGE_THREADS, 1, 1 },
                                  arguments, 0, stream),
                 "copy parts of messages");
}

/* The first launch counts. */
static bool launch_all(Rt *rt, cudaStream_t stream, Rows rows, char *workspace, const void *const tensors[],
                       RtGpuCount count)
{
    for (int i = 0; i < rows.count; i += RT_MESSAGE_TENSORS) {
        int left = rows.count - i;
        Rows some = { rows.first + i, left < RT_MESSAGE_TENSORS ? left : RT_MESSAGE_TENSORS };
        launch(rt, stream, some, workspace, tensors, i == 0 ? count : (RtGpuCount){ NULL, NULL });
    }
    return rows.count > 0;
}

static void find_messages(const struct RtGpuMessages *all, const RtCollective *c, Rows rows, char *workspace,
                          const void *const tensors[], char *messages[])
{
    for (int i = 0; i < c->npieces; i++)
        messages[i] = (char *)(uintptr_t)tensors[i];
    for (const RtMessagePart *p = &all->part[rows.first]; p < &all->part[rows.first + rows.count]; p++)
        messages[p->piece] = workspace + p->message;
}

bool rt_gpu_pack(Rt *rt, int id, cudaStream_t stream, char *workspace, const void *const in[], char *messages[],
                 RtGpuCount count)
{
    const struct RtGpuMessages *all = rt->gpu->messages;
    find_messages(all, &rt->program->collectives[id], all->sent[id], workspace, in, messages);
    return launch_all(rt, stream, all->sent[id], workspace, in, count);
}

void rt_gpu_expect(const Rt *rt, int id, char *workspace, void *const out[], char *messages[])
{
    const struct RtGpuMessages *all = rt->gpu->messages;
    find_messages(all, &rt->program->collectives[id], all->received[id], workspace, (const void *const *)out, messages);
}

bool rt_gpu_unpack(Rt *rt, int id, cudaStream_t stream, char *workspace, void *const out[], RtGpuCount count)
{
    return launch_all(rt, stream, rt->gpu->messages->received[id], workspace, (const void *const *)out, count);
}

/* --- Messages where others are -------------------------------------------------------------------- */

/* The bytes of the messages to or from all ranks; all of a tensor is one. */
static uintptr_t bytes_of(const RtCollective *c, RtSlots slots, int ranks)
{
    return (uintptr_t)(rt_slots_bytes(c->type, slots) * (slots.all ? 1 : ranks));
}

bool rt_gpu_writes_over(const RtCollective *c, int ranks, int first, int piece, char *const to[], char *const from[])
{
    const uintptr_t written = (uintptr_t)from[piece];
    const uintptr_t end = written + bytes_of(c, rt_received_slots(c->kind, &c->piece[piece]), ranks);
    for (int i = first; i < piece; i++) {
        const uintptr_t read = (uintptr_t)to[i];
        if (read < end && written < read + bytes_of(c, rt_sent_slots(c->kind, &c->piece[i]), ranks))
            return true;
    }
    return false;
}
