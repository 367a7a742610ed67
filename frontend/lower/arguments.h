/* arguments.h -- built-in functions, and the arguments of their calls. */
#ifndef MPC_ARGUMENTS_H
#define MPC_ARGUMENTS_H

#include "expr.h"

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

/* A function of the language: a row of builtins.def. */
typedef struct Builtin {
    const char *name, *args;
    const char *keywords[MOST_KEYWORDS];
    Operand (*lower)(Lower *l, Arguments *a);
    const char *usage;
} Builtin;

/* The value of a keyword argument; false after reporting an error. */
bool number_argument(Lower *l, const Ast *keyword, double otherwise, double *number);
bool flag_argument(Lower *l, const Ast *keyword, bool *flag);

/* Has x this dim, which a name of several stands for?  Else reports. */
bool has_one_of(Lower *l, const Value *x, Name dim, const Ast *name);

#endif
