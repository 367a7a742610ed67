/* compile.c -- mpc compile: from a model to a trainer. */
#include "compile.h"
#include "cost/cost.h"
#include "nvrtc.h"
#include "plan.h"
#include "unfinished.h"
#include "units.h"

#include "codegen/cuda/cuda.h"
#include "codegen/host/host.h"
#include "manager/pass.h"
#include "tier.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

/* GPUs exchange tensors through NCCL; a trainer for CUDA needs no MPI for the rest. */
const char *comm_of(const Options *o)
{
    return is_cuda(o) ? "tcp" : o->comm ? o->comm : o->command == INDEX_RUN ? "tcp" : "mpi";
}

/* A trainer for GPUs computes little on the processor, and may be for another machine. */
const char *march_of(const Options *o) { return o->march ? o->march : is_cuda(o) ? "" : "native"; }

static bool is_tcp(const Options *o) { return strcmp(comm_of(o), "tcp") == 0; }

/* --- The module ---------------------------------------------------------------------------- */

/* The pass after which a file of IR was written: its first line is "# PASS: ...". */
static const char *pass_of_ir(Run *run)
{
    const char *text = run->source.text, *colon = strchr(text, ':');
    if (strncmp(text, "# ", 2) != 0 || !colon)
        return NULL;
    char *name = arena_text(&run->arena, "%.*s", (int)(colon - text - 2), text + 2);
    return find_pass(name) >= 0 || strcmp(name, "lower") == 0 ? name : NULL;
}

/* A program is offloaded for one kind of device: processors have their tensors on the host, and put them on disk. */
static bool offloads_elsewhere(Run *run, const Module *m)
{
    const bool is_gpu = m->target->is_gpu;
    const Tier other = is_gpu ? ON_DISK : ON_HOST;
    const bool is_other = far_tier(m) == other;
    if (is_other)
        run_failed(run, "%s offloads to the %s, which a trainer for %s does not: compile the model anew",
                   run->source.path, Tier_words[other], is_gpu ? "GPUs" : "processors");
    return is_other;
}

static Module *read_ir(Run *run, Settings *settings, const char **after)
{
    if (!read_source(run, run->options->compile_from))
        return NULL;
    *after = pass_of_ir(run);
    if (!*after) {
        run_failed(run,
                   "%s does not name the pass that wrote it: its first line must be '# PASS: ...', as written by "
                   "--dump-ir and --compile-to",
                   run->source.path);
        return NULL;
    }
    const char *last = run->options->compile_to;
    if (last && find_pass(last) <= find_pass(*after)) {
        run_failed(run, "--compile-to=%s has no effect: %s was written after '%s'", last, run->source.path, *after);
        return NULL;
    }
    Module *m = parse_ir(run);
    if (m && (!verify_program(m) || offloads_elsewhere(run, m))) {
        free_module(m);
        return NULL;
    }
    if (m)
        *settings = settings_of_ir(run, m);
    return m;
}

static Module *read_model(Run *run, Settings *settings)
{
    return read_source(run, run->options->operand) ? lower_source(run, 0, settings) : NULL;
}

enum { LARGEST_DIM = 8, LARGEST_TRIED = 512 };

static bool shrink_less(int64_t *size)
{
    bool is_last = *size >= LARGEST_TRIED;
    fprintf(stderr, "with dims shrunk to about %d the model cannot be run: %s\n", (int)*size,
            is_last ? "if that is because it computes with constants that are larger, verify it with smaller ones"
                    : "trying larger ones");
    *size *= 2;
    return !is_last;
}

/* Numbers in the file may be indices outside of shrunk dims, or too large for the sizes in other ways.  The caller
 * finds the error of a model that cannot be run at any size. */
static Module *small_instance(Run *run)
{
    for (int64_t size = LARGEST_DIM;;) {
        Module *small = lower_source(run, size, NULL);
        Name outside;
        if (!small || make_runnable(small, 2, &outside))
            return small;
        bool keeps_more = outside && add_whole_dim(&run->whole, &run->arena, outside);
        if (!keeps_more && !shrink_less(&size)) {
            make_runnable(small, 1, &outside); /* labels of a dim of one element, of which no bound is known */
            return small;
        }
        free_module(small);
    }
}

/* Which sizes did not shrink? */
static void report_sizes(Run *run)
{
    const WholeDims *whole = &run->whole;
    if (whole->others == 0 || whole->others > LARGEST_TRIED)
        fprintf(stderr, "numbers in the file fit %s: verification may take long\n",
                whole->others ? arena_text(&run->arena, "no dims below about %lld", (long long)whole->others)
                              : "only its own sizes");
    for (int i = 0; i < whole->count; i++)
        fprintf(stderr, "dim '%s' keeps its size: shrunk, it would lack elements of which the model has indices\n",
                whole->at[i]);
}

static bool verify_small(Run *run, const char *after)
{
    if (run->options->compile_from) {
        fprintf(stderr, "%s is verified at its own sizes; a .mdl file would be shrunk to dims of at most %d\n",
                run->source.path, LARGEST_DIM);
        return verify_copy(run, (VerifyOptions){ .start_after = after });
    }
    Module *small = small_instance(run);
    if (small)
        report_sizes(run);
    bool good =
        small && verify_passes(small, &(VerifyOptions){ .exact = *run->options->verify_passes, .report = stderr });
    if (small)
        free_module(small);
    return good;
}

static bool pass_through(Run *run, Module *m, const char *after)
{
    const Options *o = run->options;
    PassOptions passes = { .dump_dir = o->dump_ir,
                           .stop_after = o->compile_to,
                           .start_after = after,
                           .remarks = o->remarks,
                           .times = o->time ? stderr : NULL };
    return run_passes(m, &passes);
}

/* --- Output files -------------------------------------------------------------------------- */

static bool write_ir(Run *run, Module *m)
{
    const Options *o = run->options;
    char *text = module_text(m);
    const char *headed = arena_text(&run->arena, "# %s: by mpc compile --compile-to\n%s", o->compile_to, text);
    free(text);
    if (o->output)
        return write_new(run, o->output, headed);
    fputs(headed, stdout);
    return true;
}

static bool write_trainer(Run *run, Module *m, const CudaProgram *cuda, const char *path, const char *plan,
                          Units *units)
{
    NewFile file;
    if (!open_new(run, &file, path))
        return false;
    char *compact = arena_text(&run->arena, "%s", plan);
    cJSON_Minify(compact);
    TrainerTexts texts = { .plan = compact, .version = MPC_VERSION, .cuda = cuda, .comm = comm_of(run->options) };
    bool good = emit_trainer(m, texts, file.out, units);
    if (good)
        return close_new(run, &file);
    drop_new(&file);
    return false;
}

/* For whom the C compiler compiles. */
static const char *processor_text(const Options *o)
{
    return o->march ? "" : is_cuda(o) ? " for any processor" : " for this processor (--march names others)";
}

static bool compile_c(Run *run, const Units *units, const char *program, const char *comm)
{
    Runtime runtime;
    if (!find_runtime(run, &runtime))
        return false;
    const char *aside = arena_text(&run->arena, "%s.tmp", program);
    if (!may_write(run, aside))
        return false;
    const char *file = arena_text(&run->arena, "%s/trainer.c", run->options->output);
    const char **command = program_command(run, &runtime, aside, comm, 1, &file);
    if (!command)
        return false;
    if (run->options->verbose)
        printf("%s\n", command_text(run, command));
    else if (run->options->command == INDEX_COMPILE)
        printf("  cc     %s compiles %s/trainer.c%s\n", command[0], run->options->output, processor_text(run->options));
    fflush(stdout);
    note_unfinished(aside);
    const bool good = make_program(run, &runtime, units, aside, comm, command) && rename(aside, program) == 0;
    if (!good)
        unlink(aside);
    forget_unfinished(aside);
    return good || (!run->diags.errors && run_failed(run, "cannot write %s", program));
}

/* --- The summary --------------------------------------------------------------------------- */

static void print_settings(Run *run, const Settings *settings)
{
    for (int i = 0; i < settings->count; i++) {
        const Setting *s = &settings->at[i];
        const int length = (int)strlen(s->unit) - (strcmp(s->value, "1") == 0); /* units are plurals */
        const char *value = arena_text(&run->arena, "%s%s%.*s", s->value, *s->unit ? " " : "", length, s->unit);
        printf("    %-28s = %-18s %s\n", s->name, value, s->from);
    }
}

static void print_summary(const Report *report)
{
    const Totals *totals = &report->totals;
    Arena *arena = &report->run->arena;
    printf("%s: model %s, %s in %s\n", shown_path(report->run), report->m->name,
           counted(arena, totals->parameters, "parameter"), counted(arena, totals->tensors, "tensor"));
    printf("  memory %s%s%s, planned to the byte%s:\n", report->kinds->count > 1 ? "up to " : "",
           bytes_text(arena, (double)report->memory.arena), report->ranks > 1 ? " a rank" : "", workspace_text(report));
    print_memory_table(report);
    printf("  work   %s a step of %s\n", flops_text(arena, totals->flops), step_text(report->m, *totals));
}

/* The command that starts the trainer once for each rank. */
static const char *launcher_text(Module *m, const Options *o)
{
    const char *launcher = is_tcp(o) ? "torchrun --no_python --nproc_per_node=" : "mpirun -n ";
    return m->naxes ? arena_text(&m->arena, "%s%lld ", launcher, (long long)count_ranks(m, ~0u)) : "";
}

/* "--data FILE", or "--data image=FILE --data label=FILE" */
static const char *data_text(Module *m)
{
    const char *text = "";
    for (const Input *input = m->inputs; input && is_fed_records(m); input = input->next)
        if (input->of == input->name)
            text = arena_text(&m->arena, "%s%s--data %s=FILE", text, *text ? " " : "", input->name);
    return *text ? text : "--data FILE";
}

static const char *trainer_text(Module *m, const Options *o, const char *ending)
{
    return shell_word(&m->arena, arena_text(&m->arena, "%s/trainer%s", o->output, ending));
}

static void print_next(Module *m, const Options *o)
{
    const char *slash = strchr(o->output, '/') ? "" : "./";
    printf("  files  %s/trainer.c, ", o->output);
    if (is_cuda(o))
        printf("%s/kernels.cu, ", o->output);
    printf("%s/plan.json%s%s%s\n", o->output, o->no_cc ? "" : ", ", o->no_cc ? "" : o->output,
           o->no_cc ? "" : "/trainer");
    if (o->no_cc)
        printf("next: compile %s, or leave --no-cc out\n", trainer_text(m, o, ".c"));
    else
        printf("next: %s%s%s %s --steps 100    (--help lists its options)\n", launcher_text(m, o), slash,
               trainer_text(m, o, ""), data_text(m));
}

/* --- The command --------------------------------------------------------------------------- */

static bool write_files(Run *run, Module *m, const CudaProgram *cuda, const char *plan, Units *units)
{
    const char *folder = run->options->output;
    return (!cuda || write_new(run, arena_text(&run->arena, "%s/kernels.cu", folder), cuda_program_text(cuda))) &&
           write_trainer(run, m, cuda, arena_text(&run->arena, "%s/trainer.c", folder), plan, units) &&
           write_new(run, arena_text(&run->arena, "%s/plan.json", folder), plan);
}

/* `mpc run` continues with what the trainer says. */
static void print_line(const Report *report)
{
    Arena *arena = &report->run->arena;
    printf("%s: model %s, %s, %s%s planned\n", shown_path(report->run), report->m->name,
           counted(arena, report->totals.parameters, "parameter"), bytes_text(arena, (double)report->memory.arena),
           report->ranks > 1 ? " a rank" : "");
}

/* Two that write into one folder would leave a program of one model and the source of another.  -1: there are no such
 * locks there. */
static int lock_folder(const char *folder)
{
    const int file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0 || flock(file, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return file;
    fprintf(stderr, "mpc: note: another mpc writes into %s: waiting until it is done\n", folder);
    while (flock(file, LOCK_EX) != 0 && errno == EINTR)
        ;
    return file;
}

static bool build_in_folder(Run *run, const Report *report, const CudaProgram *cuda, const Settings *settings)
{
    Module *m = report->m;
    const Options *o = run->options;
    const bool runs = o->command == INDEX_RUN;
    const char *program = arena_text(&run->arena, "%s/trainer", o->output);
    Units units;
    if (!write_files(run, m, cuda, plan_text(report, settings), &units))
        return false;
    unlink(program); /* the existing one is from another trainer.c */
    (runs ? print_line : print_summary)(report);
    note_unset_batch(run, m, settings);
    if (o->verbose)
        print_settings(run, settings);
    if (o->nvrtc && !report_nvrtc(run, cuda, o->nvrtc))
        return false;
    if (!o->no_cc && !compile_c(run, &units, program, m->naxes > 0 ? comm_of(o) : NULL))
        return false;
    if (!runs)
        print_next(m, o);
    return true;
}

bool build_trainer(Run *run, Module *m, const Settings *settings)
{
    const Options *o = run->options;
    if (o->comm && m->naxes == 0)
        return run_failed(run, "--comm=%s has no effect on one rank: leave it out, or give a mesh (--mesh AXIS=N)",
                          o->comm);
    if (!may_write(run, arena_text(&run->arena, "%s/trainer", o->output)))
        return false;
    const Report report = make_report(run, m);
    const CudaProgram *cuda = is_cuda(o) ? emit_cuda_program(m) : NULL;
    if ((is_cuda(o) && !cuda) || !make_folder(run, o->output))
        return false;
    const int lock = lock_folder(o->output);
    const bool good = build_in_folder(run, &report, cuda, settings);
    if (lock >= 0)
        close(lock);
    return good;
}

int check_target(const Options *o)
{
    if (o->nvrtc && !is_cuda(o))
        return usage_error(o->command, "--nvrtc=%s has no effect without --target=cuda", o->nvrtc);
    if (o->target && o->compile_to && find_pass(o->compile_to) < find_pass("fuse")) /* the plan depends on the target */
        return usage_error(o->command, "--target=%s has no effect on a program up to '%s': leave it out", o->target,
                           o->compile_to);
    if (is_cuda(o) && o->comm)
        return usage_error(o->command, "--target=cuda always uses --comm=tcp: leave --comm out");
    return STATUS_OK;
}

static int check_options(const Options *o)
{
    if (o->operand && o->compile_from)
        return usage_error(o->command, "give either FILE.mdl or --compile-from=FILE.mir: leave '%s' out", o->operand);
    if (!o->output && !o->compile_to)
        return usage_error(o->command, "no output folder: give -o OUT");
    return check_target(o);
}

int run_compile(Run *run)
{
    const Options *o = run->options;
    int status = check_options(o);
    if (status != STATUS_OK)
        return status;
    Settings settings = { 0 };
    const char *after = NULL;
    Module *m = o->compile_from ? read_ir(run, &settings, &after) : read_model(run, &settings);
    bool good = m && (!o->verify_passes || verify_small(run, after)) && pass_through(run, m, after);
    if (good)
        good = o->compile_to ? write_ir(run, m) : build_trainer(run, m, &settings);
    if (m)
        free_module(m);
    return good ? STATUS_OK : STATUS_FAILED;
}
