/* roles.h -- the roles of dims: an op keeps a dim, sums over it, needs all of it, or exchanges it for another one. */
#ifndef MPC_IR_ROLES_H
#define MPC_IR_ROLES_H

#include "ir.h"

Role op_role(const Op *op, Name dim); /* SUM: of at least one result */

/* Of an op that FOLDS several dims into one, or the reverse: the one dim, and the outermost of the several.  Axes that
 * split one of them split the other. */
void folded_dims(const Op *op, Name *one, Name *outermost);
bool needs_whole(const Op *op, Name dim); /* each rank needs the whole dim */
/* The innermost dim that one operand of a product has alone, and that is not summed; NULL: it has none. */
Name free_dim(const Op *dot, int operand);
/* Of a dim of a gather's index: does the table lack it, or is it the gathered dim (`row`) itself?  Of any other dim
 * that both have, gather takes the same element of both. */
bool is_dim_of_index_alone(const Type *table, const Dim *dim, Name row);
/* Attention: does the rule send blocks of keys around a ring of ranks (else it gathers them)? */
bool passes_keys_around(const Module *m, const Op *op, const ShardRule *rule);
/* exchanges: does an op under this rule split another dim, by an all_to_all, than the rule's?  is_exchangeable: may
 * that be `dim`?  `repeats`: accept a dim that keys lack (heads of queries that share a head of keys); each rank then
 * has all keys. */
bool exchanges(const Module *m, const Op *op, const ShardRule *rule);
bool is_exchangeable(const Module *m, const Op *op, const ShardRule *rule, Name dim, bool repeats);

#endif
