/* pages.h -- the text in docs/ about a function, a setting or a word, for editors. */
#ifndef MPC_LSP_PAGES_H
#define MPC_LSP_PAGES_H

#include "arena.h"

/* As Markdown: what the tables of docs/language.md, experts.md and optimizers.md say of it.  NULL: nothing. */
const char *page_of_function(Arena *arena, const char *name);
const char *page_of_word(Arena *arena, const char *word); /* a setting, an argument, a statement */

#endif
