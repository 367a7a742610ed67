/* adapter.c -- adapters of low rank (LoRA), as peft has them: beside a weight W of the folder, `a.weight`, tensors
 * `a.lora_A.weight` [low, in] and `a.lora_B.weight` [out, low]; the model computes with W + alpha / low * B A.  They
 * are added to the weights, or written as a folder of their own. */
#include "export.h"

#include "json.h"
#include "line.h"
#include "new_folder.h"

#include <stdlib.h>
#include <string.h>

static const char tail_a[] = ".lora_A.weight", tail_b[] = ".lora_B.weight", tail[] = ".weight";

/* Without what it ends with; NULL: it does not. */
static const char *stem_of(Arena *arena, const char *name, const char *ending)
{
    const size_t length = strlen(name), end = strlen(ending);
    const bool has = length > end && strcmp(name + length - end, ending) == 0;
    return has ? arena_text(arena, "%.*s", (int)(length - end), name) : NULL;
}

/* The two tensors of an adapter: their numbers in the folder of adapters; -1: none. */
static void find_pair(Run *run, const Folder *folder, const char *stem, int *a, int *b)
{
    *a = find_stored(folder, arena_text(&run->arena, "%s%s", stem, tail_a));
    *b = find_stored(folder, arena_text(&run->arena, "%s%s", stem, tail_b));
}

/* The weight of an adapter is a matrix of the folder, as large as the product. */
static bool check_weight(Run *run, const Export *e, const NameMap *map, const char *stem, const StoredTensor *low,
                         const StoredTensor *high)
{
    const char *name = arena_text(&run->arena, "%s%s", stem + strlen(PEFT_PREFIX), tail);
    const int found = find_stored(e->b->folder, name_in_folder(e->b, name));
    if (found < 0)
        return run_failed(run, "%s: the folder has no '%s' that '%s' could be added to", map->source.path, name,
                          low->name);
    const StoredTensor *stored = e->b->folder->tensor[found];
    return (stored->rank == 2 && stored->size[0] == high->size[0] && stored->size[1] == low->size[1]) ||
           run_failed(run, "%s: the adapter of '%s' %s is for a weight [%lld, %lld]", map->source.path, name,
                      sizes_text(&run->arena, stored->rank, stored->size), (long long)high->size[0],
                      (long long)low->size[1]);
}

/* Of each A and B: both are there, as matrices with one rank for all. */
static bool check_tensor(Run *run, Export *e, const NameMap *map, const StoredTensor *stored)
{
    const Folder *folder = e->adapters->folder;
    const char *of_a = stem_of(&run->arena, stored->name, tail_a), *stem = of_a;
    int a = -1, b = -1;
    if (!stem)
        stem = stem_of(&run->arena, stored->name, tail_b);
    if (stem)
        find_pair(run, folder, stem, &a, &b);
    if (a < 0 || b < 0)
        return run_failed(run, "%s: an adapter has two tensors, NAME%s and NAME%s: there is only '%s'",
                          map->source.path, tail_a, tail_b, stored->name);
    const StoredTensor *low = folder->tensor[a], *high = folder->tensor[b];
    if (low->rank != 2 || high->rank != 2 || low->size[0] != high->size[1])
        return run_failed(run, "%s: '%s' is %s and '%s' is %s, where [low, in] and [out, low] are needed",
                          map->source.path, low->name, sizes_text(&run->arena, low->rank, low->size), high->name,
                          sizes_text(&run->arena, high->rank, high->size));
    if (e->low && e->low != low->size[0])
        return run_failed(run, "%s: adapters of the ranks %lld and %lld: all must have one", map->source.path,
                          (long long)e->low, (long long)low->size[0]);
    e->low = low->size[0];
    return !of_a || check_weight(run, e, map, stem, low, high);
}

static bool find_alpha(Run *run, const Exchange *x, Export *e)
{
    const char *name = arena_text(&run->arena, "const.%s", x->map.alpha);
    for (int i = 0; i < x->settings.count; i++)
        if (strcmp(x->settings.at[i].name, name) == 0) {
            e->alpha = strtod(x->settings.at[i].value, NULL);
            return true;
        }
    return run_failed(run, "%s: model %s has no const '%s', the alpha of its adapters", x->map.source.path, x->m->name,
                      x->map.alpha);
}

bool open_adapters(Run *run, const Exchange *x, Export *e, Binding *adapters, Folder *folder)
{
    if (!x->map.adapters)
        return run_failed(run, "--adapter: %s has no `adapter` line: the model has no adapters that mpc knows",
                          x->map.source.path);
    if (!find_alpha(run, x, e) || !bind_adapters(adapters, run, x->m, folder, run->options->output, &x->map))
        return false;
    e->adapters = adapters;
    for (int i = 0; i < adapters->folder->count; i++)
        if (!check_tensor(run, e, &x->map, adapters->folder->tensor[i]))
            return false;
    return true;
}

/* --- Merged ---------------------------------------------------------------------------------- */

static void add_product(const StoredTensor *stored, int64_t low, double scale, const float *a, const float *b,
                        float *numbers)
{
    const int64_t rows = stored->size[0], columns = stored->size[1];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            double sum = 0;
            for (int64_t k = 0; k < low; k++)
                sum += (double)b[i * low + k] * (double)a[k * columns + j];
            numbers[i * columns + j] = (float)((double)numbers[i * columns + j] + scale * sum);
        }
}

bool add_adapter(Run *run, const Export *e, const StoredTensor *stored, float *numbers)
{
    const Folder *folder = e->adapters->folder;
    const char *stem = stem_of(&run->arena, stored->name, tail);
    int a = -1, b = -1;
    if (stem)
        find_pair(run, folder, arena_text(&run->arena, PEFT_PREFIX "%s", stem), &a, &b);
    if (a < 0)
        return true;
    float *low = tensor_numbers(run, e->adapters, e->checkpoint, a);
    float *high = low ? tensor_numbers(run, e->adapters, e->checkpoint, b) : NULL;
    if (high)
        add_product(stored, e->low, e->alpha / (double)e->low, low, high, numbers);
    free(low);
    free(high);
    return high;
}

/* --- As a folder of peft --------------------------------------------------------------------- */

/* "q_proj" of "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", once. */
static void add_module(Run *run, cJSON *modules, const StoredTensor *stored)
{
    const char *stem = stem_of(&run->arena, stored->name, tail_a), *dot = stem ? strrchr(stem, '.') : NULL;
    const cJSON *other;
    if (!dot)
        return;
    cJSON_ArrayForEach(other, modules)
    {
        if (strcmp(other->valuestring, dot + 1) == 0)
            return;
    }
    cJSON_AddItemToArray(modules, cJSON_CreateString(dot + 1));
}

/* Of a class for text: what peft's automatic class asks for. */
static bool is_causal_lm(const cJSON *config)
{
    const cJSON *classes = cJSON_GetObjectItemCaseSensitive(config, "architectures");
    const char *name = cJSON_GetStringValue(cJSON_GetArrayItem(classes, 0)),
               *end = name ? strstr(name, "ForCausalLM") : NULL;
    return end && strcmp(end, "ForCausalLM") == 0;
}

static bool write_configuration(Run *run, const Export *e, const char *path)
{
    cJSON *config = cJSON_CreateObject();
    cJSON_AddStringToObject(config, "peft_type", "LORA");
    if (is_causal_lm(e->b->folder->config))
        cJSON_AddStringToObject(config, "task_type", "CAUSAL_LM");
    cJSON_AddStringToObject(config, "base_model_name_or_path", run->options->like);
    cJSON_AddNumberToObject(config, "r", (double)e->low);
    cJSON_AddNumberToObject(config, "lora_alpha", e->alpha);
    cJSON_AddNumberToObject(config, "lora_dropout", 0);
    cJSON_AddStringToObject(config, "bias", "none");
    cJSON_AddBoolToObject(config, "fan_in_fan_out", false);
    cJSON_AddBoolToObject(config, "inference_mode", true);
    cJSON *modules = cJSON_AddArrayToObject(config, "target_modules");
    for (int i = 0; i < e->adapters->folder->count; i++)
        add_module(run, modules, e->adapters->folder->tensor[i]);
    return write_new(run, path, arena_text(&run->arena, "%s\n", json_text(&run->arena, config, true)));
}

bool write_adapter(Run *run, const Export *e)
{
    static const char tensors[] = "adapter_model.safetensors", config[] = "adapter_config.json";
    TextList names = { .count = 2, .at = NEW_ARRAY(&run->arena, const char *, 2) };
    names.at[0] = config;
    names.at[1] = tensors;
    NewFolder folder;
    const Export own = { .b = e->adapters, .checkpoint = e->checkpoint };
    if (!begin_folder(run, &folder, run->options->output, names))
        return false;
    if (write_tensors(run, &own, &e->adapters->folder->file[0], path_in(&run->arena, folder.aside, tensors)) &&
        write_configuration(run, e, path_in(&run->arena, folder.aside, config)))
        return end_folder(run, &folder);
    drop_folder(&folder);
    return false;
}
