/* expr.h -- expressions and statements. */
#ifndef MPC_EXPR_H
#define MPC_EXPR_H

#include "emit.h"

/* --- Expressions -------------------------------------------------------------------------------- */

Operand lower_expr(Lower *l, const Ast *ast);
Value *lower_tensor(Lower *l, const Ast *ast);                /* numbers become scalars; NULL after an error */
bool constant_of(Lower *l, const Ast *ast, Constant *number); /* false after reporting */
bool is_constant(const Lower *l, const Ast *ast);             /* would it be one?  Builds nothing */
bool integer_of(Lower *l, const Ast *ast, const char *what, int64_t least, int64_t most, int64_t *number);
void look_at_arguments(Lower *l, const Ast *list); /* of a call with an error: marks names as used, reports errors */

bool is_function(const Lower *l, const char *name); /* of the language */
Operand call_function(Lower *l, const Ast *call);
Operand choose(Lower *l, const Ast *call);                     /* if(c, a, b) */
Operand call_block(Lower *l, const Ast *call, Symbol *called); /* the only value that it returns */
/* The values of an expression: a block may return several, top_k has two; none after an error. */
typedef struct {
    int count;
    Operand *at;
} Results;
Results results_of(Lower *l, const Ast *ast);

/* --- Statements --------------------------------------------------------------------------------- */

void lower_statement(Lower *l, const Ast *ast); /* one of these */
void lower_repeat(Lower *l, const Ast *ast);    /* or a scan */
/* --- state.c ---------------------------------------------------------------------------------------- */

void declare_state(Lower *l, Symbol *symbol);
Symbol *find_updated(Lower *l, const Ast *ast); /* the state or parameter of this block; NULL after reporting */
bool has_update(const Lower *l, Port tensor);   /* of an instance with several uses, by another one */
/* The update of a tensor of the module: `after` is its new value. */
void write_update(Lower *l, const Ast *ast, Symbol *symbol, const Value *tensor, Value *after);
/* Adds a term to the loss that is zero, and whose gradient by the state is the statistic.  still: the state, constant.
 */
void add_statistic(Lower *l, Value *state, Value *still, Value *statistic);
bool has_updates(const Lower *l, const Ast *body); /* also in the blocks that it calls */

/* --- locals.c: names of values ---------------------------------------------------------------------- */

void name_result(Lower *l, const char *name, Loc loc, Operand operand);
void check_used(Lower *l, const Scope *scope);  /* at its end */
void note_unlowered(Lower *l, const Ast *list); /* not lowered here: its names are used all the same */

/* --- mean.c -------------------------------------------------------------------------------------- */

bool is_mean(const Lower *l); /* in a use of such an instance */
/* The parameter `full` as a mean of that of the other instance; false after reporting. */
bool begin_mean(Lower *l, Name full, Param *param);
void update_mean(Lower *l, const Param *param); /* once it is in the module */

#endif
