/* exchange.h -- the common part of import and export: a folder, a map and a model that fit each other. */
#ifndef MPC_DRIVER_HF_EXCHANGE_H
#define MPC_DRIVER_HF_EXCHANGE_H

#include "bind.h"

typedef struct {
    Folder folder;
    NameMap map;
    Module *m;
    Binding binding;
    Resize resize;
    bool is_example;   /* the model was not given: it is the example that fits the folder */
    Settings settings; /* of the model */
    TextList defines;  /* of the map and of -D: all that the model is lowered with */
} Exchange;

/* Opens a folder and lowers the model with the sizes of its configuration.  A folder without weights is refused, or
 * gets the tensors that the map names.  False after reporting. */
bool open_exchange(Run *run, Exchange *x, const char *folder, bool may_lack_weights);
void close_exchange(Exchange *x);

/* Is `path` none of the files that are read?  Else false after reporting. */
bool may_replace(Run *run, const Exchange *x, const char *path);

/* "checksum.NAME" of a checkpoint's __metadata__, and its text. */
const char *checksum_key(Arena *arena, const char *name);
const char *checksum_text(Arena *arena, const void *elements, int width, int64_t count);

#endif
