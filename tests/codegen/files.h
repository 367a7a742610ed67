/* files.h -- shared by the two execute.c: reads files of IR, checks them, assigns storage, and writes or runs them. */
#ifndef MPC_TESTS_FILES_H
#define MPC_TESTS_FILES_H

#include "codegen/text/fill.h"
#include "ir/ir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    void (*place)(Module *m);                      /* storage for the values that the file gives none */
    void (*write)(Module *m, FILE *out);           /* the text of its kernels; reports what is wrong */
    bool (*run)(Module *m, const char *directory); /* in a directory that is kept where it says false */
} Execution;

/* Places values without storage densely, one after the other. */
static inline void place_value(Module *m, Func *f, Value *value)
{
    if (value->storage)
        return;
    value->storage = NEW(&m->arena, Storage);
    int64_t step = 1;
    for (int i = value->type.rank - 1; i >= 0; i--) {
        value->storage->stride[i] = step;
        step *= value->type.dim[i].padded;
    }
    value->storage->at = f->frame;
    f->frame += (step * dtype_bytes(value->type.dtype) + 63) / 64 * 64;
}

static inline void place_values(Module *m, Func *f)
{
    for (int i = 0; i < f->params.count; i++)
        place_value(m, f, f->params.at[i]);
    for (const Op *op = f->first; op; op = op->next)
        for (int i = 0; i < op->results.count; i++)
            place_value(m, f, op->results.at[i]);
}

static inline Source read_source(const char *path)
{
    Text text;
    open_text(&text);
    FILE *in = fopen(path, "r");
    for (int c; in && (c = fgetc(in)) != EOF;)
        fputc(c, text.out);
    if (in)
        fclose(in);
    fclose(text.out);
    return (Source){ path, text.text, (int)text.size };
}

static inline bool execute_file(const char *path, const Execution *execution, bool only_write)
{
    Arena arena = { 0 };
    Source source = read_source(path);
    Diags diags = { .arena = &arena, .source = &source, .out = stderr };
    Module *m = parse_module(&source, &diags);
    bool ok = !diags.errors && verify_module(m);
    if (ok)
        execution->place(m);
    if (ok && only_write) {
        execution->write(m, stdout);
        ok = !diags.errors;
    } else if (ok) {
        const char *above = getenv("TMPDIR");
        char *directory = arena_text(&arena, "%s/mpc-execute-XXXXXX", above ? above : "/tmp");
        ok = mkdtemp(directory) && execution->run(m, directory);
        if (ok)
            ok = system(arena_text(&arena, "rm -r %s", directory)) == 0;
        printf("%s %s%s%s\n", ok ? "ok  " : "FAIL", path, ok ? "" : ", see ", ok ? "" : directory);
    }
    free_module(m);
    arena_free(&arena);
    free((char *)(intptr_t)source.text);
    return ok;
}

/* [-e] FILE.mir...: -e only writes.  The exit status: 1 if a file failed. */
static inline int execute_files(int argc, char **argv, const Execution *execution)
{
    bool only_write = argc > 1 && strcmp(argv[1], "-e") == 0;
    int failed = 0;
    for (int i = 1 + only_write; i < argc; i++)
        failed += !execute_file(argv[i], execution, only_write);
    return failed > 0;
}

#endif
