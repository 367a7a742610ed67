/* space.h -- memory of a rank for transfers of offloaded tensors, beside the arena. */
#ifndef MPC_RUNTIME_FAR_SPACE_H
#define MPC_RUNTIME_FAR_SPACE_H

enum { RT_FAR_BUFFERS = 2, RT_FAR_BUFFER_BYTES = 4 << 20 };

#endif
