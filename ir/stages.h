/* stages.h -- the stages of a pipeline: where values are, and where they are needed. */
#ifndef MPC_STAGES_H
#define MPC_STAGES_H

#include "ir.h"
#include "map.h"

#define ALL_STAGES (~UINT64_C(0))

/* --- Sets of stages ------------------------------------------------------------------------------ */

bool same_stages(Stages a, Stages b);
bool is_on(Stages on, int stage); /* does that stage hold the value? */
bool is_on_all(Stages on, Stages these);
bool is_one_stage(Stages on);
Stages common_stages(Stages a, Stages b);      /* axis -1: there are none */
Stages unless_all(const Module *m, Stages on); /* a type names no stages if its value is on all */

/* --- Loops in stages: loops along a dim that is split over the pipeline's axis ------------------- */

bool runs_in_stages(const Op *op);
static inline int pipeline_axis(const Module *m) { return m->stage_axis; } /* -1: no loop runs in stages */

/* Must be called when an op that may be a loop in stages has been made, or has been split. */
void note_pipeline(Module *m, const Op *op);

int64_t rank_iterations(const Module *m, const Op *op); /* of a call or loop, on the rank that has most */
bool runs_to_last_stage(const Op *loop);                /* forward: from the first stage to the last */
Stages stages_passed(const Module *m, const Op *loop);  /* by its carried values, also without iterations */

/* The stage that runs the first (or `last`) iterations. */
Stages end_stage(const Module *m, const Op *loop, bool last);

/* Are the carried values sent from stage `from` to stage `to`? */
bool crosses_stages(const Module *m, const Op *loop, int from, int to);

/* Does the loop begin a chunk of its own?  It continues that of `before` if it runs in the same direction, and begins
 * on the stage where `before` ends. */
bool begins_chunk(const Module *m, const Op *before, const Op *loop);

/* How many carried values are sent to the next stage.  The others, which follow them, are in flight: each stage begins
 * with its own. */
int64_t count_passed_on(const Op *loop);

bool is_send(const Op *op); /* from one stage to another */

/* Do the types of f name stages, or does f have loops in stages?  All other functions run where one op would. */
bool is_staged(const Module *m, const Func *f);

/* Deals the copies of consecutive repeats to stages.  copies[repeat] is the number of copies of a repeat, stage[s] the
 * number that a stage takes of all repeats together.  part[repeat][s] becomes the copies of that repeat on the stage;
 * -1: the repeat does not reach it.  A repeat begins on the stage where the one before ends, with 0 copies there if
 * that stage is full. */
void cut_repeats(const int64_t *copies, int repeats, const int64_t *stage, int64_t part[][MAX_STAGE_RANKS]);

/* Does the op add terms that are on different stages?  The sum is then pending over the pipeline's axis. */
bool adds_stages(const Op *op);

/* The axes over which a value is a pending sum.  A value of one stage counts as one: that stage has the only term. */
Axes pending_with_stages(const Type *type);
Axes pending_of(const Op *op, const Type *type); /* of an operand, as the op takes it */

/* For each value of the program, the stages that need it, which alone compute it.  They need it for results that the
 * trainer reads and, `with_state`, for the state of the next step, on the stages of its type. */
Map stages_needed(Module *m, bool with_state);

/* The stages on which the memory of a value may be written: those that hold it.  The result of a call or loop may be
 * written on any: the ops of the callee say where they run, and a carried value is on all stages that it passes. */
uint64_t stages_written(const Module *m, const Value *value);

/* The stages that call the function of a call, or of a loop that passes none; none named: all.  If its types name
 * stages, its ops say where they run.  If not, it runs where one op would: in there nothing says that its operands are
 * on some stages only, so on others its collectives, and what these need, would take what has never been computed. */
Stages stages_calling(const Module *m, const Op *op);

/* The set of stages that run an op of a finished program: those that need its results; for a message, all that hold the
 * value; for a loop in stages, all that it passes.  Call note_stages() first, when the program is final. */
void note_stages(Module *m);
uint64_t stages_running(const Module *m, const Op *op);
uint64_t stages_needing(const Map *needed, const Value *value); /* as a set */
bool need_on(Map *needed, const Value *value, uint64_t stages); /* adds these; true: some are new */

bool passes_stages(const Func *f); /* does it have loops in stages? */

/* Is f a part of a micro-batch?  The schedule sends its messages between stages. */
bool is_part_of_micro(const Module *m, const Func *f);

/* The loop over micro-batches of the step: the only one around the loops in stages; NULL: there is none. */
Op *micro_loop(const Module *m);

#endif
