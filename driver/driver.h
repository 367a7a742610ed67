/* driver.h -- shared by the commands of mpc. */
#ifndef MPC_DRIVER_H
#define MPC_DRIVER_H

#include "amount.h"
#include "codegen/host/totals.h"
#include "elaborate/facts.h"
#include "ir.h"
#include "lower.h"
#include "manager/pass.h"
#include "options.h"
#include "syntax/ast.h"

#include <sys/stat.h>

/* One run of mpc. */
typedef struct {
    const Options *options;
    Arena arena;
    Source source; /* of the operand */
    struct stat input;
    Diags diags;
    Recompute policy;         /* with recompute auto: the policy that has been chosen, or auto */
    const SavedValues *saved; /* and then these values; names in the arena */
    bool no_overlap;          /* and messages of zero overlap with computation only where the file says so */
    bool has_map;             /* of names of tensors, which reads values of -D as the model does */
    bool trains_alone;        /* what a step costs is wanted, and nothing of evaluation and prediction */
    bool puts_away;           /* with a policy: all that it saves, if the layout offloads activations */
    WholeDims whole;          /* in small instances of the model */
    Facts *facts;             /* of the names of a model, for editors; NULL: nobody asks for them */
    bool is_trial;            /* of other options: nobody reads its messages */
} Run;

/* --- files.c ------------------------------------------------------------------------------- */

/* `mpc: error: ...` on stderr, counted; false. */
bool run_failed(Run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The text of a file ("-": standard input) into run->source, and diagnostics for it. */
bool read_source(Run *run, const char *path);

const char *shown_path(Run *run); /* of run->source, see visible_text */

/* A file that the model names; `context` is the Run.  NULL: *why says why it cannot be read. */
Source *read_text(void *context, const char *path, const char **why);

/* The next line, its end included, with a byte 0 behind it; its length, 0 at the end of the file.  `*line` begins as
 * NULL and is freed by the caller.  A line is cut after LONGEST_LINE bytes, so that no endless file fills the memory.
 */
enum { LONGEST_LINE = 1 << 24 };
size_t next_text_line(FILE *in, char **line, size_t *room);

/* An atomically created file: written under a temporary name, then renamed.  It has the owner and the permissions of
 * the one whose place it takes; of a link, that is where it leads. */
typedef struct {
    const char *path, *place; /* as named; after links */
    const char *aside;        /* NULL: a device or pipe, written to directly */
    FILE *out;
    bool is_stdout;
} NewFile;

/* "-" is standard output. */
bool open_new(Run *run, NewFile *file, const char *path);
bool close_new(Run *run, NewFile *file);
void drop_new(NewFile *file); /* instead of close_new: discards the file */
bool write_new(Run *run, const char *path, const char *text);
bool make_folder(Run *run, const char *path); /* with its parents */

/* The file that a shell would run for that name, found in $PATH unless it has a slash; NULL: there is none. */
const char *program_on_path(Arena *arena, const char *name);

/* Is it different from the input file?  Else false after reporting. */
bool may_write(Run *run, const char *path);

/* --- outputs.c ----------------------------------------------------------------------------- */

/* May each file be written that an option names for results, without loss of one of another kind?  The exit status,
 * after reporting. */
int check_outputs(Run *run);

/* --- source.c ------------------------------------------------------------------------------ */

/* A model, lowered with the options; NULL after errors.  `shrink`: see lower.h.  With recompute auto, it lists the
 * values to save. */
Module *lower_source(Run *run, int64_t shrink, Settings *settings);

/* The same of a file that has been parsed, before that is chosen. */
Module *lower_ast(Run *run, const Ast *file, int64_t shrink, Settings *settings, Diags *diags);

/* A note on stderr if nothing says how many sequences a step trains on, which then are one for each rank. */
void note_unset_batch(Run *run, const Module *m, const Settings *settings);

/* The target of --target. */
bool is_cuda(const Options *o);

/* The IR in run->source, verified; NULL after errors. */
Module *parse_ir(Run *run);

/* --verify-passes of the IR in run->source: of a copy, since it runs the passes. */
bool verify_copy(Run *run, VerifyOptions options);

/* "65,536 tokens in 16 micro-batches of 4 sequences of 1,024", "64 records in 1 micro-batch of 64". */
const char *step_text(const Module *m, Totals totals);

/* --- budget.c ------------------------------------------------------------------------------ */

/* Chooses for recompute auto: run->policy, run->saved.  m: the model, lowered.  False after reporting that
 * nothing fits. */
bool choose_saved(Run *run, const Ast *file, const Module *m);
void apply_saved_choice(Module *m, const Run *run); /* what has been chosen */

/* run->saved for a small instance: where sizes have become 0 or 1, values may be missing, which then are not saved. */
void set_saved_of_small(Run *run, const Ast *file, int64_t shrink, Module *m);

/* --- The commands: each returns the exit status. -------------------------------------------- */
int run_compile(Run *run);
int run_run(Run *run);
int run_new(Run *run);
int run_check(Run *run);
int run_report(Run *run);
int run_plan(Run *run);
int run_explain(Run *run);
int run_fmt(Run *run);
int run_opt(Run *run);
int run_print(Run *run);
int run_trace(Run *run);
int run_import(Run *run);
int run_export(Run *run);
int run_plot(Run *run);
int run_lsp(Run *run);
int run_help(Run *run);

#endif
