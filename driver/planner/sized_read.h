/* sized_read.h -- shared by the files that read from a module how its costs depend on sizes: see sized_read.c. */
#ifndef MPC_SIZED_READ_H
#define MPC_SIZED_READ_H

#include "sized.h"

/* An item, in the order in which they are read, and the kind of rank that it is of. */
typedef struct {
    const CostItem *item;
    int rank;
} Numbered;

/* Items with another size. */
typedef struct {
    Scale scale;
    double times;   /* what depends on it is so many times as large */
    CostItem *item; /* by number: as they are read */
    bool is_other;  /* an op has other items then */
} Probe;

typedef struct {
    const Planner *p;
    Sized *s;
    Module *m;
    const Classes *classes;
    Arena *arena;
    bool is_fixed;
    StepCost cost;
    int numbered, number_room; /* items that are looked at again */
    Numbered *item;
    int read; /* of these */
    int probes;
    Probe probe[MAX_AXES + 1];
    int item_room, term_room, packing_room, dim_room;
    Name copies[MAX_REPEATS]; /* the dims that count them */
} Reader;

/* Do FLOPs matter to a kernel's time?  On a GPU it moves bytes. */
bool kernels_compute(const Reader *r);

Scale scale_of_type(const Reader *r, const Type *type);
void add_term(Reader *r, Range *sum, double value, Scale scale);
Range read_items(Reader *r, const CostList *list); /* of all items, as they have been numbered */

void read_scheduled(Reader *r); /* stage_read.c: of the first stage and of the last */

/* sized_scratch.c: the types of what is in memory at once in the loop's function, at least, but its operands and
 * results; and of messages that the turn before has started. */
void read_scratch(Reader *r, const Op *loop, TypeVisit visit, void *scratch, void *flights);

/* sized_probe.c: numbers the items of a list of that kind of rank; then looks at all of them with other sizes. */
void number_list(Reader *r, const CostList *list, int rank);
void probe_sizes(Reader *r);

#endif
