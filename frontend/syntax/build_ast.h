/* build_ast.h -- shared by scanner and grammar: the state of the parser, and functions for the grammar's actions. */
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
    bool wants_expression; /* parse_expression: select this start symbol by the first token */
    bool told;             /* that first token has been returned */
    int at;                /* offset of the next byte */

    /* The positions of open ( [ and of open {, outermost first.  The counts may exceed MAX_OPEN. */
    Loc open[MAX_OPEN], braces[MAX_OPEN];
    int nopen, nbraces;

    bool recovering;     /* from an error: the next line break is a token, even inside brackets */
    bool ended;          /* the end of the last line has been returned, newline or not */
    bool brace_below;    /* the { that is missing in a line begins the next one */
    bool told_end;       /* the error about open brackets at the end has been reported */
    int lost, lost_here; /* braces skipped in recovery, whose ends are skipped, too; those of this line */
    bool closes;         /* the last } matches a { */
    Loc forgotten;       /* a bracket that is still open at the start of a statement */
    bool optimizes;      /* in an optimizer, where the dims of a matrix have second names: in' */
    bool tells_places;   /* reports statements in invalid contexts */
    Loc outer, around;   /* the first declaration at the start of a line inside braces, and those braces */
} Reading;

Ast *make_ast(Reading *r, Loc loc, Ast ast);                          /* reports a tree deeper than MAX_DEPTH */
Ast *append_ast(Ast *list, Ast *more);                                /* either may be NULL */
Ast *output_of(Reading *r, Loc loc, Ast *name, Ast *type, Ast *init); /* NULL: none */
Ast *type_of(Reading *r, Loc loc, const char *dtype, Ast *dims);
Ast *take_number(Ast *repeat);                  /* of `repeat minimum(a, b) as i`: the name is not one of the call */
double number_of(Reading *r, const char *text); /* 50_257 */

/* For the help of an error: which bracket is open; which brace, and what stands inside of it. */
const char *open_help(Reading *r, Loc open);
const char *open_brace_help(Reading *r);

/* The file without statements in invalid contexts, which are reported. */
Ast *check_places(Reading *r, Ast *file);

#endif
