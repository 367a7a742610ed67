/* build_ast.h -- what the grammar's actions call. */
#ifndef MPC_BUILD_AST_H
#define MPC_BUILD_AST_H

#include "ast.h"

Ast *make_ast(Reading *r, Loc loc, Ast ast);  /* reports a tree deeper than MAX_DEPTH */
Ast *append_ast(Ast *list, Ast *more);        /* either may be NULL */
Ast *type_of(Reading *r, Loc loc, const char *dtype, Ast *dims);
double number_of(Reading *r, const char *text); /* 50_257 */

/* Reports statements that stand where they may not. */
void check_places(Reading *r, Ast *file);

#endif
