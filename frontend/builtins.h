/* builtins.h -- the arguments of a call of a built-in function, as builtins.c passes them on. */
#ifndef MPC_BUILTINS_H
#define MPC_BUILTINS_H

#include "lowering.h"

enum { MOST_KEYWORDS = 3 };

typedef struct {
    const Ast *call;
    int count;       /* of tensors */
    const Ast **ast; /* these three have room for every argument of the call */
    Operand *operand;
    Value **x; /* of f and t: never NULL, no bare number */
    Names dims;
    const Ast *dim_ast[MAX_NAMES];
    Constant number;
    const Ast *number_ast, *word, *renaming;
    const Ast *keyword[MOST_KEYWORDS]; /* in the order of the row; NULL if not said */
} Arguments;

#define CALL(name) Operand apply_##name(Lower *l, Arguments *a)

#define BUILTIN(name, args, keywords, lower, usage) CALL(lower);
#include "builtins.def"

/* The value of a keyword argument; false after reporting that it is none. */
bool number_argument(Lower *l, const Ast *keyword, double otherwise, double *number);
bool flag_argument(Lower *l, const Ast *keyword, bool *flag);

#endif
