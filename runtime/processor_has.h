/* processor_has.h -- finds the instructions of the processor that this runs on. */
#ifndef MPC_RUNTIME_PROCESSOR_HAS_H
#define MPC_RUNTIME_PROCESSOR_HAS_H

#include <stdbool.h>

/* The feature of this name in processor_features.h; false if there is none, as on another kind of processor. */
bool rt_processor_has(const char *name);

#endif
