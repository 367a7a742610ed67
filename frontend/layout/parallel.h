/* parallel.h -- `parallel { }`: shared by layout.c (mesh, shard), words.c, policies.c (zero, recompute), pipeline.c and
 * pipeline_names.c. */
#ifndef MPC_PARALLEL_H
#define MPC_PARALLEL_H

#include "elaborate/lowering.h"
#include "schedule/schedule.h"
#include "words.h"

enum { MOST_RANKS = INT32_MAX };

/* An axis of the mesh; in the module it is `count` axes from `first` on: none if it has one rank, two if a pair of dims
 * shares it. */
typedef struct {
    const char *name;
    int64_t size, declared; /* declared: before the mesh was shrunk for verification */
    Loc loc;
    bool used, on_command_line;
    bool of_batch; /* --mesh dp=N, where the file has no axis dp: data parallelism */
    int first, count;
    bool only_second; /* of a pair of dims: the first one cannot be split */
} MeshAxis;

/* The copies of each stage, in the order of the model; none: as their work suggests. */
typedef struct {
    int64_t *part, sum;
    int count;
} Parts;

typedef struct {
    ShardRule *rule[MAX_REPEATS]; /* of the dim that counts the copies of each repeat; NULL: no stages */
    int repeats;
    int64_t repeat_copies[MAX_REPEATS], copies; /* of each, and of all */
    int chunks;                                 /* stages of each rank */
    Placement placement;
    Parts parts;
} Pipeline;

/* The repeats that `pipeline` names. */
typedef struct {
    const RepeatName *at[MAX_REPEATS];
    int count;
    int64_t copies;   /* of all */
    const char *text; /* "h, g" */
} Repeats;

struct Layout {
    Lower *l;
    const Ast *parallel; /* NULL: the file has none */
    MeshAxis axis[MAX_AXES];
    int naxes;
    Pipeline pipeline;
    bool is_model_wrong; /* tensors are missing: unknown dims are not reported */
};

static inline bool has_schedule(const Layout *p) { return p->pipeline.repeats > 0; } /* do micro-batches follow one? */

void read_layout(Lower *l);           /* before the settings, which count its ranks */
void settle_overlap(Lower *l);        /* of messages of zero, if the file does not say it: after the settings */
void check_layout(Lower *l);          /* after the model */
void check_trained_offload(Lower *l); /* after freeze_params() */
void name_repeats(Lower *l);          /* those that `pipeline` can divide */
void name_routers(Module *m);         /* after all functions, see router.c */
void cut_pipeline(Lower *l);          /* after all functions: what a pipeline's repeats and chunks need */

MeshAxis *find_axis(Layout *p, const char *name);
/* What is meant by an axis that there is not.  `new`: what to write if it is none of those there. */
const char *axis_help(Layout *p, const char *name, const char *new);
MeshAxis *use_axis(Layout *p, const Ast *name);                             /* NULL after reporting an unknown axis */
const Ast *only_statement(Layout *p, AstKind kind);                         /* a second one is an error */
const char *override_text(Lower *l, const char *option, const char *value); /* "--mesh dp=2" */
const char *dims_to_split(Lower *l); /* suggest_split.c: "heads, ff", for a remedy; "D" if the weights have none */

/* The axes over which rules split a dim; `otherwise`: including `else`. */
Axes axes_over(const Module *m, Name dim, bool otherwise);

/* The dim of an item of `shard` for the number-th module axis of the mesh axis. */
const Ast *dim_for(const Ast *item, const MeshAxis *axis, int number);

void read_policies(Layout *p);                                     /* zero, recompute: before the model is lowered */
void read_offload(Layout *p);                                      /* likewise */
bool check_repeats(Layout *p, const Ast *names, Repeats *repeats); /* false after reporting */
/* The place in the model itself, and not inside another repeat, where the copies run; 0: there is none. */
int place_in_model(const Module *m, Name copies);
void check_offload(Layout *p);    /* after the pipeline */
void check_pipeline(Layout *p);   /* after the model is lowered: it names an instance */
int64_t shrunk_copies(Layout *p); /* of a repeat, for verification */

/* What a repeat of these needs of earlier ones but the one before, and what all its copies need of earlier ones, is
 * carried through the repeats between.  `dims` count their copies, in the order of the model. */
void carry_through(Module *m, const Name *dims, int count);

/* Splits the copies of a repeat over an axis: a rule as others are. */
ShardRule *split_layers(Module *m, Name copies, int axis, Name parts);

/* Cuts the repeat whose copies `dim` counts in `count` loops of so many copies each, and gives their dims. */
void cut_repeat(Module *m, Name dim, const int64_t *copies, int count, Name *dims);

#endif
