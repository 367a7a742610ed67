/* main.c -- a trainer from its command line to its exit status. */
#include "device.h"
#include "far/far.h"
#include "instructions.h"
#include "memory.h"
#include "mesh/agree.h"
#include "mesh/comm.h"
#include "model_outputs.h"
#include "outputs.h"
#include "probe.h"
#include "process.h"
#include "schedule.h"
#include "signals.h"
#include "store/map.h"
#include "store/output.h"
#include "store/tensors.h"
#include "trace.h"
#include "train.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

/* The value of an option of mpc; "" if the plan has none. */
static const char *option_of_plan(const cJSON *plan, const char *name)
{
    const cJSON *entry;
    cJSON_ArrayForEach(entry, cJSON_GetObjectItemCaseSensitive(plan, "options"))
    {
        const char *own = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "name"));
        const char *value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "value"));
        if (own && value && !strcmp(own, name))
            return value;
    }
    return "";
}

/* "tiny, compiled from tiny.mdl by mpc 0.1.0 with --march=native": version and option are in the plan. */
static void print_version(const RtProgram *program)
{
    cJSON *plan = cJSON_Parse(program->plan);
    const char *version = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(plan, "mpc"));
    const char *march = option_of_plan(plan, "--march");
    printf("%s, compiled from %s by mpc%s%s%s%s\n", program->name, program->source, version ? " " : "",
           version ? version : "", *march ? " with --march=" : "", march);
    cJSON_Delete(plan);
}

/* Formatted like plan.json; in the trainer it has no white space. */
static void print_plan(const RtProgram *program)
{
    cJSON *plan = cJSON_Parse(program->plan);
    char *text = cJSON_Print(plan);
    printf("%s\n", text ? text : program->plan);
    free(text);
    cJSON_Delete(plan);
}

/* Handles --help, --plan and --version, before anything is opened. */
static bool answers(const RtRun *run, const char *command)
{
    const RtProgram *program = run->rt.program;
    const RtOptions *options = &run->options;
    if (options->help)
        rt_options_help(command, program, *options->help);
    else if (options->version)
        print_version(program);
    else if (options->plan)
        print_plan(program);
    return options->help || options->version || options->plan;
}

/* Standard output may be the result: a failed write is an error.  The reason of an earlier one is gone. */
static int end_of_output(int status)
{
    errno = 0;
    if ((fflush(stdout) || ferror(stdout)) && status == RT_EXIT_OK)
        rt_fail("cannot write to stdout%s%s; the output is incomplete", errno ? ": " : "",
                errno ? strerror(errno) : "");
    return status;
}

/* The number of files and their weights, then each file. */
static void agree_on_data(Rt *rt, const RtData *data)
{
    char *weights = rt_data_weights(data),
         *text = rt_text("%d files, weights: %s", data->count, *weights ? weights : "none");
    char *what = rt_text("the files and weights of %s", data->option);
    rt_agree_on_text(rt, what, text);
    for (const RtArray *array = data->array; array < data->array + data->count; array++)
        rt_agree_on_file(rt, data->option, array->path, array->format, array->map, array->bytes);
    free(what);
    free(text);
    free(weights);
}

static RtData *open_data(RtRun *run, RtDataGiven given, const RtFunction *f)
{
    if (!given.given)
        return NULL;
    given.format = run->options.data_format;
    RtData *data = rt_data_open(&run->rt, given, f);
    agree_on_data(&run->rt, data);
    const bool is_told = f == &run->rt.program->outputs && (run->options.eval_data ? run->eval_data : run->data);
    for (int i = 0; i < data->portions && given.share != RT_HELD_OUT && !is_told; i++) {
        char *words = rt_data_words(data, i);
        rt_note("%s %s: %s", given.option, data->source[i].name, words);
        free(words);
    }
    if (given.share == RT_HELD_OUT)
        rt_note("--eval-fraction %g: %s held out", given.fraction,
                rt_count_text(rt_data_sequences(data), data->is_records ? "record" : "sequence").text);
    return data;
}

static void open_all_data(RtRun *run)
{
    const RtOptions *o = &run->options;
    const RtFunction *step = &run->rt.program->step, *eval = &run->rt.program->eval;
    const bool holds_out = o->given.eval_fraction, only_writes = o->outputs && o->steps == 0;
    RtDataGiven data = { .given = o->data, .option = "--data", .fraction = o->eval_fraction };
    RtDataGiven other = { .given = o->eval_data, .option = "--eval-data" };
    data.share = holds_out ? RT_TRAINED : RT_ALL;
    data.least = step->micro * step->batch;
    if (!only_writes) /* else labels need not be there */
        run->data = open_data(run, data, step);
    data.share = RT_HELD_OUT;
    data.least = other.least = eval->mixes ? eval->micro * eval->batch : 1;
    run->eval_data = open_data(run, holds_out ? data : other, eval);
    data.share = other.share = RT_ALL;
    data.least = other.least = 1;
    if (o->outputs)
        run->output_data = open_data(run, o->eval_data ? other : data, &run->rt.program->outputs);
}

/* What a loss of evaluation is that the user may think another. */
static void note_evaluation(const RtRun *run)
{
    const RtFunction *f = &run->rt.program->eval;
    if (!run->eval_data)
        return;
    if (f->auxiliary)
        rt_note(
            "note: the loss of evaluation includes the balance of experts (%s); training(balance(...), 0) leaves it "
            "to training",
            f->auxiliary);
    if (run->rt.program->step.ndropped)
        rt_note("note: evaluation drops what is beyond the capacity of an expert, as training does; capacity = none "
                "drops nothing");
    const int64_t all = rt_data_sequences(run->eval_data), batch = f->micro * f->batch;
    const int64_t left = all - all / batch * batch;
    if (f->mixes && left && all / batch <= run->options.eval_batches - 1)
        rt_note("note: evaluation leaves out the last %lld of %lld %s: %s mixes those of a batch, so that only whole "
                "batches of %lld are evaluated",
                (long long)left, (long long)all, run->eval_data->is_records ? "records" : "sequences", f->mixes,
                (long long)batch);
}

/* Checks all tokens of an evaluation: a bad one would end the run later. */
static void check_eval_data(const RtRun *run)
{
    const RtFunction *f = &run->rt.program->eval;
    int64_t call = f->micro * f->batch, sequences = run->eval_data ? rt_eval_sequences(run) : 0;
    int64_t *sequence = rt_allocate(call, sizeof *sequence);
    for (int64_t begin = 0; begin < sequences; begin += call) {
        rt_eval_call(run, begin, sequences, sequence);
        char *fault = rt_data_fault(run->eval_data, sequence);
        if (fault)
            rt_fail("%s", fault);
    }
    free(sequence);
}

static void start_device(RtRun *run)
{
    Rt *rt = &run->rt;
    rt_device_open(rt, (RtDeviceOptions){ .kernel_cache = run->options.kernel_cache,
                                          .no_graph = run->options.no_graph,
                                          .no_cudnn = run->options.no_cudnn,
                                          .no_hopper = run->options.no_hopper,
                                          .no_fp8 = run->options.no_fp8,
                                          .share_gpu = run->options.share_gpu,
                                          .nccl_memory = run->options.nccl_memory });
    rt_collectives_open(rt);
    rt_arena_open(rt);
    rt_far_open(rt, run->options.offload_folder);
    if (rt->program->create)
        rt->program->create(rt);
    rt_libraries_choose(rt);
    rt_saves_open(run);
    rt_replay_open(run);
    rt_pace_open(&run->pace, rt);
    rt_memory_print(rt);
    run->rank_bytes = rt_memory_of_ranks(rt);
    if (run->options.print_mesh)
        rt_comm_print_mesh(rt);
}

/* --- Start of the run ----------------------------------------------------------------------- */

static uint32_t first_seed(const RtRun *run)
{
    int64_t seed = run->options.given.seed ? run->options.seed : run->rt.program->seed;
    if (seed < 0 || seed > UINT32_MAX)
        rt_fail("train.seed = %lld of model '%s' is not between 0 and %lld: give --seed N", (long long)seed,
                run->rt.program->name, (long long)UINT32_MAX);
    return (uint32_t)seed;
}

/* A resumed run must have the same seed. */
static void check_seed(const RtRun *run)
{
    const RtOptions *options = &run->options;
    bool only_samples = options->sample > 0 && options->steps == 0;
    if (options->given.seed && !only_samples && options->seed != run->place.seed)
        rt_fail("--seed %lld: --load %s was trained with seed %u and continues with it; leave --seed out",
                (long long)options->seed, options->load, run->place.seed);
}

static void check_steps(const RtRun *run)
{
    const bool is_done = run->resumed && run->options.steps == run->place.step; /* a launcher starts it once more */
    if (run->options.steps > 0 && run->options.steps <= run->place.step && !is_done)
        rt_fail("--steps %lld: --load %s has done %s already; --steps counts from the start of training, so "
                "give more "
                "(or 0 to train nothing)",
                (long long)run->options.steps, run->options.load, rt_count_text(run->place.step, "step").text);
}

static void note_changed_data(const RtRun *run)
{
    const RtPlace *place = &run->place;
    if (!run->data || place->sequences == 0 || run->options.steps == 0)
        return;
    int64_t sequences = rt_data_sequences(run->data);
    if (sequences != place->sequences)
        rt_note("note: --data has %lld %s, but the checkpoint's had %lld: it continues in another order",
                (long long)sequences, run->data->is_records ? "records" : "sequences", (long long)place->sequences);
    char *weights = rt_data_weights(run->data);
    if (strcmp(weights, place->weights))
        rt_note("note: --data has the weights %s, but the checkpoint's had %s: it continues in another order",
                *weights ? weights : "of its sizes", *place->weights ? place->weights : "those of its sizes");
    free(weights);
    if (place->shuffled == run->options.no_shuffle)
        rt_note("note: the checkpoint's data were %s, these are %s", place->shuffled ? "shuffled" : "in order",
                place->shuffled ? "in order" : "shuffled");
}

/* Are tensors that --load does not find initialised as in a new run? */
static bool starts_missing(const RtRun *run) { return !strcmp(run->options.load_missing, "init"); }

static void load(RtRun *run)
{
    const char *path = run->options.load;
    const RtLoading how = { .weights_only = run->options.weights_only,
                            .is_checked = run->resumed,
                            .init_missing = starts_missing(run) };
    run->has_loaded = rt_checkpoint_load(path, &run->rt, how, &run->place);
    if (!run->has_loaded) {
        rt_note("loaded %s: weights only, no optimizer state and no step: the optimizer starts at zero, at step 0",
                path);
        return;
    }
    rt_note("loaded %s: step %lld, seed %u", path, (long long)run->place.step, run->place.seed);
    check_seed(run);
    check_steps(run);
    note_changed_data(run);
}

/* `policy=base.safetensors`: of each instance that --load-part names. */
static void load_parts(RtRun *run)
{
    for (RtLIST part = run->options.load_part; part && *part; part++) {
        const char *equals = strchr(*part, '=');
        if (!equals || equals == *part || !equals[1])
            rt_end(RT_EXIT_USAGE, "--load-part %s: write INSTANCE=FILE, as in --load-part policy=base.safetensors",
                   *part);
        if (run->has_loaded)
            rt_end(RT_EXIT_USAGE,
                   "--load-part %s: --load %s continues a run, with the weights that it has now; leave one of "
                   "them out, or give --weights-only",
                   *part, run->options.load);
        char *instance = rt_text("%.*s", (int)(equals - *part), *part);
        rt_checkpoint_load_part(instance, equals + 1, &run->rt);
        rt_note("loaded %s as the weights of '%s'", equals + 1, instance);
        free(instance);
    }
}

/* Steps that do not go with the schedule: the learning rate rises from nearly 0 up to the end of the warmup, and stays
 * as it is after the last step of the schedule. */
static void note_schedule(const RtRun *run)
{
    const RtSchedule *schedule = &run->rt.program->schedule;
    const long long last = run->options.steps, warmup = schedule->warmup;
    if (last > run->place.step && last < warmup)
        rt_note(
            "note: the %lld steps end within the warmup of %lld, in which the learning rate rises: it comes to %.3g "
            "of %.3g, and little is learned; for a shorter one, compile with --set train.schedule.warmup=N",
            last, warmup, rt_schedule_lr(schedule, last - 1), schedule->lr);
    if (last > run->place.step && schedule->steps > 0 && last > schedule->steps)
        rt_note("note: the schedule of the learning rate ends at step %lld, and %.3g is that of all later steps; for a "
                "longer one, compile with --set train.schedule.steps=%lld",
                (long long)schedule->steps, rt_schedule_lr(schedule, last - 1), last);
}

static void start_state(RtRun *run)
{
    run->place.seed = first_seed(run);
    rt_init_tensors(&run->rt, run->place.seed, !run->options.load || starts_missing(run));
    if (run->options.load)
        load(run);
    load_parts(run);
    if (run->options.ema && !rt_has_average(run->rt.program))
        rt_fail("--ema: the model '%s' keeps no mean of its weights: train { ema = 0.999 } does",
                run->rt.program->name);
    run->begun_at = run->place.step;
    note_schedule(run);
    run->saved_at = -1;
    run->skipped_steps = rt_skipped_steps(run);
    if (run->data) {
        run->place.sequences = rt_data_sequences(run->data);
        run->place.shuffled = !run->options.no_shuffle;
        run->mixture =
            rt_mixture_open(run->data->portion, run->data->portions, run->place.seed, run->options.no_shuffle);
        char *weights = rt_data_weights(run->data);
        if (strlen(weights) >= sizeof run->place.weights)
            rt_fail("--data: %d weights are too many for a checkpoint; give folders, of several files with one weight",
                    run->data->portions);
        strcpy(run->place.weights, weights);
        free(weights);
    }
}

/* --- Outputs -------------------------------------------------------------------------------- */

/* The second step is the first with warm caches; a shorter run is traced from its start. */
static int64_t first_traced(const RtRun *run)
{
    bool has_more = run->options.steps - run->begun_at > run->options.trace_steps;
    return run->begun_at + (has_more ? 2 : 1);
}

static void open_outputs(RtRun *run)
{
    const RtOptions *options = &run->options;
    bool is_first = run->rt.rank == 0;
    if (options->save && is_first)
        rt_output_check_room(options->save, "--save", rt_saving_bytes(run->saving), rt_saving_most(run->saving),
                             1 + options->keep + options->keep_best);
    if (options->given.keep && is_first) {
        const RtSavedSteps steps = { run->begun_at, options->save_every, options->steps };
        run->keep = rt_keep_open(options->save, options->keep, steps, options->overwrite || run->resumed);
        if (run->resumed)
            rt_keep_adopt(&run->keep, steps);
    }
    rt_best_open(run);
    rt_trace_open(&run->rt, options->trace, first_traced(run), options->trace_steps);
    const int64_t unsaved =
        options->resume ? 2 * options->save_every : 0; /* a save is done before the next one begins */
    run->log = rt_log_open(is_first ? options->log : NULL, run->begun_at, unsaved, options->overwrite);
    rt_watched_open(run);
    rt_outputs_need_files(options);
}

/* What is left of a run that ends early: "resume with --load FILE, or add --resume". */
static char *rest_text(const RtRun *run)
{
    if (run->saved_at == run->place.step)
        return rt_text("resume with --load %s, or add --resume", run->options.save);
    return rt_text("nothing is saved (%s)", run->options.save ? "this run has done no step" : "no --save");
}

static _Noreturn void end_with_failure(const RtRun *run)
{
    rt_fail("%s; ended at step %lld: %s", run->failure, (long long)run->place.step, rest_text(run));
}

static void note_interruption(const RtRun *run)
{
    char *rest = rest_text(run);
    rt_note("interrupted at step %lld: %s", (long long)run->place.step, rest);
    free(rest);
}

static int finish(RtRun *run)
{
    int signal = run->signal;
    if (signal)
        note_interruption(run);
    if (run->failure)
        end_with_failure(run);
    int status = signal ? RT_EXIT_SIGNAL + signal : RT_EXIT_OK;
    end_of_output(status);
    rt_log_close(&run->log);
    rt_watched_close(run);
    free(run->rank_bytes);
    free(run->loads.at);
    free(run->dropped.at);
    free(run->labels.at);
    free(run->eval_labels.at);
    rt_mixture_close(run->mixture);
    rt_data_close(run->data);
    rt_data_close(run->eval_data);
    rt_data_close(run->output_data);
    if (run->options.print_traffic && run->rt.rank == 0)
        rt_collectives_print(&run->rt);
    rt_saving_close(run->saving);
    rt_replay_close(run);
    rt_pace_close(&run->pace);
    rt_products_free(&run->rt);
    rt_comm_close(&run->rt);
    rt_collectives_close(&run->rt);
    rt_traffic_close(&run->rt);
    rt_far_note(&run->rt, run->far, run->spent_s);
    rt_far_close(&run->rt);
    rt_device_close(&run->rt);
    rt_lock_release(&run->lock);
    rt_keep_close(&run->keep);
    free(run->resumed);
    free(run->best_name);
    rt_options_free(&run->options);
    return status;
}

static void sample(RtRun *run)
{
    rt_finish_update(run);
    rt_exchange_average(run);
    rt_sample(run);
    rt_exchange_average(run);
}

/* Of all ranks together.  In tests MPC_PEAK_FLOPS stands for the option: measuring takes longer than their steps. */
static double peak_flops(RtRun *run)
{
    const char *text = getenv("MPC_PEAK_FLOPS");
    double *said = &run->options.peak_flops;
    if (!*said && text)
        *said = fmax(strtod(text, NULL), 0);
    return rt_comm_sum(&run->rt, *said > 0 ? *said : rt_product_peak(&run->rt, 0.25));
}

/* --probe: measurements in place of a training. */
static int probe(RtRun *run)
{
    Rt *rt = &run->rt;
    const char *model = rt->program->name;
    const int64_t model_bytes = rt_arena_bytes(rt);
    rt_share_machine(rt);
    rt_threads_choose(run);
    rt_agree_on_options(rt, &run->options);
    rt_outputs_check(&run->options, rt->program, rt->rank);
    rt_probe_prepare(rt, run->options.probe_seconds);
    rt_traffic_open(rt, run->options.timeout);
    start_device(run);
    rt_probe(rt, model, model_bytes, run->options.probe, run->options.probe_seconds);
    return finish(run);
}

int rt_main(int argc, char **argv, const RtProgram *program)
{
    rt_open_closed_files();
    rt_instructions_check(program);
    RtRun run = { .rt = { .program = program }, .lock.file = -1, .progress_file = -1 };
    bool only_answers = rt_options_only_ask(argc, argv); /* done by a single rank */
    if (only_answers && program->comm && program->comm->launched_as(argc, argv) > 0)
        return RT_EXIT_OK;
    if (!only_answers)
        rt_comm_open(&run.rt, &argc, &argv);
    run.options = rt_options_parse(argc, argv, program);
    if (answers(&run, argv[0])) {
        rt_options_free(&run.options);
        return end_of_output(RT_EXIT_OK);
    }
    rt_signals_catch();
    rt_map_watch();
    if (run.options.probe)
        return probe(&run);
    rt_traffic_open(&run.rt, run.options.timeout);
    rt_share_machine(&run.rt);
    rt_threads_choose(&run);
    rt_agree_on_options(&run.rt, &run.options);
    if (run.options.resume)
        rt_resume(&run);
    rt_outputs_check(&run.options, program, run.rt.rank);
    if (run.options.save && run.rt.rank == 0)
        run.lock = rt_lock_take(run.options.save, "--save");
    open_all_data(&run);
    note_evaluation(&run);
    check_eval_data(&run);
    rt_model_outputs_check_data(&run);
    rt_map_check();
    start_device(&run);
    start_state(&run);
    rt_map_check();
    rt_signals_keep();
    open_outputs(&run);
    if (run.options.steps > 0)
        run.peak = peak_flops(&run);
    rt_train(&run);
    if (run.options.outputs && !run.signal && !run.has_failure)
        rt_model_outputs_write(&run);
    if (run.options.sample > 0 && !run.signal && !run.has_failure)
        sample(&run);
    return finish(&run);
}
