/* fill.c -- code from templates: C with $holes. */
#include "fill.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void mistake(const char *what, const char *name, size_t length)
{
    fprintf(stderr, "mpc: internal error: %s '%.*s' in a template\n", what, (int)length, name);
    abort();
}

static size_t name_length(const char *name)
{
    size_t length = 0;
    while (isalnum((unsigned char)name[length]) || name[length] == '_')
        length++;
    return length;
}

static int find_hole(const Hole holes[], const char *name, size_t length)
{
    for (int i = 0; holes[i].name; i++)
        if (strlen(holes[i].name) == length && memcmp(holes[i].name, name, length) == 0)
            return i;
    mistake("no hole for", name, length);
    return -1;
}

/* `text` may have several lines: each is indented like the hole. */
static void put_lines(FILE *out, const char *text, const char *indent, size_t width)
{
    while (*text) {
        size_t length = strcspn(text, "\n");
        if (length > 0 && *text != '#')
            fwrite(indent, 1, width, out);
        fwrite(text, 1, length, out);
        fputc('\n', out);
        text += length + (text[length] == '\n');
    }
}

void fill(FILE *out, const char *pattern, const Hole holes[])
{
    uint64_t asked = 0;
    for (const char *line = pattern; *line;) {
        size_t indent = strspn(line, " ");
        const char *end = line + strcspn(line, "\n");
        bool alone = line[indent] == '$' && line + indent + 1 + name_length(line + indent + 1) == end && *end;
        for (const char *at = line; at < end; at++) {
            if (*at != '$') {
                if (!alone)
                    fputc(*at, out);
                continue;
            }
            size_t length = name_length(at + 1);
            int hole = find_hole(holes, at + 1, length);
            asked |= UINT64_C(1) << hole;
            if (alone)
                put_lines(out, holes[hole].text, line, indent);
            else
                fputs(holes[hole].text, out);
            at += length;
        }
        if (*end && !alone)
            fputc('\n', out);
        line = *end ? end + 1 : end;
    }
    for (int i = 0; holes[i].name; i++)
        if (!(asked >> i & 1))
            mistake("unused hole", holes[i].name, strlen(holes[i].name));
}

void open_text(Text *text) { text->out = open_memory(&text->text, &text->size); }

char *close_text(Arena *arena, Text *text)
{
    fclose(text->out);
    char *kept = NEW_ARRAY(arena, char, text->size + 1);
    memcpy(kept, text->text, text->size);
    free(text->text);
    return kept;
}

char *filled(Arena *arena, const char *pattern, const Hole holes[])
{
    Text text;
    open_text(&text);
    fill(text.out, pattern, holes);
    return close_text(arena, &text);
}
