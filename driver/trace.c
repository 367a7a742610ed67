/* trace.c -- mpc trace merge: one trace of all ranks of a run, from the file of each. */
#include "trace.h"

#include "json.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    Run *run;
    TraceFile *file; /* as given */
    int count;
    TraceFile **of; /* by rank; NULL: missing */
    int ranks;
} Merge;

/* --- The files ------------------------------------------------------------------------------ */

/* "trace.rank3.json" of "trace.json", as trainers name it. */
static const char *path_of_rank(Arena *arena, const char *path, int rank)
{
    const char *name = strrchr(path, '/'), *dot = strrchr(name ? name : path, '.');
    const int length = dot && dot > path ? (int)(dot - path) : (int)strlen(path);
    return arena_text(arena, "%.*s.rank%d%s", length, path, rank, path + length);
}

/* Rank 0's file alone stands for all that there are beside it. */
static TextList files_of(Run *run, const TraceFile *first)
{
    TextList files = run->options->files;
    if (files.count > 1 || first->rank > 0)
        return files;
    const char **all = NEW_ARRAY(&run->arena, const char *, first->ranks);
    int count = 0;
    all[count++] = first->path;
    for (int rank = 1; rank < first->ranks; rank++) {
        const char *path = path_of_rank(&run->arena, first->path, rank);
        if (access(path, F_OK) == 0)
            all[count++] = path;
    }
    return (TextList){ .count = count, .at = all };
}

static bool read_heads(Merge *merge)
{
    Run *run = merge->run;
    TraceFile first;
    if (!read_trace_head(run, &first, run->options->files.at[0]))
        return false;
    const TextList files = files_of(run, &first);
    merge->ranks = first.ranks;
    merge->count = files.count;
    merge->file = NEW_ARRAY(&run->arena, TraceFile, files.count);
    for (int i = 0; i < files.count; i++)
        if (!read_trace_head(run, &merge->file[i], files.at[i]))
            return false;
    return true;
}

static bool check_run(Run *run, const TraceFile *first, const TraceFile *file)
{
    return (strcmp(first->run, file->run) == 0 && first->ranks == file->ranks) ||
           run_failed(run, "%s and %s are of different runs (%s of %s on %d, %s of %s on %d): give the files of one",
                      first->path, file->path, first->run, first->model, first->ranks, file->run, file->model,
                      file->ranks);
}

static bool sort_files(Merge *merge)
{
    merge->of = NEW_ARRAY(&merge->run->arena, TraceFile *, merge->ranks);
    for (int i = 0; i < merge->count; i++) {
        TraceFile *file = &merge->file[i];
        if (!check_run(merge->run, &merge->file[0], file))
            return false;
        if (merge->of[file->rank])
            return run_failed(merge->run, "%s and %s are both of rank %d: leave one out", merge->of[file->rank]->path,
                              file->path, file->rank);
        merge->of[file->rank] = file;
    }
    return true;
}

/* With --partial a note, else an error. */
static bool check_missing(const Merge *merge)
{
    Run *run = merge->run;
    const char *missing = "";
    for (int rank = 0; rank < merge->ranks; rank++)
        if (!merge->of[rank])
            missing = arena_text(&run->arena, "%s%srank %d", missing, *missing ? ", " : "", rank);
    if (*missing && !run->options->partial)
        return run_failed(run,
                          "of the %d ranks of this run there is no file of %s: give it too, or merge the others with "
                          "--partial",
                          merge->ranks, missing);
    if (*missing)
        fprintf(stderr, "mpc: note: of the %d ranks of this run there is no file of %s\n", merge->ranks, missing);
    return true;
}

/* --- The result ----------------------------------------------------------------------------- */

static void write_head(const Merge *merge, FILE *out)
{
    cJSON *facts = cJSON_CreateObject();
    cJSON_AddStringToObject(facts, "format", "mpc trace 1, merged");
    cJSON_AddStringToObject(facts, "model", merge->file[0].model);
    cJSON_AddStringToObject(facts, "run", merge->file[0].run);
    cJSON_AddNumberToObject(facts, "ranks", merge->ranks);
    fprintf(out, "{\"displayTimeUnit\": \"ms\", \"otherData\": %s, \"traceEvents\": [\n",
            json_text(&merge->run->arena, facts, false));
}

static bool write_merged(const Merge *merge, FILE *out)
{
    TraceMessages messages = { 0 };
    bool *is_there = NEW_ARRAY(&merge->run->arena, bool, merge->ranks), good = true, is_first = true;
    write_head(merge, out);
    for (int rank = 0; good && rank < merge->ranks; rank++) {
        if (!merge->of[rank])
            continue;
        good = copy_events(merge->run, merge->of[rank], is_first, out, &messages);
        is_there[rank] = true;
        is_first = false;
    }
    good = good && write_flows(merge->run, &messages, is_there, out);
    fputs("\n]}\n", out);
    free(messages.at);
    return good;
}

/* No input is written over, nor the result's file on the way to its place. */
static bool write_result(const Merge *merge)
{
    Run *run = merge->run;
    NewFile file;
    if (!run->options->output)
        return write_merged(merge, stdout);
    for (int i = 0; i < merge->count; i++) {
        run->input = merge->file[i].status;
        if (!may_write(run, run->options->output))
            return false;
    }
    if (!open_new(run, &file, run->options->output))
        return false;
    if (write_merged(merge, file.out))
        return close_new(run, &file);
    drop_new(&file);
    return false;
}

int run_trace(Run *run)
{
    const Options *o = run->options;
    if (strcmp(o->operand, "merge") != 0)
        return usage_error(o->command, "there is no 'mpc trace %s': mpc trace %s", o->operand,
                           command_table[o->command].operand);
    if (!o->files.count)
        return usage_error(o->command, "no file is given: mpc trace merge trace.json");
    Merge merge = { .run = run };
    bool good = read_heads(&merge) && sort_files(&merge) && check_missing(&merge) && write_result(&merge);
    return good ? STATUS_OK : STATUS_FAILED;
}
