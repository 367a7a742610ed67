/* layout.c -- prints the layout that mpc derives for a model.
 *
 *   layout FILE.mdl [NAME=VALUE ...]      other sizes, as -D gives them
 */
#include "planner/derive.h"

#include "lower.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 20 };

static Source read_file(const char *path)
{
    static char text[MOST_BYTES];
    FILE *in = fopen(path, "rb");
    if (!in) {
        perror(path);
        exit(2);
    }
    const Source source = { .path = path, .text = text, .length = (int)fread(text, 1, sizeof text - 1, in) };
    fclose(in);
    return source;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    Arena arena = { 0 };
    Source source = read_file(argv[1]);
    Diags diags = { .arena = &arena, .source = &source, .out = stderr };
    Override *defines = NEW_ARRAY(&arena, Override, argc);
    for (int i = 2; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        *equals = 0;
        defines[i - 2] = (Override){ argv[i], equals + 1 };
    }
    const Ast *file = parse_mdl(&source, &diags, &arena);
    WholeDims whole = { 0 };
    const LowerOptions options = { .defines = defines, .ndefines = argc - 2, .whole = &whole };
    Module *m = diags.errors ? NULL : lower_mdl(file, &source, &options, &diags, NULL);
    const char *block = m ? derive_layout(&arena, file, m) : NULL;
    if (block)
        fputs(block, stdout);
    if (m)
        free_module(m);
    arena_free(&arena);
    return m && block ? 0 : 1;
}
