/* text.c -- the text of an open document: lines, UTF-16 positions, changes. */
#include "text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 256 << 20 }; /* of a source, as of a file */

static void *allocated(void *memory, size_t size)
{
    if (!memory)
        out_of_memory(size);
    return memory;
}

/* --- Lines -------------------------------------------------------------------------------------- */

/* Is there the end of a line before this byte? */
static bool begins_line(const Text *text, int at)
{
    const char before = text->bytes[at - 1];
    return before == '\n' || (before == '\r' && text->bytes[at] != '\n');
}

static void find_text_lines(Text *text)
{
    text->nlines = 1;
    for (int at = 1; at <= text->length; at++)
        text->nlines += begins_line(text, at);
    const size_t size = (size_t)text->nlines * sizeof *text->line;
    text->line = allocated(realloc(text->line, size), size);
    text->line[0] = 0;
    for (int at = 1, n = 0; at <= text->length; at++)
        if (begins_line(text, at))
            text->line[++n] = at;
}

/* The bytes from `begin` to `end` become `count` others. */
static void replace_bytes(Text *text, int begin, int end, const char *bytes, size_t count)
{
    const size_t after = (size_t)(text->length - end), length = (size_t)begin + count + after;
    char *changed = allocated(malloc(length + 1), length + 1);
    memcpy(changed, text->bytes ? text->bytes : "", (size_t)begin);
    memcpy(changed + begin, bytes, count);
    memcpy(changed + begin + count, text->bytes ? text->bytes + end : "", after);
    changed[length] = '\0';
    free(text->bytes);
    text->bytes = changed;
    text->length = (int)length;
    find_text_lines(text);
}

void replace_text(Text *text, const char *bytes) { replace_bytes(text, 0, text->length, bytes, strlen(bytes)); }

void free_text(Text *text)
{
    free(text->bytes);
    free(text->line);
}

/* --- Positions ---------------------------------------------------------------------------------- */

/* The bytes of the character there; an invalid byte is one. */
static int step(const char *bytes, int left)
{
    const int length = character_length(bytes, left);
    return length ? length : 1;
}

int text_step(const Text *text, int at) { return step(text->bytes + at, text->length - at); }

int utf16_units(const char *bytes, int length)
{
    int units = 0;
    for (int at = 0, bytes_of; at < length; at += bytes_of) {
        bytes_of = step(bytes + at, length - at);
        units += bytes_of == 4 ? 2 : 1; /* beyond U+FFFF: two surrogates */
    }
    return units;
}

int line_of(const Text *text, int offset)
{
    int first = 0, behind = text->nlines;
    while (behind - first > 1) {
        const int middle = (first + behind) / 2;
        *(text->line[middle] <= offset ? &first : &behind) = middle;
    }
    return first;
}

static int end_of_line(const Text *text, int line)
{
    int end = line + 1 < text->nlines ? text->line[line + 1] : text->length;
    while (end > text->line[line] && (text->bytes[end - 1] == '\n' || text->bytes[end - 1] == '\r'))
        end--;
    return end;
}

bool read_position(const Text *text, const cJSON *position, int *offset)
{
    const cJSON *line = cJSON_GetObjectItemCaseSensitive(position, "line");
    const cJSON *character = cJSON_GetObjectItemCaseSensitive(position, "character");
    if (!cJSON_IsNumber(line) || !cJSON_IsNumber(character) || !(line->valuedouble >= 0) ||
        !(character->valuedouble >= 0))
        return false;
    if (line->valuedouble >= text->nlines) {
        *offset = text->length;
        return true;
    }
    const int end = end_of_line(text, line->valueint);
    int units = 0;
    for (*offset = text->line[line->valueint]; *offset < end; *offset += step(text->bytes + *offset, end - *offset)) {
        units += utf16_units(text->bytes + *offset, step(text->bytes + *offset, end - *offset));
        if (units > character->valuedouble)
            break;
    }
    return true;
}

cJSON *position_json(const Text *text, int offset)
{
    cJSON *position = cJSON_CreateObject();
    const int at = offset < text->length ? offset : text->length, line = line_of(text, at);
    cJSON_AddNumberToObject(position, "line", line);
    cJSON_AddNumberToObject(position, "character", utf16_units(text->bytes + text->line[line], at - text->line[line]));
    return position;
}

cJSON *range_json(const Text *text, Loc loc)
{
    cJSON *range = cJSON_CreateObject();
    cJSON_AddItemToObject(range, "start", position_json(text, loc.begin));
    cJSON_AddItemToObject(range, "end", position_json(text, loc.end));
    return range;
}

bool is_name_byte(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* --- Changes ------------------------------------------------------------------------------------ */

bool change_text(Text *text, const cJSON *change)
{
    const cJSON *range = cJSON_GetObjectItemCaseSensitive(change, "range");
    const char *bytes = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(change, "text"));
    int begin = 0, end = text->length;
    if (!bytes || (size_t)text->length + strlen(bytes) > MOST_BYTES)
        return false;
    if (cJSON_IsObject(range) &&
        (!read_position(text, cJSON_GetObjectItemCaseSensitive(range, "start"), &begin) ||
         !read_position(text, cJSON_GetObjectItemCaseSensitive(range, "end"), &end) || end < begin))
        return false;
    replace_bytes(text, begin, end, bytes, strlen(bytes));
    return true;
}
