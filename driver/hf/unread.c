/* unread.c -- reports what of config.json a map has not read: each item with its place.  harmless.def lists the keys
 * that change nothing in any model. */
#include "name_map.h"

#include <cjson/cJSON.h>
#include <string.h>

/* --- Places in JSON ------------------------------------------------------------------------- */

/* Each of these skips one thing in a text that has been parsed before; in another text it ends somewhere, too. */
static const char *skip_space(const char *at) { return at + strspn(at, " \t\r\n"); }

static const char *skip_string(const char *at)
{
    for (at += *at == '"'; *at && *at != '"'; at++)
        at += *at == '\\' && at[1];
    return at + (*at == '"');
}

static const char *skip_value(const char *at)
{
    int depth = 0;
    do {
        depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
        if (*at == '"')
            at = skip_string(at);
        else if (depth == 0 && !strchr("}]", *at))
            at += strcspn(at, ",}] \t\r\n"); /* a number, true, Infinity */
        else
            at += *at != '\0';
    } while (*at && depth > 0);
    return at;
}

static const char *skip_comma(const char *at)
{
    at = skip_space(at);
    return skip_space(at + (*at == ',' || *at == ':'));
}

/* --- The items ------------------------------------------------------------------------------ */

enum { MAX_DEPTH = CJSON_NESTING_LIMIT + 2 };

/* An item under inspection, and the items around it. */
typedef struct {
    Scan *scan;
    const char *path;             /* of config.json */
    Source source;                /* its text, read when it is needed */
    Diags diags;                  /* for it */
    const char *names;            /* of the unread keys: "a, b" */
    int count;                    /* of these */
    int depth, number[MAX_DEPTH]; /* of each item in the one around it */
    const cJSON *item[MAX_DEPTH];
} Walk;

/* The key of an item of an object, or the item of a list. */
static Loc place_of(const Walk *walk)
{
    const char *at = skip_space(walk->source.text);
    for (int i = 0; i < walk->depth; i++) {
        const bool has_keys = *at == '{';
        at = skip_space(at + (*at != '\0'));
        for (int skipped = 0; skipped < walk->number[i]; skipped++) {
            at = has_keys ? skip_comma(skip_string(at)) : at;
            at = skip_comma(skip_value(at));
        }
        if (has_keys && i < walk->depth - 1)
            at = skip_comma(skip_string(at));
    }
    const int begin = (int)(at - walk->source.text);
    return (Loc){ begin, begin + (int)((*at == '"' ? skip_string(at) : skip_value(at)) - at) };
}

/* "rope_parameters.rope_theta" */
static const char *key_of(const Walk *walk)
{
    const char *key = "";
    Arena *arena = &walk->scan->run->arena;
    for (int i = 0; i < walk->depth; i++)
        key = walk->item[i]->string ? arena_text(arena, "%s%s%s", key, *key ? "." : "", walk->item[i]->string)
                                    : arena_text(arena, "%s.%d", key, walk->number[i]);
    return key;
}

/* What is not ASCII, as a question mark: keys of files of others go to a terminal. */
static const char *plain_text(Arena *arena, const char *text)
{
    char *plain = arena_text(arena, "%s", text);
    for (char *c = plain; *c; c++)
        *c = *c < ' ' || *c > '~' ? '?' : *c;
    return plain;
}

static bool open_source(Walk *walk)
{
    const char *why;
    const Source *source = walk->source.text ? &walk->source : read_text(walk->scan->run, walk->path, &why);
    if (source && !walk->source.text) {
        walk->source = *source;
        walk->diags = (Diags){ .arena = &walk->scan->run->arena, .source = &walk->source, .out = stderr };
    }
    return source || run_failed(walk->scan->run, "cannot read %s: %s", walk->path, why);
}

static void report_item(Walk *walk)
{
    Arena *arena = &walk->scan->run->arena;
    const NameMap *map = walk->scan->map;
    const char *key = key_of(walk), *help = NULL;
    if (!map->keys.is_complete) {
        if (walk->count++ < MAX_ITEMS)
            walk->names = arena_text(arena, "%s%s%s", walk->names, *walk->names ? ", " : "", plain_text(arena, key));
        return;
    }
    if (walk->count++ == 0)
        help =
            arena_text(arena,
                       "if transformers computes the same without it, remove it, or add to the map: harmless %s; else "
                       "write a model with a map of its own: --model and --map",
                       key);
    if (open_source(walk)) /* of more messages than are shown, none needs a place */
        error_at(&walk->diags,
                 (Where){ .at = walk->diags.shown > MAX_MESSAGES ? (Loc){ 0, 1 } : place_of(walk), .help = help },
                 "'%s' may change what the model computes, and %s does not say how", key, map->source.path);
}

static bool is_harmless(const char *key)
{
    static const char *const keys[] = {
#define HARMLESS(name) name,
#include "harmless.def"
#undef HARMLESS
    };
    for (unsigned i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

/* Is a value, not a list or an object?  transformers 5 writes infinity as {"__float__": "Infinity"}. */
static bool is_value(const cJSON *item)
{
    return !cJSON_IsArray(item) &&
           (!cJSON_IsObject(item) || (item->child && strcmp(item->child->string, "__float__") == 0));
}

typedef enum { UNREAD, READ, READ_WHOLE } Reading;

static Reading reading_of(const Walk *walk, const cJSON *item)
{
    const KeyList *keys = &walk->scan->map->keys;
    Reading reading = UNREAD;
    for (int i = 0; i < keys->count; i++)
        if (keys->seen[i].item == item && reading != READ_WHOLE)
            reading = keys->seen[i].is_whole ? READ_WHOLE : READ;
    return reading;
}

static bool has_read_items(const Walk *walk, const cJSON *list)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        if (reading_of(walk, item) != UNREAD)
            return true;
    }
    return false;
}

static void check_items(Walk *walk, const cJSON *around);

/* A list is read as one, or by its items; an object by its items. */
static void check_item(Walk *walk, const cJSON *item)
{
    const Reading reading = reading_of(walk, item);
    const bool has_parts = cJSON_IsArray(item) ? has_read_items(walk, item) : !is_value(item) && item->child;
    if (reading == READ_WHOLE || (reading == READ && !(cJSON_IsObject(item) && has_parts)))
        return;
    if (item->string && is_harmless(item->string))
        return;
    if (has_parts)
        check_items(walk, item);
    else
        report_item(walk);
}

static void check_items(Walk *walk, const cJSON *around)
{
    int number = 0;
    const cJSON *item;
    const int depth = walk->depth++;
    cJSON_ArrayForEach(item, around)
    {
        walk->number[depth] = number++;
        walk->item[depth] = item;
        check_item(walk, item);
    }
    walk->depth = depth;
}

void report_unread(Scan *scan, const char *config_path)
{
    Walk *walk = NEW(&scan->run->arena, Walk);
    *walk = (Walk){ .scan = scan, .path = config_path, .names = "" };
    check_items(walk, scan->config);
    scan->map->diags.errors += walk->diags.errors;
    if (walk->count && !scan->map->keys.is_complete)
        fprintf(stderr,
                "mpc: warning: %s: %s does not read %s%s: they may change what the model computes; list those that do "
                "not in the map (harmless KEY, ...), which then refuses all others\n",
                config_path, scan->map->source.path, walk->names, walk->count > MAX_ITEMS ? ", ..." : "");
}
