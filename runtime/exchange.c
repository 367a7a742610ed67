/* exchange.c -- a collective as messages between the ranks of its group, and the sums of what comes.
 *
 * A message to one rank is, for each tensor, either all of it or one slot of every row: rows of n slots, slot q being
 * rank q's.  In zig-zag a row has 2n, and rank q's are q and 2n-1-q.
 *
 *   all_gather       sends all          receives into slots
 *   reduce_scatter   sends slots        receives all, n times, and adds up in the order of ranks
 *   all_to_all       sends slots        receives into slots
 *   all_reduce       is the two first, on the tensors laid end to end and cut into n pieces
 *
 * So the bits of a sum depend on the number of ranks alone, not on a library's choice of algorithm. */
#include "comm.h"
#include "convert.h"

#include <stdlib.h>
#include <string.h>

static int64_t bytes_of(RtType type) { return type == RT_BOOL ? 1 : type == RT_BF16 || type == RT_F16 ? 2 : 4; }

/* What of a tensor belongs to one rank of a group. */
typedef struct {
    bool all;
    int64_t rows, run; /* all: rows * run elements; else a slot has `run` elements */
    bool zigzag;
} Slots;

static Slots sent_slots(RtCollectiveKind kind, const RtPiece *p)
{
    switch (kind) {
    case RT_ALL_REDUCE:
    case RT_ALL_GATHER:
        return (Slots){ .all = true, .rows = p->outer, .run = p->block };
    case RT_REDUCE_SCATTER:
        return (Slots){ .rows = p->outer, .run = p->block, .zigzag = p->zigzag };
    case RT_ALL_TO_ALL:
        break;
    }
    int64_t rows = p->gathers_first ? p->outer * p->block * p->middle : p->outer;
    int64_t run = p->gathers_first ? p->cut * p->inner : p->cut * p->middle * p->block * p->inner;
    return (Slots){ .rows = rows, .run = run, .zigzag = p->zigzag_cut };
}

static Slots received_slots(RtCollectiveKind kind, const RtPiece *p)
{
    switch (kind) {
    case RT_ALL_REDUCE:
    case RT_REDUCE_SCATTER:
        return (Slots){ .all = true, .rows = p->outer, .run = p->block };
    case RT_ALL_GATHER:
        return (Slots){ .rows = p->outer, .run = p->block, .zigzag = p->zigzag };
    case RT_ALL_TO_ALL:
        break;
    }
    int64_t rows = p->gathers_first ? p->outer : p->outer * p->cut * p->middle;
    int64_t run = p->gathers_first ? p->block * p->middle * p->cut * p->inner : p->block * p->inner;
    return (Slots){ .rows = rows, .run = run, .zigzag = p->zigzag };
}

/* Copies rank q's slots out of a tensor into a message, or (into) back. */
static void copy_slots(const Slots *s, int64_t element, int n, int q, char *tensor, char *message, bool into)
{
    int halves = s->zigzag ? 2 : 1;
    int64_t run = element * s->run / halves;
    for (int64_t row = 0; row < s->rows; row++)
        for (int half = 0; half < halves; half++, message += run) {
            int64_t slot = half ? 2 * n - 1 - q : q;
            char *at = tensor + (row * n * halves + slot) * run;
            memcpy(into ? at : message, into ? message : at, (size_t)run);
        }
}

/* Where in the tensor these slots lie in one piece, or NULL. */
static char *in_one_piece(const Slots *s, int64_t element, int q, char *tensor)
{
    if (s->all)
        return tensor;
    return s->rows == 1 && !s->zigzag ? tensor + q * s->run * element : NULL;
}

/* --- Sums --------------------------------------------------------------------------------------- */

enum { BLOCK = 1024 }; /* elements that are added at once: they stay in the nearest cache */

static void load(RtType type, const char *from, int64_t count, float *to)
{
    if (type == RT_F32) {
        memcpy(to, from, (size_t)count * sizeof *to);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, from + 2 * i, 2);
        to[i] = type == RT_BF16 ? rt_float_of_bf16(bits) : rt_float_of_f16(bits);
    }
}

static void store(RtType type, const float *from, int64_t count, char *to)
{
    if (type == RT_F32) {
        memcpy(to, from, (size_t)count * sizeof *from);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        uint16_t bits = type == RT_BF16 ? rt_bf16_of_float(from[i]) : rt_f16_of_float(from[i]);
        memcpy(to + 2 * i, &bits, 2);
    }
}

static float greater(float a, float b) { return a > b || a != a ? a : b; }

static void combine_floats(const RtCollective *c, int n, const RtMessage from[], int64_t first, int64_t count, char *to)
{
    float sum[BLOCK], next[BLOCK];
    int64_t element = bytes_of(c->type);
    load(c->type, from[0].data + first * element, count, sum);
    for (int q = 1; q < n; q++) {
        load(c->type, from[q].data + first * element, count, next);
        for (int64_t i = 0; i < count; i++)
            sum[i] = c->maximum ? greater(sum[i], next[i]) : sum[i] + next[i];
    }
    store(c->type, sum, count, to + first * element);
}

static void combine_integers(const RtCollective *c, int n, const RtMessage from[], int64_t first, int64_t count,
                             char *to)
{
    for (int64_t i = first; i < first + count; i++) {
        int32_t sum, next;
        memcpy(&sum, from[0].data + 4 * i, 4);
        for (int q = 1; q < n; q++) {
            memcpy(&next, from[q].data + 4 * i, 4);
            sum = !c->maximum ? sum + next : next > sum ? next : sum;
        }
        memcpy(to + 4 * i, &sum, 4);
    }
}

/* to = from[0] + from[1] + ... in this order, or their maximum; `to` may be one of them. */
static void combine(const RtCollective *c, int n, const RtMessage from[], char *to)
{
    int64_t count = from[0].bytes / bytes_of(c->type);
    for (int64_t first = 0; first < count; first += BLOCK) {
        int64_t some = count - first < BLOCK ? count - first : BLOCK;
        if (c->type == RT_I32)
            combine_integers(c, n, from, first, some, to);
        else
            combine_floats(c, n, from, first, some, to);
    }
}

/* --- Messages ------------------------------------------------------------------------------------- */

typedef struct {
    Rt *rt;
    const RtCollective *c;
    const RtGroup *group;
    RtMessage *to, *from; /* one for each rank of the group */
    char *workspace;      /* what is left of it */
    int64_t sent;
} Exchange;

static char *take(Exchange *x, int64_t bytes)
{
    char *at = x->workspace;
    x->workspace += bytes;
    return at;
}

static int64_t message_bytes(const RtCollective *c, Slots slots_of(RtCollectiveKind, const RtPiece *))
{
    int64_t bytes = 0;
    for (int i = 0; i < c->npieces; i++) {
        Slots s = slots_of(c->kind, &c->piece[i]);
        bytes += s.rows * s.run * bytes_of(c->type);
    }
    return bytes;
}

static void swap_messages(Exchange *x)
{
    int own = x->group->own;
    rt_exchange_messages(x->rt, x->group, x->to, x->from);
    if (x->from[own].data != x->to[own].data)
        memmove(x->from[own].data, x->to[own].data, (size_t)x->to[own].bytes);
    for (int q = 0; q < x->group->count; q++)
        x->sent += q == own ? 0 : x->to[q].bytes;
}

/* The messages to all ranks: where they lie, packed where they do not lie in one piece. */
static void pack(Exchange *x, const void *const in[])
{
    const RtCollective *c = x->c;
    int64_t element = bytes_of(c->type), bytes = message_bytes(c, sent_slots);
    Slots first = sent_slots(c->kind, &c->piece[0]);
    for (int q = 0; q < x->group->count; q++) {
        char *tensor = (char *)(uintptr_t)in[0], *place = in_one_piece(&first, element, q, tensor);
        bool is_same = first.all && q > 0; /* all ranks get the same */
        x->to[q] = (RtMessage){ is_same ? x->to[0].data : c->npieces == 1 && place ? place : take(x, bytes), bytes };
        if (is_same || x->to[q].data == place)
            continue;
        char *at = x->to[q].data;
        for (int i = 0; i < c->npieces; i++) {
            Slots s = sent_slots(c->kind, &c->piece[i]);
            tensor = (char *)(uintptr_t)in[i];
            if (s.all)
                memcpy(at, tensor, (size_t)(s.rows * s.run * element));
            else
                copy_slots(&s, element, x->group->count, q, tensor, at, false);
            at += s.rows * s.run * element;
        }
    }
}

/* Where the messages of others are to come: into place, if they are in one piece there. */
static void make_room(Exchange *x, void *const out[])
{
    const RtCollective *c = x->c;
    int64_t bytes = message_bytes(c, received_slots);
    Slots first = received_slots(c->kind, &c->piece[0]);
    for (int q = 0; q < x->group->count; q++) {
        char *place = first.all ? NULL : in_one_piece(&first, bytes_of(c->type), q, out[0]);
        x->from[q] = (RtMessage){ c->npieces == 1 && place ? place : take(x, bytes), bytes };
    }
}

/* Puts one rank's message, or the sum of all, where it belongs. */
static void unpack(Exchange *x, int q, const char *message, void *const out[])
{
    const RtCollective *c = x->c;
    int64_t element = bytes_of(c->type);
    for (int i = 0; i < c->npieces; i++) {
        Slots s = received_slots(c->kind, &c->piece[i]);
        int64_t bytes = s.rows * s.run * element;
        char *place = in_one_piece(&s, element, q, out[i]);
        if (!place)
            copy_slots(&s, element, x->group->count, q, out[i], (char *)(uintptr_t)message, true);
        else if (place != message)
            memcpy(place, message, (size_t)bytes);
        message += bytes;
    }
}

static void gather_or_scatter(Exchange *x, const void *const in[], void *const out[])
{
    pack(x, in);
    make_room(x, out);
    swap_messages(x);
    if (x->c->kind == RT_REDUCE_SCATTER) {
        bool direct = x->c->npieces == 1;
        char *sum = direct ? out[0] : x->from[0].data;
        combine(x->c, x->group->count, x->from, sum);
        unpack(x, x->group->own, sum, out);
        return;
    }
    for (int q = 0; q < x->group->count; q++)
        unpack(x, q, x->from[q].data, out);
}

/* The q-th of n pieces of an array of `count` elements. */
static RtMessage piece_of(char *data, int64_t count, int64_t element, int n, int q)
{
    int64_t begin = count * q / n, end = count * (q + 1) / n;
    return (RtMessage){ data + begin * element, (end - begin) * element };
}

static void all_reduce(Exchange *x, const void *const in[], void *const out[])
{
    const RtCollective *c = x->c;
    int n = x->group->count, own = x->group->own;
    int64_t element = bytes_of(c->type), bytes = message_bytes(c, sent_slots), count = bytes / element;
    pack(x, in);
    char *whole = x->to[0].data, *result = c->npieces == 1 ? out[0] : whole;
    RtMessage mine = piece_of(whole, count, element, n, own);
    for (int q = 0; q < n; q++) {
        x->to[q] = piece_of(whole, count, element, n, q);
        x->from[q] = (RtMessage){ q == own ? mine.data : take(x, mine.bytes), mine.bytes };
    }
    swap_messages(x);
    RtMessage sum = piece_of(result, count, element, n, own);
    combine(c, n, x->from, sum.data);
    for (int q = 0; q < n; q++) {
        x->to[q] = sum;
        x->from[q] = piece_of(result, count, element, n, q);
    }
    swap_messages(x);
    unpack(x, own, result, out);
}

int64_t rt_exchange(Rt *rt, const RtCollective *collective, const void *const in[], void *const out[], char *workspace)
{
    const RtGroup *group = rt_comm_group(rt, collective);
    RtMessage messages[2 * group->count];
    Exchange x = { rt, collective, group, messages, messages + group->count, workspace, 0 };
    if (collective->kind == RT_ALL_REDUCE)
        all_reduce(&x, in, out);
    else
        gather_or_scatter(&x, in, out);
    return x.sent;
}

int64_t rt_exchange_workspace(const RtCollective *collective, int ranks)
{
    int64_t sent = message_bytes(collective, sent_slots), received = message_bytes(collective, received_slots);
    if (collective->kind == RT_ALL_REDUCE) /* packed, and a piece from each rank, the larger ones rounded up */
        return 2 * sent + ranks * bytes_of(collective->type);
    return (collective->kind == RT_ALL_GATHER ? 1 : ranks) * sent + ranks * received; /* gathered: all get the same */
}
