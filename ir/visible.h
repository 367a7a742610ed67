/* visible.h -- text that others wrote, such as names from files, shown so that it cannot control a terminal or hide
 * other text. */
#ifndef MPC_VISIBLE_H
#define MPC_VISIBLE_H

#include "arena.h"

/* The length in bytes of the printable UTF-8 character at `text`, of which `left` bytes may be read; 0: none. */
int character_length(const char *text, int left);

/* The code point of the character at `text` if it is invisible: zero-width spaces, marks that change the text
 * direction.  0 for all others. */
unsigned hidden_character(const char *text, int length);

/* The bytes of the character at `text` if it can be seen; 0: a control character, an invisible one, or no UTF-8. */
int visible_length(const char *text, int left);

/* The text with each byte that cannot be seen, line ends too, as \xNN; a text of more than 4,000 bytes loses its
 * middle.  The text itself if that changes nothing.  Every message of mpc is printed through it. */
const char *visible_text(Arena *arena, const char *text);

void print_visible(FILE *out, const char *text);

/* The text as one word of a shell, quoted where it has to be; it can be seen like visible_text. */
const char *shell_word(Arena *arena, const char *text);

#endif
