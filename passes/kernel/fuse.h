/* fuse.h -- shared by fuse.c (which ops become one kernel), fuse_products.c (what products compute), fuse_order.c
 * (their order), fuse_reach.c (paths between groups) and outline.c (making the kernels). */
#ifndef MPC_FUSE_H
#define MPC_FUSE_H

#include "build.h"
#include "ir.h"
#include "map.h"
#include "uses.h"

typedef struct FusionGroup {
    int index; /* its index in the order */
    bool product;
    int adds;        /* how many products, and a residual, are added up; 1: one to a running sum; 0: none is */
    bool beside;     /* sums of operands of products that are one */
    bool has_inner;  /* inner dims are determined by a reduction */
    bool updates;    /* an op of it overwrites old state */
    Type space;      /* all dims */
    Names inner;     /* if has_inner */
    int last;        /* the last of its ops in the list of siblings */
    int size;        /* how many ops */
    int64_t step;    /* of its ops that have one; 0: none has */
    int values;      /* operands and results of its kernel, or more than these ... */
    bool is_counted; /* ... unless these have been counted */
    uint64_t ranks;  /* that run it: all of its ops */
    struct FusionGroup *merged; /* merged into this one */
    struct FusionGroup *apart;  /* the last group to which there was a path through other nodes ... */
    int between;                /* ... one op on that path */
} FusionGroup;

typedef struct {
    int count, room, *at;
} Numbers;

typedef struct {
    Module *m;
    Func *f;
    bool has_kinds; /* are ranks of several kinds? */
    int n;
    Op **ops;
    FusionGroup **group; /* of each op; NULL: none */
    Value **over;        /* of each op: the old state that its result overwrites; NULL: none */
    int *sibling;        /* of each op the next of its group, from FusionGroup.index on; -1: the last */
    Numbers *users;      /* of each op: the ops that depend on it: they read its results or overwrite its operands */
    Numbers *needs;      /* the reverse */
    int *rank;           /* of each node (fuse_reach.c) */
    int *node;           /* of each rank */
    int *seen;           /* scratch, of each op: visited if equal to `stamp` */
    int stamp;
    Numbers before, after, pool; /* scratch of fuse_reach.c ... */
    int stays;                   /* ... and the node whose rank the joined one gets if both are empty */
    Map number;                  /* op -> its number + 1 */
    Map readers;                 /* value -> Numbers: the ops that read it, in order */
    Map view_readers;            /* value -> Numbers: the ops that read a view of it */
    Map returned;                /* the results of the function */
    Numbers matches;             /* pairs of ops that are in no common kernel, see matches.c */
} Fusion;

Value *stored(Builder b, Value *value); /* a copy, in memory of its own */

FusionGroup *final_group(FusionGroup *g);             /* the group it has been merged into */
int op_number(const Fusion *p, const Op *op);         /* -1: not of this function */
FusionGroup *group_of(const Fusion *p, const Op *op); /* NULL: none */

/* Is it a number, positions, or a comparison of them?  Kernels compute these rather than load them. */
bool is_free(const Op *op);

/* fuse.c: merges two groups if they may be one. */
bool try_merge(Fusion *p, FusionGroup *a, FusionGroup *b);

/* fuse.c: the group of both, and its ops; there must be no path between them through others. */
FusionGroup joined(const FusionGroup *a, const FusionGroup *b);
void merge(Fusion *p, FusionGroup *a, FusionGroup *b, FusionGroup as);

/* fuse_products.c: adds to the group of op i, if that is a product, what its product computes as well: bias,
 * activation, slope; if it is an addition, the products that it adds up. */
void take_tail(Fusion *p, const Uses *uses, int i);
void take_sum(Fusion *p, int i);

/* fuse_products.c: if op i is one of several products that are one, merges sums of their operands. */
void merge_sums(Fusion *p, int i);

/* fuse_products.c: may two groups be one product? */
bool products_fit(const Fusion *p, const FusionGroup *a, const FusionGroup *b);

/* outline.c: the operands and results of a kernel of the group; how many more a kernel of both groups has than one of
 * the larger, in time that depends on the smaller alone. */
int count_values(const Fusion *p, const FusionGroup *g);
int count_values_added(const Fusion *p, const FusionGroup *large, const FusionGroup *small);

/* fuse_order.c: fills in users, needs, readers and over. */
void find_order(Fusion *p);
bool copy_state(Fusion *p);    /* copies new state that could be written only before it is read; did it? */
void gather_groups(Fusion *p); /* makes groups contiguous, each op after those it depends on */

void push_number(Arena *arena, Numbers *numbers, int number);
void sort_numbers(Numbers *numbers);
int first_from(const Numbers *sorted, int number); /* the index of the first that is not below it; or their count */

/* fuse_reach.c: ranks of nodes; is there a path between two groups through other nodes, or too many nodes to decide? */
void rank_ops(Fusion *p);
bool has_way_around(Fusion *p, FusionGroup *a, FusionGroup *b);
bool stay_apart(const Fusion *p, const FusionGroup *a, const FusionGroup *b); /* is that known already? */
/* Merges the groups of the last query into the node `joined`. */
void join_ranks(Fusion *p, int first, int second, int joined);

/* matches.c: comparisons of values with their own extremes; would one kernel of both groups compute such a value? */
void find_matches(Fusion *p);
bool hides_match(const Fusion *p, const FusionGroup *a, const FusionGroup *b);

/* residual.c: should the product before `add` add the residual? */
bool is_worth_adding(const Fusion *p, const Op *add, const Value *residual);

/* Turns the ops of each group, which are contiguous, into a kernel and a call of it. */
void outline_groups(Fusion *p);

/* beside.c: puts sums of a product's operand before the product. */
void put_sums_beside_products(Module *m, Func *f);

/* rowdot.c: turns dots that are sums along rows into such sums. */
void open_row_dots(Module *m, Func *f);

/* scatter.c: adds rows to sums where these lie. */
void add_rows_in_place(Module *m, Func *f);

/* collect.c: adds rows up where they are picked. */
void collect_rows(Module *m, Func *f);

/* widen.c: lets each op that reads a value of 16 bits in f32 cast it itself. */
void widen_in_readers(Module *m, Func *f);

/* unrounded.c: lets products of 8 bits read operands before they are rounded, on targets that round these. */
void read_before_rounding(Module *m);

/* picked.c: lets kernels pick from long rows in the pass that finds what they then subtract. */
void pick_from_long_rows(Module *m);

/* returned.c: lets functions return what views show, rather than views, which would be copied. */
void return_shown_by_views(Module *m);

#endif
