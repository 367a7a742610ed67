/* repeat.h -- declarations shared by the parts of the lowering of loops: repeat.c, carried.c, recurrence.c,
 * numbered.c. */
#ifndef MPC_REPEAT_H
#define MPC_REPEAT_H

#include "expr.h"

/* --- carried.c --------------------------------------------------------------------------------- */

typedef struct LoopValue {
    const char *name;
    Loc loc;         /* of the last assignment */
    Operand before;  /* outside */
    Symbol *after;   /* inside, at the end */
    bool read;       /* inside: read in the same iteration or the next one */
    Entropy *labels; /* inside, at the beginning */
    struct LoopValue *next;
} LoopValue;

extern const char observed[]; /* the name of the statistics of updates */

void collect_carried(Lower *l, const Ast *body, LoopValue **list);
void check_scanned(Lower *l, const Body *body, const Ast *ast, LoopValue *carried);
void carry_observed(Lower *l, Loc at, LoopValue **list);
void make_tensors(Lower *l, LoopValue *carried);
void enter_carried(Lower *l, LoopValue *carried);
bool leave_carried(Lower *l, LoopValue *carried);
void pass_to_next_copy(Lower *l, const Scope *copy, const LoopValue *carried);
void declare_carried(Lower *l, const Body *body, const LoopValue *carried, const Op *loop);

/* --- recurrence.c: what a scan has that a repeat has not ------------------------------------------------ */

bool begin_scan(Lower *l, const Ast *ast, Body *body); /* reads the head; false after an error */
bool leave_yielded(Lower *l, Body *body);              /* they become results of the body; false after an error */
Value *stack_first(Lower *l, Body *body, Value *x);    /* an operand of the loop, in the order that it slices */
void declare_yielded(Lower *l, const Body *body, const Op *loop); /* NULL: there are errors */

/* --- numbered.c -------------------------------------------------------------------------------- */

/* Of a repeat that numbers its copies, over all of its runs. */
typedef struct {
    const Runs *run;
    Instance *before, *seen;         /* names of instances: those outside, and those of the copies so far */
    int first_dropout, last_dropout; /* all copies count theirs from the first one */
    bool used;                       /* is the number? */
} Numbering;

void lower_copy(Lower *l, const Ast *ast, Numbering *numbering, Body *body, const LoopValue *carried);
void lower_numbered(Lower *l, const Ast *ast);

/* --- repeat.c ---------------------------------------------------------------------------------- */

void lower_loop(Lower *l, const Ast *ast, Numbering *numbering); /* numbering: of a run; NULL: all copies are alike */
void lower_statements(Lower *l, const Ast *ast);
int64_t copies_of(Lower *l, const Ast *ast, int64_t most); /* below 0 after reporting */

#endif
