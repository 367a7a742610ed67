/* outputs.c -- guards the files that a command's options name for its results.  An existing file is replaced only if it
 * is a former result of that kind: another one was hit by a mistyped name (`mpc plot log -o a.mdl`), and would be lost.
 */
#include "driver.h"

#include "paths.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include <sys/stat.h>
#include <unistd.h>

/* A kind of file, and the first characters of those that mpc writes, without blanks and capitals. */
typedef struct {
    const char *noun;
    const char *begins[2];
} FileKind;

typedef struct {
    const char *name, *value; /* "--html", and what is given; NULL: nothing */
    const FileKind *kind;     /* NULL: a folder */
    bool may_be_stdout;       /* as "-" */
} Output;

enum { NOUTPUTS = 8 };
typedef struct {
    Output at[NOUTPUTS];
} Outputs;

static const FileKind page = { "a page", { "<!doctypehtml" } }, picture = { "a picture", { "<svg", "<?xml" } },
                      costs = { "a file of costs", { "{\"mpc\":" } }, plan = { "a plan", { "{\"mpc\":" } },
                      graph = { "a file for Model Explorer", { "{\"label\":" } },
                      trace = { "a trace", { "{\"displaytimeunit\":", "{\"traceevents\":" } },
                      ir = { "IR", { "module@", "module{" } }, source = { "a trainer's source", { "/*trainer.c--" } },
                      kernels = { "a trainer's source", { "/*kernels.cu--" } },
                      program = { "a program", { "\177elf" } },
                      weights = { "imported weights", { "{\"__metadata__\":{\"format\":\"mpc\",\"model\":" } };

/* --- What the options name -------------------------------------------------------------------- */

/* Does the command write one text, to standard output if no name is given? */
static bool writes_text(const Options *o) { return o->compile_to || (1 << o->command & (OPT | PRINT | TRACE | PLOT)); }

static const FileKind *kind_of_output(const Options *o)
{
    const int command = 1 << o->command;
    return o->compile_to || command & (OPT | PRINT) ? &ir
           : command & TRACE                        ? &trace
           : command & PLOT                         ? &page
           : command & IMPORT                       ? &weights
                                                    : NULL; /* a folder */
}

static Outputs outputs_of(const Options *o)
{
    return (Outputs){ {
        { "-o", o->output, kind_of_output(o), writes_text(o) },
        { "--html", o->html, &page, false },
        { "--svg", o->svg, &picture, false },
        { "--memory-svg", o->memory_svg, &picture, false },
        { "--costs", o->costs, &costs, false },
        { "--model-explorer", o->model_explorer, &graph, false },
        { "--dump-ir", o->dump_ir, NULL, false },
        { "--tensorboard", o->tensorboard, NULL, false },
    } };
}

/* --- What is there ---------------------------------------------------------------------------- */

/* Where the text begins: of IR and of checkpoints, something is before.  A checkpoint of a training, which cannot be
 * imported again, has the step in it. */
static const char *beginning(const char *text, size_t size, const FileKind *kind)
{
    enum { LENGTH = 8 }; /* of a checkpoint's header: a number in binary */
    if (kind == &weights)
        return size > LENGTH && !strstr(text + LENGTH, "\"step\":") ? text + LENGTH : "";
    while (kind == &ir && (*text == '#' || isspace((unsigned char)*text))) {
        const char *end = strchr(text, '\n');
        if (!end)
            return "";
        text = end + 1;
    }
    return text;
}

static bool begins_with(const char *text, const char *first)
{
    while (*first) {
        while (isspace((unsigned char)*text))
            text++;
        if (tolower((unsigned char)*text++) != *first++)
            return false;
    }
    return true;
}

static bool is_of_kind(const char *text, size_t size, const FileKind *kind)
{
    const char *at = beginning(text, size, kind);
    for (int i = 0; i < 2 && kind->begins[i]; i++)
        if (begins_with(at, kind->begins[i]))
            return true;
    return false;
}

/* Does the command read this file?  Then it reports that itself, with a better reason. */
static bool is_read(const Options *o, const char *path)
{
    struct stat status;
    const char *operands[] = { o->operand, o->compile_from };
    for (int i = 0; i < 2 + o->files.count; i++) {
        const char *name = i < 2 ? operands[i] : o->files.at[i - 2];
        if (name && stat(name, &status) == 0 && is_same_file(path, &status))
            return true;
    }
    return false;
}

/* Nothing is lost of an empty file, as mktemp(1) makes, nor of a device. */
static bool may_replace_file(Run *run, const char *option, const char *path, const FileKind *kind)
{
    enum { MOST = 65536 };
    struct stat status;
    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0 || is_read(run->options, path))
        return true;
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    char *text = NEW_ARRAY(&run->arena, char, MOST + 1);
    const ssize_t size = file < 0 ? -1 : read(file, text, MOST);
    const int reason = errno;
    if (file >= 0)
        close(file);
    if (size < 0)
        return run_failed(run, "%s: the file %s is there and cannot be read: %s; give another name", option, path,
                          strerror(reason));
    text[size] = '\0';
    return is_of_kind(text, (size_t)size, kind) ||
           run_failed(run, "%s: the file %s is there, and is not %s: it would be lost; give another name, or remove it",
                      option, path, kind->noun);
}

/* The nearest folder above that is there. */
static const char *folder_above(Arena *arena, const char *path)
{
    struct stat status;
    const char *slash = strrchr(path, '/');
    const char *folder = !slash ? "." : slash == path ? "/" : arena_text(arena, "%.*s", (int)(slash - path), path);
    return !slash || slash == path || stat(folder, &status) == 0 || errno != ENOENT ? folder
                                                                                    : folder_above(arena, folder);
}

/* A command may work for minutes before it writes. */
static bool has_place(Run *run, const char *option, const char *path)
{
    struct stat status;
    const bool is_there = stat(path, &status) == 0;
    if (is_there && S_ISDIR(status.st_mode))
        return run_failed(run, "%s: %s is a folder; give the name of a file", option, path);
    if (is_there && !S_ISREG(status.st_mode)) /* a device or a pipe */
        return true;
    const char *folder = folder_above(&run->arena, path);
    const bool is_folder = stat(folder, &status) == 0 && S_ISDIR(status.st_mode);
    if (is_folder && access(folder, W_OK) == 0)
        return true;
    return run_failed(run, "%s: cannot write %s: %s; give a place in another folder", option, path,
                      strerror(is_folder ? errno : ENOTDIR));
}

/* The trainer in a folder of `mpc compile` and `mpc run`. */
static bool may_replace_trainer(Run *run, const char *folder)
{
    static const struct {
        const char *name;
        const FileKind *kind;
    } files[] = {
        { "trainer.c", &source }, { "plan.json", &plan }, { "kernels.cu", &kernels }, { "trainer", &program }
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if ((i != 2 || is_cuda(run->options)) &&
            !may_replace_file(run, "-o", arena_text(&run->arena, "%s/%s", folder, files[i].name), files[i].kind))
            return false;
    return true;
}

static bool is_written_twice(Run *run, const Outputs *outputs, const Output *output)
{
    for (const Output *other = outputs->at; other < output; other++)
        if (other->kind && other->value && strcmp(other->value, output->value) == 0)
            return !run_failed(run, "%s %s and %s %s: each would write over the other; give two names", other->name,
                               other->value, output->name, output->value);
    return false;
}

/* A file named "-" is hard to name again, and to remove. */
static bool is_dash(const Output *output) { return strcmp(output->value, "-") == 0; }

static bool may_be_written(Run *run, const Outputs *outputs, const Output *output)
{
    const Options *o = run->options;
    if (output->kind)
        return !is_written_twice(run, outputs, output) && has_place(run, output->name, output->value) &&
               may_replace_file(run, output->name, output->value, output->kind);
    return output->value != o->output || !(1 << o->command & (COMPILE | RUN)) || may_replace_trainer(run, o->output);
}

int check_outputs(Run *run)
{
    const Options *o = run->options;
    const Outputs outputs = outputs_of(o);
    for (const Output *output = outputs.at; output < outputs.at + NOUTPUTS; output++) {
        if (output->value && is_dash(output) && !output->may_be_stdout)
            return usage_error(o->command, "%s -: this cannot be written to standard output: give a name (./- is one)",
                               output->name);
        if (output->value && !is_dash(output) && !may_be_written(run, &outputs, output))
            return STATUS_FAILED;
    }
    return STATUS_OK;
}
