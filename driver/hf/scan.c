/* scan.c -- words and signs of a .map file, line by line. */
#include "name_map.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *text_at(const Scan *scan) { return scan->map->source.text + scan->at; }

char peek_sign(Scan *scan)
{
    while (*text_at(scan) == ' ' || *text_at(scan) == '\t' || *text_at(scan) == '\r')
        scan->at++;
    const char c = *text_at(scan);
    return c == '#' || c == '\0' ? '\n' : c;
}

bool accept_sign(Scan *scan, char wanted)
{
    if (peek_sign(scan) != wanted)
        return false;
    scan->at += wanted != '\n';
    return true;
}

bool expect_sign(Scan *scan, char wanted, const char *before)
{
    if (accept_sign(scan, wanted))
        return true;
    const Where here = { .at = { scan->at, scan->at + 1 } };
    if (wanted == '\n')
        error_at(&scan->map->diags, here, "the line should end here, after %s", before);
    else
        error_at(&scan->map->diags, here, "'%c' should follow %s", wanted, before);
    return false;
}

static const char *take(Scan *scan, int length, Loc *loc)
{
    *loc = (Loc){ scan->at, scan->at + (length ? length : 1) };
    scan->at += length;
    return arena_text(&scan->run->arena, "%.*s", length, scan->map->source.text + loc->begin);
}

const char *scan_name(Scan *scan, Loc *loc)
{
    peek_sign(scan);
    const char *name = take(scan, (int)strcspn(text_at(scan), " \t\r\n#[],="), loc);
    if (!*name)
        error_at(&scan->map->diags, (Where){ .at = *loc }, "a name should stand here");
    return name;
}

const char *scan_word(Scan *scan, Loc *loc)
{
    peek_sign(scan);
    int length = 0;
    const char *text = text_at(scan);
    while (isalnum((unsigned char)text[length]) || text[length] == '_' || (length && text[length] == '.'))
        length++;
    return take(scan, length && !isdigit((unsigned char)*text) ? length : 0, loc);
}

bool scan_number(Scan *scan, double *number)
{
    if (!isdigit((unsigned char)peek_sign(scan)) && peek_sign(scan) != '-')
        return false;
    char *end;
    *number = strtod(text_at(scan), &end);
    scan->at += (int)(end - text_at(scan));
    return true;
}

bool scan_string(Scan *scan, const char **text)
{
    if (!accept_sign(scan, '"'))
        return false;
    Loc loc;
    *text = take(scan, (int)strcspn(text_at(scan), "\"\n"), &loc);
    return expect_sign(scan, '"', "a text");
}

bool is_keyword(Scan *scan, const char *word)
{
    const size_t length = strlen(word);
    peek_sign(scan);
    const char after = strncmp(text_at(scan), word, length) == 0 ? text_at(scan)[length] : 'x';
    if (!strchr(" \t\r\n,:", after))
        return false;
    scan->at += (int)length;
    return true;
}
