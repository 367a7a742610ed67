/* not_finite.c -- numbers of a checkpoint that are nan or infinite. */
#include "not_finite.h"

#include "state.h"

#include <string.h>

uint64_t rt_count_not_finite(const RtStored *stored, int64_t first, int64_t count)
{
    uint64_t found = 0;
    if (!strcmp(stored->dtype, "F32")) {
        for (int64_t i = first; i < first + count; i++) {
            uint32_t word;
            memcpy(&word, stored->data + 4 * i, 4);
            found += (word & 0x7F800000u) == 0x7F800000u;
        }
    } else if (!strcmp(stored->dtype, "BF16") || !strcmp(stored->dtype, "F16")) {
        const unsigned exponent = *stored->dtype == 'B' ? 0x7F80 : 0x7C00;
        for (int64_t i = first; i < first + count; i++) {
            uint16_t half;
            memcpy(&half, stored->data + 2 * i, 2);
            found += (half & exponent) == exponent;
        }
    }
    return found;
}

void rt_note_not_finite(const RtSafetensors *file, const uint64_t *counts)
{
    for (int i = 0; i < file->count; i++)
        if (counts[i])
            rt_note("note: %s %s: tensor '%s' has nan or infinite numbers (%llu)", file->option, file->path,
                    file->tensors[i].name, (unsigned long long)counts[i]);
}
