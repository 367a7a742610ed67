/* exchange.c -- runs a collective as messages between the ranks of its group, and sums received ones.
 *
 * slots.h defines the parts of tensors in messages.  An all_reduce is a reduce_scatter and an all_gather, on the
 * concatenation of the tensors in n chunks.  Sums are in rank order, so they are bitwise determined by the number of
 * ranks, independent of a library's algorithm. */
#include "convert.h"
#include "gaps.h"
#include "mesh/comm.h"
#include "mesh/workspace.h"

#include <stdlib.h>
#include <string.h>

/* Copies bytes first to end of rank q's message from its slots in a tensor, or, if `into`, back; `message` points to
 * the first of them. */
static void copy_slots(const RtSlots *s, int64_t element, int n, int q, char *tensor, char *message, int64_t first,
                       int64_t end, bool into)
{
    int halves = s->zigzag ? 2 : 1;
    int64_t run = element * (s->all ? s->rows * s->run : s->run / halves);
    while (first < end) {
        int64_t number = first / run, skip = first % run, some = run - skip < end - first ? run - skip : end - first;
        int64_t row = number / halves, half = number % halves, slot = s->all ? 0 : half ? 2 * n - 1 - q : q;
        char *at = tensor + (row * n * halves + slot) * run + skip;
        memcpy(into ? at : message, into ? message : at, (size_t)some);
        message += some;
        first += some;
    }
}

/* The address of these slots in the tensor if they are contiguous, or NULL. */
static char *in_one_piece(const RtSlots *s, int64_t element, int q, char *tensor)
{
    if (s->all)
        return tensor;
    return s->rows == 1 && !s->zigzag ? tensor + q * s->run * element : NULL;
}

/* --- Sums --------------------------------------------------------------------------------------- */

enum { BLOCK = 1024 }; /* elements added at a time: they stay in the first-level cache */

static void load(RtType type, const char *from, int64_t count, float *to)
{
    if (type == RT_F32)
        memcpy(to, from, (size_t)count * sizeof *to);
    else
        rt_widen(type == RT_BF16, from, count, (char *)to);
}

static void store(RtType type, const float *from, int64_t count, char *to)
{
    if (type == RT_F32)
        memcpy(to, from, (size_t)count * sizeof *from);
    else
        rt_narrow(type == RT_BF16, (const char *)from, count, to);
}

static float greater(float a, float b) { return a > b || a != a ? a : b; }

static void combine_floats(const RtCollective *c, int n, const RtMessage from[], int64_t first, int64_t count, char *to)
{
    float sum[BLOCK], next[BLOCK];
    int64_t element = rt_type_bytes(c->type);
    load(c->type, from[0].data + first * element, count, sum);
    for (int q = 1; q < n; q++) {
        load(c->type, from[q].data + first * element, count, next);
        for (int64_t i = 0; i < count; i++)
            sum[i] = c->maximum ? greater(sum[i], next[i]) : sum[i] + next[i];
    }
    store(c->type, sum, count, to + first * element);
}

/* Sums wrap around, as a GPU's: padding may have any numbers. */
static void combine_integers(const RtCollective *c, int n, const RtMessage from[], int64_t first, int64_t count,
                             char *to)
{
    for (int64_t i = first; i < first + count; i++) {
        int32_t sum, next;
        memcpy(&sum, from[0].data + 4 * i, 4);
        for (int q = 1; q < n; q++) {
            memcpy(&next, from[q].data + 4 * i, 4);
            sum = !c->maximum ? (int32_t)((uint32_t)sum + (uint32_t)next) : next > sum ? next : sum;
        }
        memcpy(to + 4 * i, &sum, 4);
    }
}

/* Terms of one sum: true on one rank at most. */
static void combine_booleans(int n, const RtMessage from[], int64_t first, int64_t count, char *to)
{
    for (int64_t i = first; i < first + count; i++) {
        char any = 0;
        for (int q = 0; q < n; q++)
            any |= from[q].data[i];
        to[i] = any;
    }
}

/* to = from[0] + from[1] + ... in this order, or their maximum; `to` may be one of them. */
static void combine(const RtCollective *c, int n, const RtMessage from[], char *to)
{
    int64_t count = from[0].bytes / rt_type_bytes(c->type);
    for (int64_t first = 0; first < count; first += BLOCK) {
        int64_t some = count - first < BLOCK ? count - first : BLOCK;
        if (c->type == RT_I32)
            combine_integers(c, n, from, first, some, to);
        else if (c->type == RT_BOOL)
            combine_booleans(n, from, first, some, to);
        else
            combine_floats(c, n, from, first, some, to);
    }
}

/* --- Messages ------------------------------------------------------------------------------------- */

typedef RtSlots SlotsOf(RtCollectiveKind kind, const RtPiece *piece);

typedef struct {
    Rt *rt;
    const RtCollective *c;
    const RtGroup *group;
    RtMessage *to, *from; /* one for each rank of the group */
    const void *in;       /* the first tensor */
    char *workspace;      /* the unused rest */
    int64_t first, bytes; /* the part of every message in this round */
    int64_t sent;
} Exchange;

static char *take(Exchange *x, int64_t bytes)
{
    char *at = x->workspace;
    x->workspace += bytes;
    return at;
}

/* The round's part of the message to or from rank q in the only tensor; NULL: it must be packed. */
static char *place_of(const Exchange *x, SlotsOf *slots_of, int q, const void *tensor)
{
    RtSlots s = slots_of(x->c->kind, &x->c->piece[0]);
    char *place = x->c->npieces == 1 ? in_one_piece(&s, rt_type_bytes(x->c->type), q, (char *)(uintptr_t)tensor) : NULL;
    return place ? place + x->first : NULL;
}

/* The units of rank q's message that are not zeros; a tensor, and what others get too, is not packed in its place. */
static RtMessage packed(Exchange *x, int q, unsigned char *map)
{
    const RtMessage whole = x->to[q];
    const bool keeps = rt_sent_slots(x->c->kind, &x->c->piece[0]).all || place_of(x, rt_sent_slots, q, x->in);
    const int64_t filled = rt_gaps_find(whole.data, whole.bytes, map);
    if (filled == whole.bytes)
        return whole;
    char *to = keeps ? take(x, x->bytes) : whole.data;
    rt_gaps_pack(whole.data, whole.bytes, map, to);
    return (RtMessage){ to, filled };
}

/* Maps first, from which each rank knows how much comes. */
static void swap_filled(Exchange *x)
{
    const int n = x->group->count, own = x->group->own, first = own == 0;
    const bool is_same = rt_sent_slots(x->c->kind, &x->c->piece[0]).all;
    const int64_t bytes = rt_gaps_map_bytes(x->bytes);
    RtMessage messages[4 * n], *to = messages, *from = to + n, *to_map = from + n, *from_map = to_map + n;
    memset(messages, 0, sizeof messages);
    for (int q = 0; q < n; q++) {
        if (q == own)
            continue;
        const bool is_packed = is_same && q != first;
        to_map[q] = (RtMessage){ is_packed ? to_map[first].data : take(x, bytes), bytes };
        from_map[q] = (RtMessage){ take(x, bytes), bytes };
        to[q] = is_packed ? to[first] : packed(x, q, (unsigned char *)to_map[q].data);
    }
    rt_exchange_messages(x->rt, x->group, x->c, to_map, from_map);
    for (int q = 0; q < n; q++) {
        const int64_t filled = q == own ? 0 : rt_gaps_filled((unsigned char *)from_map[q].data, x->bytes);
        from[q] = (RtMessage){ x->from[q].data + x->bytes - filled, filled };
    }
    rt_exchange_messages(x->rt, x->group, x->c, to, from);
    for (int q = 0; q < n; q++)
        if (q != own) {
            rt_gaps_unpack(x->from[q].data, x->bytes, (unsigned char *)from_map[q].data);
            x->sent += bytes + to[q].bytes - x->bytes;
        }
}

static void swap_messages(Exchange *x)
{
    int own = x->group->own;
    if (x->c->gaps)
        swap_filled(x);
    else
        rt_exchange_messages(x->rt, x->group, x->c, x->to, x->from);
    if (x->from[own].data != x->to[own].data)
        memmove(x->from[own].data, x->to[own].data, (size_t)x->to[own].bytes);
    for (int q = 0; q < x->group->count; q++)
        x->sent += q == own ? 0 : x->to[q].bytes;
}

/* Copies the round's part of rank q's message, a concatenation of tensors, from the tensors or, if `into`, back. */
static void copy_message(const Exchange *x, SlotsOf *slots_of, int q, const void *const tensor[], char *message,
                         bool into)
{
    int64_t begin = 0, end = x->first + x->bytes;
    for (int i = 0; i < x->c->npieces; i++) {
        RtSlots s = slots_of(x->c->kind, &x->c->piece[i]);
        int64_t bytes = rt_slots_bytes(x->c->type, s);
        int64_t first = x->first > begin ? x->first - begin : 0, last = end < begin + bytes ? end - begin : bytes;
        if (first < last)
            copy_slots(&s, rt_type_bytes(x->c->type), x->group->count, q, (char *)(uintptr_t)tensor[i],
                       message + begin + first - x->first, first, last, into);
        begin += bytes;
    }
}

static void pack(Exchange *x, const void *const in[])
{
    bool is_same = rt_sent_slots(x->c->kind, &x->c->piece[0]).all; /* all ranks get the same message */
    for (int q = 0; q < x->group->count; q++) {
        char *place = place_of(x, rt_sent_slots, q, in[0]);
        bool is_packed = !place && (q == 0 || !is_same);
        x->to[q] = (RtMessage){ place ? place : is_packed ? take(x, x->bytes) : x->to[0].data, x->bytes };
        if (is_packed)
            copy_message(x, rt_sent_slots, q, in, x->to[q].data, false);
    }
}

/* Sets the receive buffers: in place, if contiguous there. */
static void make_room(Exchange *x, void *const out[])
{
    bool is_sum = rt_received_slots(x->c->kind, &x->c->piece[0]).all;
    for (int q = 0; q < x->group->count; q++) {
        char *place = is_sum ? NULL : place_of(x, rt_received_slots, q, out[0]);
        x->from[q] = (RtMessage){ place ? place : take(x, x->bytes), x->bytes };
    }
}

/* Copies one rank's message, or the sum of all, to the result. */
static void unpack(Exchange *x, int q, char *message, void *const out[])
{
    if (message != place_of(x, rt_received_slots, q, out[0]))
        copy_message(x, rt_received_slots, q, (const void *const *)out, message, true);
}

static void gather_or_scatter(Exchange *x, const void *const in[], void *const out[])
{
    pack(x, in);
    make_room(x, out);
    swap_messages(x);
    if (x->c->kind == RT_REDUCE_SCATTER) {
        char *place = place_of(x, rt_received_slots, 0, out[0]), *sum = place ? place : x->from[0].data;
        combine(x->c, x->group->count, x->from, sum);
        unpack(x, x->group->own, sum, out);
        return;
    }
    for (int q = 0; q < x->group->count; q++)
        unpack(x, q, x->from[q].data, out);
}

/* The q-th of n chunks of an array of `count` elements. */
static RtMessage piece_of(char *data, int64_t count, int64_t element, int n, int q)
{
    int64_t begin = count * q / n, end = count * (q + 1) / n;
    return (RtMessage){ data + begin * element, (end - begin) * element };
}

static void all_reduce(Exchange *x, const void *const in[], void *const out[])
{
    const RtCollective *c = x->c;
    int n = x->group->count, own = x->group->own;
    int64_t element = rt_type_bytes(c->type), count = x->bytes / element;
    pack(x, in);
    char *whole = x->to[0].data, *place = place_of(x, rt_received_slots, own, out[0]), *result = place ? place : whole;
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

/* Each tensor is a message of its own, in place. */
static int64_t rotate(Rt *rt, const RtCollective *c, const RtGroup *group, const void *const in[], void *const out[])
{
    const int to = (group->own - c->turn + group->count) % group->count, from = (group->own + c->turn) % group->count;
    int64_t sent = 0;
    for (int i = 0; i < c->npieces; i++) {
        RtMessage messages[2 * group->count];
        const int64_t bytes = rt_slots_bytes(c->type, rt_sent_slots(c->kind, &c->piece[i]));
        memset(messages, 0, sizeof messages);
        messages[to] = (RtMessage){ (char *)(uintptr_t)in[i], bytes };
        messages[group->count + from] = (RtMessage){ out[i], bytes };
        rt_exchange_messages(rt, group, c, messages, messages + group->count);
        sent += bytes;
    }
    return sent;
}

int64_t rt_exchange(Rt *rt, const RtCollective *collective, const void *const in[], void *const out[], char *workspace)
{
    const RtGroup *group = rt_comm_group(rt, collective);
    RtMessage messages[2 * group->count];
    int64_t bytes = rt_message_bytes(collective), sent = 0;
    if (collective->kind == RT_ROTATE)
        return rotate(rt, collective, group, in, out);
    for (int64_t first = 0; first < bytes; first += RT_ROUND) {
        int64_t some = bytes - first < RT_ROUND ? bytes - first : RT_ROUND;
        Exchange x = { rt, collective, group, messages, messages + group->count, in[0], workspace, first, some, 0 };
        if (collective->kind == RT_ALL_REDUCE)
            all_reduce(&x, in, out);
        else
            gather_or_scatter(&x, in, out);
        sent += x.sent;
    }
    return sent;
}

RtUnderWay *rt_exchange_with(Rt *rt, const RtCollective *collective, int member, const void *sent, void *received)
{
    const RtGroup *group = rt_comm_group(rt, collective);
    RtMessage to[group->count], from[group->count];
    memset(to, 0, sizeof to);
    memset(from, 0, sizeof from);
    *(sent ? &to[member] : &from[member]) =
        (RtMessage){ sent ? (char *)(uintptr_t)sent : received, rt_message_bytes(collective) };
    return rt_messages_start(rt, group, collective, to, from);
}
