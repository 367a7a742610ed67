/* machine_shipped.c -- the machines that mpc has, as texts: machines/, embedded when mpc is built. */
#include "machine.h"

#include <string.h>

/* A text is longer than the 4,095 characters that a compiler must accept. */
#pragma GCC diagnostic ignored "-Woverlength-strings"
#include "machines.h"

static const struct {
    const char *name, *text;
} shipped[] = {
    { "a100", a100_template }, { "gh200", gh200_template },     { "h100", h100_template },
    { "h200", h200_template }, { "rtx4090", rtx4090_template },
};
enum { N_SHIPPED = sizeof shipped / sizeof *shipped };

const char *shipped_machine(const char *name, NearMiss *near)
{
    for (int i = 0; i < N_SHIPPED; i++) {
        if (!strcmp(name, shipped[i].name))
            return shipped[i].text;
        offer(near, shipped[i].name);
    }
    return NULL;
}

const char *shipped_machines(Arena *arena)
{
    const char *all = shipped[0].name;
    for (int i = 1; i < N_SHIPPED; i++)
        all = arena_text(arena, "%s, %s", all, shipped[i].name);
    return all;
}
