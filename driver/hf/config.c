/* config.c -- `need`, `cycle`, `if` and `set` of a .map file: values of config.json become values of the model's consts
 * and dims. */
#include "folder.h"
#include "name_map.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- Amounts -------------------------------------------------------------------------------- */

/* A number, or that there is none. */
typedef struct {
    bool is;
    double number;
} Amount;

static Amount value_of(Scan *scan, const char *word)
{
    const size_t length = strlen(word);
    for (int i = 0; i < scan->map->defines.count; i++) {
        const char *define = scan->map->defines.at[i];
        double number;
        if (strncmp(define, word, length) == 0 && define[length] == '=' &&
            sscanf(define + length + 1, "%lf", &number) == 1)
            return (Amount){ true, number };
    }
    const cJSON *item = use_key(scan, word);
    return (Amount){ cJSON_IsNumber(item) || cJSON_IsBool(item),
                     cJSON_IsNumber(item) ? item->valuedouble : cJSON_IsTrue(item) };
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

static bool divide(Scan *scan, Loc loc, Amount *left, double right, bool is_rest)
{
    const bool whole = left->number == floor(left->number) && right == floor(right);
    if (right == 0 || (whole && !is_rest && fmod(left->number, right) != 0)) {
        error_at(&scan->map->diags, (Where){ .at = loc }, "config.json has %g / %g here", left->number, right);
        return false;
    }
    left->number = is_rest ? fmod(left->number, right) : left->number / right;
    return true;
}

/* a * b / c - d % e, from left to right; without an amount if one of them is not there. */
static bool read_term(Scan *scan, Amount *amount)
{
    Amount right;
    peek_sign(scan);
    const int begin = scan->at;
    if (!read_factor(scan, amount))
        return false;
    for (char sign; (sign = peek_sign(scan)) && strchr("*/%-", sign);) {
        accept_sign(scan, sign);
        if (!read_factor(scan, &right))
            return false;
        amount->is &= right.is;
        if (!amount->is)
            continue;
        if (sign == '*' || sign == '-')
            amount->number = sign == '*' ? amount->number * right.number : amount->number - right.number;
        else if (!divide(scan, (Loc){ begin, scan->at }, amount, right.number, sign == '%'))
            return false;
    }
    return true;
}

/* --- need, cycle ---------------------------------------------------------------------------- */

static bool no_value(Scan *scan, int begin)
{
    error_at(&scan->map->diags, (Where){ .at = { begin, scan->at > begin ? scan->at : begin + 1 } },
             "a value should stand here: a number, a key of config.json, a text in quotes, true, false, inf, or none");
    return false;
}

/* One VALUE: JSON, with `none` for what is not there, and null; `inf` is as transformers writes it. */
bool read_value(Scan *scan, cJSON **value)
{
    const char *text;
    Amount amount;
    peek_sign(scan);
    const int begin = scan->at;
    if (is_keyword(scan, "none"))
        *value = cJSON_CreateNull();
    else if (is_keyword(scan, "inf"))
        *value = cJSON_Parse(INFINITE);
    else if (is_keyword(scan, "true"))
        *value = cJSON_CreateTrue();
    else if (is_keyword(scan, "false"))
        *value = cJSON_CreateFalse();
    else if (scan_string(scan, &text))
        *value = cJSON_CreateString(text);
    else if (strchr("\n,:=[]", peek_sign(scan)))
        return no_value(scan, begin);
    else {
        if (!read_term(scan, &amount))
            return false;
        if (!amount.is)
            return no_value(scan, begin);
        *value = cJSON_CreateNumber(amount.number);
    }
    return true;
}

static bool is_value(const cJSON *item, const cJSON *value)
{
    return item ? cJSON_Compare(item, value, true) : cJSON_IsNull(value);
}

static bool is_one_of(const cJSON *item, const cJSON *values)
{
    const cJSON *value;
    cJSON_ArrayForEach(value, values)
    {
        if (is_value(item, value))
            return true;
    }
    return false;
}

/* KEY.*: each element of a list. */
static bool are_all(const cJSON *list, const cJSON *values)
{
    const cJSON *item;
    if (!cJSON_IsArray(list))
        return !list && is_one_of(NULL, values);
    cJSON_ArrayForEach(item, list)
    {
        if (!is_one_of(item, values))
            return false;
    }
    return true;
}

/* The values again and again, down the list. */
static bool repeats(const cJSON *list, const cJSON *values)
{
    int i = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        if (!is_value(item, cJSON_GetArrayItem(values, i++ % cJSON_GetArraySize(values))))
            return false;
    }
    return !list || cJSON_IsArray(list);
}

static bool read_values(Scan *scan, cJSON *values)
{
    do {
        cJSON *value = NULL;
        if (!read_value(scan, &value))
            return false;
        cJSON_AddItemToArray(values, value);
    } while (accept_sign(scan, ','));
    return true;
}

static bool differs(Scan *scan, Loc loc, const char *key, const cJSON *item)
{
    char *found = item ? cJSON_PrintUnformatted(item) : NULL;
    error_at(&scan->map->diags,
             (Where){ .at = loc, .help = "write a model that computes this, with a map of its own: --model and --map" },
             "config.json says %s: %s, and the model of this map computes something else", key,
             found ? found : "nothing");
    cJSON_free(found);
    return false;
}

bool read_condition(Scan *scan, bool *holds)
{
    Loc loc;
    const char *key = read_key(scan, "a key of config.json", &loc);
    if (!key || !expect_sign(scan, '=', "a key of config.json"))
        return false;
    cJSON *values = cJSON_CreateArray();
    const bool good = read_values(scan, values) && expect_sign(scan, ':', "a condition");
    *holds = good && is_one_of(find_key(scan, key), values);
    if (*holds)
        use_key(scan, key); /* another value is for other statements to read */
    cJSON_Delete(values);
    return good;
}

/* The rest of `need KEY <= EXPR`. */
static bool read_limit(Scan *scan, const char *key)
{
    Amount limit;
    if (!expect_sign(scan, '=', "'<'"))
        return false;
    peek_sign(scan);
    const int begin = scan->at;
    if (!read_term(scan, &limit))
        return false;
    const cJSON *item = use_key(scan, key);
    if (cJSON_IsNumber(item) && limit.is && item->valuedouble <= limit.number)
        return true;
    return differs(scan, (Loc){ begin, scan->at }, key, item);
}

bool read_need(Scan *scan, bool is_cycle)
{
    Loc loc;
    const char *key = read_key(scan, "a key of config.json", &loc);
    const size_t length = key ? strlen(key) : 0;
    const bool is_list = length && key[length - 1] == '.' && accept_sign(scan, '*');
    if (key && !is_list && !is_cycle && accept_sign(scan, '<'))
        return read_limit(scan, key);
    if (!key || !expect_sign(scan, '=', "a key of config.json"))
        return false;
    if (is_list)
        key = arena_text(&scan->run->arena, "%.*s", (int)length - 1, key);
    const cJSON *item = use_key(scan, key);
    cJSON *values = cJSON_CreateArray();
    peek_sign(scan);
    loc.begin = scan->at;
    bool good = read_values(scan, values);
    loc.end = scan->at;
    if (good && !(is_cycle ? repeats(item, values) : is_list ? are_all(item, values) : is_one_of(item, values)))
        good = differs(scan, loc, key, item);
    cJSON_Delete(values);
    return good;
}

/* --- set ------------------------------------------------------------------------------------ */

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
    GROW(&scan->run->arena, defines->at, defines->count, defines->room);
    defines->at[defines->count++] =
        arena_text(&scan->run->arena, "%s=%s", name, number_text(&scan->run->arena, number));
}

bool read_set(Scan *scan)
{
    Loc loc;
    Amount amount = { 0 }, other;
    const char *name = read_key(scan, "a const or dim of the model", &loc);
    if (!name || !expect_sign(scan, '=', "a const or dim of the model"))
        return false;
    peek_sign(scan);
    const int begin = scan->at;
    do {
        const int seen = scan->map->keys.count;
        if (!read_term(scan, &other))
            return false;
        if (amount.is && !(other.is && other.number == amount.number))
            scan->map->keys.count = seen; /* its keys are not used: they say something else */
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
