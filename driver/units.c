/* units.c -- compiles the units of a trainer side by side, in a folder beside it, and links them. */
#include "units.h"

#include "object_cache.h"
#include "unfinished.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const char *text, *source, *object; /* files in the folder */
    const char *cached;                 /* its path in the cache; NULL: none is used */
    bool compiled;
} Unit;

typedef struct {
    Run *run;
    const Runtime *runtime;
    int count;
    Unit *unit;
} Job;

static bool write_unit(const Unit *unit)
{
    FILE *file = fopen(unit->source, "w");
    const bool good = file && fputs(unit->text, file) >= 0;
    return file && fclose(file) == 0 && good;
}

/* Compiles those that are not cached. */
static bool compile_units(Job *job, const ObjectCache *cache)
{
    Run *run = job->run;
    const char ***commands = NEW_ARRAY(&run->arena, const char **, job->count);
    int count = 0;
    for (int i = 0; i < job->count; i++) {
        Unit *unit = &job->unit[i];
        unit->cached = cached_path(run, cache, unit->text);
        unit->compiled = !is_cached(unit->cached);
        if (!unit->compiled)
            continue;
        if (!write_unit(unit))
            return run_failed(run, "cannot write %s: %s", unit->source, strerror(errno));
        if (!(commands[count++] = unit_command(run, job->runtime, unit->source, unit->object)))
            return false;
    }
    if (!run_commands(run, count, commands))
        return false;
    for (int i = 0; i < job->count; i++)
        if (job->unit[i].compiled && job->unit[i].cached)
            store_object(run, cache, job->unit[i].cached, job->unit[i].object);
    return true;
}

static bool link_units(const Job *job, const char *program, const char *comm)
{
    const char **object = NEW_ARRAY(&job->run->arena, const char *, job->count);
    for (int i = 0; i < job->count; i++)
        object[i] = job->unit[i].compiled ? job->unit[i].object : job->unit[i].cached;
    const char **command = program_command(job->run, job->runtime, program, comm, job->count, object);
    return command && run_commands(job->run, 1, &command);
}

static bool uses_cached(const Job *job)
{
    for (int i = 0; i < job->count; i++)
        if (!job->unit[i].compiled)
            return true;
    return false;
}

/* A cached object may be damaged, or have been evicted meanwhile. */
static bool compile_and_link(Job *job, const char *program, const char *comm)
{
    const ObjectCache cache = open_object_cache(job->run, job->runtime);
    if (job->run->options->verbose && cache.why)
        printf("  no object cache is used: %s\n", cache.why);
    if (!compile_units(job, &cache))
        return false;
    if (link_units(job, program, comm))
        return true;
    return uses_cached(job) && compile_units(job, &(ObjectCache){ 0 }) && link_units(job, program, comm);
}

static void note_files(const Job *job, const char *folder)
{
    note_unfinished(folder);
    for (int i = 0; i < job->count; i++) {
        note_unfinished(job->unit[i].source);
        note_unfinished(job->unit[i].object);
    }
}

static void remove_file(const char *path)
{
    unlink(path);
    forget_unfinished(path);
}

static void remove_files(const Job *job, const char *folder)
{
    for (int i = job->count - 1; i >= 0; i--) {
        remove_file(job->unit[i].object);
        remove_file(job->unit[i].source);
    }
    rmdir(folder);
    forget_unfinished(folder);
}

static bool make_of_units(Run *run, const Runtime *runtime, const Units *units, const char *program, const char *comm)
{
    char *folder = arena_text(&run->arena, "%s/.units-XXXXXX", run->options->output);
    if (!mkdtemp(folder))
        return run_failed(run, "cannot make a folder in %s: %s", run->options->output, strerror(errno));
    Job job = { run, runtime, units->count, NEW_ARRAY(&run->arena, Unit, units->count) };
    for (int i = 0; i < job.count; i++)
        job.unit[i] = (Unit){ .text = units->text[i],
                              .source = arena_text(&run->arena, "%s/%d.c", folder, i),
                              .object = arena_text(&run->arena, "%s/%d.o", folder, i) };
    note_files(&job, folder);
    const bool good = compile_and_link(&job, program, comm);
    remove_files(&job, folder);
    return good;
}

bool make_program(Run *run, const Runtime *runtime, const Units *units, const char *program, const char *comm,
                  const char *const command[])
{
    const int errors = run->diags.errors;
    const char **single = (const char **)command;
    const bool good = units->count ? make_of_units(run, runtime, units, program, comm) : run_commands(run, 1, &single);
    return good || run->diags.errors > errors ||
           run_failed(run, "the C compiler failed: %s", command_text(run, command));
}
