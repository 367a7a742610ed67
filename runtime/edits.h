/* edits.h -- how far apart two names are, for "did you mean ...?". */
#ifndef MPC_RUNTIME_EDITS_H
#define MPC_RUNTIME_EDITS_H

/* The number of insertions, deletions and replacements of bytes from a to b (Levenshtein distance). */
int rt_edits(const char *a, const char *b);

#endif
