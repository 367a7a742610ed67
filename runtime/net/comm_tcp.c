/* comm_tcp.c -- messages over TCP: the transport that needs no MPI.
 *
 * Two ranks have one connection for messages, on which each direction has a queue of its own.  Both run the same
 * program, so the next data on it are known: the length of a message, which detects ranks that are out of step, and its
 * bytes.  A rank reads from a connection only messages of exchanges that it has started; others stay in the kernel's
 * buffers and block the sender. */
#include "tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <sys/eventfd.h>
#include <unistd.h>

/* One message. */
typedef struct Transfer {
    int64_t head; /* its length, as sent or received so far */
    char *data;
    int64_t bytes, left; /* left: including the head; 0: done */
    struct Transfer *next;
} Transfer;

typedef struct {
    Transfer *first, *last;
} Queue;

typedef struct {
    Transfer to, from;
} Pair;

struct RtExchange {
    RtChannel *channel;
    RtExchange *before, *behind; /* of those under way */
    Pair pair[];                 /* with each member of the group */
};

struct RtChannel {
    int count, own;
    RtChannel *next;
    int rank[]; /* of the program */
};

static struct {
    RtLaunch launch;
    RtPeer *peer;
    Queue *out, *in;       /* by rank: not done, in the order of starts */
    RtChannel *channels;   /* all created channels */
    RtExchange *exchanges; /* those under way */
    struct pollfd *list;   /* of sleep_until_ready */
    int room;
    int woken; /* an eventfd */
} tcp;

/* --- Messages -------------------------------------------------------------------------------------- */

/* Sends or receives without blocking; false: the rest has to wait. */
static bool move(int rank, Transfer *t, bool sends)
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
            return false;
        }
        t->left -= some;
        if (t->left <= t->bytes && t->head != t->bytes)
            rt_fail("rank %d sent a message of %lld bytes where %lld bytes are expected: the ranks are out of step, "
                    "which is a bug in mpc or a fault of the machine",
                    rank, (long long)t->head, (long long)t->bytes);
    }
    return true;
}

static void progress(int rank, bool sends)
{
    Queue *queue = sends ? &tcp.out[rank] : &tcp.in[rank];
    while (queue->first && move(rank, queue->first, sends))
        queue->first = queue->first->next;
}

/* Nothing is sent for a message without bytes. */
static void enqueue(Queue *queue, Transfer *t, RtMessage message, int64_t head)
{
    *t = (Transfer){ .head = head, .data = message.data, .bytes = message.bytes };
    if (!message.bytes)
        return;
    t->left = message.bytes + (int64_t)sizeof head;
    if (queue->first)
        queue->last->next = t;
    else
        queue->first = t;
    queue->last = t;
}

/* Each rank starts with its neighbour, so that not all send to the same rank. */
static RtExchange *start(RtChannel *channel, const RtMessage to[], const RtMessage from[])
{
    const int count = channel->count;
    RtExchange *x = rt_allocate(1, (int64_t)(sizeof *x + (size_t)count * sizeof *x->pair));
    x->channel = channel;
    x->behind = tcp.exchanges;
    if (tcp.exchanges)
        tcp.exchanges->before = x;
    tcp.exchanges = x;
    for (int i = 1; i < count; i++) {
        const int q = (channel->own + i) % count, rank = channel->rank[q];
        enqueue(&tcp.in[rank], &x->pair[q].from, from[q], 0);
        enqueue(&tcp.out[rank], &x->pair[q].to, to[q], to[q].bytes);
        progress(rank, true);
    }
    return x;
}

static bool is_done(RtExchange *x)
{
    int64_t left = 0;
    for (int q = 0; q < x->channel->count; q++) {
        const Pair *pair = &x->pair[q];
        if (pair->from.left)
            progress(x->channel->rank[q], false);
        if (pair->to.left)
            progress(x->channel->rank[q], true);
        left += pair->from.left + pair->to.left;
    }
    return left == 0;
}

static bool has_come(RtExchange *x, int from) { return x->pair[from].from.left == 0; }

static void end(RtExchange *x)
{
    *(x->before ? &x->before->behind : &tcp.exchanges) = x->behind;
    if (x->behind)
        x->behind->before = x->before;
    free(x);
}

static void add_to_list(nfds_t count, int connection, short events)
{
    if ((int)count == tcp.room) {
        tcp.room = tcp.room ? 2 * tcp.room : 16;
        struct pollfd *grown = rt_allocate(tcp.room, sizeof *grown);
        if (count)
            memcpy(grown, tcp.list, count * sizeof *grown);
        free(tcp.list);
        tcp.list = grown;
    }
    tcp.list[count] = (struct pollfd){ .fd = connection, .events = events };
}

/* The kernel wakes it. */
static void sleep_until_ready(double waited)
{
    enum { MOST = 2 }; /* ms: others may call */
    (void)waited;
    nfds_t count = 0;
    uint64_t times;
    add_to_list(count++, tcp.woken, POLLIN);
    for (const RtExchange *x = tcp.exchanges; x; x = x->behind)
        for (int q = 0; q < x->channel->count; q++) {
            const Pair *pair = &x->pair[q];
            const short events = (short)((pair->from.left > 0 ? POLLIN : 0) | (pair->to.left > 0 ? POLLOUT : 0));
            if (events)
                add_to_list(count++, tcp.peer[x->channel->rank[q]].data, events);
        }
    if (poll(tcp.list, count, MOST) > 0 && tcp.list[0].revents && read(tcp.woken, &times, sizeof times) < 0)
        errno = 0; /* another look at it is all that is needed */
}

static void wake(void)
{
    const uint64_t once = 1;
    if (write(tcp.woken, &once, sizeof once) < 0)
        errno = 0; /* it is to be woken already */
}

static RtChannel *form_group(const int rank[], int count, int own)
{
    RtChannel *channel = rt_allocate(1, (int64_t)(sizeof *channel + (size_t)count * sizeof *channel->rank));
    channel->count = count;
    channel->own = own;
    memcpy(channel->rank, rank, (size_t)count * sizeof *rank);
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
    tcp.out = rt_allocate(own.ranks, sizeof *tcp.out);
    tcp.in = rt_allocate(own.ranks, sizeof *tcp.in);
    tcp.woken = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (tcp.woken < 0)
        rt_fail("cannot make an eventfd: %s", strerror(errno));
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
        free(tcp.channels);
    }
    close(tcp.woken);
    free(tcp.list);
    free(tcp.out);
    free(tcp.in);
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
                        .end = end,
                        .sleep = sleep_until_ready,
                        .wake = wake,
                        .call = rt_control_call,
                        .listen = rt_control_listen,
                        .claim_word = rt_control_claim_word,
                        .hear_claim = rt_control_hear_claim };
