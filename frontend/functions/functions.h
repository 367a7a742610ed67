/* functions.h -- the built-in functions of the language, and what they share. */
#ifndef MPC_FUNCTIONS_H
#define MPC_FUNCTIONS_H

#include "lower/arguments.h"
#include "lower/compose.h"

extern const Builtin functions[]; /* after the last one, a row without a name */

#define CALL(name) Operand apply_##name(Lower *l, Arguments *a)

#define BUILTIN(name, args, keywords, lower, usage) CALL(lower);
#include "builtins.def"

/* A copy, if it is a cross_entropy: of anything, a mean is plain. */
Value *unlabelled(Lower *l, Value *value);

/* An i32 tensor over dims of x, but not the feature dim; NULL if absent or after reporting. */
Value *integers_argument(Lower *l, const Arguments *a, int keyword, const Value *x, Name feature);

/* The named dims; if none is named, all: in an optimizer those of each matrix. */
Names dims_or_all(const Lower *l, const Arguments *a);

/* Of `in` and its like in an optimizer: the number of a row of its matrix, and x with other names of these dims. */
Value *place_in_matrix(Lower *l, const Names *dims);
Operand rename_group(Lower *l, const Arguments *a, const Names *from, const Names *to);

/* Kernels support two groups of dims: of those of x that `of` has too, as they follow each other, those that `part` has
 * and those that it lacks.  More: then it gets all of them. */
Value *with_groups(Lower *l, Value *part, const Type *x, const Type *of, const Attrs *attrs);

Value *split_dim(Lower *l, Value *x, Dim whole, Dims parts); /* of sizes that fit */

/* Counts the load of a dispatch.  room: its slots, of all rounds; `drops`: a queue may be longer. */
void count_load(Lower *l, Value *chosen, Value *place, Dim experts, double room, Name slots, bool rounds, bool drops);

void try_sizes(Lower *l, Symbol *dim); /* fills in dim->trial */

/* --- matrices.c: parameters as matrices, in optimizers ---------------------------------------------- */

bool counts_matrices(const Lower *l, Name dim);               /* in an optimizer: copies of a repeat, or experts? */
Names primed_dims(Lower *l, const Names *dims, int times);    /* in' (1) or in'' (2) of in */
Dim dim_of_matrix(Lower *l, const Matrix *matrix, Name name); /* also of such a name */
const Names *dims_named(const Lower *l, const char *name); /* of in, out', ...; NULL: that is no name of several dims */

#endif
