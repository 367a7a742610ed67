/* fill.h -- code from templates: C with $holes. */
#ifndef MPC_FILL_H
#define MPC_FILL_H

#include "ir/arena.h"

#include <stdio.h>

typedef struct {
    const char *name, *text;
} Hole;

/* Writes `pattern` with every $name replaced by the text of the hole of that name.
 *
 * A hole alone on its line takes any number of lines: each is indented as the hole was (but for
 * preprocessor lines, which stand at the left), and an empty text removes the line.  A name that
 * has no hole, or a hole that no name asked for, is a mistake of ours: it aborts, saying which. */
void fill(FILE *out, const char *pattern, const Hole holes[]);

#define FILL(out, pattern, ...) fill((out), (pattern), (const Hole[]){ __VA_ARGS__, { NULL, NULL } })

/* A text in memory, written as a FILE. */
typedef struct {
    char *text;
    size_t size;
    FILE *out;
} Text;

void open_text(Text *text);
char *close_text(Arena *arena, Text *text); /* what was written */

#endif
