/* rewrite.h -- rewriting by the rules of rules.def. */
#ifndef MPC_REWRITE_H
#define MPC_REWRITE_H

#include "term.h"

typedef struct {
    const char *text[2];
    Term *when, *write;
} Rule;

Rule *read_rules(Arena *arena, int *count);

/* Applies the first rule that fits an op of one result; returns the replacement, or NULL. */
Value *rewrite(Builder *b, const Rule *rules, int nrules, Op *op);

/* Rewrites every op of a function for which a rule fits. */
void apply_rules(Module *m, Func *f);

#endif
