/* slots.h -- values that the micro-batches of a pipeline keep in memory between their actions. */
#ifndef MPC_SLOTS_H
#define MPC_SLOTS_H

#include "parts.h"

/* The slots of one value, or of several interleaved ones, for micro-batches in flight: micro-batch i is in slot i mod
 * the number of slots. */
typedef struct {
    const Op *call;        /* of the part whose results they are */
    const Value *value;    /* the first of them; others are interleaved with it */
    int64_t begin, end;    /* of the range in the frame of one micro-batch */
    int64_t offset, bytes; /* of the first slot, from the slots of the loop on; of each slot */
    bool in_flight;        /* has each micro-batch in flight, from its F on, a slot? */
    int *slots;            /* by rank */
} Ring;

typedef struct MicroSlots {
    const Op *loop;
    PipelineSchedule *schedule; /* certified */
    MicroParts parts;           /* in the order of the calls */
    Ring *ring;
    int nrings;
    int64_t bytes; /* of all, on the rank that has most */
} MicroSlots;

/* What the schedule moves through the stages at once: micro-batches that are abreast are one. */
int micros_of_loop(const Op *loop);

/* The schedule of a loop over micro-batches (NULL: there is one micro-batch), certified; NULL after reporting why it
 * cannot be. */
PipelineSchedule *schedule_of_loop(Module *m, const Op *loop, ActionOrder name, int chunks);

/* The schedule of the step's loop over micro-batches, messages included, and the parts of a micro-batch; NULL with
 * *why: there is none. */
PipelineSchedule *schedule_of_step(Module *m, Arena *arena, const Op **loop, MicroParts *parts, const char **why);

/* That of a step with one micro-batch, whose split loops are in the step itself; NULL: there is none. */
PipelineSchedule *schedule_of_one(Module *m, Arena *arena, MicroParts *parts);

/* The slots of a loop with {stages}; plan_slots: anew, since its callee has been placed again. */
const MicroSlots *slots_of_loop(Module *m, const Op *loop);
const MicroSlots *plan_slots(Module *m, const Op *loop);

/* The chunk whose last part makes the i-th result of such a loop complete; -1: no part makes it. */
int chunk_of_result(const MicroParts *parts, int i);

/* The first op after the loop, from `op` on, that works on such results before the loop ends; NULL: none. */
const Op *next_early(const Op *op);

/* The chunk at whose end it does; -1: it is not early.  chunk_among: of an early op, where the parts are known. */
int chunk_of_early(Module *m, const Op *op);
int chunk_among(const MicroParts *parts, const Op *op);

/* The ring of a value of its callee; -1: it has none. */
int ring_of(const MicroSlots *slots, const Value *value);

#endif
