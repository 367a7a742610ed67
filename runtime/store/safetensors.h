/* safetensors.h -- the file format of checkpoints: u64 length of a JSON header, the header, the tensors.  Files from
 * other programs are read, too; their contents are untrusted. */
#ifndef MPC_RUNTIME_SAFETENSORS_H
#define MPC_RUNTIME_SAFETENSORS_H

#include "tensors.h"

typedef struct {
    const char *name, *dtype; /* "F32", "BF16", ... */
    int rank;
    int64_t size[RT_MAX_RANK];
    int64_t begin, end; /* bytes, from the begin of the first tensor */
    const char *data;   /* unaligned */
} RtStored;

typedef struct RtSafetensors {
    const char *path, *option; /* "--load": for messages */
    const char *map;
    int64_t bytes;
    struct cJSON *header, *metadata; /* of these it is a part; NULL: there are none */
    RtStored *tensors;               /* sorted by name */
    int count;
    struct RtSafetensors *shard_file; /* of an index (weights.h): the files that it names, which have the tensors */
    int shard_files;
    char *fault; /* NULL: the file is complete */
} RtSafetensors;

/* Ends the trainer unless the file is complete: tensors with distinct names, sizes that match their bytes, no gaps. */
RtSafetensors rt_safetensors_open(const char *path, const char *option);

/* The same, where a file that is not complete says so by its fault. */
RtSafetensors rt_safetensors_look(const char *path, const char *option);
void rt_safetensors_close(RtSafetensors *file);

/* Sorts the tensors by name; false, with a fault, if two have one name. */
bool rt_safetensors_sort(RtSafetensors *file);

/* Notes the first fault, which the file then owns; false. */
bool rt_safetensors_refuse(RtSafetensors *file, char *why);

/* The JSON of untrusted text; NULL: it is no object. */
struct cJSON *rt_json_object(const char *text, int64_t bytes);

const RtStored *rt_safetensors_find(const RtSafetensors *file, const char *name); /* NULL: not there */
const char *rt_safetensors_metadata(const RtSafetensors *file, const char *key);  /* NULL: not there */

/* The header of a file of these tensors, including its length; owned by the caller.  `metadata` is pairs of strings,
 * key and value, ended by NULL. */
char *rt_safetensors_header(const RtView *views, int count, const char *const *metadata, int64_t *bytes);

#endif
