/* output.h -- files that appear whole or not at all: written beside their place, synchronised, renamed. */
#ifndef MPC_RUNTIME_OUTPUT_H
#define MPC_RUNTIME_OUTPUT_H

#include <stdint.h>

typedef struct {
    const char *path, *option; /* "--save" */
    char *partial;             /* PATH.tmp */
    int file;
    char *buffer;
    int64_t at, used; /* bytes: in the file, where the buffer belongs; of the buffer, in use */
} RtOutput;

/* Ends the trainer if `bytes` could not be written to `path` now: no such directory, no permission, not enough space,
 * not a regular file.  Leaves nothing behind. */
void rt_output_check(const char *path, const char *option, int64_t bytes);

/* On any error these end the trainer, with the partial file removed and the old one as it was. */
RtOutput rt_output_open(const char *path, const char *option);
void rt_output_write(RtOutput *output, const void *data, int64_t bytes);
void rt_output_commit(RtOutput *output);

/* One file by several ranks: one opens it; then the others join; all write, each from where it says (bytes from the
 * file's begin) on; all finish their parts, so that they are on the disk; then the first commits. */
RtOutput rt_output_join(const char *path, const char *option);
void rt_output_seek(RtOutput *output, int64_t at);
void rt_output_finish(RtOutput *output);

#endif
