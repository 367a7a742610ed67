/* format.h -- formatting of .mdl files: only indentation and spaces change. */
#ifndef MPC_FORMAT_H
#define MPC_FORMAT_H

#include <stdio.h>

/* Writes `text`, a file without syntax errors, in the format of mpc fmt. */
void write_formatted(const char *text, int length, FILE *out);

#endif
