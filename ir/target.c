/* target.c -- see target.h. */
#include "target.h"

int64_t no_bytes(Module *m, const Op *op) { return 0; }

void no_packing(Module *m, const Op *op, Packing side[2]) { side[0] = side[1] = (Packing){ 0 }; }

/* Rows and bytes are whole numbers, or nearly. */
double bytes_of_packing(double rows, double row_bytes, int64_t long_row)
{
    return rows > 1.5 && (!long_row || row_bytes + 0.5 < (double)long_row) ? rows * row_bytes : 0;
}

double packed_bytes(const Packing side[2])
{
    double bytes = 0;
    for (int i = 0; i < 2; i++)
        bytes += bytes_of_packing((double)side[i].rows, (double)side[i].row_bytes, side[i].long_row);
    return bytes;
}

int no_scratch_stays(Module *m, const Op *op) { return 0; }

static bool takes_all(Module *m, const Op *op, RequiredLayout wanted[]) { return true; }

const Target no_target = {
    .scratch_bytes = no_bytes, .packing = no_packing, .scratch_stays = no_scratch_stays, .takes = takes_all
};
