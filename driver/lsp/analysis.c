/* analysis.c -- parses and lowers a text, and keeps what that says: the tree, messages, names, types.
 *
 * After a syntax error the lines that are right are lowered all the same, without messages: types of names stay known.
 */
#include "mir.h"

#include "cost/cost.h"

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

/* Messages that were printed have no place in the text: those about options, or about a file that the text names. */
static void add_printed(Analysis *a, const char *printed)
{
    static const char of_mpc[] = "mpc: error: ", error[] = ": error: ";
    for (const char *line = printed, *end; *line; line = *end ? end + 1 : end) {
        const size_t length = strlen(of_mpc);
        end = line + strcspn(line, "\n");
        const char *text = strncmp(line, of_mpc, length) == 0 ? line + length : line, *found = strstr(line, error);
        if (text != line || (found && found < end))
            add_note(a, (Note){ .is_error = true, .message = arena_text(&a->arena, "%.*s", (int)(end - text), text) });
    }
}

static void lower_text(Analysis *a)
{
    a->is_whole = a->run.diags.errors == 0;
    a->run.diags.listen = a->is_whole ? hear : hear_nothing;
    Settings settings;
    Module *m = lower_ast(&a->run, a->file, 0, &settings, &a->run.diags);
    if (m) {
        a->ranks = count_ranks(m, ~0u);
        free_module(m);
    }
}

static void analyse_source(Analysis *a)
{
    Run *run = &a->run;
    if (is_dump(run->source.path)) {
        a->module = parse_ir(run);
        return;
    }
    a->file = parse_mdl(&run->source, &run->diags, &a->arena);
    lower_text(a);
    find_names(&a->names, a->file, run->source.length);
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
    a->names.arena = &a->arena;
    char *printed = NULL;
    size_t size;
    run->diags.out = open_memory(&printed, &size);
    analyse_source(a);
    fclose(run->diags.out);
    if (run->diags.listen == hear)
        add_printed(a, printed);
    free(printed);
    return a;
}

void free_analysis(Analysis *analysis)
{
    if (!analysis)
        return;
    if (analysis->module)
        free_module(analysis->module);
    arena_free(&analysis->run.arena);
    arena_free(&analysis->arena);
    free(analysis);
}
