/* visible.c -- visible characters, and texts with the others written as \\xNN. */
#include "visible.h"

#include <stdbool.h>
#include <string.h>

int character_length(const char *text, int left)
{
    /* Table 3-7 of the Unicode standard, without control characters. */
    static const struct {
        unsigned char first, last, second_from, second_to;
        int length;
    } forms[] = {
        { 0x20, 0x7E, 0, 0, 1 },       { 0xC2, 0xC2, 0xA0, 0xBF, 2 }, { 0xC3, 0xDF, 0x80, 0xBF, 2 },
        { 0xE0, 0xE0, 0xA0, 0xBF, 3 }, { 0xE1, 0xEC, 0x80, 0xBF, 3 }, { 0xED, 0xED, 0x80, 0x9F, 3 },
        { 0xEE, 0xEF, 0x80, 0xBF, 3 }, { 0xF0, 0xF0, 0x90, 0xBF, 4 }, { 0xF1, 0xF3, 0x80, 0xBF, 4 },
        { 0xF4, 0xF4, 0x80, 0x8F, 4 },
    };
    const unsigned char *bytes = (const unsigned char *)text;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (bytes[0] < forms[i].first || bytes[0] > forms[i].last)
            continue;
        int length = forms[i].length;
        if (length > left || (length > 1 && (bytes[1] < forms[i].second_from || bytes[1] > forms[i].second_to)))
            return 0;
        for (int k = 2; k < length; k++)
            if (((unsigned char)text[k] & 0xC0) != 0x80)
                return 0;
        return length;
    }
    return 0;
}

unsigned hidden_character(const char *text, int length)
{
    static const struct {
        unsigned first, last;
    } hidden[] = {
        { 0xAD, 0xAD },     { 0x300, 0x36F },   { 0x61C, 0x61C },   { 0x115F, 0x1160 }, { 0x17B4, 0x17B5 },
        { 0x180B, 0x180F }, { 0x200B, 0x200F }, { 0x2028, 0x202E }, { 0x2060, 0x206F }, { 0x3164, 0x3164 },
        { 0xFE00, 0xFE0F }, { 0xFEFF, 0xFEFF }, { 0xFFA0, 0xFFA0 }, { 0xFFF9, 0xFFFB }, { 0xE0000, 0xE0FFF },
    };
    if (length < 2)
        return 0;
    unsigned number = (unsigned char)text[0] & (0xFFu >> (length + 1));
    for (int i = 1; i < length; i++)
        number = number << 6 | ((unsigned char)text[i] & 0x3F);
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        if (number >= hidden[i].first && number <= hidden[i].last)
            return number;
    return 0;
}

int visible_length(const char *text, int left)
{
    const int length = character_length(text, left);
    return length > 0 && !hidden_character(text, length) ? length : 0;
}

/* Appends what `text` up to `end` looks like; returns the end of the result. */
static char *show(char *to, const char *text, const char *end)
{
    static const char digits[] = "0123456789ABCDEF";
    for (int length; text < end; text += length ? length : 1) {
        length = visible_length(text, (int)(end - text < 4 ? end - text : 4));
        if (length > 0) {
            memcpy(to, text, (size_t)length);
            to += length;
            continue;
        }
        memcpy(to, "\\x", 2);
        to[2] = digits[(unsigned char)*text >> 4];
        to[3] = digits[(unsigned char)*text & 15];
        to += 4;
    }
    return to;
}

static bool is_visible(const char *text, const char *end)
{
    int length = 1;
    while (text < end && length > 0)
        text += length = visible_length(text, (int)(end - text < 4 ? end - text : 4));
    return length > 0;
}

const char *visible_text(Arena *arena, const char *text)
{
    enum { MOST = 4000, KEPT = MOST / 2 };
    const size_t length = strlen(text), head = length > MOST ? KEPT : length, tail = length > MOST ? KEPT : 0;
    if (length <= MOST && is_visible(text, text + length))
        return text;
    char *shown = NEW_ARRAY(arena, char, 4 * (head + tail) + sizeof "..."), *to = show(shown, text, text + head);
    if (length > MOST) {
        memcpy(to, "...", 3);
        to = show(to + 3, text + length - KEPT, text + length);
    }
    *to = '\0';
    return shown;
}

void print_visible(FILE *out, const char *text)
{
    Arena arena = { 0 };
    fputs(visible_text(&arena, text), out);
    arena_free(&arena);
}

const char *shell_word(Arena *arena, const char *text)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789%+,-./:=@_";
    if (*text && text[strspn(text, plain)] == '\0')
        return text;
    const char *const end = text + strlen(text);
    char *word = NEW_ARRAY(arena, char, 4 * strlen(text) + sizeof "$''");
    const size_t shown = (size_t)(show(word, text, end) - word);
    const bool is_visible = shown == strlen(text); /* else $'...', which has escapes */
    char *to = stpcpy(word, is_visible ? "'" : "$'");
    for (const char *c = text; c < end; c++)
        if (*c == '\'')
            to = stpcpy(to, is_visible ? "'\\''" : "\\'");
        else if (*c == '\\' && !is_visible)
            to = stpcpy(to, "\\\\");
        else if (is_visible)
            *to++ = *c;
        else {
            const int length = visible_length(c, (int)strnlen(c, 4));
            to = show(to, c, c + (length ? length : 1));
            c += length ? length - 1 : 0;
        }
    strcpy(to, "'");
    return word;
}
