/* repeat.h -- declarations shared by the parts of the lowering of loops: repeat.c, carried.c, numbered.c. */
#ifndef MPC_REPEAT_H
#define MPC_REPEAT_H

#include "lowering.h"

/* --- carried.c --------------------------------------------------------------------------------- */

typedef struct Carried {
    const char *name;
    Loc loc;          /* of the last assignment */
    Operand before;   /* outside */
    Symbol *after;    /* inside, at the end */
    bool read;        /* inside: read in the same iteration or the next one */
    Labelled *labels; /* inside, at the beginning */
    struct Carried *next;
} Carried;

extern const char observed[]; /* the name of the statistics of updates */

void collect_carried(Lower *l, const Ast *body, Carried **list);
void check_scanned(Lower *l, const Body *body, const Ast *ast, Carried *carried);
void carry_observed(Lower *l, Loc at, Carried **list);
void make_tensors(Lower *l, Carried *carried);
void enter_carried(Lower *l, Carried *carried);
bool leave_carried(Lower *l, Carried *carried);
void hand_on(Lower *l, const Scope *copy, const Carried *carried);
void declare_carried(Lower *l, const Body *body, const Carried *carried, const Op *loop);

/* --- numbered.c -------------------------------------------------------------------------------- */

/* Of a repeat that numbers its copies, over all of its runs. */
typedef struct {
    const Runs *run;
    Instance *before, *seen;         /* names of instances: those outside, and those of the copies so far */
    int first_dropout, last_dropout; /* all copies count theirs from the first one */
    bool used;                       /* is the number? */
} Numbering;

void lower_copy(Lower *l, const Ast *ast, Numbering *numbering, Body *body, const Carried *carried);
void lower_numbered(Lower *l, const Ast *ast);

/* --- repeat.c ---------------------------------------------------------------------------------- */

void lower_loop(Lower *l, const Ast *ast, Numbering *numbering); /* numbering: of a run; NULL: all copies are alike */
void lower_statements(Lower *l, const Ast *ast);
int64_t copies_of(Lower *l, const Ast *ast, int64_t most); /* below 0 after reporting */

#endif
