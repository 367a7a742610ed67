/* home.h -- which mesh axes split a tensor: its home type, by the rules of the layout. */
#ifndef MPC_HOME_H
#define MPC_HOME_H

#include "ir.h"

/* How much of the layout counts already: the passes shard, sequence and zero each add to it. */
typedef enum { BY_RULES, BY_ELSE, BY_ZERO } Extent;

typedef struct {
    Module *m;
    Extent extent;
    Names looped; /* dims that a loop runs over: never split */
} Homes;

Homes homes_of(Module *m, Extent extent);

/* Splits the dims of `type`, which is split nowhere, by the rules: each axis takes the first dim of its rule that is
 * there, that divides, and that `op` (NULL: nobody) does not need whole; then the same for `else`.  Axes of `taken` are
 * not used. */
void split_by_rules(const Homes *h, Type *type, Axes taken, const Op *op);

/* Adds the axes that `zero` is over, if the type has no use for them yet: they split the first dim that divides. */
void split_by_zero(const Homes *h, Type *type);

/* The type as the rules split it, with_zero: and `zero` too, if that counts already. */
Type home_by(const Homes *h, Type type, bool with_zero);

/* Which rules want a value of type `from` held as `to`: those that split a dim on either side. */
Extent rule_behind(const Homes *h, const Type *from, const Type *to);

/* Takes every split and every reshard out of the program. */
void forget_layout(Module *m);

Type unsplit_type(Type type); /* nothing split, nothing pending */
Axes axes_in_use(const Type *type);

#endif
