/* step_cost.h -- the compiled step as timed items: what a rank computes and sends, in the order of the program.
 *
 * Everything is read off the final program and its types; nothing is an estimate.  How long an item takes is the
 * machine's part (step_time.h).  Loops stay loops: an item that repeats a list.  A started message and its wait have
 * the same number, so what runs between them is what stands between them; in a loop the wait may be in the next turn
 * (flight.h).
 *
 *   cost_item.c   the item of one op
 *   step_cost.c   the walk over the program: phases, loops, kinds of ranks, actions of a pipeline
 */
#ifndef MPC_STEP_COST_H
#define MPC_STEP_COST_H

#include "cost.h"
#include "schedule/slots.h"
#include "target.h"

typedef enum { ITEM_PRODUCT, ITEM_ATTENTION, ITEM_KERNEL, ITEM_MESSAGE, ITEM_WAIT, ITEM_REPEAT, N_ITEM_KINDS } ItemKind;
extern const char *const item_name[N_ITEM_KINDS];

/* UPDATED: what no gradient depends on: their norm, the optimizer. */
typedef enum { FORWARD, BACKWARD, RECOMPUTED, UPDATED, N_PHASES } Phase;
extern const char *const phase_name[N_PHASES];

/* A tensor of a message, by its collective. */
typedef struct SentTensor {
    const Op *op;
    double bytes;    /* that the rank sends */
    Packing side[2]; /* of a collective: see target.h */
    const struct SentTensor *next;
} SentTensor;

typedef struct CostItem {
    ItemKind kind;
    Phase phase;
    const Op *op;           /* its line of the model */
    int precision;          /* of products and attention */
    double flops;           /* that are computed: of causal attention those of the keys that are seen, of experts' rows
                               those that have a token if all experts have as many */
    double bytes;           /* each operand that is read and each result that is written, once; of a message, by the
                               copies that pack it */
    int64_t m, n, k, count; /* a product: so many matrices of m rows and n columns, sums of k terms */
    int64_t queries, keys, features, heads; /* attention; heads: of all sequences */
    bool backward;                          /* is it a gradient of attention? */
    OpKind collective;                      /* a message: its op's */
    double volume;                          /* see Traffic; of its tensors together */
    Axes axes;                              /* its ranks differ along these */
    int64_t ranks;                          /* of the group */
    int tensors;                            /* joined in it */
    const SentTensor *sent;                 /* these, the last one first */
    int id;                                 /* of a started message and its wait, from 1; 0: it is waited for at once */
    bool ahead;                             /* started for the next turn: the last turn does not */
    int early; /* it starts when the rank has ended that chunk of the pipeline, by its number + 1; 0: in its order */
    double turns;
    struct CostList *body; /* of a repeat */
    bool is_timed;         /* has it run on a machine? */
    int link;              /* then, of a message: the class of links over which it goes */
    double seconds;        /* and what it takes */
} CostItem;

typedef struct CostList {
    int count, room;
    CostItem *item;
} CostList;

/* A mesh with axes that the program has not, which are for other parts of the model. */
typedef struct {
    int count, of[MAX_AXES]; /* by axis of the program: which of these it is */
    int64_t size[2 * MAX_AXES];
} RankMesh;

/* The step of each kind of rank.  Without a scheduled pipeline, all of it is in `before`. */
typedef struct {
    Module *m;
    Arena *arena;
    int kinds;                        /* of ranks: their coordinates along the axis of stages */
    CostList *before, *after;         /* by kind: of the pipeline */
    const PipelineSchedule *schedule; /* NULL: none */
    CostList *action[N_ACTION_KINDS]; /* by stage */
    int actions;                      /* of each kind */
    double stage_message;             /* bytes that a stage sends to the next one, of one micro-batch */
    CostList *handed_on;              /* by kind: what goes from chunk to chunk, in messages of the schedule */
    const char *unscheduled;          /* why there is no schedule of the stages that there are; NULL: there are none */
    int messages;                     /* numbers of started ones */
    const RankMesh *mesh;             /* where its ranks are; NULL: in the mesh of the module */
} StepCost;

/* The module has been through all passes.  It does no more than arithmetic on types: after a change of sizes, ask
 * again. */
StepCost step_cost(Module *m, const Classes *classes, Arena *arena);

/* Called for each item of a kind of rank, with how often it runs in a step; items that take no time of their own, as
 * those that are handed on, too.  Not for loops: for what is in them. */
typedef void (*ItemVisit)(void *context, const CostItem *item, double times);
void visit_items(const StepCost *cost, int kind, ItemVisit visit, void *context);

/* What a stage hands on to the next one, of one micro-batch, at most; is_wanted: of these values, NULL: all. */
double bytes_between_stages(const Module *m, const MicroParts *parts,
                            bool (*is_wanted)(const Module *m, const Op *loop, int carried));

/* --- Shared by its files --------------------------------------------------------------------------- */

CostItem *push_item(Arena *arena, CostList *list, CostItem item);

/* Appends what one op costs on that kind of rank; nothing, of views and of calls that are no kernels.  computes: else
 * the FLOPs of kernels are not wanted. */
void push_cost(Module *m, Arena *arena, CostList *list, const Op *op, int rank, bool computes);

/* The types of what it reads and writes, whose bytes are those of its item.  Of a table, only the rows are read that
 * are picked, and no more than are written: that is not visited.  NULL: it picks from none. */
typedef void (*TypeVisit)(void *context, const Type *type);
void visit_moved(const Module *m, const Op *op, TypeVisit visit, void *context);
const Type *picked_table(const Op *op);

CostItem message_item(Module *m, Arena *arena, const Op *op, int rank);

#endif
