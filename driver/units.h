/* units.h -- from the units of a trainer to the program. */
#ifndef MPC_UNITS_H
#define MPC_UNITS_H

#include "cc.h"

#include "codegen/host/host.h"

/* Compiles OUT/trainer.c, whose units they are, into `program`: units whose objects are not cached, side by side.
 * `command`: the equivalent single command, which is shown after an error.  False after an error. */
bool make_program(Run *run, const Runtime *runtime, const Units *units, const char *program, const char *comm,
                  const char *const command[]);

#endif
