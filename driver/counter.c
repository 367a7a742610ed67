/* counter.c -- how far a command is, on a terminal: "12 of 291 tensors", a line on stderr that changes each second. */
#include "counter.h"

#include <stdio.h>
#include <unistd.h>

void count(Counter *c)
{
    const time_t now = time(NULL);
    c->begun++;
    if (now == c->shown || !isatty(STDERR_FILENO))
        return;
    c->shown = now;
    fprintf(stderr, "\033[K%d of %d %s\r", c->begun, c->all, c->what); /* a message is written over it */
}

void end_counter(const Counter *c)
{
    if (c->shown)
        fputs("\033[K", stderr);
}
