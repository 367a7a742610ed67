/* tensors.h -- safetensors files, mapped for reading (https://huggingface.co/docs/safetensors, section Format).  Their
 * contents are untrusted. */
#ifndef MPC_DRIVER_HF_TENSORS_H
#define MPC_DRIVER_HF_TENSORS_H

#include "driver.h"

enum { MAX_STORED_RANK = 8 };

typedef struct {
    const char *name, *dtype; /* "F32", "BF16", ... */
    int width;                /* bytes of an element */
    int rank;
    int64_t size[MAX_STORED_RANK];
    int64_t count;      /* of elements */
    int64_t begin, end; /* bytes, from the begin of the first tensor */
    const char *data;   /* unaligned */
} StoredTensor;

typedef struct {
    const char *path;
    struct stat status;
    const char *map;     /* the file; of one that is to be written, its head */
    int64_t bytes, head; /* of the file, 0 if it is to be written; of what stands before the tensors */
    struct cJSON *header;
    StoredTensor *tensor; /* in the order of the file */
    int count;
} TensorFile;

/* `fd`: the file, open, which is closed; -1: what has been reported.  False after reporting a file that is not
 * complete: tensors with distinct names, sizes that match their bytes, no gaps. */
bool open_tensors(Run *run, TensorFile *file, const char *path, int fd);
void close_tensors(TensorFile *file);

/* "F32", "BF16" or "F16": the numbers that parameters may be. */
bool is_parameter_dtype(const char *dtype);
int width_of(const char *dtype); /* bytes of an element; 0: unknown */

/* `count` numbers of dtype `from_type` as those of `to_type`, rounded to nearest even. */
void convert_floats(const char *from_type, const void *from, const char *to_type, void *to, int64_t count);

/* The number of the first element that is nan or infinite; -1: all are finite. */
int64_t first_not_finite(const char *dtype, const void *numbers, int64_t count);

/* Are the numbers of a tensor, which has this dtype and these sizes, finite?  Else false after reporting the first one
 * that is not.  `path`: the file that they are from. */
bool check_finite(Run *run, const char *path, const StoredTensor *stored, const void *numbers);

/* One entry of a header, and a header as text: its length in 8 bytes, then JSON, padded with spaces so that the tensors
 * are aligned.  *bytes: of both. */
struct cJSON *header_entry(const char *dtype, int rank, const int64_t *size, int64_t begin, int64_t end);
const char *header_text(Arena *arena, const struct cJSON *header, int64_t *bytes);

/* "[2, 3]" */
const char *sizes_text(Arena *arena, int rank, const int64_t *size);

#endif
