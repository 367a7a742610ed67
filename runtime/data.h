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

/* Opens and checks a file.  `format` is a word of --data-format, or NULL: told from the file. */
RtData *rt_data_open(const char *path, const char *option, const char *format);
void rt_data_close(RtData *data);

/* Whole sequences of f->seq tokens, with the one further that the last label needs. */
int64_t rt_data_sequences(const RtData *data, const RtFunction *f);

/* Ends the trainer where the data hold less than one call of `f` needs. */
void rt_data_require(const RtData *data, const RtFunction *f);

/* Writes this rank's part of the inputs of one call of `f` into the arena: its n-th sequence is number sequence[n] of
 * the data. Ends the trainer at a token that is not below the vocabulary. */
void rt_data_fill(const RtData *data, Rt *rt, const RtFunction *f, const int64_t *sequence);

/* --- format.c: what a file holds; fills the fields from `format` on but for map and bytes --------------- */

void rt_data_recognise(RtData *data, const char *format);

#endif
