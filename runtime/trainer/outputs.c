/* outputs.c -- checks of a run's output files.  Files are compared by identity, not by name: links and other spellings
 * of a path are recognised. */
#include "outputs.h"

#include "data/source.h"
#include "model_outputs.h"
#include "state.h"
#include "store/keep.h"
#include "store/output.h"
#include "store/weights.h"
#include "system_limits.h"
#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/stat.h>
#include <unistd.h>

/* A file that the run reads or writes. */
typedef struct {
    const char *option;
    char *path;
    bool is_written, is_compared;
    dev_t device; /* of the file; if it does not exist yet, of its directory */
    ino_t inode;
    char *name; /* its name there; NULL: the file exists */
} File;

static void identify(File *file)
{
    struct stat info;
    if (!stat(file->path, &info)) {
        file->is_compared = S_ISREG(info.st_mode); /* terminals and pipes may be shared */
    } else {
        char *target = rt_output_target(file->path), *slash = strrchr(target, '/');
        file->name = rt_text("%s", slash ? slash + 1 : target);
        if (slash)
            slash[1] = '\0';
        file->is_compared = !stat(slash ? target : ".", &info); /* else opening it reports the error */
        free(target);
    }
    file->device = info.st_dev;
    file->inode = info.st_ino;
}

static bool is_same(const File *a, const File *b)
{
    bool same_name = !a->name || !b->name ? a->name == b->name : !strcmp(a->name, b->name);
    return a->is_compared && b->is_compared && a->device == b->device && a->inode == b->inode && same_name;
}

static void add(File *files, int *count, const char *option, char *path, bool is_written)
{
    if (!path)
        return;
    files[*count] = (File){ .option = option, .path = path, .is_written = is_written };
    identify(&files[(*count)++]);
}

static char *copy_of(const char *path) { return path ? rt_text("%s", path) : NULL; }

/* F.idx of Megatron's F.bin. */
static char *index_of(const char *path)
{
    size_t length = path ? strlen(path) : 0;
    return length > 4 && !strcmp(path + length - 4, ".bin") ? rt_text("%.*s.idx", (int)length - 4, path) : NULL;
}

/* The files of a value of --data: all of a folder.  For INPUT=FILE, both FILE and the whole text: which of them is
 * meant depends on the program. */
static int count_data(const char *option, RtLIST data)
{
    int count = 0;
    for (; data && *data; data++) {
        RtSource source = rt_source_of(*data, option);
        count += 2 * source.files + 1; /* each with an index, and another after = */
        rt_source_free(&source);
    }
    return count;
}

static void add_data(File *files, int *count, const char *option, RtLIST data)
{
    for (; data && *data; data++) {
        const char *equals = strchr(*data, '=');
        RtSource source = rt_source_of(*data, option);
        for (int i = 0; i < source.files; i++) {
            add(files, count, option, copy_of(source.file[i]), false);
            add(files, count, option, index_of(source.file[i]), false);
        }
        add(files, count, option, equals ? copy_of(equals + 1) : NULL, false);
        rt_source_free(&source);
    }
}

static int count_texts(RtLIST list)
{
    int count = 0;
    for (; list && *list; list++)
        count++;
    return count;
}

static int list_files(File *files, const RtOptions *options, const RtProgram *program, int rank)
{
    int count = 0;
    char *trace = options->trace ? rt_trace_path(options->trace, rank) : NULL;
    add_data(files, &count, "--data", options->data);
    add_data(files, &count, "--eval-data", options->eval_data);
    add(files, &count, "--load", copy_of(options->load), false);
    for (RtLIST part = options->load_part; part && *part; part++)
        add(files, &count, "--load-part", strchr(*part, '=') ? copy_of(strchr(*part, '=') + 1) : NULL, false);
    add(files, &count, "this trainer", copy_of("/proc/self/exe"), false);
    add(files, &count, "--save", copy_of(options->save), true);
    add(files, &count, "--log", copy_of(options->log), true);
    add(files, &count, "--keep-best", options->keep_best ? rt_keep_best_name(options->save) : NULL, true);
    add(files, &count, "--trace", trace, true);
    add(files, &count, "--probe", copy_of(options->probe), true);
    for (int i = 0; i < program->outputs.nresults && options->outputs; i++)
        add(files, &count, "--outputs", rt_model_output_path(options->outputs, &program->outputs.results[i]), true);
    add(files, &count, "--save", options->save ? rt_output_partial(options->save) : NULL, true);
    add(files, &count, "--trace", trace ? rt_output_partial(trace) : NULL, true);
    return count;
}

static bool is_one_of(const File *file, const char *option, const char *other)
{
    return !strcmp(file->option, option) || !strcmp(file->option, other);
}

/* A run may replace the checkpoint that it loads; and the newest may be the best one, with two names. */
static bool may_be_same(const File *a, const File *b)
{
    return is_one_of(a, "--load", "--save") && is_one_of(b, "--save", "--keep-best") && strcmp(a->option, b->option);
}

static void check_pair(const File *a, const File *b)
{
    if (!(a->is_written || b->is_written) || may_be_same(a, b) || !is_same(a, b))
        return;
    rt_end(RT_EXIT_USAGE, "%s %s and %s %s are the same file: %s; give another name", a->option, a->path, b->option,
           b->path, a->is_written ? "each would write over the other" : "what is written would destroy what is read");
}

/* A checkpoint of --keep under the name of a file that the run reads or writes.  What it loads it may replace, as with
 * --save, or it begins behind that. */
static void check_kept(const File *file, const RtOptions *options)
{
    const RtSavedSteps all = { 0, options->save_every, options->steps };
    if (strcmp(file->option, "--load") && strcmp(file->option, "--save") &&
        rt_keep_needs(options->save, file->path, all))
        rt_end(RT_EXIT_USAGE,
               "%s %s and a checkpoint that --keep %lld will keep beside --save %s have one name; give another",
               file->option, file->path, (long long)options->keep, options->save);
}

void rt_outputs_keep(const char *path, const char *option, const char *remedy)
{
    struct stat info;
    if (!stat(path, &info) && S_ISREG(info.st_mode) && info.st_size > 0)
        rt_fail("%s %s: the file already exists and would be lost; %s, or give --overwrite", option, path, remedy);
}

static const File *find(const File *files, int count, const char *option)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(files[i].option, option))
            return &files[i];
    return NULL;
}

static void check_files(const RtOptions *options)
{
    if (options->given.save_files && !rt_is_index(options->save))
        rt_end(RT_EXIT_USAGE,
               "--save-files %lld: --save %s is one file; give NAME.safetensors.index.json, the index of several",
               (long long)options->save_files, options->save);
}

static void require_outputs(const RtProgram *program)
{
    if (!program->outputs.run)
        rt_end(RT_EXIT_USAGE,
               "--outputs: model '%s' names no output: write 'output NAME' in it, of a value that each record has",
               program->name);
}

/* A file of another kind under that name is somebody's. */
static void check_model_output(const char *path, bool overwrite)
{
    static const char magic[] = "\x93NUMPY";
    char begin[sizeof magic - 1];
    FILE *file = fopen(path, "rb");
    const bool is_long = file && fread(begin, sizeof begin, 1, file) == 1;
    const bool is_other = is_long ? memcmp(begin, magic, sizeof begin) != 0 : file && ftell(file) > 0;
    if (file)
        fclose(file);
    if (is_other)
        rt_fail("--outputs %s: the file there is no NumPy array, and is not replaced; give another folder", path);
    if (!overwrite)
        rt_outputs_keep(path, "--outputs", "give another folder");
    rt_output_check(path, "--outputs");
}

/* By the first rank. */
static void make_folder(const char *path)
{
    if (mkdir(path, 0777) && errno != EEXIST)
        rt_fail("--outputs %s: cannot make the folder: %s; give a path in an existing, writable directory", path,
                strerror(errno));
}

void rt_outputs_check(const RtOptions *options, const RtProgram *program, int rank)
{
    enum { OTHERS = 9 };
    check_files(options);
    if (options->outputs)
        require_outputs(program);
    if (options->outputs && rank == 0)
        make_folder(options->outputs);
    const int read = count_data("--data", options->data) + count_data("--eval-data", options->eval_data) +
                     count_texts(options->load_part);
    File *files = rt_allocate(read + OTHERS + program->outputs.nresults, sizeof *files);
    int count = list_files(files, options, program, rank);
    for (int a = 0; a < count; a++)
        for (int b = a + 1; b < count; b++)
            check_pair(&files[a], &files[b]);
    for (int i = 0; i < count && options->given.keep; i++)
        check_kept(&files[i], options);
    const File *load = find(files, count, "--load"), *save = find(files, count, "--save");
    bool goes_on = options->resume || (load && save && is_same(load, save) && !options->weights_only);
    if (save && !goes_on && !options->overwrite && rank == 0) /* one rank creates the file */
        rt_outputs_keep(save->path, "--save", "go on from it with --resume, give another name");
    if (options->trace && !options->overwrite)
        rt_outputs_keep(find(files, count, "--trace")->path, "--trace", "give another name");
    if (options->probe && !options->overwrite && rank == 0)
        rt_outputs_keep(options->probe, "--probe", "give another name");
    for (int i = 0; i < count && rank == 0; i++)
        if (!strcmp(files[i].option, "--outputs"))
            check_model_output(files[i].path, options->overwrite);
    for (int i = 0; i < count; i++) {
        free(files[i].path);
        free(files[i].name);
    }
    free(files);
}

void rt_outputs_need_files(const RtOptions *options)
{
    if (!options->save && !options->trace && !options->outputs)
        return;
    enum { MOST = 8 }; /* saving was seen to open 3; libraries may open more */
    const int64_t limit = rt_files_raise();
    int files[MOST], count = 0;
    while (count < MOST && (files[count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        count++;
    const bool is_limit = count < MOST && errno == EMFILE;
    for (int i = 0; i < count; i++)
        close(files[i]);
    if (is_limit)
        rt_fail("--%s: writing it may need %d more open files, of which this process may have %d, for its limit is "
                "%lld; raise that (ulimit -n)",
                options->save    ? "save"
                : options->trace ? "trace"
                                 : "outputs",
                MOST, count, (long long)limit);
}
