/* actions.c -- quick fixes: the remedies of messages as changes of the text. */
#include "lsp.h"

#include "near.h"

#include <string.h>

typedef struct {
    Request *r;
    const Note *note;
    cJSON *list;
} Fixing;

static void add_fix(Fixing *f, const char *title, cJSON *edits)
{
    cJSON *action = cJSON_CreateObject(), *edit = cJSON_AddObjectToObject(action, "edit");
    cJSON *diagnostics = cJSON_AddArrayToObject(action, "diagnostics");
    cJSON_AddStringToObject(action, "title", title);
    cJSON_AddStringToObject(action, "kind", "quickfix");
    cJSON_AddItemToArray(diagnostics, note_json(f->r->arena, f->r->document, f->note));
    cJSON_AddBoolToObject(action, "isPreferred", true);
    cJSON_AddItemToObject(cJSON_AddObjectToObject(edit, "changes"), f->r->document->uri, edits);
    cJSON_AddItemToArray(f->list, action);
}

static cJSON *one_edit(const Fixing *f, Loc at, const char *bytes)
{
    cJSON *edits = cJSON_CreateArray();
    cJSON_AddItemToArray(edits, text_edit(&f->r->document->text, at, bytes));
    return edits;
}

/* --- Another name ------------------------------------------------------------------------------- */

/* What the message is about: the name that it quotes, if it is in the marked text, else the name that this begins with.
 */
static Loc wrong_name(const Fixing *f)
{
    const char *marked = f->r->document->text.bytes + f->note->at.begin;
    const int length = f->note->at.end - f->note->at.begin;
    const char *quote = strchr(f->note->message, '\''), *end = quote ? strchr(quote + 1, '\'') : NULL;
    const int quoted = end ? (int)(end - quote - 1) : 0;
    for (int i = 0; quoted > 0 && i + quoted <= length; i++)
        if (strncmp(marked + i, quote + 1, (size_t)quoted) == 0 &&
            (i + quoted == length || !is_name_byte(marked[i + quoted])))
            return (Loc){ f->note->at.begin + i, f->note->at.begin + i + quoted };
    int named = 0;
    while (named < length && is_name_byte(marked[named]))
        named++;
    return (Loc){ f->note->at.begin, f->note->at.begin + named };
}

static void offer_name(Fixing *f, const char *name)
{
    const Loc at = wrong_name(f);
    if (at.begin < at.end && at.end <= f->r->document->text.length)
        add_fix(f, arena_text(f->r->arena, "Replace by '%s'", name), one_edit(f, at, name));
}

/* --- Removing ----------------------------------------------------------------------------------- */

/* All lines of a statement, if nothing else stands in them; else the statement. */
static Loc whole_lines(const Text *text, Loc statement)
{
    int begin = statement.begin, end = statement.end;
    while (begin > 0 && strchr(" \t", text->bytes[begin - 1]))
        begin--;
    const size_t spaces = strspn(text->bytes + end, " \t\r");
    const bool is_commented = text->bytes[end + (int)spaces] == '#';
    end += (int)spaces + (is_commented ? (int)strcspn(text->bytes + end + spaces, "\n") : 0);
    const bool is_alone =
        (begin == 0 || text->bytes[begin - 1] == '\n') && (text->bytes[end] == '\n' || !text->bytes[end]);
    return is_alone ? (Loc){ begin, end + (text->bytes[end] == '\n') } : statement;
}

/* One of several names in front of a `:`, with a comma. */
static Loc with_comma(Loc name, const Ast *list)
{
    const Ast *before = NULL;
    for (const Ast *ast = list; ast && ast->loc.begin < name.begin; ast = ast->next)
        before = ast;
    if (before)
        return (Loc){ before->loc.end, name.end };
    return (Loc){ name.begin, list->next->loc.begin };
}

static void offer_removal(Fixing *f)
{
    const Mention *mention = mention_at(&f->r->analysis->names, f->note->at.begin);
    const Declaration *of = mention ? mention->of : NULL;
    const Text *text = &f->r->document->text;
    if (!of || mention->kind != M_DECLARES || !of->declared)
        return;
    const AstKind kind = of->declared->kind;
    const bool is_list = (kind == A_PARAM || kind == A_STATE) && of->declared->child->next;
    const bool is_whole = kind == A_PARAM || kind == A_INPUT || kind == A_BLOCK ||
                          (kind == A_ASSIGN && !of->declared->child->next && of->at.begin == f->note->at.begin);
    if (is_list)
        add_fix(f, arena_text(f->r->arena, "Remove '%s'", of->name),
                one_edit(f, with_comma(of->at, of->declared->child), ""));
    else if (is_whole)
        add_fix(f, arena_text(f->r->arena, "Remove '%s'", of->name),
                one_edit(f, whole_lines(text, of->declared->loc), ""));
}

/* --- Moving ------------------------------------------------------------------------------------- */

/* The declaration of what is used above it goes in front of the statement that uses it. */
static void offer_move(Fixing *f)
{
    const Text *text = &f->r->document->text;
    const Mention *used = mention_at(&f->r->analysis->names, f->note->at.begin);
    const Ast *user = f->r->analysis->file;
    while (user && user->loc.end <= f->note->at.begin)
        user = user->next;
    if (!user || !used || !used->of || !used->of->declared)
        return;
    const Loc lines = whole_lines(text, used->of->declared->loc);
    const int before = text->line[line_of(text, user->loc.begin)];
    const char *moved = arena_text(f->r->arena, "%.*s", lines.end - lines.begin, text->bytes + lines.begin);
    if (!strchr(moved, '\n') || lines.begin < before)
        return;
    cJSON *edits = one_edit(f, (Loc){ before, before }, moved);
    cJSON_AddItemToArray(edits, text_edit(text, lines, ""));
    add_fix(f, arena_text(f->r->arena, "Move '%s' up", used->of->name), edits);
}

/* --- The request -------------------------------------------------------------------------------- */

static void fix(Fixing *f)
{
    const char *name = name_meant(f->r->arena, f->note->help);
    if (name)
        offer_name(f, name);
    else if (strstr(f->note->help, "or remove it"))
        offer_removal(f);
    else if (strcmp(f->note->help, "move it up") == 0)
        offer_move(f);
}

cJSON *answer_actions(Request *r)
{
    const cJSON *range = cJSON_GetObjectItemCaseSensitive(r->params, "range");
    const Text *text = &r->document->text;
    Loc asked;
    Fixing f = { .r = r, .list = cJSON_CreateArray() };
    if (!read_position(text, cJSON_GetObjectItemCaseSensitive(range, "start"), &asked.begin) ||
        !read_position(text, cJSON_GetObjectItemCaseSensitive(range, "end"), &asked.end))
        return f.list;
    for (f.note = r->analysis->notes; f.note; f.note = f.note->next)
        if (f.note->help && f.note->at.begin <= asked.end && asked.begin <= f.note->at.end)
            fix(&f);
    return f.list;
}
