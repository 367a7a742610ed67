/* machine.h -- machines by name or file. */
#ifndef MPC_DRIVER_MACHINE_H
#define MPC_DRIVER_MACHINE_H

#include "cost/machine.h"
#include "driver.h"

/* That of a file, or one that mpc has; NULL after errors. */
const Machine *read_machine(Run *run, const char *name);

int check_machine(Run *run); /* mpc check FILE.machine */

#endif
