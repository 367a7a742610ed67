/* host_parts.h -- internals of the host program emitter.
 *
 *   host.c          the file: its parts in order
 *   units.c         C only: the same parts as translation units
 *   host_func.c     one function of the program: statements and their pointers
 *   rows.c          lists that grow; the table of products
 *   host_kinds.c    places in frames that differ between kinds of ranks
 *   host_call.c     the statements that run kernels, products and library ops
 *   host_rounded.c  CUDA only: what need not run where products round their operands themselves
 *   host_c.c        C only: kernels are functions of the file
 *   host_cuda.c     CUDA only: kernels are launched from an embedded text
 *   host_loop.c     loops, and carried values
 *   host_turn.c     CUDA only: a loop of which one turn is recorded
 *   host_pipeline.c loops over micro-batches that ranks run by a schedule
 *   host_collective.c    collectives: their table, and the statements that run them
 *   message.c       descriptions of collectives for the runtime, and their memory there
 *   program.c       the tables of RtProgram;  inputs.c  those of its inputs
 */
#ifndef MPC_HOST_PARTS_H
#define MPC_HOST_PARTS_H

#include "codegen.h"
#include "cuda/cuda.h"
#include "host.h"
#include "ir/storage.h"
#include "kinds/kinds.h"
#include "map.h"
#include "text/names.h"
#include "totals.h"

/* --- The text written so far ------------------------------------------------------------------ */

/* A row of the table of kernels: a statement that a trace can name. */
typedef struct {
    const char *name, *where, *kind;
    double flops, bytes;
} KernelRow;

typedef struct {
    const char *pieces, *row; /* of the tables */
} CollectiveText;

/* C: the function of a kernel, which begins with "static". */
typedef struct {
    const char *comment, *code;
} KernelText;

/* A function of the IR in C. */
typedef struct {
    const char *name;
    bool *takes;      /* of each pointer: is it a parameter of the C function? */
    bool *written;    /* of each pointer: is it a result? */
    const Value **of; /* of each pointer: the value that it is named after; NULL: no such pointer */
    int npointers;
} HostFunc;

typedef struct Dialect Dialect;

/* CUDA: all launches of one kernel. */
typedef struct {
    const char *place; /* of the first call */
    const CudaLaunches *launches;
    int first, operands; /* in the table of launches; arguments of each of its functions */
} LaunchText;

/* Texts of rows of a table, each once. */
typedef struct {
    int count, room;
    const char **at;
} Texts;

typedef struct {
    Module *m;
    const Dialect *dialect;
    const CudaProgram *cuda; /* CUDA only */
    int nkernels, kernel_room;
    KernelText *kernel; /* C only */
    Text functions;
    ShardOffsets offsets; /* used by these */
    int nrows, row_room;
    Map kernel_codes; /* anonymous text of a kernel -> its name */
    Map kernel_names; /* names in use */
    int nlaunched, launched_room;
    LaunchText *launched;
    KernelRow *row;
    Texts products;                             /* of shapes */
    Texts attentions;                           /* CUDA only: the same of those that cuDNN may compute */
    int ncollectives, collective_room, npieces; /* npieces: of all collectives */
    CollectiveText *collective;
    int64_t state_bytes; /* where the state ends in the arena */
    Kinds *kinds;        /* of ranks */
    Map frames;          /* KindFrame -> the name of its RtKinds, once it is written */
    Text frame_tables;
    Map halves;      /* functions that are halves of a micro-batch */
    Map identifiers; /* C identifier -> the first function with it */
    Map funcs;       /* Func -> HostFunc */
    Map started;     /* Op -> number of its collective or fetch, from 1 */
    int ntransfers;
} Host;

/* The number of the row with this text, which is added if there is none. */
int row_with_text(Module *m, Texts *rows, const char *text);

/* --- One function ----------------------------------------------------------------------------- */

/* A pointer variable. */
typedef struct {
    const char *name;
    const Value *value;
    bool declared;
} Local;

typedef struct {
    Host *h;
    const Func *f;
    HostFunc *c;
    NameSpace names;
    bool is_half;         /* see host_pipeline.c */
    bool announced;       /* that the step changes state */
    const char *frame;    /* "frame"; "arena" in what the trainer calls */
    const char **pointer; /* names of the parameters */
    Map locals;           /* of values: Local */
    int nfresh, fresh_room;
    Local **fresh; /* first used by the next statement */
    Text body;
    const char *comment; /* the last comment written */
    uint64_t ranks;      /* those that run the statements of `guarded`; ALL_RANKS: statements go to the body */
    Text guarded;
    const struct RoundedReaders *rounded; /* see host_rounded.c; NULL: not yet known */
    const char *own_rank;                 /* the variable with the rank's number along own_axis; NULL: not used */
    int own_axis;                         /* along which it is its coordinate */
} FuncText;

/* The C expression of a value's address. */
const char *pointer_to(FuncText *t, const Value *value);

/* The value at whose address it begins: itself, or the viewed value if the view begins there. */
const Value *viewed(const Value *value);

/* The text of a pointer into the frame. */
const char *in_frame(FuncText *t, int64_t offset);

/* "base + 4096": the place of that offset of the function's frame, on each kind of rank. */
const char *in_frame_of(Host *h, const Func *f, const char *base, int64_t offset);
const char *kinds_of(Host *h, const Func *f); /* "&run_step_kinds"; "NULL": there is one kind */

/* The same, as a pointer to elements of a type. */
const char *typed_in_frame(FuncText *t, const char *type, int64_t offset);

/* Statements from now on are for these ranks alone; ALL_RANKS: for all again, before the text is closed. */
void write_for_ranks(FuncText *t, uint64_t ranks);

/* "const int stage = ...;", if a statement needs it; else empty. */
const char *own_rank_text(const FuncText *t);

/* Appends a statement (unindented lines) after its comment and declarations of the pointers that it uses first. */
void write_statement(FuncText *t, const char *comment, const char *text);

void note_identifiers(Host *h);              /* before function_name */
char *function_name(Host *h, const Func *f); /* in C */
bool takes_frame(const Func *f);             /* has the C function a parameter for its frame? */
HostFunc *host_func(Host *h, const Func *f); /* writes it if not yet written */
HostFunc *host_half(Host *h, const Func *f); /* the same, of a half of a micro-batch */
bool internal_error(Module *m, const Op *op, const char *what);

/* Pointers to its operands, then to its results. */
const char **operands_of(FuncText *t, const Op *op);

/* rows.c: sets what the product computes, and its number in the table of products; -1: it is not in it. */
int product_number(FuncText *t, const Op *op, int number, Product *product);

/* host_rounded.c: C: is what these ops compute needed, since a product that reads it is not computed in 8 bits?  NULL:
 * it is needed anyway. */
const char *rounding_condition(FuncText *t, const Op *const ops[], int count);

/* The collectives of the IR, as the runtime calls them. */
typedef struct {
    OpKind op;
    const char *constant;
} CollectiveKind;
extern const CollectiveKind collective_kinds[]; /* by RtCollectiveKind */

int add_message(Host *h, const RtCollective *c, DType dtype, const Op *op,
                const char *cause);          /* to the table of collectives */
const char *own_rank(FuncText *t, int axis); /* C: the rank's number along the axis */

/* host_kinds.c: C: the bytes of a row-major value that this rank holds: of a stack, those of its own copies. */
const char *own_bytes(FuncText *t, const Type *type);
const char *own_rows(FuncText *t, const Type *type, int64_t rows); /* likewise, of the rows of all copies */
char *ranks_condition(FuncText *t, RankSet on);                    /* C: is the rank one of these ranks? */
void write_call(FuncText *t, const Op *op);
bool changes_state(const FuncText *t, const Op *op); /* does its statement write what outlives a step? */
void write_loop(FuncText *t, const Op *op);
void write_wait(FuncText *t, const Op *op);            /* once for a bucket */
const Op *write_collective(FuncText *t, const Op *op); /* with the others of its bucket; returns the last */
void write_move(FuncText *t, const Op *op);            /* host_move.c */
void write_transfer_wait(FuncText *t, const Op *op);
const Op *write_one(FuncText *t, const Op *op); /* any op, a collective as above; returns the last */

/* --- Messages --------------------------------------------------------------------------------- */

enum { MOST_PIECES = 256 };                                          /* of one message */
int find_bucket(const Op *first, const Op *ops[MOST_PIECES]);        /* the ops that are one message; how many */
RtCollective message_between(Module *m, const Type *type, int axis); /* from one rank to another */
/* The message that has all of these ops, without names for reports.  `kind` is the kind of rank that it is for; -1: all
 * kinds, see RtPiece.copies. */
RtCollective collective_of(Module *m, const Op *const ops[], int count, int kind);

/* Elements of the dims from `first` on and before `end`, on one rank. */
int64_t count_between(const Module *m, const Type *type, int first, int end);

/* "h.attn.q, gpt2.mdl:24:9" */
const char *place_text(Module *m, const Op *op);

/* --- Targets ---------------------------------------------------------------------------------- */

/* `rows` rows of `row` elements, with pitches to_row and from_row in elements. */
typedef struct {
    const char *to, *from; /* texts of pointers */
    int element;           /* bytes */
    int64_t row, to_row, from_row;
    const char *rows; /* C: how many */
} RowsCopy;

/* The differences between targets; the rest of the program is the same. */
struct Dialect {
    const char *kernels;  /* their description, for the head of the file */
    const char *includes; /* lines after #include "rt.h" */

    /* The ops that the statement of *op runs: at least itself, and later ones; none if an earlier statement runs it.
     * Row kernels or LIBRARY ops. */
    int (*group)(const Host *h, const Op *const *op, const Op *const **group);
    Statement (*kernel)(FuncText *t, const Op *op); /* that statement */
    /* The statement that runs product `number` of a kernel, with an operand order that rt_product does not support. */
    Statement (*naive_product)(FuncText *t, const Op *op, int number, const Product *product,
                               const char *const operands[]);
    /* The name of the launch that computes the epilogue of product `number` if the library does not; NULL: none.  Sets
     * what the product computes for an earlier op. */
    const char *(*unfused)(FuncText *t, const Op *op, int number, Product *product);
    /* Does product `number` round its operands itself where it is computed in 8 bits?  NULL: none does. */
    bool (*rounds)(const Host *h, const Op *op, int number, const Product *product);
    bool adds_apart; /* the library adds to what lies elsewhere than its result */
    char *(*copy)(Module *m, const char *to, const char *from, const char *bytes);
    char *(*zero)(Module *m, const char *at, const char *bytes);
    char *(*copy_rows)(Module *m, const RowsCopy *copy);
    bool records_turns; /* see host_turn.c */

    void (*write_kernels)(Host *h, FILE *out);
    const char *(*fields)(Host *h); /* fields of RtProgram, one line each */
};

extern const Dialect c_dialect, cuda_dialect;

/* units.c: trainer.c in units.  Texts of its parts, with their first lines there. */
typedef struct {
    const char *includes, *functions, *products, *program;
    int kernels_line, products_line, functions_line, program_line;
} FileParts;
int count_lines(const char *text);
Units units_of(Host *h, const FileParts *parts);

/* --- Tables ----------------------------------------------------------------------------------- */

void write_products(Host *h, FILE *out);
void write_collectives(Host *h, FILE *out);

char *integer_text(Module *m, int64_t value);

/* The numbers of micro-batches, of sequences (or records) in each over all ranks, and of tokens in a sequence. */
typedef struct {
    int64_t micro, batch, seq;
} InputShape;

InputShape input_shape(const Module *m, const Func *f);
int count_inputs(const Module *m, const Func *f);
void write_inputs(Module *m, const Func *f, const char *name, FILE *out); /* a table NAME_inputs, if f has any */

void write_tables(Host *h, TrainerTexts texts, FILE *out);

#endif
