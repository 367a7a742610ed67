/* last_readers.h -- the op of its function that reads a value last. */
#ifndef MPC_LAST_READERS_H
#define MPC_LAST_READERS_H

#include "ir.h"
#include "map.h"

typedef struct {
    Map last; /* value -> number of its last reader + 1 */
    Map seen; /* function -> itself: its last readers are known */
} LastReaders;

/* Of all values that the function reads; operand and result of a started collective live until its wait. */
void find_last_readers(LastReaders *known, const Func *f);

/* The number of that op in the function, results of the function behind all ops; -1: none. */
int last_reader(const LastReaders *known, const Value *value);

#endif
