/* structure.h -- programs whose sizes can be set: see structure.c. */
#ifndef MPC_STRUCTURE_H
#define MPC_STRUCTURE_H

#include "block.h"

/* A turn of a ring takes what another one takes, if blocks go forth and back.  So what a ring with many turns takes is
 * known from programs of two rings with so many. */
enum { FEW_TURNS = 2, MORE_TURNS = 4 };
bool serves_more_turns(int64_t kind); /* of an axis, in PlanProgram: is it of such a ring? */

PlanProgram structure_key(const Planner *p, const PlanLayout *layout, BlockOf of);

/* m: the program of the layout, of steps of one or two micro-batches; without zero, micro-batches alone are right;
 * NULL: it cannot be compiled, and `why`.  What it makes goes when it returns. */
typedef void (*StructureVisit)(void *context, Module *m, const Classes *classes, const char *why);
void with_structure(Planner *p, const PlanLayout *layout, BlockOf of, StructureVisit visit, void *context);

/* The same, of a program that is not kept. */
void with_new_structure(Planner *p, const PlanLayout *layout, BlockOf of, StructureVisit visit, void *context);

int plan_axis(const Planner *p, Name axis); /* of an axis of a program: "tp.kv_heads" is of "tp" */

/* Of a program whose axes are these ones of the planner: the mesh of the layout, with pairs as two axes. */
RankMesh mesh_around(const Planner *p, const PlanLayout *layout, int naxes, const int *axis);

int64_t in_micro_batch(const Planner *p, const PlanLayout *layout); /* sequences, of all ranks */
bool grows_with_batch(const Module *m, Name dim);                   /* the more sequences, the more elements */

/* Marks the functions that run in a micro-batch, not once a step. */
void mark_micro(Module *m, Map *in_micro);

/* Of a micro-batch of the module; do the axes divide all dims of these functions then?  NULL: of all functions. */
bool set_sequences(Module *m, int64_t from, int64_t to, const Map *in);

void free_structures(Planner *p);

#endif
