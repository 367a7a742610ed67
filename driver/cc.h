/* cc.h -- runs the C compiler on trainer.c. */
#ifndef MPC_CC_H
#define MPC_CC_H

#include "driver.h"

/* Where the runtime is that trainers are compiled with. */
typedef struct {
    const char *library; /* libmpcrt.a; for GPUs libmpcrt_cuda.a */
    const char *headers; /* the folder of rt.h */
} Runtime;

/* $MPC_RUNTIME, else beside mpc in its build tree, else where it was installed.  False after saying what is
 * missing. */
bool find_runtime(Run *run, Runtime *runtime);

/* The command that compiles OUT/trainer.c into `program`, a NULL at its end.  NULL after an error: CUDA's libraries are
 * missing. */
const char **cc_command(Run *run, const Runtime *runtime, const char *program, bool needs_mpi);

/* Its words with a space between. */
char *command_text(Run *run, const char *const argv[]);

/* Runs it to its end; false after an error. */
bool run_command(Run *run, const char *const argv[]);

#endif
