/* room.h -- arrays of the planner that grow. */
#ifndef MPC_ROOM_H
#define MPC_ROOM_H

#include "arena.h"

#include <string.h>

/* An array with room for so many more, of which the first ones are kept. */
static inline void *room_for(Arena *arena, void *array, size_t size, int count, int more, int *room)
{
    if (count + more <= *room)
        return array;
    *room = 2 * (count + more);
    void *grown = arena_alloc(arena, (size_t)*room, size);
    return count ? memcpy(grown, array, size * (size_t)count) : grown;
}

#endif
