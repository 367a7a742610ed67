/* host_parts.h -- inside the emitter of the host program; nobody else includes it.
 *
 *   host.c          the file: its parts in order
 *   host_func.c     one function of the program: statements, and the pointers that they name
 *   host_call.c     the statements that run kernels, products and library ops
 *   host_c.c        what only C has: kernels are functions of the file
 *   host_cuda.c     what only CUDA has: kernels are launched, from a text that the file embeds
 *   host_loop.c     layers in a loop, and what they carry
 *   host_collective.c    collectives: their table, and the statements that run them
 *   message.c       descriptions of collectives for the runtime, and their memory there
 *   program.c       the tables of RtProgram
 */
#ifndef MPC_HOST_PARTS_H
#define MPC_HOST_PARTS_H

#include "codegen.h"
#include "cuda/cuda.h"
#include "host.h"
#include "ir/storage.h"
#include "map.h"
#include "text/names.h"
#include "totals.h"

/* --- What has been written so far ------------------------------------------------------------- */

/* A row of the table of kernels: a statement that a trace can name. */
typedef struct {
    const char *name, *where, *kind;
    double flops, bytes;
} KernelRow;

typedef struct {
    const char *pieces, *row; /* of the tables */
} CollectiveText;

/* A function of the IR in C. */
typedef struct {
    const char *name;
    bool *takes;      /* of each pointer: is it a parameter of the C function? */
    bool *written;    /* of each pointer: is it a result? */
    const Value **of; /* of each pointer: the value that names it; NULL: no such pointer */
    int npointers;
} HostFunc;

typedef struct Dialect Dialect;

/* CUDA: all launches of one kernel. */
typedef struct {
    const char *place; /* of the first call */
    const CudaLaunches *launches;
    int first, operands; /* in the table of launches; arguments of each of its functions */
} LaunchText;

typedef struct {
    Module *m;
    const Dialect *dialect;
    const CudaProgram *cuda; /* CUDA only */
    Text kernels, functions; /* kernels: C only */
    ShardOffsets offsets;    /* that these name */
    int nrows, row_room, nproducts, product_room;
    Map kernel_codes; /* a kernel, without names of its own -> its name */
    Map kernel_names; /* those that have been given */
    int nlaunched, launched_room;
    LaunchText *launched;
    KernelRow *row;
    const char **product; /* texts of shapes */
    int ncollectives, collective_room;
    CollectiveText *collective;
    Map funcs;   /* Func -> HostFunc */
    Map started; /* Op -> number of its collective, from 1 */
} Host;

/* A list with room for one more; `room` grows. */
void *with_room(Module *m, void *list, int count, int *room, size_t size);

/* --- One function ----------------------------------------------------------------------------- */

/* A pointer that statements can name. */
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
    const char *frame;    /* "frame"; "arena" in step, eval and predict */
    const char **pointer; /* names of the parameters */
    Map locals;           /* of values: Local */
    int nfresh, fresh_room;
    Local **fresh; /* those that the next statement names first */
    Text body;
    const char *comment; /* the last one written */
} FuncText;

/* The C expression for where a value lies. */
const char *pointer_to(FuncText *t, const Value *value);

/* The value whose memory it names: itself, or what it is a view of where the view begins. */
const Value *viewed(const Value *value);

/* The text of a pointer into the frame. */
const char *in_frame(FuncText *t, int64_t offset);

/* The same, as a pointer to elements of a type. */
const char *typed_in_frame(FuncText *t, const char *type, int64_t offset);

/* Appends a statement (lines at the left margin) after its comment and the pointers it names for the first time. */
void write_statement(FuncText *t, const char *comment, const char *text);

bool takes_frame(const Func *f);             /* is the function in C given a pointer to its frame? */
HostFunc *host_func(Host *h, const Func *f); /* writes it if that has not been done */
bool internal_error(Module *m, const Op *op, const char *what);

/* Pointers to its operands, then to its results. */
const char **operands_of(FuncText *t, const Op *op);

void write_call(FuncText *t, const Op *op);
void write_loop(FuncText *t, const Op *op);
void write_wait(FuncText *t, const Op *op);            /* once for a bucket */
const Op *write_collective(FuncText *t, const Op *op); /* with those of its bucket; returns the last */

/* --- Messages --------------------------------------------------------------------------------- */

enum { MOST_PIECES = 256 };                                              /* of one message */
int find_bucket(const Op *first, const Op *ops[MOST_PIECES]);            /* the ops that are one message; how many */
RtCollective collective_of(Module *m, const Op *const ops[], int count); /* of these; but for what people read */

/* Elements of the dims from `first` on and before `end`, as a rank holds them. */
int64_t count_between(const Module *m, const Type *type, int first, int end);

/* "rt_collective_start(rt, 3, RT_IN(...), RT_OUT(...));\n" */
char *collective_text(Module *m, const char *function, int id, int count, const char *const in[],
                      const char *const out[]);

/* "h.attn.q, gpt2.mdl:24:9" */
const char *place_text(Module *m, const Op *op);

/* The functions that the runtime calls. */
enum { NENTRIES = 3 };
extern const FuncRole entries[NENTRIES];

/* --- Targets ---------------------------------------------------------------------------------- */

/* `rows` rows of `row` elements, whose beginnings are to_row and from_row elements apart. */
typedef struct {
    const char *to, *from; /* texts of pointers */
    int element;           /* bytes */
    int64_t rows, row, to_row, from_row;
} RowsCopy;

/* What the targets do differently; all else of the program is the same. */
struct Dialect {
    const char *kernels;  /* what they are, for the head of the file */
    const char *includes; /* lines behind #include "rt.h" */

    /* The ops that the statement in the place of *op does: at least itself, and others behind it; none if an earlier
     * statement does it along.  These are row kernels or LIBRARY ops. */
    int (*group)(const Host *h, const Op *const *op, const Op *const **group);
    Statement (*kernel)(FuncText *t, const Op *op); /* that statement */
    /* The one that runs product `number` of a kernel, in an order of operands that rt_product does not take. */
    Statement (*naive_product)(FuncText *t, const Op *op, int number, const Product *product,
                               const char *const operands[]);
    /* The name of the launch that does bias and activation of product `number` where the library does not; NULL: there
     * is none. */
    const char *(*unfused)(FuncText *t, const Op *op, int number);
    char *(*copy)(Module *m, const char *to, const char *from, int64_t bytes);
    char *(*copy_rows)(Module *m, const RowsCopy *copy);

    void (*write_kernels)(Host *h, const char *kernels, FILE *out);
    const char *(*fields)(Host *h); /* of RtProgram, a line each */
};

extern const Dialect c_dialect, cuda_dialect;

/* --- Tables ----------------------------------------------------------------------------------- */

void write_products(Host *h, FILE *out);
void write_collectives(Host *h, FILE *out);

void write_tables(Host *h, TrainerTexts texts, FILE *out);

#endif
