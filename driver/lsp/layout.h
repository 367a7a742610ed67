/* layout.h -- a model on its mesh: how tensors are split, and which messages a line causes. */
#ifndef MPC_LSP_LAYOUT_H
#define MPC_LSP_LAYOUT_H

#include "lsp.h"

/* Messages of one kind over the same axes that a line causes in a step. */
typedef struct LineMessages {
    int line; /* the first is 1 */
    const char *name, *axes;
    double messages, bytes; /* that one rank sends */
    struct LineMessages *next;
} LineMessages;

/* A parameter or a value. */
typedef struct SplitTensor {
    const char *path, *type; /* "h.*.attn.wq", "f32[embed:768, heads:12/tp, ...]" */
    double bytes;            /* on one rank */
    struct SplitTensor *next;
} SplitTensor;

struct Layout {
    LineMessages *caused;
    SplitTensor *tensors;
};

/* Lowers and compiles the source of the run; NULL: it has errors. */
cJSON *list_layout(Run *run);

/* Of an analysed document; NULL: its mesh is one rank, it has errors, or it takes longer: then the editor is asked to
 * ask again. */
const Layout *layout_of(Server *server, const Document *document);
void take_layout(Server *server); /* once the worker's file can be read */

const SplitTensor *split_of(const Layout *layout, const char *path); /* NULL: none has that path */

#endif
