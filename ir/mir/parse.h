/* parse.h -- what the two halves of the IR parser share: parse_text.c (tokens, types, attributes)
 * and parse.c (ops, functions, modules). */
#ifndef MPC_PARSE_H
#define MPC_PARSE_H

#include "ir.h"
#include "map.h"

typedef struct {
    Module *module;
    const Source *source;
    int at; /* next byte */
    bool failed;
    Map values; /* of the function that is being read, by name */
} Parser;

Loc from(const Parser *p, int begin);            /* what was read since `begin` */
bool fail(Parser *p, Loc loc, const char *what); /* reports the first error of a text; false */
char peek(Parser *p);                            /* the next byte that means something; 0 at the end */
bool accept(Parser *p, const char *token);       /* punctuation, or a word that ends where a name would end */
bool expect(Parser *p, const char *token);
Name read_name(Parser *p);
Name read_quoted(Parser *p); /* "text", of one line; in it \xNN is the byte of that number */
double read_number(Parser *p);
int64_t read_int(Parser *p);
Axes read_axes(Parser *p);
Names read_names(Parser *p);
Type read_type(Parser *p);
Storage *read_storage(Parser *p, const Type *type); /* NULL if none is said */
void read_attrs(Parser *p, Attrs *attrs);
void read_train(Parser *p, Train *train);

#endif
