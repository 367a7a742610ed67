/* watch.c -- starts a trainer, looks at how it ended, and starts it again where that helps.
 *
 * A fault is a rank that a signal has killed, or an error after the first step: of a disk, the network, a machine.
 * These are none: what the user has ended by a signal; a mistake on the command line; an error before the first step
 * that was ever begun, which would come again; a loss that is not finite at the step at which it was not before, since
 * the same step from the same checkpoint has the same bits.  What the run has reached it tells in a file
 * (runtime/trainer/watched.c). */
#include "watch.h"

#include "launch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STATUS_DIVERGED = 3, SIGNALLED = 128 }; /* of trainers */
enum { FIRST_PAUSE = 1, LONGEST_PAUSE = 60 };  /* seconds */

/* Of one start; step: that was finished last; saved: the newest that was saved, -1: none. */
typedef struct {
    bool has_begun;
    long long from, step, saved;
    double peak; /* FLOPs per second of a rank; 0: not known yet */
} Progress;

typedef struct {
    Run *run;
    const Trainer *trainer; /* in use */
    const Trainer *last;
    Launcher launcher;
    const char *progress;
    long long left; /* restarts */
    int pause;
    int futile;              /* starts in a row in which no step was finished */
    bool has_begun;          /* any start a step */
    bool has_saved;          /* any start a checkpoint */
    bool is_requeued;        /* by Slurm: earlier starts were in another process */
    long long saved;         /* the step of the newest */
    long long not_finite_at; /* the step before the one whose loss was not finite; -1: none was */
} Watch;

/* --- The trainer's options ------------------------------------------------------------------ */

/* The trainer's option of that name; with its value, as "--save FILE" or "--save=FILE". */
static const char *given(const Options *o, const char *name)
{
    const size_t length = strlen(name);
    for (int i = 0; i < o->trainer.count; i++)
        if (strncmp(o->trainer.at[i], name, length) == 0 &&
            (o->trainer.at[i][length] == '\0' || o->trainer.at[i][length] == '='))
            return o->trainer.at[i];
    return NULL;
}

/* Files that an earlier start has made are its own: it goes on from what it has saved, or writes them anew. */
static const char **trainer_command(const Watch *w, bool is_restart)
{
    enum { OTHERS = 7 };
    const Options *o = w->run->options;
    const char **argv = NEW_ARRAY(&w->run->arena, const char *, o->trainer.count + OTHERS);
    int count = 0;
    if (w->trainer->by_mpirun) {
        argv[count++] = "mpirun";
        argv[count++] = "-n";
        argv[count++] = arena_text(&w->run->arena, "%d", w->trainer->ranks);
    }
    argv[count++] = w->trainer->program;
    for (int i = 0; i < o->trainer.count; i++)
        argv[count++] = o->trainer.at[i];
    if ((w->has_saved || w->is_requeued) && given(o, "--save") && !given(o, "--resume"))
        argv[count++] = "--resume";
    if ((is_restart || w->is_requeued) && !given(o, "--overwrite"))
        argv[count++] = "--overwrite";
    return argv;
}

/* --- What it has reached -------------------------------------------------------------------- */

static bool open_progress(Watch *w)
{
    const char *folder = getenv("TMPDIR");
    char *path = arena_text(&w->run->arena, "%s/mpc-progress-XXXXXX", folder && *folder ? folder : "/tmp");
    const int file = mkstemp(path);
    if (file < 0 || setenv("MPC_PROGRESS", path, true))
        return run_failed(w->run, "cannot make the file %s: %s", path, strerror(errno));
    close(file);
    w->progress = path;
    return true;
}

static Progress read_progress(const Watch *w)
{
    Progress p = { .step = -1, .saved = -1 };
    FILE *file = fopen(w->progress, "r");
    if (file) {
        p.has_begun = fscanf(file, "from %lld step %lld saved %lld peak %lf", &p.from, &p.step, &p.saved, &p.peak) >= 3;
        fclose(file);
    }
    return p;
}

/* Another start need not measure it, which may take longer than all else. */
static void keep_peak(const Progress *p)
{
    char text[32];
    snprintf(text, sizeof text, "%.8g", p->peak);
    if (p->peak > 0)
        setenv("MPC_PEAK_FLOPS", text, false);
}

/* --- How it has ended ----------------------------------------------------------------------- */

/* By a signal that asks for the end: the trainer has saved, and says so. */
static bool was_asked_to_end(const Ended *ended)
{
    static const int requests[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGXCPU, SIGPIPE };
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
        if (ended->status == SIGNALLED + requests[i])
            return true;
    return ended->signal != 0;
}

static bool is_fault(const Watch *w, const Ended *ended, const Progress *p)
{
    if (ended->status == STATUS_OK || ended->status == STATUS_USAGE || was_asked_to_end(ended) || !w->has_begun)
        return false;
    return ended->status != STATUS_DIVERGED || w->not_finite_at < 0 || p->step != w->not_finite_at;
}

/* "rank 2 was killed by signal 9 (Killed)" */
static const char *end_text(const Watch *w, const Ended *ended)
{
    Arena *arena = &w->run->arena;
    const char *who = w->trainer->by_mpirun  ? "mpirun"
                      : w->trainer->is_alone ? "the trainer"
                                             : arena_text(arena, "rank %d", ended->rank);
    if (ended->rank < 0)
        return "its ranks could not be started";
    if (ended->status > SIGNALLED && !w->trainer->by_mpirun)
        return arena_text(arena, "%s was killed by signal %d (%s)", who, ended->status - SIGNALLED,
                          strsignal(ended->status - SIGNALLED));
    return arena_text(arena, "%s ended with status %d", who, ended->status);
}

/* --- After a fault -------------------------------------------------------------------------- */

/* Ranks that end again and again before they have finished a step are taken for lost. */
static bool takes_fewer_ranks(Watch *w)
{
    enum { MOST_FUTILE = 2 };
    const bool takes = w->futile >= MOST_FUTILE && w->trainer < w->last;
    if (takes) {
        w->trainer++;
        w->futile = 0;
    }
    return takes;
}

/* False: there is no further start. */
static bool prepare_restart(Watch *w, const Ended *ended)
{
    Arena *arena = &w->run->arena;
    const char *end = end_text(w, ended);
    if (w->left == 0) {
        fprintf(stderr, "mpc run: %s%s\n", end, restarts_of(w->run->options) ? "; no restarts are left" : "");
        return false;
    }
    w->left--;
    const char *fewer = takes_fewer_ranks(w)
                            ? arena_text(arena, ", with %d ranks (%s), since twice no step was finished",
                                         w->trainer->ranks, w->trainer->mesh)
                            : "";
    const char *from = w->has_saved ? arena_text(arena, "goes on from step %lld", w->saved) : "begins again";
    fprintf(stderr, "mpc run: %s; %s in %d s%s; %lld restart%s left\n", end, from, w->pause, fewer, w->left,
            w->left == 1 ? "" : "s");
    return true;
}

/* Counts what this start has done. */
static void note_progress(Watch *w, const Progress *p)
{
    keep_peak(p);
    w->has_begun |= p->has_begun;
    w->futile = p->has_begun && p->step > p->from ? 0 : w->futile + 1;
    if (p->saved >= 0) {
        w->has_saved = true;
        w->saved = p->saved;
        w->pause = FIRST_PAUSE;
    }
}

static int run_until_end(Watch *w)
{
    for (bool is_restart = false;; is_restart = true) {
        const Trainer *t = w->trainer;
        if (truncate(w->progress, 0))
            run_failed(w->run, "cannot write %s: %s", w->progress, strerror(errno));
        const bool over_tcp = !t->is_alone && !t->by_mpirun;
        const Ended ended =
            launch(w->run, &w->launcher, trainer_command(w, is_restart), over_tcp ? t->ranks : 1, over_tcp);
        const Progress p = read_progress(w);
        note_progress(w, &p);
        if (!is_fault(w, &ended, &p) || !prepare_restart(w, &ended))
            return ended.status;
        w->not_finite_at = ended.status == STATUS_DIVERGED ? p.step : w->not_finite_at;
        const int signal = launch_pause(&w->launcher, w->pause);
        if (signal)
            return SIGNALLED + signal;
        w->pause = w->pause < LONGEST_PAUSE / 2 ? 2 * w->pause : LONGEST_PAUSE;
    }
}

long long restarts_of(const Options *options)
{
    enum { USUAL_RESTARTS = 3 };
    return options->restarts                ? strtoll(options->restarts, NULL, 10)
           : given(options, "--save-every") ? USUAL_RESTARTS
                                            : 0;
}

int watch(Run *run, const Trainer trainers[], int count)
{
    const char *requeued = getenv("SLURM_RESTART_COUNT");
    Watch w = { .run = run,
                .trainer = trainers,
                .last = trainers + count - 1,
                .left = restarts_of(run->options),
                .pause = FIRST_PAUSE,
                .is_requeued = requeued && atoi(requeued) > 0,
                .not_finite_at = -1 };
    if (!open_progress(&w))
        return STATUS_FAILED;
    launch_open(&w.launcher);
    const int status = run_until_end(&w);
    launch_close(&w.launcher);
    unlink(w.progress);
    return status;
}
