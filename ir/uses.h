/* uses.h -- the readers of each value of a function, collected in one walk. */
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

/* All of f as it is now; in the arena.  What a function returns is no use by an op. */
Uses find_uses(Arena *arena, const Func *f);

const Users *users_of(const Uses *uses, const Value *value);

/* One more op, or one that reads other values than before. */
void note_op(Uses *uses, Op *op);

/* As replace_uses, in the ops that are known to read it. */
void replace_known_uses(Uses *uses, Func *f, Value *old, Value *with);

#endif
