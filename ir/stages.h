/* stages.h -- the stages of a pipeline: where values are, and where they are needed. */
#ifndef MPC_STAGES_H
#define MPC_STAGES_H

#include "ir.h"
#include "map.h"

#define ALL_STAGES (~UINT64_C(0))

bool same_stages(Stages a, Stages b);
bool is_on(Stages on, int stage); /* does that stage hold it? */
bool is_on_all(Stages on, Stages these);
bool is_one_stage(Stages on);
Stages common_stages(Stages a, Stages b);      /* with none in common: axis -1 */
Stages unless_all(const Module *m, Stages on); /* all stages: none has to be named */

bool runs_in_stages(const Op *op); /* a loop along a dim that is split: the stages of a pipeline */
static inline int pipeline_axis(const Module *m) { return m->stage_axis; } /* -1: no loop runs in stages */
void note_pipeline(Module *m, const Op *op); /* an op that may be a loop in stages has been made, or been split */
int64_t rank_iterations(const Module *m, const Op *op); /* of a call or loop, on the rank that has most */
bool runs_to_last_stage(const Op *loop);                /* does a loop in stages go from the first rank to the last? */
Stages stages_passed(const Module *m, const Op *loop);  /* by what a loop in stages carries */
Stages end_stage(const Module *m, const Op *loop, bool last); /* of those, in the order in which they run */
bool crosses_stages(const Module *m, const Op *loop, int from,
                    int to); /* does what it carries go from one to the next? */
bool begins_chunk(const Module *m, const Op *before, const Op *loop); /* or does it go on where that loop has ended? */
int64_t
count_passed_on(const Op *loop); /* how many carried values: what is in flight, after them, begins on each stage */
bool is_send(const Op *op);      /* from one stage to another */
bool is_staged(const Module *m, const Func *f); /* do its types say on which stages they are, or does it lead through
                                                   the stages of a pipeline?  Others run where one op would. */

/* The copies of each repeat on each stage, part[repeat][stage], if the stages have so many of all of them, one after
 * the other.  A repeat begins on the stage where the one before ends, with 0 copies if need be; -1: not on that stage.
 */
void cut_repeats(const int64_t *copies, int repeats, const int64_t *stage, int64_t part[][MAX_STAGE_RANKS]);

/* A sum of terms on different stages, which is pending over them. */
bool adds_stages(const Op *op);

/* The axes over which a value is a pending sum, or may be seen as one: what one stage has is its only term. */
Axes pending_with_stages(const Type *type);
Axes pending_of(const Op *op, const Type *type); /* of an operand, as the op takes it */

/* For each value of the program: the stages that need it, for the results that the trainer reads and, `with_state`, for
 * new state where its type says.  A value is computed on those alone. */
Map stages_needed(Module *m, bool with_state);

/* The stages on which the memory of a value may be written: those that hold it; of what a call or loop makes, any,
 * since its ops say for themselves where they run, and what is carried is on all stages that it passes. */
uint64_t stages_written(const Module *m, const Value *value);

/* The stages that call the function of a call, or of a loop that passes none; none named: all.  If its types name
 * stages, its ops say where they run.  If not, it runs where one op would: in there nothing says that its operands are
 * on some stages only, so on others its collectives, and what these need, would take what has never been computed. */
Stages stages_calling(const Module *m, const Op *op);

/* The stages that run an op of a finished program, as a set: those that need its results; of a message, all that have
 * the value; of a loop in stages, those that it passes.  note_stages() must have been called, once the program does not
 * change any more. */
void note_stages(Module *m);
uint64_t stages_running(const Module *m, const Op *op);
uint64_t stages_needing(const Map *needed, const Value *value); /* as a set */

bool passes_stages(const Func *f); /* are there loops in stages in it? */

/* Is it a part of a micro-batch, whose messages between stages the schedule sends? */
bool is_part_of_micro(const Module *m, const Func *f);

/* The loop over micro-batches of the step: the only one around the loops in stages; NULL: there is none. */
Op *micro_loop(const Module *m);

#endif
