/* signals.h -- Ctrl-C and SIGTERM: the step that runs is finished, then the run ends in order. */
#ifndef MPC_RUNTIME_SIGNALS_H
#define MPC_RUNTIME_SIGNALS_H

/* From now on the first signal is only noted, and ends a call that waits with EINTR; a second one ends the process. */
void rt_signals_catch(void);

int rt_signals_caught(void); /* the signal's number, or 0 */

#endif
