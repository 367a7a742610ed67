/* amount.c -- numbers with the prefix that fits their unit, nouns in the plural that fits their number. */
#include "amount.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

/* As rt_bytes_text of the runtime, which has no header of the compiler. */
static const char *with_prefix(Arena *arena, double number, const char *unit)
{
    static const char *const prefixes[] = { "", "k", "M", "G", "T", "P", "E" };
    size_t i = 0;
    while (number >= 999.5 && i < sizeof prefixes / sizeof *prefixes - 1) {
        number /= 1000;
        i++;
    }
    return arena_text(arena, i == 0 ? "%.0f %s%s" : "%.2f %s%s", number, prefixes[i], unit);
}

const char *bytes_text(Arena *arena, double bytes) { return with_prefix(arena, bytes, "B"); }
const char *flops_text(Arena *arena, double flops) { return with_prefix(arena, flops, "FLOP"); }

char *grouped(Arena *arena, int64_t number)
{
    char *digits = arena_text(arena, "%" PRId64, number), *text = "";
    int length = (int)strlen(digits);
    for (int at = 0, first = length % 3 ? length % 3 : 3; at < length; at += first, first = 3)
        text = arena_text(arena, "%s%s%.*s", text, at ? "," : "", first, digits + at);
    return text;
}

const char *counted(Arena *arena, int64_t number, const char *noun)
{
    const size_t length = strlen(noun);
    const bool takes_es = length >= 2 && strcmp(noun + length - 2, "ch") == 0; /* a batch */
    return arena_text(arena, "%s %s%s", grouped(arena, number), noun, number == 1 ? "" : takes_es ? "es" : "s");
}
