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

/* A NULL-terminated command that compiles the file `unit` into `object`; NULL after an error. */
const char **unit_command(Run *run, const Runtime *runtime, const char *unit, const char *object);

/* The command that makes `program` of files: OUT/trainer.c, or the objects of its units.  `comm`: how its ranks
 * communicate, "mpi" or "tcp"; NULL for a single one.  NULL after an error: CUDA's libraries are missing, or the
 * runtime has no MPI. */
const char **program_command(Run *run, const Runtime *runtime, const char *program, const char *comm, int count,
                             const char *const files[]);

/* Its words, separated by spaces. */
char *command_text(Run *run, const char *const argv[]);

/* Runs them, as many at a time as there are processors, and waits.  False if one failed; the compiler has said why. */
bool run_commands(Run *run, int count, const char **const commands[]);

#endif
