/* weights.h -- the tensors of a checkpoint: in one safetensors file, or in several beside an index of them.
 *
 * An index is JSON as Hugging Face has it, NAME.safetensors.index.json: {"metadata": {...}, "weight_map": {TENSOR:
 * FILE}}.  Each file has whole tensors.  The metadata of a checkpoint of the trainer is that of its index. */
#ifndef MPC_RUNTIME_WEIGHTS_H
#define MPC_RUNTIME_WEIGHTS_H

#include "safetensors.h"

#define RT_INDEX_SUFFIX ".safetensors.index.json"

/* By its name. */
bool rt_is_index(const char *path);

/* An index has the tensors of all its files.  Ends the trainer unless each of them is where the index says, and there
 * are no others. */
RtSafetensors rt_weights_open(const char *path, const char *option);

/* The same, where one that is not complete says so by its fault. */
RtSafetensors rt_weights_look(const char *path, const char *option);
void rt_weights_close(RtSafetensors *weights);

/* Sorted, without repetition: the names of the files of an index; each and the list are owned by the caller.  NULL:
 * `index` is none, or names what is not a file beside it. */
char **rt_index_files(const struct cJSON *index, int *count);
void rt_index_files_free(char **files, int count);

/* The text of an index; owned by the caller.  `files`: of each view, the name of its file; `metadata` as of
 * rt_safetensors_header. */
char *rt_index_text(const RtView *views, int count, const char *const *files, const char *const *metadata);

#endif
