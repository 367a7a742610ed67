/* compile.h -- declarations that `mpc run` shares with `mpc compile`. */
#ifndef MPC_COMPILE_H
#define MPC_COMPILE_H

#include "driver.h"

/* STATUS_OK, or that of the error about --target that it has reported. */
int check_target(const Options *o);

/* Writes the trainer's folder and compiles the trainer; the module has been through all passes.  False after an
 * error. */
bool build_trainer(Run *run, Module *m, const Settings *settings);

#endif
