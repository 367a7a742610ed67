/* pages.c -- rows of the tables in docs/, which are built into mpc: the one place that says what a function does. */
#include "pages.h"

#include "text.h"

#include <stdbool.h>
#include <string.h>

static const struct {
    const char *heading, *row;
} rows[] = {
#include "pages_of_docs.h"
};
enum { NROWS = sizeof rows / sizeof rows[0], MOST_ROWS = 3 };

/* Does the code name it: as what is called, `p, i = top_k(x, d, k)`, or among others, `exp log sqrt`? */
static bool names_function(const char *code, const char *end, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = code; at + length <= end && (is_name_byte(*at) || strchr(" ,=", *at)); at++) {
        const bool begins = at == code || !is_name_byte(at[-1]), ends = at + length == end || !is_name_byte(at[length]);
        if (begins && ends && strncmp(at, name, length) == 0)
            return true;
    }
    return false;
}

/* Does the code begin with it: `clip`, `bias = b`, `zero N over a`, `recompute none`? */
static bool begins_with_word(const char *code, const char *end, const char *word)
{
    const size_t length = strlen(word);
    return code + length <= end && strncmp(code, word, length) == 0 &&
           (code + length == end || !is_name_byte(code[length]));
}

typedef bool Matches(const char *code, const char *end, const char *name);

/* Is it in the first cell of the row? */
static bool is_about(const char *row, Matches *matches, const char *name)
{
    const char *cell_end = strstr(row + 1, " | ");
    for (const char *at = row, *end; (at = strchr(at, '`')) && (!cell_end || at < cell_end); at = end + 1) {
        end = strchr(++at, '`');
        if (!end)
            return false;
        if (matches(at, end, name))
            return true;
    }
    return false;
}

/* "| `code` | text |" as "`code`: text". */
static const char *row_text(Arena *arena, const char *row)
{
    const char *cell = row + strspn(row, "| "), *next = strstr(cell, " | ");
    if (!next)
        return arena_text(arena, "%s", cell);
    const char *rest = next + strspn(next, " |");
    size_t length = strlen(rest);
    while (length > 0 && strchr("| ", rest[length - 1]))
        length--;
    return arena_text(arena, "%.*s: %.*s", (int)(next - cell), cell, (int)length, rest);
}

static const char *find_rows(Arena *arena, Matches *matches, const char *name)
{
    const char *text = NULL, *heading = "";
    for (int i = 0, found = 0; i < NROWS && found < MOST_ROWS; i++)
        if (is_about(rows[i].row, matches, name)) {
            text = arena_text(arena, "%s%s%s", text ? text : "", text ? "\n\n" : "", row_text(arena, rows[i].row));
            heading = *heading ? heading : rows[i].heading;
            found++;
        }
    return text ? arena_text(arena, "%s\n\n_docs/%s_", text, heading) : NULL;
}

const char *page_of_function(Arena *arena, const char *name) { return find_rows(arena, names_function, name); }

const char *page_of_word(Arena *arena, const char *word) { return find_rows(arena, begins_with_word, word); }
