/* data.h -- the tokens of --data and --eval-data, mapped from their file. */
#ifndef MPC_RUNTIME_DATA_H
#define MPC_RUNTIME_DATA_H

#include "rt.h"

typedef enum { RT_U8, RT_I8, RT_U16, RT_I16, RT_U32, RT_I32_TOKEN, RT_I64 } RtTokenType;

typedef struct {
    const char *path, *option; /* "--data" */
    const char *format;        /* "llm.c, uint16": for people */
    const char *map;           /* the whole file */
    int64_t bytes;             /* of the file */
    const char *tokens;        /* the first of `count`, inside map */
    RtTokenType type;
    int64_t count;
} RtData;

/* Opens and checks a file.  `format` is a word of --data-format, or NULL: told from the file, and refused where that is
 * bytes for a program of more tokens (vocab) than a byte has. */
RtData *rt_data_open(const char *path, const char *option, const char *format, int64_t vocab);
void rt_data_close(RtData *data);

/* Whole sequences of f->seq tokens, with the one further that the last label needs. */
int64_t rt_data_sequences(const RtData *data, const RtFunction *f);

/* Ends the trainer where the data hold less than one call of `f` needs. */
void rt_data_require(const RtData *data, const RtFunction *f);

/* Why this rank's part of the inputs cannot be filled from these sequences: a token that is not below the vocabulary.
 * NULL: it can; else the caller's. */
char *rt_data_fault(const RtData *data, const Rt *rt, const RtFunction *f, const int64_t *sequence);

/* Writes this rank's part of the inputs of one call of `f` into the arena: its n-th sequence is number sequence[n] of
 * the data, in which rt_data_fault has found no fault. */
void rt_data_fill(const RtData *data, Rt *rt, const RtFunction *f, const int64_t *sequence);

/* --- format.c: what a file holds; fills the fields from `format` on but for map and bytes --------------- */

void rt_data_recognise(RtData *data, const char *format, int64_t vocab);

extern const int rt_token_bytes[]; /* of an RtTokenType */

/* --- npy.c: NumPy's arrays ----------------------------------------------------------------------- */

bool rt_data_is_npy(const RtData *data);
void rt_data_take_npy(RtData *data);

#endif
