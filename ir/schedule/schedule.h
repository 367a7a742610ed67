/* schedule.h -- pipeline schedules: which micro-batch each rank computes on which stage, in which order.
 *
 *   schedule.def    one row per schedule: name, generator, placement of stages, restrictions
 *   generate.c      the generators
 *   table.c         a schedule as a table of text: read from the user's file, and written
 *   simulate.c      the timeline under given costs: start and end of each action, bubble, micro-batches in flight
 *   held.c          memory over that time
 *   published.c     bubbles as the papers give them
 *   order.c         messages between the actions, and the slots of what they make
 *   certify.c       proofs: complete, ordered, free of deadlock, within its slots
 *
 * A pipeline has `ranks` ranks along its axis, and `ranks * chunks` stages, numbered in the order of the model.  Stage
 * s is on rank_of_stage().  A forward action F of (stage, micro-batch) reads the activation of the stage before; a
 * backward action B reads the gradient of the stage after, and what F of its own stage has saved.  Some schedules split
 * B: B then computes the gradient of the activation only, W that of the weights.
 *
 * This library knows nothing of tensors: the compiler, the interpreter, the report and the tests use it alike. */
#ifndef MPC_SCHEDULE_H
#define MPC_SCHEDULE_H

#include "arena.h"
#include "diag.h"

#include <stdbool.h>
#include <stdio.h>

typedef enum { FORWARD_ACTION, BACKWARD_ACTION, WEIGHT_ACTION, N_ACTION_KINDS } ActionKind; /* see action_letter */

/* Where stage s is: LINEAR: rank s (one chunk); CYCLIC: rank s mod ranks; VEE: down the ranks and up again (2 chunks).
 */
typedef enum { LINEAR, CYCLIC, VEE } Placement;

typedef struct {
    ActionKind kind;
    int stage, micro;
} Action;

extern const char action_letter[]; /* by kind; a text: "FBW" */

/* One message between neighbouring stages: the activation (forward) or its gradient (backward) of a micro-batch.
 * No message joins stages on one rank. */
typedef struct {
    bool backward;
    int stage, micro; /* of the sender */
} Message;

/* What a rank does, in the order of its program: an action, a send or receive, or a reduction: the gradients of a stage
 * whose actions are over, summed with those of the same stage in other pipelines, which run the same events. */
typedef struct {
    bool is_message, reduces;
    Action action; /* of a reduction: the last one of its stage */
    Message message;
    bool sends;
} Event;

typedef struct PipelineSchedule {
    const char *name;
    int ranks, chunks, micros;
    Placement placement;
    bool splits_backward; /* B and W instead of one B */
    bool reduces;         /* gradients, when a stage has ended */
    int *nactions;        /* by rank */
    Action **action;      /* by rank, in order */
    /* Filled by order_messages(): actions and messages of each rank in one order, which is a projection of one order of
     * all events of all ranks.  So it is free of deadlock even if each message blocks both sides until both have come.
     */
    int *nevents;
    Event **event;
    int *activations; /* likewise: by stage, micro-batches between F and their last backward action (B, or W where
                         split), at most */
} PipelineSchedule;

/* Costs in any one unit of time. NULL: F 1, B 2 (unsplit) or B 1 and W 1, messages 0. */
typedef struct {
    const double *forward, *backward, *weight; /* by stage; NULL: all 1; an unsplit B costs backward + weight */
    double message; /* from the end of an action to the earliest start of its reader, if its rank sends nothing else */
    double lost;    /* share of the speed of computation beside a message, of the rank that sends or receives it */
} Costs;

/* The schedule `name` ("naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v") for these counts; NULL with an error
 * text in *why and a remedy in *help (both in the arena) if it cannot be: unknown name (with the nearest), chunks that
 * it does not take, micros that it needs to be a multiple (with the nearest values that work). */
PipelineSchedule *make_schedule(Arena *arena, const char *name, int ranks, int chunks, int micros, const char **why,
                                const char **help);

/* Reads the table that is the source of `diags`: CSV, one line per rank, cells "F<stage>.<micro>", "B...", "W...".
 * Empty cells are idle, empty lines and what follows a '#' are skipped.  The placement is that of the first line.
 * Errors go to diags with line and column; then NULL. */
PipelineSchedule *read_schedule(Arena *arena, Diags *diags, int ranks, int chunks, int micros);

/* Where a table that read_schedule() accepts, for any number of micro-batches, has its stages. */
Placement table_placement(Arena *arena, Diags *diags, int ranks, int chunks);
void write_schedule(const PipelineSchedule *s, FILE *out);
const char *action_text(Arena *arena, Action action); /* as in a cell */

/* Are there one or more of each, and no more than memory can hold?  Both of the above ask. */
bool check_counts(Arena *arena, int ranks, int chunks, int micros, const char **why, const char **help);

int rank_of_stage(const PipelineSchedule *s, int stage);
int stage_on_rank(const PipelineSchedule *s, int rank, int chunk); /* that chunk of the rank */
int stage_count(const PipelineSchedule *s);

bool ends_stage(const PipelineSchedule *s, int rank, int i); /* is that action the last one of its stage? */

static inline bool is_action(const Event *e) { return !e->is_message && !e->reduces; }

/* Puts messages and reductions between the actions of a schedule that was made or read, and counts activations; false
 * with *why if actions wait for each other in a circle. */
bool order_messages(Arena *arena, PipelineSchedule *s, const char **why);

/* Checks everything again from the tables alone (it shares nothing with order_messages): each action exactly once and
 * on its stage's rank; F before B before W, and micro-batches in order; each receive has its send, in the same order
 * per pair of ranks and direction; no deadlock under rendezvous semantics (a message completes when both sides have
 * come to it, and each rank goes on only then); a reduction for each stage, after its last action, if the schedule
 * reduces, and else none; no more activations than counted.  false: *why names rank, action, and the cycle. */
bool certify_schedule(Arena *arena, const PipelineSchedule *s, const char **why);

/* How long a rank keeps what the micro-batches have of a value: it is made by an action of one chunk, or arrives in the
 * message to it, and is last read by an action of this chunk or another one. */
typedef struct {
    ActionKind made, read;
    int made_chunk, read_chunk;
    bool arrives;
} Lifetime;

/* The slots that a rank needs, if micro-batch i is in slot i mod their number; order_messages() has been called. */
int slots_needed(const PipelineSchedule *s, int rank, const Lifetime *life);

/* Checks that no micro-batch takes a slot that another one still has; as certify_schedule() otherwise. */
bool certify_slots(Arena *arena, const PipelineSchedule *s, int rank, const Lifetime *life, int slots,
                   const char **why);

typedef struct {
    double **start, **end; /* by rank, and by its actions */
    int *done;             /* by rank: how many actions; fewer than there are: the next one waits for ever */
    double makespan;       /* of the slowest rank, from its first start to its last end, as publications have it */
    double bubble;         /* idle share: (makespan - work of the busiest rank) / makespan */
    int *most_in_flight;   /* by rank: activations held at once, over its stages (F done, last backward action not) */
} Timeline;

/* The timeline of a schedule that was made or read; false if actions wait for each other in a circle.  Then only `done`
 * is right, and circle_text() says which wait; *rank is one of theirs. */
bool simulate_schedule(Arena *arena, const PipelineSchedule *s, const Costs *costs, Timeline *timeline);
const char *circle_text(Arena *arena, const PipelineSchedule *s, const Timeline *timeline, int *rank);

/* The bubble that the papers give for a schedule: of stages that cost the same, F as much as B and as W, and messages
 * that cost nothing.  -1: they give none, for these counts or this schedule. */
double published_bubble(const char *schedule, int ranks, int chunks, int micros);

typedef struct {
    double at, bytes; /* from then on */
} MemoryLevel;

typedef struct {
    int count;
    MemoryLevel *level; /* in order of time; the first is at 0 */
    int peak;           /* the highest, and the first of these */
} MemoryCurve;

/* The memory of a rank: `fixed` bytes, and those of each stage's activations (by stage: of one micro-batch) from the
 * start of F to the end of the last backward action, as `most_in_flight` counts them. */
MemoryCurve memory_over_time(Arena *arena, const PipelineSchedule *s, const Timeline *timeline, int rank, double fixed,
                             const double *activation_bytes);

#endif
