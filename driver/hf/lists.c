/* lists.c -- lists of numbers in config.json that a map feeds to parameters, as if they were tensors in f32:
 * `config.rope_parameters.long_factor [half] = longer`. */
#include "name_map.h"

#include <cjson/cJSON.h>
#include <string.h>

static const char prefix[] = "config.";

bool is_list_name(const char *name) { return strncmp(name, prefix, strlen(prefix)) == 0; }

static bool are_numbers(const cJSON *list)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        if (!cJSON_IsNumber(item))
            return false;
    }
    return cJSON_IsArray(list) && list->child;
}

static void add_list(Scan *scan, const char *name, const cJSON *list)
{
    Arena *arena = &scan->run->arena;
    NameMap *map = scan->map;
    const int count = cJSON_GetArraySize(list);
    float *numbers = NEW_ARRAY(arena, float, count), *at = numbers;
    StoredTensor *grown = NEW_ARRAY(arena, StoredTensor, map->nlists + 1);
    const cJSON *item;
    cJSON_ArrayForEach(item, list) { *at++ = (float)item->valuedouble; }
    for (int i = 0; i < map->nlists; i++)
        grown[i] = map->list[i];
    grown[map->nlists++] = (StoredTensor){ .name = name,
                                           .dtype = "F32",
                                           .width = 4,
                                           .rank = 1,
                                           .size = { count },
                                           .count = count,
                                           .end = 4 * (int64_t)count,
                                           .data = (const char *)numbers };
    map->list = grown;
}

bool read_list(Scan *scan, const char *name, Loc loc)
{
    const cJSON *list = use_key(scan, name + strlen(prefix));
    if (are_numbers(list)) {
        add_list(scan, name, list);
        return true;
    }
    error_at(&scan->map->diags, (Where){ .at = loc }, "config.json has no list of numbers under this key");
    return false;
}
