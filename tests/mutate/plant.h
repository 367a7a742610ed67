/* plant.h -- the faults that mutate.c injects. */
#ifndef MPC_PLANT_H
#define MPC_PLANT_H

#include "ir.h"

typedef struct {
    char kind; /* of fault, as in the tables */
    const char *what;
    bool (*fits)(Module *m, Func *f, Op *op);
    bool (*apply)(Module *m, Func *f, Op *op); /* false: not applicable here */
} Plant;

typedef struct {
    int count;
    const Plant *at;
} PlantList;

extern const PlantList plants_of_ranks;     /* plant.c */
extern const PlantList plants_of_gradients; /* plant_gradient.c: the only ones checked by slopes */
extern const PlantList plants_of_memory;    /* plant_memory.c */
extern const PlantList plants_of_kernels;   /* plant_kernel.c */
extern const PlantList plants_of_lanes;     /* plant_lanes.c */
extern const PlantList plants_of_schedules; /* plant_schedule.c */
extern const PlantList plants_of_outputs;   /* plant_outputs.c */

/* --- ways.c: which ops ... --- */
bool is_scale(Module *m, Func *f, Op *op); /* a constant that affects results */
bool ends_with(const char *text, const char *end);
bool adds_terms(const Op *op);
Value *value_like(Func *f, const Op *op, int i); /* another value of the type of operand i, available to op; or NULL */

/* --- ... and changes to them -------- */
bool leave_out(Module *m, Func *f, Op *op);
/* The result of an op, or of the wait for it if it is in flight; NULL: another function waits for it. */
Value *arrived(const Op *op);
bool scale_result(Module *m, Func *f, Op *op, double factor);
bool double_it(Module *m, Func *f, Op *op);
bool double_constant(Module *m, Func *f, Op *op);
bool other_instance(Module *m, Func *f, Op *op);
bool lose_left(Module *m, Func *f, Op *op);
bool lose_right(Module *m, Func *f, Op *op);
bool read_another(Module *m, Func *f, Op *op);
bool exchange_operands(Module *m, Func *f, Op *op);

#endif
