/* builtin_table.h -- the built-in functions, for editors. */
#ifndef MPC_LSP_BUILTIN_TABLE_H
#define MPC_LSP_BUILTIN_TABLE_H

enum { MOST_KEYWORDS_OF_BUILTIN = 8 };

typedef struct {
    const char *name, *usage;                          /* "dot", "dot(a, b, d, ...)" */
    const char *keyword[MOST_KEYWORDS_OF_BUILTIN + 1]; /* optional arguments; ends with NULL */
} BuiltinInfo;

extern const BuiltinInfo builtin_table[];
extern const int nbuiltins;

const BuiltinInfo *find_builtin(const char *name); /* NULL: none has that name */

#endif
