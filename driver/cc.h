/* cc.h -- runs the C compiler on trainer.c. */
#ifndef MPC_CC_H
#define MPC_CC_H

#include "driver.h"

/* The location of the runtime for compiling trainers. */
typedef struct {
    const char *library; /* libmpcrt.a; for GPUs libmpcrt_cuda.a */
    const char *headers; /* the folder of rt.h */
    const char *mpi;     /* a file: the linker's flags of the MPI with which it was built; empty, if with none */
} Runtime;

/* Where the program mpc is; "." if the system does not tell. */
const char *folder_of_mpc(Run *run);

/* $MPC_RUNTIME, else next to mpc in its build tree, else the installed one.  False after reporting what is missing. */
bool find_runtime(Run *run, Runtime *runtime);

/* The NULL-terminated command that compiles OUT/trainer.c into `program`.  `comm`: how its ranks communicate, "mpi" or
 * "tcp"; NULL for a single one.  NULL after an error: CUDA's libraries are
 * missing, or the runtime has no MPI. */
const char **cc_command(Run *run, const Runtime *runtime, const char *program, const char *comm);

/* Its words, separated by spaces. */
char *command_text(Run *run, const char *const argv[]);

/* Runs it and waits; false after an error. */
bool run_command(Run *run, const char *const argv[]);

#endif
