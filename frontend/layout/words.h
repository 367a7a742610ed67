/* words.h -- words and options of settings. */
#ifndef MPC_WORDS_H
#define MPC_WORDS_H

#include "elaborate/lowering.h"

bool is_word(const char *const words[], const char *word, NearMiss *near);
const char *word_list(Lower *l, const char *const words[]); /* "0, 1 or 2" */

void note_policy(Lower *l, const char *name, const char *value, const Ast *ast, bool said);
void check_given_once(Lower *l, const Ast *options); /* rejects repeated options */

/* A word from the command line or else from the file; NULL after reporting. */
const char *read_word(Lower *l, const char *what, const char *const words[], const Ast *ast, const char *option,
                      const char *said);

#endif
