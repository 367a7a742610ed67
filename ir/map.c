#include "map.h"

struct MapEntry {
    const void *key;
    void *value;
};

static struct MapEntry *find_entry(const Map *map, const void *key)
{
    uint64_t hash =
        (uint64_t)(uintptr_t)key * 0x9E3779B97F4A7C15u; /* 2^64 by the golden ratio: its upper half is mixed */
    struct MapEntry *const all = map->entry;
    const uintptr_t last = (uintptr_t)map->room - 1;
    uintptr_t i = (uintptr_t)(hash >> 32) & last;
    while (all[i].key && all[i].key != key)
        i = (i + 1) & last;
    return &all[i];
}

void *map_get(const Map *map, const void *key) { return map->room ? find_entry(map, key)->value : NULL; }

static void grow(Map *map)
{
    enum { FIRST = 16, SMALL = 256 }; /* by 4, entries move a third as often; large ones would be empty for the most */
    const int growth = map->room < SMALL ? 4 : 2;
    Map more = { .arena = map->arena, .count = map->count, .room = map->room ? map->room * growth : FIRST };
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

uint32_t hash_text(const char *text, int length)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (int i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)text[i]) * 16777619u;
    return hash;
}
