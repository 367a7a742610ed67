/* mir.h -- answers about dumps of the IR, FILE.mir. */
#ifndef MPC_LSP_MIR_H
#define MPC_LSP_MIR_H

#include "lsp.h"

bool is_dump(const char *path);

/* Of a document that is a dump. */
cJSON *dump_hover(Request *r);
cJSON *dump_definition(Request *r);
cJSON *dump_symbols(Request *r);

#endif
