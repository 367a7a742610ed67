/* export.h -- the parts of mpc export. */
#ifndef MPC_DRIVER_HF_EXPORT_H
#define MPC_DRIVER_HF_EXPORT_H

#include "exchange.h"

typedef struct {
    const Binding *b; /* of the folder that is written */
    const Folder *checkpoint;
    const Binding *adapters; /* NULL: the model has none */
    double alpha;            /* of these */
    int64_t low;             /* their rank */
} Export;

/* The tensor of that number of the folder, from the checkpoint; owned by the caller.  NULL after reporting. */
float *tensor_numbers(Run *run, const Binding *b, const Folder *checkpoint, int tensor);

/* Writes a file with the head and the tensors of `like`, with the checkpoint's numbers. */
bool write_tensors(Run *run, const Export *e, const TensorFile *like, const char *path);

/* --- adapter.c ------------------------------------------------------------------------------ */

/* Binds the adapters of the map to a folder, the caller's to close, with their rank and alpha.  False after reporting.
 */
bool open_adapters(Run *run, const Exchange *x, Export *e, Binding *adapters, Folder *folder);

/* Adds the product of an adapter to the tensor that it is of, if there is one. */
bool add_adapter(Run *run, const Export *e, const StoredTensor *stored, float *numbers);

/* --adapter: a folder as peft's save_pretrained writes it. */
bool write_adapter(Run *run, const Export *e);

#endif
