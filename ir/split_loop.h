/* split_loop.h -- loops along a dim that is split over an axis: each rank runs the iterations whose slices it holds,
 * and passes what is carried to the next rank.  So ranks along this axis are of several kinds.
 */
#ifndef MPC_SPLIT_LOOP_H
#define MPC_SPLIT_LOOP_H

#include "ranks.h"

bool is_split_loop(const Op *op);
bool has_split_loop(const Func *f);

/* Must be called when an op that may be such a loop has been made, or has been split. */
void note_split_loop(Module *m, const Op *op);

int64_t rank_iterations(const Module *m, const Op *op);        /* of a call or loop, on the rank that has most */
double iterations_on(const Module *m, const Op *op, int rank); /* on that rank */
bool runs_to_last_rank(const Op *loop);                        /* forward: from the first rank to the last */
RankSet ranks_passed(const Module *m, const Op *loop);         /* by what it carries, also without iterations */
RankSet end_rank(const Module *m, const Op *loop, bool last);  /* that runs the first (or `last`) iterations */

/* Is what the loop carries sent from one rank to the other? */
bool crosses_ranks(const Module *m, const Op *loop, int from, int to);

/* The share of the ranks passed that hand on what is carried: all but the last one. */
double share_passing_on(const Module *m, const Op *loop);

/* How many carried values are sent to the next rank.  The others, which follow them, are in flight: each rank begins
 * with its own. */
int64_t count_passed_on(const Op *loop);

/* Do the types of f name ranks, or does f have split loops?  All other functions run where one op would. */
bool says_where(const Module *m, const Func *f);

#endif
