/* outputs.h -- before a run: checks that its outputs are not its inputs, and replace no existing files. */
#ifndef MPC_RUNTIME_OUTPUTS_H
#define MPC_RUNTIME_OUTPUTS_H

#include "options.h"

/* Ends the trainer where one file has two uses, but for a checkpoint that is loaded and saved, and where a file that
 * is there would be lost without --overwrite.  The log is left to rt_log_open, since a run that goes on adds to it. */
void rt_outputs_check(const RtOptions *options, int rank);

/* Ends the trainer if a file with content is at `path`: `remedy` is what to do but to overwrite it. */
void rt_outputs_keep(const char *path, const char *option, const char *remedy);

#endif
