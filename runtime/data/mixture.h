/* mixture.h -- the endless list of sequences that a run reads: the sequence at a position is a function of the position
 * alone. */
#ifndef MPC_RUNTIME_MIXTURE_H
#define MPC_RUNTIME_MIXTURE_H

#include <stdbool.h>
#include <stdint.h>

/* Sequences are numbered from source to source. */
typedef struct {
    int64_t first, count; /* the sequences of this source */
    double weight;        /* 0: no source has one */
    int64_t quota;        /* entries of each round of RT_ROUND that it gets; set by rt_mixture_quotas */
} RtPortion;

enum { RT_ROUND = 10000 };

/* The quotas of a round in proportion to the weights; a portion that gets none has too small a weight. */
void rt_mixture_quotas(RtPortion *portion, int count);

typedef struct {
    const RtPortion *portion; /* owned by the caller */
    int count;
    uint32_t seed;
    bool in_order;
    int64_t round;      /* that the tables are of; -1: of none */
    int *source;        /* of each entry of the round */
    int64_t *among_own; /* the entries of the same source before it in the round */
} RtMixture;

RtMixture *rt_mixture_open(const RtPortion *portion, int count, uint32_t seed, bool in_order);
void rt_mixture_close(RtMixture *mixture); /* or NULL */

/* The sequence at a position.  Without weights: a permutation of all sequences for each epoch.  With weights: a
 * permutation of the sources' entries in each round, and of the sequences of each source for each of its own epochs. In
 * order: the sequences, or those of each source, are not permuted. */
int64_t rt_mixture_at(RtMixture *mixture, int64_t position);

#endif
