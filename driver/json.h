/* json.h -- JSON that mpc writes: exact integers, entries of lists, the text. */
#ifndef MPC_JSON_H
#define MPC_JSON_H

#include "arena.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

cJSON *add_json_entry(cJSON *list); /* a new object at the end of the list, which owns it */
void add_json_integer(cJSON *object, const char *key, int64_t value); /* exact for any size */

/* The text of `json`, which is deleted.  It is UTF-8: in its strings, other bytes (of a path, for example) become
 * \xNN, as in messages. */
const char *json_text(Arena *arena, cJSON *json, bool is_indented);

#endif
