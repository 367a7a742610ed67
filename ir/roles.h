/* roles.h -- the roles of dims: an op keeps a dim, sums over it, needs all of it, or exchanges it for another one. */
#ifndef MPC_IR_ROLES_H
#define MPC_IR_ROLES_H

#include "ir.h"

Role op_role(const Op *op, Name dim); /* SUM: of at least one result */

/* Of an op that FOLDS: the one dim, and the outermost of the several, which ranks split alike. */
void folded_dims(const Op *op, Name *one, Name *outermost);
bool needs_whole(const Op *op, Name dim); /* each rank needs the whole dim */
/* The innermost dim that one operand of a product has alone, and that is not summed; NULL: it has none. */
Name free_dim(const Op *dot, int operand);
/* Of a table's index: is it not one that both have, of which gather takes the same element of both? */
bool is_dim_of_index_alone(const Type *table, const Dim *dim, Name row);
/* Do the keys of an op pass by, by a rule? */
bool passes_keys_around(const Module *m, const Op *op, const ShardRule *rule);
/* Does an op exchange the dims of a rule for another one, and may that be `dim`?  `repeats`: one that keys lack, which
 * each rank then has whole: the heads of queries that share one of keys. */
bool exchanges(const Module *m, const Op *op, const ShardRule *rule);
bool is_exchangeable(const Module *m, const Op *op, const ShardRule *rule, Name dim, bool repeats);

#endif
