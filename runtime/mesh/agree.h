/* agree.h -- before a run: checks that all ranks have the same options and data. */
#ifndef MPC_RUNTIME_AGREE_H
#define MPC_RUNTIME_AGREE_H

#include "options.h"

/* Each ends all ranks if one differs from rank 0, reporting the option, the rank and both values.  All ranks call them
 * in the same order; with one rank they do nothing. */
void rt_agree_on_program(Rt *rt);
void rt_agree_on_options(Rt *rt, const RtOptions *options);

/* `what`: "the weights of --data" */
void rt_agree_on_text(Rt *rt, const char *what, const char *text);

/* Compares the file of an option by its size and samples of its content: machines may have copies under different
 * names.  `kind`: the recognised format. */
void rt_agree_on_file(Rt *rt, const char *option, const char *path, const char *kind, const char *map, int64_t bytes);

#endif
