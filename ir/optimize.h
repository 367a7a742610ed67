/* optimize.h -- the first parameters of a function with the role OPTIMIZE; then comes its state. */
#ifndef MPC_OPTIMIZE_H
#define MPC_OPTIMIZE_H

enum {
    UPDATED_PARAM,
    UPDATE_GRADIENT,
    UPDATE_LR,   /* a scalar, as the next */
    UPDATE_STEP, /* from 1 */
    N_UPDATE_PARAMS
};

#endif
