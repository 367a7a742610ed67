/* idioms.h -- help with unknown names: the nearest name that there is, or how what other frameworks name is written
 * here. */
#ifndef MPC_IDIOMS_H
#define MPC_IDIOMS_H

#include "near.h"

typedef enum {
    IDIOM_FUNCTION,
    IDIOM_REDUCTION,
    IDIOM_NAME,
    IDIOM_SETTING,
    IDIOM_STATEMENT,
    IDIOM_STATED,
    IDIOM_SIGN,
    IDIOM_INITIAL,
    IDIOM_OPTIMIZER,
    IDIOM_SCHEDULE
} IdiomKind; /* see idioms.def */

/* The help of the row that has this name; NULL: none has. */
const char *find_idiom(IdiomKind kind, const char *name);

/* offer(), for which `F.layer_norm` is `layernorm`: names are one but for '_', capitals and what stands before a point.
 */
void offer_spelled(NearMiss *near, const char *name);

/* Offers all functions of the language. */
void offer_functions(NearMiss *near);

/* A help text, or NULL, after all names were offered. */
const char *help_with(Arena *arena, IdiomKind kind, const NearMiss *near);

/* The same for a function. */
const char *help_with_function(Arena *arena, const char *name);

#endif
