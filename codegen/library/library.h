/* library.h -- shared by the files that call the runtime's kernels. */
#ifndef MPC_LIBRARY_H
#define MPC_LIBRARY_H

#include "extent.h"
#include "text/names.h"

enum { MAX_OPERANDS = 9 };

/* The operands and results of an op, with the names of their pointers in the function that is written. */
typedef struct {
    Module *m;
    const Op *op;
    int count;
    const Value *value[MAX_OPERANDS];
    const char *name[MAX_OPERANDS];
    const char *variant; /* behind the name of the runtime's function: "" in C, "<8>" in CUDA */
    const char *more;    /* behind its operands: "", ", scratch" */
    bool asks;           /* is there a kernel for this layout?  Where there is none, that is no error */
} Operands;

/* Dims that lie one behind the other in all of some operands. */
typedef struct {
    int64_t size;
    int64_t stride[MAX_OPERANDS]; /* by operand; 0 where it has none of them */
} DimGroup;

int64_t stride_along(const Value *value, Name dim); /* 0 if it does not have the dim */
int64_t size_along(const Operands *o, const Value *value, Name dim);

/* Collapses `dims` over all operands into groups, outermost first; at most `room`, or an error.  Groups that are
 * not needed have size 1.  False after an error. */
/* The loops over one operand may not go beyond it; an error if they do. */
void check_operand(const Operands *o, int operand, const Access *access);

bool find_groups(const Operands *o, const Names *dims, const char *what, int room, DimGroup groups[]);

/* The body of the function for one op; NULL after an error. */
typedef char *CallText(const Operands *o);
CallText call_pad, call_concat, call_gather, call_scatter_add, call_rope, call_attend, call_attend_grad;

/* The memory order of an operand in which the op has a kernel whatever else there is: library_order.c. */
typedef Names OperandOrder(const Operands *o, int operand);
OperandOrder order_own, order_scatter_add, order_rope, order_attend;

/* Is there a kernel for the operands as they lie?  If not, how it wants them. */
bool library_takes(Module *m, const Op *op, Wanted wanted[]);

/* What the operands of a LIBRARY op are called; false after an error, where there is no kernel or no storage. */
bool find_operands(Module *m, const Op *op, Operands *o);
Names library_order(const Operands *o, int operand);
char *library_body(const Operands *o);
char *library_comment(const Operands *o);
int library_parameters(const Operands *o, bool has_scratch, const char *const **list); /* how many */

/* An error at the op; NULL. */
char *refuse_layout(const Operands *o, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
