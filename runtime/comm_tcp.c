/* comm_tcp.c -- messages over TCP: the transport that needs no MPI.
 *
 * Two ranks have one connection for messages.  Both run the same program, so what comes next on it is known: a head of
 * 16 bytes, by which they notice if they have come apart, and the bytes.  A rank reads from a connection only what the
 * exchange at hand awaits; the rest stays with the kernel, and keeps the sender from running ahead. */
#include "tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef PIECE /* tests send small messages in pieces, too */
#define PIECE (1 << 30)
#endif

typedef struct {
    uint32_t magic, number; /* number: how many messages this connection has seen in this direction */
    uint64_t bytes;
} Head;

enum { MAGIC = 0x4D504331 };

/* One message of the exchange at hand. */
typedef struct {
    Head head; /* sent, or received so far */
    char *data;
    int64_t bytes, left; /* left: with the head's; 0: done */
} Transfer;

struct RtChannel {
    int count, own;
    int *rank; /* of the program: of each in the group */
    Transfer *to, *from;
    struct pollfd *ready;
    int unfinished; /* transfers */
    RtChannel *next;
};

static struct {
    RtLaunch launch;
    RtPeer *peer;
    uint32_t *sent, *received;   /* messages, to and from each rank */
    bool *is_broken;             /* the connection; who reads the other one tells what that means */
    RtChannel *world, *channels; /* all that were made */
} tcp;

/* --- Messages -------------------------------------------------------------------------------------- */

static void break_off(int rank, int reason)
{
    tcp.is_broken[rank] = true;
    rt_control_mourn(rank, reason);
}

/* What is left of the head and of the data. */
static int parts_of(Transfer *t, struct iovec part[2])
{
    int64_t left_of_head = t->left - t->bytes, left_of_data = left_of_head > 0 ? t->bytes : t->left;
    int count = 0;
    if (left_of_head > 0)
        part[count++] = (struct iovec){ (char *)(&t->head + 1) - left_of_head, (size_t)left_of_head };
    part[count++] =
        (struct iovec){ t->data + t->bytes - left_of_data, (size_t)(left_of_data < PIECE ? left_of_data : PIECE) };
    return count;
}

static _Noreturn void come_apart(int rank, const Transfer *t)
{
    rt_fail("rank %d sends message %u of %llu bytes where %lld bytes are due as message %u: the ranks have come apart, "
            "which is a mistake of mpc, or of the machine",
            rank, t->head.number, (unsigned long long)t->head.bytes, (long long)t->bytes, tcp.received[rank]);
}

/* Moves what can be moved at once. */
static void progress(RtChannel *channel, int q, bool sends)
{
    Transfer *t = sends ? &channel->to[q] : &channel->from[q];
    int rank = channel->rank[q];
    while (t->left > 0 && !tcp.is_broken[rank]) {
        struct iovec part[2];
        struct msghdr message = { .msg_iov = part, .msg_iovlen = (size_t)parts_of(t, part) };
        ssize_t some = sends ? sendmsg(tcp.peer[rank].data, &message, MSG_NOSIGNAL | MSG_DONTWAIT)
                             : recvmsg(tcp.peer[rank].data, &message, MSG_DONTWAIT);
        if (some < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (some <= 0) {
            break_off(rank, some < 0 ? errno : 0);
            return;
        }
        bool had_head = t->left <= t->bytes;
        t->left -= some;
        if (!sends && !had_head && t->left <= t->bytes &&
            (t->head.magic != MAGIC || t->head.number != tcp.received[rank] || t->head.bytes != (uint64_t)t->bytes))
            come_apart(rank, t);
        if (t->left > 0)
            continue;
        channel->unfinished--;
        tcp.received[rank] += !sends;
    }
}

static void begin(RtChannel *channel, int q, RtMessage message, bool sends)
{
    Transfer *t = sends ? &channel->to[q] : &channel->from[q];
    int rank = channel->rank[q];
    *t = (Transfer){ .data = message.data, .bytes = message.bytes };
    if (message.bytes == 0)
        return;
    if (sends)
        t->head = (Head){ MAGIC, tcp.sent[rank]++, (uint64_t)message.bytes };
    t->left = message.bytes + (int64_t)sizeof t->head;
    channel->unfinished++;
}

/* Each begins with its neighbour, so that not all send to one at the same time. */
static void start(RtChannel *channel, int count, const RtMessage to[], const RtMessage from[])
{
    channel->unfinished = 0;
    for (int i = 1; i < count; i++) {
        int q = (channel->own + i) % count;
        begin(channel, q, from[q], false);
        begin(channel, q, to[q], true);
        progress(channel, q, true);
    }
}

/* The connections that could move something, in ready[]; the rest of it is empty. */
static void look(RtChannel *channel)
{
    for (int q = 0; q < channel->count; q++) {
        bool sends = channel->to[q].left > 0, receives = channel->from[q].left > 0;
        bool waits = q != channel->own && (sends || receives) && !tcp.is_broken[channel->rank[q]];
        channel->ready[q] = (struct pollfd){ .fd = waits ? tcp.peer[channel->rank[q]].data : -1,
                                             .events = (short)((sends ? POLLOUT : 0) | (receives ? POLLIN : 0)) };
    }
    if (poll(channel->ready, (nfds_t)channel->count, 0) <= 0)
        for (int q = 0; q < channel->count; q++)
            channel->ready[q].revents = 0;
}

static bool is_done(RtChannel *channel)
{
    if (channel->unfinished == 0)
        return true;
    look(channel);
    for (int q = 0; q < channel->count; q++) {
        if (channel->ready[q].revents & (POLLIN | POLLERR | POLLHUP))
            progress(channel, q, false);
        if (channel->ready[q].revents & (POLLOUT | POLLERR | POLLHUP))
            progress(channel, q, true);
    }
    return channel->unfinished == 0;
}

static bool has_come(RtChannel *channel, int from) { return channel->from[from].left == 0; }

/* --- Groups ---------------------------------------------------------------------------------------- */

static RtChannel *make_channel(int count)
{
    RtChannel *channel = rt_allocate(1, sizeof *channel);
    channel->count = count;
    channel->next = tcp.channels;
    tcp.channels = channel;
    channel->rank = rt_allocate(count, sizeof *channel->rank);
    channel->to = rt_allocate(count, sizeof *channel->to);
    channel->from = rt_allocate(count, sizeof *channel->from);
    channel->ready = rt_allocate(count, sizeof *channel->ready);
    return channel;
}

static RtChannel *make_world(void)
{
    RtChannel *world = make_channel(tcp.launch.ranks);
    world->own = tcp.launch.rank;
    for (int q = 0; q < world->count; q++)
        world->rank[q] = q;
    return world;
}

typedef struct {
    int32_t colour, key;
} Membership;

/* Everyone tells everyone. */
static Membership *gather_memberships(Membership own)
{
    int ranks = tcp.launch.ranks;
    Membership *all = rt_allocate(ranks, sizeof *all);
    RtMessage *to = rt_allocate(ranks, sizeof *to), *from = rt_allocate(ranks, sizeof *from);
    for (int q = 0; q < ranks; q++) {
        to[q] = (RtMessage){ (char *)&own, sizeof own };
        from[q] = (RtMessage){ (char *)&all[q], sizeof *all };
    }
    all[tcp.launch.rank] = own;
    for (start(tcp.world, ranks, to, from); !is_done(tcp.world);)
        nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
    free(from);
    free(to);
    return all;
}

static RtChannel *form_group(int colour, int key)
{
    Membership *all = gather_memberships((Membership){ colour, key });
    int ranks = tcp.launch.ranks, count = 0;
    for (int q = 0; q < ranks; q++)
        count += all[q].colour == colour;
    RtChannel *channel = make_channel(count);
    for (int q = 0; q < ranks; q++) {
        int place = 0; /* those of lower keys stand before it, and of equal ones the lower ranks */
        for (int other = 0; other < ranks; other++)
            place += all[other].colour == colour &&
                     (all[other].key < all[q].key || (all[other].key == all[q].key && other < q));
        if (all[q].colour == colour)
            channel->rank[place] = q;
        if (q == tcp.launch.rank)
            channel->own = place;
    }
    free(all);
    return channel;
}

/* --- Start and end --------------------------------------------------------------------------------- */

static void open_tcp(int *argc, char ***argv)
{
    tcp.launch = rt_launch_read(*argc, *argv);
    int ranks = tcp.launch.ranks;
    tcp.peer = rt_allocate(ranks, sizeof *tcp.peer);
    tcp.sent = rt_allocate(ranks, sizeof *tcp.sent);
    tcp.received = rt_allocate(ranks, sizeof *tcp.received);
    tcp.is_broken = rt_allocate(ranks, sizeof *tcp.is_broken);
    tcp.world = make_world();
    rt_meet(&tcp.launch, tcp.peer);
    rt_control_open(tcp.launch.rank, ranks, tcp.peer);
}

static void free_channels(void)
{
    for (RtChannel *next; tcp.channels; tcp.channels = next) {
        next = tcp.channels->next;
        free(tcp.channels->rank);
        free(tcp.channels->to);
        free(tcp.channels->from);
        free(tcp.channels->ready);
        free(tcp.channels);
    }
}

static void close_tcp(void)
{
    rt_control_close();
    free_channels();
    for (int q = 0; q < tcp.launch.ranks; q++)
        if (q != tcp.launch.rank)
            close(tcp.peer[q].data);
    free(tcp.peer);
    free(tcp.sent);
    free(tcp.received);
    free(tcp.is_broken);
}

static int ranks_launched(int argc, char **argv) { return rt_launch_read(argc, argv).ranks; }

static int rank_of_tcp(void) { return tcp.launch.rank; }
static int ranks_of_tcp(void) { return tcp.launch.ranks; }

/* As the launcher says, who may have given each rank devices of its own; else by their machines. */
static void find_host(int *local_rank, int *local_ranks)
{
    *local_rank = tcp.launch.local_rank;
    *local_ranks = tcp.launch.local_ranks;
    if (*local_rank >= 0)
        return;
    *local_rank = *local_ranks = 0;
    for (int q = 0; q < tcp.launch.ranks; q++)
        if (tcp.peer[q].process.machine == tcp.peer[tcp.launch.rank].process.machine) {
            *local_rank += q < tcp.launch.rank;
            *local_ranks += 1;
        }
}

const RtComm rt_tcp = { .takes_place = true,
                        .open = open_tcp,
                        .close = close_tcp,
                        .abort = rt_control_abort,
                        .rank = rank_of_tcp,
                        .ranks = ranks_of_tcp,
                        .launched_as = rt_launch_rank,
                        .launched_ranks = ranks_launched,
                        .host = find_host,
                        .group = form_group,
                        .start = start,
                        .is_done = is_done,
                        .has_come = has_come,
                        .call = rt_control_call,
                        .listen = rt_control_listen,
                        .claim_word = rt_control_claim_word,
                        .hear_claim = rt_control_hear_claim };
