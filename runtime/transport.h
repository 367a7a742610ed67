/* transport.h -- the interface of transports, which carry messages between ranks: net/ has two.  A program of one rank
 * has none. */
#ifndef MPC_RUNTIME_TRANSPORT_H
#define MPC_RUNTIME_TRANSPORT_H

#include "rt.h"

typedef struct RtChannel RtChannel;   /* opaque: the connections of a group of ranks */
typedef struct RtExchange RtExchange; /* opaque: messages of a group that are under way */

typedef struct {
    char *data;
    int64_t bytes;
} RtMessage;

/* The rank and the number of ranks; and the same for this machine, if known (else -1). */
typedef struct {
    int rank, ranks, local_rank, local_ranks;
} RtRank;

/* Except for `abort` and `wake`, never called by two threads at once. */
struct RtComm {
    bool takes_place; /* uses --rank, --ranks and --master */
    RtRank (*open)(int *argc, char ***argv);
    void (*close)(void);
    void (*abort)(int status);                 /* ends all ranks and does not return; from any thread */
    int (*launched_as)(int argc, char **argv); /* the rank of this process: known before `open`; 0 without a launcher */
    int (*launched_ranks)(int argc, char **argv); /* number of ranks, known before `open`; NULL: known only then */

    /* All ranks of a group call it with the same list; `own` is the caller's index in it. */
    RtChannel *(*group)(const int rank[], int count, int own);

    /* Sends to[q] to rank q of the group and receives from[q] from it; a rank sends nothing to itself.  Any number of
     * exchanges may be under way: from one rank to another, messages arrive in the order in which the exchanges were
     * started, which must be the same at both ends. */
    RtExchange *(*start)(RtChannel *channel, const RtMessage to[], const RtMessage from[]);
    bool (*is_done)(RtExchange *exchange);
    bool (*has_come)(RtExchange *exchange, int from); /* the message of that rank of the group? */
    void (*end)(RtExchange *exchange);                /* when it is done: frees it */

    /* Sleeps until an exchange may go on, for some milliseconds at most; `waited`: seconds so far. */
    void (*sleep)(double waited);
    void (*wake)(void); /* ends this or the next sleep; from any thread; NULL: sleeps are too short */

    /* Ranks that wait for messages answer calls, so that ranks that wait for each other report the right one. */
    void (*call)(int rank);
    int (*listen)(void); /* answers calls; returns a rank that has answered a call of this one, or -1 */

    /* Before a final error message: announces it to all ranks; returns the first rank that has announced one, or -1. */
    void (*claim_word)(void);
    int (*hear_claim)(void);
};

#endif
