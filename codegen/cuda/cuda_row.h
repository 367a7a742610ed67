/* cuda_row.h -- internals of the CUDA row kernel emitter: division of a kernel's work among threads.
 *
 * plan.c determines what a kernel computes: regions, phases, sinks.  Each region becomes one or several launches (a
 * later one adds the sums of blocks), with one of four mappings:
 *
 *   MAP_POINTS   each thread has one pack of neighbours
 *   MAP_ROWS     one or several warps process a row at a time, in registers if it fits: read once for all phases
 *   MAP_COLUMNS  each thread sums some columns over the rows of its part
 *   MAP_SUMS     a block computes one result, or a part of its sum
 *
 * No atomics: the order of summation depends only on sizes, so results are bitwise equal on every run and device.
 */
#ifndef MPC_CUDA_ROW_H
#define MPC_CUDA_ROW_H

#include "cuda.h"
#include "kernel/tree.h"

enum {
    WARP = 32,
    BLOCK = 256,          /* default number of threads per block */
    MOST_THREADS = 1024,  /* of a block */
    PARTS = 264,          /* blocks that sum columns: two for each multiprocessor of a large device */
    ROW_ITERATIONS = 4,   /* maximum of a row's packs in a thread's registers */
    REGISTERS = 65536,    /* of a multiprocessor */
    MOST_REGISTERS = 128, /* of a thread: more would leave too few warps on a multiprocessor */
    OTHER_REGISTERS = 36, /* of a thread: besides the row and its sums */
    ROW_REGISTERS = 40    /* of a thread, for a row without sums: more would leave too few warps */
};

typedef enum { MAP_POINTS, MAP_ROWS, MAP_COLUMNS, MAP_SUMS } Mapping;

/* A column sum of a launch. */
typedef struct {
    Sink *sink;
    bool is_wide; /* one for each inner element, else a single one */
    int64_t at;   /* offset in scratch, in elements; -1: directly in the result */
} Column;

typedef struct {
    RowKernel *k;
    Mapping mapping;
    Region region; /* a copy, with the loops of this launch; inner: dims of a row, or of a block of columns */
    bool *has;     /* by sink of k */
    int ncolumns;
    Column *column;
    DimSet own, items;  /* outer dims: those that column sums keep; those of rows, or of packs of all points */
    int64_t row_blocks; /* column sums: blocks of rows with the same results, each summed by a block of threads */

    const char *index_type; /* int, or int64_t for tensors of 2^31 elements */
    Loop *vector;           /* the innermost loop, in packs; NULL: no loop */
    Variable *first;        /* the first element of a pack; vector->index is one element */
    Variable *item, *pack;  /* the thread's present iteration, or pack of a row */
    Variable *count;        /* elements of a pack at the end of a row */
    int width;              /* elements of a pack */
    int64_t packs;          /* of a row, of a block of columns, or of all points */

    int threads;      /* of a block */
    int row_threads;  /* of one row, or of one row of a block of columns; 1: of a pack */
    int iterations;   /* MAP_ROWS: packs of one thread, in registers; 0: the row is read again in each phase */
    bool takes_sides; /* rows alternate between two halves of shared memory */
    bool is_full;     /* in the present text: packs are entirely within the row */
    bool is_member;   /* of a group (cuda_group.h): a function that a kernel calls for some of its blocks */
    int64_t blocks;
    bool *in_registers; /* by array: the row's packs of it stay in registers */
    bool *in_shared;    /* by array: the row's packs of it stay in shared memory */
    int64_t kept,
        kept_small; /* or these of its packs, of arrays that it keeps: the same on GPUs with 99 KiB per block */
    bool *keeps;
    const char *kept_name;
    bool is_in_part, *is_kept;    /* in the present text: a pack is one of these; by array: they are there */
    int64_t shared, shared_small; /* bytes of shared memory for a row; small: on GPUs with 99 KiB, if it keeps a part */
    const char **pack_name;       /* by array */
    const char **shared_name;
    bool reads_ahead;       /* the next row, into packs of its own, while this one is computed */
    const char **next_name; /* by array: these packs, or the row's element */
    const char *read_name;  /* the function that reads it */
} Launch;

/* cuda_plan.c: the part of the plan that depends on types. */
int plan_launches(RowKernel *k, Launch **launches, int64_t *scratch);
int64_t sums_of(const Launch *p, const Column *column); /* of one block */
int64_t launch_bytes(const Launch *p);                  /* read and written, each once; after plan_threads */

/* cuda_row_threads.c: the part of the plan that depends on strides. */
void plan_threads(Launch *p);
bool is_packed(const Launch *p, int array);          /* loaded and stored in packs */
int64_t iterations_of(const Launch *p, DimSet dims); /* of the loops over these dims */
int64_t packs_of(const Launch *p, DimSet dims);
int64_t items_of(const Launch *p); /* rows, or packs that threads have for themselves */
char *index_lines(const Launch *p, Variable *number, DimSet dims, bool in_packs, bool all);
bool has_wide_sums(const Launch *p);
bool reads_rows_again(const Launch *p); /* in each phase, in packs */
bool fits_registers(const Launch *p, int array);
char *with_indices(const Launch *p, Variable *number, DimSet dims, bool in_packs, const char *body);
char *each_element(const Launch *p, bool to_the_end, const char *body);
static inline bool has_tail(const Launch *p) { return p->vector && p->vector->size % p->width && !p->is_full; }
static inline int rows_at_once(const Launch *p) { return p->threads / p->row_threads; } /* or packs */
static inline bool has_teams(const Launch *p) { return p->row_threads > 1; }

static inline char *number(const Launch *p, int64_t value)
{
    return arena_text(&p->k->m->arena, "%lld", (long long)value);
}

/* cuda_row_body.c: the text of steps. */
typedef void PrintStep(Launch *p, const Step *step, FILE *out);
const char *place_in_block(const Launch *p); /* the number of a thread's row or pack, of those at once */
const char *guarded(const Launch *p, const char *condition, const char *text);
void print_launch_steps(Launch *p, const Step *steps, FILE *out);

/* cuda_row_kept.c: packs of a row, in registers or shared memory for all of its phases. */
char *pack_address(const Launch *p, int array);
void write_pack_load(const Launch *p, int array, const char *to, FILE *out);
/* Loads of arrays that stay in registers, for write_iterations: into packs of these names, by array. */
void write_register_loads(Launch *p, const void *names, FILE *out);
PrintStep write_shared_rows, write_kept_rows;
typedef void IterationText(Launch *p, const void *context, FILE *out);
void write_iterations(Launch *p, IterationText *body, const void *context, FILE *out);

/* cuda_row_part.c: of a row that is read again, the packs that stay in shared memory.  write_keep: after an array's
 * pack has been loaded. */
void keep_part_of_rows(Launch *p, const Step *steps);
void write_room_of_part(Launch *p, FILE *out);
void write_keep(Launch *p, int array, FILE *out);
bool is_in_shared(const Launch *p, int array); /* are the packs of the present text there? */

/* cuda_row_ahead.c: the next row. */
void write_row_packs(const Launch *p, const char *const names[], FILE *out); /* declares packs in registers */
/* Before the loop over rows: how one is read; reads the first.  In the loop: takes what was read, and reads on. */
void write_first_row(Launch *p, const char *block, FILE *out);
void write_next_row(const Launch *p, FILE *out);
bool is_read_ahead(const Launch *p, const Node *node); /* a value with one element per row: known before its phase */

/* cuda_columns.c: column sums. */
bool is_in_scratch(const Launch *p, const Column *column); /* added to in scratch, row by row */
int64_t tiles_of(const Launch *p);   /* blocks beside each other, each for a warp's packs of columns */
char *block_number(const Launch *p); /* of those for the same columns */
void write_sum_start(Launch *p, const Sink *sink, FILE *out);
void write_sum_end(Launch *p, const Sink *sink, FILE *out);
void write_totals(Launch *p, const char *name, CudaLaunches *launches, FILE *out);
char *fold_text(const Launch *p, const Node *reduction, const char *into, const char *text);
void add_to_column(Launch *p, const Sink *sink, const char *text, FILE *out);

/* cuda_row.c */
int64_t cuda_row_scratch(Module *m, const Func *kernel);
/* Does no launch overwrite operands of a later one?  If one does, sets copies of its results. */
bool cuda_row_accepts(Module *m, const Func *kernel, const Op *call, RequiredLayout wanted[]);
const char *emit_cuda_row(Module *m, const Func *kernel, const Op *call, const char *name, bool anonymous,
                          ShardOffsets *offsets, CudaLaunches *launches, FILE *out);

/* Kinds of kernels that may be in a group (cuda_group.h) with members of the same kind. */
typedef enum { NO_MEMBER, MEMBER_OF_POINTS, MEMBER_OF_SUMS } CudaMember;
CudaMember cuda_member(Module *m, const Func *kernel);
/* Writes the functions of one member, one for each launch. */
void emit_cuda_member(Module *m, const Func *kernel, const Op *call, const char *name, bool anonymous,
                      ShardOffsets *offsets, CudaLaunches *launches, FILE *out);

char *cuda_bounds(Module *m, int threads, int blocks); /* the arguments of __launch_bounds__ */
char *kernel_head(Module *m, const char *name, const char *bounds, int count, const char *const items[]);
char *launch_head(const Launch *p, const char *name, int threads);
const char *block_index(const Launch *p);      /* the number of the block: of a member, among its own */
const char *functor_of(const Node *reduction); /* RtSum, ... */

#endif
