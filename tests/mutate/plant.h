/* plant.h -- the mistakes that mutate.c plants. */
#ifndef MPC_PLANT_H
#define MPC_PLANT_H

#include "ir.h"

typedef struct {
    char kind; /* of mistake, as the table in plant.c has them */
    const char *what;
    bool (*fits)(Module *m, Func *f, Op *op);
    bool (*apply)(Module *m, Func *f, Op *op); /* false: there is nothing to plant here after all */
} Plant;

extern const Plant plants[];
extern const int nplants;

#endif
