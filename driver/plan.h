/* plan.h -- plan.json: every effective value, its unit, and where it came from. */
#ifndef MPC_PLAN_H
#define MPC_PLAN_H

#include "report.h"

/* The settings of IR from a file: those in its `train` line. */
Settings settings_of_ir(Run *run, const Module *m);

/* The text of plan.json, in the run's arena. */
const char *plan_text(const Report *report, const Settings *settings);

#endif
