/* builtin_table.c -- the built-in functions, from builtins.def. */
#include "builtin_table.h"

#include <stddef.h>
#include <string.h>

#define NONE NULL
#define KEYWORDS(...) __VA_ARGS__

const BuiltinInfo builtin_table[] = {
#define BUILTIN(name, args, keywords, lower, usage) { #name, usage, { keywords } },
#include "builtins.def"
};
const int nbuiltins = sizeof builtin_table / sizeof builtin_table[0];

const BuiltinInfo *find_builtin(const char *name)
{
    for (int i = 0; i < nbuiltins; i++)
        if (strcmp(builtin_table[i].name, name) == 0)
            return &builtin_table[i];
    return NULL;
}
