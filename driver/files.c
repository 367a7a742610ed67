/* files.c -- reads files, and writes them atomically by renaming. */
#define _XOPEN_SOURCE 700 /* realpath */
#include "driver.h"
#include "unfinished.h"

#include "paths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool run_failed(Run *run, const char *format, ...)
{
    Arena arena = { 0 };
    va_list args;
    va_start(args, format);
    report_error(run->diags.out ? run->diags.out : stderr, NULL, "%s", arena_vtext(&arena, format, args));
    va_end(args);
    arena_free(&arena);
    run->diags.errors++;
    return false;
}

enum { MOST_BYTES = 256 << 20 }; /* of a source: offsets are ints, and models are shorter */

/* Reads up to one byte more than the maximum. */
static char *read_all(FILE *in, size_t *size)
{
    size_t room = 0, got;
    char *text = NULL;
    *size = 0;
    do {
        if (room - *size < 4096) {
            room = room ? 2 * room : 65536;
            text = realloc(text, room);
            if (!text)
                out_of_memory(room);
        }
        got = fread(text + *size, 1, room - *size - 1, in);
        *size += got;
    } while (got > 0 && *size <= MOST_BYTES);
    text[*size] = '\0';
    return text;
}

bool read_source(Run *run, const char *path)
{
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *in = is_stdin ? stdin : fopen(path, "rb");
    size_t size;
    if (!in)
        return run_failed(run, "cannot read %s: %s", path, strerror(errno));
    if (fstat(fileno(in), &run->input) != 0)
        run->input = (struct stat){ 0 };
    char *text = read_all(in, &size);
    bool failed = ferror(in) != 0;
    int reason = errno;
    if (!is_stdin)
        fclose(in);
    free((char *)run->source.text);
    run->source = (Source){ .path = is_stdin ? "<stdin>" : path, .text = text };
    run->diags.arena = &run->arena;
    run->diags.source = &run->source;
    run->diags.out = stderr;
    if (failed)
        return run_failed(run, "cannot read %s: %s", path, strerror(reason));
    if (size > MOST_BYTES)
        return run_failed(run, "%s is larger than %s, too large for a model", path,
                          bytes_text(&run->arena, MOST_BYTES));
    run->source.length = (int)size;
    return true;
}

const char *shown_path(Run *run) { return visible_text(&run->arena, run->source.path); }

/* Opening must not wait for the writer of a pipe, as a model or a folder of others may name one; reading does, for
 * `<(command)` of a shell. */
static FILE *open_named(const char *path)
{
    const int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    return file < 0 || fcntl(file, F_SETFL, 0) < 0 ? NULL : fdopen(file, "rb");
}

Source *read_text(void *context, const char *path, const char **why)
{
    Run *run = context;
    FILE *in = open_named(path);
    size_t size = 0;
    char *text = in ? read_all(in, &size) : NULL;
    *why = !in || ferror(in)      ? strerror(errno)
           : size > MOST_BYTES    ? "it is too large"
           : strlen(text) != size ? "it has a byte 0, and is no text"
                                  : NULL;
    if (in)
        fclose(in);
    Source *source = *why ? NULL : NEW(&run->arena, Source);
    if (source)
        *source =
            (Source){ arena_text(&run->arena, "%s", path), arena_text(&run->arena, "%s", text), (int)strlen(text) };
    free(text);
    return source;
}

size_t next_text_line(FILE *in, char **line, size_t *room)
{
    size_t length = 0;
    for (int c = 0; c != '\n' && length < LONGEST_LINE && (c = getc_unlocked(in)) != EOF;) {
        if (length + 2 > *room) {
            *room = 2 * *room + 512;
            if (!(*line = realloc(*line, *room)))
                out_of_memory(*room);
        }
        (*line)[length++] = (char)c;
        (*line)[length] = '\0';
    }
    return length;
}

const char *program_on_path(Arena *arena, const char *name)
{
    if (strchr(name, '/'))
        return name;
    for (const char *at = getenv("PATH"); at && *at; at += strspn(at, ":")) {
        const int length = (int)strcspn(at, ":");
        const char *program = arena_text(arena, "%.*s/%s", length, at, name);
        if (access(program, X_OK) == 0)
            return program;
        at += length;
    }
    return NULL;
}

bool make_folder(Run *run, const char *path)
{
    return make_folders(path, false) || run_failed(run, "cannot make the folder %s: %s; give another name", path,
                                                   errno == EEXIST ? "a file has that name" : strerror(errno));
}

bool may_write(Run *run, const char *path)
{
    return !is_same_file(path, &run->input) ||
           run_failed(run, "cannot write %s: it is the input file; give another name", path);
}

/* Devices and pipes are written directly: only files can be replaced. */
static bool is_device(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && !S_ISREG(status.st_mode);
}

/* What cannot be kept, such as another's file as one's own, is not: then the new file is as any that is made. */
static void keep_owner(int file, const char *place)
{
    const mode_t mask = umask(0);
    struct stat old;
    umask(mask);
    const bool is_there = stat(place, &old) == 0;
    if (!is_there || fchown(file, old.st_uid, old.st_gid) != 0 || fchmod(file, old.st_mode & 0777) != 0)
        fchmod(file, 0666 & ~mask);
}

static const char *place_of(Run *run, const char *path)
{
    char *real = realpath(path, NULL);
    const char *place = real ? arena_text(&run->arena, "%s", real) : path;
    free(real);
    return place;
}

/* Under a name of its own: another mpc may be writing the same file, and any name could be that of a user's. */
static FILE *open_aside(Run *run, NewFile *file)
{
    char *aside = arena_text(&run->arena, "%s.XXXXXX", file->place);
    const int made = mkstemp(aside);
    if (made < 0)
        return NULL;
    file->aside = aside;
    note_unfinished(aside);
    fcntl(made, F_SETFD, FD_CLOEXEC);
    keep_owner(made, file->place);
    return fdopen(made, "w");
}

bool open_new(Run *run, NewFile *file, const char *path)
{
    *file = (NewFile){ .path = path, .is_stdout = strcmp(path, "-") == 0 };
    if (file->is_stdout) {
        file->out = stdout;
        return true;
    }
    if (!may_write(run, path))
        return false;
    file->place = place_of(run, path);
    if (make_folders(path, true))
        file->out = is_device(path) ? fopen(path, "w") : open_aside(run, file);
    return file->out || run_failed(run, "cannot write %s: %s", path, strerror(errno));
}

bool close_new(Run *run, NewFile *file)
{
    if (file->is_stdout) /* main() finds a failed write */
        return true;
    bool failed = fflush(file->out) != 0 || ferror(file->out);
    int reason = errno;
    fclose(file->out);
    const bool is_done = !failed && (!file->aside || rename(file->aside, file->place) == 0);
    reason = failed ? reason : errno;
    if (!is_done && file->aside)
        unlink(file->aside);
    if (file->aside)
        forget_unfinished(file->aside);
    return is_done || run_failed(run, "cannot write %s: %s", file->path, strerror(reason));
}

void drop_new(NewFile *file)
{
    if (!file->is_stdout)
        fclose(file->out);
    if (!file->aside)
        return;
    unlink(file->aside);
    forget_unfinished(file->aside);
}

bool write_new(Run *run, const char *path, const char *text)
{
    NewFile file;
    if (!open_new(run, &file, path))
        return false;
    fputs(text, file.out);
    return close_new(run, &file);
}
