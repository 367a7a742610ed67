/* import.c -- mpc import: a Hugging Face folder as a checkpoint of weights, which trainers load. */
#include "copy.h"
#include "counter.h"
#include "exchange.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- The header ----------------------------------------------------------------------------- */

/* Its length does not depend on the sums: they are texts of one length. */
static void write_header(const Binding *b, const char *const *sums, FILE *out)
{
    cJSON *header = cJSON_CreateObject(), *metadata = cJSON_AddObjectToObject(header, "__metadata__");
    cJSON_AddStringToObject(metadata, "format", "mpc");
    cJSON_AddStringToObject(metadata, "model", b->m->name);
    int64_t begin = 0;
    for (int i = 0; i < b->ncopies; i++) {
        const ParamCopy *copy = &b->copy[i];
        if (!copy->moves) /* of an adapter: it begins as in a new run */
            continue;
        cJSON_AddStringToObject(metadata, checksum_key(&b->run->arena, copy->name), sums[i]);
        const int64_t end = begin + copy->count * width_of(copy->dtype);
        cJSON_AddItemToObject(header, copy->name, header_entry(copy->dtype, copy->rank, copy->size, begin, end));
        begin = end;
    }
    int64_t bytes;
    const char *text = header_text(&b->run->arena, header, &bytes);
    fwrite(text, 1, (size_t)bytes, out);
    cJSON_Delete(header);
}

/* --- The tensors ---------------------------------------------------------------------------- */

/* False after reporting the tensor of the folder with a number that is not finite. */
static bool check_sources(const Binding *b, const ParamCopy *copy)
{
    for (const Move *move = copy->moves; move; move = move->next_of_copy) {
        const StoredTensor *stored = b->folder->tensor[move->tensor];
        if (!check_finite(b->run, b->folder->path, stored, stored->data))
            return false;
    }
    return true;
}

/* Returns the checksum; NULL after reporting numbers that are not finite. */
static const char *write_copy(const Binding *b, const ParamCopy *copy, FILE *out)
{
    const int width = width_of(copy->dtype);
    char *elements = calloc((size_t)copy->count, (size_t)width);
    if (!elements)
        out_of_memory((size_t)(copy->count * width));
    for (const Move *move = copy->moves; move; move = move->next_of_copy)
        move_in(move, b->folder->tensor[move->tensor]->data, elements, width);
    fill_resized(b, copy, elements);
    const bool good = first_not_finite(copy->dtype, elements, copy->count) < 0 || check_sources(b, copy);
    if (good)
        fwrite(elements, (size_t)width, (size_t)copy->count, out);
    const char *sum = good ? checksum_text(&b->run->arena, elements, width, copy->count) : NULL;
    free(elements);
    return sum;
}

/* The header is written again at the end, since checksums are known only then. */
static bool write_checkpoint(Run *run, const Exchange *x)
{
    NewFile file;
    const Binding *b = &x->binding;
    if (!may_replace(run, x, run->options->output) || !open_new(run, &file, run->options->output))
        return false;
    if (!file.aside) {
        drop_new(&file);
        return run_failed(run, "cannot write %s: it is no file, and a checkpoint is written in two passes", file.path);
    }
    const char **sums = NEW_ARRAY(&run->arena, const char *, b->ncopies + 1);
    for (int i = 0; i < b->ncopies; i++)
        sums[i] = "0000000000000000";
    write_header(b, sums, file.out);
    Counter done = { .what = "parameters", .all = b->ncopies };
    for (int i = 0; i < b->ncopies; i++) {
        count(&done);
        if (b->copy[i].moves && !(sums[i] = write_copy(b, &b->copy[i], file.out))) {
            drop_new(&file);
            return false;
        }
    }
    end_counter(&done);
    rewind(file.out);
    write_header(b, sums, file.out);
    return close_new(run, &file);
}

/* --- The summary ---------------------------------------------------------------------------- */

static void print_counts(Run *run, const Exchange *x)
{
    const Binding *b = &x->binding;
    int64_t elements = 0;
    int ignored = 0, fed = 0;
    for (int i = 0; i < b->ncopies; i++) {
        elements += b->copy[i].moves ? b->copy[i].count : 0;
        fed += b->copy[i].moves != NULL;
    }
    for (int i = 0; i < x->folder.count; i++)
        ignored += b->use[i].is_ignored;
    printf("%s: model %s of %s, %s parameters (%s) in %d tensors, from %d tensors",
           visible_text(&run->arena, x->folder.path), x->m->name, shown_path(run), grouped(&run->arena, elements),
           b->copy[0].dtype, fed, x->folder.count - x->folder.nlists);
    if (ignored)
        printf(", %d of them ignored", ignored);
    if (fed < b->ncopies)
        printf("; %d of adapters begin as in a new run", b->ncopies - fed);
    printf("\n  wrote %s\n", visible_text(&run->arena, run->options->output));
}

/* Does the model read this value, "layers=12", and not the map alone? */
static bool is_read(const Exchange *x, const char *define)
{
    const size_t length = strcspn(define, "=");
    for (int i = 0; i < x->settings.count; i++) {
        const char *point = strchr(x->settings.at[i].name, '.'), *name = point ? point + 1 : "";
        if (x->settings.at[i].unread && strlen(name) == length && strncmp(name, define, length) == 0)
            return false;
    }
    return true;
}

static void print_next(Run *run, const Exchange *x)
{
    enum { STEPS = 100, WARMUP = 10, MOST_WARMUP = STEPS / 2 }; /* in a longer one so few steps learn little */
    Arena *arena = &run->arena;
    printf("next: mpc compile %s", shell_word(arena, run->options->model));
    for (int i = 0; i < x->defines.count; i++)
        if (is_read(x, x->defines.at[i]))
            printf(" -D %s", shell_word(arena, x->defines.at[i]));
    if (x->m->train.warmup > MOST_WARMUP)
        printf(" --set train.schedule.warmup=%d", WARMUP);
    printf(" -o OUT\n      OUT/trainer --load %s --weights-only%s --data FILE --steps %d\n",
           shell_word(arena, run->options->output), x->map.adapters ? " --load-missing init" : "", STEPS);
}

int run_import(Run *run)
{
    const Options *o = run->options;
    Exchange x;
    if (!o->output)
        return usage_error(o->command, "-o is missing: mpc import %s -o FILE.safetensors", o->operand);
    if (is_index(o->output))
        return usage_error(
            o->command,
            "-o %s is the name of an index of several files, and mpc import writes one: -o FILE.safetensors",
            o->output);
    const bool good = open_exchange(run, &x, o->operand, false) && write_checkpoint(run, &x);
    if (good) {
        note_resize(&x.binding);
        print_counts(run, &x);
        print_next(run, &x);
    }
    close_exchange(&x);
    return good ? STATUS_OK : STATUS_FAILED;
}
