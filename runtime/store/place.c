/* place.c -- see place.h. */
#include "place.h"

#include "state.h"

#include <stdlib.h>

char *rt_place_checksum(const char *step, const char *seed, const char *position, const char *order,
                        const char *sequences)
{
    char *text = rt_text("step=%s seed=%s position=%s order=%s sequences=%s", step, seed, position, order, sequences);
    uint64_t hash = 0xCBF29CE484222325u;
    for (const char *c = text; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 0x100000001B3u;
    free(text);
    return rt_text("%016llx", (unsigned long long)hash);
}
