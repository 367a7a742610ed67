/* json.c -- objects and numbers of JSON. */
#include "report.h"

#include <inttypes.h>

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
