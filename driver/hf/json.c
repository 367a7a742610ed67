/* json.c -- reads the JSON files of a folder: config.json and the index of its weights. */
#include "folder.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 16 << 20 }; /* parsed, a file may take 40 times its size; indices have less than 2 MB */

/* Python's json, and so transformers until version 4, writes Infinity, which JSON does not have.  The text with it as
 * transformers 5 writes it; to be freed.  *has_zero: a text has \u0000, behind which cJSON drops the rest. */
static char *without_infinity(const char *text, bool *has_zero)
{
    static const char name[] = "Infinity";
    char *result = NULL;
    size_t size;
    FILE *out = open_memory(&result, &size);
    bool is_quoted = false;
    *has_zero = false;
    for (const char *c = text; *c; c++) {
        if (!is_quoted && strncmp(c, name, sizeof name - 1) == 0) {
            fputs(INFINITE, out);
            c += sizeof name - 2;
            continue;
        }
        if (*c == '"')
            is_quoted = !is_quoted;
        fputc(*c, out);
        if (*c == '\\' && is_quoted && c[1]) {
            *has_zero |= strncmp(c, "\\u0000", strlen("\\u0000")) == 0;
            fputc(*++c, out);
        }
    }
    fclose(out);
    return result;
}

/* --- Keys ------------------------------------------------------------------------------------ */

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static bool check_own_keys(Run *run, const char *path, const cJSON *object)
{
    const int count = cJSON_GetArraySize(object);
    const char **keys = malloc(((size_t)count + 1) * sizeof *keys), *twice = NULL;
    const cJSON *item;
    int i = 0;
    if (!keys)
        out_of_memory(((size_t)count + 1) * sizeof *keys);
    cJSON_ArrayForEach(item, object) keys[i++] = item->string;
    qsort(keys, (size_t)count, sizeof *keys, by_text);
    for (i = 1; i < count && !twice; i++)
        twice = strcmp(keys[i - 1], keys[i]) == 0 ? keys[i] : NULL;
    free(keys);
    return !twice || run_failed(run, "%s has the key '%s' twice: remove one", path, twice);
}

bool check_keys(Run *run, const char *path, const cJSON *json)
{
    const cJSON *item;
    if (cJSON_IsObject(json) && !check_own_keys(run, path, json))
        return false;
    cJSON_ArrayForEach(item, json)
    {
        if (item->child && !check_keys(run, path, item))
            return false;
    }
    return true;
}

/* --- Files ----------------------------------------------------------------------------------- */

/* To be freed; NULL after reporting. */
static char *read_whole(Run *run, const char *path, FILE *in)
{
    char *text = calloc(MOST_BYTES + 2, 1);
    if (!text)
        out_of_memory(MOST_BYTES + 2);
    const size_t size = fread(text, 1, MOST_BYTES + 1, in);
    const char *why = ferror(in)             ? strerror(errno)
                      : size > MOST_BYTES    ? "it is larger than 16 MB"
                      : strlen(text) != size ? "it has a byte 0, and is no text"
                                             : NULL;
    if (!why)
        return text;
    run_failed(run, "cannot read %s: %s", path, why);
    free(text);
    return NULL;
}

static cJSON *parse(Run *run, const char *path, const char *text)
{
    const char *end = NULL;
    int line = 1;
    cJSON *json = cJSON_ParseWithOpts(text, &end, true);
    if (cJSON_IsObject(json) && check_keys(run, path, json))
        return json;
    for (const char *c = text; !json && c < end; c++)
        line += *c == '\n';
    if (!json)
        run_failed(run, "%s:%d: this is not JSON, or nested more than 1,000 deep", path, line);
    else if (!cJSON_IsObject(json))
        run_failed(run, "%s is not a JSON object", path);
    cJSON_Delete(json);
    return NULL;
}

cJSON *read_member_json(Run *run, const char *folder, const char *name)
{
    const char *path = path_in(&run->arena, folder, name);
    const int file = open_member(run, folder, name);
    FILE *in = file < 0 ? NULL : fdopen(file, "rb");
    if (!in)
        return NULL;
    char *text = read_whole(run, path, in), *json_text = NULL;
    fclose(in);
    bool has_zero = false;
    if (text)
        json_text = without_infinity(text, &has_zero);
    if (has_zero)
        run_failed(run, "%s has a text with the character \\u0000", path);
    cJSON *json = json_text && !has_zero ? parse(run, path, json_text) : NULL;
    free(json_text);
    free(text);
    return json;
}
