/* model_explorer.h -- a program for Google's Model Explorer. */
#ifndef MPC_MODEL_EXPLORER_H
#define MPC_MODEL_EXPLORER_H

#include "driver.h"

/* As a graph collection in JSON; false after reporting. */
bool write_model_explorer(Run *run, Module *m, const char *path);

#endif
