/* exchange.c -- opens a folder, its map and the model. */
#include "exchange.h"
#include "example.h"

#include "paths.h"
#include "runtime/store/checksum.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

/* "examples/maps/llama.map" of "examples/llama.mdl". */
static const char *map_path(Run *run)
{
    const char *model = run->options->model, *slash = strrchr(model, '/'), *name = slash ? slash + 1 : model;
    const char *dot = strrchr(name, '.');
    if (run->options->map)
        return run->options->map;
    return arena_text(&run->arena, "%.*smaps/%.*s.map", (int)(name - model), model,
                      dot ? (int)(dot - name) : (int)strlen(name), name);
}

/* "layers=12", where the map has set these; else NULL. */
static const char *find_define(const TextList *defines, const char *text)
{
    const size_t length = strcspn(text, "=") + 1;
    for (int i = 0; i < defines->count; i++)
        if (strncmp(defines->at[i], text, length) == 0)
            return defines->at[i];
    return NULL;
}

/* The vocabulary may grow or shrink when a model is imported: `own` is "vocab=32016", `said` what config.json says. */
static bool resizes(const Run *run, Exchange *x, const char *own, const char *said)
{
    static const char name[] = "vocab";
    char *end;
    const size_t length = strlen(name) + 1;
    const int64_t wanted = strncmp(own, "vocab=", length) == 0 ? strtoll(own + length, &end, 10) : 0;
    if (run->options->command != INDEX_IMPORT || wanted <= 0 || wanted > INT32_MAX || *end)
        return false;
    x->resize = (Resize){ name, strtoll(said + length, NULL, 10), wanted };
    return true;
}

/* The model's values: those of the configuration, then those of the command line. */
static bool add_defines(Run *run, Exchange *x)
{
    const TextList *own = &run->options->define, *set = &x->map.defines;
    TextList *all = &x->defines;
    bool good = true;
    all->at = NEW_ARRAY(&run->arena, const char *, own->count + set->count + 1);
    for (int i = 0; i < set->count; i++)
        if (!find_define(own, set->at[i]))
            all->at[all->count++] = set->at[i];
    for (int i = 0; i < own->count; i++) {
        const char *said = find_define(set, own->at[i]);
        if (said && !resizes(run, x, own->at[i], said))
            good = run_failed(run, "-D %s: config.json sets this value, %s (%s): leave it out", own->at[i], said,
                              x->map.source.path);
        all->at[all->count++] = own->at[i];
    }
    Options *options = NEW(&run->arena, Options);
    *options = *run->options;
    options->define = *all;
    run->options = options;
    return good;
}

static const char *config_path(Run *run, const Exchange *x)
{
    return path_in(&run->arena, x->folder.path, "config.json");
}

/* Without --model: the example that fits. */
static bool choose_model(Run *run, Exchange *x)
{
    Example example;
    if (run->options->model)
        return true;
    if (run->options->map)
        return run_failed(run, "--map %s: give its model too, --model FILE.mdl", run->options->map);
    if (!find_example(run, x->folder.config, config_path(run, x), &example))
        return false;
    Options *options = NEW(&run->arena, Options);
    *options = *run->options;
    options->model = example.model;
    options->map = example.map;
    run->options = options;
    x->is_example = true;
    return true;
}

static bool read_map(Run *run, Exchange *x)
{
    if (read_name_map(run, &x->map, map_path(run), x->folder.config, config_path(run, x)))
        return true;
    note_example(run, x->folder.config, config_path(run, x));
    return false;
}

bool open_exchange(Run *run, Exchange *x, const char *folder, bool may_lack_weights)
{
    *x = (Exchange){ 0 };
    if (!open_folder(run, &x->folder, folder, may_lack_weights) || !choose_model(run, x) ||
        !read_source(run, run->options->model))
        return false;
    if (!read_map(run, x) || !add_defines(run, x))
        return false;
    x->folder.list = x->map.list;
    x->folder.nlists = x->map.nlists;
    if (!sort_tensors(run, &x->folder))
        return false;
    run->has_map = true;
    x->m = lower_source(run, 0, &x->settings);
    return x->m && (x->folder.nfiles || name_tensors(run, &x->folder, x->m, &x->map, "model.safetensors")) &&
           bind_map(&x->binding, run, x->m, &x->folder, &x->map, x->resize);
}

void close_exchange(Exchange *x)
{
    close_folder(&x->folder);
    if (x->m)
        free_module(x->m);
    x->m = NULL;
}

bool may_replace(Run *run, const Exchange *x, const char *path)
{
    for (int i = 0; i < x->folder.nfiles; i++)
        if (is_same_file(path, &x->folder.file[i].status))
            return run_failed(run, "cannot write %s: the command reads it; give another name", path);
    return may_write(run, path);
}

const char *checksum_key(Arena *arena, const char *name) { return arena_text(arena, "checksum.%s", name); }

const char *checksum_text(Arena *arena, const void *elements, int width, int64_t count)
{
    return arena_text(arena, "%016llx", (unsigned long long)rt_checksum(elements, width, 0, count));
}
