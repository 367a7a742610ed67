/* layout.h -- a model on its mesh: how tensors are split, and which messages a line causes. */
#ifndef MPC_LSP_LAYOUT_H
#define MPC_LSP_LAYOUT_H

#include "lsp.h"

/* Messages of one kind over the same axes that a line causes in a step. */
typedef struct Caused {
    int line; /* the first is 1 */
    const char *name, *axes;
    double messages, bytes; /* that one rank sends */
    struct Caused *next;
} Caused;

/* A parameter or a value. */
typedef struct SplitTensor {
    const char *path, *type; /* "h.*.attn.wq", "f32[embed:768, heads:12/tp, ...]" */
    double bytes;            /* on one rank */
    struct SplitTensor *next;
} SplitTensor;

struct Layout {
    double ranks; /* 1: nothing is split */
    Caused *caused;
    SplitTensor *tensors;
};

/* In the arena; NULL: the model has errors, or takes too long. */
const Layout *find_layout(const Analysis *analysis, Arena *arena);

const Layout *layout_of(Document *document); /* the same of an analysed document, found once */

const SplitTensor *split_of(const Layout *layout, const char *path); /* NULL: none has that path */

#endif
