/* keys.c -- keys of config.json, read by a map: older names, defaults, and which items have been read.  A key that
 * nothing reads may still change what transformers computes, so unread.c reports it. */
#include "name_map.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ALIASES = 3 }; /* one after the other: rope_parameters.rope_type, rope_parameters.type, rope_scaling.type */

/* The item of a key with dots, "rope_parameters.rope_theta", "depths.0"; NULL if there is none. */
static const cJSON *find_exact(const cJSON *config, const char *key)
{
    char part[128];
    const char *word;
    int length;
    while (config && next_word(&key, '.', &word, &length)) {
        snprintf(part, sizeof part, "%.*s", length, word);
        config = cJSON_IsArray(config) && strspn(part, "0123456789") == (size_t)length
                     ? cJSON_GetArrayItem(config, atoi(part))
                     : cJSON_GetObjectItemCaseSensitive(config, part);
    }
    return config;
}

/* Is it the key, or within it?  The rest: ".rope_theta". */
static const char *rest_of(const char *key, const char *outer)
{
    const size_t length = strlen(outer);
    return strncmp(key, outer, length) == 0 && (!key[length] || key[length] == '.') ? key + length : NULL;
}

/* The item under this key, or else under an older name; NULL: there is none. */
static const cJSON *find_item(const Scan *scan, const char *key, int aliases)
{
    const cJSON *item = find_exact(scan->config, key);
    for (const KeyRule *rule = scan->map->keys.rules; rule && (!item || cJSON_IsNull(item)); rule = rule->next) {
        const char *rest = rule->older && aliases < MAX_ALIASES ? rest_of(key, rule->key) : NULL;
        const cJSON *older =
            rest ? find_item(scan, arena_text(&scan->run->arena, "%s%s", rule->older, rest), aliases + 1) : NULL;
        item = older ? older : item;
    }
    return item;
}

static const cJSON *default_of(const Scan *scan, const char *key)
{
    for (const KeyRule *rule = scan->map->keys.rules; rule; rule = rule->next)
        if (rule->value && strcmp(rule->key, key) == 0)
            return rule->value;
    return NULL;
}

const cJSON *find_key(const Scan *scan, const char *key)
{
    const cJSON *item = find_item(scan, key, 0);
    item = item ? item : default_of(scan, key);
    return cJSON_IsNull(item) ? NULL : item;
}

static void see(Scan *scan, const cJSON *item, bool is_whole)
{
    KeyList *keys = &scan->map->keys;
    if (!item)
        return;
    GROW(&scan->run->arena, keys->seen, keys->count, keys->room);
    keys->seen[keys->count++] = (SeenItem){ item, is_whole };
}

const cJSON *use_key(Scan *scan, const char *key)
{
    see(scan, find_item(scan, key, 0), false);
    return find_key(scan, key);
}

const char *read_key(Scan *scan, const char *noun, Loc *loc)
{
    const char *key = scan_word(scan, loc);
    if (!*key)
        error_at(&scan->map->diags, (Where){ .at = *loc }, "%s should stand here", noun);
    return *key ? key : NULL;
}

/* --- Statements ----------------------------------------------------------------------------- */

bool read_harmless(Scan *scan)
{
    Loc loc;
    scan->map->keys.is_complete = true;
    do {
        const char *key = read_key(scan, "a key of config.json", &loc);
        if (!key)
            return false;
        see(scan, find_exact(scan->config, key), true);
    } while (accept_sign(scan, ','));
    return true;
}

static void add_rule(Scan *scan, KeyRule rule)
{
    KeyRule **end = &scan->map->keys.rules;
    while (*end)
        end = &(*end)->next;
    *end = NEW(&scan->run->arena, KeyRule);
    **end = rule;
}

bool read_alias(Scan *scan)
{
    Loc loc, older_loc;
    const char *key = read_key(scan, "a key of config.json", &loc), *older = NULL;
    if (!key || !expect_sign(scan, '=', "a key of config.json") ||
        !(older = read_key(scan, "an older name of the key", &older_loc)))
        return false;
    const cJSON *now = find_key(scan, key), *then = find_exact(scan->config, older);
    if (cJSON_IsNull(then) || (now && then && cJSON_Compare(now, then, true)))
        see(scan, then, true); /* it adds nothing */
    else if (now && then) {
        error_at(&scan->map->diags,
                 (Where){ .at = older_loc,
                          .help = arena_text(&scan->run->arena,
                                             "remove one of them from config.json: '%s' is the older name", older) },
                 "config.json has both '%s' and '%s', which differ", key, older);
        return false;
    }
    add_rule(scan, (KeyRule){ .key = key, .older = older });
    return true;
}

bool read_default(Scan *scan)
{
    Loc loc;
    cJSON *value;
    const char *key = read_key(scan, "a key of config.json", &loc);
    if (!key || !expect_sign(scan, '=', "a key of config.json") || !read_value(scan, &value))
        return false;
    add_rule(scan, (KeyRule){ .key = key, .value = value });
    return true;
}

void drop_key_rules(NameMap *map)
{
    for (const KeyRule *rule = map->keys.rules; rule; rule = rule->next)
        cJSON_Delete(rule->value);
    map->keys = (KeyList){ 0 };
}
