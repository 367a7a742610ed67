/* links.h -- a rank's messages that are under way, on the links that they share.
 *
 * Those over the same ranks follow each other, since they are of one communicator.  Those over others go at the same
 * time: if their links are of one class, each has an equal part of it, so that all take longer. */
#ifndef MPC_LINKS_H
#define MPC_LINKS_H

#include "step_cost.h"

enum { WITHIN, BETWEEN, TO_TIERS, N_LINKS }; /* within and between machines, and to other tiers of memory */

typedef struct {
    const CostItem *item;
    double start; /* when it began to go; NAN: it waits for those before it */
    double left;  /* seconds that it takes alone from here */
} Flight;

typedef void (*Arrival)(void *context, const CostItem *item, double start, double end);

typedef struct {
    double now; /* they have gone so far */
    int count, room;
    Flight *flight; /* in the order in which they were started */
    Arrival arrived;
    void *context;
    Arena *arena;
} Links;

/* At that time, or now, if it is later than that. */
void start_message(Links *links, const CostItem *item, double time);

void run_links(Links *links, double until);
void run_until_arrived(Links *links, const CostItem *item); /* or not at all, if it has */

/* As if all so far had been so much later. */
void put_off(Links *links, double seconds);

#endif
