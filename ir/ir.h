/* ir.h -- the program between the frontend and the code generator.
 *
 * A module is a list of functions; a function is a list of ops in execution order; an op reads and defines values; a
 * value has a type, which describes completely how the tensor is held: dtype, dims, the mesh axes that split them,
 * pending sums.  Layers are not unrolled: `loop` calls one function once for each slice along a dim.
 */
#ifndef MPC_IR_H
#define MPC_IR_H

#include "arena.h"
#include "diag.h"

#include <stdbool.h>
#include <stdint.h>

enum { MAX_RANK = 8, MAX_AXES = 8, MAX_SPLIT = 4, MAX_NAMES = 8, MAX_CHUNKS = 16, MAX_REPEATS = 8, MAX_ZIGZAG = 64 };
enum { MAX_CONCAT = 8, MAX_ABREAST = 4 };
enum { MAX_SET_RANKS = 64 }; /* along an axis: sets of them have a bit for each */

/* Operands and results of a kernel together: a launch on a GPU takes 4 KiB of pointers, and more spill registers. */
enum { MAX_KERNEL_VALUES = 480 };

typedef const char *Name; /* interned: equal names are equal pointers */
typedef uint32_t Axes;    /* a set of mesh axes: bit i is axis i of the module */
typedef double Number;
typedef int64_t Int;
typedef bool Flag;
typedef Name Quoted; /* any text */
typedef int Zigzag;  /* see Dim; printed `true` if 2 */

typedef struct {
    int count;
    Name name[MAX_NAMES];
} Names;

/* The mesh axes that split a dim, outermost block first: a list, since [dp][tp] is not [tp][dp]. */
typedef struct {
    Name parts;   /* "3+9": elements of each rank; NULL: all have as many.  "-", at the ends: a loop does not pass it */
    int16_t turn; /* of one axis of n ranks: rank r has the block of rank (r + turn) mod n */
    int16_t dealt; /* over one axis of n ranks: blocks of each rank, r, n + r, 2n + r, ...; 0: one.  Those of all ranks
                      with one number are next to each other: a piece of the dim, sent while others are computed */
    bool reversed; /* with `parts`: the last rank has the first elements */
    int8_t count;
    int8_t axis[MAX_SPLIT];
} Split;

typedef enum { F32, BF16, F16, I32, BOOL, N_DTYPES } DType;
typedef enum { BY_SUM, BY_MAX } Reduce;

#define KIND(kind, unsaid) typedef enum { unsaid,
#define WORD(name, text) name,
#define END(kind)                                                                                                      \
    N_##kind                                                                                                           \
    }                                                                                                                  \
    kind;
#include "words.def"

/* The words of each kind, by number; NULL for the first, `unsaid`. */
#define KIND(kind, unsaid) extern const char *const kind##_words[];
#define WORD(name, text)
#define END(kind)
#include "words.def"
int find_word(const char *const words[], int count, const char *text); /* 0: not found */
#define WORD_OF(kind, text) ((kind)find_word(kind##_words, N_##kind, (text)))

/* A dim of `size` elements, of the whole tensor and not of one rank's part.  `padded`: its size in memory (a multiple
 * of M for `padded M`); padding never affects a result. */
typedef struct {
    Name name;
    int64_t size, padded; /* padded >= size */
    Split split;
    int zigzag; /* blocks of each rank, an even number: the outermost axis, of n ranks, makes n times as many, dealt
                   forth and back: rank r holds blocks r, 2n-1-r, 2n+r, ..., which balances causal attention; inner axes
                   split these.  0: one block each; at most MAX_ZIGZAG */
    bool full;  /* loops run over its padding, too, as over that of a split dim */
} Dim;

static inline bool runs_over_padding(const Dim *dim) { return dim->split.count || dim->full; }

typedef struct {
    int count;
    Dim dim[MAX_RANK];
} Dims;

/* The ranks that hold a value: those whose coordinate along `axis` has its bit in `at`.  No bit: all ranks. */
typedef struct {
    uint64_t at;
    int axis;
} RankSet;

typedef struct {
    DType dtype;
    int rank;
    Dim dim[MAX_RANK]; /* outermost first, row-major */
    Axes partial;      /* the tensor is the sum (or max) of the ranks' terms along these axes */
    Reduce by;
    RankSet on;     /* of the ranks along an axis these hold it; the operands of an op are on one set of ranks */
    Tier tier;      /* where its elements are: of others than the device only `move` reads them */
    bool in_flight; /* the result of a started collective or move: only `wait` may read it */
} Type;

typedef enum { KEEP, SUM, MAX, MIN, PICK, WHOLE } Role; /* the effect of an op on one dim of its space */
typedef enum { NEVER, EACH, FIRST, REST, ALL } Linear;  /* see ops.def */
typedef enum { LEAF, POINTWISE, PRODUCT, REDUCTION, VIEW, LIBRARY, COLLECTIVE, CONTROL } Family;

typedef enum {
#define OP(name, ...) OP_##name,
#include "ops.def"
    N_OPS
} OpKind;

typedef Name Dtype; /* as an attribute: "f32", ...; NULL if absent */

typedef struct {
#define ATTR(key, kind, ops) kind key;
#include "attrs.def"
} Attrs;

bool attrs_equal(const Attrs *a, const Attrs *b);

typedef struct Op Op;
typedef struct Func Func;

typedef enum {
    IN_FRAME,   /* the frame of the function */
    BY_POINTER, /* a pointer argument of a called function: a parameter or result */
    IN_TIER     /* behind the arena, see tier.h: at the same offset in all functions */
} Base;         /* of an address */

/* The address that the memory pass assigns to a value: `at` bytes from its base, and the stride of each dim in
 * elements.  A carried result with the pointer of its parameter is written in place. */
typedef struct {
    Base base;
    int pointer; /* BY_POINTER: its number */
    int64_t at;
    int64_t stride[MAX_RANK];
} Storage;

/* The purpose of a parameter or a result of a function: see ports.def. */
typedef enum {
    PORT_NONE,
#define PORT(name, word, traits) PORT_##name,
#include "ports.def"
    N_PORTS
} PortKind;

typedef struct {
    PortKind kind;
    Name of;   /* of a NAMED one: an input, a param, a value of the forward function, a total; else NULL */
    Name slot; /* of the optimizer's state: its name there, "m"; else NULL */
} Port;

typedef struct {
    int count, room;
    Port *at;
} Ports;

typedef struct {
    Name name; /* kept by all passes, so that dumps can be compared */
    Type type;
    Port port;        /* of a parameter */
    Op *def;          /* NULL for a parameter */
    Storage *storage; /* NULL before the memory pass */
} Value;

typedef struct {
    int count, room;
    Value **at;
} Values;

struct Op {
    OpKind kind;
    Attrs attrs; /* the same struct for all ops */
    Values args, results;
    Loc loc;    /* in the input text */
    Name path;  /* stable: "h.attn.q" */
    Name where; /* in the .mdl: "gpt2.mdl:24:9"; kept through every pass and dump */
    Op *prev, *next;
};

/* The purpose of a function.  At most one function has each role, except PLAIN, UPDATE, OPTIMIZE and KERNEL. */
typedef enum {
    PLAIN,
    MODEL,    /* (inputs, dropout's scalars, totals, params) -> loss; replaced by STEP in autodiff */
    OPTIMIZE, /* of parameters by the optimizer: (param, grad, lr, step, state) -> (param, new state); see step.c */
    TOTALS,   /* (inputs, ...) -> the divisors of `mean` that depend on the data */
    STEP,     /* a whole training step: (inputs, scalars, state) -> (loss, norm, new state, in the order of the old) */
    UPDATE,   /* (a tensor, others[, a state's statistic, as its gradient]) -> the tensor after the step */
    EVAL,     /* (inputs, totals, params) -> loss, counts of the totals; without dropout */
    PREDICT,  /* (tokens, params) -> logits of one sequence, without dropout */
    OUTPUTS,  /* (inputs, params) -> the outputs of a micro-batch that the model names, without dropout */
    FINISH,   /* (state) -> the state after the update that STEP has left for the next one: see defer.c */
    BEGIN,    /* (state) -> the state, with what STEP reads for the next one: see ahead.c */
    KERNEL,   /* a fused group: one kernel */
    N_ROLES
} FuncRole;

struct Func {
    Name name;
    FuncRole role;
    Loc loc; /* in the input text; none for lowered functions */
    Values params;
    Op *first, *last;
    Values results;
    Ports returns; /* the port of each result; beyond its count: PORT_NONE.  Residuals are last */
    Name forward;  /* of a backward function: its forward function; else NULL */
    Names inner;   /* KERNEL: the dims of its innermost loop, over which rows are reduced */
    int64_t frame; /* size in bytes, from the memory pass */
    Func *prev, *next;
};

typedef enum { ZEROS, ONES, NORMAL, UNIFORM, CONSTANT, N_INITS } InitKind;

/* A trainable tensor.  Functions have it as a parameter of the same name. */
typedef struct Param {
    Name name;     /* "h.attn.wq" */
    Name path;     /* "h.*.attn.wq": a star for each enclosing repeat, whose dims come first in the type */
    int64_t first; /* for the first star: the number of its first copy, and between its copies so many ... */
    int64_t skips; /* ... that are other parameters */
    Type type;     /* as the optimizer holds it */
    InitKind init;
    double a, b; /* of the init: mean and std, lo and hi, or the constant */
    bool decay;
    bool frozen; /* never updated: no gradient, no state of the optimizer */
    Name update; /* the function OPTIMIZE that the step applies to it; NULL: param - lr * grad */
    bool state;  /* not trained: the function with the role UPDATE that returns it computes it after each step */
    Name like;   /* not trained: a running mean of that parameter, as which it begins; NULL: none */
    bool most;   /* of a state: what its update reads of all micro-batches is the largest, not their sum */
    Name where;
    Loc loc; /* as of a Func */
    struct Param *next;
} Param;

/* Fed by the trainer.  `shift` k: the token k steps later. */
typedef struct Input {
    Name name;
    Type type;     /* of one micro-batch, which is the first dim: f32, i32 or bool */
    Name of;       /* the input whose data it gets: itself, or T of next(T) */
    int64_t shift; /* along the last dim */
    int64_t vocab; /* numbers of i32 must be below it; 0: no bound known */
    bool may_ignore;
    int64_t ignored; /* if may_ignore: a label that counts in no loss, and need not be below vocab */
    Loc loc;         /* as of a Func */
    struct Input *next;
} Input;

/* A dim of the compiler: split like another one, counts copies of a repeat, a run or a chunk, or is a second `of`. */
typedef enum { NOT_MADE, MADE_LIKE, MADE_COPIES, MADE_RUN, MADE_CHUNK, MADE_TWIN, N_MAKINGS } Making;
typedef struct MadeDim {
    Name name;
    Making making;
    Name of; /* a dim; of MADE_COPIES: the instance, "h" of "h.copy" */
    struct MadeDim *next;
} MadeDim;

/* One `shard d1, d2 over a else d3` of the layout: a tensor is split over the axis along d1 (if it has none, along d2,
 * ...), or, if it has none of these, along `otherwise`, if set. */
typedef struct ShardRule {
    Names dims;
    int axis;
    Name otherwise; /* NULL: none */
    int zigzag;     /* blocks of each rank, for the sequence dim of causal attention: see Dim */
    int dealt;      /* of `otherwise`: see Split */
    bool exchange;  /* an op that needs a dim like these whole is split along another one: attention by heads */
    bool ring;      /* its blocks of that dim pass by: see passes/layout/ring.c */
    Name parts;     /* "3+9": see Split */
    bool reversed;
    bool joined; /* of copies: they follow those of the rule before, on the same ranks */
    struct ShardRule *next;
} ShardRule;

/* With `recompute auto`: the values of a forward function that are saved for its backward, which recomputes all others
 * that it reads.  "%x" is a parameter, "h.attn.q.2" the second value from that place of the model. */
typedef struct SavedValues {
    Name func;
    Loc loc; /* as of a Func */
    int count, room;
    Name *value, *away; /* `away`: NULL, or it leaves the device: "", behind `recompute` its name in func */
    struct SavedValues *next;
} SavedValues;

/* Of Train.loss_chunks: as many as pay; several wherever that can be, for verification, which has no large logits. */
enum { LOSS_CHUNKS_AUTO = -1, LOSS_CHUNKS_SEVERAL = -2 };

/* The values of `train { }` and of the layout that later passes need. */
typedef struct {
#define TRAIN(key, kind) kind key;
#include "train.def"
} Train;

/* The layout that a target needs of one operand or result of an op, if it does not accept the present one. */
typedef struct {
    bool copied; /* it needs a copy, row-major, in the order of ... */
    Names order; /* ... these dims; none: its own */
    bool tight;  /* and without padding that loops do not run over */
    bool apart;  /* or no result in the memory of an operand: that may be enough */
} RequiredLayout;

typedef struct Module {
    Arena arena;
    Name name;
    Name source;           /* path of the .mdl */
    Name batch;            /* the dim of the micro-batch; NULL if the model has none */
    Name vocab;            /* NULL, or the dim of the loss's cross_entropy */
    Name mixes, auxiliary; /* where the loss of evaluation mixes sequences, and takes the balance of experts; or NULL */
    int naxes;
    Name axis[MAX_AXES + 1];         /* the last one: see frontend/program/sequences.c */
    int64_t axis_size[MAX_AXES + 1]; /* of the mesh each above 1: axes of one rank are omitted */
    MadeDim *made_dims, *last_made;
    struct Map *made; /* the same, by name; NULL: there are none */
    ShardRule *rules;
    Names repeats;  /* those of the model itself that `pipeline` can divide, in their order, by a name of each */
    int64_t copies; /* of all of these */
    Param *params;
    Input *inputs;
    Train train;
    Loc train_loc; /* as of a Func */
    SavedValues *saved;
    Func *funcs;
    struct NameTable *names; /* see intern() */
    struct Index *index;     /* see find_func(), find_param() */
    struct Map *parts;       /* of splits: see part_size() */
    struct Map *filled;      /* the ops that fill rows along dims: see filled_by() */
    int fresh;
    Type *inferred; /* buffer of infer_results */
    int inferred_room;
    Diags *diags;
    Loc pipeline_said;                 /* the section `pipeline` that has been read: see mir/pipeline_text.h */
    Source *table;                     /* the user's schedule, see schedule/table.c; NULL: none */
    struct Map *needed;                /* see note_ranks() in needed.h */
    int kind_axis;                     /* along which ranks are of several kinds: see split_loop.h; -1: all are alike */
    struct PipelineSchedule *schedule; /* certified last: see schedule_of_loop() */
    struct Kinds *kinds;               /* of ranks, of the placed program: see kinds/kinds.h */
    struct MicroSlots *slots;          /* of the loop with {stages}, once it is placed: see schedule/slots.h */
    const struct Target *target;       /* the device: see target.h */
} Module;

/* --- Ops: the table. ---------------------------------------------------------------------- */
typedef struct Builder {
    Module *module;
    Func *func;
    Op *before; /* new ops go before this one; NULL: at the end */
    Loc loc;
    Name path, where;
} Builder;

enum {
    COMMUTES = 1 << 0,
    COMPARES = 1 << 1,   /* gives bool */
    WEAK = 1 << 2,       /* a number: takes the dtype of the other operands */
    POSITIONAL = 1 << 3, /* reads the position of its elements: dropout, iota */
    CHOOSES = 1 << 4,    /* its first operand selects one of the others */
    NARROW = 1 << 5,     /* runs in the narrow dtype of train.precision */
    WIDENS = 1 << 6,     /* sums in f32 for all operand dtypes: {dtype=f32} returns the sum unrounded */
    CONTRACTS = 1 << 7,  /* operands are matrices: multiplied, or rows of them gathered */
    CASTS = 1 << 8,      /* the same numbers in another dtype */
    COPIES = 1 << 9,     /* each element is one of the operand's, as it is or cast */
    ONE_DTYPE = 1 << 10, /* its operands have one dtype */
    IS_RELU = 1 << 11,   /* activations that a product can apply to its result: see epilogue.h */
    IS_GELU_TANH = 1 << 12,
    ACTIVATES = IS_RELU | IS_GELU_TANH,
    SENDS = 1 << 13,     /* ranks exchange messages */
    IN_PLACE = 1 << 14,  /* may write its result over its operand */
    WAITS = 1 << 15,     /* reads a value in flight: its result is that of the started collective */
    WISHES = 1 << 16,    /* requests a layout, to be lowered to collectives: no target runs it */
    MOVES = 1 << 17,     /* its result is on the ranks that {on} names */
    SKIPS = 1 << 18,     /* an index of -1 selects nothing */
    IN_BLOCKS = 1 << 19, /* it can see its keys block by block, and its results be merged */
    FILLS = 1 << 20, /* its result has rows along the last of {dims}, filled from the first on; the rest are zeros */
    FOLDS = 1 << 21, /* a view of one dim as several, or of several as one */
    IS_GELU_TANH_SLOPE = 1 << 22, /* slopes of activations, by which a product can multiply its result */
    SLOPES = IS_GELU_TANH_SLOPE,
    COLLECTS = 1 << 23, /* rows that it picks can be weighted and summed as they are read: see collect */
    ROUNDS = 1 << 24,   /* to the numbers of a narrower dtype */
    CARRIES = 1 << 25,  /* from one tier of memory to another */
    GOES_ON = 1 << 26,  /* what it sums up is added to its third operand, if it has one: see sum_before */
    JOINS = 1 << 27,    /* its operands lie in its result, or are copied there: see lies_in_place() */
    IS_EXP = 1 << 28    /* of a difference it is a quotient, exp(a - b) = exp(a) / exp(b): see kernel/phases.c */
};

typedef struct {
    const char *name;
    int args, results; /* -1: any number */
    Family family;
    Role over;
    Linear linear;
    unsigned traits;
    int flops;
    const char *forward;     /* of a MAP, in C */
    const char *integers;    /* the same for integers; NULL: none */
    const char *gradient[3]; /* of a MAP */
} OpInfo;

extern const OpInfo op_table[N_OPS];

/* Gradients of the operands, from those of the results; NULL: there is none. */
extern void (*const vjp_table[N_OPS])(Builder *, const Op *, Value *const dy[], Value *dx[]);

static inline const OpInfo *info(const Op *op) { return &op_table[op->kind]; }
static inline Value *arg(const Op *op, int i) { return op->args.at[i]; }
static inline Value *result(const Op *op) { return op->results.at[0]; }
static inline Value *arg_or_result(const Op *op, int i) /* operands, then results */
{
    return i < op->args.count ? arg(op, i) : op->results.at[i - op->args.count];
}
static inline bool is_addition(const Op *op) { return info(op)->linear == ALL && info(op)->traits & COMMUTES; }
static inline Value *sum_before(const Op *op)
{
    return info(op)->traits & GOES_ON && op->args.count == 3 ? op->args.at[2] : NULL;
}
static inline bool is_any_number(const Value *value) { return value->def && info(value->def)->traits & WEAK; }
static inline bool is_number(const Value *value, double number)
{
    return is_any_number(value) && value->def->attrs.value == number;
}

/* Every dim of its operands once, in order of appearance.  False after reporting operands that do not fit. */
bool op_space(Module *m, const Op *op, Type *space);
double op_flops(Module *m, const Op *op); /* of the whole tensor; 0 for calls and loops */

/* Infers the types of all results of an op into results[], which has room for result_count(); false after reporting an
 * error.  infer_results: into a buffer of the module, valid until the next call; NULL after reporting. */
bool infer_op(Module *m, const Op *op, Type results[]);
Type *infer_results(Module *m, const Op *op);
int result_count(const Module *m, const Op *op); /* required; 0 for a call of an unknown function */

/* --- Types and names. ---------------------------------------------------------------------- */
Name intern(Module *m, const char *text, int length);
Name intern_text(Module *m, const char *text);
Name intern_format(Module *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
int find_dim(const Type *type, Name name);                         /* index, or -1 */
bool has_dim(const Module *m, Name dim);                           /* does any value have it? */
void add_made_dim(Module *m, Name name, Making making, Name of);   /* once: further declarations change nothing */
const MadeDim *made_dim(const Module *m, Name dim, Making making); /* NULL: it is not */
const MadeDim *copies_dim(const Module *m, Name dim); /* of the whole repeat whose copies it counts; NULL: of none */
void add_saved(Arena *arena, SavedValues *saved, Name value, Name away);
SavedValues *saved_of(const Module *m, Name func); /* NULL: nothing */
Name ruled_as(const Module *m, Name dim);          /* the dim whose layout rules apply to this one */
bool has_name(const Names *names, Name name);
bool names_equal(const Names *a, const Names *b);   /* in the same order */
void add_name(Names *names, Name name);             /* of the dims of one value: there are no more than MAX_NAMES */
Names dim_names(const Type *type);                  /* of its dims, in order */
Names dims_lacking(const Type *of, const Type *in); /* the dims of `of` that `in` lacks */
bool type_equal(const Type *a, const Type *b);
bool split_equal(Split a, Split b);
bool dim_equal(const Dim *a, const Dim *b);
bool same_base(const Storage *a, const Storage *b); /* the frame, or the same pointer */
bool same_dims(const Type *a, const Type *b);       /* equal but for dtype */
Type without_dim(Type type, Name name);
Type with_dim_first(Type type, Dim dim);
Type scalar_type(DType dtype);
bool is_float(DType dtype);
bool is_half(DType dtype);               /* bf16 or f16 */
int dtype_bytes(DType dtype);            /* of one element in memory */
DType dtype_named(Name name);            /* N_DTYPES if unknown */
int64_t element_count(const Type *type); /* logical, of the whole tensor */
int64_t split_count(const Module *m, Split split);
bool splits_evenly(const Module *m, const Dim *dim);   /* into blocks of equal size in memory */
int64_t dealt_blocks(const Module *m, const Dim *dim); /* of a split dim in zig-zag: that the outermost axis makes */
int64_t local_size(const Module *m, const Dim *dim);   /* elements in memory on one rank: padded / ranks, or most */
int64_t part_size(const Module *m, const Dim *dim, int64_t rank);    /* elements of that rank along the only axis */
Name parts_text(Module *m, const int64_t *part, int64_t count);      /* of a Split: "3+9"; below 0: "-" */
uint64_t ranks_with_part(const Module *m, const Dim *dim);           /* as a set; 0: its parts do not say */
int64_t part_first(const Module *m, const Dim *dim, int64_t rank);   /* the first of them */
int64_t local_bytes(const Module *m, const Type *type);              /* in memory, on one rank */
int64_t part_bytes(const Module *m, const Type *type, int64_t rank); /* of a stack: of that rank's part of it alone */
int64_t span_bytes(const Module *m, const Value *value); /* placed: from its first element to the end of its last */
char *ranks_text(Module *m, RankSet on);                 /* "pp=0+3", in the arena */
char *type_text(Module *m, const Type *type);            /* in the arena */

/* --- Building: each call appends one op before b->before (or at the end) and infers its types. --- */
void push_value(Arena *arena, Values *values, Value *value);
void insert_value(Arena *arena, Values *values, int at, Value *value);
int index_of(const Values *values, const Value *value); /* or -1 */
Func *add_func(Module *m, Name name, FuncRole role);    /* at the end of the module */
void append_func(Module *m, Func *f);                   /* one that already has its name */
void rename_func(Module *m, Func *f, Name name);
Name free_func_name(Module *m, Name base); /* the name, with a number behind it if it is taken: "k.h", "k.h.2" */
Func *find_func(const Module *m, Name name);
Func *func_with_role(const Module *m, FuncRole role);
Func *called_by(const Module *m, const Op *op);          /* a call or loop; NULL: an op, or of no function of m */
Func *kernel_called_by(const Module *m, const Op *op);   /* NULL: it calls no kernel */
Func *function_called_by(const Module *m, const Op *op); /* which has a frame; NULL: it calls a kernel, or nothing */
void remove_func(Module *m, Func *f);
Param *find_param(const Module *m, Name name);
int repeats_around(const Param *param);                    /* the repeats around it */
void insert_param(Module *m, Param *before, Param *param); /* after `before` */
Input *find_input(const Module *m, Name name);
bool is_fed_records(const Module *m); /* each input from an array of its own; else all from one stream of tokens */
const Input *longest_input(const Module *m); /* one with a sequence dim, if there is one; NULL: no input */
Value *add_param(Module *m, Func *f, Name name, Type type); /* a parameter of a function */
Value *param_named(const Func *f, Name name);               /* NULL if f has none of that name */
void take_away(Values *values, int at);
Name fresh_name(Module *m);
Name free_name(Module *m, const Func *f, Name name); /* the name, made unique among the values of f */

/* --- Text: what print writes, parse reads. -------------------------------------------------- */
extern const char *const dtype_name[N_DTYPES];
extern const char *const role_name[N_ROLES];
enum { N_PROGRAMS = 6 };                    /* functions that the trainer calls */
extern const FuncRole programs[N_PROGRAMS]; /* FINISH and BEGIN last: they take what STEP leaves */
bool is_program(const Func *f);
extern const char *const init_name[N_INITS];
void print_module(Module *m, FILE *out);
char *module_text(Module *m); /* to be freed with free() */
Module *new_module(Diags *diags);
void free_module(Module *m);
Module *parse_module(const Source *source, Diags *diags); /* never NULL; look at diags->errors */

/* Checks every op against its row; true if the module is well formed and well typed. */
bool verify_module(Module *m);

/* Is the head of a verified module consistent with its functions, and complete for a trainer? */
bool verify_program(Module *m);
bool verify_model(Module *m); /* a part of that: are all parameters of the function with the role MODEL declared? */
#include "build.h"
#include "ports.h"
#include "roles.h"

#endif
