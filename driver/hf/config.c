/* config.c -- `need` and `set` of a .map file: what config.json says, as values of the model's consts and dims. */
#include "name_map.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

/* The item of a key with dots: "rope_parameters.rope_theta"; NULL if there is none, or null. */
static const cJSON *find_key(const cJSON *config, const char *key)
{
    char part[128];
    const char *word;
    int length;
    while (config && next_word(&key, '.', &word, &length)) {
        snprintf(part, sizeof part, "%.*s", length, word);
        config = cJSON_GetObjectItemCaseSensitive(config, part);
    }
    return cJSON_IsNull(config) ? NULL : config;
}

/* --- need ----------------------------------------------------------------------------------- */

/* One VALUE: is it that of the item? */
static bool read_value(Scan *scan, const cJSON *item, bool *is)
{
    const char *text;
    double number;
    if (is_keyword(scan, "none"))
        *is |= !item;
    else if (is_keyword(scan, "true"))
        *is |= cJSON_IsTrue(item);
    else if (is_keyword(scan, "false"))
        *is |= cJSON_IsFalse(item);
    else if (scan_string(scan, &text))
        *is |= cJSON_IsString(item) && strcmp(item->valuestring, text) == 0;
    else if (scan_number(scan, &number))
        *is |= cJSON_IsNumber(item) && item->valuedouble == number;
    else
        return error_at(&scan->map->diags, (Where){ .at = { scan->at, scan->at + 1 } },
                        "a value should stand here: a number, a text, true, false, or none"),
               false;
    return true;
}

bool read_need(Scan *scan)
{
    Loc loc;
    bool is = false;
    const char *key = scan_word(scan, &loc);
    if (!*key || !expect_sign(scan, '=', "a key of config.json"))
        return false;
    const cJSON *item = find_key(scan->config, key);
    peek_sign(scan);
    const int begin = scan->at;
    do {
        if (!read_value(scan, item, &is))
            return false;
    } while (accept_sign(scan, ','));
    if (is)
        return true;
    char *found = item ? cJSON_PrintUnformatted(item) : NULL;
    error_at(&scan->map->diags,
             (Where){ .at = { begin, scan->at },
                      .help = "write a model that computes this, with a map of its own: --model and --map" },
             "config.json says %s: %s, and the model of this map computes something else", key,
             found ? found : "nothing");
    cJSON_free(found);
    return false;
}

/* --- set ------------------------------------------------------------------------------------ */

/* A number, or that there is none. */
typedef struct {
    bool is;
    double number;
} Amount;

static Amount value_of(const Scan *scan, const char *word)
{
    const size_t length = strlen(word);
    for (int i = 0; i < scan->map->defines.count; i++) {
        const char *define = scan->map->defines.at[i];
        double number;
        if (strncmp(define, word, length) == 0 && define[length] == '=' &&
            sscanf(define + length + 1, "%lf", &number) == 1)
            return (Amount){ true, number };
    }
    const cJSON *item = find_key(scan->config, word);
    return (Amount){ cJSON_IsNumber(item), cJSON_IsNumber(item) ? item->valuedouble : 0 };
}

static bool read_factor(Scan *scan, Amount *amount)
{
    Loc loc = { 0 };
    const char *word;
    amount->is = true;
    if (scan_number(scan, &amount->number))
        return true;
    if (!*(word = scan_word(scan, &loc))) {
        error_at(&scan->map->diags, (Where){ .at = loc }, "a number or a key of config.json should stand here");
        return false;
    }
    *amount = value_of(scan, word);
    return true;
}

/* a * b / c, from left to right; without an amount if one of them is not there. */
static bool read_term(Scan *scan, Amount *amount)
{
    Amount right;
    peek_sign(scan);
    const int begin = scan->at;
    if (!read_factor(scan, amount))
        return false;
    for (bool divides; (divides = accept_sign(scan, '/')) || accept_sign(scan, '*');) {
        if (!read_factor(scan, &right))
            return false;
        const bool whole = amount->number == floor(amount->number) && right.number == floor(right.number);
        amount->is &= right.is;
        if (amount->is && divides && (right.number == 0 || (whole && fmod(amount->number, right.number) != 0))) {
            error_at(&scan->map->diags, (Where){ .at = { begin, scan->at } }, "config.json has %g / %g here",
                     amount->number, right.number);
            return false;
        }
        amount->number = divides ? amount->number / right.number : amount->number * right.number;
    }
    return true;
}

/* As short as it can be and still this number. */
static const char *number_text(Arena *arena, double number)
{
    if (number == floor(number) && fabs(number) < 1e15)
        return arena_text(arena, "%.0f", number);
    for (int digits = 1;; digits++) {
        const char *text = arena_text(arena, "%.*g", digits, number);
        double back;
        if (digits == 17 || (sscanf(text, "%lf", &back) == 1 && back == number))
            return text;
    }
}

static void add_define(Scan *scan, const char *name, double number)
{
    TextList *defines = &scan->map->defines;
    if (defines->count == defines->room) {
        const char **grown = NEW_ARRAY(&scan->run->arena, const char *, defines->room = 2 * defines->room + 16);
        for (int i = 0; i < defines->count; i++)
            grown[i] = defines->at[i];
        defines->at = grown;
    }
    defines->at[defines->count++] =
        arena_text(&scan->run->arena, "%s=%s", name, number_text(&scan->run->arena, number));
}

bool read_set(Scan *scan)
{
    Loc loc;
    Amount amount = { 0 }, other;
    const char *name = scan_word(scan, &loc);
    if (!*name || !expect_sign(scan, '=', "a const or dim of the model"))
        return false;
    peek_sign(scan);
    const int begin = scan->at;
    do {
        if (!read_term(scan, &other))
            return false;
        amount = amount.is ? amount : other;
    } while (is_keyword(scan, "else"));
    if (!amount.is) {
        error_at(&scan->map->diags, (Where){ .at = { begin, scan->at } },
                 "config.json has no number for %s under these keys", name);
        return false;
    }
    add_define(scan, name, amount.number);
    return true;
}
