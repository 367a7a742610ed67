/* names.h -- the symbol that each name in a model refers to.
 *
 * The language has one namespace without shadowing, so the tree alone says it: also in what a lowering does not look
 * at, such as blocks that are not called, and in a file with errors.
 */
#ifndef MPC_LSP_NAMES_H
#define MPC_LSP_NAMES_H

#include "syntax/ast.h"

typedef enum {
    N_CONST,
    N_DIM, /* of the file, made by a call, or a block's in brackets */
    N_BLOCK,
    N_MODEL,
    N_OPTIMIZER,
    N_INPUT,
    N_PARAM,
    N_STATE,
    N_ARGUMENT,
    N_NUMBER, /* an argument `: const`, the number of a copy, an argument of an optimizer */
    N_VALUE,
    N_INSTANCE, /* after `as` */
    N_AXIS,     /* of the mesh */
    N_NAME_KINDS
} NameKind;

typedef struct Declaration {
    NameKind kind;
    const char *name;
    Loc at;                     /* where it is declared or first assigned */
    Loc scope;                  /* where it can be used */
    const char *holder;         /* the block, model or optimizer that it is in; "": none */
    const Ast *declared;        /* the statement; of an argument the A_ARG */
    struct Declaration *older;  /* in the list of all */
    struct Declaration *before; /* in the same scope */
} Declaration;

typedef enum {
    M_DECLARES, /* or assigns again */
    M_USES,
    M_FUNCTION, /* a built-in function */
    M_KEYWORD,  /* the name of an argument or option */
    M_SETTING,  /* of train */
    M_WORD      /* a word of the language: f32, adamw, selective */
} MentionKind;

/* A name in the text. */
typedef struct {
    MentionKind kind;
    Loc at;
    const char *name;
    Declaration *of;   /* of the first two kinds */
    int since;         /* M_DECLARES: the end of the statement, from which on it holds */
    bool has_type;     /* M_DECLARES: the statement says the type, or yields it at each place */
    const char *whose; /* M_KEYWORD: the function or statement that takes the argument */
} Mention;

typedef struct {
    Arena *arena;
    Declaration *newest;
    int count, room;
    Mention *mention; /* in the order of the text */
} NameTable;

void find_names(NameTable *names, const Ast *file, int length); /* length: of the source */

const Mention *mention_at(const NameTable *names, int offset); /* also just behind a name; NULL: none */

/* The place that gives the name its meaning there: its last assignment before, or its declaration. */
Loc definition_of(const NameTable *names, const Mention *mention);

/* The name in another version of the text; NULL: it has none. */
const Declaration *same_name(const NameTable *names, const Declaration *named);

#endif
