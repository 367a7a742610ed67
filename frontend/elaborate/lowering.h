/* lowering.h -- the state of a lowering, from the tree to IR; messages, dims by name, and what is recorded.  The
 * folders that share it are listed in docs/develop.md.
 *
 * After an error an expression is WRONG and its value NULL; both are compatible with everything, so that one mistake is
 * reported once.
 */
#ifndef MPC_LOWERING_H
#define MPC_LOWERING_H

#include "facts.h"
#include "lower.h"
#include "map.h"
#include "near.h"
#include "symbols.h"

/* --- The state of a lowering ----------------------------------------------------------------- */

/* A function in lowering: the model, or the body of a `repeat`, inside another function. */
struct Body {
    Func *func;
    Body *outer;
    const Scope *scope;       /* of a body: the scope that is repeated */
    Name prefix;              /* prefix of paths in it: "h"; NULL for the model and scans */
    Dim copy;                 /* of a body: the dim that counts its iterations */
    const Runs *run;          /* of a repeat that numbers its copies; else NULL */
    int number;               /* ... the copy in lowering, of the first turn */
    Name whole;               /* ... the dim of the first run; else that of `copy` */
    bool scans;               /* of a body: that of a scan, in which outer values have no such dim */
    bool reverse;             /* of a scan */
    Builder around;           /* of a scan: the end of the function that it is in */
    Yield *yielded;           /* of a scan, in order */
    Values inputs, totals;    /* of the model */
    Values carried;           /* of a body */
    Values params, stacks;    /* parameters here; of a body, their stacks outside */
    Value *observed;          /* the statistics of updates so far, as terms of the loss; NULL: none */
    Values captured, sources; /* of a body: outer values that it reads, here and outside */
    Map names;                /* of all these and of the results of ops: name -> anything */
    Value *key;               /* of dropout; NULL until needed; of a run, that of the copy in lowering, and of all: */
    Values keys;
    int *numbers;    /* ... of these copies */
    Value *round;    /* of a repeat: the number of the copy; NULL until needed */
    Value *origin;   /* of the model; NULL until needed */
    Value *position; /* of a prediction */
};

/* Copies first, first + 1, ... of a repeat that numbers them, which have `bodies` of their own, and in later turns the
 * same ones again. */
struct Runs {
    int first, bodies, turns;
    Runs *next;
};

/* What a scan has at each place, and what that is outside: stacked along the dim. */
struct Yield {
    const char *name;
    Loc loc;
    Value *value; /* inside; NULL after an error */
    struct Yield *next;
};

/* A cross_entropy, from which a `mean` of it finds its divisor. */
typedef struct Entropy {
    const Value *entropy;
    Value *labels; /* NULL: from a repeat that computes the labels itself, or has others in other copies */
    Body *frame;   /* where they are */
    double ignore;
    bool is_entropy; /* no matter what labels it has */
    bool is_plain;   /* a carried value that is none, so far as the first copy knows, or one without labels to ignore */
    bool is_averaged;     /* a mean of it was taken */
    struct Entropy *from; /* the same, outside of a repeat */
} Entropy;

/* Names of the instances in a scope or in a `repeat`. */
typedef struct Instance {
    const char *name;
    Loc loc;
    bool has_params;
    struct Instance *next;
} Instance;

/* Valid names for `pipeline`: an instance inside a repeat, or the const that is its number of copies. */
typedef struct RepeatName {
    const char *name;
    Name dim;   /* that counts the copies */
    Name whole; /* of a run: the dim of the repeat's first one; else `dim` */
    int64_t copies;
    struct RepeatName *next;
} RepeatName;

/* A dim that is scanned: each rank goes through all of it. */
typedef struct ScanDim {
    Name dim;
    Loc loc;
    struct ScanDim *next;
} ScanDim;

/* A queue whose choices are counted. */
typedef struct Queue {
    const Value *chosen;
    Name slots;
    struct Queue *next;
} Queue;

/* The place of a sum over the batch that an update reads. */
typedef struct Statistic {
    Loc at;
    struct Statistic *next;
} Statistic;

/* A tensor with an update, and where that is. */
typedef struct UpdateRule {
    Loc at;
    Name of;
    struct UpdateRule *next;
} UpdateRule;

/* An error that was reported: the blocks of a model are lowered once for each instance. */
typedef struct Complaint {
    Loc at;
    const char *message;
    struct Complaint *next;
} Complaint;

/* A value and its origin: in the file, or text on the command line. */
typedef struct {
    const Ast *value;          /* NULL: not given */
    const char *option, *text; /* NULL: in the file */
    Loc at;
} ValueOrigin;

/* The dims of a parameter as a matrix; in: none if it is no matrix.  Each may occur TWINS times more, as in' and in''.
 */
enum { TWINS = 2 };
typedef struct {
    const Type *type; /* of the parameter */
    Names in, out;
    bool refused; /* by orthogonal() */
} Matrix;

/* A value that mixes sequences: see program/sequences.c. */
typedef struct Mixing {
    const Value *value;
    Loc at;
    const char *help; /* NULL: none */
    bool by_itself;   /* whatever its operands are */
    struct Mixing *next;
} Mixing;

/* A value of each record that the trainer can write. */
typedef struct Output {
    const char *name;
    Loc at;
    Value *value;
    struct Output *next;
} Output;

typedef struct {
    const Ast *block, *call;
} Call;

/* Messages: those so far, and the text that they are about. */
typedef struct {
    Complaint *reported;
    int nreported, nunused;            /* nunused: by complain_unused() */
    const struct OtherText *elsewhere; /* else NULL: see enter_other_text() */
    Lines lines;                       /* of the last used source */
} Reports;

/* What the lowering MODEL notes for later steps. */
typedef struct {
    Statistic *statistics;
    UpdateRule *ruled;
    Queue *counted;
    RepeatName *repeated;
    ScanDim *scanned;
    Map dims; /* the names of those that values have before what only outputs need is removed */
} Notes;

/* The dims that count copies: each repeat is lowered several times, and has the same one each time. */
typedef struct {
    Map dims;    /* such a dim -> Loc of the repeat */
    Map names;   /* "h at 120", where a repeat is -> its dim */
    Map numbers; /* an instance -> how many dims have its name */
} CopyDims;

/* What begins anew in each function of the model. */
typedef struct {
    Call calls[64]; /* blocks in lowering, outermost first */
    int ncalls;
    int depth; /* of expressions */
    int instance_count, dropout_count, total_count;
    Map uses;        /* of the path of a parameter in one of several: what its first use has declared */
    Map labelled;    /* a value -> Entropy: the last that was noted of it */
    Values counts;   /* TOTALS: the results */
    Value *logits;   /* of the loss's cross_entropy, if its labels are the next tokens */
    Value *loss;     /* without the statistics of updates; NULL after an error */
    Output *outputs; /* in order */
    Map mixing;      /* what only a batch that is computed at once has -> Mixing */
    Values balances; /* results of balance() */
} InFunction;

struct Lower {
    Module *m;
    Arena *arena; /* the module's */
    const Ast *file;
    const Source *source;
    const LowerOptions *options;
    const struct Builtin *functions; /* of the language */
    Diags *diags;
    Settings *settings;
    Reports reports;
    bool incomplete; /* lines with syntax errors are missing: seemingly unused names may be used there */

    Scope globals;
    Symbol *batch; /* the dim without a size, or NULL */
    Ast *choices;  /* declarations of the dims that calls make: `2 -> choice` */
    const Ast *model;
    /* Of the function in lowering.  The model is lowered as MODEL, which reports errors and makes the params and inputs
     * of the module, then for its other roles. */
    FuncRole role;
    int64_t batch_size; /* of the batch dim in this function */
    struct Layout *layout;
    int64_t data_ranks;     /* number of ranks among which a micro-step's sequences are divided */
    int64_t declared_ranks; /* the same, before the mesh was shrunk for verification */
    int64_t shrunk_copies;  /* for verification: copies that a repeat has at most */

    struct Optimizing *optimizing; /* train/train.h */
    Matrix *matrix;                /* in an optimizer: of the parameter; else NULL */

    Body *frame;
    Scope *scope;
    Builder b;            /* position and source location of the next op */
    Name path, stars;     /* of the instance: "h.attn", "h.*.attn"; NULL in the model itself */
    const Use *use;       /* NULL: all instances around are of one call */
    Instance **instances; /* of the scope */
    bool in_constant;     /* in an expression of constants, where `none` is no limit: infinity */
    bool too_many;        /* instances: reported once */
    bool observes;        /* the file has updates of state, or queues: repeats carry their statistics */
    Param *last_param;
    int64_t tensors; /* of all parameters: each copy of a repeat counts */

    bool is_evaluated_otherwise; /* training(a, b) may make the two differ */
    InFunction now;
    Notes noted;
    CopyDims copies;
};

/* Of evaluation, sampling and outputs: what training alone does is left out. */
static inline bool evaluates(const Lower *l) { return l->role == EVAL || l->role == PREDICT || l->role == OUTPUTS; }

/* --- Errors ---------------------------------------------------------------------------------- */

/* Reports once for each place and message; returns false, for a check to return.  Silent in functions
   of the model after the first. */
bool complain(Lower *l, Where where, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same for a name that is not used.  Not after other errors: the faulty statement may be its use. */
void complain_unused(Lower *l, Where where, const char *message);
const char *position_text(Lower *l, Loc loc);       /* "20:11" */
Name where_text(Lower *l, Loc loc);                 /* "gpt2.mdl:20:11" */
const char *dims_text(Lower *l, const Type *type);  /* "[batch, seq]", "a number" */
const char *type_words(Lower *l, const Type *type); /* with the dtype, if it is not a float */

/* The same for the command line: "-D layer=3". */
void fail_command(Lower *l, const char *said, const char *help, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Between these two, messages are about `text` and not about the file. */
typedef struct OtherText {
    Diags diags, *outer;
    Source text;
    const Source *file;
    const struct OtherText *around;
} OtherText;
void enter_other_text(Lower *l, OtherText *elsewhere, const char *what, const char *text);
void leave_other_text(Lower *l, OtherText *elsewhere);
const char *quoted(Lower *l, const Ast *ast);        /* "'adam'", or "this" */
const char *unquoted_help(Lower *l, const Ast *ast); /* for a text where a word is needed; else NULL */

/* --- Dims and types by name -------------------------------------------------------------------- */

bool find_dim_named(Lower *l, const char *name, Loc loc, Dim *dim);
bool type_of_ast(Lower *l, const Ast *ast, Type *type); /* of an A_TYPE; `...` is the caller's */
bool varies_by_micro_batch(const Lower *l, Name dim);   /* does its size depend on the micro-batch? */
bool is_constant_size(Lower *l, Name dim, Loc at);      /* that of a dim which is split or merged; else reports */

bool find_made_dim(Lower *l, const Ast *made, Constant size, Dim *dim); /* named by a range or choice of that size */
bool find_choice_dim(Lower *l, const Ast *choice, Constant size, Dim *dim); /* `2 -> k`, with this number */
bool is_local(const Lower *l, const Ast *expr); /* does it name what no declaration of the file does? */
void excuse_dim(Lower *l, const Ast *made); /* its definition has an error; uses of the name are no further errors */

/* --- What is recorded ---------------------------------------------------------------------------- */

void add_setting(Lower *l, const char *name, const char *value, const char *unit, const char *from);
/* The file names an element that the dim does not have: if it has been shrunk, it keeps its size the next time. */
void note_element(Lower *l, const Dim *dim);

/* The value is right in a batch that is computed at once, but no sum over its sequences follows from it. */
void note_mixing(Lower *l, const Value *value, Where where);

/* Facts: without options->facts none of these does anything. */
void note_operand(Lower *l, Loc at, Operand operand);
void note_type(Lower *l, Loc at, const Type *type);
void note_value(Lower *l, const char *name, Loc at, Operand operand);    /* that the name is given to */
void note_param(Lower *l, Loc at, const Param *param, const Type *type); /* type: of one copy */
void finish_facts(Lower *l);                                             /* while there is a module */

#endif
