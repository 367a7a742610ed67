/* export.c -- mpc export: a checkpoint in the form of a Hugging Face folder: its files, names, dtypes and
 * configuration, with the checkpoint's numbers.  Of a folder with a configuration alone, the map names the tensors. */
#define _GNU_SOURCE /* realpath */
#include "export.h"

#include "copy.h"
#include "counter.h"
#include "new_folder.h"

#include "paths.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* --- The checkpoint ------------------------------------------------------------------------- */

static const char *mean_name(Arena *arena, const char *name) { return arena_text(arena, "optimizer.ema.%s", name); }

static bool check_sum(Run *run, const Folder *checkpoint, const StoredTensor *stored)
{
    const cJSON *metadata = checkpoint->index
                                ? cJSON_GetObjectItemCaseSensitive(checkpoint->index, "metadata")
                                : cJSON_GetObjectItemCaseSensitive(checkpoint->file->header, "__metadata__");
    const char *saved =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(metadata, checksum_key(&run->arena, stored->name)));
    return !saved || strcmp(saved, checksum_text(&run->arena, stored->data, stored->width, stored->count)) == 0 ||
           run_failed(run, "%s: tensor '%s' has a wrong checksum; the file is damaged: give another checkpoint",
                      checkpoint->path, stored->name);
}

/* The number of a parameter's tensor in the checkpoint; with --ema that of its mean, which weights that are not trained
 * do not have.  -1: none. */
static int find_copy(Run *run, const Folder *checkpoint, const ParamCopy *copy)
{
    const int mean = run->options->ema ? find_stored(checkpoint, mean_name(&run->arena, copy->name)) : -1;
    return mean >= 0 ? mean : find_stored(checkpoint, copy->name);
}

static bool check_copy(Run *run, const Folder *checkpoint, const ParamCopy *copy)
{
    const int found = find_copy(run, checkpoint, copy);
    if (found < 0)
        return run_failed(run,
                          "%s has no tensor '%s', a parameter of %s: give a checkpoint of this model, or with --model "
                          "(and --map) the one of the checkpoint",
                          checkpoint->path, copy->name, run->source.path);
    const StoredTensor *stored = checkpoint->tensor[found];
    if (stored->rank != copy->rank || memcmp(stored->size, copy->size, (size_t)copy->rank * sizeof *copy->size) != 0)
        return run_failed(run,
                          "%s: tensor '%s' is %s there and %s in the model of the folder: give the folder of its model",
                          checkpoint->path, copy->name, sizes_text(&run->arena, stored->rank, stored->size),
                          sizes_text(&run->arena, copy->rank, copy->size));
    if (!is_parameter_dtype(stored->dtype))
        return run_failed(run, "%s: tensor '%s' has dtype %s, not F32, BF16 or F16", checkpoint->path, copy->name,
                          stored->dtype);
    return check_sum(run, checkpoint, stored);
}

static bool is_state(const char *name) { return strncmp(name, "optimizer.", strlen("optimizer.")) == 0; }

/* All of the model's parameters, and nothing else but the optimizer's state. */
static bool check_checkpoint(Run *run, const Folder *checkpoint, const Binding *b)
{
    int others = 0, means = 0;
    for (int i = 0; i < checkpoint->count; i++)
        others += !is_state(checkpoint->tensor[i]->name);
    for (int i = 0; i < b->ncopies; i++)
        means += find_stored(checkpoint, mean_name(&run->arena, b->copy[i].name)) >= 0;
    if (run->options->ema && means == 0)
        return run_failed(run, "--ema: %s has no mean of weights: train { ema = 0.999 } keeps one", checkpoint->path);
    for (int i = 0; i < b->ncopies; i++)
        if (!check_copy(run, checkpoint, &b->copy[i]))
            return false;
    return others == b->ncopies ||
           run_failed(run, "%s has %d parameters, and model %s has %d: give a checkpoint of this model",
                      checkpoint->path, others, b->m->name, b->ncopies);
}

/* The index of several files, which are beside it. */
static bool open_several(Run *run, Folder *checkpoint, const char *path)
{
    char *real = realpath(path, NULL);
    if (!real)
        return run_failed(run, "cannot read %s: %s", path, strerror(errno));
    char *slash = strrchr(real, '/');
    checkpoint->path = arena_text(&run->arena, "%.*s", slash == real ? 1 : (int)(slash - real), real);
    const bool good = open_indexed(run, checkpoint, arena_text(&run->arena, "%s", slash + 1));
    checkpoint->path = path;
    free(real);
    return good && sort_tensors(run, checkpoint);
}

static bool open_checkpoint(Run *run, Folder *checkpoint, const char *path)
{
    *checkpoint = (Folder){ .path = path };
    if (is_index(path))
        return open_several(run, checkpoint, path);
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* must not wait for the writer of a pipe */
    if (fd < 0)
        return run_failed(run, "cannot read %s: %s", path, strerror(errno));
    checkpoint->file = NEW(&run->arena, TensorFile);
    if (!open_tensors(run, checkpoint->file, path, fd))
        return false;
    checkpoint->nfiles = 1;
    return sort_tensors(run, checkpoint);
}

/* --- The tensors ---------------------------------------------------------------------------- */

/* Gathers a tensor from the checkpoint; its dtype there, NULL after reporting. */
static const char *gather(Run *run, const Binding *b, const Folder *checkpoint, int tensor, char *own)
{
    const char *dtype = NULL;
    for (const Move *move = b->use[tensor].moves; move; move = move->next_of_tensor) {
        const StoredTensor *from = checkpoint->tensor[find_copy(run, checkpoint, &b->copy[move->copy])];
        if (dtype && strcmp(dtype, from->dtype) != 0)
            return run_failed(run, "%s: the parameters of '%s' have several dtypes", checkpoint->path,
                              b->folder->tensor[tensor]->name),
                   NULL;
        dtype = from->dtype;
        move_out(move, from->data, own, from->width);
    }
    return dtype;
}

float *tensor_numbers(Run *run, const Binding *b, const Folder *checkpoint, int tensor)
{
    const size_t bytes = (size_t)b->folder->tensor[tensor]->count * 4;
    char *own = malloc(bytes);
    float *numbers = malloc(bytes);
    if (!own || !numbers)
        out_of_memory(bytes);
    const char *dtype = gather(run, b, checkpoint, tensor, own);
    if (dtype)
        convert_floats(dtype, own, "F32", numbers, b->folder->tensor[tensor]->count);
    free(own);
    if (dtype)
        return numbers;
    free(numbers);
    return NULL;
}

/* In the folder's dtype. */
static bool write_fed(Run *run, const Export *e, int tensor, FILE *out)
{
    const StoredTensor *stored = e->b->folder->tensor[tensor];
    float *numbers = tensor_numbers(run, e->b, e->checkpoint, tensor);
    char *result = numbers ? malloc((size_t)stored->count * 4) : NULL;
    if (numbers && !result)
        out_of_memory((size_t)stored->count * 4);
    bool good = numbers && (!e->adapters || add_adapter(run, e, stored, numbers));
    if (good)
        convert_floats("F32", numbers, stored->dtype, result, stored->count);
    good = good && check_finite(run, e->checkpoint->path, stored, result);
    if (good)
        fwrite(result, (size_t)stored->width, (size_t)stored->count, out);
    free(numbers);
    free(result);
    return good;
}

static bool write_tensor(Run *run, const Export *e, const StoredTensor *stored, FILE *out)
{
    const int tensor = find_stored(e->b->folder, stored->name);
    const TensorUse *use = &e->b->use[tensor];
    if (!use->is_ignored)
        return write_fed(run, e, use->same >= 0 ? use->same : tensor, out);
    fwrite(stored->data, 1, (size_t)(stored->end - stored->begin), out);
    return true;
}

bool write_tensors(Run *run, const Export *e, const TensorFile *like, const char *path)
{
    NewFile file;
    if (!open_new(run, &file, path))
        return false;
    fwrite(like->map, 1, (size_t)like->head, file.out);
    Counter done = { .what = "tensors", .all = like->count };
    for (int i = 0; i < like->count; i++) {
        count(&done);
        if (!write_tensor(run, e, &like->tensor[i], file.out)) {
            drop_new(&file);
            return false;
        }
    }
    end_counter(&done);
    return close_new(run, &file);
}

/* --- The other files ------------------------------------------------------------------------ */

/* The configuration, the index, and what tokenizers consist of. */
static bool is_copied(const char *name)
{
    static const char *const endings[] = { ".json", ".txt", ".model", ".jinja" };
    const char *dot = strrchr(name, '.');
    for (unsigned i = 0; dot && i < sizeof endings / sizeof *endings; i++)
        if (strcmp(dot, endings[i]) == 0)
            return true;
    return false;
}

static bool copy_file(Run *run, const char *folder, const char *name, const char *to)
{
    NewFile file;
    char part[1 << 16];
    const int fd = open_member(run, folder, name);
    FILE *in = fd < 0 ? NULL : fdopen(fd, "rb");
    if (!in)
        return false;
    bool good = open_new(run, &file, to);
    for (size_t got; good && (got = fread(part, 1, sizeof part, in)) > 0;)
        fwrite(part, 1, got, file.out);
    const bool failed = ferror(in);
    fclose(in);
    if (good && failed) {
        drop_new(&file);
        return run_failed(run, "cannot read %s", path_in(&run->arena, folder, name));
    }
    return good && close_new(run, &file);
}

static bool copy_others(Run *run, const char *from, const char *to)
{
    TextList names;
    if (!list_members(run, from, &names))
        return false;
    bool good = true;
    for (int i = 0; i < names.count && good; i++)
        good = !is_copied(names.at[i]) || copy_file(run, from, names.at[i], path_in(&run->arena, to, names.at[i]));
    return good;
}

/* --- The command ---------------------------------------------------------------------------- */

static const char *name_of_file(const TensorFile *file) { return strrchr(file->path, '/') + 1; }

/* The names of all files that are written. */
static bool list_written(Run *run, const Exchange *x, TextList *written)
{
    TextList members;
    if (!list_members(run, x->folder.path, &members))
        return false;
    *written = (TextList){ .at = NEW_ARRAY(&run->arena, const char *, members.count + x->folder.nfiles + 1) };
    for (int i = 0; i < x->folder.nfiles; i++)
        written->at[written->count++] = name_of_file(&x->folder.file[i]);
    for (int i = 0; i < members.count; i++)
        if (is_copied(members.at[i]))
            written->at[written->count++] = members.at[i];
    return true;
}

static bool is_same_folder(const char *a, const char *b)
{
    struct stat first, second;
    return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_ino == second.st_ino &&
           first.st_dev == second.st_dev;
}

/* Would a file of the checkpoint be replaced? */
static bool is_read(const Folder *checkpoint, const char *path)
{
    for (int i = 0; i < checkpoint->nfiles; i++)
        if (is_same_file(path, &checkpoint->file[i].status))
            return true;
    return false;
}

static bool write_folder(Run *run, const Exchange *x, const Export *e)
{
    const Folder *checkpoint = e->checkpoint;
    const char *to = run->options->output;
    TextList written;
    NewFolder folder;
    if (is_same_folder(x->folder.path, to))
        return run_failed(run, "cannot write into %s: --like reads it; give another folder", to);
    for (int i = 0; i < x->folder.nfiles; i++)
        if (is_read(checkpoint, path_in(&run->arena, to, name_of_file(&x->folder.file[i]))))
            return run_failed(run, "cannot write %s: it is the checkpoint: give another folder",
                              path_in(&run->arena, to, name_of_file(&x->folder.file[i])));
    if (!list_written(run, x, &written) || !begin_folder(run, &folder, to, written))
        return false;
    bool good = true;
    for (int i = 0; i < x->folder.nfiles && good; i++)
        good = write_tensors(run, e, &x->folder.file[i],
                             path_in(&run->arena, folder.aside, name_of_file(&x->folder.file[i])));
    good = good && copy_others(run, x->folder.path, folder.aside);
    if (good)
        return end_folder(run, &folder);
    drop_folder(&folder);
    return false;
}

static void print_done(Run *run, const Exchange *x, const Export *e)
{
    const char *from = visible_text(&run->arena, run->options->operand),
               *to = visible_text(&run->arena, run->options->output);
    if (run->options->adapter)
        printf("%s: an adapter of %d tensors for model %s in %s\n", from, e->adapters->folder->count, x->m->name, to);
    else
        printf("%s: %d tensors of model %s%s in %s\n", from, x->folder.count - x->folder.nlists, x->m->name,
               e->adapters ? ", with its adapters merged," : "", to);
    if (x->is_example)
        fprintf(stderr,
                "mpc: note: taken for a checkpoint of %s, whose names and shapes fit; if your model computes something "
                "else, give --model FILE.mdl, with a map\n",
                visible_text(&run->arena, run->options->model));
}

int run_export(Run *run)
{
    const Options *o = run->options;
    Exchange x = { 0 };
    Folder checkpoint = { 0 }, of_adapters = { 0 };
    Binding adapters;
    Export e = { .b = &x.binding, .checkpoint = &checkpoint };
    if (!o->like || !o->output)
        return usage_error(o->command, "%s is missing: mpc export %s --like DIR -o DIR", !o->like ? "--like" : "-o",
                           o->operand);
    bool good = open_exchange(run, &x, o->like, true) && open_checkpoint(run, &checkpoint, o->operand) &&
                check_checkpoint(run, &checkpoint, &x.binding);
    if (good && (o->adapter || x.map.adapters))
        good = open_adapters(run, &x, &e, &adapters, &of_adapters);
    good = good && (o->adapter ? write_adapter(run, &e) : write_folder(run, &x, &e));
    if (good)
        print_done(run, &x, &e);
    close_folder(&of_adapters);
    close_folder(&checkpoint);
    close_exchange(&x);
    return good ? STATUS_OK : STATUS_FAILED;
}
