/* memory.h -- the storage of every value: memory.c plans it, by last uses (lifetime.c) and what may be overwritten
 * (overwrite.c); order.c inserts copies for readers that need another memory order. */
#ifndef MPC_MEMORY_H
#define MPC_MEMORY_H

#include "ir.h"
#include "map.h"

/* Assigns storage to every value: Value.storage, Func.frame, {frame=...} of calls.  `apart`: a set of ops whose results
 * overwrite no operand, and of values that are in no pack; `scratch`: see scratch_bytes(). */
void plan_memory(Module *m, const Map *apart, Map *scratch);

/* place.c: storage of values. */
Storage *new_storage(Module *m, const Type *type, int64_t at); /* row-major, in the frame or the arena */
Storage *new_pointer(Module *m, const Type *type, int pointer);
void place_view(Module *m, const Op *view);               /* other strides over the same memory */
int64_t place_value(Module *m, Value *value, int64_t at); /* row-major, there; returns where the next one may be */
void place_started(const Value *waited_for); /* the result of a wait has the storage of its collective's result */

/* place_far.c: the same in another tier of memory; of all such results of a function, which have memory of their own;
 * and, once it is known where the tiers begin, addresses from there. */
int64_t place_far(Module *m, Value *value, int64_t at);
int64_t place_far_results(Module *m, const Func *f, int64_t at);
void move_far_behind(Module *m, int64_t begin);

/* programs.c: what f leaves to the next step -> what the step before has left in that place. */
void note_left(Map *left, const Func *f);

/* The last uses of values of f, directly or by views; the operand of a started collective is used until its wait.
 * value -> the number of that op, + 1; for results of f: the number of its ops, + 1. */
Map last_uses(Arena *arena, const Func *f);
int later(const Map *last, const Value *value, int number); /* the larger of the two numbers; -1: none */

/* Last uses in a function. */
typedef struct {
    Map last, number; /* as from last_uses; number of each op, + 1 */
    Map uses;         /* of a value: as uses_in() counts them */
} Lifetimes;

/* `all`: a cache of results. */
const Lifetimes *lifetimes_of(const Module *m, Map *all, const Func *f);

/* May the op write this result over that operand, if it is the last to read it? */
bool may_overwrite(const Module *m, Map *lifetimes, const Op *op, int result, int operand);

/* May f write its result over its parameter: is the op that computes it the last reader of the parameter, element by
 * element, or of what has been added to the parameter? */
bool may_return_over(const Module *m, Map *lifetimes, const Func *f, const Value *result, const Value *param);

/* The parameter plus what a loop adds to it, or a sum that a scatter_add or another kernel alone goes on with, over
 * which f may write its result: then it lies there, too.  NULL: there is none. */
Value *sum_between(const Module *m, Map *lifetimes, const Func *f, const Value *result, const Value *param);

#endif
