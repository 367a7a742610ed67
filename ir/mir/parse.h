/* parse.h -- shared by the two parts of the IR parser: parse_text.c (tokens, types, attributes) and parse.c (ops,
 * functions, modules). */
#ifndef MPC_PARSE_H
#define MPC_PARSE_H

#include "ir.h"
#include "map.h"

typedef struct {
    Module *module;
    const Source *source;
    int at; /* next byte */
    bool failed;
    Map values; /* of the present function, by name */
} Parser;

Loc from(const Parser *p, int begin);            /* the text read since `begin` */
bool fail(Parser *p, Loc loc, const char *what); /* reports the first error of a text; false */
char peek(Parser *p);                            /* the next byte that is not space or comment; 0 at the end */
bool accept(Parser *p, const char *token);       /* punctuation, or a whole word */
bool expect(Parser *p, const char *token);
Name read_name(Parser *p);
int read_word_of(Parser *p, const char *const words[], int count); /* from words[1] on; 0 after an error */
Name read_quoted(Parser *p); /* "text", of one line; \xNN is the byte of that number */
double read_number(Parser *p);
int64_t read_int(Parser *p);
int64_t read_natural(Parser *p); /* not negative */
Names read_names(Parser *p);
Name read_parts(Parser *p); /* of a split: see Split */
int read_blocks(Parser *p); /* of zig-zag, for each rank */
Type read_type(Parser *p);
Storage *read_storage(Parser *p, const Type *type);  /* NULL if absent */
void read_attrs(Parser *p, OpKind op, Attrs *attrs); /* of such an op */
void read_train(Parser *p, Train *train);

extern const char *const making_name[N_MAKINGS]; /* print.c: the words of `dim NAME like OTHER` */

#endif
