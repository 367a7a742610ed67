/* block.h -- the times of the parts of a micro-batch.
 *
 * A micro-batch consists of the copies of the repeats, forward and backward, and of the ops before, between and after
 * the repeats.  Layouts that split a micro-batch in the same way run the same functions for these parts, whatever
 * their pipeline is.  So the parts are timed in a program without a pipeline, and the time of a stage is the sum of
 * the parts that it runs.  Three such programs are compiled: a rough one without zero, data-parallel ranks and
 * recomputation, which serves most layouts; one without zero and with few data-parallel ranks; and one with the zero
 * of the layout.  Schedules that divide the backward action need the time of both halves; and stages with several
 * micro-batches abreast hide less than a program without stages, where messages cross from copy to copy.  These come
 * from a program of two stages.
 *
 *   block.c        finds them, by what they have in common
 *   sized.h        programs that layouts have in common, without their modules
 *   block_parts.h  reads the parts from such a program
 *   stage_parts.c  of two stages, from their actions
 *   pipeline.h     the pipeline of a layout
 *   stage_copies.c which copies stages have, and keep activations of
 *   stage_cost.c   the actions of a pipeline, made of them, and how long that takes
 *   block_memory.c what a rank has in memory, at least
 *   block_bound.c  the bounds
 */
#ifndef MPC_BLOCK_H
#define MPC_BLOCK_H

#include "planner.h"

/* Seconds of messages within a machine, and between machines: of a micro-batch, which grow with its sequences, and of
 * zero, which do not; of zero, once a step.  keys: of those that grow, what brings attention its keys. */
typedef struct {
    PlaceTime grown, keys, fixed, once;
    double share; /* of those of zero: what they take at least, see JOINED_SHARE */
} LinkTime;

/* Bytes beside all that is kept; with messages that the copy before has started; of what does not grow with sequences.
 */
typedef struct {
    double own, with_flights, of_weights;
} Scratch;

/* Of the repeats of the pipeline, in the order of the model. */
typedef struct Block {
    PlanLayout like;
    BlockOf of;
    int64_t turns; /* of that layout: see turns_of() */
    const char *refused;
    MicroTime time;
    double saved[MAX_REPEATS]; /* bytes that a copy keeps for its backward */
    double saved_whole;        /* bytes that a micro-batch keeps */
    CopyBytes divided;         /* bytes that a copy keeps, where backward actions are divided */
    double handed_on;          /* bytes of a message between stages */
    double apart;              /* seconds of all of it, if messages that bring attention its keys took none */
    double once;               /* seconds of all that is outside of micro-batches */
    OnceTime sent;             /* of these, some */
    LinkTime links;
    double step;              /* seconds of a step of one stage, with all micro-batches */
    double rest;              /* bytes of a rank but what micro-batches save ... */
    double held[MAX_REPEATS]; /* ... of these, of a copy */
    Scratch least, first;     /* of a backward action's first copy: of the repeat with least, and of the first one */
    double at_head;           /* bytes beside these, between forward and backward pass: of one micro-batch ... */
    double at_heads;          /* ... and of several, which add gradients to their sums in place */
    struct Block *next;
} Block;

const Block *find_block(Planner *p, const PlanLayout *layout, BlockOf of);
PlanLayout program_layout(const Planner *p, const PlanLayout *layout, BlockOf of); /* whose program it is read from */
int programs_of(const Planner *p, const BlockAsk *ask, BlockAsk program[2]); /* their number; with their layouts */
bool sums_late(const Planner *p, const PlanLayout *layout);        /* has what a micro-batch sends to do with zero? */
bool is_regular(Planner *p, const PlanLayout *layout, BlockOf of); /* can its program have other sizes? */
bool is_known(const Planner *p, const PlanLayout *layout, BlockOf of); /* has it been found? */

/* What of a layout is more than a size; without padding.  Blocks with the same are read from one program. */
typedef struct PlanProgram {
    int64_t axis[MAX_AXES]; /* see structure.c */
    int64_t cut;            /* sequences that pieces divide; 0: none */
    PlanAttend attend;
    Recompute recompute;
    PlanSchedule schedule;
    int zero, overlaps;
    int singles, micros; /* see singles_of(); micro-batches: 1, or 2 for any other number, times those abreast */
    int pieces, abreast;
} PlanProgram;

/* block_parts.c: into a Block; context: BlockReading. */
typedef struct {
    const Planner *p;
    Block *block;
} BlockReading;
struct Sized;
void read_block(void *context, const struct Sized *s);

/* stage_cost.c: seconds for the micro-batches of a step whose parts take that long, at least, with the layout's
 * schedule, or with any of them; of a pipeline or of one stage. */
double micros_in_schedule(Planner *p, const PlanLayout *layout, const MicroTime *time);
double least_of_micros(Planner *p, const PlanLayout *layout, const MicroTime *time);

/* stage_cost.c: does a program in the actions of a schedule say more than that of a step? */
bool needs_actions(const Planner *p, const PlanLayout *layout);

/* stage_cost.c: of a layout with a schedule, made of the parts of that block; `without`: the same without zero; with
 * what that of `zero` sends once a step, if it is known.  Bytes: 0, they are not known. */
BlockBound bound_of_actions(Planner *p, const PlanLayout *layout, const Block *block, const Block *without,
                            const Block *zero, int closeness);

/* block_memory.c: bytes.  zero: with its state, if it is known; is_any: with any schedule. */
double block_memory(Planner *p, const PlanLayout *layout, const Block *block, const Block *zero, bool is_any);

#endif
