/* comm_mpi.c -- messages by MPI: the only file that uses MPI.  Programs of one rank do not name rt_mpi, so that they
 * link without MPI.
 *
 * Two threads call it, serialised by a lock (MPI_THREAD_SERIALIZED).  Messages are sent in pieces of 2^30 bytes, since
 * MPI counts in int. */
#include "mesh/comm.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include <pthread.h>

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#ifndef PIECE /* tests send small messages in pieces, too */
#define PIECE (1 << 30)
#endif

enum { TAG = 1, CALL, ANSWER, WORD };

struct RtChannel {
    MPI_Comm comm;
    int own, count;
    MPI_Request *request; /* of the present exchange */
    MPI_Status *status;   /* not read: gcc takes MPICH's MPI_STATUSES_IGNORE for an array that is too short */
    int *from;            /* sender of a receive; -1: a send */
    int requests, room;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

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
    MPI_Comm_free(&host);
    return own;
}

static void close_mpi(void) { MPI_Finalize(); }

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

static MPI_Request *add_request(RtChannel *channel, int from)
{
    if (channel->requests == channel->room) {
        channel->room = channel->room ? 2 * channel->room : 2 * channel->count;
        channel->request = realloc(channel->request, (size_t)channel->room * sizeof *channel->request);
        channel->status = realloc(channel->status, (size_t)channel->room * sizeof *channel->status);
        channel->from = realloc(channel->from, (size_t)channel->room * sizeof *channel->from);
        if (!channel->request || !channel->status || !channel->from) {
            pthread_mutex_unlock(&lock);
            rt_fail("out of memory: cannot note %d messages", channel->room);
        }
    }
    channel->from[channel->requests] = from;
    return &channel->request[channel->requests++];
}

static void receive(RtChannel *channel, int from, RtMessage message)
{
    for (int64_t done = 0; done < message.bytes; done += PIECE) {
        int bytes = message.bytes - done < PIECE ? (int)(message.bytes - done) : PIECE;
        check(MPI_Irecv(message.data + done, bytes, MPI_BYTE, from, TAG, channel->comm, add_request(channel, from)),
              "MPI_Irecv");
    }
}

static void send(RtChannel *channel, int to, RtMessage message)
{
    for (int64_t done = 0; done < message.bytes; done += PIECE) {
        int bytes = message.bytes - done < PIECE ? (int)(message.bytes - done) : PIECE;
        check(MPI_Isend(message.data + done, bytes, MPI_BYTE, to, TAG, channel->comm, add_request(channel, -1)),
              "MPI_Isend");
    }
}

/* Each rank starts with its neighbour, so that not all send to the same rank. */
static void start(RtChannel *channel, int count, const RtMessage to[], const RtMessage from[])
{
    pthread_mutex_lock(&lock);
    channel->requests = 0;
    for (int i = 1; i < count; i++) {
        int q = (channel->own + count - i) % count;
        receive(channel, q, from[q]);
    }
    for (int i = 1; i < count; i++) {
        int q = (channel->own + i) % count;
        send(channel, q, to[q]);
    }
    pthread_mutex_unlock(&lock);
}

static bool is_done(RtChannel *channel)
{
    int done;
    pthread_mutex_lock(&lock);
    check(MPI_Testall(channel->requests, channel->request, &done, channel->status), "MPI_Testall");
    pthread_mutex_unlock(&lock);
    return done;
}

/* A null request is completed. */
static bool has_come(RtChannel *channel, int from)
{
    bool has = true;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < channel->requests; i++) {
        int done = 1;
        if (channel->from[i] == from && channel->request[i] != MPI_REQUEST_NULL)
            check(MPI_Request_get_status(channel->request[i], &done, MPI_STATUS_IGNORE), "MPI_Request_get_status");
        has = has && done;
    }
    pthread_mutex_unlock(&lock);
    return has;
}

/* MPI moves messages only when it is called, and nothing wakes this rank: it looks often while a message may be moving,
 * and seldom after that. */
static void sleep_in(RtChannel *channel, double waited)
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
                        .sleep = sleep_in,
                        .call = call,
                        .listen = listen_to_calls,
                        .claim_word = claim_word,
                        .hear_claim = hear_claim };
