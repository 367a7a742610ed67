/* structure.h -- programs whose sizes can be set: see structure.c. */
#ifndef MPC_STRUCTURE_H
#define MPC_STRUCTURE_H

#include "block.h"

PlanProgram structure_key(const Planner *p, const PlanLayout *layout, int micros);

/* m: the program of the layout, of steps of one or two micro-batches; NULL: it cannot be compiled, and `why`.  What it
 * makes goes when it returns. */
typedef void (*StructureVisit)(void *context, Module *m, const Classes *classes, const char *why);
void with_structure(Planner *p, const PlanLayout *layout, int micros, StructureVisit visit, void *context);

int plan_axis(const Planner *p, Name axis); /* of an axis of a program: "tp.kv_heads" is of "tp" */

/* Of a program with these axes: the mesh of the layout, with pairs as two axes. */
RankMesh mesh_around(const Planner *p, const PlanLayout *layout, int naxes, const char *const axis[]);

void free_structures(Planner *p);

#endif
