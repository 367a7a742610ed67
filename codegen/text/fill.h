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
 * A hole alone on its line may have any number of lines: each is indented like the hole (except preprocessor lines,
 * which are not indented), and an empty text removes the line.  A name without a hole, or an unused hole, is a bug:
 * fill() reports it and aborts. */
void fill(FILE *out, const char *pattern, const Hole holes[]);

#define FILL(out, pattern, ...) fill((out), (pattern), (const Hole[]){ __VA_ARGS__, { NULL, NULL } })

/* The same as a text in the arena. */
char *filled(Arena *arena, const char *pattern, const Hole holes[]);
#define FILLED(arena, pattern, ...) filled((arena), (pattern), (const Hole[]){ __VA_ARGS__, { NULL, NULL } })

/* A text in memory, written as a FILE. */
typedef struct {
    char *text;
    size_t size;
    FILE *out;
} Text;

void open_text(Text *text);
char *close_text(Arena *arena, Text *text); /* returns the written text */

#endif
