/* shards.h -- the files beside an index, as the trainer names them: NAME.step100-00002-of-00004.safetensors, or
 * NAME.step100.1-..., the first number of which no file has the name.
 *
 * A save writes files of new names, then the index, which replaces the old one at once.  Only what an index of the
 * folder names belongs to a checkpoint: the others are what a save has replaced, or a killed one has left. */
#ifndef MPC_RUNTIME_SHARDS_H
#define MPC_RUNTIME_SHARDS_H

#include <stdint.h>

/* `target`: of the index, after links (output.h). */

/* The first generation of files of this step that the folder does not have. */
int rt_shards_generation(const char *target, int64_t step);

/* The path of file `number` of `count`, from 0; owned by the caller. */
char *rt_shard_path(const char *target, int64_t step, int generation, int number, int count);

/* Removes files with such names that no index of the folder names, of whatever name; none, if one of those cannot be
 * read. */
void rt_shards_sweep(const char *target);

#endif
