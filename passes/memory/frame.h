/* frame.h -- the frame of a function while it is planned: shared by memory.c, which plans one, and programs.c, which
 * plans those of all programs in one arena. */
#ifndef MPC_FRAME_H
#define MPC_FRAME_H

#include "memory.h"
#include "pack.h"

/* A range of memory with a lifetime: one value, with its views and the values that overwrite it in place. */
typedef struct Buffer {
    int64_t bytes, at;
    int first, last;              /* ops, by number */
    int until;                    /* what the step before has left there is read up to this op; -1: it leaves nothing */
    uint64_t ranks;               /* that may write it */
    const Pack *pack;             /* NULL: one tensor, which may be overwritten in place, as each of a whole pack may */
    bool is_placed;               /* it has its place: another program has left it there */
    bool has_slots;               /* of a micro-batch of a pipeline: its memory in trainers is not here */
    struct Buffer *joined, *next; /* joined: the buffer with its bytes, from `at` on; NULL: none */
} Buffer;

typedef struct {
    Module *m;
    Func *f;
    int64_t base;     /* start of the frame: 0 in a called function */
    Map buffer;       /* value -> Buffer; none: a pointer, or a value that outlives the step */
    Pack *packs;      /* interleaved values */
    Map pack_of;      /* value -> its pack */
    Map last;         /* value -> the op that reads it last, by number, + 1 */
    Map left;         /* what a step leaves -> what the step before has left in that place */
    Map lifetimes;    /* of functions that it calls: see lifetimes_of() */
    const Map *apart; /* see plan_memory() */
    Map *scratch;     /* likewise */
    Buffer *buffers;
    int nbuffers;
    int64_t *far; /* the end of the other tiers */
} Frame;

/* Places the values of a function, but for its parameters, and for results that have storage. */
void plan_frame(Frame *frame);

Buffer *new_buffer(Frame *frame, int64_t bytes, int first, int last);
Buffer *buffer_of(const Frame *frame, const void *key);        /* of a value; NULL: it has none */
int64_t offset_in_buffer(const Frame *frame, const void *key); /* in bytes */

/* in_one.c: a buffer for the result of a concat, in which its operands are; NULL: they cannot be.  And where the result
 * has storage, that of the operands there, unless one is in `apart`. */
Buffer *buffer_of_joined(Frame *frame, const Op *op, int number);
void place_in_results(Module *m, const Func *f, const Map *apart);

/* programs.c: what a step leaves to the next one: before there are buffers, when they are known, and when they are
 * placed.
 */
void hold_left(Frame *frame);
void place_left(Frame *frame);

/* Packs: those that f's caller has placed as such, or that f places itself; of each value; the place of a member. */
Pack *placeable(const Module *m, Pack *list);
void note_packs(Frame *frame);
const Pack *pack_of(const Frame *frame, const Value *value);
Storage *place_member(Module *m, const Pack *pack, const Value *value, int64_t at);

#endif
