/* place.c -- looks backward from a place in the text: at brackets, words and braces. */
#include "place.h"

#include <string.h>

static const char *part(Arena *arena, const Text *text, int begin, int end)
{
    return arena_text(arena, "%.*s", end - begin, text->bytes + begin);
}

static int begin_of_word(const Text *text, int at)
{
    while (at > 0 && is_name_byte(text->bytes[at - 1]))
        at--;
    return at;
}

static int skip_spaces_back(const Text *text, int at)
{
    while (at > 0 && strchr(" \t\r", text->bytes[at - 1]))
        at--;
    return at;
}

/* Where the line begins, after its spaces; a `{` begins one, too. */
static int begin_of_statement(const Text *text, int at)
{
    while (at > 0 && !strchr("\n{}", text->bytes[at - 1]))
        at--;
    return at + (int)strspn(text->bytes + at, " \t");
}

static bool is_in_comment(const Text *text, int at)
{
    for (int i = at; i > 0 && text->bytes[i - 1] != '\n'; i--)
        if (text->bytes[i - 1] == '#')
            return true;
    return false;
}

/* The bracket that is open at the place, at most so many bytes before; -1: none is. */
static int open_bracket(const Text *text, int at, int *commas)
{
    enum { FARTHEST = 4000 };
    int depth = 0;
    *commas = 0;
    for (int i = at - 1; i >= 0 && i > at - FARTHEST; i--) {
        const char c = text->bytes[i];
        if (c == '{' || c == '}')
            return -1;
        if (!strchr("()[],", c) || is_in_comment(text, i))
            continue;
        if (c == ')' || c == ']')
            depth++;
        else if (c != ',' && depth-- == 0)
            return i;
        else if (c == ',')
            *commas += depth == 0;
    }
    return -1;
}

/* The first word of the line with the innermost `{` that is open there. */
static const char *body_around(const Text *text, int at, Arena *arena)
{
    int depth = 0;
    for (int i = at - 1; i >= 0; i--) {
        const char c = text->bytes[i];
        if ((c != '{' && c != '}') || is_in_comment(text, i))
            continue;
        depth += c == '}' ? 1 : -1;
        if (depth < 0) {
            const int begin = begin_of_statement(text, i);
            const int length = (int)strspn(text->bytes + begin, "abcdefghijklmnopqrstuvwxyz");
            return part(arena, text, begin, begin + length);
        }
    }
    return "file";
}

/* KEY of `KEY = `, if no comma and no bracket is between that and the place. */
static const char *keyword_before(const Text *text, int from, int at, Arena *arena)
{
    int equals = at;
    while (equals > from && !strchr("=,([", text->bytes[equals - 1]))
        equals--;
    if (equals <= from || text->bytes[equals - 1] != '=')
        return "";
    const int end = skip_spaces_back(text, equals - 1);
    return part(arena, text, begin_of_word(text, end), end);
}

Place find_place(const Text *text, int offset, Arena *arena)
{
    Place place = { .word = { begin_of_word(text, offset), offset }, .first = "", .callee = "" };
    const int word = place.word.begin, bracket = open_bracket(text, word, &place.argument);
    const int begin = begin_of_statement(text, bracket < 0 ? word : bracket), end = skip_spaces_back(text, word);
    if (begin < word) {
        int length =
            (int)strspn(text->bytes + begin, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
        place.first = part(arena, text, begin, begin + length);
    }
    place.is_comment = is_in_comment(text, offset);
    place.body = body_around(text, word, arena);
    place.sign = end > 0 ? text->bytes[end - 1] : '\0';
    place.before = part(arena, text, begin_of_word(text, end), end);
    if (bracket >= 0) {
        const int name_end = skip_spaces_back(text, bracket);
        place.bracket = text->bytes[bracket];
        place.callee = part(arena, text, begin_of_word(text, name_end), name_end);
    } else {
        place.argument = 0;
    }
    place.keyword = keyword_before(text, bracket < 0 ? begin : bracket + 1, word, arena);
    return place;
}
