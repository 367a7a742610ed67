/* stages.c -- see stages.h. */
#include "stages.h"

void cut_repeats(const int64_t *copies, int repeats, const int64_t *stage, int64_t part[][MAX_SET_RANKS])
{
    int at = 0;
    int64_t room = stage[0];
    for (int repeat = 0; repeat < repeats; repeat++) {
        for (int i = 0; i < MAX_SET_RANKS; i++)
            part[repeat][i] = i == at ? 0 : -1;
        for (int64_t left = copies[repeat]; left > 0;) {
            while (!room)
                room = stage[++at];
            const int64_t taken = left < room ? left : room;
            part[repeat][at] = taken;
            left -= taken;
            room -= taken;
        }
    }
}
