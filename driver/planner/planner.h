/* planner.h -- mpc plan: which layouts of a model fit so many ranks of a machine, and which of them is the fastest.
 *
 *   planner.c      the command: what is asked for
 *   space.c        the space: what the model's `parallel { }` can be with other sizes and options
 *   schedules.c    of these, the pipeline
 *   keep.c         what --keep says of it
 *   layout_text.c  a layout as the text of such a block, and as a line of a table
 *   bound.c        the least time that a layout can take, from the program of one rank
 *   memory_bound.h  and the least memory that it needs
 *   splits.h       which axes can split what that program has
 *   zero_bound.c   the least time that zero's messages take
 *   message_bound.c  and other messages
 *   structure.c    a program with the sizes of any layout
 *   sized.h        what such a program costs, as formulas of its sizes: it is compiled once
 *   block.h        closer bounds, from what the parts of a micro-batch take in such a program
 *   away.c         layouts that offload
 *   compiled.c     a layout compiled: its memory and time, exactly as `mpc report --machine` has them
 *   tasks.c        compiles many programs and layouts, in several processes
 *   workers.h      these processes
 *   search.c       the search: best bound first
 *   queue.c        its nodes, by their bounds
 *   refusal.c      why layouts cannot be compiled
 *   plan_table.c   the answer as a table
 *   plan_json.c    the answer as JSON
 *   plan_page.c    the answer as a page: the table, blocks and commands of the layouts
 *   plan_chart.c   the picture in that page: memory against time
 *
 * The search is best first (A*: Hart, Nilsson and Raphael, IEEE TSSC 4(2), 1968).  A node stands for a layout or for a
 * set of them, and has a bound that no layout of it is faster than.  The node with the least bound is taken out and
 * replaced by smaller ones, whose bounds are closer; at last by a compiled layout, whose time is exact.  When a
 * compiled layout is the one with the least time, nothing can be faster: it is the next best.
 */
#ifndef MPC_PLANNER_H
#define MPC_PLANNER_H

#include "driver.h"

#include "ways.h"

#include "cost/step_time.h"
#include "layout/repeat_loads.h"
#include "manager/pass.h"
#include "syntax/ast.h"

/* How attention has keys that other ranks of an axis have. */
typedef enum { GATHER, RING, ALL_TO_ALL, N_ATTENDS } PlanAttend;
extern const char *const attend_name[N_ATTENDS];

/* The schedules that are tried.  `naive` and `gpipe` take no less time than 1f1b, and more memory or as much. */
typedef enum { ONE_F_ONE_B, INTERLEAVED, ZB_H1, ZB_V, N_SCHEDULES } PlanSchedule;
extern const char *const schedule_word[N_SCHEDULES]; /* as the language has them */

/* A layout; of an axis or option that makes no difference, what is 0. */
typedef struct {
    int64_t size[MAX_AXES]; /* of the mesh axes, in their order */
    int64_t microbatch;     /* sequences of a micro-batch on one data-parallel rank */
    PlanAttend attend;
    Recompute recompute;
    int pieces;    /* in which messages along `else` go */
    int abreast;   /* micro-batches that are computed beside each other: see lanes_of() */
    int zero;      /* -1: nothing says it, there are no axes to split over */
    bool overlaps; /* messages of zero with computation */
    PlanSchedule schedule;
    int chunks;
} PlanLayout;

/* An axis of the mesh. */
typedef struct {
    const char *name;
    bool is_data;       /* splits the batch */
    bool is_batch;      /* and nothing else */
    bool splits_copies; /* of repeats: it has the stages of a pipeline */
    bool attends;       /* splits a sequence along which attention runs */
    bool is_zero;       /* zero splits over it */
    int64_t kept;       /* by --keep; 0: any size */
    int64_t pair;       /* the size of the first dim of the pair that it splits; 0: it splits none */
    int64_t dealt; /* the greatest common divisor of the sizes of the dims that it splits, except in pairs; 0: none */
} PlanAxis;

static inline bool splits_micro_batch(const PlanAxis *axis) { return !axis->is_batch && !axis->splits_copies; }

/* A dim that axes split. */
typedef struct {
    const char *name;
    int64_t size; /* in memory */
} PlanDim;

/* --keep, but sizes of axes: -1: anything, but of pieces and micro-batches abreast, which are 1 unless it, or the model
 * of these, says otherwise. */
typedef struct {
    int64_t microbatch;
    int attend, recompute, zero, schedule, chunks, overlaps, pieces, abreast;
} Kept;

static inline bool is_kept(int kept, int value) { return kept < 0 || kept == value; }

typedef struct Structure Structure;

typedef struct {
    Run *run;
    Arena *arena;
    const Machine *machine;
    int64_t ranks;
    bool is_elastic;            /* on so many ranks or fewer */
    double memory;              /* bytes that a rank may use */
    const Ast *file, *parallel; /* of the model; its layout, or a derived one */
    const char *layout_text;    /* in which that is */
    const char *rest;           /* the text of the model without it, for parse_mdl() */
    int naxes;
    PlanAxis axis[MAX_AXES];
    int ndims;
    PlanDim *dim;
    int64_t sequences; /* in a step */
    bool mixes;        /* the loss, sequences of a batch: a step has one micro-batch, and all layouts are compiled */
    int64_t copies;    /* that stages share; 0: no pipeline */
    Kept kept;
    Names heads;            /* the dims of attention that all ranks could have a part of in place of a sequence's */
    struct ModelCost *cost; /* bound.c */
    struct MemoryCost *memory_cost;
    bool has_experts; /* to which tokens are dispatched */
    bool has_windows; /* of keys that attention sees: a ring leaves out turns */
    bool is_gpu;
    double beside; /* bytes of a rank beside its arena, whatever the layout */
    int ntensors, tensor_room;
    struct ZeroTensor *tensor; /* zero_bound.c */
    Way away;                  /* what layouts offload: see away.c */
    Tier tier;                 /* to which */
    const char *offload;       /* as the language has it; NULL: they offload nothing */
    double least_without;      /* bytes that each layout needs that offloads nothing; 0: the question is not of these */
    double tried_without;      /* of these, so many: others were not looked at; 0: it is so of all */
    struct BlockCache *blocks; /* block.h */
    int programs;              /* in it */
    Structure *structures;     /* structure.c */
    struct Workers *workers;   /* tasks.c */
} Planner;

/* What became of the space. */
typedef struct {
    double meshes, indivisible; /* meshes; of these, whose axes do not divide the dims */
    double all;                 /* layouts of the others */
    double too_large, bounded;  /* do not fit; of these, by their bound, without having been compiled */
    double slower;              /* than those that are listed, by their bound or as compiled */
    double open;                /* have not been looked at: see Answer */
    double compiled, refused;   /* have been compiled; of these, that cannot be */
    double programs;            /* that have been compiled for bounds */
} Tally;

/* A layout that has been compiled. */
typedef struct {
    PlanLayout layout;
    const char *refused; /* why it cannot be compiled; NULL: it can */
    bool is_slower;      /* than `enough` seconds, at least: nothing else is known then */
    int64_t arena, beside;
    double seconds, tokens, mfu;                  /* of a step; tokens or records in a second; see TimeReport */
    double parts[N_ITEM_KINDS], idle, recomputed; /* seconds: see StepTime */
    int naxes;
    struct {
        const char *axes;
        double exposed;
    } exposed[4]; /* the axes whose messages are waited for longest */
    double bound; /* the search's, before it was compiled */
} PlanResult;

/* --- space.c --------------------------------------------------------------------------------------- */

bool read_space(Planner *p, const Module *m);       /* m: the model on one rank; false after reporting */
bool read_kept(Planner *p, int abreast);            /* keep.c; as the model has it; false after reporting */
PlanAxis *axis_named(Planner *p, const char *name); /* NULL: there is none */
int64_t mesh_ranks(const Planner *p, const PlanLayout *layout);
int64_t data_ranks(const Planner *p, const PlanLayout *layout);
const Ast *statement(const Planner *p, AstKind kind); /* the first one of the layout; NULL: there is none */
int64_t ranks_on_axes(const Planner *p, const PlanLayout *layout, unsigned axes); /* as bits */
bool attends_apart(const Planner *p, const PlanLayout *layout); /* do ranks share sequences that attend? */
int64_t micro_batches(const Planner *p, const PlanLayout *layout);
int64_t first_of_pair(const Planner *p, int axis, int64_t size); /* ranks that split the first dim; without one, all */
bool deals_blocks(const Planner *p, int axis, int64_t size);     /* two to each rank, of a sequence */
bool divides(const Planner *p, const PlanLayout *layout);        /* do the axes divide the dims? */
bool can_cut(const Planner *p, const PlanLayout *layout,
             int pieces);                                        /* may messages along each `else` go in so many? */
bool has_pieces(const Planner *p, const PlanLayout *layout);     /* may messages go in some? */
bool may_be_abreast(const Planner *p, const PlanLayout *layout); /* may micro-batches be? */
int lanes_of(const PlanLayout *layout);                          /* that are abreast, 1 or more */
int64_t turns_of(const Planner *p, const PlanLayout *layout);    /* of the loop over micro-batches, each for so many */
bool hides(const PlanLayout *layout); /* may what zero sends in a micro-batch hide behind computation? */

/* Calls it for each layout of a mesh with what is not known yet at its first value; see search.c. */
typedef void (*LayoutVisit)(void *context, const PlanLayout *layout);
void visit_meshes(const Planner *p, LayoutVisit visit, void *context); /* whose axes may have their sizes, each alone */
double count_meshes(const Planner *p, int axis, int64_t left);         /* all, of the axes from this one on */
void visit_microbatches(const Planner *p, PlanLayout layout, LayoutVisit visit, void *context);
void visit_policies(const Planner *p, PlanLayout layout, LayoutVisit visit,
                    void *context); /* recompute, attend, pieces, abreast */
void visit_zeros(const Planner *p, PlanLayout layout, LayoutVisit visit, void *context); /* zero, overlaps */

/* --- schedules.c ----------------------------------------------------------------------------------- */

void find_copies_axis(Planner *p);
void say_schedule(const Planner *p, Options *options);          /* of a model that has one: the simplest */
int64_t copy_ranks(const Planner *p, const PlanLayout *layout); /* that share them */
bool have_copies(const Planner *p, const PlanLayout *layout);   /* each of these ranks? */
bool has_schedule(const Planner *p, const PlanLayout *layout);  /* does one interleave its micro-batches? */
bool divides_backward(const PlanLayout *layout); /* its schedule: actions of activations, and of weights */
PlanLayout layout_on(const Planner *p, Recompute policy, int ranks); /* which share copies; of one sequence */
void visit_schedules(const Planner *p, PlanLayout layout, LayoutVisit visit, void *context); /* schedule, chunks */
enum { MOST_SCHEDULES = N_SCHEDULES + MAX_CHUNKS }; /* of a layout without them */

/* A line of the layout's block; "": the statement is about something else. */
const char *schedule_line(Arena *arena, const Planner *p, const PlanLayout *layout, const Ast *ast);

/* --- layout_text.c --------------------------------------------------------------------------------- */

const char *layout_block(Arena *arena, const Planner *p, const PlanLayout *layout); /* "parallel {\n    mesh ..." */
const char *list_text(Arena *arena, const Ast *list);                               /* "heads, (a, b)" */
const char *layout_name(Arena *arena, const Planner *p, const PlanLayout *layout);  /* "dp=2,pp=4,tp=2" */

/* --- compiled.c ------------------------------------------------------------------------------------ */

/* The module of a layout after all passes, with a run of its own; NULL: it cannot be, and *why says why.  It offloads
 * nothing, but in compiled_result(). */
Module *compile_layout(const Planner *p, const PlanLayout *layout, int64_t sequences, const PassOptions *passes,
                       Run *run, const char **why);                              /* sequences: of a step */
bool run_more(Module *m, Run *run, const PassOptions *passes, const char **why); /* false: likewise, and m is gone */
PlanResult compiled_result(const Planner *p, const PlanLayout *layout, double enough, Arena *arena);

enum { COMPILED_AHEAD = 2 }; /* at once: as many on each machine, so that the answer counts the same */
void compiled_results(Planner *p, const PlanLayout *layout, const double *enough, int count,
                      PlanResult *result); /* tasks.c */

typedef struct {
    double seconds;      /* INFINITY: it cannot be compiled */
    double memory;       /* bytes */
    const char *refused; /* why it cannot be compiled */
} BlockBound;

/* --- bound.c --------------------------------------------------------------------------------------- */

bool read_model_cost(Planner *p); /* false after reporting */

/* Seconds of what is done once a step.  Messages are those of what all copies of a repeat have: within a machine, and
 * between machines. */
enum { INSIDE, OUTSIDE, N_PLACES };
typedef struct {
    double seconds[N_PLACES]; /* of messages, which follow each other */
} PlaceTime;
typedef struct {
    double before[N_PLACES][MAX_REPEATS]; /* the first micro-batch */
    double early[N_PLACES][MAX_REPEATS];  /* after the last one: of what it makes */
    double late[N_PLACES][MAX_REPEATS];   /* and of what others have made */
    double computed;                      /* kernels outside of them */
    double moved[MAX_REPEATS];            /* transfers from and to another tier, after the last micro-batch */
    double share;                         /* of messages: what they take at least, see JOINED_SHARE */
} OnceTime;

/* Seconds that the parts of a micro-batch take, or of those abreast, on all stages: copies of the repeats that stages
 * share, in the order of the model, and what is before each repeat and after the last. */
typedef struct {
    double whole;
    double copy[N_ACTION_KINDS][MAX_REPEATS], beside[N_ACTION_KINDS][MAX_REPEATS + 1];
    double carried[N_ACTION_KINDS]
                  [MAX_REPEATS]; /* that the copies of a stage take less: the next action waits for it */
    double back[MAX_REPEATS]; /* of a copy: a backward action takes that long without its part of weights, at least */
    OnceTime once;            /* of stages alone, and where it is known */
} MicroTime;

/* No layout with these sizes, micro-batch and recompute takes less for a micro-batch, or for those abreast. */
MicroTime least_micro(const Planner *p, const PlanLayout *layout);

/* Seconds of its products and attention that are computed again, at least. */
double products_again(const Planner *p, const PlanLayout *layout);

/* Seconds of a micro-batch that attention in a ring takes longer than with gathered keys, at least. */
double lost_in_ring(const Planner *p, const PlanLayout *layout);

/* Of a loop over copies that stages share: the number of the repeat + 1, negative if it goes backward; else 0. */
int shared_loop(const Planner *p, const Op *op);
void add_shared(const Planner *p, MicroTime *time, int loop, double seconds); /* of all copies, of that loop */

/* No mesh of so many ranks is faster; seconds. */
double least_seconds_of_ranks(const Planner *p, int64_t ranks);

/* What micro-batches keep from a forward or a backward action for the backward action, or its part of weights. */
typedef enum { FOR_BACKWARD, FOR_WEIGHTS, FROM_BACKWARD, N_KEPT } KeptKind;

/* Bytes of a rank.  held: the state of a copy of each repeat; kept: what a micro-batch keeps of a copy, all of it in
 * FOR_BACKWARD if its readers are not known.  The rest belongs to no copy: the state on the first stage alone, on the
 * last one alone, and on both (ends); others: what is on an unknown stage, as the mean of all ranks. */
typedef struct {
    double held[MAX_REPEATS], kept[N_KEPT][MAX_REPEATS], first, last, ends, others;
} CopyBytes;

/* No layout with these sizes and zero needs less; bytes.  is_any: with any schedule; divided: what copies keep where
 * backward actions are divided, NULL: it is not known. */
double least_memory(Planner *p, const PlanLayout *layout, bool is_any, const CopyBytes *divided);
CopyBytes least_bytes(const Planner *p, const PlanLayout *layout);

/* --- away.c ---------------------------------------------------------------------------------------- */

bool read_away(Planner *p, const Module *m);                      /* as the model has it; false after reporting */
double seconds_moved(const Planner *p, const PlanLayout *layout); /* of a step's transfers, on the mean rank */
void find_moved(const Planner *p, const PlanLayout *layout, OnceTime *once); /* of copies, if nothing is kept */

static inline bool is_away(const Planner *p, TensorClass kind) /* of the state */
{
    const bool is_of_optimizer = kind == MASTER_WEIGHTS || kind == OPTIMIZER_STATE;
    return (is_of_optimizer && p->away.away & AWAY_STATE) || (kind == WEIGHTS && p->away.away & AWAY_PARAMS);
}

/* bound.c: bytes of it that are moved, of all copies of each repeat that stages share; at last of what is not of these
 */
void state_away(const Planner *p, const PlanLayout *layout, double bytes[MAX_REPEATS + 1]);

/* --- zero_bound.c ---------------------------------------------------------------------------------- */

/* A tensor as zero sends it. */
typedef struct ZeroTensor {
    double weight, gradient; /* bytes of messages, of all that are alike */
    unsigned split;          /* the axes that split it, as bits */
    bool is_repeated;        /* there is one for each copy of a repeat */
    bool is_of_experts;      /* to which tokens are dispatched */
    int ndims;
    int64_t dim[MAX_RANK];        /* sizes, but of dims that count copies */
    unsigned dim_split[MAX_RANK]; /* the axes that split each */
} ZeroTensor;

void note_zero_tensor(Planner *p, const ZeroTensor *tensor);

/* What a step takes without zero, as the mean of all stages: seconds, and those of messages that zero does not send. */
typedef struct {
    double seconds;
    PlaceTime sent;
} StepBound;

/* With the layout's zero a step takes that long, at least; with any that fits, and the least memory of any. */
double seconds_with_zero(const Planner *p, const PlanLayout *layout, const StepBound *without);
BlockBound over_zeros(Planner *p, const PlanLayout *layout, const StepBound *without);

/* What sizes decide, beside those of types: which messages are joined, and so in which order things are done.  Times of
 * a program with the sizes of another layout are off by as much, at most; tests/plan measures it.  Bounds are less by
 * it. */
#define STRUCTURE_ERROR 0.015

/* Which dims zero splits depends on all sizes, and with it over which axes messages go and which are joined: where
 * another program has found no dims to split, the time of messages is less by up to as much. */
#define JOINED_SHARE 0.7

enum { BLOCK_LISTS = 4096, PROGRAM_LISTS = 1024, MESSAGE_LISTS = 4096 };
typedef struct BlockCache {
    struct Block *first[BLOCK_LISTS];            /* by a hash of the layout */
    struct CopyCache *copies;                    /* stage_copies.c */
    struct Sized *sized[PROGRAM_LISTS];          /* sized.h */
    struct MessageTime *messages[MESSAGE_LISTS]; /* message_bound.c */
    struct MessageProgram *senders;
} BlockCache;

/* --- block_bound.c, stage_copies.c -------------------------------------------------------------------- */

void prepare_blocks(Planner *p);
enum { ON_FIRST = 1, ON_LAST = 2 };
int ends_with(const Planner *p,
              Name param); /* stages of any pipeline that have it, beside their copies; 0: not known */
const RepeatLoads *loads_of(const Planner *p, Recompute policy); /* what the stages of a pipeline share */

/* On the rank of a pipeline that has most: with the layout's schedule; with any, at least. */
double most_of_copies(Planner *p, const PlanLayout *layout, const CopyBytes *bytes);
double least_of_copies(Planner *p, const PlanLayout *layout, const CopyBytes *bytes);

double bytes_of_last(Planner *p, const PlanLayout *layout, const CopyBytes *bytes); /* on the rank of the last stage */

/* message_bound.c: seconds of a micro-batch by place, with the zero of the layout. */
PlaceTime least_messages(Planner *p, const PlanLayout *layout);
PlanLayout first_sender(const Planner *p, const PlanLayout *layout); /* its first program is of this one */

/* Seconds for the micro-batches of a step with these axes, micro-batch and policies, without zero: by what the model
 * computes and sends; by a rough program that gathers keys and recomputes nothing; by its own program;
 * INFINITY: it cannot be compiled. */
double split_bound(Planner *p, const PlanLayout *layout); /* with any policies, by what the model computes and sends */
StepBound model_bound(Planner *p, const PlanLayout *layout);
StepBound rough_bound(Planner *p, const PlanLayout *layout);
StepBound micro_bound(Planner *p, const PlanLayout *layout);
const char *micro_refusal(Planner *p, const PlanLayout *layout); /* why not */

/* And zero: by arithmetic, of seconds alone; by what its program does, and all memory. */
BlockBound traffic_bound(Planner *p, const PlanLayout *layout);
BlockBound zero_bound(Planner *p, const PlanLayout *layout);

/* And the schedule: by what ranks wait at least; by what each of them does; as simulated; with what zero does in it. */
enum { BY_WAITS, BY_RANKS, SIMULATED, WITH_ZERO };
BlockBound schedule_bound(Planner *p, const PlanLayout *layout, int closeness);
int closest_bound(const Planner *p, const PlanLayout *layout); /* from here on they say the same */

/* The largest of all these bounds: of a layout that is compiled, to be held against it. */
BlockBound most_of_bounds(Planner *p, const PlanLayout *layout);

/* Which program a block is read from, see block.h. */
typedef struct {
    bool with_zero;  /* else without zero, and for any number of data-parallel ranks */
    bool is_summed;  /* of several micro-batches */
    bool in_actions; /* of two stages; their schedule divides backward actions, if the layout's does */
    int turns;       /* of a ring, fewer than it has ranks; 0: as many */
    bool is_rough;   /* of any number of sequences and of data-parallel ranks: see rough_bound() */
    bool is_silent;  /* its messages take no time: for bounds by computation alone */
} BlockOf;

typedef struct {
    PlanLayout layout;
    BlockOf of;
} BlockAsk;

/* The blocks that a bound of a layout asks for: split_bound(); rough_bound(); micro_bound(); zero_bound();
 * schedule_bound(). */
enum { MOST_ASKED = 4 };
int asked_by_split(Planner *p, const PlanLayout *layout, BlockAsk ask[MOST_ASKED]);
int asked_by_rough(Planner *p, const PlanLayout *layout, BlockAsk ask[MOST_ASKED]);
int asked_by_micro(Planner *p, const PlanLayout *layout, BlockAsk ask[MOST_ASKED]);
int asked_by_zero(const Planner *p, const PlanLayout *layout, BlockAsk ask[MOST_ASKED]);
int asked_by_schedule(const Planner *p, const PlanLayout *layout, int closeness, BlockAsk ask[MOST_ASKED]);

/* tasks.c: blocks that are asked for, whose programs several processes look for at once. */
typedef struct {
    BlockAsk *ask;
    int asked, room;
    int programs;            /* that are not known yet */
    struct PlanProgram *key; /* theirs */
} BlockAsks;

bool is_program_known(const Planner *p, const BlockAsk *ask); /* else it takes long */
void add_asks(const Planner *p, BlockAsks *asks, const BlockAsk *ask, int count);
bool are_enough(const BlockAsks *asks);          /* of programs: more of them may turn out not to be needed */
void find_programs(Planner *p, BlockAsks *asks); /* and frees what was asked */
void end_tasks(Planner *p);                      /* the processes that have helped, too */

/* --- search.c -------------------------------------------------------------------------------------- */

/* Layouts that cannot be compiled for reasons that differ in numbers alone. */
typedef struct Refusal {
    const char *why;
    PlanLayout first; /* or the first of a set of layouts, with what they have in common */
    double count;
    struct Refusal *next;
} Refusal;

typedef struct {
    PlanResult *best; /* the fastest one of each mesh, fastest first */
    int count;
    Tally tally;
    Refusal *refusals;
    const PlanResult *too_large; /* the fastest that was compiled and does not fit; NULL: none */
    double least;                /* bytes that each needs which does not fit, at least */
    double least_offloaded;      /* likewise, of layouts that offload; 0: they have not been asked for */
    double gap; /* how much less time than the first one of these that are open may take, as a share; 0: none does */
    double overrun;        /* how much faster than its bound a compiled layout was, at most; 0: none was */
    double overrun_memory; /* how much less memory than its bound it needs; with --exhaustive */
    int ncompiled, compiled_room;
    const PlanResult **compiled; /* all of them */
    int refined;                 /* layouts that refine_answer() has compiled */
} Answer;

Answer search_layouts(Planner *p, int top);
void sort_answer(Answer *answer);               /* the fastest first */
void refine_answer(Planner *p, Answer *answer); /* refine.c */

void note_refusal(Planner *p, Answer *answer, const PlanLayout *layout, double count, const char *why); /* refusal.c */

/* --- plan_table.c, plan_json.c ----------------------------------------------------------------------- */

typedef enum {
    COLUMN_LAYOUT,
    COLUMN_MICRO_BATCH,
    COLUMN_ZERO,
    COLUMN_SCHEDULE,
    COLUMN_ATTEND,
    COLUMN_PIECES,
    COLUMN_ABREAST,
    COLUMN_RECOMPUTE,
    COLUMN_SECONDS,
    COLUMN_MEMORY,
    COLUMN_MFU,
    PLAN_COLUMNS
} PlanColumn;
typedef struct {
    const char *text[PLAN_COLUMNS]; /* "-": nothing is said */
} PlanCells;
extern const char *const plan_title[PLAN_COLUMNS];

PlanCells plan_cells(const Planner *p, const PlanResult *r);

/* Of those that are listed; behind them of the one that does not fit, if it is faster than all. */
PlanCells *plan_rows(const Planner *p, const Answer *answer, int *count);

const char *limits_text(const Planner *p, const PlanResult *r);           /* "tp 7 %, idle 1 %" */
bool is_tie(const Planner *p, const Answer *answer, const PlanResult *r); /* by the error of the machine file */
const char *plan_question(const Planner *p);                              /* "64 ranks of h100 (...), ..." */
const char *plan_without(const Planner *p);                     /* what it was before, if nothing has fit; else NULL */
const char *plan_error(const Planner *p, const Answer *answer); /* what is exact, and what is not */
const char *plan_proof(const Planner *p, const Answer *answer);
const char *plan_refined(const Planner *p, const Answer *answer); /* with --refine */
const char *plan_space(const Planner *p, const Answer *answer);   /* lines: what became of all layouts */
void print_plan(const Planner *p, const Answer *answer);

/* all: with --elastic, what all ranks would do; else NULL. */
void print_plan_json(const Planner *p, const Answer *answer, const PlanResult *all);

/* --- plan_page.c, plan_chart.c ------------------------------------------------------------------------- */

/* What a step's time goes to, as a page shows it. */
enum { PLAN_PARTS = ITEM_MESSAGE + 2 };
extern const char *const plan_part[PLAN_PARTS];
double part_seconds(const PlanResult *r, int part);
bool is_part(const PlanResult *r, int part); /* that a page shows: not next to nothing */

void write_lines(const char *text, FILE *out); /* escaped, but for their ends */
void write_plan_chart(const Planner *p, const Answer *answer, FILE *out);
void write_plan_page(const Planner *p, const Answer *answer, FILE *out);

/* The model with the options that it was planned with, but what a layout has of micro-batches: for commands. */
const char *planned_model(const Planner *p);

#endif
