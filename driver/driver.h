/* driver.h -- shared by the commands of mpc. */
#ifndef MPC_DRIVER_H
#define MPC_DRIVER_H

#include "ir.h"
#include "lower.h"
#include "manager/pass.h"
#include "options.h"

#include <sys/stat.h>

/* One run of mpc. */
typedef struct {
    const Options *options;
    Arena arena;
    Source source; /* of the operand */
    struct stat input;
    Diags diags;
} Run;

/* --- files.c ------------------------------------------------------------------------------- */

/* `mpc: error: ...` on stderr, counted; false. */
bool run_failed(Run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The text of a file ("-": standard input) into run->source, and diagnostics for it. */
bool read_source(Run *run, const char *path);

/* An atomically created file: written under a temporary name, then renamed. */
typedef struct {
    const char *path, *aside; /* NULL: a device or pipe, written to directly */
    FILE *out;
} NewFile;

bool open_new(Run *run, NewFile *file, const char *path);
bool close_new(Run *run, NewFile *file);
void drop_new(NewFile *file); /* instead of close_new: discards the file */
bool write_new(Run *run, const char *path, const char *text);
bool make_folder(Run *run, const char *path); /* with its parents */

/* Is it different from the input file?  Else false after reporting. */
bool may_write(Run *run, const char *path);

/* --- source.c ------------------------------------------------------------------------------ */

/* A model, lowered with the options; NULL after errors.  `shrink`: see lower.h. */
Module *lower_source(Run *run, int64_t shrink, Settings *settings);

/* Is it --target=cuda? */
bool is_cuda(const Options *o);

/* The IR in run->source, verified; NULL after errors. */
Module *parse_ir(Run *run);

/* --verify-passes of the IR in run->source: of a copy, since it runs the passes. */
bool verify_copy(Run *run, VerifyOptions options);

/* "124,439,808" */
char *grouped(Arena *arena, int64_t number);

/* --- The commands: each returns the exit status. -------------------------------------------- */
int run_compile(Run *run);
int run_check(Run *run);
int run_report(Run *run);
int run_explain(Run *run);
int run_fmt(Run *run);
int run_opt(Run *run);
int run_print(Run *run);
int run_help(Run *run);

#endif
