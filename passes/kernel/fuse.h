/* fuse.h -- shared by fuse.c (which ops become one kernel), fuse_order.c (their order), fuse_reach.c (paths between
 * groups) and outline.c (making the kernels). */
#ifndef MPC_FUSE_H
#define MPC_FUSE_H

#include "ir.h"
#include "map.h"

typedef struct FusionGroup {
    int index; /* its place in the order */
    bool product;
    bool epilogue;              /* the product adds to a running sum, and shares no left operand */
    bool has_inner;             /* a reduction has decided what is inner */
    bool updates;               /* an op of it writes new state over the old */
    Type space;                 /* all dims */
    Names inner;                /* if has_inner */
    int last;                   /* the last of its ops in the list of siblings */
    int size;                   /* how many ops */
    struct FusionGroup *merged; /* into this one */
    struct FusionGroup *apart;  /* the last one to which there was a way by way of others ... */
    int between;                /* ... of which this op is one */
} FusionGroup;

typedef struct {
    int count, room, *at;
} Numbers;

typedef struct {
    Module *m;
    Func *f;
    int n;
    Op **ops;
    FusionGroup **group; /* of each op; NULL: none */
    Value **over;        /* of each op: the old state over which its result is written; NULL: none */
    int *sibling;        /* of each op the next of its group, from FusionGroup.index on; -1: the last */
    Numbers *users; /* of each op: the ops that come after it, since they read its results or overwrite what it reads */
    Numbers *needs; /* the other way round */
    int *rank;      /* of each node (fuse_reach.c) */
    int *node;      /* of each rank */
    int *seen;      /* scratch, of each op: seen if it is `stamp` */
    int stamp;
    Numbers before, after, pool; /* scratch of fuse_reach.c ... */
    int stays;                   /* ... and the node at whose rank the other comes if both are empty */
    Map number;                  /* op -> its number + 1 */
    Map readers;                 /* value -> Numbers: the ops that read it, in order */
    Map returned;                /* the results of the function */
} Fusion;

FusionGroup *final_group(FusionGroup *g);             /* what it has been merged into */
int op_number(const Fusion *p, const Op *op);         /* -1: not of this function */
FusionGroup *group_of(const Fusion *p, const Op *op); /* NULL: none */

/* fuse_order.c: fills in users, needs, readers and over. */
void find_order(Fusion *p);
void gather_groups(Fusion *p); /* the ops of each group stand together, and each op behind what it needs */

void push_number(Arena *arena, Numbers *numbers, int number);
void sort_numbers(Numbers *numbers);

/* fuse_reach.c: ranks of nodes; is there a way between two groups by way of others, or too many others to know? */
void rank_ops(Fusion *p);
bool has_way_around(Fusion *p, FusionGroup *a, FusionGroup *b);
bool stay_apart(const Fusion *p, const FusionGroup *a, const FusionGroup *b); /* is that known? */
/* Of the groups that were asked for last: they become the node `joined`. */
void join_ranks(Fusion *p, int first, int second, int joined);

/* The ops of each group, which stand together, become a kernel and a call of it. */
void outline_groups(Fusion *p);

/* rowdot.c: dots that are sums along rows become those. */
void open_row_dots(Module *m, Func *f);

#endif
