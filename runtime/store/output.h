/* output.h -- files that are replaced atomically: written under a temporary name, synchronised, renamed. */
#ifndef MPC_RUNTIME_OUTPUT_H
#define MPC_RUNTIME_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    const char *path, *option; /* "--save" */
    char *target, *partial;    /* the file at path, after links; and TARGET.tmp */
    int file;
    char *buffer;
    int64_t at, begun, used; /* bytes: file offset of the buffer, a whole page; the used part of the buffer */
    int error;               /* errno of what has failed first; nothing is written from then on */
} RtOutput;

/* Resolves symbolic links: the file is replaced, and links are kept.  Both are owned by the caller. */
char *rt_output_target(const char *path);
char *rt_output_partial(const char *path); /* TARGET.tmp */

/* Opens the partial; ends the trainer if that fails, or if `path` is not a regular file. */
int rt_output_create(const char *path, const char *option, bool truncate);

/* Ends the trainer unless there is room on its file system for so many checkpoints of this number of bytes, of which a
 * file has `most`. */
void rt_output_check_room(const char *path, const char *option, int64_t bytes, int64_t most, int64_t checkpoints);

/* Makes the names in the folder of `path` durable: a rename or a link is only after fsync of the folder. */
void rt_output_settle(const char *path);

/* Ends the trainer if `path` cannot be written now.  Creates no file. */
void rt_output_check(const char *path, const char *option);

/* After an error the partial file is removed and the trainer ends, with the old file unchanged: by rt_output_commit, or
 * by rt_output_require, on the main thread, after another one has written and replaced the file. */
RtOutput rt_output_open(const char *path, const char *option);
void rt_output_write(RtOutput *output, const void *data, int64_t bytes);
void rt_output_commit(RtOutput *output);
void rt_output_replace(RtOutput *output); /* all of commit but the end after an error, and rt_output_leave */
void rt_output_require(const RtOutput *output);

/* Removes the partial file, where the trainer is about to end for another reason. */
void rt_output_discard(RtOutput *output);

/* One file written by several ranks: one opens it; then the others join; all write, each at its own offsets (in bytes);
 * all finish their parts, so that they are on disk; then the first commits. */
RtOutput rt_output_join(const char *path, const char *option);

/* A file that is written under its own name, since nothing counts that another file does not name (shards.h): it is
 * created, or is there.  If that fails, its error says so.  It is finished, and that is all. */
RtOutput rt_output_beside(const char *path, bool is_new);

/* The file will have so many bytes: finds a place for them on the disk, if the file system can.  Without it, ranks that
 * write to a file wait for each other, since each write lengthens the file; and a full disk is found only by writing.
 */
void rt_output_reserve(RtOutput *output, int64_t bytes);

void rt_output_seek(RtOutput *output, int64_t at);
void rt_output_finish(RtOutput *output);
void rt_output_leave(RtOutput *output); /* by ranks that have joined, after they have finished */

#endif
