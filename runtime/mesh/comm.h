/* comm.h -- ranks, and communication between them.
 *
 * comm.c does the arithmetic of the mesh and forms groups; exchange.c turns a collective into messages; collective.c
 * runs collectives in the background; wait.c waits for messages; a transport carries them (comm_mpi.c, comm_tcp.c).  In
 * a program of one rank there is no transport, and these functions do nothing. */
#ifndef MPC_RUNTIME_COMM_H
#define MPC_RUNTIME_COMM_H

#include "state.h"
#include "transport.h"

/* --- comm.c ------------------------------------------------------------------------------------- */

typedef struct {
    RtChannel *channel;
    int count, own; /* number of ranks; index of this rank */
    int naxes, axis[RT_MAX_AXES];
    uint64_t members; /* as of its collectives */
    int *rank;        /* the rank of each member */
} RtGroup;

/* Determines rank and ranks.  Ends the trainer if the number of ranks is not that of the program's mesh. */
void rt_comm_open(Rt *rt, int *argc, char ***argv);

/* Forms the groups of the program's collectives, in place of those of another program: all ranks call it. */
void rt_comm_form_groups(Rt *rt);
void rt_comm_close(Rt *rt); /* all ranks have finished */

const RtGroup *rt_comm_group(const Rt *rt, const RtCollective *collective);

int64_t rt_part_size(const Rt *rt, RtSplit split, int64_t padded); /* elements of a rank's part */
char *rt_comm_place(const Rt *rt, int rank);                       /* "rank 3 (dp 1, tp 1)"; owned by the caller */

/* Synchronisation: all ranks call these, between steps. */
void rt_comm_barrier(Rt *rt);
double rt_comm_max(Rt *rt, double value);
double rt_comm_sum(Rt *rt, double value);
void rt_comm_add(Rt *rt, uint64_t *numbers, int count); /* each number of all ranks: their sum, mod 2^64 */

/* Gathers `bytes` from each rank: all[q] is that of rank q. */
void rt_comm_gather(Rt *rt, const void *own, int64_t bytes, char *all);

/* Makes a text that another rank has sent fit for messages: ends it, and replaces control characters. */
void rt_comm_clean(char *text, int64_t room);

void rt_comm_print_mesh(Rt *rt); /* a table, by rank 0 */

/* --- share.c ------------------------------------------------------------------------------------ */

/* Finds what of its machine this rank may use: all ranks call it, before any memory is taken. */
void rt_share_machine(Rt *rt);

/* --- clock.c ------------------------------------------------------------------------------------ */

/* The seconds that this rank's clock is ahead of rank 0's: all ranks call it. */
double rt_clock_ahead(Rt *rt);

/* --- wait.c ------------------------------------------------------------------------------------- */

typedef struct RtUnderWay RtUnderWay; /* messages of one exchange */

/* Starts messages `of` a collective; NULL: between steps.  See RtComm for the order of several ones under way. */
RtUnderWay *rt_messages_start(Rt *rt, const RtGroup *group, const RtCollective *of, const RtMessage to[],
                              const RtMessage from[]);
bool rt_messages_are_done(Rt *rt, RtUnderWay *messages); /* then they are freed */

/* For a moment, or until some may be done; after the time-out of any it ends all ranks, reporting the collective and
 * the silent rank. */
void rt_messages_rest(Rt *rt);

/* Exchanges messages with a group and waits. */
void rt_exchange_messages(Rt *rt, const RtGroup *group, const RtCollective *of, const RtMessage to[],
                          const RtMessage from[]);

/* --- exchange.c --------------------------------------------------------------------------------- */

/* Runs a collective to completion; returns the bytes sent to other ranks.  `workspace` holds rt_exchange_workspace
 * bytes (workspace.h). */
int64_t rt_exchange(Rt *rt, const RtCollective *collective, const void *const in[], void *const out[], char *workspace);

/* Starts to send all of a tensor to a member of the group of `collective`, or, if `sent` is NULL, to receive it. */
RtUnderWay *rt_exchange_with(Rt *rt, const RtCollective *collective, int member, const void *sent, void *received);

/* --- traffic.c ---------------------------------------------------------------------------------- */

/* Called before any message; `timeout`: maximum seconds of an exchange. */
void rt_traffic_open(Rt *rt, double timeout);
void rt_traffic_close(Rt *rt);

char *rt_axes_text(const Rt *rt, int naxes, const int axis[]); /* "dp, tp"; owned by the caller */

/* "all_reduce over dp at 'h.attn' (gpt2.mdl:31:12; ...)"; NULL: an exchange between two steps.  Owned by the caller. */
char *rt_collective_text(const Rt *rt, const RtCollective *collective);

RtTraffic rt_collectives_traffic(const Rt *rt);
void rt_collectives_print(const Rt *rt); /* a table of all collectives */

#endif
