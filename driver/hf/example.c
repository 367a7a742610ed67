/* example.c -- tries the maps of the examples: share/mpc/examples of an installed mpc, examples/ of its source tree. */
#define _GNU_SOURCE /* realpath */
#include "example.h"

#include "cc.h"
#include "member.h"
#include "name_map.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

/* The maps of the examples that name the model_type of a configuration, and those of them that fit it whole. */
typedef struct {
    Run *run;
    const cJSON *config;
    const char *config_path, *type;
    Example *fitting, nearest; /* nearest: with the fewest errors */
    int nof_type, nfitting, errors;
} Search;

/* NULL: mpc was moved away from them. */
static const char *find_examples(Run *run)
{
    static const char *const places[] = { "../share/mpc/examples", "../examples" };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char *real = realpath(arena_text(&run->arena, "%s/%s", folder_of_mpc(run), places[i]), NULL);
        const char *folder = real ? arena_text(&run->arena, "%s", real) : NULL;
        free(real);
        if (folder && has_member(run, folder, "maps"))
            return folder;
    }
    return NULL;
}

/* In a run of its own, with its messages to `out`; the number of errors.  *model: of the map's `model` statement, in
 * the arena of the search; NULL: it has none. */
static int try_map(const Search *search, const char *path, FILE *out, const char **model)
{
    Run own = { .options = search->run->options, .diags.out = out };
    NameMap map = { 0 };
    read_name_map(&own, &map, path, search->config, search->config_path);
    *model = map.model ? arena_text(&search->run->arena, "%s", map.model) : NULL;
    arena_free(&own.arena);
    return own.diags.errors;
}

/* Does a map say `need model_type = ..., "TYPE"`? */
static bool names_type(const Search *search, const char *path)
{
    Arena *arena = &search->run->arena;
    const char *why, *need;
    const Source *source = read_text(search->run, path, &why);
    if (!source || !(need = strstr(source->text, "\nneed model_type")))
        return false;
    if (strstr(source->text, "\nadapter ")) /* the model has more than the folder: it is one that is asked for */
        return false;
    const char *line = arena_text(arena, "%.*s", (int)strcspn(need + 1, "\n"), need + 1);
    return strstr(line, arena_text(arena, "\"%s\"", search->type));
}

static void try_example(Search *search, const char *examples, const char *name, FILE *out)
{
    Arena *arena = &search->run->arena;
    const char *model, *dot = strrchr(name, '.');
    Example example = { .map = arena_text(arena, "%s/maps/%s", examples, name) };
    if (!dot || strcmp(dot, ".map") != 0 || !names_type(search, example.map))
        return;
    const int errors = try_map(search, example.map, out, &model);
    example.model = model ? arena_text(arena, "%s/%s", examples, model)
                          : arena_text(arena, "%s/%.*s.mdl", examples, (int)(dot - name), name);
    if (search->nof_type++ == 0 || errors < search->errors) {
        search->nearest = example;
        search->errors = errors;
    }
    if (errors == 0)
        search->fitting[search->nfitting++] = example;
}

/* False where there are no examples, or the configuration has no model_type. */
static bool search_examples(Search *search, Run *run, const cJSON *config, const char *config_path)
{
    TextList names;
    *search = (Search){ .run = run, .config = config, .config_path = config_path };
    const char *examples = find_examples(run);
    search->type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(config, "model_type"));
    if (!examples || !search->type || !list_members(run, arena_text(&run->arena, "%s/maps", examples), &names))
        return false;
    search->fitting = NEW_ARRAY(&run->arena, Example, names.count + 1);
    char *said;
    size_t size;
    FILE *out = open_memory(&said, &size); /* what does not fit here is no error */
    for (int i = 0; i < names.count; i++)
        try_example(search, examples, names.at[i], out);
    fclose(out);
    free(said);
    return true;
}

static const char *models_text(const Search *search)
{
    const char *text = "";
    for (int i = 0; i < search->nfitting; i++)
        text = arena_text(&search->run->arena, "%s%s--model %s --map %s", text, i ? ", or " : "",
                          shell_word(&search->run->arena, search->fitting[i].model),
                          shell_word(&search->run->arena, search->fitting[i].map));
    return text;
}

bool find_example(Run *run, const cJSON *config, const char *config_path, Example *found)
{
    Search search;
    const char *model;
    if (!search_examples(&search, run, config, config_path))
        return run_failed(run,
                          "%s has no model_type, or mpc does not find its examples: give a model, --model FILE.mdl",
                          config_path);
    if (search.nof_type == 0)
        return run_failed(
            run,
            "%s says model_type: \"%s\", and no example is of that type: give a model with a map, --model "
            "FILE.mdl",
            config_path, search.type);
    if (search.nfitting > 1)
        return run_failed(run, "several examples fit %s: give one: %s", config_path, models_text(&search));
    if (search.nfitting == 0) {
        try_map(&search, search.nearest.map, stderr, &model);
        return run_failed(
            run,
            "no example of model_type \"%s\" computes what %s says, and this one is nearest: give a model "
            "with a map, --model FILE.mdl",
            search.type, config_path);
    }
    *found = search.fitting[0];
    return true;
}

void note_example(Run *run, const cJSON *config, const char *config_path)
{
    Search search;
    if (search_examples(&search, run, config, config_path) && search.nfitting > 0)
        fprintf(stderr, "mpc: note: an example fits this folder: %s\n", models_text(&search));
}
