/* map.h -- maps pointers to pointers: data of a pass about each value, without a field in the IR. */
#ifndef MPC_MAP_H
#define MPC_MAP_H

#include "arena.h"

#include <stdint.h>

typedef struct Map {
    Arena *arena;
    int count, room;
    struct MapEntry *entry; /* open addressing, at most half full */
} Map;

void *map_get(const Map *map, const void *key); /* NULL if absent */
void map_put(Map *map, const void *key, void *value);

uint32_t hash_text(const char *text, int length); /* for a map by texts */

#endif
