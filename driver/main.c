/* main.c -- the mpc command: selects the command and returns its exit status. */
#include "driver.h"

#include "runtime/process.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int run_help(Run *run)
{
    const Options *o = run->options;
    int command = o->operand ? find_command(o->operand) : -1;
    if (o->operand && o->as)
        return usage_error(o->command, "--as prints the help of all commands: leave '%s' out", o->operand);
    const char *meant = o->operand && command < 0 ? command_meant(&run->arena, o->operand) : NULL;
    if (o->operand && command < 0)
        return usage_error(o->command, "there is no command '%s'%s%s%s ('mpc help' lists them)", o->operand,
                           meant ? ": did you mean " : "", meant ? meant : "", meant ? "?" : "");
    if (o->as && strcmp(o->as, "man") == 0)
        print_manual();
    else if (o->as)
        print_completion(o->as);
    else if (command >= 0)
        print_command_help(command);
    else
        print_help();
    return STATUS_OK;
}

static int (*const commands[NCOMMANDS])(Run *) = {
    [INDEX_NEW] = run_new,         [INDEX_COMPILE] = run_compile, [INDEX_RUN] = run_run,
    [INDEX_CHECK] = run_check,     [INDEX_REPORT] = run_report,   [INDEX_PLAN] = run_plan,
    [INDEX_EXPLAIN] = run_explain, [INDEX_FMT] = run_fmt,         [INDEX_OPT] = run_opt,
    [INDEX_PRINT] = run_print,     [INDEX_TRACE] = run_trace,     [INDEX_IMPORT] = run_import,
    [INDEX_EXPORT] = run_export,   [INDEX_PLOT] = run_plot,       [INDEX_LSP] = run_lsp,
    [INDEX_HELP] = run_help,
};

/* Every command reads one file, except help and lsp, and except compile with --compile-from. */
static bool has_operand(const Options *o)
{
    if (o->command == INDEX_EXPLAIN && o->operand && !o->name) {
        usage_error(o->command, "no tensor is given: mpc explain %s h.0.attn.wq", o->operand);
        return false;
    }
    if (o->operand || o->command == INDEX_HELP || o->command == INDEX_LSP ||
        (o->command == INDEX_COMPILE && o->compile_from))
        return true;
    usage_error(o->command, "no file is given: mpc %s %s", command_table[o->command].name,
                command_table[o->command].operand);
    return false;
}

static bool ends_in(const char *path, const char *ending)
{
    const char *dot = path ? strrchr(path, '.') : NULL;
    return dot && strcmp(dot, ending) == 0;
}

/* IR where a model is needed, or a model where IR is. */
static bool check_operand(Run *run)
{
    const char *path = run->options->operand, *needed = command_table[run->options->command].operand;
    if (ends_in(path, ".mir") && strstr(needed, "FILE.mdl"))
        return run_failed(run,
                          "%s is IR, and this command reads a model: 'mpc print' and 'mpc opt' read IR, and "
                          "'mpc compile --compile-from=%s' compiles it",
                          path, path);
    if (ends_in(path, ".mdl") && strstr(needed, "FILE.mir"))
        return run_failed(run,
                          "%s is a model, and this command reads IR: 'mpc compile %s -o OUT --dump-ir=OUT' writes it",
                          path, path);
    return true;
}

static int run_command(Run *run)
{
    const int status = check_operand(run) ? check_outputs(run) : STATUS_FAILED;
    return status == STATUS_OK ? commands[run->options->command](run) : status;
}

/* Output may still be buffered. */
static int flush_output(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    if (status == STATUS_OK) /* else the error has been reported */
        fprintf(stderr, "mpc: error: cannot write to standard output: %s\n", strerror(errno));
    return status == STATUS_OK ? STATUS_FAILED : status;
}

/* Arenas are freed and made again all the time: their memory stays with the process, since pages that come anew from
 * the system took a quarter of a verification's time.  musl has no such settings. */
static void keep_freed_memory(void)
{
#ifdef M_TRIM_THRESHOLD
    mallopt(M_MMAP_THRESHOLD, 32 << 20); /* the most that malloc takes */
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

int main(int argc, char **argv)
{
    rt_open_closed_files();
    signal(SIGXFSZ, SIG_IGN); /* a file beyond the limit (ulimit -f) is an error that is reported */
    keep_freed_memory();
    Options options;
    Run run = { .options = &options };
    int status;
    if (parse_options(argc, argv, &run.arena, &options, &status))
        status = has_operand(&options) ? run_command(&run) : STATUS_USAGE;
    status = flush_output(status);
    free((char *)run.source.text);
    arena_free(&run.arena);
    return status;
}
