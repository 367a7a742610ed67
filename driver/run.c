/* run.c -- mpc run: compiles a model, and trains it on this machine. */
#include "compile.h"
#include "launch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *temporary_folder(Run *run)
{
    const char *parent = getenv("TMPDIR");
    char *folder = arena_text(&run->arena, "%s/mpc-run-XXXXXX", parent && *parent ? parent : "/tmp");
    if (mkdtemp(folder))
        return folder;
    run_failed(run, "cannot make the folder %s: %s; give -o OUT", folder, strerror(errno));
    return NULL;
}

static void remove_temporary(Run *run, const char *folder)
{
    static const char *const files[] = { "trainer", "trainer.c", "kernels.cu", "plan.json" };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        unlink(arena_text(&run->arena, "%s/%s", folder, files[i]));
    rmdir(folder);
}

/* The trainer with its options; with MPI behind mpirun, which starts the ranks. */
static const char **trainer_command(Run *run, long long ranks, bool by_mpirun)
{
    const TextList *options = &run->options->trainer;
    const char **argv = NEW_ARRAY(&run->arena, const char *, options->count + 5);
    const char *trainer =
        arena_text(&run->arena, "%s%s/trainer", strchr(run->options->output, '/') ? "" : "./", run->options->output);
    int count = 0;
    if (by_mpirun) {
        argv[count++] = "mpirun";
        argv[count++] = "-n";
        argv[count++] = arena_text(&run->arena, "%lld", ranks);
    }
    argv[count++] = trainer;
    for (int i = 0; i < options->count; i++)
        argv[count++] = options->at[i];
    return argv;
}

static int start_trainer(Run *run, Module *m)
{
    const long long ranks = (long long)count_ranks(m, ~0u);
    const bool by_mpirun = m->naxes && strcmp(comm_of(run->options), "mpi") == 0;
    return launch(run, trainer_command(run, ranks, by_mpirun), by_mpirun ? 1 : (int)ranks, m->naxes && !by_mpirun);
}

/* Before anything is compiled. */
static bool check_ranks(Run *run, const Module *m)
{
    const long long ranks = (long long)count_ranks(m, ~0u);
    return ranks <= MOST_LAUNCHED ||
           run_failed(
               run,
               "the mesh has %lld ranks, and mpc run starts at most %d, all on this machine: compile the trainer "
               "(mpc compile %s -o OUT), and start it with torchrun, mpirun or srun",
               ranks, MOST_LAUNCHED, run->options->operand);
}

int run_run(Run *run)
{
    Options options = *run->options;
    int status = check_target(&options);
    if (status != STATUS_OK)
        return status;
    Settings settings = { 0 };
    Module *m = read_source(run, options.operand) ? lower_source(run, 0, &settings) : NULL;
    const char *temporary = NULL;
    status = STATUS_FAILED;
    if (m && check_ranks(run, m) && run_passes(m, &(PassOptions){ 0 }) &&
        (options.output || (options.output = temporary = temporary_folder(run)))) {
        run->options = &options;
        if (build_trainer(run, m, &settings))
            status = start_trainer(run, m);
    }
    if (temporary)
        remove_temporary(run, temporary);
    if (m)
        free_module(m);
    return status;
}
