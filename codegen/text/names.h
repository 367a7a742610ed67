/* names.h -- C identifiers for the values of one function, and lists wrapped in the style of clang-format. */
#ifndef MPC_NAMES_H
#define MPC_NAMES_H

#include "codegen.h"
#include "fill.h"
#include "ir/map.h"

/* The identifiers used in one C function; those of C and of the runtime are reserved. */
typedef struct {
    Module *module;
    Map taken; /* texts that are interned */
    Map last;  /* text -> the number of its last identifier */
} NameSpace;

/* A name of a value of the function, or of any if that is NULL.  A value that the IR only numbers is called after what
 * it is a stack, a cast or zeros of; else after the statement of the model that it belongs to, or after its op; a
 * residual, as where it was made. */
const char *readable_name(Module *m, const Func *f, const Value *value);

/* `text` as an identifier unique in `names`: "x", else "x_2", "x_3", ... */
const char *new_identifier(NameSpace *names, const char *text);

/* `head`, the items with ", " between them, and `tail`: lines of at most 120 columns, continuation lines are aligned
 * with the first item.  `head` is one line, to be indented by `indent` columns later. */
char *wrapped_list(Module *m, const char *head, int nitems, const char *const items[], const char *tail, int indent);

/* "  { .size = 4, .init = ZEROS }", on one or several lines.  Fields with value NULL are omitted; the list ends with a
 * NULL name. */
typedef struct {
    const char *name, *value;
} Field;
char *initialiser_text(Module *m, const Field fields[]);

/* The lines before and after the rows of a table, which may be wider than clang-format permits. */
void open_table(const char *type, const char *name, FILE *out);
void close_table(FILE *out);

/* User text, made safe for a comment: it cannot end the comment or break the line. */
char *comment_text(Module *m, const char *text);

/* A number as a C constant: "0.5f", "(-1.0f)", "INFINITY"; "3", "(-1)" if is_integer. */
char *c_number(Module *m, double value, bool is_integer);

/* A C string, or NULL. */
char *string_text(Module *m, const char *text);

/* The C type of a value in a local: arithmetic is in float, or in int32_t. */
const char *local_type(DType dtype);

#endif
