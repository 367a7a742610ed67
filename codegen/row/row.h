/* row.h -- internals of the row kernel emitter: the plan of one kernel before C is written.
 *
 * The kernel's space is the union of the dims of its values, without dims of one element.  The outputs of a kernel are
 * its sinks: stored results, and column sums.  Sinks of the same dims share one loop nest, a Region.  If there are row
 * reductions, a row (the inner dims at one index of the outer ones) is traversed several times, once in each phase:
 * phase p computes values that depend on reductions of earlier phases.
 *
 * Work is divided as a function of sizes only, so results are the same for any number of threads.
 */
#ifndef MPC_ROW_H
#define MPC_ROW_H

#include "text/names.h"

enum {
    MAX_BLOCKS = 64,       /* parts into which a column sum divides its rows */
    FLAT_BLOCK = 4096,     /* elements in one chunk of a flat loop */
    SUM_CHUNK = 1024,      /* elements that are added up before they are added to a sum of floats */
    SERIAL_POINTS = 16384, /* below this number of points, one thread is faster */
    ROW_BUFFER = 8192,     /* floats: the longest row that is kept on the stack */
    CHEAP_FLOPS = 6        /* up to this, recomputing is cheaper than keeping */
};

typedef unsigned DimSet; /* bit i: dim i of the kernel's space */

/* A local whose declaration is written after the text that follows it, and only if that text uses it. */
typedef struct {
    const char *name;
    bool is_named;
} Variable;

static inline const char *use(Variable *variable)
{
    variable->is_named = true;
    return variable->name;
}

static inline const char *declare(Variable *variable)
{
    variable->is_named = false;
    return variable->name;
}

typedef struct {
    Name name;
    int64_t size;
    Variable *index; /* of a loop over it alone */
} SpaceDim;

/* An operand or result in memory, with the storage of the call. */
typedef struct {
    const Value *value; /* the kernel's parameter or result */
    const Value *given; /* the call's operand or result */
    DimSet dims;
    int64_t stride[MAX_RANK]; /* by dim of the space */
    const Storage *storage;
    const char *name;
    bool overhangs; /* other data may be in its padding: loops end at the logical size */
    bool shared;    /* some result and some parameter may be the same memory: no `restrict` */
} Array;

/* A value of the kernel; operands precede it. */
typedef struct Node {
    const Value *value;
    const Op *op; /* NULL: a parameter */
    struct Node *operand[3];
    int array; /* of a parameter, else -1 */
    DimSet dims;
    int phase;           /* the first phase in which it can be computed */
    bool is_reduction;   /* of a row: its text is an accumulator */
    bool is_column;      /* a column reduction: no text at all, it is a sink */
    bool is_read;        /* by an op of the kernel */
    bool is_wanted;      /* by a sink of the present region */
    bool is_reached;     /* visited in the walk of reads() */
    int cost;            /* FLOPs of computing it from values in memory */
    int uses;            /* in the present loop */
    int kept_from;       /* the phase that stores it for later ones, in `kept_in`; -1: all phases compute it */
    const char *kept_in; /* an array with the dims of the row: a local one or a result */
    int kept_array;      /* the result's, else -1 */
    bool is_loaded;      /* loaded from kept_in in the present phase */
    const char *mask;    /* dropout: the text of the mask bit; NULL: computed at each use */
    const char *name;    /* of its local */
    const char *text;    /* its C expression in the present loop; NULL: not computed here */
} Node;

typedef struct {
    int result;    /* of the kernel */
    Node *node;    /* the value that is stored, or the column reduction */
    Node *operand; /* of a column reduction, else NULL */
    int phase, region;
    int64_t at;        /* column sums: offset of their blocks in scratch, in elements; -1: not in scratch */
    const char *name;  /* column sums: of the array of sums, or of the one sum */
    const char *parts; /* of an array with the one sum of each block */
} Sink;

static inline bool is_constant(const Op *op) { return op && info(op)->traits & WEAK; }

/* Does it mask elements by position? */
static inline bool is_masking(const Op *op)
{
    return op && info(op)->family == POINTWISE && info(op)->traits & POSITIONAL;
}

/* Dims that are contiguous in memory and in every use. */
typedef struct {
    DimSet dims;
    int last; /* the innermost of them */
    int64_t size;
    Variable *index;
} Loop;

typedef struct {
    DimSet dims;
    int norder, order[MAX_RANK]; /* dims, outermost first */
    bool has_columns;
    DimSet own;     /* column sums: dims divided among threads */
    int64_t blocks; /* column sums: parts of the rows; 1: one thread has all rows, or each thread has its own sums */
    int64_t points;
    DimSet inner; /* dims of its inner loops: those from `nouter` on */
    int nloops, nouter;
    Loop loop[MAX_RANK];
} Region;

typedef struct {
    Module *m;
    const Func *f;
    const Op *call; /* NULL: only types are known */
    int ndims;
    SpaceDim dim[MAX_RANK];
    DimSet inner;
    bool by_rows; /* has row reductions */
    int nnodes, narrays, nsinks, nregions, nphases;
    Node *node;
    Map node_of;  /* of values */
    Array *array; /* parameters, then results */
    Sink *sink;
    Region *region;
    int *region_order;     /* the order in which regions are written */
    int64_t scratch;       /* bytes */
    Wanted *wanted;        /* in a query: results to be copied; NULL: report an error */
    bool is_anonymous;     /* names depend only on positions: equal kernels have equal text */
    ShardOffsets *offsets; /* receives those that the text uses */
    NameSpace names;
    int depth; /* indentation of the C text, in levels of four columns */
} RowKernel;

/* row_names.c: names of values. */
void name_arrays(RowKernel *k);
const char *name_dim(RowKernel *k, int dim);
void name_values(RowKernel *k);
void name_sums(RowKernel *k, Sink *column);

/* row_plan.c: the part of the plan that depends on types. */
RowKernel *plan_row_kernel(Module *m, const Func *kernel, const Op *call);
Node *find_node(const RowKernel *k, const Value *value);
int64_t count_points(const RowKernel *k, DimSet dims);

/* row_loops.c: the part of the plan that depends on strides. */
void place_arrays(RowKernel *k); /* their storage */
void plan_arrays(RowKernel *k);  /* and which may be the same memory */
void plan_loops(RowKernel *k, Region *region);
Variable *new_variable(RowKernel *k, const char *name);
char *index_text(const RowKernel *k, const Region *region, DimSet dims, const int64_t stride[]);
int64_t position_strides(const RowKernel *k, const Type *type, int64_t stride[]);
char *position_index(const RowKernel *k, const Region *region, const Type *type, const int64_t stride[]);
char *dense_index(const RowKernel *k, const Region *region, DimSet dims); /* in an array of just these dims */

/* row_alias.c: arrays that may be the same memory. */
void plan_sharing(RowKernel *k);                                    /* marks arrays, delays stores, orders regions */
bool reads(const RowKernel *k, const Node *node, const Node *what); /* node is, or depends on, it */

/* row_text.c: C expressions of values. */
char *load_text(const RowKernel *k, DType dtype, const char *array, const char *index);
void write_store(const RowKernel *k, DType dtype, const char *array, const char *index, const char *text, FILE *out);
void write_local(const RowKernel *k, const char *type, const char *name, const char *text, FILE *out);
int count_uses(const Op *op, int operand); /* how often the text of an op names an operand */
bool is_copy(const Node *node);

/* The uses of what a sink stores.  A parameter that is stored as it is counts twice if results may have its memory, and
 * so is read before all stores. */
int uses_of_stored(const RowKernel *k, const Node *node);
void write_node(RowKernel *k, const Region *region, Node *node, FILE *out);
char *keep_text(const RowKernel *k, const Op *dropout, const char *at); /* is the element kept? */
char *element_position(const RowKernel *k, const Region *region, const Node *node);
const char *start_of(const Node *reduction); /* the initial value of a sum or maximum */
char *chosen_text(const RowKernel *k, const Node *reduction, const char *a, const char *b);
char *accumulation(const RowKernel *k, const Node *reduction, const char *into, const char *text);

/* row_nest.c: loops over the same points, in one phase, of either target. */
#define ANY_DIMS (~(DimSet)0)
typedef struct {
    RowKernel *k;
    const bool *has; /* by sink: what the region or the launch stores */
    DimSet inner;    /* the dims of the loops of a row, or of all loops ... */
    DimSet dims;     /* ... and those of them that these have; ANY_DIMS: values of any of them */
    int phase;
    bool all_phases; /* it stores what any phase does */
} Nest;

void mark_wanted(RowKernel *k, const bool has[]); /* values that these sinks need; NULL: all sinks */
bool is_scalar(const Node *node);                 /* one number for the kernel */
bool is_in_loops(const Nest *n, const Node *node);
bool is_summed(const Nest *n, const Node *node);     /* a row reduction of the phase */
bool is_drained(const Nest *n, int sink);            /* stored, or added to a column, element by element */
bool is_first_kept(const Nest *n, const Node *node); /* stored for later phases */
bool is_needed(const Nest *n);                       /* does it sum or store anything? */
void count_all_uses(const Nest *n);                  /* of each value in the text of the loops; 0: not computed */
void write_scalars(RowKernel *k, FILE *out);         /* those wanted; once, before all loops */
void write_accumulators(const Nest *n, FILE *out);   /* of the sums: their initial values */
const char *stored_text(const RowKernel *k, const Sink *sink); /* of the value that it stores as it is */
void write_result(const RowKernel *k, const Region *region, const Sink *sink, const char *text, FILE *out);

/* row_body.c: the computation of one row. */
void plan_kept(RowKernel *k);
void write_row(RowKernel *k, int region, const char *low, const char *high, FILE *out);

/* row_columns.c: sums over rows. */
void write_columns(RowKernel *k, int region, FILE *out);

/* row.c: loops. */
char *row_loop(const RowKernel *k, const char *pragma, const Loop *loop, const char *low, const char *high,
               const char *body);
bool is_parallel(const Region *region);
char *row_comment(const RowKernel *k);

#endif
