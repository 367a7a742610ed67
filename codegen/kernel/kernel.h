/* kernel.h -- the plan of one row kernel, before its steps (tree.h) and their text.
 *
 * The kernel's space is the union of the dims of its values, without dims of one element.  The outputs of a kernel are
 * its sinks: stored results, and column sums.  Sinks of the same dims share one loop nest, a Region.  If there are row
 * reductions, a row (the inner dims at one index of the outer ones) is traversed several times, once in each phase:
 * phase p computes values that depend on reductions of earlier phases (phases.c).
 *
 * Work is divided as a function of sizes only, so results are the same for any number of threads.
 */
#ifndef MPC_KERNEL_H
#define MPC_KERNEL_H

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
    bool padding_overhangs; /* other data may be in its padding: loops end at the logical size */
    bool shared;            /* some result and some parameter may be the same memory: no `restrict` */
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
    struct Node *most;   /* of a sum of exp(x - most), with `most` the maximum of the same x: that; else NULL */
    bool is_online;      /* accumulated in the phase that finds `most`, relative to the largest element so far */
    const char *base;    /* the variable that holds that element */
    bool is_column;      /* a column reduction: no text at all, it is a sink */
    bool is_read;        /* by an op of the kernel */
    bool is_wanted;      /* by a sink of the present region */
    bool is_reached;     /* visited in the walk of reads() */
    int cost;            /* FLOPs of computing it from values in memory */
    int uses;            /* in the loop whose steps are being made */
    int kept_from;       /* the phase that stores it for later ones, in `kept_in`; -1: all phases compute it */
    const char *kept_in; /* an array with the dims of the row: a local one or a result */
    int kept_array;      /* the result's, else -1 */
    const char *mask;    /* dropout: the text of the mask bit; NULL: computed at each use */
    const char *name;    /* of its local */
    const char *text;    /* its C expression in the present loop; NULL: not computed here */
} Node;

typedef struct {
    int result;    /* of the kernel */
    Node *node;    /* the value that is stored, or the column reduction */
    Node *operand; /* of a column reduction, else NULL */
    int phase, region;
    bool is_late;      /* stored in the last phase: what it is stored over is read until then */
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
    int *region_order;      /* the order in which regions are written */
    int64_t scratch;        /* bytes */
    RequiredLayout *wanted; /* in a query: results to be copied; NULL: report an error */
    bool is_anonymous;      /* names depend only on positions: equal kernels have equal text */
    ShardOffsets *offsets;  /* receives those that the text uses */
    NameSpace names;
    int depth; /* indentation of the C text, in levels of four columns */
} RowKernel;

/* names.c: names of values. */
void name_arrays(RowKernel *k);
const char *name_dim(RowKernel *k, int dim);
void name_values(RowKernel *k);
void name_sums(RowKernel *k, Sink *column);

/* phases.c: the phase of each value, in as few as there can be.  online: with sums that are added up beside their
 * maximum, if that makes fewer; no value is kept for later phases. */
void plan_phases(RowKernel *k, bool online);
void find_most(RowKernel *k); /* of all sums */

/* plan.c: the part of the plan that depends on types. */
RowKernel *plan_row_kernel(Module *m, const Func *kernel, const Op *call);
int find_space_dim(const RowKernel *k, Name name); /* -1: not in the space */
Node *find_node(const RowKernel *k, const Value *value);
int64_t count_points(const RowKernel *k, DimSet dims);

/* loops.c: the part of the plan that depends on strides. */
void place_arrays(RowKernel *k); /* their storage */
void plan_arrays(RowKernel *k);  /* and which may be the same memory */
void plan_loops(RowKernel *k, Region *region);
Variable *new_variable(RowKernel *k, const char *name);
char *index_text(const RowKernel *k, const Region *region, DimSet dims, const int64_t stride[]);
int64_t position_strides(const RowKernel *k, const Type *type, int64_t stride[]);
char *position_index(const RowKernel *k, const Region *region, const Type *type, const int64_t stride[]);
char *dense_index(const RowKernel *k, const Region *region, DimSet dims); /* in an array of just these dims */

/* alias.c: arrays that may be the same memory. */
void plan_sharing(RowKernel *k);                                    /* marks arrays, delays stores, orders regions */
bool reads(const RowKernel *k, const Node *node, const Node *what); /* node is, or depends on, it */

/* text.c: C expressions of values. */
char *load_text(const RowKernel *k, DType dtype, const char *array, const char *index);
void write_store(const RowKernel *k, DType dtype, const char *array, const char *index, const char *text, FILE *out);
void write_local(const RowKernel *k, const char *type, const char *name, const char *text, FILE *out);
int count_uses(const Op *op, int operand); /* how often the text of an op names an operand */
bool is_copy(const Node *node);

/* The uses of what a sink stores.  A parameter that is stored as it is counts twice if results may have its memory, and
 * so is read before all stores. */
int uses_of_stored(const RowKernel *k, const Node *node);
/* Each sets node->text.  What is inlined has no local. */
void write_loaded(const RowKernel *k, Node *node, const char *text, bool is_inlined, FILE *out);
void write_load(const RowKernel *k, const Region *region, Node *node, bool is_inlined, FILE *out);
void write_value(RowKernel *k, const Region *region, Node *node, FILE *out);
const char *stored_text(const RowKernel *k, const Sink *sink); /* of the value that it stores as it is */
void write_result(const RowKernel *k, const Region *region, const Sink *sink, const char *text, FILE *out);
char *keep_text(const RowKernel *k, const Op *dropout, const char *at); /* is the element kept? */
char *element_position(const RowKernel *k, const Region *region, const Node *node);
const char *start_of(const Node *reduction); /* the initial value of a sum or maximum */
void write_start(const char *name, const Node *reduction, FILE *out);
char *chosen_text(const RowKernel *k, const Node *reduction, const char *a, const char *b);
char *accumulation(const RowKernel *k, const Node *reduction, const char *into, const char *text);
char *row_comment(const RowKernel *k);
const char *const *row_parameters(const RowKernel *k, const char *restricted, int *count);

#endif
