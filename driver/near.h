/* near.h -- what somebody may have meant by a word that does not exist. */
#ifndef MPC_NEAR_H
#define MPC_NEAR_H

/* Begin with {word}, offer() every word there is; `best` is then the nearest, or NULL if none is near. */
typedef struct {
    const char *word, *best;
    int edits; /* that lead from word to best */
} Near;

void near_offer(Near *near, const char *candidate);

#endif
