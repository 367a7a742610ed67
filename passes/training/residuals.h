/* residuals.h -- residuals: values passed from a forward function to its backward, added and removed through all loops
 * and calls in between. */
#ifndef MPC_RESIDUALS_H
#define MPC_RESIDUALS_H

#include "ir.h"
#include "map.h"

/* The op that calls f, and its function; NULL if there is none. */
Op *call_of(const Module *m, const Func *f, Func **caller);

/* The same of all functions, by name, as the module is now: name -> CallPlace, of its first call. */
typedef struct {
    Op *op;
    Func *caller;
} CallPlace;
Map map_calls(Arena *arena, const Module *m);

/* Two functions between which values are passed; the other fields are computed at first use and must then stay
 * valid. */
typedef struct Link {
    Func *from, *to;
    const Map *calls; /* see map_calls() */
    Op *call, *call_to;
    struct Link *outer; /* the functions that contain these */
} Link;

/* The value in `to` for `value` of `from`: the same if they are one function, an existing parameter, or a new one.  The
 * operand of a parameter is passed on; any other value becomes a residual of `from`. */
Value *hand_residual(Module *m, Link *link, Value *value);

/* Names by which values of a function are found again, also in another instance of the program, where passes have
 * numbered their values differently: "%x" of a parameter; "h.attn.q.2" of the second value from that place of the
 * model. */
typedef struct {
    Map value, label; /* label -> value; value -> label */
} Labels;
Labels label_values(Arena *arena, Module *m, const Func *f);

/* Removes unread parameters, residuals and stacks of loops, in callees and callers. */
void prune_interfaces(Module *m);

#endif
