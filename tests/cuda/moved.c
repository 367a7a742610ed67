/* moved.c -- bytes of a launch: as the compiler says, and as the emulator has counted them. */
#include "moved.h"

#include "emulator/emulator.h"

#include <inttypes.h>
#include <stdio.h>

/* Does each launch access all elements of its operands, and those of no other op, too? */
static bool reads_all(const Module *m, const CudaCall *call)
{
    const Func *kernel =
        call->count == 1 && call->op[0]->kind == OP_call ? find_func(m, call->op[0]->attrs.callee) : NULL;
    for (const Op *op = kernel ? kernel->first : NULL; op; op = op->next)
        if (info(op)->traits & CHOOSES)
            return false;
    return kernel;
}

bool moves_what_is_said(const Module *m, const CudaLaunch *launch, const CudaCall *call)
{
    const int64_t moved = emulator_bytes_moved();
    const bool is_exact = reads_all(m, call);
    if (moved < 0 || moved == launch->bytes || (!is_exact && moved < launch->bytes))
        return true;
    printf("    %s moves %" PRId64 " bytes, and is said to move %s%" PRId64 "\n", launch->name, moved,
           is_exact ? "" : "at most ", launch->bytes);
    return false;
}
