/* needed.h -- which ranks need a value, run an op, and may write a result, where ranks are of several kinds. */
#ifndef MPC_NEEDED_H
#define MPC_NEEDED_H

#include "map.h"
#include "ranks.h"

/* For each value of the program, the ranks that need it, which alone compute it.  They need it for results that the
 * trainer reads and, `with_state`, for the state of the next step, on the ranks of its type. */
Map ranks_needed(Module *m, bool with_state);
uint64_t ranks_needing(const Map *needed, const Value *value); /* as a set */
bool need_on(Map *needed, const Value *value, uint64_t ranks); /* adds these; true: some are new */

/* The ranks on which the memory of a value may be written: those that hold it.  The result of a call or loop may be
 * written on any: the ops of the callee say where they run, and a carried value is on all ranks that it passes. */
uint64_t ranks_written(const Module *m, const Value *value);

/* The ranks that call the function of a call, or of a loop that passes none; none named: all.  If its types name
 * ranks, its ops say where they run.  If not, it runs where one op would: in there nothing says that its operands are
 * on some ranks only, so on others its collectives, and what these need, would take what has never been computed. */
RankSet ranks_calling(const Module *m, const Op *op);

/* The set of ranks that run an op of a finished program: those that need its results; for a message, all that hold the
 * value; for a split loop, all that it passes.  Call note_ranks() first, when the program is final. */
void note_ranks(Module *m);
uint64_t ranks_running(const Module *m, const Op *op);

#endif
