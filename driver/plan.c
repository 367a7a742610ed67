/* plan.c -- plan.json: every effective value, its unit, and where it came from. */
#include "plan.h"

#include "codegen/host/totals.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- Settings of IR ------------------------------------------------------------------------ */

static void add_setting(Run *run, Settings *settings, const char *key, const char *value)
{
    if (!value)
        return;
    GROW(&run->arena, settings->at, settings->count, settings->room);
    settings->at[settings->count++] = (Setting){
        .name = arena_text(&run->arena, "train.%s", key), .value = value, .unit = "", .from = run->source.path
    };
}

static const char *text_of_Number(Run *run, Number number) { return arena_text(&run->arena, "%.17g", number); }
static const char *text_of_Int(Run *run, Int number) { return arena_text(&run->arena, "%" PRId64, number); }

static const char *text_of_Dtype(Run *run, Dtype dtype) { return dtype; }
static const char *text_of_Name(Run *run, Name name) { return name; }
static const char *text_of_Quoted(Run *run, Quoted text) { return text; }
static const char *text_of_Flag(Run *run, Flag flag) { return flag ? "true" : "false"; }

#define KIND(kind, unsaid)                                                                                             \
    static inline const char *text_of_##kind(Run *run, kind word) { return kind##_words[word]; }
#define WORD(name, text)
#define END(kind)
#include "words.def"

static const char *text_of_axes(Run *run, const Module *m, Axes axes)
{
    const char *text = "";
    for (int i = 0; i < m->naxes; i++)
        if (axes & 1u << i)
            text = arena_text(&run->arena, "%s%s%s", text, *text ? "," : "", m->axis[i]);
    return *text ? text : NULL;
}

Settings settings_of_ir(Run *run, const Module *m)
{
    Settings settings = { 0 };
#define text_of_Axes(run, axes) text_of_axes(run, m, axes)
#define TRAIN(key, kind) add_setting(run, &settings, #key, text_of_##kind(run, m->train.key));
#include "train.def"
    return settings;
}

/* --- JSON ---------------------------------------------------------------------------------- */

/* The value of an option as text; NULL if not given. */
static const char *option_text(Run *run, const OptionInfo *option)
{
    const void *at = (const char *)run->options + option->at;
    const char *text = NULL;
    if (!is_given(run->options, option))
        return NULL;
    if (option->kind == FLAG)
        return "true";
    if (option->kind == SWITCH)
        return **(const char *const *)at ? *(const char *const *)at : "true";
    if (option->kind != LIST)
        return *(const char *const *)at;
    const TextList *list = at;
    for (int i = 0; i < list->count; i++)
        text = arena_text(&run->arena, "%s%s%s", text ? text : "", text ? " " : "", list->at[i]);
    return text;
}

static const char *default_text(const Options *options, const OptionInfo *option, const char **from)
{
    const char *compiler = getenv("CC");
    if (strcmp(option->field, "target") == 0)
        return "c";
    if (strcmp(option->field, "comm") == 0)
        return comm_of(options);
    if (strcmp(option->field, "march") == 0)
        return march_of(options);
    if (strcmp(option->field, "cc") == 0) {
        *from = compiler && *compiler ? "environment" : *from;
        return compiler && *compiler ? compiler : "cc";
    }
    return option->kind == FLAG || option->kind == SWITCH ? "false" : "";
}

/* Every option of this command, with its effective value. */
static void add_options(cJSON *plan, Run *run)
{
    cJSON *list = cJSON_AddArrayToObject(plan, "options");
    for (int i = 0; i < noptions; i++) {
        const OptionInfo *option = &option_table[i];
        if (!(option->commands >> run->options->command & 1))
            continue;
        const char *from = "command line", *text = option_text(run, option);
        if (!text) {
            from = "default";
            text = default_text(run->options, option, &from);
        }
        cJSON *entry = add_json_entry(list);
        cJSON_AddStringToObject(entry, "name", arena_text(&run->arena, "--%s", option_name(option).text));
        cJSON_AddStringToObject(entry, "value", text);
        cJSON_AddStringToObject(entry, "from", from);
    }
}

static void add_settings(cJSON *plan, const Settings *settings)
{
    cJSON *list = cJSON_AddArrayToObject(plan, "settings");
    for (int i = 0; i < settings->count; i++) {
        const Setting *setting = &settings->at[i];
        cJSON *entry = add_json_entry(list);
        cJSON_AddStringToObject(entry, "name", setting->name);
        cJSON_AddStringToObject(entry, "value", setting->value);
        cJSON_AddStringToObject(entry, "unit", setting->unit ? setting->unit : "");
        cJSON_AddStringToObject(entry, "from", setting->from ? setting->from : "");
    }
}

static void add_work(cJSON *plan, const Totals *totals)
{
    cJSON *object = cJSON_AddObjectToObject(plan, "work");
    cJSON_AddNumberToObject(object, "flops_per_step", totals->flops);
    cJSON_AddStringToObject(object, "flops_convention", FLOPS_CONVENTION);
    add_json_integer(object, "micro_batches_per_step", totals->micro);
    add_json_integer(object, "sequences_per_step", totals->micro * totals->batch);
    add_json_integer(object, "tokens_per_step", totals->micro * totals->batch * totals->seq);
}

/* With recompute auto: the chosen policy, or the chosen values to save, with their names in the IR. */
static void add_recompute(cJSON *plan, const Module *m)
{
    if (!m->train.recompute_budget)
        return;
    cJSON *object = cJSON_AddObjectToObject(plan, "recompute");
    add_json_integer(object, "budget_bytes", m->train.recompute_budget);
    if (m->train.recompute != RECOMPUTE_AUTO) {
        cJSON_AddStringToObject(object, "policy", Recompute_words[m->train.recompute]);
        return;
    }
    cJSON *functions = cJSON_AddObjectToObject(object, "saved"), *away = NULL;
    for (const SavedValues *saved = m->saved; saved; saved = saved->next) {
        cJSON *values = cJSON_AddArrayToObject(functions, saved->func), *moved = NULL;
        for (int i = 0; i < saved->count; i++) {
            cJSON_AddItemToArray(values, cJSON_CreateString(saved->value[i]));
            if (!saved->away[i])
                continue;
            away = away ? away : cJSON_AddObjectToObject(object, "offloaded");
            moved = moved ? moved : cJSON_AddArrayToObject(away, saved->func);
            cJSON_AddItemToArray(moved, cJSON_CreateString(saved->value[i]));
        }
    }
}

/* The mesh of the trainer, which starts only on that number of ranks. */
static void add_mesh(cJSON *plan, const Report *report)
{
    cJSON *object = cJSON_AddObjectToObject(plan, "mesh");
    add_json_integer(object, "ranks", report->ranks);
    cJSON *axes = cJSON_AddObjectToObject(object, "axes");
    for (int i = 0; i < report->m->naxes; i++)
        add_json_integer(axes, report->m->axis[i], report->m->axis_size[i]);
}

static void add_model(cJSON *plan, const Module *m, const Totals *totals)
{
    cJSON *object = cJSON_AddObjectToObject(plan, "model");
    cJSON_AddStringToObject(object, "name", m->name);
    cJSON_AddStringToObject(object, "source", m->source ? m->source : "");
    add_json_integer(object, "parameters", totals->parameters);
    add_json_integer(object, "tensors", totals->tensors);
}

static void add_files(cJSON *plan, const Options *o)
{
    cJSON *object = cJSON_AddObjectToObject(plan, "files");
    cJSON_AddStringToObject(object, "source", "trainer.c");
    cJSON_AddStringToObject(object, "plan", "plan.json");
    if (!o->no_cc)
        cJSON_AddStringToObject(object, "program", "trainer");
}

const char *plan_text(const Report *report, const Settings *settings)
{
    Run *run = report->run;
    cJSON *plan = cJSON_CreateObject();
    cJSON_AddStringToObject(plan, "mpc", MPC_VERSION);
    add_model(plan, report->m, &report->totals);
    add_options(plan, run);
    add_settings(plan, settings);
    add_mesh(plan, report);
    cJSON_AddItemToObject(plan, "memory", memory_json(report));
    add_work(plan, &report->totals);
    add_recompute(plan, report->m);
    add_files(plan, run->options);
    return arena_text(&run->arena, "%s\n", json_text(&run->arena, plan, true));
}
