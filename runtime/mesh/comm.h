/* comm.h -- ranks: their numbers, and communication between them.
 *
 * comm.c does the arithmetic of the mesh and forms groups; exchange.c turns a collective into messages; collective.c
 * runs collectives in the background; a transport carries messages (comm_mpi.c, comm_tcp.c).  A program of one rank
 * has no transport, and all of this does nothing. */
#ifndef MPC_RUNTIME_COMM_H
#define MPC_RUNTIME_COMM_H

#include "state.h"
#include "transport.h"

/* --- comm.c ------------------------------------------------------------------------------------- */

typedef struct {
    RtChannel *channel;
    int count, own; /* ranks in it; which one this is */
    int naxes, axis[RT_MAX_AXES];
    int *rank; /* of the program: of each in the group */
} RtGroup;

/* Who am I?  Ends the trainer where the number of ranks is not that of the program's mesh. */
void rt_comm_open(Rt *rt, int *argc, char ***argv);
void rt_comm_close(Rt *rt); /* all ranks have come to their end */

const RtGroup *rt_comm_group(const Rt *rt, const RtCollective *collective);
const RtGroup *rt_comm_world(const Rt *rt);

int64_t rt_part_size(const Rt *rt, RtSplit split, int64_t padded); /* elements of a rank's part */
char *rt_comm_place(const Rt *rt, int rank);                       /* "rank 3 (dp 1, tp 1)"; the caller's */

/* Waits for each other; all ranks call these, between steps. */
void rt_comm_barrier(Rt *rt);
double rt_comm_max(Rt *rt, double value);
double rt_comm_sum(Rt *rt, double value);

/* all[q] becomes what rank q has: `bytes` each. */
void rt_comm_gather(Rt *rt, const void *own, int64_t bytes, char *all);

void rt_comm_print_mesh(Rt *rt); /* a table, by rank 0 */

/* --- exchange.c --------------------------------------------------------------------------------- */

/* Runs a collective to its end; returns the bytes that this rank has sent to others. `workspace` holds
 * rt_exchange_workspace bytes (workspace.h).  `wait` is called until the exchange that was started is done. */
int64_t rt_exchange(Rt *rt, const RtCollective *collective, const void *const in[], void *const out[], char *workspace);

/* --- traffic.c ---------------------------------------------------------------------------------- */

/* Before any message; `timeout`: seconds that one may take. */
void rt_traffic_open(Rt *rt, double timeout);
void rt_traffic_close(Rt *rt);

/* Exchanges messages with a group and waits; past the time-out it ends all ranks, naming what is waited for and who is
 * silent. */
void rt_exchange_messages(Rt *rt, const RtGroup *group, const RtMessage to[], const RtMessage from[]);

/* "all_reduce over dp at 'h.attn' (gpt2.mdl:31:12; ...)"; NULL: the meeting between two steps.  The caller's. */
char *rt_collective_text(const Rt *rt, const RtCollective *collective);

RtTraffic rt_collectives_traffic(const Rt *rt);
void rt_collectives_print(const Rt *rt); /* a table of all collectives */

#endif
