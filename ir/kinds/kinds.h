/* kinds.h -- the memory of each kind of rank: which bytes of the memory plan a stage of a pipeline has.
 *
 * A frame is planned once, with room for what any stage holds: that is the meaning of addresses everywhere in the
 * compiler.  A stage leaves out what it does not need, the gaps, so that its frame is shorter, and what is behind a gap
 * lies further ahead.  What it does need stays in one piece and in its order; so nothing that is apart in the plan is
 * together on a rank.  Without a pipeline all ranks are of one kind and there are no gaps.
 */
#ifndef MPC_KINDS_H
#define MPC_KINDS_H

#include "ir.h"
#include "map.h"

typedef struct {
    int64_t at, bytes; /* in the plan; multiples of cache lines */
    int64_t before;    /* bytes of all gaps before it */
} Gap;

/* The frame of a function; of step, evaluation or prediction: the arena while it runs.  What outlives a step and what
 * is fed is at the same places in all three. */
typedef struct {
    int64_t bytes; /* in the plan */
    Gap **gap;     /* by kind: in order */
    int *count;    /* of them, by kind */
    int *alike;    /* by kind: the first one with the same gaps */
} KindFrame;

typedef struct Kinds {
    Module *m;
    int axis;     /* a rank's coordinate on it is its kind; -1: there is one kind */
    int count;    /* of kinds */
    Map frames;   /* Func -> KindFrame */
    Map frame_of; /* Op -> KindFrame; empty: not found yet */
    Map scratch;  /* see scratch_bytes() */
    Map readers;  /* Value -> the stages that read it, of the functions in `read` */
    Map read;
    Map uses;                /* Func -> its Uses, where they have been asked for */
    struct FrameUses *outer; /* of the arena, by what is in the frames of all programs; NULL: not found yet */
} Kinds;

/* Of a placed program.  rank_kinds() keeps its result, as long as the program does not change; plan_kinds_again() finds
 * it anew. */
Kinds *rank_kinds(Module *m);
Kinds *plan_kinds_again(Module *m);

const KindFrame *kind_frame(Kinds *kinds, const Func *f);
int64_t place_on(const KindFrame *frame, int kind, int64_t at);              /* the address; in a gap, its beginning */
bool meets_gap(const KindFrame *frame, int kind, int64_t at, int64_t bytes); /* does a range of the plan? */
int64_t arena_on(Kinds *kinds, int kind);                                    /* bytes of the arena */
int64_t frame_on(Kinds *kinds, const Func *f, int kind);                     /* bytes of the frame */

/* On each kind that runs an op, are two of its operands or results as far apart as in the plan?  They are if one
 * pointer leads to both, or if no gap of the frame lies between them. */
bool keeps_distance(Module *m, const Op *op, const Value *a, const Value *b);

int64_t scratch_of(Kinds *kinds, const Op *op); /* bytes that its kernel uses beside its results, on all kinds */

int64_t largest_arena(Module *m); /* of the kind of rank that needs most */

/* The bytes of a slot of that ring, on each kind of rank. */
void slot_bytes(Kinds *kinds, const struct MicroSlots *slots, int ring, int64_t bytes[]);

/* The ranks that hold a value of a program, or may write it. */
uint64_t holders_of(const Module *m, const Value *value);

#endif
