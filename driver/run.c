/* run.c -- mpc run: compiles a model, and trains it on this machine. */
#include "compile.h"
#include "launch.h"
#include "unfinished.h"
#include "watch.h"

#include "codegen/host/totals.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* What is in the folder of a trainer. */
static const char *const files[] = { "trainer", "trainer.c", "kernels.cu", "plan.json" };

static void note_temporary(Run *run, const char *folder)
{
    note_unfinished(folder);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        note_unfinished(arena_text(&run->arena, "%s/%s", folder, files[i]));
}

static char *temporary_folder(Run *run)
{
    const char *parent = getenv("TMPDIR");
    char *folder = arena_text(&run->arena, "%s/mpc-run-XXXXXX", parent && *parent ? parent : "/tmp");
    if (mkdtemp(folder))
        return folder;
    run_failed(run, "cannot make the folder %s: %s; give -o OUT", folder, strerror(errno));
    return NULL;
}

/* What lies in /tmp unused for days is removed there (systemd-tmpfiles), but for folders that are locked: after a
 * fault, the trainer is started again. */
static int keep_temporary(const char *folder)
{
    const int file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file >= 0)
        flock(file, LOCK_SH);
    return file;
}

static void remove_temporary(Run *run, const char *folder)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *path = arena_text(&run->arena, "%s/%s", folder, files[i]);
        unlink(path);
        forget_unfinished(path);
    }
    rmdir(folder);
    forget_unfinished(folder);
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

/* --- Trainers ------------------------------------------------------------------------------- */

/* The trainers of one run: the first, and those of --elastic. */
typedef struct {
    Trainer *at;
    const char **folder;
    int count;
    int64_t batch; /* sequences of a step */
    bool are_temporary;
} Trainers;

static const char *mesh_text(Run *run, const Module *m)
{
    const char *text = "";
    for (int i = 0; i < m->naxes; i++)
        text = arena_text(&run->arena, "%s%s%s=%lld", text, i ? "," : "", m->axis[i], (long long)m->axis_size[i]);
    return m->naxes ? text : "no mesh";
}

/* A run goes on with fewer ranks, and with the same steps. */
static bool check_smaller(Run *run, const Trainers *t, const Module *m, int64_t batch)
{
    const int ranks = (int)count_ranks(m, ~0u);
    const Trainer *before = &t->at[t->count - 1];
    if (before->ranks == 1)
        return run_failed(run,
                          "--elastic: there are no fewer ranks than the one of %s: give --mesh AXIS=N with more, or "
                          "leave --elastic out",
                          before->is_alone ? "a model without a mesh" : before->mesh);
    if (ranks >= before->ranks)
        return run_failed(run, "--elastic: the mesh %s has %d ranks, and that before it, %s, has %d: give fewer",
                          mesh_text(run, m), ranks, before->mesh, before->ranks);
    return batch == t->batch ||
           run_failed(run,
                      "--elastic: a step of the mesh %s has %lld sequences, and one of %s has %lld: give the number, "
                      "with --set train.batch=%lld",
                      mesh_text(run, m), (long long)batch, t->at[0].mesh, (long long)t->batch, (long long)t->batch);
}

/* Compiles the model for the mesh in run->options into its output folder. */
static bool add_trainer(Run *run, Trainers *t)
{
    Settings settings = { 0 };
    Options own = *run->options, *o = &own;
    const Options *given = run->options;
    Module *m = lower_source(run, 0, &settings);
    if (m && m->naxes == 0 && t->count > 0)
        own.comm = NULL; /* it is said of the others */
    run->options = &own;
    bool good = m && check_ranks(run, m) && run_passes(m, &(PassOptions){ 0 });
    if (good) {
        const Totals totals = program_totals(m);
        good = (t->count == 0 || check_smaller(run, t, m, totals.micro * totals.batch)) &&
               build_trainer(run, m, &settings);
        t->folder[t->count] = o->output;
        t->batch = totals.micro * totals.batch;
        t->at[t->count++] = (Trainer){ .program = arena_text(&run->arena, "%s%s/trainer",
                                                             strchr(o->output, '/') ? "" : "./", o->output),
                                       .mesh = mesh_text(run, m),
                                       .ranks = (int)count_ranks(m, ~0u),
                                       .is_alone = m->naxes == 0,
                                       .by_mpirun = m->naxes && strcmp(comm_of(o), "mpi") == 0 };
    }
    if (m)
        free_module(m);
    run->options = given;
    return good;
}

/* The trainer of each mesh of --elastic, in a folder within that of the first. */
static bool add_smaller_trainers(Run *run, Trainers *t)
{
    const Options *whole = run->options;
    const char *word, *list = whole->elastic ? whole->elastic : "";
    int length;
    bool good = true;
    while (good && next_word(&list, ':', &word, &length)) {
        Options smaller = *whole;
        smaller.mesh = arena_text(&run->arena, "%.*s", length, word);
        smaller.output = arena_text(&run->arena, "%s/%s", whole->output, smaller.mesh);
        run->options = &smaller;
        if (t->are_temporary)
            note_temporary(run, smaller.output);
        good = add_trainer(run, t);
    }
    run->options = whole;
    return good;
}

static Trainers no_trainers(Run *run)
{
    int most = 1;
    for (const char *c = run->options->elastic; c && *c; c++)
        most += *c == ':';
    return (Trainers){ .at = NEW_ARRAY(&run->arena, Trainer, most + 1),
                       .folder = NEW_ARRAY(&run->arena, const char *, most + 1) };
}

int run_run(Run *run)
{
    Options options = *run->options;
    int status = check_target(&options);
    if (status != STATUS_OK)
        return status;
    if (options.elastic && restarts_of(&options) == 0)
        return usage_error(options.command,
                           "--elastic has no effect without restarts: give --save-every or --restarts");
    const char *temporary = NULL;
    Trainers trainers = no_trainers(run);
    status = STATUS_FAILED;
    if (read_source(run, options.operand) && (options.output || (options.output = temporary = temporary_folder(run)))) {
        run->options = &options;
        trainers.are_temporary = temporary;
        if (temporary)
            note_temporary(run, temporary);
        if (add_trainer(run, &trainers) && add_smaller_trainers(run, &trainers)) {
            const int kept = temporary ? keep_temporary(temporary) : -1;
            status = watch(run, trainers.at, trainers.count);
            if (kept >= 0)
                close(kept);
        }
    }
    for (int i = trainers.count - 1; i >= 0 && temporary; i--)
        remove_temporary(run, trainers.folder[i]);
    return status;
}
