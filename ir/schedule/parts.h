/* parts.h -- the parts of a micro-batch: the chunk and the action of each of its ops.
 *
 * Loops in stages of one chunk are along the same dims: forward, backward, and for the gradients of weights.  They are
 * ops of the micro-batch's function, or, once passes/layout/pipeline.c has cut it, of the functions that it calls.
 */
#ifndef MPC_PARTS_H
#define MPC_PARTS_H

#include "ir.h"
#include "map.h"
#include "schedule.h"

/* What a rank does in one kind of action for one of its stages. */
typedef struct {
    ActionKind kind;
    int chunk;
    const Op *call; /* of its function; NULL: the micro-batch is not cut */
    int nloops;
    Op *loop[MAX_REPEATS]; /* in stages, in the order of the program: one for each repeat */
} StagePart;

typedef struct {
    Module *m;
    const Func *micro;
    int sums; /* its first parameters and results: what micro-batches add up */
    int chunks, count;
    StagePart *part; /* in the order of the program */
    Map of;          /* op -> number of its part + 1 */
} MicroParts;

/* Finds the parts by their loops.  false: a micro-batch does not pass the stages once forward and once backward. */
bool find_parts(Module *m, const Func *micro, MicroParts *parts);

/* The loop over micro-batches of the step that a schedule interleaves, and its parts; NULL: there is none. */
Op *scheduled_parts(Module *m, MicroParts *parts);

/* Parts are numbered as a micro-batch passes them: forward by chunk, backward from the last chunk to the first, and, if
 * they are parts of their own, gradients of weights in that order. */
int part_number(const MicroParts *parts, ActionKind kind, int chunk);
const StagePart *part_numbered(const MicroParts *parts, int number); /* NULL: there is none */
const StagePart *part_doing(const MicroParts *parts, ActionKind kind, int chunk);
const StagePart *part_called(const MicroParts *parts, const Op *call);

/* Copies of a repeat, by their numbers in the model. */
typedef struct {
    Name name;        /* "h", the instance that is repeated; ... */
    bool is_instance; /* ... false: of several ones, "layers" */
    int64_t first, count;
} StageCopies;

/* Those that a rank has of the number-th repeat of a chunk. */
StageCopies stage_copies(const MicroParts *parts, int chunk, int number, int rank);

/* The loop of a part that carries values from rank `from` to rank `to`; NULL: none does. */
const Op *crossing_loop(const Module *m, const StagePart *part, int from, int to);

/* Assigns all other ops: those that a forward loop needs are forward; all others are backward, in the part that has
 * their operands.  Returns a loop that would have to be in a later part than its own; NULL: success. */
const Op *assign_parts(MicroParts *parts);
int part_of(const MicroParts *parts, const Op *op); /* its number; -1: none yet */

#endif
