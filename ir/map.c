#include "map.h"

#include <stdint.h>

struct MapEntry {
    const void *key;
    void *value;
};

static struct MapEntry *find_entry(const Map *map, const void *key)
{
    uint64_t hash =
        (uint64_t)(uintptr_t)key * 0x9E3779B97F4A7C15u; /* 2^64 by the golden ratio: its upper half is mixed */
    uintptr_t i = (uintptr_t)(hash >> 32);
    while (map->entry[i & (uintptr_t)(map->room - 1)].key && map->entry[i & (uintptr_t)(map->room - 1)].key != key)
        i++;
    return &map->entry[i & (uintptr_t)(map->room - 1)];
}

void *map_get(const Map *map, const void *key) { return map->room ? find_entry(map, key)->value : NULL; }

static void grow(Map *map)
{
    Map more = { .arena = map->arena, .count = map->count, .room = map->room ? map->room * 2 : 16 };
    more.entry = NEW_ARRAY(map->arena, struct MapEntry, more.room);
    for (int i = 0; i < map->room; i++)
        if (map->entry[i].key)
            *find_entry(&more, map->entry[i].key) = map->entry[i];
    *map = more;
}

void map_put(Map *map, const void *key, void *value)
{
    if (map->count * 2 >= map->room)
        grow(map);
    struct MapEntry *entry = find_entry(map, key);
    map->count += entry->key == NULL;
    *entry = (struct MapEntry){ key, value };
}
