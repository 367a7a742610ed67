/* habits.h -- remedies for words and signs of other languages; NULL if there is none. */
#ifndef MPC_HABITS_H
#define MPC_HABITS_H

#include <stdbool.h>

const char *function_habit(const char *name);
const char *reduction_habit(const char *name); /* of two tensors */
const char *name_habit(const char *name);
const char *setting_habit(const char *name);
const char *sign_habit(const char *text);           /* of its first character */
const char *syntax_habit(const char *text, int at); /* text[at] is what the grammar did not expect */

bool brace_below(const char *text, int at); /* is text[at] the end of a line, and the next one begins with { ? */

#endif
