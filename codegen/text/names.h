/* names.h -- C identifiers for the values of one function, and lists that wrap as clang-format wraps them. */
#ifndef MPC_NAMES_H
#define MPC_NAMES_H

#include "codegen.h"
#include "fill.h"
#include "ir/map.h"

/* The identifiers that one C function has used; those of C and of the runtime are always taken. */
typedef struct {
    Module *module;
    Map taken; /* texts that are interned */
    Map last;  /* of such a text: the number behind its last identifier */
} NameSpace;

/* `text` as an identifier that nobody in `names` has: "x", else "x_2", "x_3", ... */
const char *new_identifier(NameSpace *names, const char *text);

/* `head`, the items with ", " between them, and `tail`: lines of at most 120 columns, of which the
 * later ones begin under the first item.  `head` is one line, indented by `indent` columns later. */
char *wrapped_list(Module *m, const char *head, int nitems, const char *const items[], const char *tail, int indent);

/* "    { .size = 4, .init = ZEROS }", which may be several lines.  Fields whose value is NULL are left out; the
 * list ends with a NULL name. */
typedef struct {
    const char *name, *value;
} Field;
char *initialiser_text(Module *m, const Field fields[]);

/* Around rows that hold more than clang-format leaves on a line. */
void open_table(const char *type, const char *name, FILE *out);
void close_table(FILE *out);

/* A text that somebody wrote, as part of a comment: it does not end the comment, and it stays on its line. */
char *comment_text(Module *m, const char *text);

/* A number as a C constant: "0.5f", "(-1.0f)", "INFINITY"; "3", "(-1)" where it meets integers. */
char *c_number(Module *m, double value, bool is_integer);

/* A C string, or NULL. */
char *string_text(Module *m, const char *text);

/* The C type of a value in a local: arithmetic is in float, or in int32_t. */
const char *local_type(DType dtype);

#endif
