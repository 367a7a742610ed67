/* visible.h -- text that others wrote, such as names from files, shown so that it cannot control a terminal or hide
 * other text.  ir/visible.h is the same for the compiler. */
#ifndef MPC_RUNTIME_VISIBLE_H
#define MPC_RUNTIME_VISIBLE_H

/* The text with each byte that cannot be seen (control characters, line ends too, invisible characters, what is no
 * UTF-8) as \xNN; a text of more than 4,000 bytes loses its middle.  A new string, owned by the caller;
 * NULL: out of memory. */
char *rt_visible(const char *text);

#endif
