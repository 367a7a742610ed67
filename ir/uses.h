/* uses.h -- the readers of each value of a function, collected in one walk; the callers of functions. */
#ifndef MPC_USES_H
#define MPC_USES_H

#include "ir.h"
#include "map.h"

typedef struct {
    int count, room;
    Op **op; /* in the order in which they were noted, each once */
} Users;

typedef struct {
    Map users; /* value -> Users */
} Uses;

/* The uses in the present ops of f; allocated in the arena.  Returning a value is not a use. */
Uses find_uses(Arena *arena, const Func *f);

const Users *users_of(const Uses *uses, const Value *value);

/* How often a value is read by ops of f, and returned. */
int uses_in(const Func *f, const Value *value);

/* The first op from this one on that reads any of the values; NULL: none does. */
Op *first_reader(Op *op, const Values *values);

/* Of a function by its name: the only op that calls it; of several, none of them. */
Map note_callers(Module *m);
Op *only_caller(const Module *m, const Map *callers, const Func *f); /* NULL: none calls it, or several do */

/* Puts an op, and all those that it needs, into a set of keys. */
void note_with_operands(Map *set, const Op *op);

/* Adds a new op, or one whose operands have changed. */
void note_op(Uses *uses, Op *op);

/* Like replace_uses, but only in the ops noted as readers. */
void replace_known_uses(Uses *uses, Func *f, Value *old, Value *with);

/* Is the parameter, or a value computed from it, reduced or broadcast?  Then it may be read again after results have
 * been written; but not where rows are reduced, which kernels read before they write them. */
bool is_read_after_results(Arena *arena, const Func *kernel, const Value *param);

/* Does it subtract? */
static inline bool is_difference(const Op *op)
{
    return info(op)->linear == ALL && info(op)->args == 2 && !is_addition(op);
}

/* The value that it is but for casts, rounding and copies. */
const Value *value_before_casts(const Value *value);

/* Is it the largest or the smallest element of x along some dims?  Both but for rounding. */
bool is_extreme_of(const Value *value, const Value *x);

#endif
