/* queue.h -- the nodes of the search, the one with the least bound first: see search.c. */
#ifndef MPC_QUEUE_H
#define MPC_QUEUE_H

#include "planner.h"

/* What is known of a node, in order. */
typedef enum { MESH, MICROBATCH, POLICIES, ZERO, SCHEDULE, COMPILED } Level;

/* By which bound a node of MICROBATCH is where it is; one of POLICIES; one of ZERO. */
enum { BY_MESH, BY_SPLIT };
enum { BY_MODEL, BY_ROUGH, BY_MICRO };
enum { BY_TRAFFIC, BY_ITS_PROGRAM };

typedef struct {
    PlanLayout layout;
    Level level;
    double bound;             /* seconds */
    int closeness;            /* of SCHEDULE: see schedule_bound(); else see above */
    const PlanResult *result; /* of COMPILED */
} Node;

typedef struct {
    Arena *arena;
    int count, room;
    Node *node; /* the first one at [0] */
} Queue;

void push_node(Queue *q, Node node);
Node pop_node(Queue *q);

#endif
