/* pipeline.h -- the pipeline of a layout, for bounds: which copies its stages have, and how long their actions take. */
#ifndef MPC_PLANNER_PIPELINE_H
#define MPC_PLANNER_PIPELINE_H

#include "block.h"

/* Of each repeat. */
typedef struct {
    double copies[MAX_REPEATS];
} RankCopies;

/* Of a micro-batch, by stage. */
typedef struct {
    double *seconds[N_ACTION_KINDS];
    double *back; /* the least part of a backward action after which the stage before can begin its own */
    double *forward_before, *back_before; /* forward and `back`, with messages, of all stages before */
} StageCosts;

/* The pipeline of a layout, made once for all that have the same. */
typedef struct Pipeline {
    PlanSchedule kind;
    int ranks, chunks, micros;
    Recompute recompute;
    PipelineSchedule *schedule; /* of no more micro-batches than change what stages keep; NULL: there is none */
    int64_t *copies;            /* by stage */
    RankCopies *of_stage;       /* by stage */
    RankCopies *held;           /* by rank */
    RankCopies *kept[N_KEPT];   /* by rank: times micro-batches in flight; NULL: nothing of the kind is kept */
    int nfullest, *fullest;     /* one of these ranks needs most memory for its copies */
    int first, last;            /* the ranks of the first stage and of the last */
    int *ahead;                 /* by rank and chunk: forward actions before the first backward one of the rank */
    int *turn;                  /* by rank: the stage of that one */
    StageCosts *costs;          /* room for those of one layout after the other */
    struct Pipeline *next;
} Pipeline;

enum { PIPELINE_LISTS = 4096 };
typedef struct CopyCache {
    RepeatLoads loads[RECOMPUTE_AUTO];
    struct EndParam *ends;
    Pipeline *pipelines[PIPELINE_LISTS];
    struct LeanPipelines *lean[PIPELINE_LISTS];
} CopyCache;

/* stage_copies.c; the schedule: NULL, there is none. */
const Pipeline *find_pipeline(Planner *p, const PlanLayout *layout);
PipelineSchedule *make_plan_schedule(Arena *arena, const PlanLayout *layout, int ranks, int micros);

#endif
