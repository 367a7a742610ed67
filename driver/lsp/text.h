/* text.h -- the text of an open document, and positions in it as editors count them. */
#ifndef MPC_LSP_TEXT_H
#define MPC_LSP_TEXT_H

#include "diag.h"

#include <cjson/cJSON.h>

/* Lines end with LF, CR LF or CR.  The bytes are followed by a 0. */
typedef struct {
    char *bytes;
    int length;
    int nlines;
    int *line; /* the first byte of each */
} Text;

void replace_text(Text *text, const char *bytes);
void free_text(Text *text);

/* A change of textDocument/didChange; false: it is none. */
bool change_text(Text *text, const cJSON *change);

/* Positions are a line and a number of UTF-16 code units in it; one behind the end of a line is that end. */
bool read_position(const Text *text, const cJSON *position, int *offset);
cJSON *position_json(const Text *text, int offset);
cJSON *range_json(const Text *text, Loc loc);
int line_of(const Text *text, int offset);
int utf16_units(const char *bytes, int length); /* of a part of a line */

int text_step(const Text *text, int at); /* the bytes of the character there */

bool is_name_byte(char c); /* of a name in a model */

#endif
