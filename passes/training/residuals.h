/* residuals.h -- residuals: the values that a backward function gets from its forward one, added and removed through
 * all loops and calls in between. */
#ifndef MPC_RESIDUALS_H
#define MPC_RESIDUALS_H

#include "ir.h"
#include "map.h"

/* The op that calls f, and the function that it stands in; NULL if nobody does. */
Op *call_of(const Module *m, const Func *f, Func **caller);

/* Two functions between which values are handed over; the rest is found when it is first needed, and has to stay. */
typedef struct Link {
    Func *from, *to;
    Op *call, *call_to;
    struct Link *outer; /* the functions in which these stand */
} Link;

/* The value in `to` that stands for `value` of `from`: the same if they are one function, a parameter that is
 * there already, or a new one.  A parameter's operand is handed over; any other value becomes a residual of `from`. */
Value *hand_residual(Module *m, Link *link, Value *value);

/* Names by which values of a function are found again, in another instance of the program too, where passes have
 * numbered what they make otherwise: "%x" of a parameter; "h.attn.q.2" of the second value from that place of the
 * model. */
typedef struct {
    Map value, label; /* label -> value; value -> label */
} Labels;
Labels label_values(Arena *arena, Module *m, const Func *f);

/* Takes away parameters that nobody reads and residuals that nobody uses, at both ends. */
void prune_interfaces(Module *m);

#endif
