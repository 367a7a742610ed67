/* build_ast.h -- what scanner and grammar share: the state of the parser, and the functions that the grammar's actions
 * call. */
#ifndef MPC_BUILD_AST_H
#define MPC_BUILD_AST_H

#include "ast.h"

enum { MAX_OPEN = 256, MAX_DEPTH = 500 };

typedef struct {
    Arena *arena;
    Diags *diags;
    const Source *source;
    Ast *file;             /* the result */
    Ast *expression;       /* the result of parse_expression */
    bool wants_expression; /* parse_expression: the first token says so */
    bool told;             /* that it wants an expression */
    int at;                /* offset of the next byte */

    /* Where ( [ and where { are open, outermost first.  The counts may exceed MAX_OPEN. */
    Loc open[MAX_OPEN], braces[MAX_OPEN];
    int nopen, nbraces;

    bool recovering;     /* from an error: the next end of line is one, whatever is open */
    bool ended;          /* the last line has had its end, newline or not */
    bool told_end;       /* that something is open there */
    int lost, lost_here; /* braces the parser has not seen, whose ends are skipped; those of this line */
    bool closes;         /* the last } had a { */
    Loc forgotten;       /* the bracket that is open where a statement begins */
    Loc outer, around;   /* the first declaration that begins a line inside braces, and those braces */
} Reading;

Ast *make_ast(Reading *r, Loc loc, Ast ast); /* reports a tree deeper than MAX_DEPTH */
Ast *append_ast(Ast *list, Ast *more);       /* either may be NULL */
Ast *type_of(Reading *r, Loc loc, const char *dtype, Ast *dims);
double number_of(Reading *r, const char *text); /* 50_257 */

/* Reports statements that stand where they may not. */
void check_places(Reading *r, Ast *file);

#endif
