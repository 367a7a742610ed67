/* fuzz_mdl.c -- any bytes as a .mdl file: parsed, checked and lowered without a crash or a hang; what lowers verifies. */
#include "ast.h"
#include "lower.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *nowhere;
    if (!nowhere)
        nowhere = fopen("/dev/null", "w");
    if (size > 20000)
        return 0;
    char *text = malloc(size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    Arena arena = { 0 };
    Source source = { "fuzz.mdl", text, (int)size };
    Diags diags = { .arena = &arena, .source = &source, .out = nowhere };
    Ast *file = parse_mdl(&source, &diags, &arena);
    if (diags.errors == 0) {
        LowerOptions options = { 0 };
        Module *m = lower_mdl(file, &source, &options, &diags, NULL);
        if (m && !verify_module(m))
            abort();
        if (m)
            free_module(m);
    }
    arena_free(&arena);
    free(text);
    return 0;
}
