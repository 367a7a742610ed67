/* plan.c -- plan.json: every effective value, its unit, and where it came from. */
#include "plan.h"

#include "codegen/facts.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- Settings of IR ------------------------------------------------------------------------ */

static void add_setting(Run *run, Settings *settings, const char *key, const char *value)
{
    if (!value)
        return;
    if (settings->count == settings->room) {
        Setting *grown = NEW_ARRAY(&run->arena, Setting, settings->room = settings->room ? 2 * settings->room : 32);
        for (int i = 0; i < settings->count; i++)
            grown[i] = settings->at[i];
        settings->at = grown;
    }
    settings->at[settings->count++] =
        (Setting){ arena_text(&run->arena, "train.%s", key), value, "", run->source.path };
}

static const char *text_of_Name(Run *run, Name name) { return name; }
static const char *text_of_Number(Run *run, Number number) { return arena_text(&run->arena, "%.17g", number); }
static const char *text_of_Int(Run *run, Int number) { return arena_text(&run->arena, "%" PRId64, number); }

static const char *text_of_Dtype(Run *run, Dtype dtype) { return dtype; }
static const char *text_of_Flag(Run *run, Flag flag) { return flag ? "true" : "false"; }

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

/* Numbers are written as they are read: integers exactly, whatever their size. */
static void add_integer(cJSON *object, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    cJSON_AddRawToObject(object, key, text);
}

static void add_settings(cJSON *plan, const Settings *settings)
{
    cJSON *list = cJSON_AddArrayToObject(plan, "settings");
    for (int i = 0; i < settings->count; i++) {
        const Setting *setting = &settings->at[i];
        cJSON *entry = cJSON_CreateObject();
        cJSON_AddItemToArray(list, entry);
        cJSON_AddStringToObject(entry, "name", setting->name);
        cJSON_AddStringToObject(entry, "value", setting->value);
        cJSON_AddStringToObject(entry, "unit", setting->unit ? setting->unit : "");
        cJSON_AddStringToObject(entry, "from", setting->from ? setting->from : "");
    }
}

static void add_memory(cJSON *plan, const Module *m)
{
    Memory memory = program_memory(m);
    cJSON *object = cJSON_AddObjectToObject(plan, "memory");
    cJSON_AddStringToObject(object, "unit", "bytes");
    add_integer(object, "arena", memory.arena);
    add_integer(object, "parameters", memory.parameters);
    add_integer(object, "optimizer_state", memory.optimizer);
    add_integer(object, "inputs_and_scalars", memory.feed);
    add_integer(object, "gradients", memory.gradients);
    add_integer(object, "activations_and_workspace", memory.rest);
}

static void add_work(cJSON *plan, const Facts *facts)
{
    cJSON *object = cJSON_AddObjectToObject(plan, "work");
    cJSON_AddNumberToObject(object, "flops_per_step", facts->flops);
    cJSON_AddStringToObject(object, "flops_convention", FLOPS_CONVENTION);
    add_integer(object, "micro_batches_per_step", facts->micro);
    add_integer(object, "sequences_per_step", facts->micro * facts->batch);
    add_integer(object, "tokens_per_step", facts->micro * facts->batch * facts->seq);
}

static void add_model(cJSON *plan, const Module *m, const Facts *facts)
{
    cJSON *object = cJSON_AddObjectToObject(plan, "model");
    cJSON_AddStringToObject(object, "name", m->name);
    cJSON_AddStringToObject(object, "source", m->source ? m->source : "");
    add_integer(object, "parameters", facts->parameters);
    add_integer(object, "tensors", facts->tensors);
}

static void add_files(cJSON *plan, const Options *o)
{
    cJSON *object = cJSON_AddObjectToObject(plan, "files");
    cJSON_AddStringToObject(object, "source", "trainer.c");
    cJSON_AddStringToObject(object, "plan", "plan.json");
    if (!o->no_cc)
        cJSON_AddStringToObject(object, "program", "trainer");
}

const char *plan_text(Run *run, Module *m, const Settings *settings)
{
    Facts facts = program_facts(m);
    cJSON *plan = cJSON_CreateObject();
    cJSON_AddStringToObject(plan, "mpc", MPC_VERSION);
    cJSON_AddStringToObject(plan, "target", run->options->target ? run->options->target : "c");
    add_model(plan, m, &facts);
    add_settings(plan, settings);
    add_memory(plan, m);
    add_work(plan, &facts);
    add_files(plan, run->options);
    char *printed = cJSON_Print(plan);
    const char *text = arena_text(&run->arena, "%s\n", printed);
    cJSON_free(printed);
    cJSON_Delete(plan);
    return text;
}
