/* layout.c -- what mpc plan does to the text of a model, for test_derive.py and test_rewrite.py.
 *
 *   layout derive FILE.mdl [NAME=VALUE ...]             prints the derived layout; sizes: as -D gives them
 *   layout write FILE.mdl BLOCK COMMENT MICROBATCH [ABREAST]   prints the file with that layout
 */
#include "planner/derive.h"
#include "planner/rewrite.h"

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

static int derive(Arena *arena, Source *source, Diags *diags, char **names, int count)
{
    Override *defines = NEW_ARRAY(arena, Override, count + 1);
    for (int i = 0; i < count; i++) {
        char *equals = strchr(names[i], '=');
        *equals = 0;
        defines[i] = (Override){ names[i], equals + 1 };
    }
    const Ast *file = parse_mdl(source, diags, arena);
    WholeDims whole = { 0 };
    const LowerOptions options = { .defines = defines, .ndefines = count, .whole = &whole };
    Module *m = diags->errors ? NULL : lower_mdl(file, source, &options, diags, NULL);
    if (!m)
        return 1;
    const char *block = derive_layout(arena, file, m, true);
    fputs(block ? block : "nothing can be split\n", stdout);
    free_module(m);
    return 0;
}

static int rewrite(Arena *arena, Source *source, Diags *diags, char **words)
{
    const Ast *file = parse_mdl(source, diags, arena);
    if (diags->errors)
        return 1;
    const char *text = with_layout(arena, source, file, words[0], words[1], strtoll(words[2], NULL, 10),
                                   words[3] ? strtoll(words[3], NULL, 10) : 0);
    fwrite(text, 1, strlen(text), stdout);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    Arena arena = { 0 };
    Source source = read_file(argv[2]);
    Diags diags = { .arena = &arena, .source = &source, .out = stderr };
    const int status = strcmp(argv[1], "derive") == 0 ? derive(&arena, &source, &diags, argv + 3, argc - 3)
                       : argc == 6 || argc == 7       ? rewrite(&arena, &source, &diags, argv + 3)
                                                      : 2;
    arena_free(&arena);
    return status;
}
