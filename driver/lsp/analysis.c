/* analysis.c -- parses and lowers a text, and keeps what that says: the tree, messages, names, types.
 *
 * After a syntax error the lines that are right are lowered all the same, without messages: types of names stay known.
 */
#include "lsp.h"

#include <stdlib.h>
#include <string.h>

static const char *kept(Analysis *a, const char *text) { return text ? arena_text(&a->arena, "%s", text) : NULL; }

static void add_note(Analysis *a, Note described)
{
    Note **end = &a->notes;
    while (*end)
        end = &(*end)->next;
    *end = NEW(&a->arena, Note);
    **end = described;
}

static void hear(void *context, Where where, bool is_error, const char *message)
{
    Analysis *a = context;
    add_note(a, (Note){ .at = where.at,
                        .also = { where.also[0], where.also[1] },
                        .is_error = is_error,
                        .message = kept(a, message),
                        .label = kept(a, where.label),
                        .help = kept(a, where.help) });
}

static void hear_nothing(void *context, Where where, bool is_error, const char *message) {}

/* What has no place in the text: errors in options, for instance. */
static void add_printed(Analysis *a, const char *printed)
{
    static const char before[] = "mpc: error: ";
    const size_t length = strlen(before);
    const char *text = strncmp(printed, before, length) == 0 ? printed + length : printed;
    if (*text)
        add_note(a,
                 (Note){ .is_error = true, .message = arena_text(&a->arena, "%.*s", (int)strcspn(text, "\n"), text) });
}

static void lower_text(Analysis *a)
{
    char *printed = NULL;
    size_t length;
    a->run.diags.out = open_memory(&printed, &length);
    a->is_whole = a->run.diags.errors == 0;
    a->run.diags.listen = a->is_whole ? hear : hear_nothing;
    Settings settings;
    Module *m = lower_ast(&a->run, a->file, 0, &settings, &a->run.diags);
    if (m)
        free_module(m);
    fclose(a->run.diags.out);
    if (a->is_whole)
        add_printed(a, printed);
    free(printed);
}

Analysis *analyse(const Options *options, const char *path, const char *text, int length)
{
    Analysis *a = calloc(1, sizeof *a);
    if (!a)
        out_of_memory(sizeof *a);
    Run *run = &a->run;
    char *bytes = arena_alloc(&a->arena, (size_t)length + 1, 1);
    memcpy(bytes, text, (size_t)length);
    run->options = options;
    run->source = (Source){ .path = kept(a, path), .text = bytes, .length = length };
    run->diags = (Diags){ .arena = &run->arena, .source = &run->source, .listen = hear, .context = a };
    a->facts = (Facts){ .arena = &a->arena, .source = &run->source, .begin.arena = &a->arena };
    run->facts = &a->facts;
    a->file = parse_mdl(&run->source, &run->diags, &a->arena);
    lower_text(a);
    a->names.arena = &a->arena;
    find_names(&a->names, a->file, length);
    return a;
}

void free_analysis(Analysis *analysis)
{
    if (!analysis)
        return;
    arena_free(&analysis->run.arena);
    arena_free(&analysis->arena);
    free(analysis);
}
