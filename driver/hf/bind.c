/* bind.c -- applies a map: expands its lines to tensors and copies of parameters, and checks that nothing is left out
 * or used twice. */
#include "line.h"

#include "near.h"

#include <cjson/cJSON.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

/* --- Parameters ----------------------------------------------------------------------------- */

static int copies_of(const Param *param)
{
    int64_t copies = 1;
    for (int d = 0; d < repeats_around(param); d++)
        copies *= param->type.dim[d].size;
    return (int)copies;
}

void count_copies(const Module *m, const Param *param, Vars *vars)
{
    for (int i = 0; i < vars->count; i++) {
        Var *var = &vars->var[i];
        var->first = i == 0 ? param->first : 0;
        var->step = i == 0 ? 1 + param->skips : 1;
        var->whole = var->size = param->type.dim[i].size;
        var->value = 0;
        for (const Param *other = m->params; other && i == 0; other = other->next)
            var->whole += other != param && other->path == param->path ? other->type.dim[0].size : 0;
    }
}

static void add_copies(Binding *b, const Param *param)
{
    Vars vars;
    const char *unknown;
    int stars;
    path_of(&b->run->arena, param->path, &vars);
    count_copies(b->m, param, &vars);
    do {
        ParamCopy *copy = &b->copy[b->ncopies++];
        *copy = (ParamCopy){ .param = param,
                             .name = name_of(&b->run->arena, param->path, &vars, &unknown, &stars),
                             .rank = param->type.rank - vars.count,
                             .count = 1 };
        for (int d = 0; d < copy->rank; d++)
            copy->count *= copy->size[d] = param->type.dim[vars.count + d].size;
    } while (next_values(&vars));
}

static void list_copies(Binding *b)
{
    int count = 0;
    for (const Param *param = b->m->params; param; param = param->next)
        count += copies_of(param);
    b->copy = NEW_ARRAY(&b->run->arena, ParamCopy, count + 1);
    for (const Param *param = b->m->params; param; param = param->next)
        add_copies(b, param);
}

static int first_copy(const Binding *b, const Param *param)
{
    int i = 0;
    while (b->copy[i].param != param)
        i++;
    return i;
}

/* --- Lines ---------------------------------------------------------------------------------- */

static bool no_parameter(const Binding *b, const MapTarget *target, const char *path)
{
    NearMiss near = { .name = path };
    for (const Param *param = b->m->params; param; param = param->next)
        offer(&near, param->path);
    error_at(&b->map->diags, (Where){ .at = target->loc, .help = did_you_mean(&b->run->arena, &near) },
             "model %s has no parameter '%s'", b->m->name, path);
    return false;
}

/* The parameters of a target: a path has several where repeats of one name follow each other.  They are bound, or their
 * tensors listed. */
static bool bind_target(Binding *b, const MapLine *line, int number, StoredList *listed)
{
    LineUse use = { .b = b, .line = line, .number = number };
    Vars vars;
    bool is_there = false, good = true;
    const char *path = path_of(&b->run->arena, line->target[number].path, &vars);
    for (const Param *param = b->m->params; param && good; param = param->next)
        if (strcmp(param->path, path) == 0) {
            is_there = true;
            use.param = param;
            use.first_copy = first_copy(b, param);
            use.vars = vars;
            good = listed ? list_tensors(&use, listed) : bind_param(&use);
        }
    return is_there ? good : no_parameter(b, &line->target[number], path);
}

static bool may_be_apart(const MapTarget *a, const MapTarget *b)
{
    return a->dim && b->dim && strcmp(a->dim, b->dim) == 0 && a->index != b->index;
}

/* No two targets are the same parameter, or the same part of it. */
static bool check_targets(const Binding *b)
{
    for (const MapLine *line = b->map->lines; line; line = line->next)
        for (int i = 0; i < line->ntargets; i++)
            for (const MapLine *other = line; other; other = other->next)
                for (int k = other == line ? i + 1 : 0; k < other->ntargets; k++)
                    if (strcmp(line->target[i].path, other->target[k].path) == 0 &&
                        !may_be_apart(&line->target[i], &other->target[k]))
                        error_at(&b->map->diags, (Where){ .at = other->target[k].loc },
                                 "parameter '%s' is fed twice: by '%s' and '%s'", line->target[i].path, line->name,
                                 other->name);
    return b->map->diags.errors == 0;
}

/* --- What is left --------------------------------------------------------------------------- */

static bool is_same(const StoredTensor *a, const StoredTensor *b)
{
    return strcmp(a->dtype, b->dtype) == 0 && a->rank == b->rank &&
           memcmp(a->size, b->size, (size_t)a->rank * sizeof *a->size) == 0 &&
           memcmp(a->data, b->data, (size_t)(a->end - a->begin)) == 0;
}

static void use_aside(Binding *b, const Aside *aside, int tensor)
{
    const StoredTensor *stored = b->folder->tensor[tensor];
    TensorUse *use = &b->use[tensor];
    use->is_ignored = !aside->same;
    if (!aside->same)
        return;
    use->same = find_stored(b->folder, name_in_folder(b, aside->same));
    if (use->same < 0 || !b->use[use->same].line || !is_same(stored, b->folder->tensor[use->same]))
        error_at(&b->map->diags,
                 (Where){ .at = aside->loc, .help = "write a model with both tensors, and a map of its own" },
                 "'%s' is not the same as '%s' in the folder, and the model has only one of them", stored->name,
                 aside->same);
}

static void check_tensor(Binding *b, int tensor)
{
    const StoredTensor *stored = b->folder->tensor[tensor];
    TensorUse *use = &b->use[tensor];
    for (const Aside *aside = b->map->asides; aside && !use->line && !use->is_ignored && use->same < 0;
         aside = aside->next)
        if (fnmatch(name_in_folder(b, aside->name), stored->name, 0) == 0)
            use_aside(b, aside, tensor);
    if (use->line && use->fed != kept_of_tensor(b, use->line, stored->count))
        error_at(&b->map->diags, (Where){ .at = use->line->loc }, "%lld of the %lld elements of '%s' are used",
                 (long long)use->fed, (long long)stored->count, stored->name);
    if (use->line || use->is_ignored || use->same >= 0)
        return;
    error_at(
        &b->map->diags,
        (Where){ .at = { 0, 1 }, .help = arena_text(&b->run->arena, "add a line for it, or: ignore %s", stored->name) },
        "this map does not say what '%s' %s of the folder is", stored->name,
        sizes_text(&b->run->arena, stored->rank, stored->size));
}

/* Is the parameter that of an adapter? */
static bool is_adapted(const Binding *b, const Param *param)
{
    Vars vars;
    for (const MapLine *line = b->map->adapters; line; line = line->next)
        for (int i = 0; i < line->ntargets; i++)
            if (strcmp(path_of(&b->run->arena, line->target[i].path, &vars), param->path) == 0)
                return true;
    return false;
}

static void check_copy(Binding *b, int number)
{
    const ParamCopy *copy = &b->copy[number];
    if (b->is_of_adapters ? !copy->fed : is_adapted(b, copy->param))
        return;
    if (copy->fed == kept_of_copy(b, copy) || (number && b->copy[number - 1].param == copy->param &&
                                               b->copy[number - 1].fed == copy->fed)) /* once for all copies */
        return;
    error_at(&b->map->diags, (Where){ .at = { 0, 1 } },
             "this map feeds %lld of the %lld elements of parameter '%s' (%s)", (long long)copy->fed,
             (long long)copy->count, copy->name, copy->param->where);
}

/* Norms in older folders of BERT, whose names transformers itself translates when it reads them. */
static const char *older_name(Arena *arena, const char *name)
{
    static const char *const ends[][2] = { { "LayerNorm.weight", "gamma" }, { "LayerNorm.bias", "beta" } };
    const size_t length = strlen(name);
    for (unsigned i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t end = strlen(ends[i][0]);
        if (length >= end && strcmp(name + length - end, ends[i][0]) == 0)
            return arena_text(arena, "%.*sLayerNorm.%s", (int)(length - end), name, ends[i][1]);
    }
    return name;
}

const char *name_in_folder(const Binding *b, const char *name)
{
    const size_t length = strlen(b->map->prefix);
    name = b->has_prefix || strncmp(name, b->map->prefix, length) != 0 ? name : name + length;
    const char *older = older_name(&b->run->arena, name);
    return find_stored(b->folder, name) < 0 && find_stored(b->folder, older) >= 0 ? older : name;
}

static bool folder_has_prefix(const Folder *folder, const char *prefix)
{
    for (int i = 0; i < folder->count; i++)
        if (strncmp(folder->tensor[i]->name, prefix, strlen(prefix)) == 0)
            return true;
    return false;
}

/* With the binding's run, module, folder and map. */
static bool bind(Binding *b)
{
    Run *run = b->run;
    NameMap *map = b->map;
    const Folder *folder = b->folder;
    b->has_prefix = folder_has_prefix(folder, map->prefix);
    b->use = NEW_ARRAY(&run->arena, TensorUse, folder->count + 1);
    for (int i = 0; i < folder->count; i++)
        b->use[i].same = -1;
    list_copies(b);
    bool good = check_targets(b);
    for (const MapLine *line = map->lines; line && map->diags.shown < MAX_MESSAGES; line = line->next)
        for (int i = 0; i < line->ntargets; i++)
            good &= bind_target(b, line, i, NULL);
    for (int i = 0; good && i < folder->count; i++)
        check_tensor(b, i);
    for (int i = 0; good && i < b->ncopies; i++)
        check_copy(b, i);
    run->diags.errors += map->diags.errors;
    return map->diags.errors == 0;
}

bool bind_map(Binding *b, Run *run, const Module *m, const Folder *folder, NameMap *map, Resize resize)
{
    *b = (Binding){ .run = run, .m = m, .folder = folder, .map = map, .resize = resize };
    return bind(b);
}

/* --- A folder to be written ------------------------------------------------------------------ */

static const char *dtype_of(const Folder *folder)
{
    static const char *const names[][2] = { { "bfloat16", "BF16" }, { "float16", "F16" } };
    const cJSON *said = cJSON_GetObjectItemCaseSensitive(folder->config, "dtype");
    const char *text =
        cJSON_GetStringValue(said ? said : cJSON_GetObjectItemCaseSensitive(folder->config, "torch_dtype"));
    for (unsigned i = 0; text && i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i][0]) == 0)
            return names[i][1];
    return "F32";
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const StoredTensor *)a)->name, ((const StoredTensor *)b)->name);
}

bool name_tensors(Run *run, Folder *folder, const Module *m, NameMap *map, const char *file_name)
{
    Binding b = { .run = run, .m = m, .folder = folder, .map = map };
    StoredList list = { 0 };
    const char *dtype = dtype_of(folder);
    list_copies(&b);
    for (const MapLine *line = map->lines; line; line = line->next)
        if (!is_list_name(line->name) &&
            !bind_target(&b, line, 0, &list)) { /* its other parameters are in the same tensors */
            run->diags.errors += map->diags.errors;
            return false;
        }
    TensorFile *file = &folder->file[folder->nfiles++];
    *file = (TensorFile){ .path = path_in(&run->arena, folder->path, file_name),
                          .header = cJSON_CreateObject(),
                          .tensor = list.at };
    cJSON_AddStringToObject(cJSON_AddObjectToObject(file->header, "__metadata__"), "format", "pt");
    qsort(list.at, (size_t)list.count, sizeof *list.at, by_name);
    int64_t begin = 0;
    for (int i = 0; i < list.count; i++) {
        StoredTensor *stored = &file->tensor[file->count];
        if (file->count && strcmp(stored[-1].name, list.at[i].name) == 0) /* of several copies */
            continue;
        *stored = list.at[i];
        stored->dtype = dtype;
        stored->width = width_of(dtype);
        stored->begin = begin;
        stored->end = begin += stored->count * stored->width;
        cJSON_AddItemToObject(file->header, stored->name,
                              header_entry(stored->dtype, stored->rank, stored->size, stored->begin, stored->end));
        file->count++;
    }
    file->map = header_text(&run->arena, file->header, &file->head);
    return sort_tensors(run, folder);
}

/* --- Adapters -------------------------------------------------------------------------------- */

bool bind_adapters(Binding *b, Run *run, const Module *m, Folder *folder, const char *path, const NameMap *map)
{
    NameMap *own = NEW(&run->arena, NameMap);
    *own = *map;
    own->lines = map->adapters;
    own->asides = NULL;
    *folder = (Folder){ .path = path, .file = NEW(&run->arena, TensorFile) };
    *b = (Binding){ .run = run, .m = m, .folder = folder, .map = own, .is_of_adapters = true };
    return name_tensors(run, folder, m, own, "adapter_model.safetensors") && bind(b);
}
