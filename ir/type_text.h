/* type_text.h -- parts of types as text, in the arena. */
#ifndef MPC_TYPE_TEXT_H
#define MPC_TYPE_TEXT_H

#include "ir.h"

char *text_of_dim(Module *m, const Dim *dim); /* "seq:64/tp" */
char *text_of_axes(Module *m, Axes axes);     /* "dp+tp" */

#endif
