/* splits.h -- which axes of the mesh can split what the program of one rank has: see bound.c. */
#ifndef MPC_SPLITS_H
#define MPC_SPLITS_H

#include "planner.h"

/* Sets of axes are bits. */
typedef struct {
    const Planner *p;
    Module *m;
    Map split;     /* Name of a dim -> the axes that split it + 1 */
    Names experts; /* the dims that count them */
} Splits;

void find_splits(Splits *s); /* of p and m; before anything else */
unsigned axes_splitting(const Splits *s, Name dim);
unsigned split_of_type(const Splits *s, const Type *type);
unsigned split_of_op(const Splits *s, const Op *op);
bool is_of_experts(const Splits *s, const Type *type);
bool grows(const Splits *s, const Type *type); /* is there more of it, the more sequences a micro-batch has? */

/* That split one sequence: data-parallel ranks have others. */
double ranks_sharing(const Planner *p, const PlanLayout *layout, unsigned axes);

#endif
