/* signals.h -- signals that end a run: the current step is finished and saved, then the run ends normally.  Before the
 * first step, while data are read, weights loaded or kernels tuned, there is nothing to save, and it ends at once.
 *
 * Ctrl-C, SIGTERM, SIGHUP unless it is ignored (nohup), SIGUSR1, SIGUSR2 and SIGXCPU, with which batch systems announce
 * the time limit; and SIGPIPE: the reader of the output is gone. */
#ifndef MPC_RUNTIME_SIGNALS_H
#define MPC_RUNTIME_SIGNALS_H

/* From now on a signal ends the process, with the status that it has later. */
void rt_signals_catch(void);

/* From now on the first signal only sets a flag and interrupts a blocking call (EINTR); one more than a second later
 * ends the process. */
void rt_signals_keep(void);

int rt_signals_caught(void); /* the signal's number, or 0 */

#endif
