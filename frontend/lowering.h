/* lowering.h -- internals of lowering a tree to IR.
 *
 *   scope.c      symbols, scopes;  names.c  near-miss names;  messages.c  errors;  record.c  effective settings
 *   constants.c  exact compile-time numbers;  dims.c  dims by name, declared types;  slots.c  dims of slots
 *   declare.c    declarations of dims and constants;  shrink.c  their sizes for verification
 *   settings.c   train { };  said.c  its values;  choices.c  its calls;  layout.c, words.c, policies.c  parallel { }
 *   optimizers.c optimizers and the parameters of each;  updates.c  an optimizer as IR;  matrices.c  its matrices
 *   frame.c      functions, parameters of loop bodies;  emit.c  ops with source locations;  operands.c  their operands
 *   compose.c    softmax, layernorm, cross_entropy ... from primitive ops
 *   arguments.c  calls of the built-in functions;  functions.c  their table, from builtins.def;  what they do:
 *                builtins.c, attend.c, library.c, shapes.c, conv.c, random.c, concat.c, solve.c, means.c, experts.c
 *   made_dims.c  dims that top_k and ranges declare
 *   indices.c    bounds checks of indices;  router.c  the dim by which a router knows its experts
 *   expr.c       expressions;  blocks.c  statements, params;  locals.c  names of values;  calls.c  blocks;
 *                instances.c  instances with a name;
 *   mean.c       those that are means of others
 *   repeat.c     loops, with carried.c and recurrence.c;  numbered.c  which copies of a repeat with numbers are alike
 *   state.c      state that is no parameter;  load.c  counts of what experts get;  sequences.c  sums over sequences
 *   facts.c      types of names and expressions, for editors
 *   model.c      inputs, the loss, the variants of the model;  check.c  the question of sequences;  lower.c  all of it
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

/* The model is lowered several times: once for each function of the module. */
typedef enum {
    AS_MODEL,  /* training: reports errors, creates the module's params and inputs */
    AS_TOTALS, /* the data-dependent divisors of AS_MODEL */
    AS_EVAL,
    AS_PREDICT,
    AS_CHECK /* is the loss a sum over sequences?  See sequences.h */
} Variant;

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
    Yielded *yielded;         /* of a scan, in order */
    Values inputs, totals;    /* of the model */
    Values carried;           /* of a body */
    Values params, stacks;    /* parameters here; of a body, their stacks outside */
    Value *observed;          /* the statistics of updates so far, as terms of the loss; NULL: none */
    Values captured, sources; /* of a body: outer values that it reads, here and outside */
    Map names;                /* of all these and of the results of ops: name -> anything */
    Value *key;               /* of dropout; NULL until needed; of a run, that of the copy in lowering, and of all: */
    Values keys;
    int *numbers;  /* ... of these copies */
    Value *round;  /* of a repeat: the number of the copy; NULL until needed */
    Value *origin; /* of the model; NULL until needed */
};

/* Copies first, first + 1, ... of a repeat that numbers them, which have `bodies` of their own, and in later turns the
 * same ones again. */
struct Runs {
    int first, bodies, turns;
    Runs *next;
};

/* What a scan has at each place, and what that is outside: stacked along the dim. */
struct Yielded {
    const char *name;
    Loc loc;
    Value *value; /* inside; NULL after an error */
    struct Yielded *next;
};

/* A cross_entropy, from which a `mean` of it finds its divisor. */
typedef struct Labelled {
    const Value *entropy;
    Value *labels; /* NULL: from a repeat that computes the labels itself, or has others in other copies */
    Body *frame;   /* where they are */
    double ignore;
    bool is_entropy; /* no matter what labels it has */
    bool is_plain;   /* a carried value that is none, so far as the first copy knows, or one without labels to ignore */
    bool is_averaged;      /* a mean of it was taken */
    struct Labelled *from; /* the same, outside of a repeat */
} Labelled;

/* Names of the instances in a scope or in a `repeat`. */
typedef struct Instance {
    const char *name;
    Loc loc;
    bool has_params;
    struct Instance *next;
} Instance;

/* Valid names for `pipeline`: an instance inside a repeat, or the const that is its number of copies. */
typedef struct Repeated {
    const char *name;
    Name dim;   /* that counts the copies */
    Name whole; /* of a run: the dim of the repeat's first one; else `dim` */
    int64_t copies;
    struct Repeated *next;
} Repeated;

/* A dim that is scanned: each rank goes through all of it. */
typedef struct Scanned {
    Name dim;
    Loc loc;
    struct Scanned *next;
} Scanned;

/* A queue whose choices are counted. */
typedef struct Counted {
    const Value *chosen;
    Name slots;
    struct Counted *next;
} Counted;

/* The place of a sum over the batch that an update reads. */
typedef struct Statistic {
    Loc at;
    struct Statistic *next;
} Statistic;

/* A tensor with an update, and where that is. */
typedef struct Ruled {
    Loc at;
    Name of;
    struct Ruled *next;
} Ruled;

/* An error that was reported: the blocks of a model are lowered once for each instance. */
typedef struct Reported {
    Loc at;
    const char *message;
    struct Reported *next;
} Reported;

/* A value and its origin: in the file, or text on the command line. */
typedef struct {
    const Ast *value;          /* NULL: not given */
    const char *option, *text; /* NULL: in the file */
    Loc at;
} Said;

/* A dim of a parameter that a product contracts, or that both of its operands keep. */
typedef struct Contracted {
    Name dim;
    int at; /* of a parameter: which of its dims, for names may change (router.c); -1: it has none like it */
    bool kept;
    bool is_table; /* the parameter is a table of positions */
    struct Contracted *next;
} Contracted;

/* The dims of a parameter as a matrix; in: none if it is no matrix.  Each may occur TWINS times more, as in' and in''.
 */
enum { TWINS = 2 };
typedef struct {
    const Type *type; /* of the parameter */
    Names in, out;
    bool refused; /* by orthogonal() */
} Matrix;

/* Names of parameters in a setting, with * for any text. */
typedef struct Pattern {
    const char *text;
    struct Pattern *next;
} Pattern;

/* An optimizer with its arguments, for the parameters that match. */
typedef struct Group {
    const Ast *ast;          /* the A_GROUP; NULL: all parameters that are in no group */
    const Pattern *patterns; /* once the parameters are known */
    const Ast *declared;     /* the A_OPTIMIZER; NULL after an error */
    Source *text;            /* that of `declared`, if mpc has it; NULL: the file */
    Constant *argument;      /* in the order of `declared` */
    bool sets_decay;         /* states weight_decay, for all of its parameters */
    struct Group *next;
} Group;

typedef struct {
    const Ast *block, *call;
} Call;

struct Lower {
    Module *m;
    Arena *arena; /* the module's */
    const Ast *file;
    const Source *source;
    const struct Elsewhere *elsewhere; /* else NULL: see go_elsewhere() */
    Lines lines;                       /* of the last used source */
    const LowerOptions *options;
    const struct Builtin *functions; /* of the language */
    Diags *diags;
    Settings *settings;
    bool incomplete; /* lines with syntax errors are missing: seemingly unused names may be used there */

    Scope globals;
    Symbol *batch; /* the dim without a size, or NULL */
    Ast *choices;  /* declarations of the dims that calls make: `2 -> choice` */
    const Ast *model;
    Variant variant;
    int64_t batch_size; /* of the batch dim in this variant */
    struct Layout *layout;
    int64_t data_ranks;     /* number of ranks among which a micro-step's sequences are divided */
    int64_t declared_ranks; /* the same, before the mesh was shrunk for verification */
    int64_t shrunk_copies;  /* for verification: copies that a repeat has at most */

    Said freeze, trained; /* settings of train, read when the parameters are known */
    Group *groups;        /* the first is for all other parameters */
    Map contracted;       /* of the path of a parameter: Contracted */
    Matrix *matrix;       /* in an optimizer: of the parameter; else NULL */

    Body *frame;
    Scope *scope;
    Builder b;            /* position and source location of the next op */
    Name path, stars;     /* of the instance: "h.attn", "h.*.attn"; NULL in the model itself */
    const Use *use;       /* NULL: all instances around are of one call */
    Map uses;             /* of the path of a parameter in one of several: what its first use has declared */
    Instance **instances; /* of the scope */
    Call calls[64];       /* blocks in lowering, outermost first */
    int ncalls;
    int depth;        /* of expressions */
    bool in_constant; /* in an expression of constants, where `none` is no limit: infinity */
    int instance_count, dropout_count, total_count;
    bool too_many; /* instances: reported once */
    bool observes; /* the file has updates of state, or queues: repeats carry their statistics */
    Param *last_param;
    int64_t tensors; /* of all parameters: each copy of a repeat counts */

    Map labelled;          /* a value -> Labelled: the last that was noted of it */
    Statistic *statistics; /* of AS_MODEL */
    Ruled *ruled;          /* of AS_MODEL */
    Counted *counted;      /* of AS_MODEL */
    Repeated *repeated;
    Scanned *scanned;
    Map copy_dims; /* a dim that counts the copies of a repeat -> Loc, of the repeat, which is lowered several times */
    Map copy_names, copy_numbers; /* "h at 120", where a repeat is -> that dim; an instance -> how many have its name */
    Values counts;                /* AS_TOTALS: the results */
    Value *logits;                /* of the loss's cross_entropy, if its labels are the next tokens */
    bool is_evaluated_otherwise;  /* training(a, b) may make the two differ */
    struct SequenceCheck *check;  /* of AS_CHECK, and after it */
    Reported *reported;
    int nreported;
};

/* --- Errors ---------------------------------------------------------------------------------- */

/* Reports once for each place and message.  Silent in the variants after the first. */
void complain(Lower *l, Where where, const char *format, ...) __attribute__((format(printf, 3, 4)));
const char *position_text(Lower *l, Loc loc);       /* "20:11" */
Name where_text(Lower *l, Loc loc);                 /* "gpt2.mdl:20:11" */
const char *dims_text(Lower *l, const Type *type);  /* "[batch, seq]", "a number" */
const char *type_words(Lower *l, const Type *type); /* with the dtype, if it is not a float */

/* The same for the command line: "-D layer=3". */
void fail_command(Lower *l, const char *said, const char *help, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Between these two, messages are about `text` and not about the file. */
typedef struct Elsewhere {
    Diags diags, *outer;
    Source text;
    const Source *file;
    const struct Elsewhere *around;
} Elsewhere;
void go_elsewhere(Lower *l, Elsewhere *elsewhere, const char *what, const char *text);
void come_back(Lower *l, Elsewhere *elsewhere);

/* --- Declarations, dims, types ----------------------------------------------------------------- */

void declare_all(Lower *l);
void declare_dim(Lower *l, const Ast *ast);
void shrink_sizes(Lower *l);           /* for verification, if they are large */
void try_sizes(Lower *l, Symbol *dim); /* fills in dim->trial */
bool find_dim_named(Lower *l, const char *name, Loc loc, Dim *dim);
bool type_of_ast(Lower *l, const Ast *ast, Type *type); /* of an A_TYPE; `...` is the caller's */

void declare_made_dims(Lower *l); /* those that top_k and ranges declare: made_dims.c */
bool find_made_dim(Lower *l, const Ast *made, Constant size, Dim *dim); /* named by a range or choice of that size */
bool find_choice_dim(Lower *l, const Ast *choice, Constant size, Dim *dim); /* `2 -> k`, with this number */
bool is_local(const Lower *l, const Ast *expr);  /* does it name what no declaration of the file does? */
void excuse_made_dim(Lower *l, const Ast *made); /* what makes it is wrong: what names it is not */

bool varies(const Lower *l, Name dim);             /* does its size depend on the micro-batch? */
bool is_constant_size(Lower *l, Name dim, Loc at); /* that of a dim which is split or merged; else reports */

/* --- Settings ---------------------------------------------------------------------------------- */

void read_settings(Lower *l);                 /* before the model is lowered */
void read_layout(Lower *l);                   /* before the settings, which count its ranks */
void settle_overlap(Lower *l);                /* of messages of zero, if the file does not say it: after the settings */
void check_layout(Lower *l);                  /* after the model */
void name_repeats(Lower *l);                  /* those that `pipeline` can divide */
void name_routers(Module *m);                 /* after all functions, see router.c */
void cut_pipeline(Lower *l);                  /* after all functions: what a pipeline's repeats and chunks need */
const char *quoted(Lower *l, const Ast *ast); /* "'adam'", or "this" */
void add_setting(Lower *l, const char *name, const char *value, const char *unit, const char *from);

/* A word from the command line or else from the file; NULL after reporting. */
const char *read_word(Lower *l, const char *what, const char *const words[], const Ast *ast, const char *option,
                      const char *said);

/* --- Optimizers -------------------------------------------------------------------------------- */

void add_group(Lower *l, const Ast *ast);
void read_optimizers(Lower *l, const Said *said, const char *otherwise);
void match_groups(Lower *l); /* when the parameters are known */
Group *group_for(const Lower *l, const Param *param);
int argument_at(const Ast *optimizer, const char *name); /* -1 */
double rate_argument(const Group *group);                /* its lr */
void lower_updates(Lower *l);                            /* after all functions */
bool counts_matrices(const Lower *l, Name dim);          /* in an optimizer: copies of a repeat, or experts? */
Matrix matrix_of(const Lower *l, const Param *param);
Names again(Lower *l, const Names *dims, int times);          /* in' (1) or in'' (2) of in */
Dim dim_of_matrix(Lower *l, const Matrix *matrix, Name name); /* also of such a name */
const Names *dims_named(const Lower *l, const char *name); /* of in, out', ...; NULL: that is no name of several dims */
bool has_square(const Matrix *matrix, int rank);           /* can orthogonal() multiply such a parameter by itself? */

/* --- Expressions ------------------------------------------------------------------------------- */

Operand lower_expr(Lower *l, const Ast *ast);
Value *lower_tensor(Lower *l, const Ast *ast);                       /* numbers become scalars; NULL after an error */
bool constant_of(Lower *l, const Ast *ast, Constant *number);        /* false after reporting */
bool is_constant(const Lower *l, const Ast *ast);                    /* would it be one?  Builds nothing */
bool is_finite(Lower *l, Constant number, Loc at, const char *what); /* in f32; else reports that `what` must be */
bool integer_of(Lower *l, const Ast *ast, const char *what, int64_t least, int64_t most, int64_t *number);
Operand tensor_operand(Value *value);                       /* WRONG if NULL */
Value *value_of(Lower *l, Operand operand, DType dtype);    /* a number as a scalar of that dtype */
Operand scalar_of(Lower *l, Operand operand, DType stated); /* the same; of i32 or bool where that is stated and fits */
void look_at_arguments(Lower *l, const Ast *list); /* of a call with an error: marks names as used, reports errors */
void set_place(Lower *l, Loc loc);                 /* of the ops that follow */

/* Broadcast by name: one operand has all the dims, unless all are i32 or bool. */
bool dims_fit(Lower *l, Loc at, const char *verb, int n, const Ast *const asts[], Value *const values[]);
/* Brings two operands of arithmetic to one dtype. */
bool unify(Lower *l, Loc at, const char *verb, const Ast *const asts[2], const Operand operands[2], Value *values[2]);
Operand combine(Lower *l, OpKind kind, Loc at, const char *verb, const Ast *const asts[2], const Operand operands[2]);

bool is_new(Lower *l, const Value *x, Name dim, Loc at); /* reports a dim that x has already */
/* A dim of x; reports an error if x lacks it. */
bool need_dim(Lower *l, const Value *x, const Ast *at, const char *name, Loc loc, Name *dim);

bool is_function(const Lower *l, const char *name); /* of the language */
Operand call_function(Lower *l, const Ast *call);
Operand choose(Lower *l, const Ast *call);                     /* if(c, a, b) */
bool has_no_positions(Lower *l, Name dim, Loc at);             /* reports a dim of which none may be named */
Operand call_block(Lower *l, const Ast *call, Symbol *called); /* the only value that it returns */
/* The values of an expression, of which a block returns several, and top_k has two; none after an error. */
typedef struct {
    int count;
    Operand *at;
} Results;
Results results_of(Lower *l, const Ast *ast);
bool declares_records(const Lower *l); /* is_fed_records of the whole model, of which all inputs may not be known yet */
Input *fed_as(Lower *l, Value *value); /* the input of which it is a view; NULL: none */
/* The file names an element that the dim does not have: if it has been shrunk, it keeps its size the next time. */
void note_element(Lower *l, const Dim *dim);
/* Notes that inputs used as an index of a dim are below its size; false after reporting a number that is not. */
bool index_fits(Lower *l, Value *index, const Dim *dim, const Constant *ignored, Loc at);

/* --- Statements -------------------------------------------------------------------------------- */

Name join_path(Lower *l, Name path, const char *name);
void declare_state(Lower *l, Symbol *symbol);
void lower_update(Lower *l, const Ast *ast);
/* Adds a term to the loss that is zero, and whose gradient by the state is the statistic.  still: the state, constant.
 */
void observe(Lower *l, Value *state, Value *still, Value *statistic);
bool has_updates(const Lower *l, const Ast *body); /* also in the blocks that it calls */
void lower_repeat(Lower *l, const Ast *ast);       /* or a scan */
void name_result(Lower *l, const char *name, Loc loc, Operand operand);
void lower_statement(Lower *l, const Ast *ast); /* one of these */
void check_used(Lower *l, const Scope *scope);  /* at its end */
void note_unlowered(Lower *l, const Ast *list); /* not lowered here: its names are used all the same */
Func *lower_model(Lower *l, Variant variant);
void decide_decay(Lower *l);  /* once the model is lowered */
void freeze_params(Lower *l); /* the same */
bool matches_any(const Pattern *pattern, const Param *param);
const Pattern *list_patterns(Lower *l, const Ast *list);  /* of text with commas; reports those that match nothing */
Value *reorder(Lower *l, Value *value, const Type *like); /* to the order of the dims of like */
Name free_function_name(Lower *l, Name name);

bool too_large(Lower *l, const Type *type, Loc at);     /* reports a tensor too large for any machine */
bool too_many_dims(Lower *l, const Type *type, Loc at); /* reports one with no dims left for copies */

/* --- recurrence.c: what a scan has that a repeat has not ------------------------------------------------ */

bool begin_scan(Lower *l, const Ast *ast, Body *body); /* reads the head; false after an error */
bool leave_yielded(Lower *l, Body *body);              /* they become results of the body; false after an error */
Value *stack_first(Lower *l, Body *body, Value *x);    /* an operand of the loop, in the order that it slices */
void declare_yielded(Lower *l, const Body *body, const Op *loop); /* NULL: there are errors */
void note_scanned(Lower *l, Name dim, Loc at);                    /* for the check of the layout */
Body *scan_along(const Lower *l, Name dim); /* the body of the scan along that dim around this; NULL: there is none */
bool is_in_scan(const Lower *l);

/* --- facts.c: without options->facts none of these does anything ------------------------------------ */

void note_operand(Lower *l, Loc at, Operand operand);
void note_type(Lower *l, Loc at, const Type *type);
void note_value(Lower *l, const char *name, Loc at, Operand operand);    /* that the name is given to */
void note_param(Lower *l, Loc at, const Param *param, const Type *type); /* type: of one copy */
void finish_facts(Lower *l);                                             /* while there is a module */

/* --- Building -------------------------------------------------------------------------------- */

/* The op at l->b.  NULL if an operand is, or after reporting. */
Value *emit(Lower *l, OpKind kind, Attrs attrs, int nargs, Value *const args[]);
#define EMIT(l, kind, attrs, ...)                                                                                      \
    emit((l), (kind), (attrs), (int)(sizeof((Value *[]){ __VA_ARGS__ }) / sizeof(Value *)), (Value *[]){ __VA_ARGS__ })
Op *emit_op(Lower *l, OpKind kind, Attrs attrs, int nargs, Value *const args[]); /* of several results */
Value *emit_number(Lower *l, double value, DType dtype);
Value *emit_iota(Lower *l, Dim dim);
Value *emit_cast(Lower *l, Value *x, DType dtype);
Value *emit_in_order(Lower *l, Value *x, Names order); /* all dims of x; x itself if they are in that order */
Value *emit_f32(Lower *l, Value *x);                   /* f32 for every train.precision */
void name_value(Lower *l, Value *value, Name path);    /* if the name is free in the function */
Value *import_value(Lower *l, Body *frame, Value *value, Body *defined_in);
/* What a captured value is where it is computed: there, `frame` is.  Without `scans`, at most where it has no dim more.
 */
Value *outside_bodies(Body **frame, Value *value, bool scans);
Value *import_param(Lower *l, const Use *use, Body *frame, Name name, Type type, Port port); /* use: those around */
Value *dropout_key(Lower *l, Body *frame);
Value *dropout_origin(Lower *l);
void finish_frame(Lower *l, Body *frame); /* orders the parameters of a function */
void push_all(Lower *l, Values *to, const Values *from);
void remove_dead_ops(Func *f, Map *read); /* adds remaining ops and their operands to `read` */
void push_named(Lower *l, Body *frame, Values *values, Value *value); /* to one of the frame's lists */
Value *new_port(Lower *l, Name name, Type type, Port port);           /* a parameter of the model */
Value *new_value(Lower *l, Name name, Type type);

/* --- shapes.c ------------------------------------------------------------------------------------- */

Value *split_dim(Lower *l, Value *x, Dim whole, Dims parts); /* of sizes that fit */

/* --- labels.c: the divisor of a mean of cross_entropy ------------------------------------------------ */

Labelled *note_labels(Lower *l, Labelled labelled);
Labelled *find_labelled(const Lower *l, const Value *value); /* NULL: it is no cross_entropy */
void note_import(Lower *l, const Value *outside, const Value *inside);

/* Of what a scan yields: its labels at all places, if all of them come from outside. */
void stack_labels(Lower *l, const Body *body, const Value *inside, const Value *stacked);

/* Of a value that a repeat carries: before the body, after it (false after an error), and after the repeat. */
Labelled *enter_labels(Lower *l, const Value *before, const Value *inside);
bool leave_labels(Lower *l, Labelled *entered, const Value *after, const char *name, Loc at);
void keep_labels(Lower *l, const Body *body, const Value *inside, const Value *handed_on);

#endif
