/* pass.c -- the pass manager: order, verification, dumps, timing. */
#include "pass.h"

#include "amount.h"
#include "kinds/kinds.h"
#include "paths.h"
#include "storage.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PASS(name, needs, forbids, removes, help) void pass_##name(Module *);
#include "passes.def"

const Pass passes[] = {
#define PASS(name, needs, forbids, removes, help) { #name, help, needs, forbids, removes, pass_##name },
#include "passes.def"
};
const int npasses = sizeof passes / sizeof *passes;

int find_pass(const char *name)
{
    for (int i = 0; i < npasses; i++)
        if (strcmp(passes[i].name, name) == 0)
            return i;
    return -1;
}

bool is_listed(const char *names, const char *name)
{
    if (!names)
        return true;
    size_t length = strlen(name);
    for (const char *at = names; (at = strstr(at, name)); at += length)
        if ((at == names || at[-1] == ',') && (at[length] == ',' || at[length] == '\0'))
            return true;
    return false;
}

static unsigned op_state(const Func *f, const Op *op)
{
    static const bool in_kernels[] = {
        [LEAF] = true, [POINTWISE] = true, [PRODUCT] = true, [REDUCTION] = true, [CONTROL] = false
    };
    return (info(op)->traits & WISHES ? RESHARDS : 0) |
           (f->role != KERNEL && in_kernels[info(op)->family] ? UNFUSED : 0);
}

static unsigned module_state(const Module *m)
{
    unsigned state = (func_with_role(m, MODEL) ? MODEL_FUNC : 0) | (func_with_role(m, STEP) ? STEP_FUNC : 0);
    state |= m->train.optimizer ? TRAINS : 0;
    for (const Func *f = m->funcs; f; f = f->next) {
        state |= f->role == KERNEL ? KERNELS : 0;
        state |= f->params.count && f->params.at[0]->storage ? STORAGE : 0;
        for (const Op *op = f->first; op; op = op->next)
            state |= op_state(f, op);
    }
    return state;
}

static const char *state_text(unsigned state)
{
    return state & MODEL_FUNC  ? "a function with the role 'model'"
           : state & STORAGE   ? "a memory plan"
           : state & RESHARDS  ? "reshards"
           : state & UNFUSED   ? "ops outside of kernels"
           : state & KERNELS   ? "kernels"
           : state & STEP_FUNC ? "a function with the role 'step'"
                               : "nothing";
}

/* The pass that removes it; NULL: none. */
static const Pass *remover_of(unsigned state)
{
    const Pass *pass = passes;
    while (pass < passes + npasses && !(pass->removes & state))
        pass++;
    return pass < passes + npasses ? pass : NULL;
}

/* The pass that makes it: the last one that must not find it; NULL: none. */
static const Pass *maker_of(unsigned state)
{
    const Pass *pass = passes + npasses;
    while (pass > passes && !(pass[-1].forbids & state))
        pass--;
    return pass > passes ? pass - 1 : NULL;
}

static bool state_fits(Module *m, const Pass *pass)
{
    const unsigned state = module_state(m), lacks = pass->needs & ~state, extra = pass->forbids & state;
    const Pass *remover = remover_of(extra & (RESHARDS | UNFUSED)), *maker = maker_of(lacks & (STEP_FUNC | KERNELS));
    if (lacks & TRAINS)
        report_error(m->diags->out, NULL, "pass '%s' needs a line 'train {optimizer=...}' in the module", pass->name);
    else if (maker)
        report_error(m->diags->out, NULL, "pass '%s' comes too early: it needs %s; run '%s' before", pass->name,
                     state_text(lacks), maker->name);
    else if (remover)
        report_error(m->diags->out, NULL, "pass '%s' comes too early: the module still has %s; run '%s' before",
                     pass->name, state_text(extra & remover->removes), remover->name);
    else if (extra)
        report_error(m->diags->out, NULL, "pass '%s' comes too late: the module already has %s", pass->name,
                     state_text(extra));
    else if (lacks)
        report_error(m->diags->out, NULL, "pass '%s' needs %s", pass->name, state_text(lacks));
    else
        return !(pass->needs & TRAINS) || verify_model(m);
    m->diags->errors++;
    return false;
}

static bool state_is_left(const Module *m, const Pass *pass)
{
    const unsigned left = pass->removes ? pass->removes & module_state(m) : 0;
    if (left)
        fprintf(m->diags->out, "mpc: internal error: pass '%s' leaves %s\n", pass->name, state_text(left));
    return !left;
}

/* --- Dumps --------------------------------------------------------------------------------- */

typedef struct {
    int ops, collectives;
    double collective_bytes, held_bytes; /* held: bytes of all results of all functions */
} Tally;

static Tally count_ops(const Module *m)
{
    Tally tally = { 0 };
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next) {
            tally.ops++;
            for (int i = 0; i < op->results.count && info(op)->family != VIEW; i++)
                tally.held_bytes += f->role == KERNEL ? 0 : (double)local_bytes(m, &op->results.at[i]->type);
            if (info(op)->family != COLLECTIVE)
                continue;
            tally.collectives++;
            tally.collective_bytes += (double)local_bytes(m, &result(op)->type);
        }
    return tally;
}

static int64_t frame_of_step(Module *m)
{
    const Func *step = func_with_role(m, STEP);
    return step && step->frame ? largest_arena(m) : 0;
}

static char *dump_text(Module *m, const char *name, Tally before, const char *body)
{
    Tally now = count_ops(m);
    char *text = NULL;
    size_t size;
    FILE *out = open_memory(&text, &size);
    Arena scratch = { 0 };
    fprintf(out, "# %s: %d ops before, %d now; collectives: %d (%.0f bytes)\n", name, before.ops, now.ops,
            now.collectives, now.collective_bytes);
    fprintf(out, "# results of all ops together: %s before, %s now", bytes_text(&scratch, before.held_bytes),
            bytes_text(&scratch, now.held_bytes));
    if (frame_of_step(m))
        fprintf(out, "; the step runs in %s", bytes_text(&scratch, (double)frame_of_step(m)));
    fprintf(out, "\n%s", body);
    fclose(out);
    arena_free(&scratch);
    return text;
}

static bool cannot_write(const Module *m, const char *path)
{
    report_error(m->diags->out, NULL, "cannot write %s: %s", path, strerror(errno));
    m->diags->errors++;
    return false;
}

static bool write_text(const Module *m, const char *path, const char *text)
{
    struct stat read;
    if (stat(m->diags->source->path, &read) == 0 && is_same_file(path, &read)) {
        report_error(m->diags->out, NULL, "%s is the input file: dump to another folder", path);
        m->diags->errors++;
        return false;
    }
    FILE *out = fopen(path, "w");
    if (!out)
        return cannot_write(m, path);
    const bool wrote = fputs(text, out) >= 0;
    const int reason = errno;
    const bool closed = fclose(out) == 0;
    errno = wrote ? errno : reason;
    if (wrote && closed)
        return true;
    cannot_write(m, path);
    unlink(path); /* a part of a program is none */
    return false;
}

/* diff(1) of two dumps into a third file.  Without diff(1), no file is made.  False: diff(1) has printed an error. */
static bool write_diff(const Module *m, const char *before, const char *after, const char *path)
{
    extern char **environ;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    char *argv[] = { "diff", "-u", (char *)before, (char *)after, NULL };
    enum { TROUBLE = 2 }; /* 1: the files differ */
    pid_t pid;
    int status = 0;
    if (posix_spawnp(&pid, "diff", &actions, NULL, argv, environ) == 0)
        waitpid(pid, &status, 0);
    posix_spawn_file_actions_destroy(&actions);
    const bool failed = WIFEXITED(status) && WEXITSTATUS(status) == TROUBLE;
    m->diags->errors += failed;
    if (failed)
        unlink(path);
    return !failed;
}

typedef struct {
    const char *dir;
    const char *previous; /* the dump before, or NULL */
    Arena arena;
} Dumps;

static bool dump(Module *m, Dumps *dumps, int number, const char *name, Tally before, const char *body)
{
    if (!dumps->dir)
        return true;
    const char *path = arena_text(&dumps->arena, "%s/%02d-%s.mir", dumps->dir, number, name);
    const char *diff = arena_text(&dumps->arena, "%s/%02d-%s.diff", dumps->dir, number, name);
    char *text = dump_text(m, name, before, body);
    bool good = write_text(m, path, text);
    free(text);
    if (good && dumps->previous)
        good = write_diff(m, dumps->previous, path, diff);
    dumps->previous = path;
    return good;
}

/* What the printer writes, the parser must read back as the same program. */
static bool round_trips(const Module *m, const char *text)
{
    Arena arena = { 0 };
    Source source = { "<printed IR>", text, (int)strlen(text) };
    Diags diags = { .arena = &arena, .source = &source, .out = m->diags->out };
    Module *again = parse_module(&source, &diags);
    char *text_again = diags.errors == 0 ? module_text(again) : NULL;
    bool same = text_again && strcmp(text, text_again) == 0;
    free(text_again);
    free_module(again);
    arena_free(&arena);
    return same;
}

/* --- Running ------------------------------------------------------------------------------- */

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Will the program's text be read, in a dump or by mpc again?  Then its round trip is checked. */
static bool is_read(const PassOptions *options)
{
    return !options->unchecked && (options->dump_dir || options->only || options->stop_after || options->start_after);
}

static bool run_pass(Module *m, const Pass *pass, int number, const PassOptions *options, Dumps *dumps)
{
    if ((!options->unchecked || pass->needs & TRAINS) && !state_fits(m, pass))
        return false;
    const Tally before = dumps->dir ? count_ops(m) : (Tally){ 0 };
    double start = seconds();
    int errors = m->diags->errors;
    m->diags->remarks.pass = pass->name;
    pass->run(m);
    if (m->diags->errors > errors) /* the pass has reported an error */
        return false;
    double ran = seconds();
    char *text = is_read(options) ? module_text(m) : NULL;
    bool dumped = dump(m, dumps, number, pass->name, before, text);
    bool is_known = text && options->before && strcmp(text, options->before) == 0;
    bool good =
        options->unchecked || (state_is_left(m, pass) && verify_module(m) && verify_memory(m) && verify_kinds(m));
    good = good && (!text || is_known || round_trips(m, text));
    if (options->after)
        *options->after = text;
    else
        free(text);
    if (!good)
        fprintf(m->diags->out, "mpc: internal error: pass '%s' broke the module\n", pass->name);
    if (options->times)
        fprintf(options->times, "%-10s %8.2f ms, checked in %.2f ms\n", pass->name, (ran - start) * 1e3,
                (seconds() - ran) * 1e3);
    return dumped && good;
}

bool run_passes(Module *m, const PassOptions *options)
{
    Dumps dumps = { .dir = options->dump_dir };
    if (dumps.dir && !make_folders(dumps.dir, false))
        return cannot_write(m, dumps.dir);
    int first = options->start_after ? find_pass(options->start_after) + 1 : 0;
    int last = !options->stop_after                        ? npasses - 1
               : strcmp(options->stop_after, "lower") == 0 ? -1
                                                           : find_pass(options->stop_after);
    m->diags->remarks = (Remarks){ .of = options->remarks };
    bool good = true;
    if (dumps.dir) {
        char *text = module_text(m);
        good = dump(m, &dumps, first, first ? passes[first - 1].name : "lower", count_ops(m), text);
        free(text);
    }
    for (int i = first; i <= last && good; i++)
        if (is_listed(options->only, passes[i].name))
            good = run_pass(m, &passes[i], i + 1, options, &dumps);
    if (good && options->remarks && m->diags->remarks.count == 0)
        fprintf(m->diags->out, "%s: no remarks from %s\n", m->name,
                strcmp(options->remarks, "all") == 0 ? "any pass that has run" : options->remarks);
    m->diags->remarks = (Remarks){ 0 };
    arena_free(&dumps.arena);
    return good;
}
