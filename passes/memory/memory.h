/* memory.h -- the storage of every value: memory.c plans it, order.c inserts copies where a reader needs another memory
 * order. */
#ifndef MPC_MEMORY_H
#define MPC_MEMORY_H

#include "ir.h"
#include "map.h"

/* Gives every value its place: Value.storage, Func.frame, {frame=...} of calls. */
void plan_memory(Module *m);

/* Until when values of f are needed, by themselves and by views of them; what a collective reads that has been started,
 * until it is waited for.  value -> the number of that op, + 1; what f returns: the number of its ops, + 1. */
Map last_uses(Arena *arena, const Func *f);
int later(const Map *last, const Value *value, int number); /* the larger one of the two numbers; none is -1 */

/* When the values of a function are read for the last time. */
typedef struct {
    Map last, number; /* as last_uses has it; of each op, + 1 */
} Lifetimes;

/* `all`: of the functions that have been asked for. */
const Lifetimes *lifetimes_of(const Module *m, Map *all, const Func *f);

#endif
