/* copy.h -- copies the elements of moves between tensors of a folder and of a checkpoint. */
#ifndef MPC_DRIVER_HF_COPY_H
#define MPC_DRIVER_HF_COPY_H

#include "bind.h"

/* `tensor` and `param`: the first elements; `width`: bytes of an element. */
void move_in(const Move *move, const char *tensor, char *param, int width);
void move_out(const Move *move, const char *param, char *tensor, int width);

#endif
