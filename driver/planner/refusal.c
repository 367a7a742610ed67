/* refusal.c -- collects the reasons for which layouts cannot be compiled: the first of each kind, and their number. */
#include "planner.h"

#include <string.h>

/* Do they differ in numbers alone? */
static bool is_alike(const char *a, const char *b)
{
    static const char digits[] = "0123456789";
    for (; *a && *b; a++, b++) {
        const size_t of_a = strspn(a, digits), of_b = strspn(b, digits);
        a += of_a, b += of_b;
        if ((of_a > 0) != (of_b > 0) || *a != *b || !*a)
            break;
    }
    return !*a && !*b;
}

void note_refusal(Planner *p, Answer *answer, const PlanLayout *layout, double count, const char *why)
{
    Refusal **at = &answer->refusals;
    answer->tally.refused += count;
    while (*at && !is_alike((*at)->why, why))
        at = &(*at)->next;
    if (!*at) {
        *at = NEW(p->arena, Refusal);
        **at = (Refusal){ .why = why, .first = *layout };
    }
    (*at)->count += count;
}
