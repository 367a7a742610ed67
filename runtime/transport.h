/* transport.h -- what the runtime asks of a transport, which carries messages between ranks: net/ has two.  A program
 * of one rank has none. */
#ifndef MPC_RUNTIME_TRANSPORT_H
#define MPC_RUNTIME_TRANSPORT_H

#include "rt.h"

typedef struct RtChannel RtChannel; /* the transport's: what a group of ranks talks over */

typedef struct {
    char *data;
    int64_t bytes;
} RtMessage;

/* Which one of how many; and among those on the same machine, where that is known (else -1). */
typedef struct {
    int rank, ranks, local_rank, local_ranks;
} RtRank;

/* One exchange at a time; never called by two threads at once but for `abort`. */
struct RtComm {
    bool takes_place; /* heeds --rank, --ranks and --master */
    RtRank (*open)(int *argc, char ***argv);
    void (*close)(void);
    void (*abort)(int status);                 /* ends all ranks and does not return; from any thread */
    int (*launched_as)(int argc, char **argv); /* the rank that is meant: known before `open`; 0 without a launcher */
    int (*launched_ranks)(int argc, char **argv); /* how many: known before `open`; NULL: only then */

    /* The ranks of a group call it, each with the same list; `own` is its place in it. */
    RtChannel *(*group)(const int rank[], int count, int own);

    /* Sends to[q] to rank q of the group and receives from[q] from it; to itself a rank sends nothing. */
    void (*start)(RtChannel *channel, int count, const RtMessage to[], const RtMessage from[]);
    bool (*is_done)(RtChannel *channel);
    bool (*has_come)(RtChannel *channel, int from); /* has rank `from` of the exchange at hand sent its message? */

    /* Who waits for messages answers when called, so that of ranks that wait for each other nobody blames the wrong
     * one. */
    void (*call)(int rank);
    int (*listen)(void); /* answers calls; a rank that has answered this one's, or -1 */

    /* Before the last message of all: tells the others that it comes; the first of those that have told so, or -1. */
    void (*claim_word)(void);
    int (*hear_claim)(void);
};

#endif
