/* data.h -- the tokens of --data and --eval-data, mapped from their file. */
#ifndef MPC_RUNTIME_DATA_H
#define MPC_RUNTIME_DATA_H

#include "rt.h"

typedef enum { RT_U8, RT_I8, RT_U16, RT_I16, RT_U32, RT_I32_TOKEN, RT_I64 } RtTokenType;

typedef struct {
    const char *path, *option; /* "--data" */
    const char *format;        /* "llm.c, uint16": for messages */
    const char *map;           /* the whole file */
    int64_t bytes;             /* of the file */
    const char *tokens;        /* the first of `count`, inside map */
    RtTokenType type;
    int64_t count;
} RtData;

/* Opens and checks a file.  `format` is a word of --data-format, or NULL: detected; detecting bytes is an error if the
 * program's vocabulary exceeds 256. */
RtData *rt_data_open(const char *path, const char *option, const char *format, int64_t vocab);
void rt_data_close(RtData *data);

/* The number of whole sequences of f->seq tokens, each followed by one token for the last label. */
int64_t rt_data_sequences(const RtData *data, const RtFunction *f);

/* Ends the trainer if the data are not sufficient for one call of `f`. */
void rt_data_require(const RtData *data, const RtFunction *f);

/* The error in these sequences, for this rank's part of the inputs: a token outside the vocabulary.  NULL: none; else
 * owned by the caller. */
char *rt_data_fault(const RtData *data, const Rt *rt, const RtFunction *f, const int64_t *sequence);

/* Writes this rank's part of the inputs of one call of `f` into the arena: its n-th sequence is number sequence[n] of
 * the data, already checked with rt_data_fault. */
void rt_data_fill(const RtData *data, Rt *rt, const RtFunction *f, const int64_t *sequence);

/* --- format.c: detects the format; sets the fields from `format` on except map and bytes ---------------- */

void rt_data_recognise(RtData *data, const char *format, int64_t vocab);

extern const int rt_token_bytes[]; /* of an RtTokenType */

/* --- npy.c: NumPy arrays ------------------------------------------------------------------------- */

bool rt_data_is_npy(const RtData *data);
void rt_data_take_npy(RtData *data);

#endif
