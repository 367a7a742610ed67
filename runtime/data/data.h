/* data.h -- the data of --data and --eval-data: one stream of tokens, cut into sequences, or records: arrays of as many
 * rows, one for each input. */
#ifndef MPC_RUNTIME_DATA_H
#define MPC_RUNTIME_DATA_H

#include "mixture.h"
#include "rt.h"
#include "source.h"

#include <stddef.h>

typedef enum {
    DATA_U8,
    DATA_I8,
    DATA_U16,
    DATA_I16,
    DATA_U32,
    DATA_I32,
    DATA_I64,
    DATA_U64,
    DATA_BOOL,
    DATA_F16,
    DATA_BF16,
    DATA_F32,
    DATA_F64
} RtNumberType;

enum { RT_DATA_RANK = RT_MAX_RANK + 1 };

/* Numbers in a mapped file, row-major. */
typedef struct {
    const char *path, *option; /* "--data" */
    const char *format;        /* "llm.c, uint16": for messages */
    const char *map;           /* the whole file */
    int64_t bytes;             /* of the file */
    const char *first;         /* the first of `count` numbers, inside map; unaligned */
    RtNumberType type;
    int64_t count;
    int rank; /* of tokens 1 */
    int64_t size[RT_DATA_RANK];
} RtArray;

/* How one input is fed; data.c has it. */
typedef struct RtFeed RtFeed;

/* Which of its sequences or records the data are, with --eval-fraction. */
typedef enum { RT_ALL, RT_TRAINED, RT_HELD_OUT } RtShare;

/* What a file contributes: sequences of tokens, or records of one input. */
typedef struct {
    int64_t first, count; /* their numbers among those of the data */
    int64_t begin;        /* of sequences: of these, the first one in the file */
} RtShard;

/* The arrays of one input, one after the other. */
typedef struct {
    const char *input;
    int first, count; /* of RtData.array */
} RtColumn;

typedef struct {
    const char *option;
    const RtFunction *f;   /* whose inputs they feed */
    const RtFunction *all; /* which has every input of the program: files of others are left alone */
    RtFeed *feed;          /* one for each of them */
    bool is_records;
    RtArray *array; /* one for each file */
    RtShard *shard; /* of each file */
    int count;
    RtColumn *column; /* records: of each input that is not next() of another */
    int columns;
    int64_t records;  /* of each input, of this share and of the other */
    RtSource *source; /* of each value of the option; records: of each column */
    int sources;
    RtPortion *portion; /* of each source; of records, one */
    int portions;
    RtShare share;
    double fraction; /* that is held out */
    int64_t least;   /* sequences or records: fewer are an error */
} RtData;

typedef struct {
    const char *const *given; /* the values of the option, ended by NULL: FILE, or INPUT=FILE for each input */
    const char *option;
    const char *format; /* a word of --data-format, or NULL: detected */
    RtShare share;
    double fraction;
    int64_t least;
} RtDataGiven;

/* Opens and checks files that feed this rank's part of the inputs of `f`, which outlives the result.  Detecting bytes
 * is an error if the program's vocabulary exceeds 256.  Ends the trainer if there are fewer than the `least` sequences
 * or records. */
RtData *rt_data_open(const Rt *rt, RtDataGiven given, const RtFunction *f);
void rt_data_close(RtData *data);

/* Of portion i: "1000 tokens (uint16), 15 sequences", "70 records of image (NumPy, float32), label (NumPy, int64)", and
 * its share, where there are several; owned by the caller. */
char *rt_data_words(const RtData *data, int i);

/* The weights, as they are given: "0.7 0.3"; "": none.  Owned by the caller. */
char *rt_data_weights(const RtData *data);

/* The number of whole sequences of seq tokens, each followed by one token for the last label; or of records. */
int64_t rt_data_sequences(const RtData *data);

/* The error in these sequences, for this rank's part of the inputs: a number outside the vocabulary, or not finite.
 * NULL: none; else owned by the caller. */
char *rt_data_fault(const RtData *data, const int64_t *sequence);

/* Reads this rank's part of the inputs of one call, whose n-th sequence is number sequence[n] of the data, into memory
 * beside the arena: all that can go wrong with files goes wrong before a step begins.  The result is as above. */
char *rt_data_fetch(RtData *data, const int64_t *sequence);

/* Writes what was fetched last into the arena. */
void rt_data_put(const RtData *data, Rt *rt);

/* Both at once, of sequences already checked with rt_data_fault. */
void rt_data_fill(const RtData *data, Rt *rt, const int64_t *sequence);

/* --- array.c: numbers of any type -------------------------------------------------------------------- */

/* What a format of files calls a type. */
typedef struct {
    const char *word;
    RtNumberType type;
    const char *format; /* of RtArray */
} RtNumberName;

/* Sets type and format of the array if the first `length` bytes of `word` are one of the names; else gives false. */
bool rt_number_take(RtArray *array, const RtNumberName names[], int count, const char *word, size_t length);

int rt_number_bytes(RtNumberType type);
bool rt_number_is_real(RtNumberType type);
int64_t rt_integer_at(const RtArray *array, int64_t position); /* not of real numbers; at most INT64_MAX */
char *rt_integer_text(const RtArray *array, int64_t position); /* exactly; owned by the caller */
double rt_real_at(const RtArray *array, int64_t position);

/* --- format.c: detects the format of tokens; sets the fields from `format` on except map and bytes ------ */

RtArray rt_tokens_open(const char *path, const char *option, const char *format, int64_t vocab);

/* --- foreign.c: ends the trainer where a file is not what its name says; all can be read with --data-format --- */

/* Archives, columnar formats, weights; text that is not UTF-8, if each byte would be a token. */
void rt_refuse_containers(const RtArray *array, bool takes_bytes);

/* Integers of two, four or eight times the bytes of array->type: of tokens below `vocab` (0: any). */
void rt_refuse_wider(const RtArray *array, int64_t vocab);

/* --- stream.c: tokens ------------------------------------------------------------------------------------ */

void rt_stream_open(RtData *data, RtDataGiven given, int64_t vocab);
char *rt_stream_words(const RtData *data, int portion);

/* --- records.c ----------------------------------------------------------------------------------------- */

/* Is it INPUT=FILE, with an input of this function?  Then FILE, else NULL. */
const char *rt_records_file(const RtFunction *f, const char *given);
void rt_records_open(RtData *data, const char *const *given, const RtFunction *f);
int64_t rt_records_at(const RtData *data, int64_t number); /* its place in the arrays */
char *rt_records_words(const RtData *data);

/* --- npy.c: NumPy arrays ------------------------------------------------------------------------- */

bool rt_npy_is(const RtArray *array);
void rt_npy_take(RtArray *array);
void rt_npy_take_tokens(RtArray *array);
char *rt_npy_head(RtType type, int rank, const int64_t size[], int64_t *bytes); /* of a file; owned by the caller */

#endif
