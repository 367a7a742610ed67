/* message.c -- descriptions of collectives for the runtime, and their memory there. */
#include "host_parts.h"

#include "filled.h"
#include "flight.h"
#include "ir/cost/cost.h"
#include "runtime/cuda/sizes.h"
#include "runtime/far/space.h"
#include "split_loop.h"
#include "tier.h"

#include <string.h>

/* --- One collective -------------------------------------------------------------------------------- */

int64_t count_between(const Module *m, const Type *type, int first, int end)
{
    int64_t count = 1;
    for (int i = first; i < end; i++)
        count *= local_size(m, &type->dim[i]);
    return count;
}

static bool is_stack(const Type *type) { return type->rank && type->dim[0].split.parts; }

/* The runtime deals two blocks to each rank: 2p of them are p times as many rows of two. */
static int64_t pairs_of(int blocks) { return blocks ? blocks / 2 : 1; }

static RtPiece piece_of(const Module *m, const Op *op)
{
    const Type *x = &arg(op, 0)->type, *y = &result(op)->type;
    int at = op->attrs.dim ? find_dim(x, op->attrs.dim) : -1, to = op->attrs.to ? find_dim(x, op->attrs.to) : -1;
    if (at < 0)
        return (RtPiece){ .outer = is_stack(x) ? local_size(m, &x->dim[0]) : 1,
                          .block = count_between(m, x, is_stack(x), x->rank) };
    if (op->kind == OP_rotate) /* all of it */
        return (RtPiece){ .outer = 1, .block = count_between(m, x, 0, x->rank) };
    const Dim *split = op->attrs.zigzag || op->kind == OP_reduce_scatter ? &y->dim[at] : &x->dim[at]; /* in blocks */
    if (op->kind != OP_all_to_all) {
        const int64_t pairs = split->split.count == 1 ? pairs_of(split->zigzag) : 1;
        return (RtPiece){ .outer = pairs * count_between(m, x, 0, at),
                          .block = count_between(m, op->kind == OP_all_gather ? x : y, at, x->rank) / pairs,
                          .zigzag = split->zigzag && split->split.count == 1 };
    }
    const int first = at < to ? at : to, second = at < to ? to : at;
    const int gathered = y->dim[at].split.count ? 0 : x->dim[at].zigzag, cut = op->attrs.zigzag;
    const int64_t pairs = pairs_of(gathered), cut_pairs = pairs_of(cut);
    return (RtPiece){ .outer = count_between(m, x, 0, first) * (at < to ? pairs : cut_pairs),
                      .block = local_size(m, &x->dim[at]) / pairs,
                      .middle = count_between(m, x, first + 1, second) * (at < to ? cut_pairs : pairs),
                      .cut = local_size(m, &y->dim[to]) / cut_pairs,
                      .inner = count_between(m, x, second + 1, x->rank),
                      .gathers_first = at < to,
                      .zigzag = gathered,
                      .zigzag_cut = cut };
}

static int64_t *copies_of_ranks(Module *m, const Dim *dim)
{
    const int64_t ranks = split_count(m, dim->split);
    int64_t *copies = NEW_ARRAY(&m->arena, int64_t, ranks);
    for (int64_t i = 0; i < ranks; i++)
        copies[i] = part_size(m, dim, i);
    return copies;
}

/* The piece of a stack for ranks of one kind; -1: for one copy, with the numbers of copies of all kinds. */
static RtPiece piece_on(Module *m, const Op *op, int kind)
{
    const Type *x = &arg(op, 0)->type;
    RtPiece piece = piece_of(m, op);
    if (!is_stack(x))
        return piece;
    const Dim *dim = &x->dim[0];
    piece.outer = piece.outer / local_size(m, dim) * (kind < 0 ? 1 : part_size(m, dim, kind));
    piece.copies = kind < 0 ? copies_of_ranks(m, dim) : NULL;
    piece.along = dim->split.axis[0];
    return piece;
}

/* The axes of the group, outermost first: in the order of the split that the collective removes or adds. */
static void find_axes(const Module *m, const Op *op, RtCollective *c)
{
    const Type *x = &arg(op, 0)->type, *y = &result(op)->type;
    int at = op->attrs.dim ? find_dim(x, op->attrs.dim) : -1;
    const Split *split = at < 0 ? NULL : op->kind == OP_reduce_scatter ? &y->dim[at].split : &x->dim[at].split;
    for (int i = 0; i < (split ? split->count : m->naxes); i++) {
        int axis = split ? split->axis[i] : i;
        if (op->attrs.axis >> axis & 1)
            c->axis[c->naxes++] = axis;
    }
}

RtCollective message_between(Module *m, const Type *type, int axis)
{
    RtPiece *piece = NEW(&m->arena, RtPiece);
    *piece = (RtPiece){ .outer = 1, .block = count_between(m, type, 0, type->rank) };
    return (RtCollective){ .kind = RT_SEND,
                           .type = element_rt_type(type->dtype),
                           .naxes = 1,
                           .axis = { axis },
                           .piece = piece,
                           .npieces = 1 };
}

/* Rows of experts, which tokens fill in part? */
static bool has_filled_dim(Module *m, const Type *type)
{
    for (int i = 0; i < type->rank; i++)
        if (filled_by(m, type->dim[i].name))
            return true;
    return false;
}

const CollectiveKind collective_kinds[] = {
    [RT_ALL_REDUCE] = { OP_all_reduce, "RT_ALL_REDUCE" },
    [RT_ALL_GATHER] = { OP_all_gather, "RT_ALL_GATHER" },
    [RT_REDUCE_SCATTER] = { OP_reduce_scatter, "RT_REDUCE_SCATTER" },
    [RT_ALL_TO_ALL] = { OP_all_to_all, "RT_ALL_TO_ALL" },
    [RT_SEND] = { OP_send, "RT_SEND" },
    [RT_ROTATE] = { OP_rotate, "RT_ROTATE" },
};

static RtCollectiveKind kind_of(const Op *op)
{
    int kind = 0;
    while (collective_kinds[kind].op != op->kind)
        kind++;
    return (RtCollectiveKind)kind;
}

RtCollective collective_of(Module *m, const Op *const ops[], int count, int kind)
{
    const Op *first = ops[0];
    const Type *type = &arg(first, 0)->type;
    if (info(first)->traits & MOVES)
        return message_between(m, type, first->attrs.on.axis);
    RtPiece *piece = NEW_ARRAY(&m->arena, RtPiece, count);
    for (int i = 0; i < count; i++)
        piece[i] = piece_on(m, ops[i], kind);
    RtCollective c = { .kind = kind_of(first),
                       .turn = first->kind == OP_rotate ? (int)first->attrs.index : 0,
                       .type = element_rt_type(type->dtype),
                       .maximum = type->by == BY_MAX && type->partial,
                       .piece = piece,
                       .npieces = count };
    find_axes(m, first, &c);
    for (int i = 0; i < count && c.kind != RT_ALL_REDUCE && c.kind != RT_ROTATE; i++)
        c.gaps |= has_filled_dim(m, &arg(ops[i], 0)->type);
    if (type->on.at && first->attrs.axis >> type->on.axis & 1)
        c.stages = type->on.at;
    return c;
}

int find_bucket(const Op *first, const Op *ops[MOST_PIECES])
{
    int count = 0;
    const Op *op = first;
    do {
        ops[count++] = op;
        op = op->next;
    } while (op && count < MOST_PIECES && is_one_message(first, op));
    return count;
}

/* --- Memory ------------------------------------------------------------------------------------------ */

/* Collectives that share a workspace: on a processor all of them, on a GPU those over the same axes. */
typedef struct Sharing {
    RtCollective first;
    int64_t bytes;
    struct Sharing *next;
} Sharing;

typedef struct {
    Module *m;
    int collectives, parts; /* messages assembled from parts, and the tables of these parts */
    Sharing *sharing;
} Space;

static Sharing *sharing_of(Space *s, const RtCollective *c)
{
    Sharing *at = s->sharing;
    while (at && s->m->target->is_gpu &&
           (at->first.naxes != c->naxes || memcmp(at->first.axis, c->axis, sizeof c->axis) != 0 ||
            at->first.stages != c->stages))
        at = at->next;
    if (at)
        return at;
    at = NEW(&s->m->arena, Sharing);
    *at = (Sharing){ .first = *c, .next = s->sharing };
    return s->sharing = at;
}

static void add_collective(Space *s, const RtCollective *c, const Op *op)
{
    int64_t ranks = c->stages ? __builtin_popcountll(c->stages) : count_ranks(s->m, op->attrs.axis);
    int64_t bytes = s->m->target->is_gpu ? rt_nccl_workspace(c, ranks) : rt_exchange_workspace(c, ranks);
    Sharing *sharing = sharing_of(s, c);
    sharing->bytes = bytes > sharing->bytes ? bytes : sharing->bytes;
    s->collectives++;
    s->parts += rt_packed_parts(c, ranks);
}

/* Have ranks of this kind stacks of other sizes than those of the one before? */
static bool has_other_copies(const Module *m, const Op *const ops[], int count, int kind)
{
    bool differs = false;
    for (int i = 0; i < count; i++) {
        const Type *type = &arg(ops[i], 0)->type;
        differs |= is_stack(type) && part_size(m, &type->dim[0], kind) != part_size(m, &type->dim[0], kind - 1);
    }
    return differs;
}

/* Adds the collective that begins with this op, for each kind of rank; returns its last op. */
static const Op *add_space(Space on[], int kinds, const Op *op)
{
    const Op *ops[MOST_PIECES];
    const int count = find_bucket(op, ops);
    RtCollective c = collective_of(on->m, ops, count, 0);
    for (int kind = 0; kind < kinds; kind++) {
        if (kind && has_other_copies(on->m, ops, count, kind))
            c = collective_of(on->m, ops, count, kind);
        add_collective(&on[kind], &c, op);
    }
    return ops[count - 1];
}

/* What a split loop carries is sent from rank to rank. */
static void add_loop_messages(Space on[], int kinds, const Op *loop)
{
    for (int i = 0; i < loop->attrs.carried; i++) {
        const RtCollective c = message_between(on->m, &arg(loop, i)->type, loop->attrs.dims.dim[0].split.axis[0]);
        for (int kind = 0; kind < kinds; kind++) {
            sharing_of(&on[kind], &c);
            on[kind].collectives++;
        }
    }
}

/* As rt_is_packed() has it: in zig-zag, a rank's part of a row is in two places. */
static Packing packing_of(RtCollectiveKind kind, RtType type, RtSlots slots, int64_t ranks)
{
    const bool has_long_rows = rt_goes_by_rows(kind, type, (RtSlots){ .rows = 2, .run = RT_ROW_BYTES }, ranks);
    const int64_t bytes = ranks * slots.run * rt_type_bytes(type);
    if (slots.all)
        return (Packing){ 0 };
    if (slots.zigzag)
        return (Packing){ .rows = 2 * slots.rows, .row_bytes = bytes / 2 };
    return (Packing){ .rows = slots.rows, .row_bytes = bytes, .long_row = has_long_rows ? RT_ROW_BYTES : 0 };
}

void nccl_packing(Module *m, const Op *op, Packing side[2])
{
    const RtCollectiveKind kind = info(op)->traits & MOVES ? RT_SEND : kind_of(op);
    const RtType type = element_rt_type(arg(op, 0)->type.dtype);
    no_packing(m, op, side);
    if (kind == RT_SEND)
        return;
    const RtPiece piece = piece_on(m, op, 0);
    const int64_t ranks = count_ranks(m, op->attrs.axis);
    side[0] = packing_of(kind, type, rt_sent_slots(kind, &piece), ranks);
    side[1] = packing_of(kind, type, rt_received_slots(kind, &piece), ranks);
}

int64_t product_space(const Module *m) { return m->target->is_gpu ? RT_GPU_PRODUCT_BYTES : 0; }

int64_t transfer_space(const Module *m)
{
    return far_bytes(m) && !m->target->is_gpu ? RT_FAR_BUFFERS * (int64_t)RT_FAR_BUFFER_BYTES : 0;
}

static int64_t space_bytes(const Space *s)
{
    int64_t bytes = s->m->target->is_gpu ? rt_gpu_tables_bytes(s->collectives, s->parts) : 0;
    for (const Sharing *at = s->sharing; at; at = at->next)
        bytes += at->bytes;
    return bytes;
}

void message_space(Module *m, int kinds, int64_t bytes[])
{
    Space *on = NEW_ARRAY(&m->arena, Space, kinds);
    for (int kind = 0; kind < kinds; kind++)
        on[kind] = (Space){ .m = m };
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->role == KERNEL ? NULL : f->first; op; op = op->next)
            if (info(op)->traits & SENDS && continued_by(m, op) == op)
                op = add_space(on, kinds, op);
            else if (is_split_loop(op))
                add_loop_messages(on, kinds, op);
    for (int kind = 0; kind < kinds; kind++)
        bytes[kind] = space_bytes(&on[kind]);
}
