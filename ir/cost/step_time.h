/* step_time.h -- the time of a step on a machine, and what it is spent on.
 *
 * Laws: a product, an attention, a kernel, a message takes what the machine says (machine.h).  A rank has two streams:
 * one computes, in the order of the program; messages go one after the other over each class of links, beside it.  A
 * started message hides behind what runs until its wait; any other one does not.  Loops are run for a few turns, and
 * from then on each turn takes as long as the one before.  The actions of a pipeline take what their items take, and
 * run as simulate_schedule() says.
 *
 *   clock.c      one rank that runs a list of items
 *   bars.c       what it does when, for pictures
 *   step_time.c  all kinds of ranks, and what the time of the one that ends last goes to
 */
#ifndef MPC_STEP_TIME_H
#define MPC_STEP_TIME_H

#include "bars.h"
#include "machine.h"
#include "step_cost.h"

/* Seconds of one rank in a step. */
typedef struct {
    Axes axes;
    double sent;    /* while messages were under way */
    double exposed; /* of these, while it waited for them */
    double messages;
} AxesTime;

typedef struct {
    const Op *op; /* the first one of that line */
    double seconds[N_ITEM_KINDS], all;
} LineTime;

typedef struct {
    double seconds;                             /* of the step: of the rank that ends last */
    double before;                              /* of these, until all ranks have come to the pipeline */
    int kind;                                   /* the rank that ends last; the fields below are its */
    double item[N_ITEM_KINDS], phase[N_PHASES]; /* messages: those that are exposed */
    double idle;                                /* it waits for other stages and their messages */
    int naxes;
    AxesTime axes[1 << MAX_AXES]; /* more exposed first */
    int nlines, line_room;
    LineTime *line;                /* longest first */
    Costs costs;                   /* of a pipeline: see schedule.h */
    double *waits[N_ACTION_KINDS]; /* by stage: seconds of an action in which it waits for messages */
    Timeline timeline;             /* likewise */
    double bubble;                 /* idle / seconds of the pipeline */
} StepTime;

/* A list alone: messages that it waits for, but does not start, take no time. */
double list_seconds(const StepCost *cost, const CostList *list, const Machine *machine, Arena *arena);

/* The ranks that differ along some axes of a mesh of these sizes, whose last axis counts fastest. */
Group group_along(const Machine *machine, const int64_t *size, int naxes, Axes axes);
Group group_in_mesh(const Machine *machine, const RankMesh *mesh, Axes axes); /* axes: of the program */

/* A message, and the copies that pack it. */
double sent_seconds(const Machine *machine, const CostItem *item, Group group);

StepTime step_time(const StepCost *cost, const Machine *machine, Arena *arena);

/* What ranks do when: the same runs, recorded.  Times of actions begin with the action, those of `after` with the
 * pipeline. */
typedef struct {
    Bars *before, *after;         /* by kind of rank */
    Bars *action[N_ACTION_KINDS]; /* by stage; NULL: no pipeline */
} StepBars;

StepBars step_bars(const StepCost *cost, const Machine *machine, const StepTime *time, double resolution, Arena *arena);

#endif
