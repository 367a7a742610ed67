/* comm_mpi.c -- messages by MPI: the only file that uses MPI.  Programs of one rank do not name rt_mpi, so that they
 * link without MPI.
 *
 * Two threads call it, serialised by a lock (MPI_THREAD_SERIALIZED).
 *
 * A library sends small messages at once, and large ones only when the receiver has answered.  Over a network both are
 * on one connection, where an answer comes behind what goes the same way, for as long as that takes: of two large
 * messages in opposite directions one would wait for the other.  So messages between machines are sent in pieces that
 * are small.  They may come before their receive is posted, and the library keeps them until then: of a message that is
 * longer than a window, a part is sent only when the first piece of the part before has met its receive. */
#include "mesh/comm.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include <pthread.h>

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

/* Bytes: MPI counts in int, and OpenMPI sends less than 64 KiB at once. */
#ifndef PIECE /* tests set smaller values */
#define PIECE (1 << 30)
#define WINDOW INT64_MAX
#endif
typedef struct {
    int64_t piece, window;
} Cut;
static const Cut within = { PIECE, WINDOW }, between = { 60 << 10, 4 << 20 };

enum { TAG = 1, CALL, ANSWER, WORD };

struct RtChannel {
    MPI_Comm comm;
    int own, count;
    const Cut **cut;      /* of messages to or from each rank of the group */
    int *sent, *received; /* the tag of the last one: parts of several may be sent in turn */
};

/* A message to a rank. */
typedef struct {
    RtMessage message;
    int tag;
    int64_t begun; /* bytes of the parts that are sent */
    int gate;      /* the request of the first piece of the last of these, if there are more */
} Outgoing;

struct RtExchange {
    RtChannel *channel;
    Outgoing *to;
    MPI_Request *request; /* first receives, then sends */
    int *from;            /* sender of a receive; -1: a send */
    int requests, first;  /* the first that is not done, as far as known */
    int pieces;           /* that there will be */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool *is_near; /* by rank of the program: is it on this machine? */

static void check(int status, const char *call)
{
    if (status != MPI_SUCCESS) {
        char text[MPI_MAX_ERROR_STRING];
        int length;
        MPI_Error_string(status, text, &length);
        pthread_mutex_unlock(&lock);
        rt_fail("%s of MPI failed: %s", call, text);
    }
}

/* --- Start and end --------------------------------------------------------------------------------- */

static void find_near_ranks(MPI_Comm host, const RtRank *own)
{
    MPI_Group world, group;
    int *local = rt_allocate(own->local_ranks, sizeof *local), *rank = rt_allocate(own->local_ranks, sizeof *rank);
    is_near = rt_allocate(own->ranks, sizeof *is_near);
    for (int i = 0; i < own->local_ranks; i++)
        local[i] = i;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Comm_group(host, &group);
    MPI_Group_translate_ranks(group, own->local_ranks, local, world, rank);
    for (int i = 0; i < own->local_ranks; i++)
        is_near[rank[i]] = true;
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    free(local);
    free(rank);
}

static RtRank open_mpi(int *argc, char ***argv)
{
    RtRank own;
    int level;
    MPI_Comm host;
    MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &level);
    if (level < MPI_THREAD_SERIALIZED)
        rt_fail("this MPI cannot be called by more than one thread: use one that supports MPI_THREAD_SERIALIZED");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &own.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &own.ranks);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &own.local_rank);
    MPI_Comm_size(host, &own.local_ranks);
    find_near_ranks(host, &own);
    MPI_Comm_free(&host);
    return own;
}

static void close_mpi(void)
{
    free(is_near);
    MPI_Finalize();
}

_Noreturn static void abort_mpi(int status)
{
    pthread_mutex_lock(&lock);
    MPI_Abort(MPI_COMM_WORLD, status);
    _Exit(status);
}

static int launched_as_of_mpi(int argc, char **argv)
{
    static const char *const names[] = { "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK" };
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        const char *rank = getenv(names[i]);
        if (rank)
            return atoi(rank);
    }
    return 0;
}

static RtChannel *form_group(const int rank[], int count, int own)
{
    RtChannel *channel = rt_allocate(1, sizeof *channel);
    MPI_Group world, group;
    channel->count = count;
    channel->own = own;
    channel->cut = rt_allocate(count, sizeof *channel->cut);
    channel->sent = rt_allocate(count, sizeof *channel->sent);
    channel->received = rt_allocate(count, sizeof *channel->received);
    for (int q = 0; q < count; q++)
        channel->cut[q] = is_near[rank[q]] ? &within : &between;
    pthread_mutex_lock(&lock);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, count, rank, &group);
    check(MPI_Comm_create_group(MPI_COMM_WORLD, group, TAG, &channel->comm), "MPI_Comm_create_group");
    MPI_Comm_set_errhandler(channel->comm, MPI_ERRORS_RETURN);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    pthread_mutex_unlock(&lock);
    return channel;
}

/* --- Exchanges ------------------------------------------------------------------------------------- */

static int pieces_of(const Cut *cut, RtMessage message)
{
    const int64_t windows = message.bytes / cut->window, rest = message.bytes % cut->window;
    return (int)(windows * ((cut->window - 1) / cut->piece + 1) + (rest + cut->piece - 1) / cut->piece);
}

static RtExchange *new_exchange(RtChannel *channel, const RtMessage to[], const RtMessage from[])
{
    RtExchange *x = rt_allocate(1, sizeof *x);
    x->channel = channel;
    x->to = rt_allocate(channel->count, sizeof *x->to);
    for (int q = 0; q < channel->count; q++)
        if (q != channel->own) {
            x->to[q].message = to[q];
            x->pieces += pieces_of(channel->cut[q], to[q]) + pieces_of(channel->cut[q], from[q]);
        }
    x->request = rt_allocate(x->pieces, sizeof *x->request);
    x->from = rt_allocate(x->pieces, sizeof *x->from);
    return x;
}

static MPI_Request *add_request(RtExchange *x, int from)
{
    x->from[x->requests] = from;
    return &x->request[x->requests++];
}

/* The bytes of the piece that begins there. */
static int piece_at(const Cut *cut, RtMessage message, int64_t at)
{
    const int64_t of_window = cut->window - at % cut->window, of_message = message.bytes - at;
    const int64_t most = cut->piece < of_window ? cut->piece : of_window;
    return (int)(of_message < most ? of_message : most);
}

/* Both ends count the same; a message without bytes is none. */
static int next_tag(int *last, RtMessage message)
{
    enum { TAGS = 32768 }; /* every library has as many */
    return message.bytes ? *last = (*last + 1) % TAGS : 0;
}

static void receive(RtExchange *x, int from, RtMessage message)
{
    const int tag = next_tag(&x->channel->received[from], message);
    for (int64_t at = 0, bytes; at < message.bytes; at += bytes) {
        bytes = piece_at(x->channel->cut[from], message, at);
        check(MPI_Irecv(message.data + at, (int)bytes, MPI_BYTE, from, tag, x->channel->comm, add_request(x, from)),
              "MPI_Irecv");
    }
}

/* The next window of a message. */
static void send(RtExchange *x, int to)
{
    Outgoing *out = &x->to[to];
    const Cut *cut = x->channel->cut[to];
    const int64_t begin = out->begun, left = out->message.bytes - begin;
    const int64_t end = begin + (left < cut->window ? left : cut->window);
    out->gate = x->requests;
    for (int64_t at = begin, bytes; at < end; at += bytes) {
        char *data = out->message.data + at;
        MPI_Request *request = add_request(x, -1);
        bytes = piece_at(cut, out->message, at);
        if (at == begin && end < out->message.bytes)
            check(MPI_Issend(data, (int)bytes, MPI_BYTE, to, out->tag, x->channel->comm, request), "MPI_Issend");
        else
            check(MPI_Isend(data, (int)bytes, MPI_BYTE, to, out->tag, x->channel->comm, request), "MPI_Isend");
    }
    out->begun = end;
}

/* Each rank starts with its neighbour, so that not all send to the same rank. */
static RtExchange *start(RtChannel *channel, const RtMessage to[], const RtMessage from[])
{
    RtExchange *x = new_exchange(channel, to, from);
    pthread_mutex_lock(&lock);
    for (int i = 1; i < channel->count; i++) {
        int q = (channel->own + channel->count - i) % channel->count;
        receive(x, q, from[q]);
    }
    for (int i = 1; i < channel->count; i++) {
        int q = (channel->own + i) % channel->count;
        x->to[q].tag = next_tag(&channel->sent[q], to[q]);
        send(x, q);
    }
    pthread_mutex_unlock(&lock);
    return x;
}

/* A null request is completed. */
static bool is_complete(const RtExchange *x, int request)
{
    int done = 1;
    if (x->request[request] != MPI_REQUEST_NULL)
        check(MPI_Request_get_status(x->request[request], &done, MPI_STATUS_IGNORE), "MPI_Request_get_status");
    return done;
}

static bool is_done(RtExchange *x)
{
    int done = 1;
    pthread_mutex_lock(&lock);
    for (int q = 0; q < x->channel->count && x->requests < x->pieces; q++)
        if (x->to[q].begun < x->to[q].message.bytes && is_complete(x, x->to[q].gate))
            send(x, q);
    while (x->first < x->requests && done) {
        check(MPI_Test(&x->request[x->first], &done, MPI_STATUS_IGNORE), "MPI_Test");
        x->first += done;
    }
    pthread_mutex_unlock(&lock);
    return x->first == x->pieces;
}

static bool has_come(RtExchange *x, int from)
{
    bool has = true;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < x->requests; i++)
        has = has && (x->from[i] != from || is_complete(x, i));
    pthread_mutex_unlock(&lock);
    return has;
}

static void end(RtExchange *x)
{
    free(x->to);
    free(x->request);
    free(x->from);
    free(x);
}

/* MPI moves messages only when it is called, and nothing wakes this rank: it looks often while a message may be moving,
 * and seldom after that. */
static void sleep_a_moment(double waited)
{
    enum { SHORT = 20000, LONG = 500000 }; /* ns */
    static unsigned turn;
    const double patience = 1; /* seconds */
    if (waited < patience && ++turn % 16)
        sched_yield();
    else
        nanosleep(&(struct timespec){ .tv_nsec = waited < patience ? SHORT : LONG }, NULL);
}

/* --- Calls and answers ----------------------------------------------------------------------------- */

/* Does not wait: one byte is sent immediately. */
static void send_byte(int rank, int tag)
{
    static char byte;
    MPI_Request request;
    check(MPI_Isend(&byte, 1, MPI_BYTE, rank, tag, MPI_COMM_WORLD, &request), "MPI_Isend");
    check(MPI_Request_free(&request), "MPI_Request_free");
}

/* A rank whose byte has arrived, or -1. */
static int receive_byte(int tag)
{
    MPI_Status status;
    char byte;
    int has_come = 0;
    for (int iteration = 0; iteration < 2 && !has_come; iteration++) /* OpenMPI probes before it makes progress */
        check(MPI_Iprobe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &has_come, &status), "MPI_Iprobe");
    if (!has_come)
        return -1;
    check(MPI_Recv(&byte, 1, MPI_BYTE, status.MPI_SOURCE, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "MPI_Recv");
    return status.MPI_SOURCE;
}

static void call(int rank)
{
    pthread_mutex_lock(&lock);
    send_byte(rank, CALL);
    pthread_mutex_unlock(&lock);
}

static int listen_to_calls(void)
{
    pthread_mutex_lock(&lock);
    for (int rank; (rank = receive_byte(CALL)) >= 0;)
        send_byte(rank, ANSWER);
    int answered = receive_byte(ANSWER);
    pthread_mutex_unlock(&lock);
    return answered;
}

static void claim_word(void)
{
    int own, ranks;
    pthread_mutex_lock(&lock);
    MPI_Comm_rank(MPI_COMM_WORLD, &own);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int rank = 0; rank < ranks; rank++)
        if (rank != own)
            send_byte(rank, WORD);
    pthread_mutex_unlock(&lock);
}

static int hear_claim(void)
{
    static int first = -1;
    pthread_mutex_lock(&lock);
    for (int rank; (rank = receive_byte(WORD)) >= 0;)
        first = first < 0 || rank < first ? rank : first;
    pthread_mutex_unlock(&lock);
    return first;
}

const RtComm rt_mpi = { .open = open_mpi,
                        .close = close_mpi,
                        .abort = abort_mpi,
                        .launched_as = launched_as_of_mpi,
                        .group = form_group,
                        .start = start,
                        .is_done = is_done,
                        .has_come = has_come,
                        .end = end,
                        .sleep = sleep_a_moment,
                        .call = call,
                        .listen = listen_to_calls,
                        .claim_word = claim_word,
                        .hear_claim = hear_claim };
