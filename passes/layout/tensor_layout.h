/* tensor_layout.h -- which mesh axes split a tensor: its type in the layout. */
#ifndef MPC_TENSOR_LAYOUT_H
#define MPC_TENSOR_LAYOUT_H

#include "ir.h"

/* How much of the layout counts already: the passes shard, sequence and zero each add to it. */
typedef enum { BY_RULES, BY_ELSE, BY_ZERO } Extent;

/* What ranks that have other data, but the same weights, share out among each other: `zero`, stage by stage.  Nothing
 * before that pass. */
typedef struct {
    Axes axes;          /* along which data are parallel */
    bool splits_state;  /* parameters, what the optimizer keeps of them, and gradients that are reduced */
    bool reduces_early; /* gradients where they are made, and not after all micro-batches */
    bool splits_calls;  /* parameters stay split in called functions, where each op that reads them gathers them */
    Name sent;          /* the dtype in which gradients are; NULL: their own */
} DataParallel;

typedef struct {
    Module *m;
    Extent extent;
    Names looped; /* dims that a loop runs over: never split */
    DataParallel data;
} LayoutRules;

LayoutRules layout_rules(Module *m, Extent extent);

/* Splits the dims of `type`, which is split nowhere, by the rules: each axis takes the first dim of its rule that is
 * there, that divides, and that `op` (NULL: nobody) does not need whole; then the same for `else`.  Axes of `taken` are
 * not used. */
void split_by_rules(const LayoutRules *h, Type *type, Axes taken, const Op *op);

/* The type of a value, as the rules split it; of state, which `zero` may split too; of an input, for which `else` does
 * not count: what a trainer reads from a file it need not be sent. */
Type layout_type(const LayoutRules *h, Type type);
Type state_type(const LayoutRules *h, Type type);
Type input_type(const LayoutRules *h, Type type);

/* The type without the splits that it has as state alone. */
Type gathered_type(const LayoutRules *h, Type type);

/* Which rules want a value of type `from` held as `to`: those that split a dim on either side. */
Extent rule_behind(const LayoutRules *h, const Type *from, const Type *to);

/* Takes every split and every reshard out of the program. */
void forget_layout(Module *m);

Type unsplit_type(Type type); /* nothing split, nothing pending */
Axes axes_in_use(const Type *type);

#endif
