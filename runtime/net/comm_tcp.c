/* comm_tcp.c -- messages over TCP: the transport that needs no MPI.
 *
 * Two ranks have one connection for messages.  Both run the same program, so the next data on it are known: the length
 * of a message, which detects ranks that are out of step, and its bytes.  A rank reads from a connection only messages
 * of the present exchange; others stay in the kernel's buffers and block the sender. */
#include "tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>

/* One message of the present exchange. */
typedef struct {
    int64_t head; /* its length, as sent or received so far */
    char *data;
    int64_t bytes, left; /* left: including the head; 0: done */
} Transfer;

typedef struct {
    int rank; /* of the program */
    Transfer to, from;
} Member;

struct RtChannel {
    int count, own;
    RtChannel *next;
    struct pollfd *list; /* of sleep_in */
    Member member[];
};

static struct {
    RtLaunch launch;
    RtPeer *peer;
    RtChannel *channels; /* all created channels */
} tcp;

/* --- Messages -------------------------------------------------------------------------------------- */

/* Sends or receives without blocking. */
static void progress(int rank, Transfer *t, bool sends)
{
    while (t->left > 0) {
        size_t head = t->left > t->bytes ? (size_t)(t->left - t->bytes) : 0, data = (size_t)t->left - head;
        struct iovec part[] = { { (char *)(&t->head + 1) - head, head }, { t->data + t->bytes - data, data } };
        struct msghdr message = { .msg_iov = part, .msg_iovlen = 2 };
        ssize_t some = sends ? sendmsg(tcp.peer[rank].data, &message, MSG_NOSIGNAL | MSG_DONTWAIT)
                             : recvmsg(tcp.peer[rank].data, &message, MSG_DONTWAIT);
        if (some <= 0) {
            if (some == 0 || (errno != EAGAIN && errno != EINTR))
                rt_control_lose(rank, some ? errno : 0);
            return;
        }
        t->left -= some;
        if (t->left <= t->bytes && t->head != t->bytes)
            rt_fail("rank %d sent a message of %lld bytes where %lld bytes are expected: the ranks are out of step, "
                    "which is a bug in mpc or a fault of the machine",
                    rank, (long long)t->head, (long long)t->bytes);
    }
}

/* Nothing is sent for a message without bytes. */
static Transfer begin(RtMessage message, int64_t head)
{
    return (Transfer){ .head = head,
                       .data = message.data,
                       .bytes = message.bytes,
                       .left = message.bytes ? message.bytes + (int64_t)sizeof head : 0 };
}

/* Each rank starts with its neighbour, so that not all send to the same rank. */
static void start(RtChannel *channel, int count, const RtMessage to[], const RtMessage from[])
{
    for (int i = 1; i < count; i++) {
        int q = (channel->own + i) % count;
        Member *member = &channel->member[q];
        member->from = begin(from[q], 0);
        member->to = begin(to[q], to[q].bytes);
        progress(member->rank, &member->to, true);
    }
}

static bool is_done(RtChannel *channel)
{
    int64_t left = 0;
    for (Member *member = channel->member; member < channel->member + channel->count; member++) {
        progress(member->rank, &member->from, false);
        progress(member->rank, &member->to, true);
        left += member->from.left + member->to.left;
    }
    return left == 0;
}

static bool has_come(RtChannel *channel, int from) { return channel->member[from].from.left == 0; }

/* The kernel wakes it. */
static void sleep_in(RtChannel *channel, double waited)
{
    enum { MOST = 2 }; /* ms: others may call */
    nfds_t count = 0;
    for (Member *member = channel->member; member < channel->member + channel->count; member++) {
        short events = (short)((member->from.left > 0 ? POLLIN : 0) | (member->to.left > 0 ? POLLOUT : 0));
        if (events)
            channel->list[count++] = (struct pollfd){ .fd = tcp.peer[member->rank].data, .events = events };
    }
    poll(channel->list, count, MOST);
}

static RtChannel *form_group(const int rank[], int count, int own)
{
    RtChannel *channel = rt_allocate(1, (int64_t)(sizeof *channel + (size_t)count * sizeof *channel->member));
    channel->count = count;
    channel->own = own;
    channel->list = rt_allocate(count, sizeof *channel->list);
    for (int q = 0; q < count; q++)
        channel->member[q].rank = rank[q];
    channel->next = tcp.channels;
    tcp.channels = channel;
    return channel;
}

/* --- Start and end --------------------------------------------------------------------------------- */

static int launched_ranks(int argc, char **argv)
{
    tcp.launch = rt_launch_read(argc, argv);
    return tcp.launch.own.ranks;
}

/* The local rank is that of the launcher, which may have assigned devices to ranks; else it is counted. */
static RtRank open_tcp(int *argc, char ***argv)
{
    (void)argc, (void)argv; /* read by launched_ranks */
    RtRank own = tcp.launch.own;
    tcp.peer = rt_allocate(own.ranks, sizeof *tcp.peer);
    for (int q = 0; q < own.ranks; q++)
        tcp.peer[q].control = tcp.peer[q].data = -1;
    rt_control_open(own.rank, own.ranks, tcp.peer);
    rt_rendezvous(&tcp.launch, tcp.peer);
    if (own.local_rank >= 0)
        return own;
    own.local_rank = own.local_ranks = 0;
    for (int q = 0; q < own.ranks; q++)
        if (tcp.peer[q].process.machine == tcp.peer[own.rank].process.machine) {
            own.local_rank += q < own.rank;
            own.local_ranks++;
        }
    return own;
}

static void close_tcp(void)
{
    rt_control_close();
    for (int q = 0; q < tcp.launch.own.ranks; q++)
        if (q != tcp.launch.own.rank) {
            close(tcp.peer[q].control);
            close(tcp.peer[q].data);
        }
    for (RtChannel *next; tcp.channels; tcp.channels = next) {
        next = tcp.channels->next;
        free(tcp.channels->list);
        free(tcp.channels);
    }
    free(tcp.peer);
}

const RtComm rt_tcp = { .takes_place = true,
                        .open = open_tcp,
                        .close = close_tcp,
                        .abort = rt_control_abort,
                        .launched_as = rt_launch_rank,
                        .launched_ranks = launched_ranks,
                        .group = form_group,
                        .start = start,
                        .is_done = is_done,
                        .has_come = has_come,
                        .sleep = sleep_in,
                        .call = rt_control_call,
                        .listen = rt_control_listen,
                        .claim_word = rt_control_claim_word,
                        .hear_claim = rt_control_hear_claim };
