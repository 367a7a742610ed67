/* habits.h -- remedies for what other languages write where this one has something else; NULL if there is none. */
#ifndef MPC_HABITS_H
#define MPC_HABITS_H

#include <stdbool.h>

const char *syntax_habit(const char *text, int at); /* the grammar did not expect text[at] */

bool brace_below(const char *text, int at); /* is text[at] the end of a line, and the next one begins with { ? */

#endif
