/* noticed.h -- does the interpreter detect a faulty program? */
#ifndef MPC_NOTICED_H
#define MPC_NOTICED_H

#include "manager/observables.h"

/* `right`: the observables of the original program, in the names of any module; `m`: the program with a fault.
 * Detected means that it cannot be run, or gives other tensors.  `exact`: both in residues modulo a prime. */
bool is_noticed(Module *m, const Observables *right, bool exact);

#endif
