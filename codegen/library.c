/* library.c -- calls of the runtime's kernels for LIBRARY ops. */
#include "names.h"

char *library_call(Module *m, const Op *op, const char *const operand[], const char *scratch)
{
    error_at(m->diags, (Where){ .at = op->loc }, "the C back end has no kernel for %s", info(op)->name);
    return NULL;
}

int64_t library_scratch(Module *m, const Op *op) { return 0; }
