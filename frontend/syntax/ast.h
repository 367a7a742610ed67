/* ast.h -- the syntax tree of a .mdl file, before names are resolved.
 *
 * One flat struct for every kind of node; the comment on a kind lists the fields that it uses.
 */
#ifndef MPC_AST_H
#define MPC_AST_H

#include "arena.h"
#include "diag.h"

#include <stdbool.h>

typedef enum {
    /* Expressions */
    A_NUMBER, /* number, is_integer; name: as written */
    A_STRING, /* name: the text between the quotes */
    A_BOOL,   /* number: 1 or 0 */
    A_NAME,   /* name */
    A_CALL, /* name[dims](child, ...): arguments, among them A_KEYWORD and A_ARROW; as: instance name or NULL; frozen */
    A_KEYWORD, /* name = child, in an argument list or an index */
    A_ARROW,   /* child -> name: rename(x, a -> b): child is the A_NAME a; also number -> name (top_k) */
    A_PARTS,  /* init -> (child: A_NAME ...), in an argument list: one dim as several; init: a right one is an A_NAME */
    A_JOIN,   /* (child: A_NAME ...) -> name: several as one */
    A_RANGE,  /* child : child->next -> name (NULL: none), in an index */
    A_UNARY,  /* name: "-"; child */
    A_BINARY, /* name: + - * / % ^ < <= > >= == !=; child, child->next; name_loc: the operator */
    A_INDEX,  /* child[name = child->next]; name_loc: the dim */
    /* Types */
    A_TYPE, /* name: the dtype or NULL; child: A_NAME for each dim; ellipsis: begins with `...` */
    /* Statements of a file */
    A_CONST,     /* name = child */
    A_DIM,       /* name = child (NULL: no size) padded type (NULL: none; an expression) */
    A_BLOCK,     /* name[dims](child: A_ARG ...) { body } */
    A_ARG,       /* name: type (NULL: a const) */
    A_MODEL,     /* name { body } */
    A_TRAIN,     /* { body: A_SETTING ... } */
    A_PARALLEL,  /* { body } */
    A_OPTIMIZER, /* name(child: A_KEYWORD with a default, or A_NAME ...) { body } */
    A_STATE,     /* of an optimizer; child: A_NAME ... (: type) = init */
    A_UPDATED,   /* of an optimizer; child */
    /* Statements of a block or model */
    A_PARAM,  /* child: A_NAME ... : type = init (an A_CALL or A_NAME) no_decay frozen; or is_state */
    A_UPDATE, /* name = init */
    A_MEAN,   /* state child = `as` (the words "mean of") name (of an instance) (init: the share of the old mean) */
    A_INPUT,  /* name : type = init (NULL: none) */
    A_ASSIGN, /* child: A_NAME ... (: type) = init */
    A_REPEAT, /* init: number of iterations; as: what their number is called, or NULL; body */
    A_SCAN,   /* name: the dim; type: options, A_NAME or A_KEYWORD; body */
    A_YIELD,  /* of a scan; name (: type) = init */
    A_RETURN, /* child, ... */
    A_LOSS,   /* child */
    A_OUTPUT, /* name; child: A_NAME, or body: the A_ASSIGN that gives the name */
    /* Statements of train and parallel */
    A_SETTING,   /* name = child */
    A_GROUP,     /* name: the text of patterns; child: A_CALL; without a name: of the arguments to change */
    A_MESH,      /* child: A_KEYWORD name = number ... */
    A_SHARD,     /* child: A_NAME or A_PAIR ... over name else init (A_NAME, NULL: none); type: options */
    A_LIST,      /* [child, ...]: the value of an option */
    A_PAIR,      /* (child, child->next) */
    A_PIPELINE,  /* child: A_NAME ... over init (A_NAME), type: A_KEYWORD options */
    A_ZERO,      /* number over init (A_NAMEs or NULL), child: options, A_NAME or A_KEYWORD */
    A_RECOMPUTE, /* child: A_NAME or A_CALL */
    A_OFFLOAD /* child: A_NAME ... as (the word "to") name (of the tier) init (A_STRING, NULL: none) type: A_KEYWORD */
} AstKind;

typedef struct Ast {
    AstKind kind;
    Loc loc;      /* all of it */
    Loc name_loc; /* of the name, operator or keyword, for messages */
    const char *name;
    double number;
    bool is_integer, ellipsis, no_decay, frozen, is_state;
    bool parenthesised; /* in the source; for mpc fmt */
    const char *as;     /* A_CALL, A_REPEAT */
    Loc as_loc;
    struct Ast *child, *type, *init, *body; /* lists are linked by next */
    struct Ast *dims;                       /* of A_BLOCK and A_CALL: A_NAME ..., the names in brackets */
    struct Ast *next;
    struct Ast *last; /* of a list, at its head */
    int depth;        /* of the tree below */
} Ast;

/* The statements of a file; NULL for an empty one.  Reports every syntax error; the tree has the valid parts. */
Ast *parse_mdl(const Source *source, Diags *diags, Arena *arena);

/* One expression, for values on the command line.  NULL after an error. */
Ast *parse_expression(const Source *source, Diags *diags, Arena *arena);

#endif
