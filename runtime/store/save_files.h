/* save_files.h -- the files of a save: either one file, which replaces another, or several with new names and a new
 * index (shards.h).  All ranks write them together, each its own parts. */
#ifndef MPC_RUNTIME_SAVE_FILES_H
#define MPC_RUNTIME_SAVE_FILES_H

#include "deal.h"
#include "output.h"

typedef struct {
    Rt *rt;
    const char *path;
    bool has_index;
    RtView *views; /* in the order of the files */
    int count;
    RtShare *share; /* of each file with tensors */
    int shares;
    /* Of the present save: */
    RtOutput output;     /* the file, or the index */
    RtOutput shard_file; /* with an index: the file that is being written */
    char **name;         /* with an index: of each file its path, then NULL */
    int64_t *head;       /* of each file: the bytes before the first tensor */
} RtSaveFiles;

/* `files`: about how many, with an index.  All ranks call it. */
RtSaveFiles rt_save_files_open(const char *path, Rt *rt, int files);
void rt_save_files_close(RtSaveFiles *files);

int64_t rt_save_files_most(const RtSaveFiles *files); /* the bytes of the tensors in the largest of them */

/* Opens them under names that are not yet used.  `metadata`: pairs of strings, key and value, ended by NULL, of the
 * length that they will have in rt_save_files_complete.  All ranks call it. */
void rt_save_files_begin(RtSaveFiles *files, int64_t step, const char *const *metadata);

/* First of all that is written, in the thread that writes, since it takes some time: the first rank finds a place for
 * the file that all ranks write to.  Files of an index have one rank each, as a rule. */
void rt_save_files_reserve(RtSaveFiles *files);

/* Between these, one after the other: the output of a file. */
RtOutput *rt_save_files_turn_to(RtSaveFiles *files, int number);
void rt_save_files_turned(RtSaveFiles *files);

/* Of ranks other than the first: their parts are on disk. */
void rt_save_files_finish(RtSaveFiles *files);

/* Of the first rank, when all have finished: what goes before the tensors, or the index. */
void rt_save_files_complete(RtSaveFiles *files, const char *const *metadata);

/* Ends the trainer after an error, with what was there before. */
void rt_save_files_require(const RtSaveFiles *files);

void rt_save_files_discard(RtSaveFiles *files); /* where it is about to end for another reason */
void rt_save_files_leave(RtSaveFiles *files);   /* after it is complete */

#endif
