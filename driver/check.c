/* check.c -- mpc check: checks a model and prints its size; or a machine.
 *
 * The model is compiled completely and the result discarded, so that every accepted model compiles.
 */
#include "machine.h"

#include "codegen/cuda/cuda.h"
#include "codegen/host/host.h"
#include "codegen/host/totals.h"

#include <inttypes.h>
#include <string.h>

static void print_totals(Run *run, const Module *m, Totals totals)
{
    Arena *arena = &run->arena;
    printf("%s: ok: model %s, %s in %s, %s a step of %s\n", shown_path(run), m->name,
           counted(arena, totals.parameters, "parameter"), counted(arena, totals.tensors, "tensor"),
           flops_text(arena, totals.flops), step_text(m, totals));
}

typedef enum { DECAYING, NOT_DECAYING, NOT_TRAINED, UPDATED, N_FATES } Fate;

static Fate fate_of(const Param *param)
{
    if (param->like)
        return UPDATED;
    return param->frozen ? NOT_TRAINED : param->state ? UPDATED : param->decay ? DECAYING : NOT_DECAYING;
}

/* Several parameters have one path where copies of a repeat have bodies of their own. */
static bool is_first(const Module *m, const Param *param)
{
    const Param *first = m->params;
    while (first->path != param->path || fate_of(first) != fate_of(param))
        first = first->next;
    return first == param;
}

/* "weight decay: wte, h.*.attn.wq" */
static void print_params(const Module *m, Fate fate)
{
    static const char *const words[] = { "  weight decay:    ", "  no weight decay: ", "  frozen:          ",
                                         "  state:           " };
    const char *before = words[fate];
    for (const Param *param = m->params; param; param = param->next)
        if (fate_of(param) == fate && is_first(m, param)) {
            printf("%s%s", before, param->path);
            before = ", ";
        }
    if (before[0] == ',')
        puts("");
    else if (fate < NOT_TRAINED)
        printf("%s(none)\n", before);
}

static bool has_trainer(Run *run, Module *m)
{
    if (!run_passes(m, &(PassOptions){ 0 }))
        return false;
    const CudaProgram *cuda = is_cuda(run->options) ? emit_cuda_program(m) : NULL;
    if (is_cuda(run->options) && !cuda)
        return false;
    TrainerTexts texts = { .plan = "", .version = MPC_VERSION, .cuda = cuda, .comm = comm_of(run->options) };
    return emit_trainer(m, texts, open_discarding(), NULL);
}

static bool is_machine(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && strcmp(dot, ".machine") == 0;
}

/* Options are of models. */
static int check_machine_alone(Run *run)
{
    for (int i = 0; i < noptions; i++)
        if (is_given(run->options, &option_table[i]))
            return usage_error(run->options->command, "--%s has no effect on a machine: leave it out",
                               option_name(&option_table[i]).text);
    return check_machine(run);
}

int run_check(Run *run)
{
    if (is_machine(run->options->operand))
        return check_machine_alone(run);
    Settings settings = { 0 };
    Module *m = read_source(run, run->options->operand) ? lower_source(run, 0, &settings) : NULL;
    if (!m)
        return STATUS_FAILED;
    const Totals totals = program_totals(m);
    bool good = has_trainer(run, m);
    if (good) {
        print_totals(run, m, totals);
        note_unset_batch(run, m, &settings);
    }
    for (int fate = 0; good && run->options->verbose && fate < N_FATES; fate++)
        print_params(m, fate);
    free_module(m);
    return good ? STATUS_OK : STATUS_FAILED;
}
