/* outputs.h -- before a run: checks that its outputs are not its inputs and do not replace existing files. */
#ifndef MPC_RUNTIME_OUTPUTS_H
#define MPC_RUNTIME_OUTPUTS_H

#include "options.h"

/* Ends the trainer if one file has two uses, except a checkpoint that is loaded and saved, or if an existing file would
 * be overwritten without --overwrite.  Makes the folder of --outputs.  The log is checked by rt_log_open, since a
 * resumed run appends to it. */
void rt_outputs_check(const RtOptions *options, const RtProgram *program, int rank);

/* Ends the trainer if `path` is a file with content; `remedy`: an alternative to --overwrite, for the message. */
void rt_outputs_keep(const char *path, const char *option, const char *remedy);

/* Ends the trainer unless it may have as many more files open as it has when it writes its outputs: the end of a run is
 * late for that. */
void rt_outputs_need_files(const RtOptions *options);

#endif
