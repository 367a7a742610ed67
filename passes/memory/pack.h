/* pack.h -- tensors that are adjacent in memory, so that several products become one: right operands and results of
 * products that share their left operand, both operands of products that are added up, and left operands and results of
 * sums over the rows of one right operand.  pack.c finds them, memory.c places them. */
#ifndef MPC_PACK_H
#define MPC_PACK_H

#include "ir.h"
#include "map.h"

enum { MAX_PACK = 8 };

/* Interleaved row by row: the first `prefix` dims of all members are the same, and each row holds the row of one
 * member, then that of the next.  Or, `whole`, tensors of one type at equal distances, each as it would be alone:
 * results of products that are one product of several matrices. */
typedef struct Pack {
    int count, prefix;
    bool whole;
    int64_t distance;        /* of whole members, in bytes, if they are placed; 0: as near as possible */
    Value *member[MAX_PACK]; /* values of one function: parameters, or results of its ops */
    struct Pack *next;
} Pack;

/* The packs for the products of f and of its callees, in terms of f's values; without those with members in `apart`. */
Pack *find_packs(Module *m, const Func *f, const Map *apart);

/* Have the members storage, as the pack has them?  Sets the distance of whole ones. */
typedef enum { NOT_PLACED, PLACED, PLACED_OTHERWISE } Placed;
Placed how_placed(const Module *m, Pack *pack);

int member_of(const Pack *pack, const Value *value);           /* its number, or -1 */
int64_t pack_bytes(const Module *m, const Pack *pack);         /* of all members */
int64_t pack_offset(const Module *m, const Pack *pack, int i); /* of member i's first element, in bytes */
Storage *pack_storage(Module *m, const Pack *pack, int i, int64_t at);

#endif
