/* term.h -- algebra as data: `d * (1 - y * y)` read from a table, matched, and built into ops.
 *
 * One letter is a variable; a longer word with ( ) is an op; + - * / and unary - have their usual meaning.
 */
#ifndef MPC_TERM_H
#define MPC_TERM_H

#include "ir.h"

typedef struct Term {
    enum { VARIABLE, NUMBER, OP } is;
    char letter;   /* VARIABLE */
    double number; /* NUMBER */
    OpKind kind;   /* OP */
    struct Term *arg[3];
} Term;

typedef struct {
    Value *value[26];
} Binding; /* of the letters a to z */

/* Aborts on a malformed text: all texts are constants of the compiler. */
Term *read_term(Arena *arena, const char *text);

bool match(const Term *term, Value *value, Binding *binding);
Value *build_term(Builder *b, const Term *term, const Binding *binding);

#endif
