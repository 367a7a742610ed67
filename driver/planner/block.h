/* block.h -- how long the parts of a micro-batch take.
 *
 * A micro-batch consists of the copies of the repeats, forward and backward, and of the ops before, between and after
 * the repeats.  Layouts that split a micro-batch in the same way run the same functions for these parts, whatever
 * their pipeline is.  So the parts are timed in a program without a pipeline, and the time of a stage is the sum of
 * the parts that it runs.  Two such programs are compiled: one without zero and with few data-parallel ranks, which
 * serves many layouts, and one with the zero of the layout.  Schedules that divide the backward action need the time
 * of both halves: these come from a program with two stages.
 *
 *   block.c        finds them, by what they have in common
 *   block_parts.c  reads them from a program
 *   stage_cost.c   the actions of a pipeline, made of them, and how long that takes
 *   block_bound.c  the bounds
 *   message_bound.c  before these, one by arithmetic
 */
#ifndef MPC_BLOCK_H
#define MPC_BLOCK_H

#include "planner.h"

/* Which program a block is read from. */
typedef struct {
    bool with_zero;  /* else without zero, and for any number of data-parallel ranks */
    bool is_summed;  /* of several micro-batches */
    bool is_divided; /* backward actions: those of activations, and of weights */
} BlockOf;

/* Of the repeats of the pipeline, in the order of the model. */
typedef struct Block {
    PlanLayout like;
    BlockOf of;
    int64_t micros; /* micro-batches of that layout */
    const char *refused;
    double copy[N_ACTION_KINDS][MAX_REPEATS];       /* seconds of a copy */
    double beside[N_ACTION_KINDS][MAX_REPEATS + 1]; /* seconds before each repeat, and after the last */
    double saved[MAX_REPEATS];                      /* bytes that a copy keeps for its backward */
    double handed_on;                               /* bytes of a message between stages */
    double whole, saved_whole;                      /* all of a micro-batch, its bytes */
    double apart;          /* seconds of all of it but messages along a sequence that attention has */
    double once, computed; /* seconds of what is done once a step; without messages */
    double step;           /* seconds of a step of one stage, with all micro-batches */
    double rest;           /* bytes of a rank but what micro-batches save */
    double at_head;        /* bytes beside these, between forward and backward pass */
    struct Block *next;
} Block;

const Block *find_block(Planner *p, const PlanLayout *layout, BlockOf of);

/* block_parts.c: into a Block; context: BlockReading. */
typedef struct {
    const Planner *p;
    Block *block;
} BlockReading;
void read_block(void *context, Module *m, const Classes *classes, const char *why);

/* stage_cost.c: of the stages of the layout's pipeline, made of that block; simulate: else by what each rank does. */
BlockBound bound_of_pipeline(Planner *p, const PlanLayout *layout, const Block *block, bool simulate);

#endif
