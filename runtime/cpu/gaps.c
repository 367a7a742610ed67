/* gaps.c -- finds zeros in messages, takes them out and puts them back. */
#include "gaps.h"

#include <string.h>

static int64_t unit_at(int64_t first, int64_t bytes) { return bytes - first < RT_UNIT ? bytes - first : RT_UNIT; }

static bool is_filled(const unsigned char *map, int64_t first)
{
    const int64_t unit = first / RT_UNIT;
    return map[unit / 8] >> unit % 8 & 1;
}

static bool any_bit(const char *at, int64_t bytes)
{
    uint64_t any = 0;
    for (; bytes >= 8; at += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        any |= word;
    }
    for (int64_t i = 0; i < bytes; i++)
        any |= (unsigned char)at[i];
    return any != 0;
}

int64_t rt_gaps_find(const char *message, int64_t bytes, unsigned char *map)
{
    memset(map, 0, (size_t)rt_gaps_map_bytes(bytes));
    for (int64_t first = 0; first < bytes; first += RT_UNIT)
        if (any_bit(message + first, unit_at(first, bytes)))
            map[first / RT_UNIT / 8] |= (unsigned char)(1 << first / RT_UNIT % 8);
    return rt_gaps_filled(map, bytes);
}

int64_t rt_gaps_filled(const unsigned char *map, int64_t bytes)
{
    int64_t filled = 0;
    for (int64_t first = 0; first < bytes; first += RT_UNIT)
        filled += is_filled(map, first) ? unit_at(first, bytes) : 0;
    return filled;
}

void rt_gaps_pack(const char *message, int64_t bytes, const unsigned char *map, char *packed)
{
    for (int64_t first = 0; first < bytes; first += RT_UNIT)
        if (is_filled(map, first)) {
            const int64_t some = unit_at(first, bytes);
            memmove(packed, message + first, (size_t)some);
            packed += some;
        }
}

/* No unit is written over one that has not been read: behind each place there is room for all that are left. */
void rt_gaps_unpack(char *message, int64_t bytes, const unsigned char *map)
{
    const char *next = message + bytes - rt_gaps_filled(map, bytes);
    for (int64_t first = 0; first < bytes; first += RT_UNIT) {
        const int64_t some = unit_at(first, bytes);
        if (is_filled(map, first)) {
            memmove(message + first, next, (size_t)some);
            next += some;
        } else {
            memset(message + first, 0, (size_t)some);
        }
    }
}
