/* target.c -- see target.h. */
#include "target.h"

int64_t no_bytes(Module *m, const Op *op) { return 0; }

int no_scratch_stays(Module *m, const Op *op) { return 0; }

static bool takes_all(Module *m, const Op *op, RequiredLayout wanted[]) { return true; }

const Target no_target = {
    .scratch_bytes = no_bytes, .packed_bytes = no_bytes, .scratch_stays = no_scratch_stays, .takes = takes_all
};
