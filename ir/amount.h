/* amount.h -- amounts for people, in everything that mpc prints. */
#ifndef MPC_AMOUNT_H
#define MPC_AMOUNT_H

#include "arena.h"

#include <stdint.h>

const char *bytes_text(Arena *arena, double bytes); /* "45.20 GB", "512 B" */
const char *flops_text(Arena *arena, double flops); /* "29.57 kFLOP" */

/* "124,439,808" */
char *grouped(Arena *arena, int64_t number);

/* "1 micro-batch", "2,048 micro-batches": of the noun for one. */
const char *counted(Arena *arena, int64_t number, const char *noun);

#endif
