/* trial.h -- the program of a run compiled with other options, and what it then takes. */
#ifndef MPC_TRIAL_H
#define MPC_TRIAL_H

#include "remedies.h"
#include "report.h"

/* The model, lowered with these options and without messages; `own`: a run for it, whose arena the caller frees.  NULL:
 * it cannot be. */
Module *lower_silently(Run *own, Run *run, const Options *options, Settings *settings);

Remedy remedy_without_options(const RemedyQuestion *question, const Report *r); /* without options */

/* False: it cannot be compiled so. */
bool try_options(Run *run, const RemedyQuestion *question, const Options *options, Remedy *made);

/* faster.c: where a step on a machine waits for what it offloads, other ways to offload that take less time and fit:
 * the least time first, and none that takes more memory for no less time. */
Remedies find_faster(const Report *r, RemedyQuestion question);

#endif
