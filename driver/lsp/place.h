/* place.h -- the context of a place in the text, for completion: found in the text itself, since the line that is
 * being typed is seldom in the tree. */
#ifndef MPC_LSP_PLACE_H
#define MPC_LSP_PLACE_H

#include "text.h"

#include <stdbool.h>

/* The parts are in the arena; "" where there is none. */
typedef struct {
    bool is_comment;
    Loc word;            /* the part of a name before the place */
    const char *body;    /* the kind of `{ }` around it: "train", "block"; "file" outside of all */
    const char *first;   /* the first word of the statement; "": the place is at its begin */
    const char *before;  /* the last word before */
    char sign;           /* the last sign before that is no space: '=', ',', '[', ':', or a letter of `before` */
    char bracket;        /* the innermost open one in the statement: '(' or '['; 0: none */
    const char *callee;  /* the name in front of it */
    const char *keyword; /* KEY, after `KEY =` and no comma */
    int argument;        /* the number of commas in the bracket before the place */
} Place;

Place find_place(const Text *text, int offset, Arena *arena);

#endif
