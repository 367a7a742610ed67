/* record.c -- records the results of a lowering besides the module: effective settings, dims that must keep their
 * sizes, values that mix sequences. */
#include "lowering.h"

#include <string.h>

void add_setting(Lower *l, const char *name, const char *value, const char *unit, const char *from)
{
    Settings *s = l->settings;
    GROW(l->arena, s->at, s->count, s->room);
    s->at[s->count++] = (Setting){ .name = name, .value = value, .unit = unit, .from = from };
}

void note_mixing(Lower *l, const Value *value, Where where)
{
    Mixing *mixed = NEW(l->arena, Mixing);
    *mixed = (Mixing){ .at = where.at, .help = where.help, .by_itself = true };
    map_put(&l->now.mixing, value, mixed);
}

bool is_whole_dim(const WholeDims *whole, const char *dim)
{
    for (int i = 0; whole && i < whole->count; i++)
        if (strcmp(whole->at[i], dim) == 0)
            return true;
    return false;
}

bool add_whole_dim(WholeDims *whole, Arena *arena, const char *dim)
{
    if (is_whole_dim(whole, dim) || whole->count == MAX_WHOLE)
        return false;
    whole->at[whole->count++] = arena_text(arena, "%s", dim);
    return true;
}

void note_element(Lower *l, const Dim *dim)
{
    if (l->options->shrink)
        add_whole_dim(l->options->whole, l->diags->arena, dim->name);
}
