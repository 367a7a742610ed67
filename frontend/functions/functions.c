/* functions.c -- the table of the functions of the language, which lowering is given. */
#include "functions.h"

/* clang-format off */
const Builtin functions[] = {
#define KEYWORDS(...) { __VA_ARGS__ }
#define NONE { NULL }
#define BUILTIN(name, args, keywords, lower, usage) { #name, args, keywords, apply_##lower, usage },
#include "builtins.def"
    { .name = NULL }
};
/* clang-format on */
