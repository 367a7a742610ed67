/* builtins.h -- the arguments of a call of a built-in function. */
#ifndef MPC_BUILTINS_H
#define MPC_BUILTINS_H

#include "lowering.h"

enum { MOST_KEYWORDS = 8 };

typedef struct {
    const Ast *call;
    int count;       /* of tensors */
    const Ast **ast; /* these three are as long as the argument list of the call */
    Operand *operand;
    Value **x; /* of f and t: never NULL, never a plain number */
    Names dims;
    bool names_dims; /* also if there are none: `in` of a bias */
    const Ast *dim_ast[MAX_NAMES];
    Constant number;
    const Ast *number_ast, *word, *renaming;
    const Ast *window[MAX_RANK]; /* of conv: d -> (a, b) */
    int nwindows;
    const Ast *keyword[MOST_KEYWORDS]; /* in the order of the row; NULL if absent */
} Arguments;

/* A row of builtins.def. */
typedef struct Builtin {
    const char *name, *args;
    const char *keywords[MOST_KEYWORDS];
    Operand (*lower)(Lower *l, Arguments *a);
    const char *usage;
} Builtin;

extern const Builtin functions[]; /* after the last one, a row without a name */

#define CALL(name) Operand apply_##name(Lower *l, Arguments *a)

#define BUILTIN(name, args, keywords, lower, usage) CALL(lower);
#include "builtins.def"

/* The value of a keyword argument; false after reporting an error. */
bool number_argument(Lower *l, const Ast *keyword, double otherwise, double *number);
bool flag_argument(Lower *l, const Ast *keyword, bool *flag);

/* An i32 tensor over dims of x, but not the feature dim; NULL if absent or after reporting. */
Value *integers_argument(Lower *l, const Arguments *a, int keyword, const Value *x, Name feature);

/* The named dims; if none is named, all: in an optimizer those of each matrix. */
Names dims_or_all(const Lower *l, const Arguments *a);

/* Has x this dim, which a name of several stands for?  Else reports. */
bool has_one_of(Lower *l, const Value *x, Name dim, const Ast *name);

/* A copy, if it is a cross_entropy: of anything, a mean is plain. */
Value *unlabelled(Lower *l, Value *value);

/* Of `in` and its like in an optimizer: the number of a row of its matrix, and x with other names of these dims. */
Value *place_in_matrix(Lower *l, const Names *dims);
Operand rename_group(Lower *l, const Arguments *a, const Names *from, const Names *to);

/* Kernels support two groups of dims: of those of x that `of` has too, as they follow each other, those that `part` has
 * and those that it lacks.  More: then it gets all of them. */
Value *with_groups(Lower *l, Value *part, const Type *x, const Type *of, const Attrs *attrs);

#endif
