/* library.h -- shared by the files that call the runtime's kernels. */
#ifndef MPC_LIBRARY_H
#define MPC_LIBRARY_H

#include "extent.h"
#include "ir/operands.h"
#include "text/names.h"

enum { MAX_OPERANDS = 12 };

/* The operands and results of an op, with the names of their pointers in the emitted function. */
typedef struct {
    Module *m;
    const Op *op;
    int count;
    const Value *value[MAX_OPERANDS];
    OperandName is[MAX_OPERANDS];
    const char *name[MAX_OPERANDS]; /* in text */
    const char *variant;            /* appended to the name of the runtime's function: "" in C, "<8>" in CUDA */
    const char *more;               /* appended to its operands: "", ", scratch" */
    ShardOffsets *offsets;          /* receives those that the text uses */
    bool asks;                      /* a query: an unsupported layout is not an error */
} Operands;

/* Dims that are contiguous in all of some operands. */
typedef struct {
    int64_t size;
    int64_t stride[MAX_OPERANDS]; /* by operand; 0 if it has none of them */
} DimGroup;

int64_t size_along(const Operands *o, const Value *value, Name dim);

/* Reports an error if loops exceed the operand. */
void check_operand(const Operands *o, int operand, const Access *access);

/* Collapses `dims` over all operands into groups, outermost first; at most `room`, or an error.  Unused groups have
 * size 1.  False after an error. */
bool find_groups(const Operands *o, const Names *dims, const char *what, int room, DimGroup groups[]);

/* Of attention: the dims that queries and keys have in common, besides sequences and features, and those that only
 * queries have.  False after an error, also if features do not lie together. */
bool find_heads(const Operands *o, DimGroup both[2], DimGroup *group);

/* Of rope: the dims besides sequence and feature, those that positions have first. */
Names rope_others(const Operands *o);

/* The body of the function for one op; NULL after an error. */
typedef char *CallText(const Operands *o);
CallText call_pad, call_concat, call_gather, call_scatter_add, call_rope, call_cumulative, call_attend,
    call_attend_grad, call_attend_bias_grad, call_top_k, call_place, call_dispatch, call_combine, call_collect;

/* A memory order of an operand that is always supported: library_order.c. */
typedef Names OperandOrder(const Operands *o, int operand);
OperandOrder order_own, order_gather, order_scatter_add, order_rope, order_cumulative, order_attend, order_place,
    order_route;

/* Is there a kernel for the operands' layouts?  If not, sets the required ones. */
bool library_accepts(Module *m, const Op *op, RequiredLayout wanted[]);

/* The operand or result of that name; NULL if the op has none. */
const Value *operand_named(const Operands *o, OperandName name);

/* Names the operands of a LIBRARY op; false after an error, if there is no kernel or no storage. */
bool find_operands(Module *m, const Op *op, Operands *o);
Names library_order(const Operands *o, int operand);
char *library_body(const Operands *o);
char *library_comment(const Operands *o);
int library_parameters(const Operands *o, bool has_scratch, const char *const **list); /* how many */

/* Lines of the initialiser of a shape. */
void put_number(Text *fields, const char *name, int64_t value);
void put_text(Text *fields, const char *name, const char *value);
void put_flag(Text *fields, const char *name, bool value);
/* The strides of an operand in loops that it must not end before; the text has the first `shown` of them. */
void put_strides(const Operands *o, Text *fields, int operand, const char *name, int shown, Access loops);
void put_part(const Operands *o, Text *fields, const Dim *dim,
              const char *name);                                 /* an RtPart: the rank's part of the dim */
void put_dim(const Operands *o, Text *fields, const Dim *dim);   /* as the file calls it: the "seq" of "seq.from" */
void put_bound(const Operands *o, Text *fields, const Dim *dim); /* of an index, and the error text for larger ones */
char *call_with_shape(const Operands *o, const char *type, const char *function, const char *operands, Text *fields);

/* An error at the op; NULL. */
char *refuse_layout(const Operands *o, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
