/* json.c -- JSON that mpc writes: exact integers, entries of lists, the text. */
#include "json.h"

#include "visible.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void add_json_integer(cJSON *object, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    cJSON_AddRawToObject(object, key, text);
}

cJSON *add_json_entry(cJSON *list)
{
    cJSON *entry = cJSON_CreateObject();
    cJSON_AddItemToArray(list, entry);
    return entry;
}

static int utf8_length(const char *at)
{
    return (unsigned char)*at < 0x80 ? 1 : character_length(at, (int)strnlen(at, 4));
}

static size_t invalid_bytes(const char *text)
{
    size_t count = 0;
    for (int length; *text; text += length ? length : 1)
        count += (length = utf8_length(text)) == 0;
    return count;
}

const char *json_text(Arena *arena, cJSON *json, bool is_indented)
{
    char *printed = is_indented ? cJSON_Print(json) : cJSON_PrintUnformatted(json);
    char *const text = NEW_ARRAY(arena, char, strlen(printed) + 4 * invalid_bytes(printed) + 1), *to = text;
    for (const char *at = printed; *at;) {
        const int length = utf8_length(at);
        if (length)
            memcpy(to, at, (size_t)length);
        to += length ? length : sprintf(to, "\\\\x%02X", (unsigned char)*at);
        at += length ? length : 1;
    }
    cJSON_free(printed);
    cJSON_Delete(json);
    return text;
}
