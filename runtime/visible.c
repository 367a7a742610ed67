/* visible.c -- visible characters, and texts with the others written as \xNN. */
#include "visible.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint32_t first, last;
} Range;

/* Zero-width characters, marks on other characters, and marks that change the direction of text. */
static const Range hidden[] = {
    { 0xAD, 0xAD },     { 0x300, 0x36F },   { 0x61C, 0x61C },   { 0x115F, 0x1160 }, { 0x17B4, 0x17B5 },
    { 0x180B, 0x180F }, { 0x200B, 0x200F }, { 0x2028, 0x202E }, { 0x2060, 0x206F }, { 0x3164, 0x3164 },
    { 0xFE00, 0xFE0F }, { 0xFEFF, 0xFEFF }, { 0xFFA0, 0xFFA0 }, { 0xFFF9, 0xFFFB }, { 0xE0000, 0xE0FFF },
};

/* The code point of the UTF-8 sequence at `text`, and its length; 0 where there is none.  `text` ends with a byte 0,
 * which continues no sequence. */
static int decode(const unsigned char *text, uint32_t *code)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    const int length = *text < 0x80 ? 1 : *text >> 5 == 6 ? 2 : *text >> 4 == 14 ? 3 : *text >> 3 == 30 ? 4 : 0;
    *code = length == 1 ? *text : *text & (0xFFu >> (length + 1));
    for (int i = 1; i < length; i++) {
        if ((text[i] & 0xC0) != 0x80)
            return 0;
        *code = *code << 6 | (text[i] & 0x3F);
    }
    const bool is_surrogate = *code >= 0xD800 && *code <= 0xDFFF;
    return *code < least[length] || *code > 0x10FFFF || is_surrogate ? 0 : length;
}

static bool is_visible(uint32_t code)
{
    if (code < 0x20 || (code >= 0x7F && code < 0xA0))
        return false;
    for (unsigned i = 0; i < sizeof hidden / sizeof *hidden; i++)
        if (code >= hidden[i].first && code <= hidden[i].last)
            return false;
    return true;
}

/* Appends what `text` up to `end` looks like; returns the end of the result. */
static char *show(char *to, const char *text, const char *end)
{
    static const char digits[] = "0123456789ABCDEF";
    while (text < end) {
        uint32_t code;
        const int length = decode((const unsigned char *)text, &code);
        if (length && is_visible(code)) {
            memcpy(to, text, (size_t)length);
            to += length;
        } else {
            memcpy(to, "\\x", 2);
            to[2] = digits[(unsigned char)*text >> 4];
            to[3] = digits[(unsigned char)*text & 15];
            to += 4;
        }
        text += length && is_visible(code) ? length : 1;
    }
    return to;
}

char *rt_visible(const char *text)
{
    enum { MOST = 4000, KEPT = MOST / 2 };
    const size_t length = strlen(text), head = length > MOST ? KEPT : length;
    char *shown = calloc(4 * (head + KEPT) + sizeof "..." + 4, 1); /* rt_allocate reports through this function */
    if (!shown)
        return NULL;
    char *to = show(shown, text, text + head);
    if (length > MOST) {
        memcpy(to, "...", 3);
        show(to + 3, text + length - KEPT, text + length);
    }
    return shown;
}
