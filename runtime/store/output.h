/* output.h -- files that appear whole or not at all: written beside their place, synchronised, renamed. */
#ifndef MPC_RUNTIME_OUTPUT_H
#define MPC_RUNTIME_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    const char *path, *option; /* "--save" */
    char *target, *partial;    /* the file that path leads to, which it is not if it is a link; and TARGET.tmp */
    int file;
    char *buffer;
    int64_t at, used; /* bytes: in the file, where the buffer belongs; of the buffer, in use */
} RtOutput;

/* Of symbolic links the end: what is replaced is the file, and the links stay.  Both are the caller's. */
char *rt_output_target(const char *path);
char *rt_output_partial(const char *path); /* TARGET.tmp */

/* Opens the partial; ends the trainer where that cannot be, or if `path` leads to what is no regular file. */
int rt_output_create(const char *path, const char *option, bool truncate);

/* Ends the trainer unless so many bytes are free there. */
void rt_output_check_room(const char *path, const char *option, int64_t bytes);

/* Ends the trainer if `path` could not be written now.  Leaves nothing behind. */
void rt_output_check(const char *path, const char *option);

/* On any error these end the trainer, with the partial file removed and the old one as it was. */
RtOutput rt_output_open(const char *path, const char *option);
void rt_output_write(RtOutput *output, const void *data, int64_t bytes);
void rt_output_commit(RtOutput *output);

/* One file by several ranks: one opens it; then the others join; all write, each from where it says (bytes from the
 * file's begin) on; all finish their parts, so that they are on the disk; then the first commits. */
RtOutput rt_output_join(const char *path, const char *option);
void rt_output_seek(RtOutput *output, int64_t at);
void rt_output_finish(RtOutput *output);
void rt_output_leave(RtOutput *output); /* of those that have joined, when they have finished */

#endif
