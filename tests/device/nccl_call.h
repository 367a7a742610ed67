/* nccl_call.h -- a communicator, a call, and what ranks compare of it. */
#ifndef MPC_TESTS_NCCL_CALL_H
#define MPC_TESTS_NCCL_CALL_H

#include "nccl_memory.h"
#include "nccl_registered.h"
#include "nccl_sum.h"

#include <pthread.h>
#include <stdatomic.h>

typedef enum { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, SEND, RECV } Kind;

struct ncclComm {
    char path[200]; /* of files of the group, without what follows */
    char place[64];
    int rank, ranks;
    int64_t groups;                               /* of calls of all ranks, that were worked on */
    int64_t sent[MAX_RANKS], received[MAX_RANKS]; /* groups with messages to, and from, a rank */
    Connections connections;
    Registered registered; /* what it reads and writes in place */
    bool is_open;
    bool is_busy;           /* the last calls are in progress until it is asked */
    bool is_finalized;      /* it comes, or has come, to rest */
    atomic_bool is_live;    /* a kernel waits for other ranks */
    atomic_bool is_aborted; /* such kernels end */
    pthread_t opened_by;    /* the thread that has its calls; others only ask for errors */
    ncclComm_t next;
};

typedef struct {
    Kind kind;
    const char *from;
    char *to;
    int64_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer;
} Call;

static size_t given_bytes(const ncclComm_t comm, const Call *c)
{
    size_t count = (size_t)c->count * (c->kind == REDUCE_SCATTER ? (size_t)comm->ranks : 1);
    return count * element_bytes(c->type);
}

/* As NCCL's documentation says of operations in place. */
static bool is_in_place(const ncclComm_t comm, const Call *c)
{
    const size_t own = (size_t)c->count * element_bytes(c->type) * (size_t)comm->rank;
    return c->kind == ALL_REDUCE       ? c->to == c->from
           : c->kind == ALL_GATHER     ? c->from == c->to + own
           : c->kind == REDUCE_SCATTER ? c->to == c->from + own
                                       : false;
}

/* What each rank says of its part. */
enum { FACTS = 6 };

static void facts_of(const ncclComm_t comm, const Call *c, int64_t fact[FACTS])
{
    const bool is_own = is_in_place(comm, c); /* then one of the two is where only this rank has its part */
    fact[0] = c->kind, fact[1] = c->count, fact[2] = c->type, fact[3] = c->op;
    fact[4] = c->kind < SEND ? offset_in(&comm->registered, is_own && c->kind == ALL_GATHER ? c->to : c->from) : 0;
    fact[5] = c->kind < SEND ? offset_in(&comm->registered, is_own && c->kind == REDUCE_SCATTER ? c->from : c->to) : 0;
}

#endif
