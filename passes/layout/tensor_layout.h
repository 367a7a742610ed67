/* tensor_layout.h -- the mesh axes that split a tensor: its type in the layout. */
#ifndef MPC_TENSOR_LAYOUT_H
#define MPC_TENSOR_LAYOUT_H

#include "ir.h"
#include "map.h"

/* What of the layout: its rules, their `else`, `zero`. */
typedef enum { BY_RULES, BY_ELSE, BY_ZERO } LayoutPart;

/* What `zero`, by its stage, splits among data-parallel ranks. */
typedef struct {
    Axes axes;          /* the data-parallel axes */
    bool splits_state;  /* parameters, optimizer state, and reduced gradients */
    bool reduces_early; /* reduces gradients where they are computed, not after all micro-batches */
    bool splits_calls;  /* parameters stay split in called functions and are gathered for each op that reads them */
} DataParallel;

typedef struct {
    Module *m;
    bool ignores_else;
    Map looped;     /* Name -> the name of a dim that a loop runs over: state is not split along it */
    Axes loop_axes; /* over which the rules split looped dims */
    DataParallel data;
} LayoutRules;

LayoutRules layout_rules(Module *m);

/* Splits the dims of an unsplit `type` by the rules: each axis splits the first dim of its rule that exists, divides,
 * and is not needed whole by `op` (NULL: no op); then the same for `else`.  Axes in `taken` are not used. */
void split_by_rules(const LayoutRules *h, Type *type, Axes taken, const Op *op);

/* Of an op that folds: its one dim and the outermost of its several are split alike, by what either of them has been
 * split by, or not at all. */
void split_folded(const Module *m, const Op *op, Type *space);

/* The type of a value under the rules; of state, which `zero` may split too; of an input, without `else`: each trainer
 * reads inputs from the file, without communication. */
Type layout_type(const LayoutRules *h, Type type);
Type state_type(const LayoutRules *h, Type type);
Type input_type(const LayoutRules *h, Type type);

/* The type without the splits of `zero`. */
Type gathered_type(const LayoutRules *h, Type type);

/* The part of the layout that requires a reshard from `from` to `to`. */
LayoutPart part_behind(const LayoutRules *h, const Type *from, const Type *to);

/* Removes all splits and reshards from the program. */
void forget_layout(Module *m);

Type unsplit_type(Type type); /* nothing split, nothing pending */
Axes axes_in_use(const Type *type);

#endif
