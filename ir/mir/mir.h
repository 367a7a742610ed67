/* mir.h -- the text of a module.  Each text_*() both writes and reads: it has the order and the marks of what it is
 * for, and gives its parts to others, or gets them from there.  So what is written can be read.
 *
 *   head.c           the head of a module, and its functions in order
 *   mir.c            functions, ops, values
 *   attrs.c          attributes and settings, by their tables
 *   pipeline_text.c  the section of stages, which follows from the functions
 *   parse.c          tokens, names, dims and types, which type_text.c writes
 */
#ifndef MPC_MIR_H
#define MPC_MIR_H

#include "ir.h"
#include "map.h"

typedef struct {
    Module *module;
    FILE *out; /* is written there; NULL: is read from ... */
    const Source *source;
    int at; /* next byte */
    bool failed;
    Map values; /* of the present function, by name */
} Mir;

/* --- Both ways ----------------------------------------------------------------------------------- */

/* One token, with the spaces that are written around it; of spaces alone nothing is read. */
void mark(Mir *t, const char *token);

/* A token that is written if `is_set`.  Is it there? */
bool given(Mir *t, const char *token, bool is_set);

/* The same before '('. */
bool opens(Mir *t, const char *word, bool is_set);

/* A list of `count` items with commas between them.  Is there an i-th one?  Of a list that is read and may be empty,
 * `first` is the character that an item begins with; 0: there is one. */
bool another(Mir *t, int i, int count, char first);

void text_Name(Mir *t, Name *name);
void text_Names(Mir *t, Names *names);
void text_Quoted(Mir *t, Quoted *text); /* "text", of one line; \xNN is the byte of that number */
void text_Number(Mir *t, Number *number);
void text_Int(Mir *t, Int *number);
void text_natural(Mir *t, Int *number);           /* not negative */
void text_attrs(Mir *t, OpKind op, Attrs *attrs); /* of such an op */
void text_train(Mir *t, Train *train);
void text_type(Mir *t, Type *type);
void text_reference(Mir *t, const char *word, const char *sign, Name *name); /* " backward(@h.fwd)", if there is one */
void text_place(Mir *t, Name *path, Name *where); /* loc(path where), either may be missing: a `where` has a ':' */
void text_func(Mir *t, Func *f);                  /* this one, or the next one of the module */

/* --- Reading ------------------------------------------------------------------------------------- */

Loc from(const Mir *t, int begin);            /* the text read since `begin` */
bool fail(Mir *t, Loc loc, const char *what); /* reports the first error of a text; false */
bool fail_with_help(Mir *t, Loc loc, const char *what, const char *help);
char peek(Mir *t);                      /* the next byte that is not space or comment; 0 at the end */
bool accept(Mir *t, const char *token); /* punctuation, or a whole word, without spaces around it */
bool expect(Mir *t, const char *token);
Name read_name(Mir *t);
int read_word_of(Mir *t, const char *const words[], int first,
                 int end); /* one from words[first] on; 0 after an error */
Name read_quoted(Mir *t);
double read_number(Mir *t);
int64_t read_int(Mir *t);
int64_t read_natural(Mir *t);
Names read_names(Mir *t);
int read_axis(Mir *t, const char *unknown); /* of the mesh, or an error */
Axes read_axes(Mir *t);
RankSet read_ranks(Mir *t);
Dtype read_dtype(Mir *t);
Name read_parts(Mir *t); /* of a split: see Split */
int read_blocks(Mir *t); /* of zig-zag, for each rank */
Dims read_dims(Mir *t);
Type read_type(Mir *t);

#endif
