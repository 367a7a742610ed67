/* probe.c -- --probe: the program of the measurements, and their time. */
#include "probe.h"

#include "mesh/comm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- The program -------------------------------------------------------------------------------------- */

/* The ranks of each machine, if all have as many, one behind the other; else 0. */
static int ranks_of_machine(Rt *rt)
{
    struct {
        int local_rank, local_ranks;
    } own = { rt->local_rank, rt->local_ranks }, *all = rt_allocate(rt->ranks, sizeof own);
    rt_comm_gather(rt, &own, sizeof own, (char *)all);
    int count = all[0].local_ranks > 0 ? all[0].local_ranks : rt->ranks;
    bool is_regular = rt->ranks % count == 0;
    for (int q = 0; q < rt->ranks && all[0].local_ranks > 0; q++)
        is_regular = is_regular && all[q].local_ranks == count && all[q].local_rank == q % count;
    free(all);
    return is_regular ? count : 0;
}

/* Operands are larger than any cache, and messages as large as a trainer's, if there is time to write all of them a few
 * times; a part of what the rank may use. */
static int64_t arena_bytes(const Rt *rt, double seconds)
{
    const int64_t most = rt->program->code ? (int64_t)2 << 30 : (int64_t)384 << 20, unit = 1 << 20;
    const double longest = rt->program->code ? 8 : 4; /* s, from where on there is time for most */
    const double timely = (double)most * fmin(seconds / longest, 1);
    const double part = rt->program->code ? timely : fmin(timely, rt->share.memory / 4);
    return (int64_t)part / unit * unit;
}

/* A program has a step, for which its arena is. */
static void no_step(Rt *rt, char *arena) {}

void rt_probe_prepare(Rt *rt, double seconds)
{
    const RtProgram *model = rt->program;
    if (!model->code && !model->probe)
        rt_fail("--probe: '%s' does not name the kernels that are measured: compile it again, with this mpc",
                model->name);
    const int local_ranks = ranks_of_machine(rt);
    if (local_ranks == 0)
        rt_fail("--probe: the ranks of a machine do not follow each other, or machines have different numbers of them: "
                "start as many on each, one machine after the other (mpirun --map-by slot)");
    RtProgram *program = rt_allocate(1, sizeof *program);
    *program = (RtProgram){ .name = model->name,
                            .source = model->source,
                            .comm = model->comm,
                            .code = rt_probe_code(model->code),
                            .arena_bytes = arena_bytes(rt, seconds),
                            .state_bytes = 0,
                            .precision = model->precision,
                            .step = { .run = no_step },
                            .create = rt_probe_create,
                            .plan = model->plan,
                            .needed = model->needed,
                            .probe = model->probe };
    if (model->comm)
        rt_probe_mesh(program, rt->ranks / local_ranks, local_ranks, program->arena_bytes);
    rt->program = program;
    rt_comm_form_groups(rt);
}

/* --- Time --------------------------------------------------------------------------------------------- */

enum { SAMPLES = 24, FEWEST = 2, QUARTER = 4, MOST_TIMED = 1000 };

/* Seconds of a call in each of so many samples, of `calls` of them, on the slowest rank; ranks begin together. */
static void time_samples(RtProbe *probe, RtProbed *run, const void *context, int64_t calls, int samples,
                         double seconds[])
{
    Rt *rt = probe->rt;
    double mark[SAMPLES + 1], *all = rt_allocate(rt->ranks * samples, sizeof *all);
    rt_comm_barrier(rt);
    mark[0] = rt_mark(rt);
    for (int i = 0; i < samples; i++) {
        for (int64_t call = 0; call < calls; call++)
            run(probe, context);
        mark[i + 1] = rt_mark(rt);
    }
    for (int i = 0; i < samples; i++)
        seconds[i] = (rt_time_of_mark(rt, mark[i + 1]) - rt_time_of_mark(rt, mark[i])) / (double)calls;
    rt_comm_gather(rt, seconds, samples * (int64_t)sizeof *seconds, (char *)all);
    for (int i = 0; i < rt->ranks * samples; i++)
        seconds[i % samples] = fmax(seconds[i % samples], all[i]);
    free(all);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void rt_probe_sort(double number[], int count) { qsort(number, (size_t)count, sizeof *number, by_size); }

/* What disturbs samples makes them longer. */
double rt_probe_time(RtProbe *probe, RtProbed *run, const void *context)
{
    const double least = 1e-8, most_calls = 10000;
    double once, sample[SAMPLES];
    time_samples(probe, run, context, 1, 1, &once);
    if (once < probe->seconds / 2) /* the first call also waits for memory and code */
        time_samples(probe, run, context, 1, 1, &once);
    once = fmax(once, least);
    const int64_t calls = (int64_t)fmax(fmin(probe->seconds / SAMPLES / once, most_calls), 1);
    const int samples = (int)fmax(fmin(probe->seconds / ((double)calls * once), SAMPLES), FEWEST);
    time_samples(probe, run, context, calls, samples, sample);
    rt_probe_sort(sample, samples);
    return fmax(sample[samples / QUARTER], least);
}

double rt_probe_mean(RtProbe *probe, RtProbed *run, int64_t number, const void *context)
{
    RtTimed *timed = probe->timed;
    while (timed < probe->timed + probe->ntimed && (timed->run != run || timed->number != number))
        timed++;
    if (timed == probe->timed + MOST_TIMED)
        return rt_probe_time(probe, run, context);
    if (timed->round < probe->round) {
        const double seconds = rt_probe_time(probe, run, context);
        probe->ntimed += timed->round == 0;
        timed->run = run, timed->number = number, timed->round = probe->round;
        timed->seconds += seconds, timed->count++;
    }
    return timed->seconds / timed->count;
}

/* --- All ----------------------------------------------------------------------------------------------- */

/* A GPU's cache is small beside the operands of its steps, and its figures have been compared with kernels that run
 * alone (docs/report.md). */
static int64_t step_bytes(const Rt *rt, int64_t model_bytes)
{
    const int64_t all = rt_arena_bytes(rt);
    return rt->program->code ? 0 : model_bytes < all ? model_bytes : all;
}

static void write_head(const RtProbe *probe)
{
    const Rt *rt = probe->rt;
    const time_t now = time(NULL);
    char date[16] = "";
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
    char *words = rt_text("%s of %d on a machine, %s each, measured by the trainer of %s on %s",
                          rt_count_text(rt->ranks, "rank").text, probe->local_ranks,
                          rt_count_text(rt->threads, "thread").text, probe->model, date);
    rt_probe_words(probe, "name", words);
    rt_probe_number(probe, "ranks on a machine", probe->local_ranks, "");
    rt_probe_number(probe, "memory", rt_probe_memory(rt), "B");
    free(words);
}

/* Only the last round is written. */
static void measure(RtProbe *probe, RtOutput *output)
{
    probe->timed = rt_allocate(MOST_TIMED + 1, sizeof *probe->timed);
    for (probe->round = 1; probe->round <= RT_PROBE_ROUNDS; probe->round++) {
        probe->output = probe->round == RT_PROBE_ROUNDS ? output : NULL;
        rt_probe_compute(probe);
        rt_probe_messages(probe);
    }
    free(probe->timed);
}

void rt_probe(Rt *rt, const char *model, int64_t model_bytes, const char *path, double seconds)
{
    enum { MEASUREMENTS = 450 }; /* of a round, about */
    RtProbe probe = { .rt = rt,
                      .model = model,
                      .seconds = seconds / RT_PROBE_ROUNDS / MEASUREMENTS,
                      .longest = 10 * seconds / RT_PROBE_ROUNDS / MEASUREMENTS,
                      .step_bytes = step_bytes(rt, model_bytes) };
    RtOutput output;
    probe.local_ranks = rt->program->naxes ? 1 : rt->ranks;
    for (int i = 0; i < rt->program->naxes; i++)
        if (strncmp(rt->program->axes[i].name, "rank", 4) == 0)
            probe.local_ranks *= rt->program->axes[i].size;
    if (rt->rank == 0) {
        output = rt_output_open(path, "--probe");
        probe.output = &output;
    }
    write_head(&probe);
    measure(&probe, probe.output);
    if (rt->rank == 0)
        rt_output_commit(&output);
    rt_note("wrote %s: mpc report MODEL --machine %s predicts a step by it", path, path);
}
