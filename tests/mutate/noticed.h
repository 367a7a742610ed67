/* noticed.h -- would the interpreter notice that a program is not the one it should be? */
#ifndef MPC_NOTICED_H
#define MPC_NOTICED_H

#include "manager/observables.h"

/* `right` is what a program means before something is planted, in the names of any module; `m` is the program with it.
 * Noticed is what cannot be run, and what gives other tensors.  `exact`: both in residues modulo a prime. */
bool is_noticed(Module *m, const Observables *right, bool exact);

#endif
