/* new.c -- mpc new: writes a model with comments to start from (new.mdl), under the name that is given. */
#include "driver.h"

#include "new.h"

#include <string.h>

#include <unistd.h>

static const char suffix[] = ".mdl";

/* "models/tale" of "models/tale.mdl". */
static const char *stem_of(Arena *arena, const char *operand)
{
    const size_t length = strlen(operand), tail = strlen(suffix);
    const bool has_suffix = length > tail && strcmp(operand + length - tail, suffix) == 0;
    return arena_text(arena, "%.*s", (int)(length - (has_suffix ? tail : 0)), operand);
}

/* The template with the name in the place of NAME. */
static const char *text_with(Arena *arena, const char *name)
{
    static const char place[] = "NAME";
    const char *at = new_template, *text = "";
    for (const char *next; (next = strstr(at, place)); at = next + strlen(place))
        text = arena_text(arena, "%s%.*s%s", text, (int)(next - at), at, name);
    return arena_text(arena, "%s%s", text, at);
}

static void ignore_message(void *context, Where where, bool is_error, const char *message) {}

/* A word that the language lets models have as a name: the file can be read with it. */
static bool is_name(Arena *arena, const char *name, const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    const Source source = { name, text, (int)strlen(text) };
    Diags silent = { .arena = arena, .source = &source, .listen = ignore_message };
    if (!*name || strspn(name, letters) != strlen(name))
        return false;
    parse_mdl(&source, &silent, arena);
    return silent.errors == 0;
}

int run_new(Run *run)
{
    Arena *arena = &run->arena;
    const char *stem = stem_of(arena, run->options->operand), *slash = strrchr(stem, '/');
    const char *name = slash ? slash + 1 : stem, *text = text_with(arena, name);
    const char *path = arena_text(arena, "%s%s", stem, suffix), *word = shell_word(arena, path);
    if (!is_name(arena, name, text))
        return usage_error(run->options->command,
                           "'%s' cannot be the name of a model, which has letters, digits and _, begins with a letter, "
                           "and is no word of the language",
                           name);
    if (access(path, F_OK) == 0)
        return run_failed(run, "%s is there already: give another name", path), STATUS_FAILED;
    if (!write_new(run, path, text))
        return STATUS_FAILED;
    printf("%s: a small language model, with comments\nnext: mpc run %s --data %s --steps 100 --sample 200\n", path,
           word, word);
    return STATUS_OK;
}
