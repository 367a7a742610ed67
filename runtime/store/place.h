/* place.h -- the progress of a run, as checkpoints have it. */
#ifndef MPC_RUNTIME_PLACE_H
#define MPC_RUNTIME_PLACE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    int64_t step;      /* steps done */
    int64_t position;  /* sequences read, over all epochs */
    int64_t sequences; /* sequences in the data; 0: no data read yet */
    bool shuffled;
    char weights[256]; /* of several --data: "0.7 0.3"; "": none */
    uint32_t seed;
    int64_t best_step; /* of the evaluation with the lowest loss; 0: none, or nothing asks for it */
    double best_loss;
    int64_t not_better; /* evaluations since then */
} RtPlace;

/* A checksum, since a wrong step would not be detected otherwise: FNV-1a (64 bits) of these texts, as 16 digits; owned
 * by the caller. */
char *rt_place_checksum(const char *step, const char *seed, const char *position, const char *order,
                        const char *sequences);

#endif
